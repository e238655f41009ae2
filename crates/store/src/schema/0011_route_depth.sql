-- How many routes led to something, one after the other; NULL for none.
ALTER TABLE events ADD COLUMN depth BIGINT;
ALTER TABLE items ADD COLUMN depth BIGINT;

UPDATE store SET version = 11;
