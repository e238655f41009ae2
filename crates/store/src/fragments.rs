//! Parts that several statements share, as macros: what is put together is a constant.

macro_rules! claim {
    () => {
        "holder, weight, ttl, max_hold, ancestors, processes, metadata, request"
    };
}
macro_rules! grant {
    () => {
        concat!(claim!(), ", epoch, acquired_lease, acquired_wall, heartbeat_lease, heartbeat_wall, ticket, offer")
    };
}
macro_rules! locks {
    () => {
        concat!("SELECT name, default_ttl, default_max_hold, fence, ", grant!(), " FROM locks WHERE project = $1")
    };
}
macro_rules! semaphores {
    () => {
        "SELECT name, capacity, default_ttl FROM semaphores WHERE project = $1"
    };
}
macro_rules! slots {
    () => {
        concat!("SELECT semaphore, ", grant!(), " FROM slots WHERE project = $1")
    };
}
/// A grant that time ends, and by $2 may have ended. The first part is what the partial indexes `locks_timed` and `slots_timed` hold.
macro_rules! timed {
    () => {
        concat!(
            " AND (ttl IS NOT NULL OR max_hold IS NOT NULL OR offer IS NOT NULL) ",
            "AND (heartbeat_lease + ttl <= $2 OR acquired_lease + max_hold <= $2 OR offer IS NOT NULL)"
        )
    };
}
macro_rules! waited {
    ($kind:literal) => {
        concat!(
            " IN (SELECT resource FROM waiters WHERE project = $1 AND kind = '",
            $kind,
            "' UNION SELECT resource FROM claims WHERE project = $1 AND terms IS NOT NULL AND kind = '",
            $kind,
            "')"
        )
    };
}
macro_rules! task {
    () => {
        concat!(
            "t.id, t.spec, t.position, t.created_wall, t.state, t.detail, t.changed_lease, t.changed_wall, ",
            "t.attempts, t.failures, t.recoveries"
        )
    };
}
macro_rules! tasks {
    () => {
        concat!("SELECT ", task!(), " FROM tasks t WHERE t.project = $1")
    };
}
/// The tasks of a project whose roots are limited.
macro_rules! limited_roots {
    () => {
        concat!(
            "SELECT ",
            task!(),
            " FROM projects p CROSS JOIN tasks t WHERE p.project = $1 AND p.max_roots > 0 AND t.project = $1"
        )
    };
}
macro_rules! decisions {
    () => {
        "SELECT id, raised_wall, question, state FROM decisions WHERE project = $1"
    };
}
/// Not part of an import that is not finished.
macro_rules! shown {
    ($t:literal) => {
        concat!("(", $t, ".import IS NULL OR ", $t, ".import NOT IN (SELECT m.id FROM imports m WHERE m.project = $1))")
    };
}
/// A counter of tasks that are shown.
macro_rules! shown_count {
    ($c:literal) => {
        concat!("(", $c, ".import = '' OR ", $c, ".import NOT IN (SELECT m.id FROM imports m WHERE m.project = $1))")
    };
}
/// The lane `l` has tasks that are shown: those of an import that is not finished have lanes of their own.
macro_rules! shown_lane {
    () => {
        concat!(
            "l.lane IS NOT NULL AND NOT EXISTS (SELECT 1 FROM imports m WHERE m.project = $1 ",
            "AND substr(l.lane, 1, length(m.id)) = m.id)"
        )
    };
}
/// 1 unless the run has ended.
macro_rules! live {
    ($ended:literal) => {
        concat!("CASE WHEN CAST(", $ended, " AS TEXT) IS NULL THEN 1 END")
    };
}
macro_rules! runs {
    () => {
        concat!(
            "SELECT id, task, attempt, epoch, owner, owner_epoch, holds, session, host, boot, started_lease, started_wall, ",
            "lease, ended FROM runs WHERE project = $1"
        )
    };
}
macro_rules! queue {
    () => {
        "name, visibility, max_attempts, dead_letter, max_length, paused, length"
    };
}
macro_rules! items {
    () => {
        concat!(
            "SELECT id, queue, data, priority, created_lease, created_wall, dedupe, attempts, fence, state, due, holder, ",
            "taken_lease, taken_wall, reason, died_wall, history, origin, depth FROM items WHERE project = $1"
        )
    };
}
macro_rules! takers {
    () => {
        "SELECT ticket, queue, holder, standing, since_lease, since_wall, seen_lease FROM takers WHERE project = $1"
    };
}
/// A queue, and the one that its dead items go to.
macro_rules! and_dead_letter {
    () => {
        " IN (SELECT CAST($2 AS TEXT) UNION ALL SELECT d.dead_letter FROM queues d WHERE d.project = $1 AND d.name = $2)"
    };
}
/// Whether the last attempt at an item is over by time.
macro_rules! dies {
    () => {
        "i.due <= $2 AND i.state = 'processing' AND i.attempts >= q.max_attempts"
    };
}
/// A worker, in the columns that it shares with jobs, routes and the place in the log.
macro_rules! worker {
    () => {
        concat!(
            "SELECT 'worker', name, definition, CAST(NULL AS TEXT), queue, paused, awake, since, removed FROM workers ",
            "WHERE project = $1"
        )
    };
}
macro_rules! route {
    () => {
        concat!(
            "SELECT 'route', id, route, CAST(NULL AS TEXT), CAST(NULL AS TEXT), CAST(0 AS BIGINT), CAST(0 AS BIGINT), since, ",
            "CAST(0 AS BIGINT) FROM routes WHERE project = $1"
        )
    };
}
macro_rules! cursor {
    () => {
        concat!(
            "SELECT 'cursor', name, CAST(NULL AS TEXT), CAST(NULL AS TEXT), CAST(NULL AS TEXT), CAST(0 AS BIGINT), ",
            "CAST(0 AS BIGINT), seq, CAST(0 AS BIGINT) ",
            "FROM marks WHERE project = $1 AND name = 'router'"
        )
    };
}
/// The runners, once for each worker.
macro_rules! hands {
    () => {
        "SELECT w.queue, r.address FROM workers w CROSS JOIN runners r WHERE w.project = $1 AND r.project = $1"
    };
}
/// The queues that workers take from.
macro_rules! worked {
    () => {
        "(SELECT w.queue FROM workers w WHERE w.project = $1)"
    };
}
/// Where what dies in them goes, unless a worker takes it from there.
macro_rules! graves {
    () => {
        concat!(
            "(SELECT d.dead_letter FROM queues d WHERE d.project = $1 AND d.name IN ",
            worked!(),
            " AND d.dead_letter NOT IN ",
            worked!(),
            ")"
        )
    };
}
/// Items of a kind, counted by queue, with the first of each.
macro_rules! counted {
    ($word:literal, $where:literal) => {
        concat!(
            "SELECT i.queue, ",
            $word,
            ", count(*), min(i.id) FROM items i WHERE i.project = $1 AND ",
            $where,
            " AND i.queue IN "
        )
    };
}
macro_rules! edges {
    () => {
        "SELECT e.task, e.on_task, e.allow_failed FROM edges e WHERE e.project = $1"
    };
}
/// What the partial index `tasks_ready` holds.
macro_rules! ready {
    ($t:literal) => {
        concat!($t, ".project = $1 AND ", $t, ".state = 'pending' AND ", $t, ".unmet = 0 AND ", $t, ".lane IS NOT NULL")
    };
}
/// How many dependencies hold a task back.
macro_rules! unmet {
    ($task:literal) => {
        concat!(
            "(SELECT count(*) FROM edges e LEFT JOIN tasks d ON d.project = e.project AND d.id = e.on_task ",
            "WHERE e.project = $1 AND e.task = ",
            $task,
            " AND NOT (coalesce(d.state, '') = 'completed' ",
            "OR (e.allow_failed = 1 AND coalesce(d.state, '') IN ('failed', 'cancelled', 'skipped'))))"
        )
    };
}
/// The task, and if it is pending all that holds it back, directly or not, the nearest first. See `CHAIN_LIMIT`.
macro_rules! chain {
    () => {
        concat!(
            "WITH RECURSIVE chain(task) AS (SELECT CAST($2 AS TEXT) ",
            "UNION SELECT e.on_task FROM chain c JOIN tasks s ON s.project = $1 AND s.id = c.task ",
            "JOIN edges e ON e.project = $1 AND e.task = c.task LEFT JOIN tasks d ON d.project = $1 AND d.id = e.on_task ",
            "WHERE s.state = 'pending' AND NOT (coalesce(d.state, '') = 'completed' ",
            "OR (e.allow_failed = 1 AND coalesce(d.state, '') IN ('failed', 'cancelled', 'skipped')))) "
        )
    };
}
/// What is held, of one kind, by the claims on a task or what it has created, and by all who work in their sections.
macro_rules! claimed {
    ($kind:literal) => {
        concat!(
            "SELECT c.resource FROM claims c WHERE c.project = $1 AND c.terms IS NULL AND c.kind = '",
            $kind,
            "' AND (c.task IN (SELECT id FROM family) OR c.ticket IN (SELECT r.ticket FROM claims r WHERE r.project = $1 ",
            "AND r.resource IN (SELECT 'section:' || t.section FROM tasks t WHERE t.project = $1 ",
            "AND t.id IN (SELECT id FROM family))))"
        )
    };
}
/// A column of the claims that are held by $2, or that $3 is part of.
macro_rules! claims_of {
    ($column:literal) => {
        concat!(
            "SELECT c.",
            $column,
            " FROM claims c WHERE c.project = $1 AND c.terms IS NULL AND (c.holder = CAST($2 AS TEXT) OR c.ticket IN (",
            "SELECT r.ticket FROM claims r WHERE r.project = $1 AND r.terms IS NULL AND r.resource = CAST($3 AS TEXT)))"
        )
    };
}
/// A task and all that it has created.
macro_rules! family {
    () => {
        concat!(
            "WITH RECURSIVE family(id) AS (SELECT CAST($2 AS TEXT) ",
            // In the order in which SQLite shall join them: else it goes through all tasks that have a parent.
            "UNION SELECT c.id FROM family f CROSS JOIN tasks c WHERE c.project = $1 AND c.parent = f.id) "
        )
    };
}
/// Held by the pipeline $2, or by that whose phase $2 is. The first part is what the partial indexes `locks_of_pipelines` and
/// `slots_of_pipelines` hold.
macro_rules! pipeline_holds {
    () => {
        concat!(
            " AND substr(holder, 1, 9) = 'pipeline:' AND holder IN (SELECT 'pipeline:' || CAST($2 AS TEXT) ",
            "UNION ALL SELECT 'pipeline:' || c.parent FROM tasks c WHERE c.project = $1 AND c.id = $2)"
        )
    };
}
/// The same for the pipelines of a family.
macro_rules! family_holds {
    () => {
        " AND substr(holder, 1, 9) = 'pipeline:' AND holder IN (SELECT 'pipeline:' || id FROM family)"
    };
}
/// Not a part of something else: a pipeline counts as one task whatever became of its phases, an item as an item.
macro_rules! whole {
    ($t:literal) => {
        concat!($t, ".part IS NULL")
    };
}
/// Pipelines with their tasks, whose specs have the plans. In the order in which SQLite shall join them.
macro_rules! pipelines {
    () => {
        concat!(
            "SELECT ",
            task!(),
            ", p.body FROM pipelines p CROSS JOIN tasks t WHERE p.project = $1 AND t.project = $1 AND t.id = p.id"
        )
    };
}
/// A task, and the one that created it.
macro_rules! with_parent {
    () => {
        " IN (SELECT CAST($2 AS TEXT) UNION ALL SELECT c.parent FROM tasks c WHERE c.project = $1 AND c.id = $2)"
    };
}
/// The lanes that have ready tasks, found by one step in the index for each.
macro_rules! lanes {
    () => {
        concat!(
            "WITH RECURSIVE lanes(lane) AS (SELECT (SELECT min(t.lane) FROM tasks t WHERE ",
            ready!("t"),
            ") UNION ALL SELECT (SELECT min(t.lane) FROM tasks t WHERE ",
            ready!("t"),
            " AND t.lane > l.lane) FROM lanes l WHERE l.lane IS NOT NULL) "
        )
    };
}
/// What pipelines wait for of one kind, found by one step in the index for each: the first `$2`.
macro_rules! awaited {
    ($kind:literal) => {
        concat!(
            "WITH RECURSIVE awaited(name, number) AS (SELECT (SELECT min(l.about) FROM listeners l WHERE l.project = $1 ",
            "AND l.component = '",
            $kind,
            "'), CAST(1 AS BIGINT) UNION ALL SELECT (SELECT min(l.about) FROM listeners l WHERE l.project = $1 AND l.component = '",
            $kind,
            "' AND l.about > a.name), a.number + 1 FROM awaited a WHERE a.name IS NOT NULL AND a.number < $2) "
        )
    };
}
