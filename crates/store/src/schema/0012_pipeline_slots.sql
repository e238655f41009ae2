-- The slots that pipelines hold beyond a run are found by their holder, when a pipeline leaves the phase.
CREATE INDEX slots_of_pipelines ON slots (project, holder) WHERE substr(holder, 1, 9) = 'pipeline:';

UPDATE store SET version = 12;
