//! Stopping tasks with their families, and deleting them.

use banksman_core::backlog::Edge;
use banksman_core::event::{Event, Kind, Resource, TaskFact};
use banksman_core::resource::lock;
use banksman_core::task::{self, After};
use banksman_core::{Task, TaskId};
use banksman_store::{Tables, Tx};

use super::{TaskOutcome, stop};
use crate::ledger::{descendants, emit, wake_for, withdraw};
use crate::manual::{self, LockedBy};
use crate::pipelines;

/// Stops a task and all that it has created.
pub(super) fn cancel(id: &TaskId, tables: &mut Tables, tx: &mut Tx) -> TaskOutcome {
    let outcome = stop(id, After::Cancel, tables, tx);
    for child in descendants(tables, id) {
        stop(&child, After::Cancel, tables, tx);
    }
    outcome
}

pub(super) fn delete(id: &TaskId, force: bool, tables: &mut Tables, tx: &mut Tx) -> TaskOutcome {
    let Some(task) = tables.backlog.tasks.get(id) else { return TaskOutcome::Unknown };
    if let Some(live) = task.live() {
        return TaskOutcome::InProgress(live.run.clone());
    }
    let lock = tables.coordination.locks.get(&id.lock());
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
    let (phases, others): (Vec<&Task>, Vec<&Task>) =
        descendants(tables, id).iter().map(|child| &tables.backlog.tasks[child]).partition(|task| is_phase_of(task, id));
    if let Some(live) = phases.iter().find_map(|phase| phase.live()) {
        return TaskOutcome::InProgress(live.run.clone());
    }
    if !others.is_empty() {
        return TaskOutcome::HasChildren(others.into_iter().map(|task| task.id.clone()).collect());
    }
    let gone: Vec<TaskId> = std::iter::once(id).chain(phases.into_iter().map(|phase| &phase.id)).cloned().collect();
    let waits = |task: &TaskId, edges: &[Edge]| !gone.contains(task) && edges.iter().any(|edge| gone.contains(&edge.on));
    let dependents: Vec<TaskId> =
        tables.backlog.edges.iter().filter(|(task, edges)| waits(task, edges)).map(|(task, _)| task.clone()).collect();
    if !dependents.is_empty() {
        return TaskOutcome::HasDependents(dependents);
    }
    // The pipeline itself first: then it hears of no phase that is gone.
    gone.iter().for_each(|task| remove(task, tables, tx));
    TaskOutcome::Deleted
}

/// Whether a task is a phase of this pipeline.
fn is_phase_of(task: &Task, pipeline: &TaskId) -> bool {
    task.spec.phase().is_some() && task.spec.parent.as_ref() == Some(pipeline)
}

/// Removes a task, with what belongs to its state.
fn remove(id: &TaskId, tables: &mut Tables, tx: &mut Tx) {
    match tables.backlog.tasks[id].state.clone() {
        task::State::AwaitingDecision { decision } => withdraw(tables, tx, &decision),
        task::State::Manual { holder, epoch, .. } => manual::let_go(id, &holder, epoch, tables, tx),
        _ => {}
    }
    tables.backlog.lost_claims.retain(|(task, _), _| task != id);
    let task = tables.backlog.tasks.remove(id).expect("it was looked at above");
    tables.backlog.edges.remove(id);
    tables.backlog.runs.retain(|_, run| run.task != *id);
    emit(tx, Event::Task { id: id.clone(), fact: TaskFact::Deleted {} });
    pipelines::forget(&task, tables, tx);
    // Who waits for it hears that it is gone.
    wake_for(tables, &[Resource { kind: Kind::Lock, name: id.lock() }], tx);
}
