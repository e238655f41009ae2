//! The resources that must be free before tasks can end, for a run that waits for them: an edge of the wait graph, which refuses cycles.

use std::collections::BTreeSet;

use banksman_core::backlog::Backlog;
use banksman_core::resource::work_claim::{Input, Outcome, Part, Take};
use banksman_core::task::{Need, State};
use banksman_core::{Epoch, Pipeline, RunId, Task, TaskId};
use banksman_store::{Key, Tx};

use crate::calls::manual::{part, work};
use crate::calls::runs::{RunOutcome, standing};
use crate::calls::steps::descendants;
use crate::request::Seen;

/// The rows that [`awaited_parts`] needs.
pub fn awaited_keys(tasks: &[TaskId]) -> BTreeSet<Key> {
    tasks.iter().flat_map(|id| [Key::Chain(id.clone()), Key::Family(id.clone()), Key::Pipeline(id.clone())]).collect()
}

/// The locks of the tasks and of all tasks that they wait for: the holder that works on a task has its lock. A task that has not begun
/// also needs its own locks and slots. A section does not count, because it keeps out no run of the same runner.
pub fn awaited_parts(tasks: &[TaskId], backlog: &Backlog) -> Vec<Part> {
    let mut open: Vec<TaskId> = tasks.to_vec();
    let mut seen = BTreeSet::new();
    let mut needs = BTreeSet::new();
    while let Some(id) = open.pop() {
        let Some(task) = backlog.tasks.get(&id).filter(|task| !task.status().is_over()) else { continue };
        if !seen.insert(id.clone()) {
            continue;
        }
        needs.insert(Need::Lock(id.lock()));
        open.extend(waits_for(task, backlog));
        if matches!(task.state, State::Pending | State::Backoff { .. }) && !task.has_phases() {
            needs.extend(task.spec.needs.iter().cloned());
        }
    }
    let mut parts: Vec<Part> = needs.iter().map(part).collect();
    parts.sort_by(|a, b| a.resource.cmp(&b.resource));
    parts.dedup_by(|a, b| a.resource == b.resource);
    parts
}

/// The tasks that a task waits for directly.
fn waits_for(task: &Task, backlog: &Backlog) -> Vec<TaskId> {
    match &task.state {
        State::Awaiting { .. } => descendants(backlog, &task.id),
        State::InPhases { .. } => backlog.pipelines.get(&task.id).and_then(Pipeline::task).into_iter().cloned().collect(),
        State::Pending => backlog.edges.get(&task.id).into_iter().flatten().map(|edge| edge.on.clone()).collect(),
        State::Backoff { .. }
        | State::Held
        | State::Running(_)
        | State::Stuck { .. }
        | State::Stopping { .. }
        | State::AwaitingDecision { .. }
        | State::Manual { .. }
        | State::Landing { .. }
        | State::Review
        | State::Done(_) => Vec::new(),
    }
}

/// Adds the wait of a run for tasks: an edge of the wait graph, and nothing else.
pub(crate) fn awaiting(run: &RunId, epoch: Epoch, take: Take, seen: &Seen, tx: &mut Tx) -> RunOutcome {
    match standing(run, epoch, &tx.tables) {
        RunOutcome::Done => {}
        other => return other,
    }
    match work(Input::Await(Box::new(take)), &seen.now(tx), tx) {
        Outcome::Waiting(waiting, _) => RunOutcome::Awaits(waiting.ticket),
        Outcome::Deadlock(cycle) => RunOutcome::Deadlock(cycle),
        other => unreachable!("a wait is recorded or refused: {other:?}"),
    }
}
