//! Loops and whatever else waits for time: files that say that a task is done, rests that are over, children that ended.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::resource::coordination::Command;
use banksman_core::resource::lock::{self, Lock};
use banksman_core::resource::semaphore::{self, Semaphore};
use banksman_core::task::retry::Marker;
use banksman_core::task::{State, Task};
use banksman_core::{Lease, Now, Seq, TaskId};
use banksman_store::{Key, Snapshot};

use super::context::Context;
use crate::calls::runs::RunRequest;
use crate::calls::steps::open_in;
use crate::request::{Request, Seen};

/// How many waiting loops are looked at in one go.
const SCAN_LIMIT: u32 = 1_000;

/// How many locks, and semaphores, with a grant that time has ended are swept in one go.
const SWEEP_LIMIT: u32 = 100;

#[derive(Debug, Default)]
pub(super) struct Loops {
    /// What was found in the place of the files DONE that the current pass needs.
    markers: BTreeMap<TaskId, Marker>,
    /// When waiting loops are gone through again. A busy runner never comes to a slow pass, so it is not tied to that.
    scan_at: Option<Lease>,
    /// How far waiting loops were gone through.
    scanned: Seq,
    /// What takes grants away that time has ended.
    sweeps: Vec<Request>,
}

impl Loops {
    /// The rows of the next scan, and where it begins, if it is due.
    pub(super) fn begin_scan(&self, now: Lease) -> Option<(Seq, BTreeSet<Key>)> {
        let after = self.scanned;
        let keys = [Key::Loops { after, limit: SCAN_LIMIT }, Key::Expired { now, limit: SWEEP_LIMIT }];
        self.scan_at.is_none_or(|due| due <= now).then(|| (after, keys.into()))
    }

    /// Takes in loops that wait; their files are to be looked for. The next scan goes on behind them, and then from the front.
    pub(super) fn scanned(&mut self, after: Seq, snapshot: &Snapshot, context: &Context) -> Vec<TaskId> {
        self.scan_at = Some(snapshot.lease + context.options.poll);
        self.sweeps = expired(snapshot, context);
        let tasks = &snapshot.backlog.tasks;
        let is_full = tasks.len() >= usize::try_from(SCAN_LIMIT).unwrap_or(usize::MAX);
        let last = tasks.values().map(|task| task.position).max().unwrap_or(after);
        self.scanned = if is_full { last } else { Seq(0) };
        tasks.keys().cloned().collect()
    }

    /// The rows that the tasks which wait for their children depend on.
    pub(super) fn keys(snapshot: &Snapshot) -> impl Iterator<Item = Key> {
        let awaiting = snapshot.backlog.tasks.values().filter(|task| matches!(task.state, State::Awaiting { .. }));
        awaiting.map(|task| Key::Family(task.id.clone()))
    }

    /// The loops among these tasks whose file must be looked for before anything is decided.
    pub(super) fn unchecked<'a>(&self, tasks: impl Iterator<Item = &'a Task>) -> Vec<TaskId> {
        let loops = tasks.filter(|task| task.spec.restart.is_some()).map(|task| &task.id);
        let unchecked: BTreeSet<&TaskId> = loops.filter(|id| !self.markers.contains_key(*id)).collect();
        unchecked.into_iter().cloned().collect()
    }

    /// Takes in what a look for files found.
    pub(super) fn checked(&mut self, found: Vec<(TaskId, Marker)>) {
        self.markers.extend(found);
    }

    /// The pass is over: the next one looks again.
    pub(super) fn forget_markers(&mut self) {
        self.markers.clear();
    }

    /// What was found right after the last attempt of a task; `None` if that is still to be looked for.
    pub(super) fn marker(&self, task: &Task) -> Option<Marker> {
        match task.spec.restart {
            Some(_) => self.markers.get(&task.id).cloned(),
            None => Some(Marker::Absent),
        }
    }

    /// Tasks that wait and were found to be done, or to have something in the place of the file.
    pub(super) fn found(&self, snapshot: &Snapshot) -> Vec<RunRequest> {
        let waits = |task: &TaskId| snapshot.backlog.tasks.get(task).is_some_and(|task| task.live().is_none());
        let found = self.markers.iter().filter(|(task, marker)| **marker != Marker::Absent && waits(task));
        found.map(|(task, marker)| RunRequest::Found { task: task.clone(), marker: marker.clone() }).collect()
    }

    pub(super) fn take_sweeps(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.sweeps)
    }
}

