-- Pipelines. Each has a task of the same id, whose spec has the plan.

-- `due` is when it is to be looked at, and is for the index; `state` and `phase` are in body too, which is JSON.
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

UPDATE store SET version = 5;
