-- The locks that pipelines hold across their phases are found by their holder, when a pipeline ends.
CREATE INDEX locks_of_pipelines ON locks (project, holder) WHERE substr(holder, 1, 9) = 'pipeline:';

UPDATE store SET version = 8;
