-- Which ready tasks wait for a resource, and which runners wait for tasks.

-- A lane has the tasks that one runner may take like another: by import, section, whether they have a parent, and whether they are
-- pipelines. What a task needs is not part of it any more: a task that waits for a lock or a semaphore leaves its lane, and `parked`
-- names what it waits for, until a transaction leaves room in that.
DROP INDEX tasks_ready;
DROP INDEX tasks_queue;
UPDATE tasks SET lane = coalesce(import, '') || '/' || coalesce(section, '') || '/'
    || CASE WHEN parent IS NULL THEN 'root' ELSE 'child' END
    || CASE WHEN lane LIKE '%"pipeline"]' THEN '/pipeline' ELSE '' END
    WHERE lane IS NOT NULL;
ALTER TABLE tasks ADD COLUMN parked TEXT;
CREATE INDEX tasks_ready ON tasks (project, lane, priority DESC, position)
    WHERE state = 'pending' AND unmet = 0 AND lane IS NOT NULL AND parked IS NULL;
CREATE INDEX tasks_queue ON tasks (project, lane, position)
    WHERE state = 'pending' AND unmet = 0 AND lane IS NOT NULL AND parked IS NULL AND parent IS NULL;
CREATE INDEX tasks_parked ON tasks (project, parked, priority DESC, position) WHERE parked IS NOT NULL;
-- 1 once a task was parked: until then nobody has to look for any.
ALTER TABLE projects ADD COLUMN parks BIGINT NOT NULL DEFAULT 0;

-- `wants` is how many tasks a runner that sleeps could take, `ticket` who has waited longest; `limited` is 1 if it has seen tasks that
-- only a limit of the project keeps from starting. `woken` is when it was last woken without having called since. The runner with
-- `duty` is woken for everything that is not a task to take.
ALTER TABLE runners DROP COLUMN watching;
ALTER TABLE runners ADD COLUMN wants BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runners ADD COLUMN ticket BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runners ADD COLUMN limited BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runners ADD COLUMN woken_lease BIGINT;
ALTER TABLE runners ADD COLUMN duty BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runners ADD COLUMN until_idle BIGINT NOT NULL DEFAULT 0;

UPDATE store SET version = 14;
