//! Loops, and tasks that wait for time: files DONE, expired backoffs, ended children.

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
use crate::calls::steps::open_children;
use crate::request::{Request, Seen};

/// The most waiting loops to check at once.
const SCAN_LIMIT: u32 = 1_000;

/// The most locks, and the most semaphores, with an expired grant to sweep at once.
const SWEEP_LIMIT: u32 = 100;

#[derive(Debug, Default)]
pub(super) struct Loops {
    /// The state of the files DONE that the current pass needs.
    markers: BTreeMap<TaskId, Marker>,
    /// When waiting loops are scanned again. A busy runner never comes to a slow pass, so the scan does not depend on one.
    scan_at: Option<Lease>,
    /// The position of the last waiting loop that was scanned.
    scanned: Seq,
    /// The requests that reap expired grants.
    sweeps: Vec<Request>,
}

impl Loops {
    /// The rows and the starting point of the next scan, if it is due.
    pub(super) fn begin_scan(&self, now: Lease) -> Option<(Seq, BTreeSet<Key>)> {
        let after = self.scanned;
        let keys = [Key::Loops { after, limit: SCAN_LIMIT }, Key::Expired { now, limit: SWEEP_LIMIT }];
        self.scan_at.is_none_or(|due| due <= now).then(|| (after, keys.into()))
    }

    /// Takes in waiting loops, and returns the tasks whose files must be checked. The next scan continues behind them, and at the end
    /// starts over.
    pub(super) fn scanned(&mut self, after: Seq, snapshot: &Snapshot, context: &Context) -> Vec<TaskId> {
        self.scan_at = Some(snapshot.lease + context.options.poll);
        self.sweeps = expired(snapshot, context);
        let tasks = &snapshot.backlog.tasks;
        let is_full = tasks.len() >= usize::try_from(SCAN_LIMIT).unwrap_or(usize::MAX);
        let last = tasks.values().map(|task| task.position).max().unwrap_or(after);
        self.scanned = if is_full { last } else { Seq(0) };
        tasks.keys().cloned().collect()
    }

    /// The rows that tasks depend on which wait for their children.
    pub(super) fn keys(snapshot: &Snapshot) -> impl Iterator<Item = Key> {
        let awaiting = snapshot.backlog.tasks.values().filter(|task| matches!(task.state, State::Awaiting { .. }));
        awaiting.map(|task| Key::Family(task.id.clone()))
    }

    /// The loops among these tasks whose file must be checked before a decision.
    pub(super) fn unchecked<'a>(&self, tasks: impl Iterator<Item = &'a Task>) -> Vec<TaskId> {
        let loops = tasks.filter(|task| task.spec.restart.is_some()).map(|task| &task.id);
        let unchecked: BTreeSet<&TaskId> = loops.filter(|id| !self.markers.contains_key(*id)).collect();
        unchecked.into_iter().cloned().collect()
    }

    /// Takes in the results of a check for files.
    pub(super) fn checked(&mut self, found: Vec<(TaskId, Marker)>) {
        self.markers.extend(found);
    }

    /// Forgets the results at the end of a pass: the next pass checks again.
    pub(super) fn forget_markers(&mut self) {
        self.markers.clear();
    }

    /// The state of the file DONE after the last attempt of a task; `None` if it must still be checked.
    pub(super) fn marker(&self, task: &Task) -> Option<Marker> {
        match task.spec.restart {
            Some(_) => self.markers.get(&task.id).cloned(),
            None => Some(Marker::Absent),
        }
    }

    /// Reports the waiting tasks that have a file DONE, or something in its place.
    pub(super) fn found(&self, snapshot: &Snapshot) -> Vec<RunRequest> {
        let waits = |task: &TaskId| snapshot.backlog.tasks.get(task).is_some_and(|task| task.live().is_none());
        let found = self.markers.iter().filter(|(task, marker)| **marker != Marker::Absent && waits(task));
        found.map(|(task, marker)| RunRequest::Found { task: task.clone(), marker: marker.clone() }).collect()
    }

    pub(super) fn take_sweeps(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.sweeps)
    }
}

/// Reaps expired grants that no other process has requested since, so that their end is in the log.
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

/// The requests that are due by time: for expired backoffs and manual claims, and for tasks that are over with their children.
pub(super) fn due_requests(snapshot: &Snapshot, context: &Context) -> Vec<RunRequest> {
    let is_due = |until: &Option<Lease>| until.is_some_and(|until| until <= snapshot.lease);
    let mut requests = Vec::new();
    let (mut rested, mut left) = (Vec::new(), Vec::new());
    for task in snapshot.backlog.tasks.values() {
        match &task.state {
            State::Backoff { until } if *until <= snapshot.lease => rested.push(task.id.clone()),
            State::Manual { until, .. } if is_due(until) => left.push(task.id.clone()),
            State::Awaiting { until, .. } if is_due(until) || open_children(&snapshot.backlog, &task.id) == 0 => {
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

/// The next deadline of these tasks.
pub(super) fn next_due(snapshot: &Snapshot) -> Option<Lease> {
    let due = |task: &Task| match &task.state {
        State::Backoff { until } => Some(*until),
        State::Awaiting { until, .. } | State::Manual { until, .. } => *until,
        _ => None,
    };
    snapshot.backlog.tasks.values().filter_map(due).filter(|due| *due > snapshot.lease).min()
}

/// Whether a task will continue by itself although no run is live. An open child counts by itself; a child that was ended with the others
/// and that a person has retried is waited for without a deadline.
pub(super) fn is_waiting(snapshot: &Snapshot) -> bool {
    let waits = |task: &Task| match task.state {
        State::Backoff { .. } | State::Awaiting { until: Some(_), .. } => true,
        State::Awaiting { until: None, .. } => open_children(&snapshot.backlog, &task.id) == 0,
        _ => false,
    };
    snapshot.backlog.tasks.values().any(waits)
}
