//! One pass over the backlog: which rows it reads, what it decides from them, what to wait for.
//!
//! A pass reads twice: first what may be started and what is due, then the locks, queues and pipelines that those depend on.
//! Processes and files that decide are looked at in between. All that comes of it is one batch of requests.

use std::collections::BTreeSet;

use banksman_core::backlog::Finish;
use banksman_core::task::admission::Reason;
use banksman_core::{Lease, ProcessId, RunId, Seq, Span, TaskId};
use banksman_store::{Key, Snapshot};

use super::loops::{self, Loops};
use super::protocol::Action;
use super::selection::{self, Choice};
use super::{Dispatcher, guard_checks, routing};
use crate::endings::open_question;
use crate::facts;
use crate::request::Request;
use crate::runs::RunRequest;

/// How far a pass has come.
#[derive(Debug)]
pub(super) enum Pass {
    /// Everything was decided.
    Done(Rest),
    /// Something may have changed.
    Due,
    /// The rows of the first read are awaited.
    First,
    /// The rows that they depend on are awaited.
    Second(Box<Snapshot>),
    /// Processes that may be dead are looked at.
    Probing(Box<Snapshot>),
    /// Files of loops are looked for.
    Checking(Box<Snapshot>),
    /// Loops that wait are read, from this position on.
    Scan(Seq),
    /// Their files are looked for.
    Scanned(Box<Snapshot>),
    /// There is nothing left to do; the tasks are counted.
    Count(Rest),
}

/// What to wait for when there is nothing to do.
#[derive(Debug, Default, Clone)]
pub(super) struct Rest {
    pub(super) watch: Vec<ProcessId>,
    /// When to begin the next pass, whatever happens.
    pub(super) until: Lease,
    pub(super) idle: bool,
}

impl Dispatcher {
    /// Begins a pass.
    pub(super) fn begin_pass(&mut self, now: Lease) -> Action {
        if self.context.only.is_none()
            && let Some((after, keys)) = self.loops.begin_scan(now)
        {
            self.pass = Pass::Scan(after);
            return Action::Load(keys);
        }
        self.pass = Pass::First;
        Action::Load(self.first_keys(now))
    }

    fn first_keys(&self, now: Lease) -> BTreeSet<Key> {
        let mut keys = BTreeSet::from(facts::common_keys());
        keys.insert(Key::Outbox);
        if self.context.only.is_some() {
            keys.insert(Key::OpenDecisions);
            return keys;
        }
        keys.extend(self.selection.first_keys(self.room()));
        // A runner that ends when nothing is left has to know what those wait for that are not due.
        let until = if self.context.options.until_idle { Lease(i64::MAX) } else { now };
        keys.extend([Key::Due, Key::DuePipelines { now: until, limit: guard_checks::PIPELINES }]);
        keys.extend(self.guard_checks.first_keys());
        if self.context.serves() {
            keys.insert(Key::Crew);
        }
        keys
    }

    /// Takes in rows.
    pub(super) fn loaded(&mut self, snapshot: Snapshot) {
        match std::mem::replace(&mut self.pass, Pass::Due) {
            // Which ready tasks were read, and how many, depends on these, so they are read again.
            Pass::First if self.sessions.note_paused(&snapshot, &self.context) | self.selection.note_limits(&snapshot) => {}
            Pass::First => {
                let keys = self.second_keys(&snapshot);
                if keys.is_empty() {
                    return self.evaluate(snapshot);
                }
                self.out.act(Action::Load(keys));
                self.pass = Pass::Second(Box::new(snapshot));
            }
            Pass::Second(mut first) => {
                add_rows(&mut first, snapshot);
                self.evaluate(*first);
            }
            Pass::Scan(after) => {
                let waiting = self.loops.scanned(after, &snapshot, &self.context);
                if !waiting.is_empty() {
                    self.out.act(Action::Check(waiting));
                    self.pass = Pass::Scanned(Box::new(snapshot));
                }
            }
            Pass::Count(rest) => {
                self.is_finish_reported = true;
                self.pass = Pass::Done(rest);
                if snapshot.backlog.finish.is_news() {
                    let Finish { counts, dead, .. } = snapshot.backlog.finish;
                    self.call(vec![RunRequest::Rest { runner: self.context.id(), counts, dead }.into()]);
                }
            }
            Pass::Done(_) | Pass::Due | Pass::Probing(_) | Pass::Checking(_) | Pass::Scanned(_) => {}
        }
    }

    fn second_keys(&self, snapshot: &Snapshot) -> BTreeSet<Key> {
        let mut keys = self.selection.keys(snapshot, &self.context);
        keys.extend(Loops::keys(snapshot));
        keys.extend(self.routing.keys(snapshot));
        if self.context.only.is_none() {
            keys.extend(self.guard_checks.keys(snapshot));
        }
        keys
    }

