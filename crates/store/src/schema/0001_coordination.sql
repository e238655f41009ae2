-- Columns named *_lease are readings of the lease clock, *_wall of the wall clock, both in milliseconds.
-- ancestors, processes, metadata and offer are JSON; NULL stands for "none".

CREATE TABLE store (
    version BIGINT PRIMARY KEY
) /* keyed */;
INSERT INTO store (version) VALUES (1);

-- The counters of a project. On SQLite, lease time is the monotonic clock of `boot` plus `lease_base`.
CREATE TABLE projects (
    project BIGINT PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    seq BIGINT NOT NULL,
    ticket BIGINT NOT NULL,
    lease BIGINT NOT NULL,
    lease_base BIGINT NOT NULL,
    boot TEXT NOT NULL
) /* keyed */;

-- The boots of each host, with the sequence at which each was first seen.
CREATE TABLE boots (
    project BIGINT NOT NULL,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    seq BIGINT NOT NULL,
    PRIMARY KEY (project, host, boot)
) /* keyed */;

-- What happened. The tables below, without leases, offers and lines, follow from it.
CREATE TABLE events (
    project BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    wall BIGINT NOT NULL,
    kind TEXT NOT NULL,
    component TEXT NOT NULL,
    id TEXT,
    request TEXT,
    data TEXT NOT NULL,
    PRIMARY KEY (project, seq)
) /* keyed */;
CREATE INDEX events_request ON events (project, request) WHERE request IS NOT NULL;

-- A row survives the release of its lock: `fence` must never be forgotten.
CREATE TABLE locks (
    project BIGINT NOT NULL,
    name TEXT NOT NULL,
    default_ttl BIGINT,
    default_max_hold BIGINT,
    fence BIGINT NOT NULL,
    holder TEXT,
    weight BIGINT,
    ttl BIGINT,
    max_hold BIGINT,
    ancestors TEXT,
    processes TEXT,
    metadata TEXT,
    request TEXT,
    epoch BIGINT,
    acquired_lease BIGINT,
    acquired_wall BIGINT,
    heartbeat_lease BIGINT,
    heartbeat_wall BIGINT,
    ticket BIGINT,
    offer TEXT,
    PRIMARY KEY (project, name)
) /* keyed */;

CREATE TABLE semaphores (
    project BIGINT NOT NULL,
    name TEXT NOT NULL,
    capacity BIGINT NOT NULL,
    default_ttl BIGINT,
    PRIMARY KEY (project, name)
) /* keyed */;

-- Who holds how much of a semaphore.
CREATE TABLE slots (
    project BIGINT NOT NULL,
    semaphore TEXT NOT NULL,
    holder TEXT NOT NULL,
    weight BIGINT NOT NULL,
    ttl BIGINT,
    max_hold BIGINT,
    ancestors TEXT,
    processes TEXT,
    metadata TEXT,
    request TEXT,
    epoch BIGINT NOT NULL,
    acquired_lease BIGINT NOT NULL,
    acquired_wall BIGINT NOT NULL,
    heartbeat_lease BIGINT NOT NULL,
    heartbeat_wall BIGINT NOT NULL,
    ticket BIGINT,
    offer TEXT,
    PRIMARY KEY (project, semaphore, holder),
    FOREIGN KEY (project, semaphore) REFERENCES semaphores (project, name)
) /* keyed */;

-- Who waits for what. The ticket is the order of the line.
CREATE TABLE waiters (
    project BIGINT NOT NULL,
    ticket BIGINT NOT NULL,
    kind TEXT NOT NULL,
    resource TEXT NOT NULL,
    holder TEXT NOT NULL,
    weight BIGINT NOT NULL,
    ttl BIGINT,
    max_hold BIGINT,
    ancestors TEXT,
    processes TEXT,
    metadata TEXT,
    request TEXT,
    standing TEXT NOT NULL,
    since_lease BIGINT NOT NULL,
    since_wall BIGINT NOT NULL,
    seen_lease BIGINT NOT NULL,
    PRIMARY KEY (project, ticket)
) /* keyed */;
