//! How pipelines stand in columns, and what a batch has changed of them.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::backlog::Backlog;
use banksman_core::event::{Resource, Source};
use banksman_core::ids::{Name, TaskId};
use banksman_core::pipeline::{Pipeline, Reason, State};
use banksman_core::task::{Task, Work};
use banksman_core::{Lease, Seq};

use crate::error::StoreError;
use crate::key::Key;
use crate::reader::View;
use crate::rows::{json, parsed};
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

/// What is known of pipelines that are held up, without reading them all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listening {
    /// When the next one is to be looked at that was not to be by now.
    pub next_due: Option<Lease>,
    /// The first event that somebody may not have heard of comes after this one; nothing if nobody listens.
    pub since: Option<Seq>,
    /// Those that something has happened for.
    pub heard: BTreeSet<TaskId>,
    /// The locks and semaphores that they wait for.
    pub awaited: BTreeSet<Resource>,
}

impl Row {
    pub(crate) fn hosted(&mut self) -> Result<Hosted, StoreError> {
        let task = self.task()?;
        let Some(Work::Pipeline(plan)) = &task.spec.work else {
            return Err(StoreError::corrupt(format_args!("{} has a pipeline, but does not say what it does", task.id)));
        };
        let restored = Pipeline::restore(task.id.clone(), plan.clone(), &self.text()?);
        let pipeline = restored.map_err(StoreError::corrupt)?;
        Ok(Hosted { task, pipeline })
    }
}

/// The queries that load the keys of pipelines that are held up.
pub(crate) fn plan<'a>(project: i64, key: &'a Key, queries: &mut Vec<Query<'a>>) {
    let mut add = |statement, params: Vec<i64>| {
        queries.push(Query::new(statement, std::iter::once(project).chain(params).map(Value::from).collect::<Vec<_>>()));
    };
    match key {
        Key::DuePipelines { now, limit } => {
            add(Statement::DuePipelines, vec![i64::from(*limit), now.0]);
            add(Statement::Listening, vec![now.0]);
        }
        Key::HeardPipelines { after, through, limit } => {
            add(Statement::HeardPipelines, vec![after.0, through.0, i64::from(*limit)]);
        }
        Key::Awaited { limit } => {
            for statement in [Statement::AwaitedLocks, Statement::AwaitedSemaphores, Statement::AwaitedSlots] {
                add(statement, vec![i64::from(*limit)]);
            }
        }
        _ => {}
    }
}

/// The statements that turn the pipelines of `before` into those of `after`.
pub(crate) fn between<'a>(project: i64, before: &'a Backlog, after: &'a Backlog, queries: &mut Vec<Query<'a>>) {
    for (id, pipeline) in &after.pipelines {
        let was = before.pipelines.get(id);
        match was {
            Some(was) if was == pipeline => continue,
            Some(_) => queries.push(Query::new(Statement::UpdatePipeline, params(project, pipeline))),
            None => queries.push(Query::new(Statement::InsertPipeline, params(project, pipeline))),
        }
        listeners(project, was, Some(pipeline), queries);
    }
    for (id, was) in before.pipelines.iter().filter(|(id, _)| !after.pipelines.contains_key(*id)) {
        queries.push(Query::new(Statement::DeletePipeline, [project.into(), id.as_str().into()]));
        listeners(project, Some(was), None, queries);
    }
}

/// What a pipeline listens to is written anew with every answer, so that one of an older store is heard of as well.
fn listeners<'a>(project: i64, was: Option<&'a Pipeline>, is: Option<&'a Pipeline>, queries: &mut Vec<Query<'a>>) {
    let of = |pipeline: Option<&Pipeline>| pipeline.map(Pipeline::listens).unwrap_or_default();
    let (old, new) = (of(was), of(is));
    for source in old.iter().filter(|source| !new.contains(source)) {
        queries.extend(was.map(|was| Query::new(Statement::DeleteListener, listener(project, was, source))));
    }
    if let Some(pipeline) = is.filter(|is| was.is_none_or(|was| was.knows() != is.knows() || old != new)) {
        for source in new {
            let since = pipeline.knows().unwrap_or_default().0.into();
            let params = [&listener(project, pipeline, &source)[..], &[since]].concat();
            queries.push(Query::new(Statement::UpsertListener, params));
        }
    }
}

