//! Why a dependency is not met: the path along dependencies to the task that causes the wait.

use std::collections::{BTreeMap, VecDeque};

use banksman_core::backlog::{Backlog, Edge};
use banksman_core::task::State;
use banksman_core::task::dependencies;
use banksman_core::{Task, TaskId};
use banksman_store::CHAIN_LIMIT;

/// Where a chain stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    Gone,
    More,
    Cycle(Vec<TaskId>),
    Task,
}

/// The dependencies that block a task.
pub(crate) fn unmet<'a>(task: &Task, backlog: &'a Backlog) -> impl Iterator<Item = &'a TaskId> {
    let is_met = |edge: &Edge| backlog.tasks.get(&edge.on).is_some_and(|on| dependencies::is_met(on.status(), edge.allow_failed));
    let edges = backlog.edges.get(&task.id).map_or(&[][..], Vec::as_slice);
    edges.iter().filter(move |edge| !is_met(edge)).map(|edge| &edge.on)
}

/// For each open dependency of a pending task, the path to the task that causes the wait.
pub(crate) fn chains(task: &Task, backlog: &Backlog) -> Vec<(Vec<TaskId>, Stop)> {
    if task.state != State::Pending {
        return Vec::new();
    }
    let pending = backlog.tasks.values().filter(|task| task.state == State::Pending);
    let waits: BTreeMap<TaskId, Vec<Edge>> = pending
        .map(|task| {
            let edge = |on: &TaskId| Edge { on: on.clone(), allow_failed: false };
            (task.id.clone(), unmet(task, backlog).map(edge).collect())
        })
        .collect();
    let any_cycle = dependencies::find_cycle(&waits).is_some();
    unmet(task, backlog).map(|first| follow(first, &waits, any_cycle, backlog)).collect()
}

/// Follows one dependency: to a task that will never end by itself if there is one, else to a task that needs a person, else to the
/// nearest task that waits for another reason, and only without any of these to a task that is under way.
fn follow(first: &TaskId, waits: &BTreeMap<TaskId, Vec<Edge>>, any_cycle: bool, backlog: &Backlog) -> (Vec<TaskId>, Stop) {
    let mut from: BTreeMap<&TaskId, Option<&TaskId>> = BTreeMap::from([(first, None)]);
    let mut open = VecDeque::from([first]);
    let mut best: Option<(u8, &TaskId, Stop)> = None;
    while let Some(at) = open.pop_front() {
        let further = waits.get(at).map_or(&[][..], Vec::as_slice);
        if further.is_empty() {
            let (rank, stop) = rank(at, backlog);
            if best.as_ref().is_none_or(|(least, ..)| rank < *least) {
                best = Some((rank, at, stop));
            }
        }
        for edge in further {
            from.entry(&edge.on).or_insert_with(|| {
                open.push_back(&edge.on);
                Some(at)
            });
        }
    }
    if any_cycle {
        let reached = waits.iter().filter(|(task, _)| from.contains_key(task));
        let reached = reached.map(|(task, edges)| (task.clone(), edges.clone())).collect();
        if let Some(cycle) = dependencies::find_cycle(&reached) {
            let nearest = from.keys().find(|task| cycle.contains(task)).expect("it was reached");
            return (path(&from, nearest), Stop::Cycle(cycle));
        }
    }
    let (_, last, stop) = best.expect("without a cycle every path ends");
    (path(&from, last), stop)
}

fn path(from: &BTreeMap<&TaskId, Option<&TaskId>>, last: &TaskId) -> Vec<TaskId> {
    let mut path = vec![last.clone()];
    let mut at = last;
    while let Some(before) = from.get(at).copied().flatten() {
        path.push(before.clone());
        at = before;
    }
    path.reverse();
    path
}

/// The rank of a task at the end of a chain: the lowest matters most.
fn rank(id: &TaskId, backlog: &Backlog) -> (u8, Stop) {
    let Some(task) = backlog.tasks.get(id) else {
        return if backlog.tasks.len() < CHAIN_LIMIT { (0, Stop::Gone) } else { (3, Stop::More) };
    };
    let rank = match &task.state {
        State::Done(_) => 0,
        State::Pending if task.spec.work.is_none() => 1,
        State::Review | State::Held | State::AwaitingDecision { .. } | State::InPhases { is_blocked: true } => 1,
        State::Stuck { .. } | State::Manual { .. } => 2,
        State::Pending | State::Backoff { .. } => 3,
        State::Running(_)
        | State::Stopping { .. }
        | State::Awaiting { .. }
        | State::Landing { .. }
        | State::InPhases { is_blocked: false } => 4,
    };
    (rank, Stop::Task)
}
