-- Everything that people take to work on a task, or wait for, and what they have lost.

-- One row for each resource of a claim. `epoch` is its grant, NULL while the claim waits; `terms` is JSON and tells how it waits, NULL
-- while it is held. `task` is NULL if a run waits for the end of tasks. The order of claims is that of their tickets.
CREATE TABLE claims (
    project BIGINT NOT NULL,
    ticket BIGINT NOT NULL,
    kind TEXT NOT NULL,
    resource TEXT NOT NULL,
    weight BIGINT NOT NULL,
    epoch BIGINT,
    holder TEXT NOT NULL,
    task TEXT,
    terms TEXT,
    PRIMARY KEY (project, ticket, kind, resource)
) /* keyed */;

-- Claims that ended against the will of their holder, until the holder was told.
CREATE TABLE lost_claims (
    project BIGINT NOT NULL,
    task TEXT NOT NULL,
    holder TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    reason TEXT NOT NULL,
    lost_wall BIGINT NOT NULL,
    PRIMARY KEY (project, task, holder)
) /* keyed */;

-- Nobody stands in line for the lock of a task or a section any more: a claim waits for all that it needs.
DELETE FROM waiters WHERE kind = 'lock' AND (resource LIKE 'task:%' OR resource LIKE 'section:%');

UPDATE store SET version = 9;
