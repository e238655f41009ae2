//! The text of statements, written once for every database: `$1`, `$2`, … are parameters, and `{…}` is replaced by text
//! that several statements share.
//!
//! `{tasks}` becomes the columns of a table, `{tasks t}` the same with the table's name before each, `{no tasks}` as
//! many NULLs of their types. The other parts are in [`part`].

use crate::columns::Type;
use crate::table::Table;
use crate::tables;

pub(crate) fn insert<T: Table>() -> String {
    let columns = T::written().concat();
    let columns = names(&columns);
    let params = params(1..=columns.len() + 1).join(", ");
    format!("INSERT INTO {} (project, {}) VALUES ({params})", T::NAME, columns.join(", "))
}

pub(crate) fn upsert<T: Table>() -> String {
    let [_, changing] = T::written();
    let changing = names(&changing).into_iter().filter(|name| !T::KEY.contains(name));
    let changes: Vec<String> = changing.map(|name| format!("{name} = excluded.{name}")).collect();
    let changes = if changes.is_empty() { "NOTHING".to_owned() } else { format!("UPDATE SET {}", changes.join(", ")) };
    format!("{} ON CONFLICT (project, {}) DO {changes}", insert::<T>(), T::KEY.join(", "))
}

pub(crate) fn update<T: Table>() -> String {
    let [_, changing] = T::written();
    let first = T::KEY.len() + 2;
    let set: Vec<String> = names(&changing).iter().zip(first..).map(|(name, number)| format!("{name} = ${number}")).collect();
    format!("UPDATE {} SET {} WHERE {}", T::NAME, set.join(", "), key_condition::<T>())
}

pub(crate) fn delete<T: Table>() -> String {
    format!("DELETE FROM {} WHERE {}", T::NAME, key_condition::<T>())
}

fn key_condition<T: Table>() -> String {
    let key = T::KEY.iter().zip(2..).map(|(name, number)| format!(" AND {name} = ${number}"));
    format!("project = $1{}", key.collect::<String>())
}

pub(crate) fn params(numbers: impl Iterator<Item = usize>) -> Vec<String> {
    numbers.map(|number| format!("${number}")).collect()
}

fn names(columns: &[(String, Type)]) -> Vec<&str> {
    columns.iter().map(|(name, _)| name.as_str()).collect()
}

/// Replaces the parts in braces.
pub(crate) fn expand(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').expect("a brace is closed");
        out += before;
        let (name, about) = name.split_once(' ').unwrap_or((name, ""));
        out += &match part(name) {
            Some(shared) => expand(&shared.replace('@', about)),
            None => columns(name, about),
        };
        rest = after;
    }
    out + rest
}

