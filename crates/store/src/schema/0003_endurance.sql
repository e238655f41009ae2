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

UPDATE store SET version = 3;