    /// Goes on after processes were looked at.
    pub(super) fn probed(&mut self) {
        match std::mem::replace(&mut self.pass, Pass::Due) {
            Pass::Probing(snapshot) => self.evaluate(*snapshot),
            other => self.pass = other,
        }
    }

    /// Goes on after files were looked for.
    pub(super) fn checked(&mut self) {
        match std::mem::replace(&mut self.pass, Pass::Due) {
            Pass::Checking(snapshot) => self.evaluate(*snapshot),
            Pass::Scanned(snapshot) => {
                let found = self.loops.found(&snapshot);
                self.loops.forget_markers();
                self.call(found.into_iter().map(Into::into).collect());
            }
            other => self.pass = other,
        }
    }

    /// Decides over all that was read.
    fn evaluate(&mut self, mut snapshot: Snapshot) {
        let unknown = self.context.unprobed(&snapshot);
        if !unknown.is_empty() {
            self.out.act(Action::Probe(unknown));
            self.pass = Pass::Probing(Box::new(snapshot));
            return;
        }
        let deciding = self.selection.ready(&snapshot, &self.context).chain(self.sessions.ended_tasks());
        let unchecked = self.loops.unchecked(deciding);
        if !unchecked.is_empty() {
            self.out.act(Action::Check(unchecked));
            self.pass = Pass::Checking(Box::new(snapshot));
            return;
        }
        self.context.end_stall(snapshot.lease);
        let Some((requests, blocked)) = self.decide(&mut snapshot) else { return };
        let served = self.routing.requests(&snapshot, &self.context);
        self.routing.listens |= snapshot.listening.since.is_some();
        let requests: Vec<Request> = requests.into_iter().chain(served).collect();
        if !requests.is_empty() {
            return self.call(requests);
        }
        // Nobody tells of the rest of the log a second time.
        if !self.guard_checks.is_behind {
            let rest = self.what_to_wait_for(&snapshot, &blocked);
            self.finish(rest);
        }
    }

    /// What is to be done, and what keeps other tasks from starting; nothing if more must be read first.
    fn decide(&mut self, snapshot: &mut Snapshot) -> Option<(Vec<Request>, Vec<Vec<Reason>>)> {
        let (context, out) = (&self.context, &mut self.out);
        let now = context.now(snapshot);
        self.sessions.reconcile(&snapshot.backlog, context, out);
        self.outbox.begin(&snapshot.backlog, &mut self.sessions, context, snapshot.lease, out);
        let orphans = self.selection.orphans(&snapshot.backlog, context);
        let lost = selection::lost(&snapshot.backlog, &now, context);
        self.sessions.assume_ended(snapshot);
        let room = self.shortage.room(context.room(self.sessions.living()), self.sessions.living());
        let ended_roots = self.sessions.ended_tasks().filter(|task| task.spec.parent.is_none()).count();
        let choice = self.selection.choose(snapshot, &now, room, ended_roots, context);
        let Choice { mut candidates, mut beginnings, mut blocked } = choice;
        if self.selection.note_locked(&blocked) {
            return None;
        }
        blocked.extend(self.selection.still_blocked(snapshot));
        if room > 0 {
            // Without room nothing was looked for.
            let waits_for_slot = |reasons: &&Vec<Reason>| matches!(&reasons[..], [Reason::NoSlot { .. }]);
            self.selection.report_queued(blocked.iter().filter(waits_for_slot).count(), out);
        }
        if !orphans.is_empty() {
            // They may fill the room that there is, and nobody takes the place of a root before those who wait for room.
            candidates.clear();
            beginnings.clear();
        }
        if candidates.is_empty() && orphans.is_empty() {
            self.shortage.nothing_to_start(context, out);
        }
        let found = self.loops.found(snapshot);
        let is_found = |id: &TaskId| found.iter().any(|request| matches!(request, RunRequest::Found { task, .. } if task == id));
        candidates.retain(|candidate| !is_found(&candidate.task));
        let ripe = if context.only.is_none() { loops::ripe(snapshot, &candidates, context) } else { Vec::new() };
        let mut requests = self.sessions.finishes(context, |task| self.loops.marker(task));
        requests.extend(self.selection.dead_claims(&snapshot.coordination, &now, context));
        requests.extend(found.into_iter().chain(ripe).map(Request::from));
        if context.only.is_none() {
            requests.extend(beginnings);
            requests.extend(self.guard_checks.advance(snapshot, &now, context, out));
            requests.extend(self.loops.take_sweeps());
        }
        self.loops.forget_markers();
        let (runner, seen) = (context.id(), context.seen());
        for work in orphans {
            requests.push(RunRequest::Adopt { runner: runner.clone(), what: Box::new(work), seen: seen.clone() }.into());
        }
        for work in lost {
            let (what, patience, watch) = (Box::new(work), context.patience(), context.options.watch);
            requests.push(RunRequest::Lose { runner: runner.clone(), what, patience, watch }.into());
        }
        for gone in selection::gone_runners(&snapshot.backlog, &now, context) {
            let clear = match context.options.lease {
                None => RunRequest::Retire { runner: gone, seen: seen.clone() },
                Some(_) => RunRequest::Dismiss { runner: gone, seen: seen.clone() },
            };
            requests.push(clear.into());
        }
        requests.extend(self.due_requests(snapshot.lease));
        if candidates.is_empty() {
            requests.extend(self.selection.watch(&blocked, &self.context));
        } else {
            requests.push(RunRequest::Claim { runner, room, candidates, seen }.into());
        }
        Some((requests, blocked))
    }

