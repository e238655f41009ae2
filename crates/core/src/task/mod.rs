//! A task: one unit of work, and the run that works on it right now.
//!
//! ```text
//!              start               end: done, or nothing left to try
//!   Pending ---------> Running ----------------------------------------> Done
//!    ^   ^              |   ^ \                                           ^
//!    |   |        idle, |   |  `- stop --> Stopping -- end: tree dead ---+
//!    |   |        dead  v   | active         ^  |
//!    |   |              Stuck ---- stop -----'  |
//!    |   `---- end: to be tried again ----------'    (of Running and Stuck, too)
//!    `-- retry, by a person: of Done, Review or AwaitingDecision
//! ```
//!
//! Besides: a loop waits between two attempts (Backoff), and for its children when it is done (Awaiting); a task that
//! cannot go on by itself waits for a decision (AwaitingDecision); a person may work on it (Manual) or review it
//! (Review). If its work lands, a task goes into the merge queue (Landing) where another task would be done: it is
//! completed when its work has landed, and pending again when the work comes back.
//!
//! A run without activity is Stuck, and nudged at once; if that does not help it is restarted. Both count as
//! recoveries; after the last one a person decides, or the task fails.
//!
//! Invariants: a task has at most one live run, and inputs about that run name it: the end of an earlier run is late, a
//! call with an earlier epoch is fenced. A run that is to be stopped is live until its process tree was seen dead.

pub mod admission;
pub mod dependencies;
mod land;
pub mod limits;
mod manual;
mod mirror;
mod protocol;
pub mod retry;
pub mod roots;
pub(crate) mod run;
mod run_end;
mod silence;
pub(crate) mod spec;
pub(crate) mod status;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{Event, TaskFact};
use crate::ids::{DecisionId, Epoch, HolderId, RunId, RunnerId, Seq, TaskId};
use crate::step::{EffectBuffer, Now, OutboxCommand, Step};
use crate::task::retry::{Fact, Marker, RetryDecision};
use crate::time::{Lease, Span, Stamp, Wall};

pub use crate::task::mirror::PipelineStatus;
pub use crate::task::protocol::{Input, Mark, Outcome};
pub use crate::task::run::{
    After, ERROR_LIMIT, Live, OUTPUT_LIMIT, OnExhausted, Pulse, Refused, RetryReason, RunEnd, Stuck, Verdict, Watch,
};
pub use crate::task::spec::{
    COMMAND_LIMIT, LABEL_LIMIT, LandSpec, LiveInput, NEED_LIMIT, Need, OfItem, PHASE_ENV, PIPELINE_ENV, REASON_ENV, SourceEntry,
    Spec, SpecError, Work, WorkspaceSpec, WorktreeSpec, labels, needs,
};
pub use crate::task::status::{Status, TaskEnd};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub id: TaskId,
    pub spec: Spec,
    /// Its place among tasks of the same priority: the number of the event that added it.
    pub position: Seq,
    pub created: Wall,
    pub state: State,
    /// Since when it is in this state.
    pub changed: Stamp,
    /// The number of its runs, except those that could not begin.
    pub attempts: u32,
    /// How many of them had no result and were followed by another, since a person last retried or took it. In a loop
    /// all runs that began count, else those that failed.
    pub failures: u32,
    /// The number of recoveries since then: runs that were lost, nudged, or stopped for a restart.
    pub recoveries: u32,
}

/// The state of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// It waits to be started.
    Pending,
    /// It waits for its next attempt.
    #[serde(rename = "resting")]
    Backoff {
        until: Lease,
    },
    /// It is a phase that waits for a guard: its blocked pipeline releases it when the guard holds.
    Held,
    /// A run works on it.
    Running(Live),
    /// A run works on it, and shows no activity.
    Stuck {
        live: Live,
        detected: Stamp,
        reason: Stuck,
    },
    /// Its run is being stopped, and lives until its process tree was seen dead.
    Stopping {
        live: Live,
        since: Stamp,
        then: After,
    },
    /// Its own work is done, but its children are not over.
    Awaiting {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        /// The deadline of the children. Without it they were cancelled, and the task waits for their end.
        until: Option<Lease>,
        /// Whether it has no changes of its own to land.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        no_change: bool,
    },
    /// It cannot go on by itself.
    #[serde(rename = "parked")]
    AwaitingDecision {
        decision: DecisionId,
    },
    /// A person works on it.
    #[serde(rename = "byHand")]
    Manual {
        /// The holder of its lock.
        holder: HolderId,
        /// The grant.
        epoch: Epoch,
        /// When the grant ends by itself, as far as is known.
        until: Option<Lease>,
    },
    /// Its pipeline goes through its phases.
    InPhases {
        /// Whether the pipeline is blocked.
        is_blocked: bool,
    },
    /// Its work is in the merge queue, where the last entry of the task has the progress.
    Landing {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warning: Option<Box<str>>,
    },
    /// A person reviews the result. The task is neither done nor can it be claimed.
    Review,
    Done(TaskEnd),
}

