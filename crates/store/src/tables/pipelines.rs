//! Pipelines. Each has a task of the same id, whose spec has the plan. `state` and `phase` are in the body too; `due`
//! is the time of the next check.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::backlog::Backlog;
use banksman_core::event::Resource;
use banksman_core::ids::{Name, TaskId};
use banksman_core::pipeline::{Pipeline, Reason, State};
use banksman_core::task::{Task, Work};
use banksman_core::{Lease, Seq};

use crate::columns::{Codec, Int, NeededJson, Text};
use crate::error::StoreError;
use crate::reader::View;
use crate::table::{self, Table, table};
use crate::tables::listeners;
use crate::tables::tasks::Tasks;
use crate::value::{Query, Row, Value};

/// Maximum number of pipelines of one read.
const PAGE: i64 = 500;

/// A pipeline with its task.
#[derive(Debug, Clone)]
pub struct Hosted {
    pub task: Task,
    pub pipeline: Pipeline,
}

/// Facts about blocked pipelines that are known without reading them all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listening {
    /// When the next pipeline is due, of those that are not due yet.
    pub next_due: Option<Lease>,
    /// Events up to this one were handled by all listeners; `None` if there are no listeners.
    pub since: Option<Seq>,
    /// The pipelines whose sources have new events.
    pub heard: BTreeSet<TaskId>,
    /// The locks and semaphores that pipelines wait for.
    pub awaited: BTreeSet<Resource>,
}

table! {
    Pipelines "pipelines" of &'a TaskId => Pipeline, |_id, pipeline|
    by ["id"] = [Text &pipeline.id]; inserts
    fixed {} + { "id": Text = pipeline.id.as_str() }
    changing { body: NeededJson = pipeline } + {
        "state": Text = pipeline.word(),
        "phase": Text = pipeline.phase().map(Name::as_str),
        "due": Int = pipeline.next_deadline().map(|due| due.0),
    }
    read Pipeline = body;
    statements {
        /// The pipeline of a task, or the pipeline whose phase the task is.
        OfTask => "{hosted} AND p.id IN \
            (SELECT CAST($2 AS TEXT) UNION ALL SELECT c.parent FROM tasks c WHERE c.project = $1 AND c.id = $2)",
        OfFamily => "{family} {hosted} AND p.id IN (SELECT id FROM family)",
        /// Repeats the condition of the partial index first, so that SQLite uses the index.
        Begun => "{hosted} AND p.state IN ('init', 'checking', 'blocked', 'running') AND p.state <> 'init' ORDER BY p.id",
        /// The pipelines that are due, most urgent first.
        Due => "{hosted} AND p.due <= $3 ORDER BY p.due, p.id LIMIT $2",
        /// The pipelines whose sources have events in a part of the log. Each source is looked up once, whatever the
        /// number of its events. The plus keeps SQLite from scanning all listeners by `since`.
        Heard => "{hosted} AND p.id IN (SELECT DISTINCT l.pipeline FROM (\
            SELECT component, id AS about, max(seq) AS seq FROM events WHERE project = $1 AND seq > $2 AND seq <= $3 \
            AND id IS NOT NULL GROUP BY component, id UNION ALL \
            SELECT component, '', max(seq) FROM events WHERE project = $1 AND seq > $2 AND seq <= $3 GROUP BY component) e \
            CROSS JOIN listeners l WHERE l.project = $1 AND l.component = e.component AND l.about = e.about AND +l.since < e.seq \
            ORDER BY l.pipeline LIMIT $4) ORDER BY p.id",
        All => "{hosted} ORDER BY p.id",
        Page => "SELECT {tasks t}, {pipelines p} FROM tasks t JOIN pipelines p ON p.project = t.project AND p.id = t.id \
            WHERE t.project = $1 AND t.position > $2 AND (CAST($4 AS TEXT) IS NULL OR p.state = $4) ORDER BY t.position LIMIT $3",
        Open => "{hosted} AND p.state IN ('init', 'checking', 'blocked', 'running') ORDER BY t.position LIMIT $2",
        Counts => "SELECT p.state, count(*) FROM pipelines p WHERE p.project = $1 GROUP BY 1 ORDER BY 1",
    }
}

/// Reads a pipeline from a row that has its task first.
pub(crate) fn read(row: &mut Row) -> Result<Hosted, StoreError> {
    let task = Tasks::read(row)?;
    let Some(Work::Pipeline(plan)) = &task.spec.work else {
        return Err(StoreError::corrupt(format_args!("{} has a pipeline, but does not say what it does", task.id)));
    };
    let pipeline = Pipeline { id: task.id.clone(), title: task.spec.title.clone(), plan: plan.clone(), ..Pipelines::read(row)? };
    Ok(Hosted { task, pipeline })
}

/// The statements that turn the pipelines of `before` into those of `after`.
pub(crate) fn changes<'a>(project: i64, before: &'a Backlog, after: &'a Backlog, queries: &mut Vec<Query<'a>>) {
    table::changes::<_, Pipelines>(project, &before.pipelines, &after.pipelines, queries);
    for (id, was) in before.pipelines.iter().filter(|(id, _)| !after.pipelines.contains_key(*id)) {
        listeners::changes(project, id, Some(was), None, queries);
    }
    for (id, pipeline) in &after.pipelines {
        listeners::changes(project, id, before.pipelines.get(id), Some(pipeline), queries);
    }
}

/// The same pipelines on another lease clock.
pub(crate) fn moved(mut pipelines: BTreeMap<TaskId, Pipeline>, by: i64) -> BTreeMap<TaskId, Pipeline> {
    let shift = |lease: &mut Lease| lease.0 = lease.0.saturating_add(by);
    for pipeline in pipelines.values_mut() {
        shift(&mut pipeline.phase_started.lease);
        if let State::Blocked { reason: Reason::Guard { again, rest, .. }, .. } = &mut pipeline.state {
            shift(again);
            shift(rest);
        }
        pipeline.overdue.iter_mut().for_each(shift);
        pipeline.recheck.iter_mut().for_each(|recheck| shift(&mut recheck.fresh_until));
        // The checker of the old place is not at the new one.
        pipeline.checker = None;
    }
    pipelines
}

impl View<'_> {
    /// The next pipelines after a position, in this state, each with its task; and the position to continue from if
    /// there may be more.
    pub fn pipelines(&mut self, state: Option<&str>, after: Seq) -> Result<(Vec<Hosted>, Option<Seq>), StoreError> {
        let params: [Value<'_>; 4] = [self.project.into(), after.0.into(), PAGE.into(), state.map(str::to_owned).into()];
        let listed = self.hosted(Query::new(Statement::Page, params))?;
        let is_full = listed.len() as i64 == PAGE;
        let next = listed.last().map(|hosted| hosted.task.position).filter(|_| is_full);
        Ok((listed, next))
    }

    /// The first open pipelines, each with its task.
    pub fn open_pipelines(&mut self, limit: i64) -> Result<Vec<Hosted>, StoreError> {
        self.hosted(Query::new(Statement::Open, [self.project.into(), limit.into()]))
    }

    fn hosted(&mut self, query: Query<'_>) -> Result<Vec<Hosted>, StoreError> {
        self.rows(query)?.into_iter().map(|mut row| read(&mut row)).collect()
    }

    /// The number of pipelines by state.
    pub fn pipeline_counts(&mut self) -> Result<BTreeMap<String, u64>, StoreError> {
        let rows = self.rows(Query::new(Statement::Counts, [self.project.into()]))?;
        rows.into_iter().map(|mut row| Ok((row.text()?, Int::read(&mut row)?))).collect()
    }
}
