-- The bus: messages, numbered together with the events. A row never changes.

CREATE TABLE messages (
    project BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    wall BIGINT NOT NULL,
    kind TEXT NOT NULL,
    task TEXT,
    run TEXT,
    author TEXT NOT NULL,
    parent TEXT,
    body TEXT NOT NULL,
    attachments TEXT,
    attempts BIGINT NOT NULL,
    waited BIGINT NOT NULL,
    PRIMARY KEY (project, seq)
) /* keyed */;
CREATE UNIQUE INDEX messages_id ON messages (project, id);
CREATE INDEX messages_task ON messages (project, task, seq) WHERE task IS NOT NULL;

UPDATE store SET version = 17;
