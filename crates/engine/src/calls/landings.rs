//! Merge queues: the requests of people and workers. A worker holds the lock `landing:TARGET`, and every report presents its epoch.
//!
//! The work of a task enters its queue in the transaction that ends its run, and the task continues in the transaction in which the
//! work leaves the queue.

use banksman_core::event::{Kind, Resource};
use banksman_core::landing::{Entry, EntrySpec, Input, LandingEnd, LandingQueue, Obstacle, Outcome, Report, State, Target};
use banksman_core::task::{self, LandSpec};
use banksman_core::{Epoch, HolderId, Name, Span, Task, TaskId, pipeline};
use banksman_store::{Key, Tables, Tx};

use crate::calls::pipelines::step_pipeline;
use crate::calls::steps::{carry_out, step_task, wake_runners, withdraw};

/// A request to a merge queue.
#[derive(Debug, Clone)]
pub struct LandingRequest {
    pub target: Name,
    pub input: Input,
    /// The reporting worker, if the input is a report.
    pub worker: Option<Worker>,
}

/// The holder of the lock of a merge queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    pub holder: HolderId,
    pub epoch: Epoch,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LandingOutcome {
    Stepped(Outcome),
    /// The worker no longer holds the lock of the queue; nothing has happened.
    Fenced,
}

impl LandingRequest {
    /// A request that needs no lock.
    pub fn new(target: Name, input: Input) -> LandingRequest {
        LandingRequest { target, input, worker: None }
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        let mut keys = vec![Key::LandingQueue(self.target.clone()), Key::Runners];
        match &self.input {
            Input::Add(_) | Input::TryNow(_) | Input::Pause { .. } | Input::AuthorLeft(_) => {}
            Input::Report(_, report) => {
                keys.extend(Target::lock(&self.target).map(Key::Lock));
                keys.extend(waited_for(report).iter().cloned().map(Key::Task));
            }
            Input::Resume { .. } | Input::Remove { .. } | Input::Answer { .. } => keys.push(Key::OpenDecisions),
        }
        keys
    }

    /// Returns the keys of the task whose work the entry is.
    pub(crate) fn follow(&self, loaded: &Tables) -> Vec<Key> {
        let (Input::Report(entry, _) | Input::Remove { entry, .. }) = &self.input else { return Vec::new() };
        let task = loaded.backlog.landings.get(entry).and_then(|entry| entry.spec.task.clone());
        task.into_iter()
            .flat_map(|task| [Key::Task(task.clone()), Key::Pipeline(task.clone()), Key::LandingsAbove(task)])
            .collect()
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> LandingOutcome {
        let is_at_work = |worker: &Worker| is_at_work(&self.target, worker, &tx.tables);
        if matches!(self.input, Input::Report(..)) && !self.worker.as_ref().is_some_and(is_at_work) {
            return LandingOutcome::Fenced;
        }
        let outcome = step_queue(&self.target, self.input.clone(), tx);
        if let Input::Report(entry, report) = &self.input {
            let is_open = |id: &TaskId| tx.tables.backlog.tasks.get(id).is_some_and(|task| !task.status().is_over());
            // A task may have ended since the worker read it; its end has then found no waiting entry to wake.
            if !waited_for(report).iter().all(is_open) {
                step_queue(&self.target, Input::TryNow(entry.clone()), tx);
            }
        }
        LandingOutcome::Stepped(outcome)
    }
}

/// The tasks whose end this report waits for.
fn waited_for(report: &Report) -> &[TaskId] {
    if let Report::Obstructed(Obstacle::Children { tasks }) = report { tasks } else { &[] }
}

fn is_at_work(target: &Name, worker: &Worker, tables: &Tables) -> bool {
    let Some(name) = Target::lock(target) else { return false };
    let grant = tables.coordination.grant_of(&Resource { kind: Kind::Lock, name }, &worker.holder);
    grant.is_some_and(|grant| grant.epoch == worker.epoch)
}

/// Builds the merge queue of a branch from the loaded rows.
pub fn landing_queue(target: &Name, tables: &banksman_core::backlog::Backlog) -> LandingQueue {
    let mut queue = LandingQueue::new(target.clone());
    if let Some(target) = tables.landing_targets.get(target) {
        queue.target = target.clone();
    }
    let open = tables.landings.values().filter(|entry| entry.target == *target && entry.is_open());
    queue.entries = open.map(|entry| (entry.id.clone(), entry.clone())).collect();
    queue
}

/// Steps the queue of a branch, and carries out the effects.
pub(crate) fn step_queue(target: &Name, input: Input, tx: &mut Tx) -> Outcome {
    let queue = landing_queue(target, &tx.tables.backlog);
    let before = queue.clone();
    let step = queue.step(input, &tx.now(Vec::new(), Span::ZERO));
    #[cfg(debug_assertions)]
    step.state.check();
    carry_out(tx, step.effects, None);
    let backlog = &mut tx.tables.backlog;
    if step.state.target != before.target {
        backlog.landing_targets.insert(target.clone(), step.state.target.clone());
    }
    backlog.landings.extend(step.state.entries.clone());
    if let Outcome::Stands(entry) = &step.outcome {
        backlog.landings.insert(entry.id.clone(), (**entry).clone());
    }
    withdraw_answered(&before, &step.state, tx);
    if let Outcome::Stands(entry) = &step.outcome
        && let (State::Over(end), Some(task)) = (&entry.state, &entry.spec.task)
    {
        step_task(tx, task, task::Input::LandingEnded(end.clone()), None);
        if matches!(end, LandingEnd::Returned(_)) {
            step_pipeline(task, pipeline::Input::Returned, tx);
        }
    }
    wake_runners(tx);
    step.outcome
}

/// The rows that are needed when the work of these tasks may enter a merge queue or leave it.
pub(crate) fn keys_of_landing<'a>(tasks: impl Iterator<Item = &'a Task>) -> Vec<Key> {
    let lands = |task: &&Task| task.spec.land.is_some() || matches!(task.state, task::State::Landing { .. });
    let own = |task: &Task| [Key::LandingOf(task.id.clone()), Key::Workspace(task.id.clone())];
    let mut keys = Vec::new();
    for task in tasks {
        keys.extend(lands(&task).then(|| own(task)).into_iter().flatten());
        keys.extend(task.spec.parent.is_some().then(|| Key::LandingsAbove(task.id.clone())));
    }
    keys
}

