//! The merge queues that have something to do: a job of the driver works for each of them, and the rows tell what is left.

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
    /// The targets that a job works for.
    running: BTreeSet<Name>,
    /// When a target may be tried again.
    not_before: BTreeMap<Name, Lease>,
    /// Whether what waits for a checkout was tried since the runner began.
    has_tried: bool,
}

impl Landings {
    /// Has tried at once what waits for a checkout when the runner begins: whoever has put the checkout in order starts one.
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

    /// Begins a job for every queue that has something to do and none.
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

    /// Whether something lands without a person. What waits for a checkout waits for whoever works there, and a queue whose job has
    /// failed for somebody who repairs that.
    pub(super) fn is_waiting(&self, backlog: &Backlog, host: &str) -> bool {
        let goes_on = |entry: &Entry| match &entry.state {
            State::Queued | State::Candidate { .. } | State::Suspect { .. } | State::Passed { .. } => true,
            State::Waiting { obstacle: Obstacle::Failure { .. } } => true,
            State::Waiting { obstacle: Obstacle::Checkout { .. } } | State::Asking { .. } | State::Over(_) => false,
            // As long as a child is not over, it is the child that goes on or does not.
            State::Waiting { obstacle: Obstacle::Children { .. } } => entry.again.is_none(),
            // As long as another author resolves, it is that task which goes on or does not.
            State::Waiting { obstacle: Obstacle::Author { .. } } => {
                backlog.landing_targets.get(&entry.target).is_none_or(|target| target.author_before(entry).is_none())
            }
        };
        let moves = |entry: &Entry| {
            let is_paused = backlog.landing_targets.get(&entry.target).is_some_and(|target| target.paused.is_some());
            entry.is_for(host) && !is_paused && !self.not_before.contains_key(&entry.target) && goes_on(entry)
        };
        !self.running.is_empty() || backlog.landings.values().any(moves)
    }

    /// When an entry that waits is queued for retry, or a queue whose job has failed.
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
