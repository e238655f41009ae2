-- Queues, their items, and those who wait for one.

-- `length` counts the items, dead ones included; it follows from them.
CREATE TABLE queues (
    project BIGINT NOT NULL,
    name TEXT NOT NULL,
    visibility BIGINT NOT NULL,
    max_attempts BIGINT NOT NULL,
    dead_letter TEXT,
    max_length BIGINT NOT NULL,
    paused BIGINT NOT NULL,
    length BIGINT NOT NULL,
    PRIMARY KEY (project, name)
) /* keyed */;

-- An item that is done has no row: the log has it, and so the table holds what is left to do and no more. `rank` is the order
-- in which items are taken; it never changes. Every item is in one of the three indexes: `ready` is 1 if it can be taken at
-- once, else NULL; `due` is when time alone changes how it stands; the rest is dead. history and origin are JSON. The key
-- begins with the id, so that it does not look better than these indexes.
CREATE TABLE items (
    project BIGINT NOT NULL,
    id BIGINT NOT NULL,
    queue TEXT NOT NULL,
    data TEXT NOT NULL,
    priority BIGINT NOT NULL,
    rank BIGINT NOT NULL,
    created_lease BIGINT NOT NULL,
    created_wall BIGINT NOT NULL,
    dedupe TEXT,
    attempts BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    state TEXT NOT NULL,
    ready BIGINT,
    due BIGINT,
    holder TEXT,
    taken_lease BIGINT,
    taken_wall BIGINT,
    reason TEXT,
    died_wall BIGINT,
    history TEXT,
    origin TEXT,
    PRIMARY KEY (id, project)
) /* keyed */;
CREATE INDEX items_ready ON items (project, queue, rank, id) WHERE ready = 1;
CREATE INDEX items_due ON items (project, queue, due, id) WHERE due IS NOT NULL;
CREATE INDEX items_dead ON items (project, queue, id) WHERE state = 'dead';
-- A dead item has given its key up.
CREATE INDEX items_dedupe ON items (project, queue, dedupe) WHERE dedupe IS NOT NULL;

-- Who waits for an item. The ticket is the order of the line; standing is JSON.
CREATE TABLE takers (
    project BIGINT NOT NULL,
    ticket BIGINT NOT NULL,
    queue TEXT NOT NULL,
    holder TEXT NOT NULL,
    standing TEXT NOT NULL,
    since_lease BIGINT NOT NULL,
    since_wall BIGINT NOT NULL,
    seen_lease BIGINT NOT NULL,
    PRIMARY KEY (project, queue, ticket)
) /* keyed */;

UPDATE store SET version = 4;
