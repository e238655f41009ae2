-- How much may be under way at a time, and which grants time may end.

-- The limits of the project; 0 stands for any number, NULL for "not set yet". They are read by every transaction.
ALTER TABLE projects ADD COLUMN max_runs BIGINT;
ALTER TABLE projects ADD COLUMN max_roots BIGINT;

-- What a runner sweeps: the few grants that have a lease, a longest hold or an offer.
CREATE INDEX locks_timed ON locks (project, name)
    WHERE holder IS NOT NULL AND (ttl IS NOT NULL OR max_hold IS NOT NULL OR offer IS NOT NULL);
CREATE INDEX slots_timed ON slots (project, semaphore, holder)
    WHERE ttl IS NOT NULL OR max_hold IS NOT NULL OR offer IS NOT NULL;

UPDATE store SET version = 10;
