-- Rows that are only appended are ordered by their rowid on SQLite: when the last page of a table without rowid is full, up to three pages beside
-- it are written again. A file has one project, so the number of an event, a message or a run is enough of a key. PostgreSQL appends
-- in any case.
/* sqlite */
CREATE TABLE new_events (
    project BIGINT NOT NULL,
    seq BIGINT PRIMARY KEY,
    wall BIGINT NOT NULL,
    kind TEXT NOT NULL,
    component TEXT NOT NULL,
    id TEXT,
    request TEXT,
    data TEXT NOT NULL,
    actor TEXT,
    depth BIGINT
) /* wide */;
INSERT INTO new_events SELECT project, seq, wall, kind, component, id, request, data, actor, depth FROM events ORDER BY seq;
DROP TABLE events;
ALTER TABLE new_events RENAME TO events;
CREATE INDEX events_request ON events (project, request) WHERE request IS NOT NULL;

CREATE TABLE new_messages (
    project BIGINT NOT NULL,
    seq BIGINT PRIMARY KEY,
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
    waited BIGINT NOT NULL
) /* wide */;
INSERT INTO new_messages SELECT project, seq, id, wall, kind, task, run, author, parent, body, attachments, attempts, waited
    FROM messages ORDER BY seq;
DROP TABLE messages;
ALTER TABLE new_messages RENAME TO messages;
-- The project stands last: else this index would look better than the order of the rows.
CREATE UNIQUE INDEX messages_id ON messages (id, project);
CREATE INDEX messages_task ON messages (project, task, seq) WHERE task IS NOT NULL;

CREATE TABLE new_runs (
    project BIGINT NOT NULL,
    id TEXT NOT NULL,
    task TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    epoch BIGINT PRIMARY KEY,
    owner TEXT NOT NULL,
    owner_epoch BIGINT NOT NULL,
    holds TEXT,
    session TEXT,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    started_lease BIGINT NOT NULL,
    started_wall BIGINT NOT NULL,
    lease TEXT,
    ended TEXT,
    live BIGINT,
    agent TEXT
) /* wide */;
INSERT INTO new_runs SELECT project, id, task, attempt, epoch, owner, owner_epoch, holds, session, host, boot, started_lease, started_wall,
    lease, ended, live, agent FROM runs ORDER BY epoch;
DROP TABLE runs;
ALTER TABLE new_runs RENAME TO runs;
CREATE UNIQUE INDEX runs_id ON runs (id, project);
CREATE INDEX runs_live ON runs (project, live, epoch) WHERE live IS NOT NULL;
CREATE INDEX runs_task ON runs (task, project);
/* postgres */
/* end */

UPDATE store SET version = 24;
