//! Dependencies: `task` waits for `on_task`.

use banksman_core::backlog::Edge;
use banksman_core::ids::TaskId;

use crate::columns::{Int, Text};
use crate::table::{self, table};
use crate::value::Query;

table! {
    Edges "edges" of &'a TaskId => Edge, |id, edge|
    by ["task", "on_task"] = [Text id, Text &edge.on]; inserts
    fixed { task: Text = id, on("on_task"): Text, allow_failed: Int }
    changing {}
    read (TaskId, Edge) = (task, Edge { on, allow_failed });
    statements {
        OfTask => "SELECT {edges e} FROM edges e WHERE e.project = $1 AND e.task = $2 ORDER BY e.on_task",
        All => "SELECT {edges e} FROM edges e WHERE e.project = $1 ORDER BY e.task, e.on_task",
        /// The edges of a task's dependents, visible or not: the dependencies of an import must not disappear.
        OnTask => "SELECT {edges e} FROM edges e WHERE e.project = $1 AND e.on_task = $2 ORDER BY e.task",
        /// The number of dependents, up to $3. Counted in the index alone.
        CountOnTask => "SELECT CAST($2 AS TEXT), (SELECT count(*) FROM (SELECT e.task FROM edges e WHERE e.on_task = $2 \
            AND e.project = $1 ORDER BY e.task LIMIT $3) d)",
        OnFamily => "{family} SELECT {edges e} FROM edges e WHERE e.project = $1 AND e.on_task IN (SELECT id FROM family) ORDER BY e.task",
        /// Everything upstream of the task.
        Upstream => "WITH RECURSIVE up(task) AS (SELECT CAST($2 AS TEXT) \
            UNION SELECT e.on_task FROM edges e JOIN up ON e.task = up.task WHERE e.project = $1) \
            SELECT {edges e} FROM edges e WHERE e.project = $1 AND e.task IN (SELECT task FROM up) ORDER BY e.task, e.on_task",
        /// Only unmet edges: the tasks that the others lead to are not read.
        Chain => "{chain} SELECT {edges e} FROM edges e LEFT JOIN tasks d ON d.project = $1 AND d.id = e.on_task \
            WHERE e.project = $1 AND e.task IN (SELECT task FROM chain LIMIT 10000) AND NOT {met} ORDER BY e.task, e.on_task",
        DeleteOfTask => "DELETE FROM edges WHERE project = $1 AND task = $2",
    }
}

/// The statements that change the dependencies of a task. Returns whether there are any.
pub(crate) fn changes<'a>(project: i64, task: &'a TaskId, was: &[Edge], edges: &'a [Edge], queries: &mut Vec<Query<'a>>) -> bool {
    if was == edges {
        return false;
    }
    if !was.is_empty() {
        queries.push(Query::new(Statement::DeleteOfTask, [project.into(), task.as_str().into()]));
    }
    queries.extend(edges.iter().map(|edge| table::insert::<Edges>(project, task, edge)));
    true
}
