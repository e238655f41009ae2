-- Merge queues: commits that are to land on a branch.

-- spec and state are JSON. `is_open` is 1 until the entry has left the queue, and NULL then. `again` is when a waiting entry is tried
-- again, on the lease clock.
CREATE TABLE landings (
    project BIGINT NOT NULL,
    id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    target TEXT NOT NULL,
    task TEXT,
    added_wall BIGINT NOT NULL,
    spec TEXT NOT NULL,
    state TEXT NOT NULL,
    rebuilds BIGINT NOT NULL,
    tries BIGINT NOT NULL,
    again BIGINT,
    is_open BIGINT,
    PRIMARY KEY (project, id)
) /* keyed */;
CREATE INDEX landings_seq ON landings (project, seq);
CREATE INDEX landings_open ON landings (project, is_open, target, seq) WHERE is_open IS NOT NULL;
CREATE INDEX landings_task ON landings (project, task, seq) WHERE task IS NOT NULL;

-- state is JSON: whether the queue of the branch is paused, and the last commit that has passed the check.
CREATE TABLE landing_targets (
    project BIGINT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (project, name)
) /* keyed */;

UPDATE store SET version = 15;
