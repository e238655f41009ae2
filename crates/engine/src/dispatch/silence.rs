//! Live runs are watched: for signs of life, for how long they take, and for the record. Each is looked at once per deadline.

use banksman_core::task::{self, Pulse};
use banksman_core::{Lease, RunId, Span, Status, Task};

use super::{Advice, Dispatcher, Mine, News, Phase};
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
        let live = self.mine.values().filter(|mine| mine.phase == Phase::Live);
        let due = |mine: &Mine| {
            let max = self.max_duration(mine).filter(|_| !mine.stopping);
            let overtime = max.map(|max| mine.work.run.started.lease + max);
            let looks = [Some(mine.seen + self.silence(mine)), self.checkpoint_due(mine)].into_iter().flatten();
            looks.filter(|_| !mine.is_asked).chain(overtime).min()
        };
        live.filter_map(due).min()
    }

    /// How long a run may take.
    fn max_duration(&self, mine: &Mine) -> Option<Span> {
        mine.work.task.spec.timeout.or(self.options.max_duration)
    }

    /// How long it may be silent.
    fn silence(&self, mine: &Mine) -> Span {
        self.options.watch.of(mine.work.task.spec.silence).timeout
    }

    fn checkpoint_due(&self, mine: &Mine) -> Option<Lease> {
        let interval = self.options.checkpoint_interval?;
        Some(mine.checkpoint_at.unwrap_or(mine.work.run.started.lease + interval))
    }

    /// Looks at a run that is due, or ends one that takes too long.
    pub(super) fn watch_runs(&mut self, now: Lease) -> Option<Advice> {
        let may_be_late = self.mine.values().filter(|mine| mine.phase == Phase::Live && !mine.stopping);
        let late = may_be_late.filter_map(|mine| {
            let max = self.max_duration(mine)?;
            (mine.work.run.started.lease + max <= now).then(|| overtime(mine, max))
        });
        let late: Vec<Request> = late.collect();
        if !late.is_empty() {
            self.requests = late;
            return Some(Advice::Call);
        }
        let is_due = |mine: &Mine| {
            !mine.is_asked && (mine.seen + self.silence(mine) <= now || self.checkpoint_due(mine).is_some_and(|due| due <= now))
        };
        let run = self.mine.iter().find(|(_, mine)| mine.phase == Phase::Live && is_due(mine)).map(|(run, _)| run.clone())?;
        let silence = self.mine.get(&run).map(|mine| self.silence(mine))?;
        let mine = self.mine.get_mut(&run)?;
        if mine.seen + silence <= now {
            mine.seen = now;
        }
        mine.is_asked = true;
        Some(Advice::Pulse(run, silence))
    }

    /// A run was looked at.
    pub fn pulse(&mut self, run: &RunId, vitals: Vitals, now: Lease) {
        let checkpoint = self.mine.get(run).and_then(|mine| self.checkpoint_due(mine)).filter(|due| *due <= now);
        let Some(mine) = self.mine.get_mut(run) else { return };
        let watch = self.options.watch.of(mine.work.task.spec.silence);
        mine.is_asked = false;
        let Vitals { quiet, output_bytes, activity } = vitals;
        let (id, epoch) = (mine.work.task.id.clone(), mine.work.run.epoch);
        let is_quiet = quiet >= watch.timeout;
        if !is_quiet {
            mine.seen = Lease(now.0 - quiet.as_ms());
        }
        // A run that follows others which were lost or stuck is well when it is still heard of after so long.
        let is_steady = mine.work.task.recoveries > 0 && mine.seen >= mine.work.run.started.lease + watch.timeout;
        let pulse = match activity {
            _ if !is_quiet && is_steady => Some(Pulse::Steady),
            _ if !is_quiet => mine.stuck.then_some(Pulse::Active),
            Activity::Unclear if watch.believes(quiet) => {
                mine.seen = Lease(now.0 - watch.timeout.as_ms()) + soon(watch.timeout);
                None
            }
            Activity::Busy if watch.believes(quiet) => mine.stuck.then_some(Pulse::Busy(quiet)),
            // The store may know of something newer.
            Activity::Unclear | Activity::Busy | Activity::Idle => Some(Pulse::Idle(quiet)),
        };
        let heartbeat = pulse.map(|pulse| TaskRequest::Heartbeat { id: id.clone(), epoch, pulse, watch });
        let mut requests: Vec<Request> = heartbeat.map(Request::Task).into_iter().collect();
        if let (Some(due), Some(interval)) = (checkpoint, self.options.checkpoint_interval) {
            // On the beat, also if this one came late.
            let missed = (now - due).as_ms() / interval.as_ms().max(1);
            mine.checkpoint_at = Some(due + Span::from_ms(interval.as_ms().saturating_mul(missed + 1)));
            requests.push(Request::Task(TaskRequest::Checkpoint { id, epoch, output_bytes, quiet }));
        }
        if !requests.is_empty() {
            self.requests = requests;
            self.queue.push_back(Advice::Call);
        }
    }

    /// A run could not be looked at. It is tried again after the same time.
    pub fn no_pulse(&mut self, run: &RunId, now: Lease) {
        let Some(mine) = self.mine.get_mut(run) else { return };
        mine.is_asked = false;
        if let Some(interval) = self.options.checkpoint_interval {
            mine.checkpoint_at = Some(now + interval);
        }
    }

    /// Takes in what a look at a run meant for its task.
    pub(super) fn note_pulse(&mut self, outcome: task::Outcome, task: &Task) {
        let Some(mine) = task.live().and_then(|live| self.mine.get_mut(&live.run)) else { return };
        mine.stuck = task.status() == Status::Stuck;
        mine.work.task.recoveries = task.recoveries;
        mine.stopping = matches!(task.state, task::State::Stopping { .. });
        mine.seen = mine.seen.max(task.live().map_or(mine.seen, |live| live.seen.lease));
        // The next rung is due one timeout after the store has seen it stuck, which was a moment after this look began: a look
        // that comes as much too early would make the run wait for twice as long.
        if let task::State::Stuck { detected, .. } = &task.state {
            mine.seen = mine.seen.max(detected.lease);
        }
        if matches!(outcome, task::Outcome::Stuck | task::Outcome::Recovered | task::Outcome::Stopping) {
            let work = Box::new(Work { task: task.clone(), ..mine.work.clone() });
            self.news.push(match outcome {
                task::Outcome::Recovered => News::Recovered(work),
                task::Outcome::Stopping => News::Stopping(work),
                _ => News::Stuck(work),
            });
        }
    }
}

fn overtime(mine: &Mine, max: Span) -> Request {
    let (id, run) = (mine.work.task.id.clone(), mine.work.run.id.clone());
    Request::Task(TaskRequest::Overtime { id, run, max })
}
