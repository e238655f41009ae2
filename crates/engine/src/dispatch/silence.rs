//! Live runs are watched: for signs of life, for how long they take, and for the record. Each is looked at once per deadline.

use banksman_core::task::{self, Pulse};
use banksman_core::{Lease, RunId, Span, Status, Task};

use super::{Advice, Dispatcher, OwnedRun, Phase, RunnerEvent};
use crate::request::Request;
use crate::runs::Work;
use crate::tasks::TaskRequest;

/// What a keeper tells of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vitals {
    /// How long nothing was seen of it.
    pub quiet: Span,
    /// How much output it has made, in bytes.
    pub output_bytes: u64,
    /// Whether it works, if it is silent.
    pub activity: Activity,
}

/// What a keeper tells of a session that is silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// It works.
    Busy,
    /// It does nothing.
    Idle,
    /// That takes another look, after a while.
    Unclear,
}

/// How soon a session is looked at again of which it is not clear whether it works: it can only be seen what it does between two looks.
fn soon(limit: Span) -> Span {
    Span::from_ms((limit.as_ms() / 10).clamp(20, 10_000))
}

impl Dispatcher {
    /// When the next run must be looked at.
    pub(super) fn watch_due(&self) -> Option<Lease> {
        let live = self.owned.values().filter(|owned| owned.phase == Phase::Live);
        let due = |owned: &OwnedRun| {
            let max = self.max_duration(owned).filter(|_| !owned.stopping);
            let overtime = max.map(|max| owned.work.run.started.lease + max);
            let looks = [Some(owned.seen + self.silence(owned)), self.checkpoint_due(owned)].into_iter().flatten();
            looks.filter(|_| !owned.is_asked).chain(overtime).min()
        };
        live.filter_map(due).min()
    }

    /// How long a run may take.
    fn max_duration(&self, owned: &OwnedRun) -> Option<Span> {
        owned.work.task.spec.timeout.or(self.options.max_duration)
    }

    /// How long it may be silent.
    fn silence(&self, owned: &OwnedRun) -> Span {
        self.options.watch.of(owned.work.task.spec.silence).timeout
    }

    fn checkpoint_due(&self, owned: &OwnedRun) -> Option<Lease> {
        let interval = self.options.checkpoint_interval?;
        Some(owned.checkpoint_at.unwrap_or(owned.work.run.started.lease + interval))
    }

    /// Looks at a run that is due, or ends one that takes too long.
    pub(super) fn watch_runs(&mut self, now: Lease) -> Option<Advice> {
        let may_be_late = self.owned.values().filter(|owned| owned.phase == Phase::Live && !owned.stopping);
        let late = may_be_late.filter_map(|owned| {
            let max = self.max_duration(owned)?;
            (owned.work.run.started.lease + max <= now).then(|| overtime(owned, max))
        });
        let late: Vec<Request> = late.collect();
        if !late.is_empty() {
            self.requests = late;
            return Some(Advice::Call);
        }
        let is_due = |owned: &OwnedRun| {
            !owned.is_asked
                && (owned.seen + self.silence(owned) <= now || self.checkpoint_due(owned).is_some_and(|due| due <= now))
        };
        let run = self.owned.iter().find(|(_, owned)| owned.phase == Phase::Live && is_due(owned)).map(|(run, _)| run.clone())?;
        let silence = self.owned.get(&run).map(|owned| self.silence(owned))?;
        let owned = self.owned.get_mut(&run)?;
        if owned.seen + silence <= now {
            owned.seen = now;
        }
        owned.is_asked = true;
        Some(Advice::Pulse(run, silence))
    }

