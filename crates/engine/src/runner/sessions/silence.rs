//! The watch over live runs: for their activity, their duration and checkpoints. Each run is polled once per deadline.

use banksman_core::task::{self, Pulse};
use banksman_core::{Lease, RunId, Span, Status, Task};

use super::{OwnedRun, Phase, Sessions};
use crate::calls::runs::Work;
use crate::calls::tasks::TaskRequest;
use crate::request::Request;
use crate::runner::context::Context;
use crate::runner::protocol::{Action, Output, RunnerEvent};

/// The report of a keeper about its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vitals {
    /// The time without activity.
    pub quiet: Span,
    /// The total output in bytes.
    pub output_bytes: u64,
    /// Whether the session works, if it is silent.
    pub activity: Activity,
}

/// The activity of a silent session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    Busy,
    Idle,
    /// Another poll is needed, after a while.
    Unclear,
}

/// How soon a session with unclear activity is polled again: its work can only be measured between two polls.
fn soon(limit: Span) -> Span {
    Span::from_ms((limit.as_ms() / 10).clamp(20, 10_000))
}

impl Sessions {
    /// When the next run must be polled or ended.
    pub(super) fn watch_due(&self, context: &Context) -> Option<Lease> {
        let live = self.owned.values().filter(|owned| owned.phase == Phase::Live);
        let due = |owned: &OwnedRun| {
            let max = owned.max_duration(context).filter(|_| !owned.stopping);
            let overtime = max.map(|max| owned.work.run.started.lease + max);
            let polls = [Some(owned.seen + owned.silence(context)), owned.checkpoint_due(context)].into_iter().flatten();
            polls.filter(|_| !owned.is_asked).chain(overtime).min()
        };
        live.filter_map(due).min()
    }

    /// Ends the runs that take too long.
    pub(super) fn overtime(&self, context: &Context, now: Lease) -> Vec<Request> {
        let late = |owned: &OwnedRun| {
            let max = owned.max_duration(context).filter(|max| owned.work.run.started.lease + *max <= now)?;
            let (id, run) = (owned.work.task.id.clone(), owned.work.run.id.clone());
            Some(Request::Task(TaskRequest::Overtime { id, run, max }))
        };
        self.owned.values().filter(|owned| owned.phase == Phase::Live && !owned.stopping).filter_map(late).collect()
    }

    /// The next poll that is due.
    pub(in super::super) fn next_pulse(&mut self, context: &Context, now: Lease) -> Option<Action> {
        let is_due = |owned: &OwnedRun| {
            owned.phase == Phase::Live
                && !owned.is_asked
                && (owned.seen + owned.silence(context) <= now || owned.checkpoint_due(context).is_some_and(|due| due <= now))
        };
        let (run, owned) = self.owned.iter_mut().find(|(_, owned)| is_due(owned))?;
        let silence = owned.silence(context);
        if owned.seen + silence <= now {
            owned.seen = now;
        }
        owned.is_asked = true;
        Some(Action::Pulse(run.clone(), silence))
    }

    /// Takes in the result of a poll.
    pub(in super::super) fn pulse(&mut self, run: &RunId, vitals: Vitals, context: &Context, now: Lease) {
        let Some(owned) = self.owned.get_mut(run) else { return };
        let checkpoint = owned.checkpoint_due(context).filter(|due| *due <= now);
        let watch = context.options.watch.of(owned.work.task.spec.silence);
        owned.is_asked = false;
        let Vitals { quiet, output_bytes, activity } = vitals;
        let (id, epoch) = (owned.work.task.id.clone(), owned.work.run.epoch);
        let is_quiet = quiet >= watch.timeout;
        if !is_quiet {
            owned.seen = Lease(now.0 - quiet.as_ms());
        }
        // A run after lost or stuck runs is steady if it is still active after the silence timeout.
        let is_steady = owned.work.task.recoveries > 0 && owned.seen >= owned.work.run.started.lease + watch.timeout;
        let pulse = match activity {
            _ if !is_quiet && is_steady => Some(Pulse::Steady),
            _ if !is_quiet => owned.stuck.then_some(Pulse::Active),
            Activity::Unclear if watch.believes(quiet) => {
                owned.seen = Lease(now.0 - watch.timeout.as_ms()) + soon(watch.timeout);
                None
            }
            Activity::Busy if watch.believes(quiet) => owned.stuck.then_some(Pulse::Busy(quiet)),
            // The store may know of newer activity.
            Activity::Unclear | Activity::Busy | Activity::Idle => Some(Pulse::Idle(quiet)),
        };
        let heartbeat = pulse.map(|pulse| TaskRequest::Heartbeat { id: id.clone(), epoch, pulse, watch });
        self.pending.extend(heartbeat.map(Request::Task));
        if let (Some(due), Some(interval)) = (checkpoint, context.options.checkpoint_interval) {
            // The next checkpoint stays on the interval even if this one came late.
            let missed = (now - due).as_ms() / interval.as_ms().max(1);
            owned.checkpoint_at = Some(due + Span::from_ms(interval.as_ms().saturating_mul(missed + 1)));
            self.pending.push(Request::Task(TaskRequest::Checkpoint { id, epoch, output_bytes, quiet }));
        }
    }

    /// Handles a failed poll. The run is polled again after the same time.
    pub(in super::super) fn no_pulse(&mut self, run: &RunId, context: &Context, now: Lease) {
        let Some(owned) = self.owned.get_mut(run) else { return };
        owned.is_asked = false;
        if let Some(interval) = context.options.checkpoint_interval {
            owned.checkpoint_at = Some(now + interval);
        }
    }

    /// Takes in the reply to a heartbeat.
    pub(in super::super) fn on_heartbeat(&mut self, outcome: task::Outcome, task: &Task, out: &mut Output) {
        let Some(owned) = task.live().and_then(|live| self.owned.get_mut(&live.run)) else { return };
        owned.stuck = task.status() == Status::Stuck;
        owned.work.task.recoveries = task.recoveries;
        owned.stopping = matches!(task.state, task::State::Stopping { .. });
        owned.seen = owned.seen.max(task.live().map_or(owned.seen, |live| live.seen.lease));
        // The next step of the escalation is due one timeout after the store has recorded the run as stuck, which was a moment after this
        // poll began: a poll that comes that moment too early would make the run wait for twice as long.
        if let task::State::Stuck { detected, .. } = &task.state {
            owned.seen = owned.seen.max(detected.lease);
        }
        let work = || Box::new(Work { task: task.clone(), ..owned.work.clone() });
        match outcome {
            task::Outcome::Recovered => out.report(RunnerEvent::Recovered(work())),
            task::Outcome::Stopping => out.report(RunnerEvent::Stopping(work())),
            task::Outcome::Stuck => out.report(RunnerEvent::Stuck(work())),
            _ => {}
        }
    }
}

impl OwnedRun {
    fn max_duration(&self, context: &Context) -> Option<Span> {
        self.work.task.spec.timeout.or(context.options.max_duration)
    }

    /// The silence timeout.
    fn silence(&self, context: &Context) -> Span {
        context.options.watch.of(self.work.task.spec.silence).timeout
    }

    fn checkpoint_due(&self, context: &Context) -> Option<Lease> {
        let interval = context.options.checkpoint_interval?;
        Some(self.checkpoint_at.unwrap_or(self.work.run.started.lease + interval))
    }
}
