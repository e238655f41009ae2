-- Imports that are not finished. Their tasks are in place, but nobody sees them while this row is here. process and sections
-- are JSON; `position` is the event that opened it, and the tasks come after that.
CREATE TABLE imports (
    project BIGINT NOT NULL,
    id TEXT NOT NULL,
    process TEXT NOT NULL,
    position BIGINT NOT NULL,
    started_wall BIGINT NOT NULL,
    total BIGINT NOT NULL,
    added BIGINT NOT NULL,
    sections TEXT,
    PRIMARY KEY (project, id)
) /* keyed */;

-- The import that a task came with. Its lane begins with the same id, so that a look passes over all of them at once.
ALTER TABLE tasks ADD COLUMN import TEXT;

UPDATE store SET version = 3;
