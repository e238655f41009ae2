//! How tasks, sections, runs, runners and outbox commands stand in columns, and what a batch has changed of them.

use std::collections::BTreeMap;

use banksman_core::backlog::{Backlog, Edge, OutboxEntry, Run, Runner, Section};
use banksman_core::ids::{DecisionId, Epoch, RunId, RunnerId, SectionId, TaskId, Title};
use banksman_core::resource::grant::Address;
use banksman_core::task::{Spec, State, Task, Work};
use banksman_core::{Decision, Lease, Seq, Wall};

use crate::counts;
use crate::error::StoreError;
use crate::import;
use crate::pipelines;
use crate::rows::{json, list, parsed, push_stamp};
use crate::sql::Statement;
use crate::value::{Query, Row, Value};

impl Row {
    fn flag(&mut self) -> Result<bool, StoreError> {
        Ok(self.int()? != 0)
    }

    fn count(&mut self) -> Result<u32, StoreError> {
        self.int()?.try_into().map_err(StoreError::corrupt)
    }

    pub(crate) fn task_id(&mut self) -> Result<TaskId, StoreError> {
        parsed(&self.text()?, TaskId::new)
    }

    pub(crate) fn section(&mut self) -> Result<Section, StoreError> {
        Ok(Section {
            id: parsed(&self.text()?, SectionId::new)?,
            name: parsed(&self.text()?, Title::new)?,
            exclusive: self.flag()?,
            position: Seq(self.int()?),
        })
    }

    pub(crate) fn task(&mut self) -> Result<Task, StoreError> {
        let id = self.task_id()?;
        let spec: Spec = self.json()?.ok_or_else(|| StoreError::corrupt("a task without a description"))?;
        let (position, created) = (Seq(self.int()?), Wall(self.int()?));
        let (word, detail) = (self.text()?, self.json::<State>()?);
        let state = match detail {
            Some(state) => state,
            None => plain(&word).ok_or_else(|| StoreError::corrupt(format_args!("task {id} is {word:?}")))?,
        };
        let changed = self.stamp()?;
        let (attempts, failures, recoveries) = (self.count()?, self.count()?, self.count()?);
        Ok(Task { id, spec, position, created, state, changed, attempts, failures, recoveries })
    }

    pub(crate) fn edge(&mut self) -> Result<(TaskId, Edge), StoreError> {
        Ok((self.task_id()?, Edge { on: self.task_id()?, allow_failed: self.flag()? }))
    }

    pub(crate) fn run(&mut self) -> Result<Run, StoreError> {
        Ok(Run {
            id: parsed(&self.text()?, RunId::new)?,
            task: self.task_id()?,
            attempt: self.count()?,
            epoch: Epoch(self.int()?),
            owner: parsed(&self.text()?, RunnerId::new)?,
            owner_epoch: Epoch(self.int()?),
            holds: self.json()?.unwrap_or_default(),
            session: self.json()?,
            host: self.text()?.into(),
            boot: self.text()?.into(),
            started: self.stamp()?,
            lease: self.json()?,
            ended: self.json()?,
        })
    }

    pub(crate) fn runner(&mut self) -> Result<Runner, StoreError> {
        Ok(Runner {
            id: parsed(&self.text()?, RunnerId::new)?,
            process: self.json()?.ok_or_else(|| StoreError::corrupt("a runner without a process"))?,
            address: Address(self.text()?.into()),
            sections: self.json()?.unwrap_or_default(),
            max_runs: self.maybe_int()?.map(|max| max.try_into().map_err(StoreError::corrupt)).transpose()?,
            watching: self.json()?.unwrap_or_default(),
            started: self.stamp()?,
            seen: Lease(self.int()?),
            terms: self.json()?,
            shortage: self.json()?,
        })
    }

    pub(crate) fn entry(&mut self) -> Result<OutboxEntry, StoreError> {
        Ok(OutboxEntry {
            seq: Seq(self.int()?),
            executor: Some(self.text()?).filter(|id| !id.is_empty()).map(|id| parsed(&id, RunnerId::new)).transpose()?,
            command: self.json()?.ok_or_else(|| StoreError::corrupt("an errand without content"))?,
            attempts: self.count()?,
            due: Lease(self.int()?),
        })
    }

    pub(crate) fn decision(&mut self) -> Result<Decision, StoreError> {
        Ok(Decision {
            id: parsed(&self.text()?, DecisionId::new)?,
            raised: Wall(self.int()?),
            question: self.json()?.ok_or_else(|| StoreError::corrupt("a decision without a question"))?,
            state: self.json()?.ok_or_else(|| StoreError::corrupt("a decision without a state"))?,
        })
    }
}

