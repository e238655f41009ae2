-- The directories in which tasks and pipelines work. `place` and `state` are JSON.
CREATE TABLE workspaces (
    project BIGINT NOT NULL,
    owner TEXT NOT NULL,
    host TEXT NOT NULL,
    place TEXT NOT NULL,
    created_wall BIGINT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (project, owner)
) /* keyed */;

UPDATE store SET version = 13;
