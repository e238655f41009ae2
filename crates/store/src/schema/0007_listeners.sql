-- What may change the answer of the guard that holds a pipeline up, when something happens to it: `about` is its id, or empty
-- for all of its kind. `since` is the last event that the answer knows of. All of it follows from `pipelines`.
CREATE TABLE listeners (
    project BIGINT NOT NULL,
    pipeline TEXT NOT NULL,
    component TEXT NOT NULL,
    about TEXT NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (project, component, about, pipeline)
) /* keyed */;
CREATE INDEX listeners_since ON listeners (project, since);

UPDATE store SET version = 7;
