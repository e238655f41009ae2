-- What agents have used and cost, by day (UTC, counted from 1970) and agent: tokens, and millionths of a dollar.
CREATE TABLE spend (
    project BIGINT NOT NULL,
    day BIGINT NOT NULL,
    agent TEXT NOT NULL,
    runs BIGINT NOT NULL,
    input BIGINT NOT NULL,
    output BIGINT NOT NULL,
    cache_read BIGINT NOT NULL,
    cache_write BIGINT NOT NULL,
    cost_micros BIGINT NOT NULL,
    paid_micros BIGINT NOT NULL,
    PRIMARY KEY (project, day, agent)
) /* keyed */;

UPDATE store SET version = 21;