fn listener<'a>(project: i64, pipeline: &'a Pipeline, Source { component, id }: &Source) -> [Value<'a>; 4] {
    let (component, about) = (component.to_string(), id.as_deref().unwrap_or_default().to_owned());
    [project.into(), pipeline.id.as_str().into(), component.into(), about.into()]
}

fn params(project: i64, pipeline: &Pipeline) -> [Value<'_>; 6] {
    [
        project.into(),
        pipeline.id.as_str().into(),
        pipeline.word().into(),
        pipeline.phase().map(Name::as_str).into(),
        pipeline.next_deadline().map(|due| due.0).into(),
        json(pipeline),
    ]
}

/// The same pipelines by a clock that is so much ahead.
pub(crate) fn moved(pipelines: BTreeMap<TaskId, Pipeline>, by: i64) -> BTreeMap<TaskId, Pipeline> {
    let shift = |lease: &mut Lease| lease.0 = lease.0.saturating_add(by);
    let mut pipelines = pipelines;
    for pipeline in pipelines.values_mut() {
        shift(&mut pipeline.phase_started.lease);
        if let State::Blocked { reason: Reason::Guard { again, rest, .. }, .. } = &mut pipeline.state {
            shift(again);
            shift(rest);
        }
        pipeline.overdue.iter_mut().for_each(shift);
        pipeline.recheck.iter_mut().for_each(|recheck| shift(&mut recheck.fresh_until));
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

    /// All who listen: which pipeline, to what, after which event.
    pub fn listeners(&mut self) -> Result<BTreeSet<(TaskId, Source, Seq)>, StoreError> {
        let rows = self.rows(Query::new(Statement::AllListeners, [self.project.into()]))?;
        let read = |mut row: Row| {
            let (pipeline, component, about) = (parsed(&row.text()?, TaskId::new)?, row.text()?.into(), row.text()?);
            let id = (!about.is_empty()).then(|| about.into());
            Ok((pipeline, Source { component, id }, Seq(row.int()?)))
        };
        rows.into_iter().map(read).collect()
    }

    /// How many pipelines stand how.
    pub fn pipeline_counts(&mut self) -> Result<BTreeMap<String, u64>, StoreError> {
        let rows = self.rows(Query::new(Statement::PipelineCounts, [self.project.into()]))?;
        rows.into_iter().map(|mut row| Ok((row.text()?, u64::try_from(row.int()?).map_err(StoreError::corrupt)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use banksman_core::guard::{Condition, Guard, GuardAction};
    use banksman_core::pipeline::When;
    use banksman_core::pipeline::plan::{Action, Context, Deed, Phase, Plan, Text};
    use banksman_core::{Now, Span};

    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    /// A pipeline that a lock holds up, and whose answer knows of so much.
    fn held_up(at: i64) -> Backlog {
        let condition = Condition::LockFree { lock: Text::Literal("l".into()) };
        let (fresh_for, timeout) = (Span::ZERO, Span::ZERO);
        let phase = Phase {
            pre: vec![Guard { name: name("g"), condition, on_failure: GuardAction::Block, fresh_for, timeout }],
            ..Phase::new(name("one"), Action::Do(Deed::Run("true".into())))
        };
        let plan = Plan { runbook: "b".into(), name: name("way"), vars: BTreeMap::new(), phases: vec![phase] };
        let id = TaskId::new("p-1").unwrap();
        let mut pipeline = Pipeline::new(id.clone(), Arc::new(plan), Context::new(), &Now::default());
        let reason = Reason::Guard {
            guard: name("g"),
            part: "p".into(),
            at: Seq(at),
            again: Lease(9),
            rest: Lease(5),
            looked: banksman_core::Wall(0),
            held: None,
        };
        pipeline.state = State::Blocked { phase: name("one"), when: When::Pre, reason };
        Backlog { pipelines: [(id, pipeline)].into(), ..Backlog::default() }
    }

    #[test]
    fn one_of_a_store_without_listeners_listens_after_its_next_answer() {
        let (before, after, gone) = (held_up(1), held_up(2), Backlog::default());
        let written = |before: &Backlog, after: &Backlog| {
            let mut queries = Vec::new();
            between(1, before, after, &mut queries);
            queries.iter().map(|query| query.statement).collect::<Vec<_>>()
        };
        assert_eq!(written(&before, &after), [Statement::UpdatePipeline, Statement::UpsertListener]);
        assert_eq!(written(&after, &after), []);
        assert_eq!(written(&after, &gone), [Statement::DeletePipeline, Statement::DeleteListener]);
    }
}