    /// A run was looked at.
    pub fn pulse(&mut self, run: &RunId, vitals: Vitals, now: Lease) {
        let checkpoint = self.owned.get(run).and_then(|owned| self.checkpoint_due(owned)).filter(|due| *due <= now);
        let Some(owned) = self.owned.get_mut(run) else { return };
        let watch = self.options.watch.of(owned.work.task.spec.silence);
        owned.is_asked = false;
        let Vitals { quiet, output_bytes, activity } = vitals;
        let (id, epoch) = (owned.work.task.id.clone(), owned.work.run.epoch);
        let is_quiet = quiet >= watch.timeout;
        if !is_quiet {
            owned.seen = Lease(now.0 - quiet.as_ms());
        }
        // A run that follows others which were lost or stuck is well when it is still heard of after so long.
        let is_steady = owned.work.task.recoveries > 0 && owned.seen >= owned.work.run.started.lease + watch.timeout;
        let pulse = match activity {
            _ if !is_quiet && is_steady => Some(Pulse::Steady),
            _ if !is_quiet => owned.stuck.then_some(Pulse::Active),
            Activity::Unclear if watch.believes(quiet) => {
                owned.seen = Lease(now.0 - watch.timeout.as_ms()) + soon(watch.timeout);
                None
            }
            Activity::Busy if watch.believes(quiet) => owned.stuck.then_some(Pulse::Busy(quiet)),
            // The store may know of something newer.
            Activity::Unclear | Activity::Busy | Activity::Idle => Some(Pulse::Idle(quiet)),
        };
        let heartbeat = pulse.map(|pulse| TaskRequest::Heartbeat { id: id.clone(), epoch, pulse, watch });
        let mut requests: Vec<Request> = heartbeat.map(Request::Task).into_iter().collect();
        if let (Some(due), Some(interval)) = (checkpoint, self.options.checkpoint_interval) {
            // On the beat, also if this one came late.
            let missed = (now - due).as_ms() / interval.as_ms().max(1);
            owned.checkpoint_at = Some(due + Span::from_ms(interval.as_ms().saturating_mul(missed + 1)));
            requests.push(Request::Task(TaskRequest::Checkpoint { id, epoch, output_bytes, quiet }));
        }
        if !requests.is_empty() {
            self.requests = requests;
            self.queue.push_back(Advice::Call);
        }
    }

    /// A run could not be looked at. It is tried again after the same time.
    pub fn no_pulse(&mut self, run: &RunId, now: Lease) {
        let Some(owned) = self.owned.get_mut(run) else { return };
        owned.is_asked = false;
        if let Some(interval) = self.options.checkpoint_interval {
            owned.checkpoint_at = Some(now + interval);
        }
    }

    /// Takes in what a look at a run meant for its task.
    pub(super) fn note_pulse(&mut self, outcome: task::Outcome, task: &Task) {
        let Some(owned) = task.live().and_then(|live| self.owned.get_mut(&live.run)) else { return };
        owned.stuck = task.status() == Status::Stuck;
        owned.work.task.recoveries = task.recoveries;
        owned.stopping = matches!(task.state, task::State::Stopping { .. });
        owned.seen = owned.seen.max(task.live().map_or(owned.seen, |live| live.seen.lease));
        // The next rung is due one timeout after the store has seen it stuck, which was a moment after this look began: a look
        // that comes as much too early would make the run wait for twice as long.
        if let task::State::Stuck { detected, .. } = &task.state {
            owned.seen = owned.seen.max(detected.lease);
        }
        if matches!(outcome, task::Outcome::Stuck | task::Outcome::Recovered | task::Outcome::Stopping) {
            let work = Box::new(Work { task: task.clone(), ..owned.work.clone() });
            self.news.push(match outcome {
                task::Outcome::Recovered => RunnerEvent::Recovered(work),
                task::Outcome::Stopping => RunnerEvent::Stopping(work),
                _ => RunnerEvent::Stuck(work),
            });
        }
    }
}

fn overtime(owned: &OwnedRun, max: Span) -> Request {
    let (id, run) = (owned.work.task.id.clone(), owned.work.run.id.clone());
    Request::Task(TaskRequest::Overtime { id, run, max })
}
