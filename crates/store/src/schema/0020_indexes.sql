-- On PostgreSQL, before it has counted the rows, an index that begins with the project looks as good for any statement as the right one, and
-- all rows of the project are read. So the project stands last.
DROP INDEX tasks_title;
DROP INDEX runs_id;
DROP INDEX runs_task;
CREATE INDEX tasks_title ON tasks (title, project);
CREATE UNIQUE INDEX runs_id ON runs (id, project);
CREATE INDEX runs_task ON runs (task, project);

UPDATE store SET version = 20;
