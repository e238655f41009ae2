-- Workers, what they are at, and what follows from events.

-- definition is JSON; `queue` is a part of it. `since` is the event that defined it so, or since which it
-- is asleep: only what comes after wakes it.
CREATE TABLE workers (
    project BIGINT NOT NULL,
    name TEXT NOT NULL,
    queue TEXT NOT NULL,
    definition TEXT NOT NULL,
    paused BIGINT NOT NULL,
    awake BIGINT NOT NULL,
    removed BIGINT NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (project, name)
) /* wide */;
CREATE INDEX workers_queue ON workers (project, queue);

-- The items that became tasks, until these are over.
CREATE TABLE jobs (
    project BIGINT NOT NULL,
    worker TEXT NOT NULL,
    task TEXT NOT NULL,
    queue TEXT NOT NULL,
    item BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    PRIMARY KEY (project, worker, task)
) /* keyed */;

-- route is JSON. How far events were routed is in `marks`, under the name `router`.
CREATE TABLE routes (
    project BIGINT NOT NULL,
    id TEXT NOT NULL,
    route TEXT NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (project, id)
) /* wide */;

UPDATE store SET version = 6;
