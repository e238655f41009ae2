-- Who has paused the project, when, and how. It is read by every transaction.
ALTER TABLE projects ADD COLUMN pause TEXT;

UPDATE store SET version = 19;
