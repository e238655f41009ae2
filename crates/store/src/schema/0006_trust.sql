-- Whose store this is, where it went, and who did what.

-- `store_id` is random and identifies this store: a user trusts a store by it. It is NULL in a store that an earlier version
-- made, until a user trusts that store. `moved_to` is the URL that the project was copied to; NULL while the store is in use.
ALTER TABLE projects ADD COLUMN store_id TEXT;
ALTER TABLE projects ADD COLUMN moved_to TEXT;

-- The person or run whose command caused the event, as JSON; NULL for what a runner did by itself.
ALTER TABLE events ADD COLUMN actor TEXT;

UPDATE store SET version = 6;
