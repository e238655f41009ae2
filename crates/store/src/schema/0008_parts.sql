-- Tasks that are counted with something else.

-- `part` is 1 for a phase of a pipeline and for an attempt at an item of a queue, else NULL; it follows from spec.
ALTER TABLE tasks ADD COLUMN part BIGINT;
UPDATE tasks SET part = 1 WHERE parent IN (SELECT p.id FROM pipelines p WHERE p.project = tasks.project)
    OR id IN (SELECT j.task FROM jobs j WHERE j.project = tasks.project);

UPDATE store SET version = 8;
