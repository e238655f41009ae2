-- What a runner's machine has not enough of to start runs, as JSON; NULL if it has.
ALTER TABLE runners ADD COLUMN shortage TEXT;

UPDATE store SET version = 7;
