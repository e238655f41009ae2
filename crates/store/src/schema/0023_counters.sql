-- Counters stand in the row of the project, which every transaction writes anyway: how many runs live, how many slots for runs are taken,
-- and how many tasks there are in each state, as JSON. What `task_counts` has counted so far stays there; from now on it counts only
-- imports that are not finished.
ALTER TABLE projects ADD COLUMN live_runs BIGINT NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN run_slots BIGINT NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN task_counts TEXT NOT NULL DEFAULT '{}';
UPDATE projects SET
    live_runs = (SELECT count(*) FROM runs r WHERE r.project = projects.project AND r.live = 1),
    run_slots = (SELECT coalesce(sum(s.weight), 0) FROM slots s WHERE s.project = projects.project AND s.semaphore = 'runs');

-- The few slots that a death or time may end. Those of runs come and go, and are not in it.
CREATE INDEX slots_mortal ON slots (semaphore, holder, project)
    WHERE ttl IS NOT NULL OR max_hold IS NOT NULL OR offer IS NOT NULL OR processes IS NOT NULL;

-- Of those that wait for a semaphore, the ones that want least may fit where the first ones do not. Those that wait now look again.
ALTER TABLE tasks ADD COLUMN parked_weight BIGINT;
CREATE INDEX tasks_lightest ON tasks (project, parked, parked_weight, priority DESC, position) WHERE parked_weight IS NOT NULL;
UPDATE tasks SET parked = NULL WHERE substr(parked, 1, 10) = 'semaphore:';

UPDATE store SET version = 23;
