//! How pipelines stand in columns, and what a batch has changed of them.

use std::collections::BTreeMap;

use banksman_core::backlog::Backlog;
use banksman_core::ids::{Name, RunnerId, TaskId};
use banksman_core::pipeline::{Checkpoint, Pipeline, Reason, State};
use banksman_core::plan::Context;
use banksman_core::task::{Task, Work};
use banksman_core::{Lease, Seq, Stamp};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::reader::View;
use crate::rows::json;
use crate::sql::Statement;
use crate::value::{Query, Row, Value};

/// How many pipelines one read returns at most.
const PAGE: i64 = 500;

/// A pipeline with its task.
#[derive(Debug, Clone)]
pub struct Hosted {
    /// The task.
    pub task: Task,
    /// The pipeline.
    pub pipeline: Pipeline,
}

/// What a row has of a pipeline. The plan is in the spec of its task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    state: State,
    attempt: u32,
    phase_started: Stamp,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    context: Context,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    checkpoints: Vec<Checkpoint>,
    tasks: u32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    failures: BTreeMap<Name, u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    looker: Option<RunnerId>,
}

impl Body {
    fn of(pipeline: &Pipeline) -> Body {
        let Pipeline { state, attempt, phase_started, context, checkpoints, tasks, failures, looker, .. } = pipeline.clone();
        Body { state, attempt, phase_started, context, checkpoints, tasks, failures, looker }
    }

    /// The pipeline of this task.
    fn pipeline(self, host: &Task) -> Result<Pipeline, StoreError> {
        let Some(Work::Pipeline(plan)) = &host.spec.work else {
            return Err(StoreError::corrupt(format_args!("{} has a pipeline, but does not say what it does", host.id)));
        };
        let Body { state, attempt, phase_started, context, checkpoints, tasks, failures, looker } = self;
        let (id, plan) = (host.id.clone(), plan.clone());
        Ok(Pipeline { id, plan, state, attempt, phase_started, context, checkpoints, tasks, failures, looker })
    }
}

impl Row {
    pub(crate) fn hosted(&mut self) -> Result<Hosted, StoreError> {
        let task = self.task()?;
        let body: Body = self.json()?.ok_or_else(|| StoreError::corrupt("a pipeline without content"))?;
        let pipeline = body.pipeline(&task)?;
        Ok(Hosted { task, pipeline })
    }
}

/// The statements that turn the pipelines of `before` into those of `after`.
pub(crate) fn between<'a>(project: i64, before: &'a Backlog, after: &'a Backlog, queries: &mut Vec<Query<'a>>) {
    for (id, pipeline) in &after.pipelines {
        match before.pipelines.get(id) {
            Some(was) if was == pipeline => {}
            Some(_) => queries.push(Query::new(Statement::UpdatePipeline, params(project, pipeline))),
            None => queries.push(Query::new(Statement::InsertPipeline, params(project, pipeline))),
        }
    }
    for id in before.pipelines.keys().filter(|id| !after.pipelines.contains_key(*id)) {
        queries.push(Query::new(Statement::DeletePipeline, [project.into(), id.as_str().into()]));
    }
}

fn params(project: i64, pipeline: &Pipeline) -> [Value<'_>; 6] {
    [
        project.into(),
        pipeline.id.as_str().into(),
        pipeline.word().into(),
        pipeline.phase().map(Name::as_str).into(),
        pipeline.next_deadline().map(|due| due.0).into(),
        json(&Body::of(pipeline)),
    ]
}

/// The same pipelines by a clock that is so much ahead.
pub(crate) fn moved(pipelines: BTreeMap<TaskId, Pipeline>, by: i64) -> BTreeMap<TaskId, Pipeline> {
    let shift = |lease: &mut Lease| lease.0 = lease.0.saturating_add(by);
    let mut pipelines = pipelines;
    for pipeline in pipelines.values_mut() {
        shift(&mut pipeline.phase_started.lease);
        if let State::Blocked { reason: Reason::Guard { again, .. }, .. } = &mut pipeline.state {
            shift(again);
        }
        // Nobody at the new place looks at it.
        pipeline.looker = None;
    }
    pipelines
}

impl View<'_> {
    /// The next pipelines after a position that stand so, each with its task; and where to go on, if there may be more.
    pub fn pipelines(&mut self, state: Option<&str>, after: Seq) -> Result<(Vec<Hosted>, Option<Seq>), StoreError> {
        let params: [Value<'_>; 4] = [self.project.into(), after.0.into(), PAGE.into(), state.map(str::to_owned).into()];
        let rows = self.rows(Query::new(Statement::PipelinePage, params))?;
        let full = rows.len() as i64 == PAGE;
        let listed = rows.into_iter().map(|mut row| row.hosted()).collect::<Result<Vec<_>, _>>()?;
        let next = listed.last().map(|hosted| hosted.task.position).filter(|_| full);
        Ok((listed, next))
    }

    /// The first pipelines that are not over, each with its task.
    pub fn open_pipelines(&mut self, limit: i64) -> Result<Vec<Hosted>, StoreError> {
        let rows = self.rows(Query::new(Statement::OpenPipelines, [self.project.into(), limit.into()]))?;
        rows.into_iter().map(|mut row| row.hosted()).collect()
    }

    /// How many pipelines stand how.
    pub fn pipeline_counts(&mut self) -> Result<BTreeMap<String, u64>, StoreError> {
        let rows = self.rows(Query::new(Statement::PipelineCounts, [self.project.into()]))?;
        rows.into_iter().map(|mut row| Ok((row.text()?, u64::try_from(row.int()?).map_err(StoreError::corrupt)?))).collect()
    }
}
