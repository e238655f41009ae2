-- Tasks and what belongs to them. spec, detail, holds, session, lease, ended, process, sections, watching, terms and errand
-- are JSON; NULL stands for "none".

CREATE TABLE sections (
    project BIGINT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    exclusive BIGINT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (project, id),
    UNIQUE (project, name)
) /* keyed */;

-- `lane` says what a run of the task needs: tasks of one lane are admitted or refused together. It is NULL if there is
-- nothing for a runner to do. `unmet` counts the dependencies that hold the task back; it follows from `edges`.
-- title, section, parent and priority stand in spec, and here for the indexes.
CREATE TABLE tasks (
    project BIGINT NOT NULL,
    id TEXT NOT NULL,
    title TEXT NOT NULL,
    section TEXT,
    parent TEXT,
    priority BIGINT NOT NULL,
    position BIGINT NOT NULL,
    lane TEXT,
    spec TEXT NOT NULL,
    created_wall BIGINT NOT NULL,
    state TEXT NOT NULL,
    detail TEXT,
    changed_lease BIGINT NOT NULL,
    changed_wall BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    failures BIGINT NOT NULL,
    recoveries BIGINT NOT NULL,
    unmet BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (project, id)
) /* wide */;
CREATE INDEX tasks_ready ON tasks (project, lane, priority DESC, position)
    WHERE state = 'pending' AND unmet = 0 AND lane IS NOT NULL;
CREATE INDEX tasks_position ON tasks (project, position);
-- What failed last, and what others wait for in vain. Few tasks are in it.
CREATE INDEX tasks_ended ON tasks (project, changed_lease) WHERE state IN ('failed', 'cancelled', 'skipped');
CREATE INDEX tasks_title ON tasks (project, title);
CREATE INDEX tasks_section ON tasks (project, section, position) WHERE section IS NOT NULL;
CREATE INDEX tasks_parent ON tasks (project, parent) WHERE parent IS NOT NULL;

-- `task` waits for `on_task`. The keys begin with what tells rows apart: a planner without statistics takes any key that
-- begins with the project for good enough.
CREATE TABLE edges (
    project BIGINT NOT NULL,
    task TEXT NOT NULL,
    on_task TEXT NOT NULL,
    allow_failed BIGINT NOT NULL,
    PRIMARY KEY (task, on_task, project)
) /* keyed */;
CREATE INDEX edges_back ON edges (on_task, task, project);

-- `live` is 1 until the run has ended, and NULL then: an index of the few that live. The key begins with the epoch, so
-- that it does not look better than that index.
CREATE TABLE runs (
    project BIGINT NOT NULL,
    id TEXT NOT NULL,
    task TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
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
    PRIMARY KEY (epoch, project)
) /* keyed */;
CREATE UNIQUE INDEX runs_id ON runs (project, id);
CREATE INDEX runs_live ON runs (project, live, epoch) WHERE live IS NOT NULL;
CREATE INDEX runs_task ON runs (project, task);

CREATE TABLE runners (
    project BIGINT NOT NULL,
    id TEXT NOT NULL,
    process TEXT NOT NULL,
    address TEXT NOT NULL,
    sections TEXT,
    max_runs BIGINT,
    watching TEXT,
    started_lease BIGINT NOT NULL,
    started_wall BIGINT NOT NULL,
    seen_lease BIGINT NOT NULL,
    terms TEXT,
    PRIMARY KEY (project, id)
) /* keyed */;

-- What is to be done outside. Errands of one subject are done in the order of seq.
CREATE TABLE outbox (
    project BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    subject TEXT NOT NULL,
    executor TEXT NOT NULL,
    errand TEXT NOT NULL,
    PRIMARY KEY (project, seq)
) /* keyed */;

UPDATE store SET version = 2;