    /// The pass is over. If nothing is left to do, the tasks are counted, once.
    fn finish(&mut self, rest: Rest) {
        self.is_finish_reported &= rest.idle;
        if rest.idle && !self.is_finish_reported && self.context.serves() {
            self.out.act(Action::Load([Key::Finish, Key::Counts].into()));
            self.pass = Pass::Count(rest);
        } else {
            self.pass = Pass::Done(rest);
        }
    }

    fn what_to_wait_for(&self, snapshot: &Snapshot, blocked: &[Vec<Reason>]) -> Rest {
        let context = &self.context;
        // Whoever was seen alive, also in a line or with an offer, is not looked at again: its death must be heard of.
        let watch: BTreeSet<&ProcessId> = context.others(snapshot).filter(|process| context.is_alive(process)).collect();
        let deadline = blocked.iter().flatten().flat_map(Reason::holders).filter_map(|holding| holding.until).min();
        let idle = match &context.only {
            Some(only) => self.is_over(only, snapshot),
            None => self.is_idle(snapshot, blocked),
        };
        let slow = snapshot.lease + context.options.poll;
        let ends = snapshot.backlog.runs.values().filter(|run| run.owner != context.me.id).filter_map(|run| run.lease.as_ref());
        let lost = ends.map(|lease| lease.end() + context.patience()).filter(|end| *end > snapshot.lease).min();
        let due = [loops::next_due(snapshot), guard_checks::next_due(snapshot), routing::next_due(snapshot, context)];
        let due = due.into_iter().flatten().min().map(|due| Lease(due.0 - 1));
        let until =
            deadline.into_iter().chain(lost).chain(due).fold(slow, |until, deadline| until.min(deadline + Span::from_ms(1)));
        Rest { watch: watch.into_iter().cloned().collect(), until, idle }
    }

    /// Whether there is nothing to wait for in the one run that it is there for: it has ended, or nobody looks after it and
    /// that cannot be done from here, or a person was asked whether it may be ended.
    fn is_over(&self, only: &RunId, snapshot: &Snapshot) -> bool {
        open_question(only, &snapshot.backlog).is_some()
            || snapshot.backlog.runs.get(only).is_none_or(|run| {
                let is_elsewhere = !run.is_within_reach_of(&self.context.me) || self.selection.is_refused(only);
                // One with a lease ends by time, at the latest.
                is_elsewhere && run.lease.is_none() && self.context.is_orphan(run, &snapshot.backlog)
            })
    }

    /// Whether nothing goes on without a person.
    fn is_idle(&self, snapshot: &Snapshot, blocked: &[Vec<Reason>]) -> bool {
        // A task that waits for slots that do not exist waits for a person. So does one that waits for the place of pipelines
        // whose phases do: they are among the blocked.
        let phases = self.selection.ready(snapshot, &self.context).filter(|task| task.spec.phase().is_some());
        let waiting: BTreeSet<_> = phases.filter_map(|task| task.spec.parent.as_ref()).collect();
        let never = |reason: &Reason| match reason {
            Reason::Undefined { .. } => true,
            Reason::Slots { wanted, capacity, .. } => wanted > capacity,
            Reason::NoRoot { roots, .. } => roots.iter().all(|(id, ..)| waiting.contains(id)),
            _ => false,
        };
        let is_waiting =
            loops::is_waiting(snapshot) || guard_checks::is_waiting(snapshot) || routing::is_waiting(snapshot, &self.context);
        let is_unproven = |run: &RunId| self.sessions.is_unproven(run);
        snapshot.backlog.runs.keys().all(is_unproven)
            && blocked.iter().all(|reasons| reasons.iter().any(never))
            && !is_waiting
            // What it cannot start now it did not even look at.
            && self.shortage.is_over()
    }
}

/// Adds the rows of the second read to those of the first. Children come with those who wait for them.
fn add_rows(first: &mut Snapshot, second: Snapshot) {
    first.coordination.locks.extend(second.coordination.locks);
    first.coordination.semaphores.extend(second.coordination.semaphores);
    first.queues = second.queues;
    first.crew.heard = second.crew.heard;
    first.backlog.pipelines.extend(second.backlog.pipelines);
    first.listening.heard = second.listening.heard;
    first.listening.awaited = second.listening.awaited;
    for (id, task) in second.backlog.tasks {
        first.backlog.tasks.entry(id).or_insert(task);
    }
}