impl Task {
    /// A task that was just added.
    pub fn new(id: TaskId, spec: Spec, now: &Now) -> Task {
        Task {
            id,
            spec,
            position: now.seq,
            created: now.wall,
            state: State::Pending,
            changed: now.stamp(),
            attempts: 0,
            failures: 0,
            recoveries: 0,
        }
    }

    pub fn step(mut self, input: Input, now: &Now) -> Step<Task, Outcome> {
        let mut buffer = EffectBuffer::new(now);
        let outcome = match input {
            Input::Found { marker, children } => self.found(marker, children, now, &mut buffer),
            Input::Start { run, runner, recheck } => self.start(run, runner, recheck, now, &mut buffer),
            Input::Heartbeat { epoch, pulse, watch } => self.heartbeat(epoch, pulse, &watch, now, &mut buffer),
            Input::Checkpoint { epoch, output_bytes, quiet } => self.checkpoint(epoch, output_bytes, quiet, now, &mut buffer),
            Input::Overtime { run, max } => self.overtime(&run, max, now, &mut buffer),
            Input::Conclude { epoch, verdict } => self.conclude(epoch, verdict, now, &mut buffer),
            Input::Stop(after) => self.stop(after, now, &mut buffer),
            Input::End { run, ending, ran, marker, children, watch } => {
                self.end(&run, ending, ran, marker, children, &watch, now, &mut buffer)
            }
            Input::MakeReady => {
                if let State::Backoff { until } = self.state
                    && now.lease >= until
                {
                    self.set_state(State::Pending, now);
                    Outcome::Clear
                } else {
                    Outcome::NotPending(self.status())
                }
            }
            // The events of its pipeline cover both, so no event is recorded here.
            Input::Hold => match &self.state {
                State::Pending | State::Backoff { .. } | State::Held => {
                    self.set_state(State::Held, now);
                    Outcome::Held
                }
                _ => Outcome::NotPending(self.status()),
            },
            Input::Release => match &self.state {
                State::Held => {
                    self.set_state(State::Pending, now);
                    Outcome::Clear
                }
                _ => Outcome::NotPending(self.status()),
            },
            Input::Settle { children } => self.settle_after_children(children, now, &mut buffer),
            Input::Retry => self.retry(now, &mut buffer),
            Input::Answer => self.answer(now, &mut buffer),
            Input::Set(mark) => self.mark(mark, now, &mut buffer),
            Input::Take { holder, epoch, until } => self.take(holder, epoch, until, now, &mut buffer),
            Input::Return => self.give_back(now, &mut buffer),
            Input::MirrorStatus(status) => self.mirror_status(status, now, &mut buffer),
            // The target is for the queue.
            Input::Land(_) => self.land_as_it_is(now, &mut buffer),
            Input::LandingEnded(end) => self.landing_ended(end, now, &mut buffer),
        };
        Step { state: self, outcome, effects: buffer.effects }
    }