/// The word for a state: what indexes and counts go by.
pub(crate) fn word(task: &Task) -> &'static str {
    match &task.state {
        State::Running(_) => "running",
        State::Stopping { .. } => "stopping",
        State::Resting { .. } => "resting",
        State::Held => "held",
        State::Awaiting { .. } => "awaiting",
        State::Parked { .. } => "parked",
        State::ByHand { .. } => "by_hand",
        State::InPhases { is_blocked: false } => "phases",
        State::InPhases { is_blocked: true } => "phases_blocked",
        State::Pending | State::Stuck { .. } | State::Review | State::Done(_) => task.status().as_str(),
    }
}

/// The state that a word alone stands for.
fn plain(word: &str) -> Option<State> {
    (word == "pending").then_some(State::Pending)
}

/// What the task needs to begin: tasks that need the same are admitted or refused together. A pipeline needs no slot, so that
/// it must not wait behind tasks that do.
pub(crate) fn lane(spec: &Spec) -> Option<String> {
    let lane = (&spec.section, spec.needs_to_begin(true), spec.parent.is_some());
    let lane = match spec.work.as_ref()? {
        Work::Pipeline(_) => serde_json::to_string(&(lane, "pipeline")),
        Work::Run(_) | Work::Exec { .. } | Work::Merge { .. } => serde_json::to_string(&lane),
    };
    Some(lane.expect("plain data always becomes JSON"))
}

/// When time alone may change how a task stands. One whose children are being ended is always looked at.
fn due(task: &Task) -> Option<i64> {
    match &task.state {
        State::Resting { until } => Some(until.0),
        State::Awaiting { until, .. } => Some(until.map_or(0, |until| until.0)),
        State::ByHand { until, .. } => Some(until.map_or(i64::MAX, |until| until.0)),
        State::Pending
        | State::Held
        | State::Running(_)
        | State::Stuck { .. }
        | State::Stopping { .. }
        | State::Parked { .. }
        | State::InPhases { .. }
        | State::Review
        | State::Done(_) => None,
    }
}

/// The statements that turn the rows of `before` into those of `after`.
pub(crate) fn between<'a>(project: i64, before: &'a Backlog, after: &'a Backlog, queries: &mut Vec<Query<'a>>) {
    sections(project, before, after, queries);
    tasks(project, before, after, queries);
    counts::between(project, before, after, queries);
    for (id, run) in &after.runs {
        match before.runs.get(id) {
            Some(was) if was == run => {}
            Some(_) => queries.push(update_run(project, run)),
            None => queries.push(insert_run(project, run)),
        }
    }
    for (id, runner) in &after.runners {
        if before.runners.get(id) != Some(runner) {
            queries.push(upsert_runner(project, runner));
        }
    }
    gone(&before.runners, &after.runners, |id| {
        queries.push(Query::new(Statement::DeleteRunner, [project.into(), id.as_str().into()]));
    });
    for (seq, entry) in &after.outbox {
        match before.outbox.get(seq) {
            Some(was) if was == entry => {}
            Some(_) => queries.push(update_entry(project, entry)),
            None => queries.push(insert_entry(project, entry)),
        }
    }
    gone(&before.outbox, &after.outbox, |seq| {
        queries.push(Query::new(Statement::DeleteSent, [project.into(), seq.0.into()]));
    });
    if before.finish.told != after.finish.told {
        queries.push(Query::new(Statement::UpsertFinish, [project.into(), after.finish.told.0.into()]));
    }
    for (id, decision) in &after.decisions {
        match before.decisions.get(id) {
            Some(was) if was == decision => {}
            Some(_) => queries.push(update_decision(project, decision)),
            None => queries.push(insert_decision(project, decision)),
        }
    }
    for (key, lost) in &after.lost_claims {
        if before.lost_claims.get(key) != Some(lost) {
            let params: [Value<'a>; 6] = [
                project.into(),
                lost.task.as_str().into(),
                lost.holder.as_str().into(),
                lost.epoch.0.into(),
                (&*lost.reason).into(),
                lost.at.0.into(),
            ];
            queries.push(Query::new(Statement::UpsertLostClaim, params));
        }
    }
    gone(&before.lost_claims, &after.lost_claims, |(task, holder)| {
        let params = [project.into(), task.as_str().into(), holder.as_str().into()];
        queries.push(Query::new(Statement::DeleteLostClaim, params));
    });
    if let Some(limits) = after.limits.filter(|limits| before.limits != Some(*limits)) {
        let params = [project.into(), i64::from(limits.runs).into(), i64::from(limits.roots).into()];
        queries.push(Query::new(Statement::SetLimits, params));
    }
    import::between(project, before, after, queries);
    pipelines::between(project, before, after, queries);
}

