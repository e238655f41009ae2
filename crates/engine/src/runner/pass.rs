//! One pass over the backlog: the rows that it reads, the decision, and the events to wait for.
//!
//! A pass reads twice: first the tasks that may start and the rows that are due, then the locks, queues and pipelines that they depend
//! on. Processes are probed and files are checked in between. The result is one batch of requests.

use std::collections::BTreeSet;

use banksman_core::agent::limit::AccountLimit;
use banksman_core::backlog::{BacklogTotals, Run};
use banksman_core::task::admission::Reason;
use banksman_core::task::{State, roots};
use banksman_core::{Lease, ProcessId, RunId, Seq, Span, Task, WorkClaim};
use banksman_store::{Key, Snapshot};

use super::loops::{self, Loops};
use super::protocol::{Action, RunnerEvent};
use super::selection::{self, Selection};
use super::{Dispatcher, guard_checks, mail, routing};
use crate::calls::runs::RunRequest;
use crate::calls::runs::end::open_question;
use crate::facts;
use crate::request::Request;

/// The state of a pass.
#[derive(Debug)]
pub(super) enum Pass {
    /// Everything is decided.
    Done(Rest),
    /// The rows may have changed.
    Due,
    /// Waits for the rows of the first read.
    First,
    /// Waits for the rows of the second read.
    Second(Box<Snapshot>),
    /// Waits for probes of processes that may be dead.
    Probing(Box<Snapshot>),
    /// Waits for a check of the files of loops.
    Checking(Box<Snapshot>),
    /// Waits for the rows of waiting loops behind this position.
    Scan(Seq),
    /// Waits for a check of the files of these loops.
    Scanned(Box<Snapshot>),
    /// Nothing is left to do; waits for the number of tasks.
    Count(Rest),
}

/// The processes and the time to wait for when there is nothing to do.
#[derive(Debug, Default, Clone)]
pub(super) struct Rest {
    pub(super) watch: Vec<ProcessId>,
    /// When to begin the next pass at the latest.
    pub(super) until: Lease,
    pub(super) idle: bool,
}

