//! The merge queues that have work: the driver runs one job for each of them, and the rows show what is left.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::backlog::Backlog;
use banksman_core::landing::{Entry, Input, Obstacle, State, Work};
use banksman_core::{Lease, Name, Span};

use super::protocol::{Action, Output};
use crate::calls::landings::{LandingRequest, landing_queue};

/// How long a queue is left alone after its job has failed, such as for a check that is not trusted.
const RETRY_AFTER: Span = Span::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Landings {
    /// The targets that have a running job.
    running: BTreeSet<Name>,
    /// When a target may be tried again.
    not_before: BTreeMap<Name, Lease>,
    /// Whether the entries that wait for a checkout were tried since the runner began.
    has_tried: bool,
}

impl Landings {
    /// Retries, when the runner begins, the entries that wait for a checkout: a person who has cleaned up the checkout starts a runner.
    pub(super) fn try_now(&mut self, backlog: &Backlog, host: &str) -> Vec<LandingRequest> {
        if std::mem::replace(&mut self.has_tried, true) {
            return Vec::new();
        }
        let waits = |entry: &&Entry| {
            let is_for_checkout = matches!(entry.state, State::Waiting { obstacle: Obstacle::Checkout { .. } });
            is_for_checkout && entry.again.is_some() && entry.is_for(host)
        };
        let request = |entry: &Entry| LandingRequest::new(entry.target.clone(), Input::TryNow(entry.id.clone()));
        backlog.landings.values().filter(waits).map(request).collect()
    }

    /// Begins a job for every queue that has work and no job.
    pub(super) fn begin(&mut self, backlog: &Backlog, host: &str, now: Lease, out: &mut Output) {
        self.not_before.retain(|_, until| *until > now);
        for target in targets(backlog) {
            if !self.running.contains(target) && !self.not_before.contains_key(target) && has_work(target, backlog, host, now) {
                self.running.insert(target.clone());
                out.act(Action::Land(target.clone()));
            }
        }
    }

    pub(super) fn ended(&mut self, target: &Name, has_failed: bool, now: Lease) {
        self.running.remove(target);
        if has_failed {
            self.not_before.insert(target.clone(), now + RETRY_AFTER);
        }
    }

    /// Whether an entry lands without a person. An entry that waits for a checkout needs the person who works there, and a queue whose
    /// job has failed needs a person to repair it.
    pub(super) fn is_waiting(&self, backlog: &Backlog, host: &str) -> bool {
        let may_continue = |entry: &Entry| match &entry.state {
            State::Queued | State::Candidate { .. } | State::Suspect { .. } | State::Passed { .. } => true,
            State::Waiting { obstacle: Obstacle::Failure { .. } } => true,
            State::Waiting { obstacle: Obstacle::Checkout { .. } } | State::Asking { .. } | State::Over(_) => false,
            // As long as a child is not over, only the child counts.
            State::Waiting { obstacle: Obstacle::Children { .. } } => entry.again.is_none(),
            // As long as another author resolves, only the author's task counts.
            State::Waiting { obstacle: Obstacle::Author { .. } } => {
                backlog.landing_targets.get(&entry.target).is_none_or(|target| target.author_before(entry).is_none())
            }
        };
        let moves = |entry: &Entry| {
            let is_paused = backlog.landing_targets.get(&entry.target).is_some_and(|target| target.paused.is_some());
            entry.is_for(host) && !is_paused && !self.not_before.contains_key(&entry.target) && may_continue(entry)
        };
        !self.running.is_empty() || backlog.landings.values().any(moves)
    }

    /// When the next waiting entry, or queue whose job has failed, is retried.
    pub(super) fn next_due(&self, backlog: &Backlog, host: &str, now: Lease) -> Option<Lease> {
        let waiting = targets(backlog).into_iter().filter(|target| !self.running.contains(*target));
        let waiting = waiting.filter_map(|target| landing_queue(target, backlog).next_deadline(host));
        waiting.chain(self.not_before.values().copied()).filter(|due| *due > now).min()
    }
}

fn targets(backlog: &Backlog) -> BTreeSet<&Name> {
    backlog.landings.values().filter(|entry| entry.is_open()).map(|entry| &entry.target).collect()
}

fn has_work(target: &Name, backlog: &Backlog, host: &str, now: Lease) -> bool {
    match landing_queue(target, backlog).next(host, now) {
        Work::Collect(_) | Work::Build(_) | Work::Check { .. } | Work::CheckTip { .. } | Work::Move { .. } => true,
        Work::Sleep(_) | Work::Nothing => false,
    }
}
