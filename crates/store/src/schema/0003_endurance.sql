-- Work that does not give up: loops, decisions, and errands that are tried again.

-- `due` is when time alone may change how the task stands, while it rests, waits for its children or is worked on by hand;
-- `loops` is 1 if it is tried until it is done. Both follow from spec and detail, and are for the indexes.
ALTER TABLE tasks ADD COLUMN due BIGINT;
ALTER TABLE tasks ADD COLUMN loops BIGINT;
CREATE INDEX tasks_due ON tasks (project, due, id) WHERE due IS NOT NULL;
CREATE INDEX tasks_loops ON tasks (project, position) WHERE loops = 1 AND state IN ('pending', 'resting');

-- Roots are taken in the order of their arrival where only so many may be under way, so they have lanes of their own.
UPDATE tasks SET lane = substr(lane, 1, length(lane) - 1) || CASE WHEN parent IS NULL THEN ',false]' ELSE ',true]' END
    WHERE lane IS NOT NULL;
CREATE INDEX tasks_queue ON tasks (project, lane, position)
    WHERE state = 'pending' AND unmet = 0 AND lane IS NOT NULL AND parent IS NULL;

-- An empty executor stands for whoever comes first.
ALTER TABLE outbox ADD COLUMN attempts BIGINT NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN due BIGINT NOT NULL DEFAULT 0;

-- question and state are JSON. `is_open` is 1 until it is answered or withdrawn, and NULL then.
CREATE TABLE decisions (
    project BIGINT NOT NULL,
    id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    raised_wall BIGINT NOT NULL,
    question TEXT NOT NULL,
    state TEXT NOT NULL,
    is_open BIGINT,
    PRIMARY KEY (project, id)
) /* keyed */;
CREATE INDEX decisions_seq ON decisions (project, seq);
CREATE INDEX decisions_open ON decisions (project, is_open, seq) WHERE is_open IS NOT NULL;

-- How far something was told: `finished` is the event that last told that there is nothing left to do.
CREATE TABLE marks (
    project BIGINT NOT NULL,
    name TEXT NOT NULL,
    seq BIGINT NOT NULL,
    PRIMARY KEY (project, name)
) /* keyed */;

-- What the oldest events meant. Events up to `compacted`, the last of which happened at `compacted_wall`, are no longer in the
-- log; the log begins with `baseline`, which has a row for each lock, semaphore, section and task that they told of.
ALTER TABLE projects ADD COLUMN compacted BIGINT NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN compacted_wall BIGINT NOT NULL DEFAULT 0;

-- `data` is JSON.
CREATE TABLE baseline (
    project BIGINT NOT NULL,
    component TEXT NOT NULL,
    id TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (project, component, id)
) /* wide */;

-- Imports that are not finished. Their tasks are in place, but nobody sees them while this row is here. process and sections
-- are JSON; `position` is the event that opened it, and the tasks come after that.
CREATE TABLE imports (
    project BIGINT NOT NULL,
    id TEXT NOT NULL,
    process TEXT NOT NULL,
    position BIGINT NOT NULL,
    started_wall BIGINT NOT NULL,
    total BIGINT NOT NULL,
    added BIGINT NOT NULL,
    sections TEXT,
    PRIMARY KEY (project, id)
) /* keyed */;

-- The import that a task came with. Its lane begins with the same id, so that a look passes over all of them at once.
ALTER TABLE tasks ADD COLUMN import TEXT;

UPDATE store SET version = 3;