fn gone<'a, K: Ord, V>(before: &'a BTreeMap<K, V>, after: &BTreeMap<K, V>, delete: impl FnMut(&'a K)) {
    before.keys().filter(|key| !after.contains_key(*key)).for_each(delete);
}

fn sections<'a>(project: i64, before: &'a Backlog, after: &'a Backlog, queries: &mut Vec<Query<'a>>) {
    gone(&before.sections, &after.sections, |id| {
        queries.push(Query::new(Statement::DeleteSection, [project.into(), id.as_str().into()]));
    });
    for (id, section) in &after.sections {
        if before.sections.get(id) != Some(section) {
            let params: [Value<'a>; 5] = [
                project.into(),
                id.as_str().into(),
                section.name.as_str().into(),
                i64::from(section.exclusive).into(),
                section.position.0.into(),
            ];
            queries.push(Query::new(Statement::UpsertSection, params));
        }
    }
}

fn tasks<'a>(project: i64, before: &'a Backlog, after: &'a Backlog, queries: &mut Vec<Query<'a>>) {
    let id = |id: &'a TaskId| -> [Value<'a>; 2] { [project.into(), id.as_str().into()] };
    let mut refresh = Vec::new();
    gone(&before.tasks, &after.tasks, |task| {
        for statement in [Statement::DeleteTask, Statement::DeleteEdges, Statement::DeleteRunsOf] {
            queries.push(Query::new(statement, id(task)));
        }
        refresh.push(Query::new(Statement::RefreshDependents, id(task)));
    });
    for (key, task) in &after.tasks {
        let was = before.tasks.get(key);
        match was {
            None => queries.push(insert_task(project, task, after)),
            Some(was) => {
                if was.spec != task.spec {
                    queries.push(update_spec(project, task));
                }
                if standing(was) != standing(task) {
                    queries.push(update_state(project, task));
                }
            }
        }
        // Only what is over holds nobody back, or holds back for ever.
        if was.is_some_and(|was| was.status() != task.status() && (was.status().is_over() || task.status().is_over())) {
            refresh.push(Query::new(Statement::RefreshDependents, id(key)));
        }
    }
    for (task, edges) in &after.edges {
        let was = before.edges.get(task).map_or(&[][..], Vec::as_slice);
        if was == edges || !after.tasks.contains_key(task) {
            continue;
        }
        if !was.is_empty() {
            queries.push(Query::new(Statement::DeleteEdges, id(task)));
        }
        for edge in edges {
            let params = [project.into(), task.as_str().into(), edge.on.as_str().into(), i64::from(edge.allow_failed).into()];
            queries.push(Query::new(Statement::InsertEdge, params));
        }
        if !after.imported.contains_key(task) {
            refresh.push(Query::new(Statement::RefreshUnmet, id(task)));
        }
    }
    // What holds tasks back is counted when all else is in place.
    queries.extend(refresh);
}

/// What changes in the life of a task without anybody editing it.
fn standing(task: &Task) -> (&State, banksman_core::Stamp, [u32; 3]) {
    (&task.state, task.changed, [task.attempts, task.failures, task.recoveries])
}

fn push_state<'a>(task: &'a Task, params: &mut Vec<Value<'a>>) {
    params.push(word(task).into());
    params.push(if task.state == State::Pending { Value::Null } else { json(&task.state) });
    push_stamp(task.changed, params);
    params.extend([task.attempts, task.failures, task.recoveries].map(|count| i64::from(count).into()));
    params.push(due(task).into());
}

fn insert_task<'a>(project: i64, task: &'a Task, backlog: &'a Backlog) -> Query<'a> {
    let spec = &task.spec;
    let mut params = Vec::with_capacity(22);
    params.push(project.into());
    params.push(task.id.as_str().into());
    params.push(spec.title.as_str().into());
    params.push(spec.section.as_ref().map(SectionId::as_str).into());
    params.push(spec.parent.as_ref().map(TaskId::as_str).into());
    params.push(i64::from(spec.priority).into());
    params.push(task.position.0.into());
    params.push(import::lane(spec, &task.id, backlog).into());
    params.push(json(spec));
    params.push(task.created.0.into());
    params.push(spec.restart.as_ref().map(|_| 1).into());
    push_state(task, &mut params);
    params.push(import::unmet(&task.id, backlog).into());
    params.push(backlog.imported.get(&task.id).map(|import| import.as_str()).into());
    params.push(spec.is_part().then_some(1).into());
    Query::new(Statement::InsertTask, params)
}

