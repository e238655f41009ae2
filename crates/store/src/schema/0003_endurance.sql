-- What the oldest events meant. Events up to `compacted`, the last of which happened at `compacted_wall`, are no longer in the
-- log; the log begins with `baseline`, which has a row for each lock, semaphore, section and task that they told of.
ALTER TABLE projects ADD COLUMN compacted BIGINT NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN compacted_wall BIGINT NOT NULL DEFAULT 0;

-- `data` is JSON.
CREATE TABLE baseline (
    project BIGINT NOT NULL,
    component TEXT NOT NULL,
    id TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (project, component, id)
) /* wide */;

UPDATE store SET version = 3;