fn columns(name: &str, about: &str) -> String {
    let table = if name == "no" { about } else { name };
    let columns = tables::stored(table).unwrap_or_else(|| unreachable!("{{{name} {about}}} stands for nothing"));
    let text = |(column, of): (String, Type)| match (name, of) {
        ("no", Type::Int) => "CAST(NULL AS BIGINT)".to_owned(),
        ("no", Type::Text) => "CAST(NULL AS TEXT)".to_owned(),
        _ if about.is_empty() => column,
        _ => format!("{about}.{column}"),
    };
    columns.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

/// A part that several statements share. `@` is the text after the name in the braces.
fn part(name: &str) -> Option<&'static str> {
    Some(match name {
        // Not part of an unfinished import.
        "visible" => "(@.import IS NULL OR @.import NOT IN (SELECT m.id FROM imports m WHERE m.project = $1))",
        // The lane `l` has visible tasks: an unfinished import has lanes of its own.
        "visible_lane" => {
            "l.lane IS NOT NULL AND NOT EXISTS (SELECT 1 FROM imports m WHERE m.project = $1 \
             AND substr(l.lane, 1, length(m.id)) = m.id)"
        }
        // Not a part of something else: a pipeline counts as one task whatever the state of its phases, an item as an
        // item.
        "top_level" => "@.part IS NULL",
        // The content of the partial index `tasks_ready`.
        "ready" => "@.project = $1 AND @.state = 'pending' AND @.unmet = 0 AND @.lane IS NOT NULL AND @.parked IS NULL",
        // The first $2 ready tasks of every lane with their locks `k`, by the index: SQLite finds their rowids in it
        // without reading the tasks.
        "first_of_lanes" => {
            "lanes l CROSS JOIN \
             /* sqlite */ tasks t LEFT JOIN {own_lock} WHERE t.rowid IN (SELECT i.rowid FROM {first_of_lane}) AND \
             /* postgres */ LATERAL (SELECT * FROM {from_head}) t LEFT JOIN {lateral_lock} WHERE /* end */ {visible_lane}"
        }
        "own_lock" => "locks k ON k.project = $1 AND k.name = 'task:' || t.id",
        // Makes PostgreSQL look up each lock by its key, whatever it estimates about the table.
        "lateral_lock" => "LATERAL (SELECT * FROM locks o WHERE o.project = $1 AND o.name = 'task:' || t.id OFFSET 0) k ON true",
        // The first $2 ready tasks of the lane `l`, beginning at its known head: on PostgreSQL the index keeps entries
        // of formerly ready tasks for as long as any snapshot may see them, and no statement should scan these twice.
        "from_head" => {
            "((SELECT i.* FROM tasks i WHERE {ready i} AND i.lane = l.lane AND i.priority = l.priority AND i.position >= l.position \
             ORDER BY i.position LIMIT $2) UNION ALL (SELECT i.* FROM tasks i WHERE {ready i} AND i.lane = l.lane \
             AND i.priority < l.priority ORDER BY i.priority DESC, i.position LIMIT $2)) h ORDER BY h.priority DESC, h.position LIMIT $2"
        }
        "first_of_lane" => "tasks i WHERE {ready i} AND i.lane = l.lane ORDER BY i.priority DESC, i.position LIMIT $2",
        // The first $2 ready roots of every lane by arrival, with their locks, where roots are limited.
        "first_roots" => {
            "projects p CROSS JOIN lanes l CROSS JOIN \
             /* sqlite */ tasks t LEFT JOIN {own_lock} WHERE t.rowid IN (SELECT i.rowid FROM {first_root}) AND \
             /* postgres */ LATERAL (SELECT i.* FROM {first_root}) t LEFT JOIN {lateral_lock} WHERE /* end */ p.project = $1 AND p.max_roots > 0 AND {visible_lane}"
        }
        "first_root" => "tasks i WHERE {ready i} AND i.parent IS NULL AND i.lane = l.lane ORDER BY i.position LIMIT $2",
        // A task that a runner of the sections $3 may take; of any section if $3 is NULL.
        "in_sections" => "(CAST($3 AS TEXT) IS NULL OR $3 LIKE '%|' || @.section || '|%')",
        // The first `$2` resources after $3 that tasks are parked on, found by one index step each.
        "parked" => {
            "WITH RECURSIVE parked(name, number) AS (SELECT (SELECT t.parked FROM tasks t WHERE t.project = $1 \
             AND t.parked IS NOT NULL AND t.parked > $3 ORDER BY t.parked LIMIT 1), CAST(1 AS BIGINT) UNION ALL SELECT (SELECT t.parked FROM tasks t \
             WHERE t.project = $1 AND t.parked IS NOT NULL AND t.parked > p.name ORDER BY t.parked LIMIT 1), p.number + 1 FROM parked p WHERE p.name IS NOT NULL AND p.number < $2)"
        }
        // A live run `r` with its task `t` in an exclusive section `s`. Without such a section nothing else is read.
        "live_exclusive" => {
            "sections s CROSS JOIN runs r CROSS JOIN tasks t WHERE s.project = $1 AND s.exclusive = 1 AND r.project = $1 AND r.live = 1 \
             AND t.project = $1 AND t.id = r.task AND t.section = s.id"
        }
        // The lanes with ready tasks, found by one index step each; on PostgreSQL with the place of the first task.
        "lanes" => {
            "WITH RECURSIVE /* sqlite */ lanes(lane) AS (SELECT (SELECT t.lane FROM tasks t WHERE {ready t} ORDER BY t.lane LIMIT 1) \
             UNION ALL SELECT (SELECT t.lane FROM tasks t WHERE {ready t} AND t.lane > l.lane ORDER BY t.lane LIMIT 1) FROM lanes l \
             WHERE l.lane IS NOT NULL) /* postgres */ lanes AS ((SELECT {head_of_lane}) \
             UNION ALL SELECT h.* FROM lanes l CROSS JOIN LATERAL (SELECT {next_head}) h) /* end */"
        }
        "head_of_lane" => {
            "t.lane, t.priority, t.position FROM tasks t WHERE {ready t} ORDER BY t.lane, t.priority DESC, t.position LIMIT 1"
        }
        "next_head" => {
            "t.lane, t.priority, t.position FROM tasks t WHERE {ready t} AND t.lane > l.lane \
             ORDER BY t.lane, t.priority DESC, t.position LIMIT 1"
        }
        // The first ready task of the lane `l`, as its example.
        "example" => {
            "(SELECT i.id FROM tasks i WHERE {ready i} AND i.lane = l.lane ORDER BY i.priority DESC, i.position LIMIT 1)"
        }
        // A task and all its descendants. CROSS JOIN fixes the order for SQLite, which would otherwise scan all tasks
        // with a parent.
        "family" => {
            "WITH RECURSIVE family(id) AS (SELECT CAST($2 AS TEXT) \
             UNION SELECT c.id FROM family f CROSS JOIN tasks c WHERE c.project = $1 AND c.parent = f.id)"
        }
        // The ancestors of a task.
        "ancestors" => {
            "WITH RECURSIVE ancestors(id) AS (SELECT parent FROM tasks WHERE project = $1 AND id = $2 \
             UNION SELECT t.parent FROM ancestors a CROSS JOIN tasks t WHERE t.project = $1 AND t.id = a.id)"
        }
        // A dependency `e` on the task `d` that is met.
        "met" => {
            "(coalesce(d.state, '') = 'completed' \
             OR (e.allow_failed = 1 AND coalesce(d.state, '') IN ('failed', 'cancelled', 'skipped')))"
        }
        // The number of unmet dependencies of a task.
        "unmet" => {
            "(SELECT count(*) FROM edges e LEFT JOIN tasks d ON d.project = e.project AND d.id = e.on_task \
             WHERE e.project = $1 AND e.task = @ AND NOT {met})"
        }
        // The task and, if it is pending, everything that holds it back, directly or not, nearest first. See
        // `CHAIN_LIMIT`.
        "chain" => {
            "WITH RECURSIVE chain(task) AS (SELECT CAST($2 AS TEXT) \
             UNION SELECT e.on_task FROM chain c JOIN tasks s ON s.project = $1 AND s.id = c.task \
             JOIN edges e ON e.project = $1 AND e.task = c.task LEFT JOIN tasks d ON d.project = $1 AND d.id = e.on_task \
             WHERE s.state = 'pending' AND NOT {met})"
        }
        // A grant with a time limit that may have passed by $2. The first part matches the indexes `locks_timed` and
        // `slots_timed`.
        "timed" => {
            "(ttl IS NOT NULL OR max_hold IS NOT NULL OR offer IS NOT NULL) \
             AND (heartbeat_lease + ttl <= $2 OR acquired_lease + max_hold <= $2 OR offer IS NOT NULL)"
        }
        // The resources of one kind with waiters.
        "waited" => {
            "SELECT resource FROM waiters WHERE project = $1 AND kind = '@' \
             UNION SELECT resource FROM claims WHERE project = $1 AND terms IS NOT NULL AND kind = '@'"
        }
        // A claim `c` that holds a resource of one kind, and is on a task of the family, or of a holder who works in
        // their sections. The join starts from the claims, which are few, so that it is free without any.
        "claimed" => {
            "c.project = $1 AND c.terms IS NULL AND c.kind = '@' \
             AND (c.task IN (SELECT id FROM family) OR c.ticket IN (SELECT r.ticket FROM claims r WHERE r.project = $1 \
             AND r.resource IN (SELECT 'section:' || t.section FROM tasks t WHERE t.project = $1 AND t.id IN (SELECT id FROM family))))"
        }
        // A claim `c` of the holder $2, or one that includes $3. The join starts from the claims, which are few.
        "claims_of" => {
            "c.project = $1 AND c.terms IS NULL AND (c.holder = CAST($2 AS TEXT) OR c.ticket IN (\
             SELECT r.ticket FROM claims r WHERE r.project = $1 AND r.terms IS NULL AND r.resource = CAST($3 AS TEXT)))"
        }
        // The holder names `p` of the pipeline $2 and of the pipeline whose phase $2 is.
        "pipeline_holders" => {
            "(SELECT 'pipeline:' || CAST($2 AS TEXT) AS holder \
             UNION ALL SELECT 'pipeline:' || c.parent FROM tasks c WHERE c.project = $1 AND c.id = $2) AS p"
        }
        // Held by one of these pipelines. The first part matches the partial indexes `locks_of_pipelines` and
        // `slots_of_pipelines`.
        "of_pipeline" => "substr(@.holder, 1, 9) = 'pipeline:' AND @.holder = p.holder",
        // The same for the pipelines of a family.
        "of_family_pipelines" => "substr(@.holder, 1, 9) = 'pipeline:' AND @.holder IN (SELECT 'pipeline:' || id FROM family)",
        // The first `$2` resources of one kind that pipelines wait for, found by one index step each.
        "awaited" => {
            "WITH RECURSIVE awaited(name, number) AS (SELECT (SELECT min(l.about) FROM listeners l WHERE l.project = $1 \
             AND l.component = '@'), CAST(1 AS BIGINT) UNION ALL SELECT (SELECT min(l.about) FROM listeners l WHERE l.project = $1 \
             AND l.component = '@' AND l.about > a.name), a.number + 1 FROM awaited a WHERE a.name IS NOT NULL AND a.number < $2)"
        }
        // Pipelines with their tasks, whose specs have the plans. CROSS JOIN fixes the order for SQLite.
        "hosted" => {
            "SELECT {tasks t}, {pipelines p} FROM pipelines p CROSS JOIN tasks t \
             WHERE p.project = $1 AND t.project = $1 AND t.id = p.id"
        }
        // A message `@` without an open delivery.
        "arrived" => "NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.project = $1 AND d.seq = @.seq AND d.is_open = 1)",
        // The runner with duty, which serves the workers, once for each worker.
        "woken" => {
            "SELECT w.queue, r.address FROM workers w CROSS JOIN runners r WHERE w.project = $1 AND r.project = $1 AND r.duty = 1"
        }
        // The queues that workers take from.
        "worked" => "(SELECT w.queue FROM workers w WHERE w.project = $1)",
        // The dead-letter queues of these queues, without those that a worker takes from.
        "graves" => {
            "(SELECT d.dead_letter FROM queues d WHERE d.project = $1 AND d.name IN {worked} AND d.dead_letter NOT IN {worked})"
        }
        // Whether the last attempt at an item has timed out.
        "dies" => "i.due <= $2 AND i.state = 'processing' AND i.attempts >= q.max_attempts",
        // Rows `d` of a table for the dead-letter queue of the queue $2.
        "dead_letter" => "queues q CROSS JOIN @ d WHERE q.project = $1 AND q.name = $2 AND d.project = $1",
        // A queue and its dead-letter queue.
        "and_dead_letter" => {
            "(SELECT CAST($2 AS TEXT) UNION ALL SELECT d.dead_letter FROM queues d WHERE d.project = $1 AND d.name = $2)"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::runners::Runners;

    #[test]
    fn the_statements_of_a_table_follow_from_its_columns() {
        assert_eq!(delete::<Runners>(), "DELETE FROM runners WHERE project = $1 AND id = $2");
        assert!(
            insert::<Runners>().ends_with("VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)"),
            "{}",
            insert::<Runners>()
        );
        assert!(upsert::<Runners>().contains("DO UPDATE SET wants = excluded.wants"), "{}", upsert::<Runners>());
        assert!(update::<Runners>().starts_with("UPDATE runners SET wants = $3, "), "{}", update::<Runners>());
    }

    #[test]
    fn parts_in_braces_are_expanded() {
        assert_eq!(
            expand("SELECT {semaphores s} FROM semaphores s"),
            "SELECT s.name, s.capacity, s.default_ttl FROM semaphores s"
        );
        assert_eq!(expand("{no semaphores}"), "CAST(NULL AS TEXT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT)");
        assert_eq!(expand("{unmet $2}").matches("e.task = $2 AND NOT (coalesce(").count(), 1);
    }
}
