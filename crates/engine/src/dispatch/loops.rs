//! Loops and whatever else waits for time: files that tell that a task is done, rests that are over, children that ended.

use std::collections::BTreeSet;

use banksman_core::resource::coordination::Command;
use banksman_core::resource::lock::{self, Lock};
use banksman_core::resource::semaphore::{self, Semaphore};
use banksman_core::task::retry::Marker;
use banksman_core::task::{self, State, Task};
use banksman_core::{Lease, Now, Seq, TaskId};
use banksman_store::{Key, Snapshot};

use super::{Advice, Dispatcher, Look, Phase, SCAN_LIMIT};
use crate::ledger::open_in;
use crate::request::{Request, Seen};
use crate::runs::{Candidate, RunRequest};

impl Dispatcher {
    /// The rows that the tasks which wait for their children depend on.
    pub(super) fn family_keys(&self, snapshot: &Snapshot) -> Vec<Key> {
        let awaiting = snapshot.backlog.tasks.values().filter(|task| matches!(task.state, State::Awaiting { .. }));
        awaiting.map(|task| Key::Family(task.id.clone())).collect()
    }

    /// Takes in loops that wait, and has their files looked for. The next time goes on behind them, and then from the front.
    pub(super) fn scanned(&mut self, after: Seq, snapshot: Snapshot) {
        self.scan_at = Some(snapshot.lease + self.options.poll);
        self.sweeps = self.expired(&snapshot);
        let tasks: Vec<&Task> = snapshot.backlog.tasks.values().collect();
        let is_full = tasks.len() >= usize::try_from(SCAN_LIMIT).unwrap_or(usize::MAX);
        let last = tasks.iter().map(|task| task.position).max().unwrap_or(after);
        self.scanned = if is_full { last } else { Seq(0) };
        let waiting: Vec<TaskId> = tasks.into_iter().map(|task| task.id.clone()).collect();
        if !waiting.is_empty() {
            self.queue.push_back(Advice::Check(waiting));
            self.look = Look::Scanned(Box::new(snapshot));
        }
    }

    /// Takes away what time has ended and nobody has asked for since, so that it is told.
    fn expired(&self, snapshot: &Snapshot) -> Vec<Request> {
        let now = Now { lease: snapshot.lease, wall: snapshot.wall, patience: self.patience(), ..Now::default() };
        let rows = &snapshot.coordination;
        let is_over = |lock: &&Lock| matches!(&lock.state, lock::State::Held(grant) if grant.over(&now).is_some());
        let locks = rows.locks.values().filter(is_over).map(|lock| Command::Lock(lock.name.clone(), lock::Input::Reap));
        let are_over = |slots: &&Semaphore| slots.holders.values().any(|grant| grant.over(&now).is_some());
        let slots = rows.semaphores.values().filter(are_over);
        let slots = slots.map(|slots| Command::Semaphore(slots.name.clone(), semaphore::Input::Reap));
        let seen = Seen { patience: self.patience(), ..Seen::default() };
        locks.chain(slots).map(|command| Request::Coordinate { command, seen: seen.clone() }).collect()
    }

    /// The loops whose file must be looked for before anything is decided: those that may be started or that have just ended.
    fn unchecked(&self, snapshot: &Snapshot) -> Vec<TaskId> {
        let ready = snapshot.backlog.tasks.values().filter(|task| self.may_take(task, snapshot.lease));
        let ended = self.owned.values().filter(|owned| matches!(owned.phase, Phase::Ended(_))).map(|owned| &owned.work.task);
        let loops = ready.chain(ended).filter(|task| task.spec.restart.is_some());
        let unchecked: BTreeSet<&TaskId> = loops.map(|task| &task.id).filter(|id| !self.markers.contains_key(*id)).collect();
        unchecked.into_iter().cloned().collect()
    }

    /// Has files looked for, if that must come before the decision. Else the rows come back.
    pub(super) fn check_first(&mut self, snapshot: Snapshot) -> Option<Snapshot> {
        let unchecked = self.unchecked(&snapshot);
        if unchecked.is_empty() {
            return Some(snapshot);
        }
        self.queue.push_back(Advice::Check(unchecked));
        self.look = Look::Checking(Box::new(snapshot));
        None
    }

    /// Takes in what a look for files found.
    pub fn checked(&mut self, found: impl IntoIterator<Item = (TaskId, Marker)>) {
        self.markers.extend(found);
        match std::mem::replace(&mut self.look, Look::Due) {
            Look::Checking(snapshot) => self.evaluate(*snapshot),
            Look::Scanned(snapshot) => {
                let found = self.found(&snapshot);
                self.markers.clear();
                if !found.is_empty() {
                    let advice = self.call(found);
                    self.queue.push_back(advice);
                }
            }
            other => self.look = other,
        }
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

    /// What time has brought about: rests that are over without a run that begins, people who have lost their lock, and
    /// tasks that are over with their children.
    pub(super) fn ripe(&self, snapshot: &Snapshot, candidates: &[Candidate]) -> Vec<RunRequest> {
        let is_taken = |id: &TaskId| candidates.iter().any(|candidate| candidate.task == *id);
        let is_due = |until: &Option<Lease>| until.is_some_and(|until| until <= snapshot.lease);
        let mut requests = Vec::new();
        let (mut rested, mut left) = (Vec::new(), Vec::new());
        for task in snapshot.backlog.tasks.values() {
            match &task.state {
                State::Backoff { until } if *until <= snapshot.lease && !is_taken(&task.id) => rested.push(task.id.clone()),
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
                | State::Review
                | State::Done(_) => {}
            }
        }
        if !rested.is_empty() || !left.is_empty() {
            requests.push(RunRequest::Ripen { rested, left, seen: self.seen() });
        }
        requests
    }

    /// The next moment at which time alone changes something of these tasks.
    pub(super) fn next_due(&self, snapshot: &Snapshot) -> Option<Lease> {
        let due = |task: &Task| match &task.state {
            State::Backoff { until } => Some(*until),
            State::Awaiting { until, .. } | State::Manual { until, .. } => *until,
            _ => None,
        };
        snapshot.backlog.tasks.values().filter_map(due).filter(|due| *due > snapshot.lease).min()
    }

    /// Whether something will go on by itself though no run lives.
    pub(super) fn is_waiting(snapshot: &Snapshot) -> bool {
        let waits = |task: &Task| matches!(task.state, task::State::Backoff { .. } | task::State::Awaiting { .. });
        snapshot.backlog.tasks.values().any(waits)
    }
}