impl Dispatcher {
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
        keys.extend(self.selection.first_keys());
        if self.context.options.until_idle {
            let sections = &self.context.options.sections;
            keys.insert(Key::Ready { of_each: 1, sections: sections.clone() });
            keys.insert(Key::ReadyRoots { of_each: 1, sections: sections.clone() });
        }
        // A runner that ends when nothing is left also has to know what the pipelines wait for that are not due.
        let until = if self.context.options.until_idle { Lease(i64::MAX) } else { now };
        keys.extend([Key::Due, Key::DuePipelines { now: until, limit: guard_checks::PIPELINES }]);
        keys.extend(self.guard_checks.first_keys());
        keys.extend([Key::OpenLandings, Key::FanOut]);
        keys.extend(self.context.does_duty().then(mail::first_keys).into_iter().flatten());
        if self.context.serves() {
            keys.insert(Key::Automation);
        }
        keys
    }

    pub(super) fn loaded(&mut self, snapshot: Snapshot) {
        match std::mem::replace(&mut self.pass, Pass::Due) {
            Pass::First => {
                self.sessions.note_paused(&snapshot, &self.context);
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
                if snapshot.backlog.totals.has_run_since() {
                    let BacklogTotals { counts, dead, .. } = snapshot.tables.backlog.totals;
                    // A runner that was about to leave stays until people are notified, and waits for tasks meanwhile.
                    if self.context.options.until_idle && self.sessions.is_empty() {
                        self.selection.freed();
                    }
                    self.call(vec![RunRequest::Rest { runner: self.context.id(), counts, dead }.into()]);
                }
            }
            Pass::Done(_) | Pass::Due | Pass::Probing(_) | Pass::Checking(_) | Pass::Scanned(_) => {}
        }
    }

    fn second_keys(&self, snapshot: &Snapshot) -> BTreeSet<Key> {
        let mut keys = self.selection.keys(snapshot);
        keys.extend(Loops::keys(snapshot));
        keys.extend(self.routing.keys(snapshot));
        if self.context.only.is_none() {
            keys.extend(self.guard_checks.keys(snapshot));
        }
        keys
    }

    /// Continues the pass after processes were probed.
    pub(super) fn probed(&mut self) {
        match std::mem::replace(&mut self.pass, Pass::Due) {
            Pass::Probing(snapshot) => self.evaluate(*snapshot),
            other => self.pass = other,
        }
    }

    /// Continues the pass after files were checked.
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

    /// Decides from all rows that were read.
    fn evaluate(&mut self, snapshot: Snapshot) {
        let unknown = self.context.unprobed(&snapshot);
        if !unknown.is_empty() {
            self.out.act(Action::Probe(unknown));
            self.pass = Pass::Probing(Box::new(snapshot));
            return;
        }
        let unchecked = self.loops.unchecked(self.sessions.ended_tasks());
        if !unchecked.is_empty() {
            self.out.act(Action::Check(unchecked));
            self.pass = Pass::Checking(Box::new(snapshot));
            return;
        }
        self.context.end_stall(snapshot.lease);
        self.selection.turn_page(&snapshot);
        self.report_pause(&snapshot);
        let (requests, blocked) = self.decide(&snapshot);
        let served = self.routing.requests(&snapshot, &self.context);
        self.routing.listens |= self.context.has_duty && snapshot.listening.since.is_some();
        let requests: Vec<Request> = requests.into_iter().chain(served).collect();
        if !requests.is_empty() {
            // After starts, ends and claims the rows need not be read again, unless the replies say so.
            let is_plain = |request: &Request| {
                matches!(request, Request::Run(RunRequest::Started { .. } | RunRequest::Finish { .. } | RunRequest::Claim(_)))
            };
            if requests.iter().all(is_plain) && !self.guard_checks.is_behind {
                let rest = self.rest_after(&snapshot, &blocked);
                self.finish(Rest { idle: false, ..rest });
            }
            return self.call(requests);
        }
        // A runner that ends when nothing is left must not miss a task that became ready since it claimed.
        let leaves = self.sessions.only_unproven() && self.room() > 0 && snapshot.backlog.pause.is_none();
        if leaves && self.selection.misses_ready(&snapshot) {
            return self.selection.freed();
        }
        // A runner that has not reached the end of the log continues at once: the remaining events cause no further notification.
        if !self.guard_checks.is_behind {
            let rest = self.rest_after(&snapshot, &blocked);
            if !rest.idle {
                self.selection.forget_behind();
            } else if self.selection.reads_behind(&snapshot) {
                return;
            }
            self.finish(rest);
        }
    }

    /// Reports that the project was paused or resumed.
    fn report_pause(&mut self, snapshot: &Snapshot) {
        if self.pause != snapshot.backlog.pause && self.context.only.is_none() {
            self.pause = snapshot.backlog.pause.clone();
            self.out.report(match &self.pause {
                Some(pause) => RunnerEvent::Paused(Box::new(pause.clone())),
                None => RunnerEvent::Resumed,
            });
        }
    }

    /// The requests of this pass, and the reasons that keep tasks from starting.
    fn decide(&mut self, snapshot: &Snapshot) -> (Vec<Request>, Vec<Vec<Reason>>) {
        let (context, out) = (&mut self.context, &mut self.out);
        let had_duty = context.has_duty;
        context.has_duty = snapshot.backlog.runners.get(&context.me.id).is_some_and(|row| row.has_duty);
        let context = &self.context;
        let now = context.now(snapshot);
        self.sessions.reconcile(&snapshot.backlog, context, out);
        self.outbox.begin(&snapshot.backlog, &mut self.sessions, context, snapshot.lease, out);
        if context.only.is_none() {
            self.landings.begin(&snapshot.backlog, context.landing_host(), snapshot.lease, out);
        }
        let orphans = self.selection.orphans(&snapshot.backlog, context);
        let lost = selection::lost(&snapshot.backlog, &now, context);
        let blocked = self.selection.reasons(snapshot, &now, context);
        let found = self.loops.found(snapshot);
        let mut requests = self.sessions.finishes(context, |task| self.loops.marker(task));
        let is_of_others = |run: &Run| run.is_live() && run.owner != context.me.id;
        self.has_ended_last &= !snapshot.backlog.runs.values().any(is_of_others);
        requests.extend(self.selection.dead_claims(&snapshot.coordination, &now, context));
        requests.extend(found.into_iter().map(Request::from));
        if context.only.is_none() {
            let (due, over) = (loops::due_requests(snapshot, context), self.selection.reaps(snapshot, &now, context));
            if !due.is_empty() || !over.is_empty() {
                self.selection.freed();
            }
            requests.extend(due.into_iter().map(Request::from).chain(over));
            let living = self.sessions.living();
            let room = self.shortage.room(context.room(living), living);
            requests.extend(Selection::passed_on(&snapshot.backlog, room, &now, context));
            requests.extend(self.guard_checks.advance(snapshot, &now, context, out));
            requests.extend(self.loops.take_sweeps());
            requests.extend(self.landings.try_now(&snapshot.backlog, context.landing_host()).into_iter().map(Request::from));
            requests.extend(mail::requests(snapshot, context));
            if let Some(task) = snapshot.fan_out.clone().filter(|_| context.does_duty()) {
                requests.push(RunRequest::FanOut { task }.into());
                self.selection.freed();
            }
        }
        self.loops.forget_markers();
        let (runner, seen) = (context.id(), context.seen());
        for work in &orphans {
            let what = Box::new(work.clone());
            requests.push(RunRequest::Adopt { runner: runner.clone(), what, seen: seen.clone() }.into());
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
        let is_written_anyway = !requests.is_empty();
        requests.extend(self.due_requests(is_written_anyway, snapshot.lease));
        if requests.is_empty() && self.leaves_at_once(snapshot, &blocked, had_duty) {
            self.selection.nothing_left();
        }
        // Adopted runs may use the free room.
        if orphans.is_empty() {
            let room = self.room();
            requests.extend(self.selection.requests(room, &self.context));
        }
        (requests, blocked)
    }

    /// Whether the runner ends when nothing is left, and nothing is left: then it needs no claim, and need not register as idle.
    /// The duty has a runner: another one, or this one, if it had duty already when it read the rows.
    fn leaves_at_once(&self, snapshot: &Snapshot, blocked: &[Vec<Reason>], had_duty: bool) -> bool {
        let is_duty_done =
            if self.context.has_duty { had_duty } else { snapshot.backlog.runners.values().any(|row| row.has_duty) };
        is_duty_done
            && self.context.options.until_idle
            && self.context.only.is_none()
            && self.sessions.is_empty()
            && self.outbox.is_empty()
            && snapshot.ready.is_empty()
            && self.selection.has_read_behind(snapshot)
            && self.is_idle(snapshot, blocked)
    }

    /// Ends the pass. If nothing is left to do, the tasks are counted and that is reported, once: by the runner that has ended the last run,
    /// and by the runner on duty, in case the former is dead. All others report nothing.
    fn finish(&mut self, rest: Rest) {
        let reports = self.has_ended_last || self.context.does_duty();
        self.context.is_slow_pass = false;
        self.is_finish_reported &= rest.idle;
        if rest.idle && !self.is_finish_reported && reports && self.context.serves() {
            self.out.act(Action::Load([Key::FinishedMark, Key::Counts].into()));
            self.pass = Pass::Count(rest);
        } else {
            self.pass = Pass::Done(rest);
        }
    }

    /// The processes and the time to wait for after this pass.
    fn rest_after(&self, snapshot: &Snapshot, blocked: &[Vec<Reason>]) -> Rest {
        let context = &self.context;
        // A process that was seen alive, including waiters and processes with an offer, is not probed again: its death must be watched for.
        let watch: BTreeSet<&ProcessId> = context.watched(snapshot).filter(|process| context.is_alive(process)).collect();
        // A past deadline frees nothing by itself, such as that of an offer that is not taken up while a claim comes first: the waiters
        // for the resource end it.
        let ends = blocked.iter().flatten().flat_map(Reason::holders).filter_map(|holding| holding.until);
        let deadline = ends.filter(|end| *end >= snapshot.lease).min();
        let idle = match &context.only {
            Some(only) => self.is_over(only, snapshot),
            None => self.is_idle(snapshot, blocked),
        };
        let slow = snapshot.lease + context.poll();
        let ends = snapshot.backlog.runs.values().filter(|run| run.owner != context.me.id).filter_map(|run| run.lease.as_ref());
        let lost = ends.map(|lease| lease.end() + context.patience()).filter(|end| *end > snapshot.lease).min();
        let landings = self.landings.next_due(&snapshot.backlog, context.landing_host(), snapshot.lease);
        let due = [loops::next_due(snapshot), guard_checks::next_due(snapshot), routing::next_due(snapshot, context)];
        let limits = snapshot.backlog.account_limits.values().filter_map(AccountLimit::next_deadline);
        let limit = limits.filter(|until| *until > snapshot.lease).min();
        let due = due.into_iter().flatten().chain(limit).min().map(|due| Lease(due.0 - 1));
        let unanswered = selection::next_unanswered(&snapshot.backlog, context).filter(|due| *due > snapshot.lease);
        let turns = snapshot.coordination.claims.values().filter_map(WorkClaim::turn_ends).filter(|end| *end >= snapshot.lease);
        let times =
            deadline.into_iter().chain(lost).chain(due).chain(unanswered).chain(turns).filter(|_| context.wakes_for_deadlines());
        // The entries of a merge queue may be for this machine alone.
        let times = times.chain(landings.map(|due| Lease(due.0 - 1)));
        let until = times.fold(slow, |until, deadline| until.min(deadline + Span::from_ms(1)));
        Rest { watch: watch.into_iter().cloned().collect(), until, idle }
    }

    /// Whether the only run of this runner needs no more waiting: it has ended, or it is an orphan that this runner cannot adopt, or a
    /// person was asked whether it may be ended.
    fn is_over(&self, only: &RunId, snapshot: &Snapshot) -> bool {
        open_question(only, &snapshot.backlog).is_some()
            || snapshot.backlog.runs.get(only).is_none_or(|run| {
                let is_elsewhere = !run.is_within_reach_of(&self.context.me) || self.selection.is_refused(only);
                // A run with a lease ends when the lease expires, at the latest.
                is_elsewhere && run.lease.is_none() && self.context.is_orphan(run, &snapshot.backlog)
            })
    }

    /// Whether nothing can continue without a person.
    fn is_idle(&self, snapshot: &Snapshot, blocked: &[Vec<Reason>]) -> bool {
        // A task that waits only for the end of a root needs a person if the root does: a root that runs, is in backoff or waits for its
        // children keeps the runner by itself, and the first task parked on a resource shows what a phase of a root waits for.
        let under_way: Vec<&Task> = snapshot.backlog.tasks.values().filter(|task| roots::is_under_way(task)).collect();
        let has_manual = under_way.iter().any(|task| matches!(task.state, State::Manual { .. }));
        let never = |reason: &Reason| match reason {
            // Only a person defines missing slots.
            Reason::Undefined { .. } | Reason::Paused { .. } => true,
            // A pipeline that holds a resource is checked by itself: it continues, or waits for a person.
            Reason::Lock { holder, .. } => holder.holder.is_pipeline(),
            Reason::Slots { wanted, capacity, holders, .. } => {
                wanted > capacity || (!holders.is_empty() && holders.iter().all(|holding| holding.holder.is_pipeline()))
            }
            _ => false,
        };
        let is_never = |reasons: &Vec<Reason>| match &reasons[..] {
            [Reason::NoRoot { limit, .. }] => under_way.len() >= *limit as usize && !has_manual,
            reasons => reasons.iter().any(never),
        };
        let is_waiting =
            loops::is_waiting(snapshot) || guard_checks::is_waiting(snapshot) || routing::is_waiting(snapshot, &self.context);
        let is_waiting =
            is_waiting || self.landings.is_waiting(&snapshot.backlog, self.context.landing_host()) || snapshot.fan_out.is_some();
        let is_unproven = |run: &RunId| self.sessions.is_unproven(run);
        snapshot.backlog.runs.keys().all(is_unproven)
            && blocked.iter().all(is_never)
            && !is_waiting
            // During a shortage, tasks that cannot start now were not read.
            && self.shortage.is_over()
    }
}

/// Adds the rows of the second read to the rows of the first. Existing tasks are kept: children are read with the tasks that wait for them.
fn add_rows(first: &mut Snapshot, second: Snapshot) {
    let second = second.tables;
    first.coordination.locks.extend(second.coordination.locks);
    first.coordination.semaphores.extend(second.coordination.semaphores);
    first.queues = second.queues;
    first.automation.heard = second.automation.heard;
    first.backlog.pipelines.extend(second.backlog.pipelines);
    first.listening.heard = second.listening.heard;
    first.listening.awaited = second.listening.awaited;
    for (id, task) in second.backlog.tasks {
        first.backlog.tasks.entry(id).or_insert(task);
    }
}
