//! A task: one unit of work, and the run that is at it right now.
//!
//! ```text
//!              start               end: done, or nothing left to try
//!   Pending ---------> Running ----------------------------------------> Done
//!    ^   ^              |   ^ \                                           ^
//!    |   |        idle, |   |  `- stop --> Stopping -- end: tree dead ---+
//!    |   |        dead  v   | active         ^  |
//!    |   |              Stuck ---- stop -----'  |
//!    |   `---- end: to be tried again ----------'    (of Running and Stuck, too)
//!    `-- retry, by a person: of Done or Review
//! ```
//!
//! Invariants: a task has at most one live run, and whoever speaks for it names it: the end of an earlier run is
//! late, a call with an earlier epoch is fenced. A run that is to be stopped is live until its tree was seen dead.

use serde::{Deserialize, Serialize};

use crate::event::{Event, TaskFact};
use crate::ids::{Epoch, RunId, RunnerId, Seq, TaskId};
use crate::step::{Errand, Now, Scribe, Step};
use crate::time::{Lease, Span, Stamp, Wall};

pub use crate::live::{After, ERROR_LIMIT, Ending, Live, OUTPUT_LIMIT, Pulse, Stuck, Verdict};
pub use crate::status::{Done, Status};
pub use crate::work::{COMMAND_LIMIT, LABEL_LIMIT, NEED_LIMIT, Need, Spec, Work, Workspace};

/// A task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Which one.
    pub id: TaskId,
    /// What is to be done, and under which conditions.
    pub spec: Spec,
    /// Its place among tasks of the same priority: the number of the event that added it.
    pub position: Seq,
    /// When it was added.
    pub created: Wall,
    /// How things stand.
    pub state: State,
    /// Since when they stand so.
    pub changed: Stamp,
    /// How many runs it has had.
    pub attempts: u32,
    /// How many of them failed and were followed by another, since a person last asked for a retry.
    pub failures: u32,
    /// How many of them were lost, or stopped to be tried again, and were followed by another since then.
    pub recoveries: u32,
}

/// How things stand with a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// It waits to be started.
    Pending,
    /// A run is at it.
    Running(Live),
    /// A run is at it, and shows no sign of life.
    Stuck {
        /// The run.
        live: Live,
        /// Since when.
        detected: Stamp,
        /// What makes it look so.
        reason: Stuck,
    },
    /// Its run is being stopped, and lives until its tree was seen dead.
    Stopping {
        /// The run.
        live: Live,
        /// Since when.
        since: Stamp,
        /// What then.
        then: After,
    },
    /// A person looks at the result. It is neither done nor to be claimed.
    Review,
    /// It is over.
    Done(Done),
}

/// What can happen to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A runner takes it. What stands in the way was looked at before.
    Start {
        /// The run that begins.
        run: RunId,
        /// Who starts it.
        runner: RunnerId,
    },
    /// Its run was looked at, or spoke up.
    Heartbeat {
        /// Which run.
        epoch: Epoch,
        /// What was seen.
        pulse: Pulse,
        /// How long a run may be without a sign of life.
        timeout: Span,
    },
    /// The result is told: by its run, or by a person if no run is at it.
    Conclude {
        /// Which run says so.
        epoch: Option<Epoch>,
        /// What it says.
        verdict: Verdict,
    },
    /// Its run is to be stopped. One that has not started, or has no run, is over at once.
    Stop(After),
    /// The tree of a run was seen dead.
    End {
        /// Which run.
        run: RunId,
        /// How it ended.
        ending: Ending,
        /// How many runs that were lost, or stopped to be tried again, are followed by another.
        max_recoveries: u32,
    },
    /// A person wants it tried again.
    Retry,
    /// A person passes it over, or wants to look at it.
    Set(Mark),
}

/// What a person makes of a task that no run is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// It is passed over.
    Skipped,
    /// It is looked at.
    Review,
}