/// Retries the entries that waited for the end of this task.
pub(crate) fn try_waiting(id: &TaskId, tx: &mut Tx) {
    let waits = |entry: &&Entry| match &entry.state {
        State::Waiting { obstacle: Obstacle::Children { tasks } } => tasks.contains(id),
        _ => false,
    };
    let waiting = tx.tables.backlog.landings.values().filter(waits).map(|entry| (entry.target.clone(), entry.id.clone()));
    for (target, entry) in waiting.collect::<Vec<_>>() {
        step_queue(&target, Input::TryNow(entry), tx);
    }
}

/// Puts the work of a finished task into the queue of its target. A worker of the queue finds out the commits.
pub(crate) fn enqueue_work(id: &TaskId, to: &LandSpec, tx: &mut Tx) {
    let backlog = &tx.tables.backlog;
    let task = &backlog.tasks[id];
    // How often in a row the work has been returned.
    let round = match last_entry(id, tx).map(|entry| (&entry.state, entry.spec.round)) {
        Some((State::Over(LandingEnd::Returned(_)), round)) => round + 1,
        _ => 0,
    };
    let spec = EntrySpec {
        source: None,
        title: task.spec.title.as_str().into(),
        branch: None,
        task: Some(id.clone()),
        priority: task.spec.priority,
        unchecked: to.unchecked,
        host: backlog.workspaces.get(id).map(|workspace| workspace.host.clone()).unwrap_or_default(),
        round,
        rounds: 0,
        ask_on_conflict: false,
        of_child: to.of_child,
    };
    step_queue(&to.target, Input::Add(Box::new(spec)), tx);
}

/// The last entry of a task, if it was loaded.
fn last_entry<'a>(id: &TaskId, tx: &'a Tx) -> Option<&'a Entry> {
    let own = tx.tables.backlog.landings.values().filter(|entry| entry.spec.task.as_ref() == Some(id));
    own.max_by_key(|entry| entry.id.seq())
}

/// Whether the target may be moving to a task's commit at this moment, so that the entry cannot be withdrawn.
pub(crate) fn is_moving(id: &TaskId, tx: &Tx) -> bool {
    last_entry(id, tx).is_some_and(|entry| matches!(entry.state, State::Passed { .. }))
}

/// Removes the work of a task that no longer lands from its queue.
pub(crate) fn dequeue_work(id: &TaskId, tx: &mut Tx) {
    let Some(entry) = last_entry(id, tx).filter(|entry| entry.is_open()) else { return };
    let (target, entry) = (entry.target.clone(), entry.id.clone());
    let by = format!("the end of {id}").into();
    step_queue(&target, Input::Remove { entry, by }, tx);
}

/// Stops waiting for the author of a task that will not be queued again automatically.
pub(crate) fn leave_author(id: &TaskId, tx: &mut Tx) {
    let resolves = |target: &&Target| target.resolving.iter().any(|resolving| resolving.task == *id);
    let targets: Vec<Name> =
        tx.tables.backlog.landing_targets.values().filter(resolves).map(|target| target.name.clone()).collect();
    for target in targets {
        step_queue(&target, Input::AuthorLeft(id.clone()), tx);
    }
}

/// Withdraws the questions that no longer need an answer.
fn withdraw_answered(before: &LandingQueue, after: &LandingQueue, tx: &mut Tx) {
    let red =
        |queue: &LandingQueue| queue.target.paused.as_ref().and_then(|pause| pause.red.as_ref()).map(|red| red.decision.clone());
    let asked =
        |queue: &LandingQueue| queue.entries.values().filter_map(Entry::decision).cloned().chain(red(queue)).collect::<Vec<_>>();
    let still = asked(after);
    for decision in asked(before).into_iter().filter(|decision| !still.contains(decision)) {
        withdraw(tx, &decision);
    }
}
