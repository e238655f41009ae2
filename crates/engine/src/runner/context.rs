//! The identity of the runner, and its knowledge of other processes.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::backlog::{Backlog, Run, Runner};
use banksman_core::{Lease, Liveness, Now, ProcessId, RunId, RunnerId, Span};
use banksman_store::Snapshot;

use super::{CLAIM_LIMIT, Options, mail};
use crate::facts;
use crate::request::Seen;
use crate::wakeups::predecessor;

/// How many times longer a runner without duty sleeps.
const OTHERS_POLL: i64 = 6;

#[derive(Debug)]
pub(super) struct Context {
    pub(super) me: Runner,
    pub(super) options: Options,
    /// The only run that this runner serves.
    pub(super) only: Option<RunId>,
    /// Whether the runner has duty, as far as it knows.
    pub(super) has_duty: bool,
    /// Whether this pass began because the longest sleep was over.
    pub(super) is_slow_pass: bool,
    probes: BTreeMap<ProcessId, Liveness>,
    /// How long this runner was stalled, and until when it gives others as much more time.
    stall: Option<(Span, Lease)>,
}

impl Context {
    pub(super) fn new(me: Runner, options: Options) -> Context {
        Context { me, options, only: None, has_duty: false, is_slow_pass: false, probes: BTreeMap::new(), stall: None }
    }

    pub(super) fn id(&self) -> RunnerId {
        self.me.id.clone()
    }

    /// Whether the runner serves workers and routes. A runner of some sections only does not.
    pub(super) fn serves(&self) -> bool {
        self.only.is_none() && self.options.sections.is_empty()
    }

    /// Whether the runner serves a run.
    pub(super) fn concerns(&self, run: &RunId) -> bool {
        self.only.as_ref().is_none_or(|only| only == run)
    }

    /// The machine whose merge queue entries the runner serves. With a single machine, the name is empty.
    pub(super) fn landing_host(&self) -> &str {
        if self.options.lease.is_some() { &self.me.process.host } else { "" }
    }

    /// How many more runs the runner may have if `living` runs are live.
    pub(super) fn room(&self, living: usize) -> usize {
        let own = self.options.max_runs.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
        own.saturating_sub(living).min(CLAIM_LIMIT)
    }

    /// The longest sleep. Only one runner has to poll for lost wake-ups; the others check that runner, each at its own time.
    pub(super) fn poll(&self) -> Span {
        let poll = self.options.poll;
        if self.wakes_for_deadlines() {
            return poll;
        }
        let jitter = self.me.id.as_str().bytes().fold(0_i64, |sum, byte| (sum * 31 + i64::from(byte)) % 1_000);
        Span::from_ms(poll.as_ms().saturating_mul(OTHERS_POLL).saturating_add(poll.as_ms().saturating_mul(jitter) / 1_000))
    }

    /// Whether the runner wakes up for deadlines of rows. One runner does; the others notice them in their slow passes.
    pub(super) fn wakes_for_deadlines(&self) -> bool {
        self.has_duty || self.only.is_some()
    }

    /// Whether the runner handles the duty in this pass. A slow pass does, because the runner on duty may be stopped.
    pub(super) fn does_duty(&self) -> bool {
        self.has_duty || self.is_slow_pass
    }

    /// Records the results of probes.
    pub(super) fn learn(&mut self, found: impl IntoIterator<Item = (ProcessId, Liveness)>) {
        self.probes.extend(found);
    }

    /// Forgets the living processes: not all of them are watched, so they must be probed again.
    pub(super) fn forget_living(&mut self) {
        self.probes.retain(|_, liveness| is_gone(*liveness));
    }

    pub(super) fn is_dead(&self, process: &ProcessId) -> bool {
        self.probes.get(process).is_some_and(|liveness| is_gone(*liveness))
    }

    pub(super) fn is_alive(&self, process: &ProcessId) -> bool {
        self.probes.get(process) == Some(&Liveness::Alive)
    }

    /// The other processes that these rows name: runners, holders and waiters.
    pub(super) fn others<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a ProcessId> {
        let runners = snapshot.backlog.runners.values().filter(|runner| runner.id != self.me.id).map(|runner| &runner.process);
        let known = facts::processes(&snapshot.coordination).chain(mail::dispatchers(snapshot));
        runners.chain(known).filter(|process| **process != self.me.process)
    }

    /// The processes to watch: the holders and waiters that these rows name, and one other runner.
    pub(super) fn watched<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a ProcessId> {
        let backlog = &snapshot.backlog;
        let all = self.only.iter().flat_map(|_| backlog.runners.values().filter(|runner| runner.id != self.me.id));
        let one = self.only.is_none().then(|| predecessor(&self.me.id, backlog)).flatten();
        let runners = all.chain(one).map(|runner| &runner.process);
        let known = facts::processes(&snapshot.coordination).chain(mail::dispatchers(snapshot));
        runners.chain(known).filter(|process| **process != self.me.process)
    }

    /// The other processes that were not probed.
    pub(super) fn unprobed(&self, snapshot: &Snapshot) -> Vec<ProcessId> {
        let unknown: BTreeSet<&ProcessId> = self.others(snapshot).filter(|process| !self.probes.contains_key(*process)).collect();
        unknown.into_iter().cloned().collect()
    }

    /// Whether the runner of a run is gone.
    pub(super) fn is_orphan(&self, run: &Run, backlog: &Backlog) -> bool {
        let is_gone = backlog.runners.get(&run.owner).is_none_or(|runner| self.is_dead(&runner.process));
        run.owner != self.me.id && is_gone
    }

    pub(super) fn now(&self, snapshot: &Snapshot) -> Now {
        let dead = self.dead().map(|(process, _)| process.clone()).collect();
        Now { lease: snapshot.lease, wall: snapshot.wall, dead, patience: self.patience(), ..Now::default() }
    }

    pub(super) fn seen(&self) -> Seen {
        let probes = self.dead().map(|(process, liveness)| (process.clone(), *liveness)).collect();
        Seen { probes, patience: self.patience() }
    }

    fn dead(&self) -> impl Iterator<Item = (&ProcessId, &Liveness)> {
        self.probes.iter().filter(|(_, liveness)| is_gone(**liveness))
    }

    /// How much longer than usual the runner waits for others.
    pub(super) fn patience(&self) -> Span {
        self.stall.map_or(Span::ZERO, |(late, _)| late)
    }

    /// Records that this process was stalled. Within another lease, all live runners renew theirs.
    pub(super) fn stalled(&mut self, late: Span, now: Lease) {
        if let Some(ttl) = self.options.lease {
            self.stall = Some((late.min(ttl), now + ttl));
        }
    }

    pub(super) fn end_stall(&mut self, now: Lease) {
        self.stall = self.stall.filter(|(_, until)| now < *until);
    }
}

fn is_gone(liveness: Liveness) -> bool {
    matches!(liveness, Liveness::Dead | Liveness::OtherBoot)
}