/// What a task can answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The run may begin, under this number.
    Started(Epoch),
    /// It cannot be started: it is not pending.
    NotPending(Status),
    /// The sign of life is noted.
    Seen,
    /// It is stuck from now on.
    Stuck,
    /// It is running again.
    Recovered,
    /// What was said of the result is noted; it counts when the run ends.
    Noted,
    /// It is over.
    Ended(Status),
    /// It is pending again.
    Again,
    /// Its run is being stopped.
    Stopping,
    /// It was over already.
    Over(Status),
    /// The run that is spoken of is not the one that is at the task.
    Late,
    /// The epoch is not that of the run that is at the task, if there is one.
    Fenced(Option<Epoch>),
    /// A run is at it, and only that run may say so.
    Busy(Epoch),
    /// It is marked.
    Marked(Status),
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

    /// Decides one input.
    pub fn step(mut self, input: Input, now: &Now) -> Step<Task, Outcome> {
        let mut scribe = Scribe::new(now);
        let outcome = match input {
            Input::Start { run, runner } => match self.state {
                State::Pending => self.start(run, runner, now, &mut scribe),
                State::Running(_) | State::Stuck { .. } | State::Stopping { .. } | State::Review | State::Done(_) => {
                    Outcome::NotPending(self.status())
                }
            },
            Input::Heartbeat { epoch, pulse, timeout } => self.heartbeat(epoch, pulse, timeout, now, &mut scribe),
            Input::Conclude { epoch, verdict } => self.conclude(epoch, verdict, now, &mut scribe),
            Input::Stop(after) => self.stop(after, now, &mut scribe),
            Input::End { run, ending, max_recoveries } => self.end(&run, ending, max_recoveries, now, &mut scribe),
            Input::Retry => match &self.state {
                State::Pending | State::Running(_) | State::Stuck { .. } | State::Stopping { .. } => {
                    Outcome::NotPending(self.status())
                }
                State::Review | State::Done(_) => {
                    (self.failures, self.recoveries) = (0, 0);
                    self.emit(TaskFact::Retried {}, &mut scribe);
                    self.turn_into(State::Pending, now);
                    Outcome::Again
                }
            },
            Input::Set(mark) => match &self.state {
                State::Running(live) | State::Stuck { live, .. } | State::Stopping { live, .. } => Outcome::Busy(live.epoch),
                // What others may have waited for stays as it is, until a retry.
                State::Done(done) => Outcome::Over(done.status()),
                State::Pending | State::Review => {
                    let state = match mark {
                        Mark::Skipped => State::Done(Done::Skipped),
                        Mark::Review => State::Review,
                    };
                    self.turn_into(state, now);
                    self.emit(TaskFact::Marked { status: self.status() }, &mut scribe);
                    Outcome::Marked(self.status())
                }
            },
        };
        Step { state: self, outcome, effects: scribe.effects }
    }

    /// The next moment at which time alone could change something.
    pub fn next_deadline(&self, timeout: Span) -> Option<Lease> {
        match &self.state {
            State::Running(live) => Some(live.seen.lease + timeout),
            State::Pending | State::Stuck { .. } | State::Stopping { .. } | State::Review | State::Done(_) => None,
        }
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        assert!(self.live().is_none() || self.attempts > 0, "{} has a run but no attempt", self.id);
        assert!(self.failures + self.recoveries <= self.attempts, "{} has more endings than runs", self.id);
        if let Some(live) = self.live() {
            assert!(self.failures + self.recoveries < self.attempts, "{} counts its run before the end", self.id);
            assert!(live.started.lease <= live.seen.lease, "{} was seen before it began", self.id);
        }
    }

    /// The run that is at it.
    pub fn live(&self) -> Option<&Live> {
        match &self.state {
            State::Running(live) | State::Stuck { live, .. } | State::Stopping { live, .. } => Some(live),
            State::Pending | State::Review | State::Done(_) => None,
        }
    }

    /// The word for how it stands, as far as the task itself tells.
    pub fn status(&self) -> Status {
        match &self.state {
            State::Pending => Status::Pending,
            State::Running(_) | State::Stopping { .. } => Status::InProgress,
            State::Stuck { .. } => Status::Stuck,
            State::Review => Status::Review,
            State::Done(done) => done.status(),
        }
    }

    fn live_mut(&mut self) -> Option<&mut Live> {
        match &mut self.state {
            State::Running(live) | State::Stuck { live, .. } | State::Stopping { live, .. } => Some(live),
            State::Pending | State::Review | State::Done(_) => None,
        }
    }

    fn start(&mut self, run: RunId, runner: RunnerId, now: &Now, scribe: &mut Scribe) -> Outcome {
        let attempt = self.attempts;
        let epoch = self.emit(TaskFact::Started { run: run.clone(), attempt, runner }, scribe);
        self.attempts += 1;
        scribe.send(Errand::Spawn { run: run.clone() });
        let live = Live { run, epoch, started: now.stamp(), seen: now.stamp(), verdict: None };
        self.turn_into(State::Running(live), now);
        Outcome::Started(epoch)
    }

    fn heartbeat(&mut self, epoch: Epoch, pulse: Pulse, timeout: Span, now: &Now, scribe: &mut Scribe) -> Outcome {
        let current = self.live().map(|live| live.epoch);
        if current != Some(epoch) {
            return Outcome::Fenced(current);
        }
        match (&mut self.state, pulse) {
            (State::Running(live) | State::Stopping { live, .. }, Pulse::Active) => {
                live.seen = now.stamp();
                Outcome::Seen
            }
            (State::Stuck { live, .. }, Pulse::Active) => {
                live.seen = now.stamp();
                self.recover(now, scribe);
                Outcome::Recovered
            }
            (State::Running(live), Pulse::Idle(quiet)) => {
                // Something was seen of it before it fell quiet: the deadline counts from there, or the next look
                // would be due at once, again and again.
                live.seen = live.seen.later(now.stamp().before(quiet));
                if !now.is_past(live.seen.lease + timeout) {
                    return Outcome::Seen;
                }
                let reason = if live.seen.lease > live.started.lease {
                    Stuck::NoHeartbeat { last_seen: live.seen }
                } else {
                    Stuck::NoProgress { duration: now.lease - live.started.lease }
                };
                self.get_stuck(reason, now, scribe)
            }
            (State::Running(_), Pulse::SessionDead) => self.get_stuck(Stuck::SessionDead, now, scribe),
            (State::Stuck { .. } | State::Stopping { .. }, Pulse::Idle(_) | Pulse::SessionDead) => Outcome::Seen,
            (State::Pending | State::Review | State::Done(_), Pulse::Active | Pulse::Idle(_) | Pulse::SessionDead) => {
                unreachable!("a state without a run has no epoch")
            }
        }
    }

    fn get_stuck(&mut self, reason: Stuck, now: &Now, scribe: &mut Scribe) -> Outcome {
        let live = self.live().expect("only a run gets stuck").clone();
        self.emit(TaskFact::Stuck { run: live.run.clone(), reason }, scribe);
        self.turn_into(State::Stuck { live, detected: now.stamp(), reason }, now);
        Outcome::Stuck
    }

    /// A run that was thought stuck shows that it is not.
    fn recover(&mut self, now: &Now, scribe: &mut Scribe) {
        let live = self.live().expect("only a run recovers").clone();
        self.emit(TaskFact::Recovered { run: live.run.clone() }, scribe);
        self.turn_into(State::Running(live), now);
    }

    fn conclude(&mut self, epoch: Option<Epoch>, verdict: Verdict, now: &Now, scribe: &mut Scribe) -> Outcome {
        match (self.live_mut(), epoch) {
            (Some(live), Some(epoch)) if live.epoch == epoch => {
                live.verdict = Some(verdict);
                live.seen = now.stamp();
                // Whoever speaks is not stuck, and is watched again until its end.
                if let State::Stuck { .. } = self.state {
                    self.recover(now, scribe);
                }
                Outcome::Noted
            }
            (Some(live), Some(_)) => Outcome::Fenced(Some(live.epoch)),
            (Some(live), None) => Outcome::Busy(live.epoch),
            (None, Some(_)) => Outcome::Fenced(None),
            (None, None) => match verdict {
                Verdict::Done { output } => self.finish(Done::Success { output }, None, now, scribe),
                Verdict::Failed { error } => self.finish(Done::Failed { error }, None, now, scribe),
            },
        }
    }

    fn stop(&mut self, after: After, now: &Now, scribe: &mut Scribe) -> Outcome {
        match &self.state {
            State::Pending | State::Review => match after {
                After::Cancel => self.finish(Done::Cancelled, None, now, scribe),
                After::Fail { error } => self.finish(Done::Failed { error }, None, now, scribe),
                After::Restart => Outcome::NotPending(self.status()),
            },
            State::Running(live) | State::Stuck { live, .. } => {
                let live = live.clone();
                self.emit(TaskFact::Stopping { run: live.run.clone(), then: after.clone() }, scribe);
                scribe.send(Errand::Kill { run: live.run.clone() });
                self.turn_into(State::Stopping { live, since: now.stamp(), then: after }, now);
                Outcome::Stopping
            }
            State::Stopping { live, since, then } => {
                // A wish that says more replaces one that says less: nobody restarts what was cancelled, and what is
                // cancelled while it is being failed does not complete because its run said so meanwhile.
                if after.weight() > then.weight() {
                    let (live, since) = (live.clone(), *since);
                    self.emit(TaskFact::Stopping { run: live.run.clone(), then: after.clone() }, scribe);
                    self.state = State::Stopping { live, since, then: after };
                }
                Outcome::Stopping
            }
            State::Done(done) => Outcome::Over(done.status()),
        }
    }

    fn end(&mut self, run: &RunId, ending: Ending, max_recoveries: u32, now: &Now, scribe: &mut Scribe) -> Outcome {
        let Some(live) = self.live().filter(|live| live.run == *run).cloned() else { return Outcome::Late };
        let run = Some(live.run.clone());
        let then = match &self.state {
            State::Stopping { then, .. } => Some(then.clone()),
            State::Pending | State::Running(_) | State::Stuck { .. } | State::Review | State::Done(_) => None,
        };
        match (then, live.verdict, ending) {
            // What the run itself has said is more than what its exit tells; but who was cancelled is cancelled.
            (Some(After::Cancel), _, _) => self.finish(Done::Cancelled, run, now, scribe),
            (_, Some(Verdict::Done { output }), _) => self.finish(Done::Success { output }, run, now, scribe),
            (Some(After::Fail { error }), _, _) => self.finish(Done::Failed { error }, run, now, scribe),
            // It never began, so nothing was tried.
            (Some(After::Restart), _, Ending::Never) | (None, None, Ending::Never) => {
                self.again(live.run, Ending::Never, None, now, scribe)
            }
            (Some(After::Restart), _, ending) => {
                self.again_if(max_recoveries, "it had to be restarted", ending, live.run, now, scribe)
            }
            (None, Some(Verdict::Failed { error }), ending) => self.fail(Some(error), ending, live.run, now, scribe),
            (None, None, Ending::Exited(0)) => self.finish(Done::Success { output: None }, run, now, scribe),
            (None, None, Ending::Lost) => {
                self.again_if(max_recoveries, "its session was lost", Ending::Lost, live.run, now, scribe)
            }
            (None, None, ending @ (Ending::Exited(_) | Ending::Signalled(_) | Ending::NotStarted { .. })) => {
                self.fail(None, ending, live.run, now, scribe)
            }
        }
    }

    /// A run has failed, and perhaps said why: the next one follows, if there are retries left.
    fn fail(&mut self, said: Option<Box<str>>, ending: Ending, run: RunId, now: &Now, scribe: &mut Scribe) -> Outcome {
        if self.failures >= self.spec.retries {
            let error = said.unwrap_or_else(|| ending.to_string().into());
            return self.finish(Done::Failed { error }, Some(run), now, scribe);
        }
        self.failures += 1;
        self.again(run, ending, said, now, scribe)
    }

    /// A run came to nothing without having failed: the next one follows, if there are recoveries left.
    fn again_if(&mut self, max: u32, why: &str, ending: Ending, run: RunId, now: &Now, scribe: &mut Scribe) -> Outcome {
        if self.recoveries >= max {
            let error = format!("{why}; recoveries before that: {}", self.recoveries).into();
            return self.finish(Done::Failed { error }, Some(run), now, scribe);
        }
        self.recoveries += 1;
        self.again(run, ending, None, now, scribe)
    }

    fn again(&mut self, run: RunId, ending: Ending, error: Option<Box<str>>, now: &Now, scribe: &mut Scribe) -> Outcome {
        self.emit(TaskFact::Restarting { run, ending, error }, scribe);
        self.turn_into(State::Pending, now);
        Outcome::Again
    }

    fn finish(&mut self, done: Done, run: Option<RunId>, now: &Now, scribe: &mut Scribe) -> Outcome {
        if let State::Done(done) = &self.state {
            return Outcome::Over(done.status());
        }
        let status = done.status();
        self.emit(
            match &done {
                Done::Success { output } => TaskFact::Complete { run, output: output.clone() },
                Done::Failed { error } => TaskFact::Failed { run, error: error.clone() },
                Done::Cancelled => TaskFact::Cancelled { run },
                Done::Skipped => TaskFact::Marked { status },
            },
            scribe,
        );
        self.turn_into(State::Done(done), now);
        Outcome::Ended(status)
    }

    fn turn_into(&mut self, state: State, now: &Now) {
        self.state = state;
        self.changed = now.stamp();
    }

    fn emit(&self, fact: TaskFact, scribe: &mut Scribe) -> Epoch {
        scribe.emit(Event::Task { id: self.id.clone(), fact })
    }
}

#[cfg(test)]
#[path = "task_tests.rs"]
pub(crate) mod tests;
