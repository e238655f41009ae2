-- How much may be under way at a time, which grants time may end, and how many tasks stand how.

-- The limits of the project; 0 stands for any number, NULL for "not set yet". They are read by every transaction.
ALTER TABLE projects ADD COLUMN max_runs BIGINT;
ALTER TABLE projects ADD COLUMN max_roots BIGINT;

-- What a runner sweeps: the few grants that have a lease, a longest hold or an offer.
CREATE INDEX locks_timed ON locks (project, name)
    WHERE holder IS NOT NULL AND (ttl IS NOT NULL OR max_hold IS NOT NULL OR offer IS NOT NULL);
CREATE INDEX slots_timed ON slots (project, semaphore, holder)
    WHERE ttl IS NOT NULL OR max_hold IS NOT NULL OR offer IS NOT NULL;

-- How many tasks there are in each state, without parts of something else; by_hand is 1 for those that no runner does. Tasks of an import
-- are counted under its id. All of it follows from `tasks`.
CREATE TABLE task_counts (
    project BIGINT NOT NULL,
    import TEXT NOT NULL,
    state TEXT NOT NULL,
    by_hand BIGINT NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (project, import, state, by_hand)
) /* keyed */;
INSERT INTO task_counts (project, import, state, by_hand, number)
    SELECT project, coalesce(import, ''), state, CASE WHEN lane IS NULL THEN 1 ELSE 0 END, count(*)
    FROM tasks WHERE part IS NULL GROUP BY project, coalesce(import, ''), state, CASE WHEN lane IS NULL THEN 1 ELSE 0 END;
-- What dependencies hold back.
CREATE INDEX tasks_held ON tasks (project, import, lane) WHERE state = 'pending' AND unmet > 0 AND part IS NULL;

UPDATE store SET version = 10;
