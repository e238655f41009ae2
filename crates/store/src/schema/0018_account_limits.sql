-- Limits of accounts: no run that shares one starts before its time.

-- state is JSON.
CREATE TABLE account_limits (
    project BIGINT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (project, name)
) /* keyed */;

-- The agent that a run was started with, as JSON.
ALTER TABLE runs ADD COLUMN agent TEXT;

UPDATE store SET version = 18;
