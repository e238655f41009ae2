-- Ended tasks whose many dependents are counted a page at a time: those up to `after_task` know that it has ended.
CREATE TABLE fan_outs (
    project BIGINT NOT NULL,
    task TEXT NOT NULL,
    after_task TEXT NOT NULL,
    PRIMARY KEY (project, task)
) /* keyed */;

UPDATE store SET version = 16;