/// Takes away what time has ended and nobody has asked for since, so that it is in the log.
fn expired(snapshot: &Snapshot, context: &Context) -> Vec<Request> {
    let patience = context.patience();
    let now = Now { lease: snapshot.lease, wall: snapshot.wall, patience, ..Now::default() };
    let rows = &snapshot.coordination;
    let is_over = |lock: &&Lock| matches!(&lock.state, lock::State::Held(grant) if grant.over(&now).is_some());
    let locks = rows.locks.values().filter(is_over).map(|lock| Command::Lock(lock.name.clone(), lock::Input::Reap));
    let are_over = |slots: &&Semaphore| slots.holders.values().any(|grant| grant.over(&now).is_some());
    let slots = rows.semaphores.values().filter(are_over);
    let slots = slots.map(|slots| Command::Semaphore(slots.name.clone(), semaphore::Input::Reap));
    let seen = Seen { patience, ..Seen::default() };
    locks.chain(slots).map(|command| Request::Coordinate { command, seen: seen.clone() }).collect()
}

/// What time has brought about: rests that are over, people who have lost their lock, and
/// tasks that are over with their children.
pub(super) fn ripe(snapshot: &Snapshot, context: &Context) -> Vec<RunRequest> {
    let is_due = |until: &Option<Lease>| until.is_some_and(|until| until <= snapshot.lease);
    let mut requests = Vec::new();
    let (mut rested, mut left) = (Vec::new(), Vec::new());
    for task in snapshot.backlog.tasks.values() {
        match &task.state {
            State::Backoff { until } if *until <= snapshot.lease => rested.push(task.id.clone()),
            State::Manual { until, .. } if is_due(until) => left.push(task.id.clone()),
            State::Awaiting { until, .. } if is_due(until) || open_in(&snapshot.backlog, &task.id) == 0 => {
                requests.push(RunRequest::Settle { task: task.id.clone() });
            }
            State::Pending
            | State::Held
            | State::Backoff { .. }
            | State::Running(_)
            | State::Stuck { .. }
            | State::Stopping { .. }
            | State::Awaiting { .. }
            | State::AwaitingDecision { .. }
            | State::Manual { .. }
            | State::InPhases { .. }
            | State::Landing { .. }
            | State::Review
            | State::Done(_) => {}
        }
    }
    if !rested.is_empty() || !left.is_empty() {
        requests.push(RunRequest::MakeReady { rested, left, seen: context.seen() });
    }
    requests
}

/// The next moment at which time alone changes something of these tasks.
pub(super) fn next_due(snapshot: &Snapshot) -> Option<Lease> {
    let due = |task: &Task| match &task.state {
        State::Backoff { until } => Some(*until),
        State::Awaiting { until, .. } | State::Manual { until, .. } => *until,
        _ => None,
    };
    snapshot.backlog.tasks.values().filter_map(due).filter(|due| *due > snapshot.lease).min()
}

/// Whether something will go on by itself though no run lives. A child that goes on tells by itself; one that was ended with the others, and that a
/// person tries again, is waited for without end.
pub(super) fn is_waiting(snapshot: &Snapshot) -> bool {
    let waits = |task: &Task| match task.state {
        State::Backoff { .. } | State::Awaiting { until: Some(_), .. } => true,
        State::Awaiting { until: None, .. } => open_in(&snapshot.backlog, &task.id) == 0,
        _ => false,
    };
    snapshot.backlog.tasks.values().any(waits)
}
