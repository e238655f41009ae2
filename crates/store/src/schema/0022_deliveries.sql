-- Messages on their way to the task that they are for. A row has the number of its message.

CREATE TABLE deliveries (
    project BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    target TEXT NOT NULL,
    mode TEXT NOT NULL,
    state TEXT NOT NULL,
    dispatch TEXT,
    is_open BIGINT,
    is_locked BIGINT,
    PRIMARY KEY (project, seq)
) /* keyed */;
CREATE UNIQUE INDEX deliveries_id ON deliveries (project, id);
CREATE INDEX deliveries_open ON deliveries (project, target, seq) WHERE is_open = 1;
CREATE INDEX deliveries_locked ON deliveries (project, seq) WHERE is_locked = 1;

UPDATE store SET version = 22;
