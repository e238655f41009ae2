//! Stopping tasks with their families, and deleting them.

use banksman_core::backlog::Edge;
use banksman_core::event::{Event, Kind, Resource, TaskFact};
use banksman_core::resource::lock;
use banksman_core::task::{self, After};
use banksman_core::{Task, TaskId};
use banksman_store::Tx;

use super::{TaskOutcome, stop};
use crate::calls::manual::{self, LockedBy};
use crate::calls::pipelines;
use crate::calls::steps::{descendants, emit, wake_for, withdraw};

/// Stops a task and all its descendants.
pub(super) fn cancel(id: &TaskId, tx: &mut Tx) -> TaskOutcome {
    let outcome = stop(id, After::Cancel, tx);
    for child in descendants(&tx.tables.backlog, id) {
        stop(&child, After::Cancel, tx);
    }
    outcome
}

/// Stops several tasks with all their descendants, or none of them if one cannot be stopped now.
pub(super) fn cancel_all(ids: &[TaskId], tx: &mut Tx) -> TaskOutcome {
    let mut draft = tx.clone();
    let mut outcomes = Vec::with_capacity(ids.len());
    for id in ids {
        let was_over = tx.tables.backlog.tasks.get(id).is_some_and(|task| task.status().is_over());
        match cancel(id, &mut draft) {
            // The task was cancelled as a descendant of an earlier one.
            TaskOutcome::Stepped(task::Outcome::Over(status), task) if !was_over => {
                outcomes.push(TaskOutcome::Stepped(task::Outcome::Ended(status), task));
            }
            outcome @ TaskOutcome::Stepped(task::Outcome::Ended(_) | task::Outcome::Stopping | task::Outcome::Over(_), _) => {
                outcomes.push(outcome);
            }
            refused => return TaskOutcome::RefusedBy(id.clone(), Box::new(refused)),
        }
    }
    *tx = draft;
    TaskOutcome::Several(outcomes)
}

pub(super) fn delete(id: &TaskId, force: bool, tx: &mut Tx) -> TaskOutcome {
    let Some(task) = tx.tables.backlog.tasks.get(id) else { return TaskOutcome::Unknown };
    if let Some(live) = task.live() {
        return TaskOutcome::InProgress(live.run.clone());
    }
    let lock = tx.tables.coordination.locks.get(&id.lock());
    if let Some(lock::State::Held(grant)) = lock.map(|lock| &lock.state)
        && !force
    {
        let until = grant.expires();
        return TaskOutcome::Locked(LockedBy::new(id.lock(), grant.claim.holder.clone(), until));
    }
    if let task::State::InPhases { .. } = task.state
        && !force
    {
        return TaskOutcome::NotOver;
    }
    // The phases of a pipeline go with it.
    let (phases, others): (Vec<&Task>, Vec<&Task>) = descendants(&tx.tables.backlog, id)
        .iter()
        .map(|child| &tx.tables.backlog.tasks[child])
        .partition(|task| is_phase_of(task, id));
    if let Some(live) = phases.iter().find_map(|phase| phase.live()) {
        return TaskOutcome::InProgress(live.run.clone());
    }
    if !others.is_empty() {
        return TaskOutcome::HasChildren(others.into_iter().map(|task| task.id.clone()).collect());
    }
    let gone: Vec<TaskId> = std::iter::once(id).chain(phases.into_iter().map(|phase| &phase.id)).cloned().collect();
    let waits = |task: &TaskId, edges: &[Edge]| !gone.contains(task) && edges.iter().any(|edge| gone.contains(&edge.on));
    let dependents: Vec<TaskId> =
        tx.tables.backlog.edges.iter().filter(|(task, edges)| waits(task, edges)).map(|(task, _)| task.clone()).collect();
    if !dependents.is_empty() {
        return TaskOutcome::HasDependents(dependents);
    }
    // The pipeline itself first, so that it is not stepped for the deletion of its phases.
    gone.iter().for_each(|task| remove(task, tx));
    TaskOutcome::Deleted
}

/// Whether a task is a phase of this pipeline.
fn is_phase_of(task: &Task, pipeline: &TaskId) -> bool {
    task.spec.phase().is_some() && task.spec.parent.as_ref() == Some(pipeline)
}

/// Removes a task, and ends its decision or its manual claim.
fn remove(id: &TaskId, tx: &mut Tx) {
    match tx.tables.backlog.tasks[id].state.clone() {
        task::State::AwaitingDecision { decision } => withdraw(tx, &decision),
        task::State::Manual { holder, epoch, .. } => manual::let_go(id, &holder, epoch, tx),
        _ => {}
    }
    tx.tables.backlog.lost_claims.retain(|(task, _), _| task != id);
    let task = tx.tables.backlog.tasks.remove(id).expect("its state was read above");
    tx.tables.backlog.edges.remove(id);
    tx.tables.backlog.runs.retain(|_, run| run.task != *id);
    emit(tx, Event::Task { id: id.clone(), fact: TaskFact::Deleted {} });
    pipelines::forget(&task, tx);
    // Waiters for its lock are woken, because the task no longer exists.
    wake_for(&[Resource { kind: Kind::Lock, name: id.lock() }], tx);
}