fn update_spec(project: i64, task: &Task) -> Query<'_> {
    let spec = &task.spec;
    let params: [Value<'_>; 8] = [
        project.into(),
        task.id.as_str().into(),
        spec.title.as_str().into(),
        spec.section.as_ref().map(SectionId::as_str).into(),
        spec.parent.as_ref().map(TaskId::as_str).into(),
        i64::from(spec.priority).into(),
        lane(spec).into(),
        json(spec),
    ];
    Query::new(Statement::UpdateTaskSpec, params)
}

fn update_state(project: i64, task: &Task) -> Query<'_> {
    let mut params = Vec::with_capacity(9);
    params.push(project.into());
    params.push(task.id.as_str().into());
    push_state(task, &mut params);
    Query::new(Statement::UpdateTaskState, params)
}

fn insert_run(project: i64, run: &Run) -> Query<'_> {
    let mut params = Vec::with_capacity(15);
    params.push(project.into());
    params.push(run.id.as_str().into());
    params.push(run.task.as_str().into());
    params.push(i64::from(run.attempt).into());
    params.push(run.epoch.0.into());
    params.push(run.owner.as_str().into());
    params.push(run.owner_epoch.0.into());
    params.push(list(&run.holds));
    params.push(run.session.as_ref().map_or(Value::Null, json));
    params.push((&*run.host).into());
    params.push((&*run.boot).into());
    push_stamp(run.started, &mut params);
    params.push(run.lease.as_ref().map_or(Value::Null, json));
    params.push(run.ended.as_ref().map_or(Value::Null, json));
    Query::new(Statement::InsertRun, params)
}

fn update_run(project: i64, run: &Run) -> Query<'_> {
    let params: [Value<'_>; 8] = [
        project.into(),
        run.epoch.0.into(),
        run.owner.as_str().into(),
        run.owner_epoch.0.into(),
        list(&run.holds),
        run.session.as_ref().map_or(Value::Null, json),
        run.lease.as_ref().map_or(Value::Null, json),
        run.ended.as_ref().map_or(Value::Null, json),
    ];
    Query::new(Statement::UpdateRun, params)
}

fn upsert_runner(project: i64, runner: &Runner) -> Query<'_> {
    let mut params = Vec::with_capacity(12);
    params.push(project.into());
    params.push(runner.id.as_str().into());
    params.push(json(&runner.process));
    params.push((&*runner.address.0).into());
    params.push(list(&runner.sections));
    params.push(runner.max_runs.map(i64::from).into());
    params.push(list(&runner.watching));
    push_stamp(runner.started, &mut params);
    params.push(runner.seen.0.into());
    params.push(runner.terms.as_ref().map_or(Value::Null, json));
    params.push(runner.shortage.as_ref().map_or(Value::Null, json));
    Query::new(Statement::UpsertRunner, params)
}

fn insert_entry(project: i64, entry: &OutboxEntry) -> Query<'_> {
    let params: [Value<'_>; 7] = [
        project.into(),
        entry.seq.0.into(),
        entry.command.run().map_or("", RunId::as_str).into(),
        entry.executor.as_ref().map_or("", RunnerId::as_str).into(),
        json(&entry.command),
        i64::from(entry.attempts).into(),
        entry.due.0.into(),
    ];
    Query::new(Statement::InsertSent, params)
}

fn update_entry(project: i64, entry: &OutboxEntry) -> Query<'_> {
    let params: [Value<'_>; 5] = [
        project.into(),
        entry.seq.0.into(),
        entry.executor.as_ref().map_or("", RunnerId::as_str).into(),
        i64::from(entry.attempts).into(),
        entry.due.0.into(),
    ];
    Query::new(Statement::UpdateSent, params)
}

fn insert_decision(project: i64, decision: &Decision) -> Query<'_> {
    let params: [Value<'_>; 7] = [
        project.into(),
        decision.id.as_str().into(),
        decision.id.seq().0.into(),
        decision.raised.0.into(),
        json(&decision.question),
        json(&decision.state),
        decision.is_open().then_some(1).into(),
    ];
    Query::new(Statement::InsertDecision, params)
}

fn update_decision(project: i64, decision: &Decision) -> Query<'_> {
    let params: [Value<'_>; 4] =
        [project.into(), decision.id.as_str().into(), json(&decision.state), decision.is_open().then_some(1).into()];
    Query::new(Statement::UpdateDecision, params)
}