    pub fn next_deadline(&self, timeout: Span) -> Option<Lease> {
        match &self.state {
            State::Running(live) => Some(live.seen.lease + timeout),
            // Its record has the end; time changes nothing.
            State::Stuck { reason: Stuck::SessionDead, .. } => None,
            State::Stuck { detected, .. } => Some(detected.lease + timeout),
            State::Backoff { until } => Some(*until),
            State::Awaiting { until, .. } | State::Manual { until, .. } => *until,
            State::Pending
            | State::Held
            | State::Stopping { .. }
            | State::AwaitingDecision { .. }
            | State::InPhases { .. }
            | State::Landing { .. }
            | State::Review
            | State::Done(_) => None,
        }
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        assert!(self.live().is_none() || self.attempts > 0, "{} has a run but no attempt", self.id);
        assert!(self.failures <= self.attempts, "{} has more failures than runs", self.id);
        if let Some(policy) = &self.spec.restart {
            assert!(self.failures <= policy.max_attempts.get(), "{} was tried too often", self.id);
        }
        if let Some(live) = self.live() {
            assert!(self.failures < self.attempts, "{} counts its run before the end", self.id);
            assert!(live.started.lease <= live.seen.lease, "{} was seen before it began", self.id);
        }
    }

    /// The run that works on it.
    pub fn live(&self) -> Option<&Live> {
        if let State::Running(live) | State::Stuck { live, .. } | State::Stopping { live, .. } = &self.state {
            Some(live)
        } else {
            None
        }
    }

    /// The status, as far as it follows from the task itself.
    pub fn status(&self) -> Status {
        match &self.state {
            State::Pending | State::Backoff { .. } => Status::Pending,
            State::Running(_)
            | State::Stopping { .. }
            | State::Awaiting { .. }
            | State::Manual { .. }
            | State::InPhases { is_blocked: false } => Status::InProgress,
            State::Stuck { .. } => Status::Stuck,
            State::Held | State::AwaitingDecision { .. } | State::InPhases { is_blocked: true } => Status::Blocked,
            State::Landing { .. } => Status::Landing,
            State::Review => Status::Review,
            State::Done(done) => done.status(),
        }
    }

    /// Whether it waits to be started, and its backoff is over.
    pub fn is_due(&self, now: Lease) -> bool {
        let is_ready = matches!(self.state, State::Backoff { until } if now >= until);
        self.state == State::Pending || is_ready
    }

    /// Whether it is the task of a pipeline, which alone decides how it continues.
    pub fn has_phases(&self) -> bool {
        matches!(self.spec.work, Some(Work::Pipeline(_)))
    }

    fn live_mut(&mut self) -> Option<&mut Live> {
        if let State::Running(live) | State::Stuck { live, .. } | State::Stopping { live, .. } = &mut self.state {
            Some(live)
        } else {
            None
        }
    }

    /// Handles the state of the file DONE before an attempt.
    fn found(&mut self, marker: Marker, children: u32, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let is_waiting = matches!(self.state, State::Pending | State::Backoff { .. });
        let Some(policy) = self.spec.restart.as_ref().filter(|_| is_waiting) else {
            return Outcome::NotPending(self.status());
        };
        match policy.next(self.failures, Fact::Due(marker), now.lease) {
            RetryDecision::Done { output } => self.settle(output, false, None, children, now, buffer),
            RetryDecision::Failed(error) => self.finish(TaskEnd::Failed { error }, None, now, buffer),
            RetryDecision::Attempt
            | RetryDecision::Restart(_)
            | RetryDecision::Wait
            | RetryDecision::Settled { .. }
            | RetryDecision::KillChildren => Outcome::Clear,
        }
    }

    fn start(&mut self, run: RunId, runner: RunnerId, recheck: bool, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        if self.has_phases() {
            return Outcome::HasPhases;
        }
        if !self.is_due(now.lease) {
            return Outcome::NotPending(self.status());
        }
        let attempt = self.attempts;
        let restart = self.spec.restart.as_ref().map(|_| self.failures);
        let epoch = self.emit(TaskFact::Started { run: run.clone(), attempt, runner, restart }, buffer);
        self.attempts += 1;
        buffer.send(OutboxCommand::Spawn { run: run.clone() });
        let live = Live { run, epoch, started: now.stamp(), seen: now.stamp(), verdict: None, recheck };
        self.set_state(State::Running(live), now);
        Outcome::Started(epoch)
    }

    fn set_state(&mut self, state: State, now: &Now) {
        self.state = state;
        self.changed = now.stamp();
    }

    fn emit(&self, fact: TaskFact, buffer: &mut EffectBuffer) -> Epoch {
        buffer.emit(Event::Task { id: self.id.clone(), fact })
    }
}

#[cfg(test)]
pub(crate) mod tests;
