-- What runbooks say: pipelines, what these listen to, workers with their jobs, and routes.

-- Pipelines. Each has a task of the same id, whose spec has the plan. `due` is when it is to be looked at, and is for the
-- index; `state` and `phase` are in body too, which is JSON.
CREATE TABLE pipelines (
    project BIGINT NOT NULL,
    id TEXT NOT NULL,
    state TEXT NOT NULL,
    phase TEXT,
    due BIGINT,
    body TEXT NOT NULL,
    PRIMARY KEY (project, id)
) /* wide */;
CREATE INDEX pipelines_open ON pipelines (project, id) WHERE state IN ('init', 'checking', 'blocked', 'running');
CREATE INDEX pipelines_due ON pipelines (project, due, id) WHERE due IS NOT NULL;

-- Roots that go through their phases are under way, where only so many may be.
CREATE INDEX tasks_phases ON tasks (project, id) WHERE state = 'phases';

-- `part` is 1 for a task that is counted with something else, a phase of a pipeline or an attempt at an item of a queue, else
-- NULL; it follows from spec.
ALTER TABLE tasks ADD COLUMN part BIGINT;

-- What may change the answer of the guard that holds a pipeline up, when something happens to it: `about` is its id, or empty
-- for all of its kind. `since` is the last event that the answer knows of. All of it follows from `pipelines`.
CREATE TABLE listeners (
    project BIGINT NOT NULL,
    pipeline TEXT NOT NULL,
    component TEXT NOT NULL,
    about TEXT NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (project, component, about, pipeline)
) /* keyed */;
CREATE INDEX listeners_since ON listeners (project, since);

-- Workers. definition is JSON; `queue` is a part of it. `since` is the event that defined it so, or since which it
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

-- What follows from events. route is JSON. How far events were routed is in `marks`, under the name `router`.
CREATE TABLE routes (
    project BIGINT NOT NULL,
    id TEXT NOT NULL,
    route TEXT NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (project, id)
) /* wide */;

UPDATE store SET version = 5;
