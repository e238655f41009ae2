//! How runs and tasks end: what they say, being stopped, the proof of death, and what follows.

use super::*;
use crate::decision::Question;
use crate::step::{Notice, NoticeKind};
use crate::task::retry::Policy;

/// How long a task rests after its session could not begin for the first time, and how often that is doubled.
const NOT_BEGUN_DELAY: Span = Span::from_secs(1);
const NOT_BEGUN_DOUBLINGS: u32 = 6;

impl Task {
    pub(super) fn conclude(&mut self, epoch: Option<Epoch>, verdict: Verdict, now: &Now, scribe: &mut Scribe) -> Outcome {
        let has_phases = self.has_phases();
        match (self.live_mut(), epoch) {
            (Some(live), Some(epoch)) if live.epoch == epoch => {
                live.verdict = Some(verdict);
                live.seen = now.stamp();
                // Whoever speaks is not stuck, and is watched again until its end.
                if let State::Stuck { .. } = self.state {
                    self.recover(true, now, scribe);
                }
                Outcome::Noted
            }
            (Some(live), Some(_)) => Outcome::Fenced(Some(live.epoch)),
            (Some(live), None) => Outcome::Busy(live.epoch),
            (None, Some(_)) => Outcome::Fenced(None),
            (None, None) if has_phases => Outcome::HasPhases,
            (None, None) => match verdict {
                Verdict::Done { output } => self.finish(Done::Success { output, warning: None }, None, now, scribe),
                Verdict::Failed { error } => self.finish(Done::Failed { error }, None, now, scribe),
                Verdict::Refused(_) => Outcome::Late,
            },
        }
    }

    pub(super) fn stop(&mut self, after: After, now: &Now, scribe: &mut Scribe) -> Outcome {
        match &self.state {
            State::Pending
            | State::Resting { .. }
            | State::Held
            | State::Awaiting { .. }
            | State::Parked { .. }
            | State::ByHand { .. }
            | State::InPhases { .. }
            | State::Review => match after {
                After::Cancel => self.finish(Done::Cancelled, None, now, scribe),
                After::Fail { error } => self.finish(Done::Failed { error }, None, now, scribe),
                After::Escalate { .. } | After::Overtime { .. } | After::Restart => Outcome::NotPending(self.status()),
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

    #[expect(clippy::too_many_arguments, reason = "all that is known of the end of a run comes together here")]
    pub(super) fn end(
        &mut self,
        run: &RunId,
        ending: Ending,
        ran: Option<Span>,
        marker: Marker,
        children: u32,
        watch: &Watch,
        now: &Now,
        scribe: &mut Scribe,
    ) -> Outcome {
        let Some(live) = self.live().filter(|live| live.run == *run).cloned() else { return Outcome::Late };
        let then = match &self.state {
            // It had ended in time, and nobody had heard of it.
            State::Stopping { then: After::Overtime { max }, .. } if ran.is_some_and(|ran| ran <= *max) => None,
            State::Stopping { then, .. } => Some(then.clone()),
            _ => None,
        };
        if then == Some(After::Cancel) {
            return self.finish(Done::Cancelled, Some(live.run), now, scribe);
        }
        match self.spec.restart.clone() {
            Some(policy) => self.end_of_attempt(&policy, then, live, ending, marker, children, watch, now, scribe),
            None => self.end_of_run(then, live, ending, watch, now, scribe),
        }
    }

    /// A run of a task that is tried once, or a few times.
    fn end_of_run(
        &mut self,
        then: Option<After>,
        live: Live,
        ending: Ending,
        watch: &Watch,
        now: &Now,
        scribe: &mut Scribe,
    ) -> Outcome {
        let run = Some(live.run.clone());
        match (then, live.verdict, ending) {
            // What the run itself has said is more than what its exit tells, or what was wished for.
            (_, Some(Verdict::Done { output }), _) => self.finish(Done::Success { output, warning: None }, run, now, scribe),
            (Some(After::Fail { error }), _, _) => self.finish(Done::Failed { error }, run, now, scribe),
            (Some(After::Escalate { error }), _, _) => self.park(live.run, error, scribe, now),
            (Some(After::Overtime { .. } | After::Restart) | None, Some(Verdict::Refused(refused)), ending) => {
                self.refused(&refused, ending, live.run, now, scribe)
            }
            // It never began, so nothing was tried.
            (Some(After::Overtime { .. } | After::Restart) | None, None, Ending::Never) => {
                self.again(live.run, Ending::Never, Setback::Never, None, now, scribe)
            }
            (Some(After::Overtime { .. } | After::Restart) | None, None, ending @ Ending::NotBegun { .. }) => {
                self.not_begun(ending, live.run, watch, now, scribe)
            }
            (Some(After::Overtime { max }), _, ending) => {
                let error = format!("it took longer than {max}");
                self.fail(Some(error.into()), Setback::Overtime, ending, live.run, now, scribe)
            }
            (Some(After::Restart), _, ending) => self.again_if(watch, Setback::Stuck, ending, live.run, now, scribe),
            (None, Some(Verdict::Failed { error }), ending) => {
                self.fail(Some(error), Setback::Failed, ending, live.run, now, scribe)
            }
            (None, None, Ending::Exited(0)) => self.finish(Done::Success { output: None, warning: None }, run, now, scribe),
            (None, None, Ending::Lost) => self.again_if(watch, Setback::Lost, Ending::Lost, live.run, now, scribe),
            (None, None, ending @ (Ending::Exited(_) | Ending::Signalled(_) | Ending::NotStarted { .. })) => {
                self.fail(None, Setback::Failed, ending, live.run, now, scribe)
            }
            (Some(After::Cancel), _, _) => unreachable!("who is cancelled is cancelled, whatever its run said"),
        }
    }

    /// A run of a loop.
    #[expect(clippy::too_many_arguments, reason = "all that is known of the end of a run comes together here")]
    fn end_of_attempt(
        &mut self,
        policy: &Policy,
        then: Option<After>,
        live: Live,
        ending: Ending,
        marker: Marker,
        children: u32,
        watch: &Watch,
        now: &Now,
        scribe: &mut Scribe,
    ) -> Outcome {
        let setback = match &then {
            _ if ending.is_not_begun() => None,
            Some(After::Restart) => Some(Setback::Stuck),
            Some(After::Overtime { .. }) => Some(Setback::Overtime),
            Some(After::Fail { .. } | After::Escalate { .. } | After::Cancel) | None => None,
        };
        let fact = Fact::Ended { marker, verdict: live.verdict.clone(), ending: ending.clone(), setback };
        let said = live.verdict.and_then(|verdict| match verdict {
            Verdict::Failed { error } => Some(error),
            Verdict::Done { .. } | Verdict::Refused(_) => None,
        });
        match (policy.next(self.failures + 1, fact, now.lease), then) {
            (Next::Done { output }, _) => self.settle(output, Some(live.run), children, now, scribe),
            (_, Some(After::Fail { error })) => self.finish(Done::Failed { error }, Some(live.run), now, scribe),
            (_, Some(After::Escalate { error })) => self.park(live.run, error, scribe, now),
            (Next::Failed(error), _) => self.finish(Done::Failed { error }, Some(live.run), now, scribe),
            (Next::Restart(Setback::Never | Setback::Shortage), _) if matches!(ending, Ending::NotBegun { .. }) => {
                self.not_begun(ending, live.run, watch, now, scribe)
            }
            (Next::Restart(setback), _) => {
                if setback == Setback::Stuck {
                    if self.recoveries >= watch.max_recoveries {
                        return self.exhausted(watch, setback, live.run, now, scribe);
                    }
                    self.recoveries += 1;
                }
                self.failures += u32::from(setback != Setback::Never);
                self.again(live.run, ending, setback, said, now, scribe);
                if setback != Setback::Never && policy.delay > Span::ZERO {
                    self.state = State::Resting { until: now.lease + policy.delay };
                }
                Outcome::Again(setback)
            }
            (Next::Attempt | Next::Wait | Next::Settled { .. } | Next::KillChildren, _) => {
                unreachable!("the end of an attempt is none of these")
            }
        }
    }

    /// A run has failed, and perhaps said why: the next one follows, if there are retries left.
    fn fail(
        &mut self,
        said: Option<Box<str>>,
        setback: Setback,
        ending: Ending,
        run: RunId,
        now: &Now,
        scribe: &mut Scribe,
    ) -> Outcome {
        if self.failures >= self.spec.retries {
            let error = said.unwrap_or_else(|| ending.to_string().into());
            return self.finish(Done::Failed { error }, Some(run), now, scribe);
        }
        self.failures += 1;
        self.again(run, ending, setback, said, now, scribe)
    }

    /// A run came to nothing without having failed: the next one follows, if there is help left.
    fn again_if(
        &mut self,
        watch: &Watch,
        setback: Setback,
        ending: Ending,
        run: RunId,
        now: &Now,
        scribe: &mut Scribe,
    ) -> Outcome {
        if self.recoveries >= watch.max_recoveries {
            return self.exhausted(watch, setback, run, now, scribe);
        }
        self.recoveries += 1;
        self.again(run, ending, setback, None, now, scribe)
    }

    /// The session of a run could not begin, so nothing was tried. What the machine lacks will pass, and its runner waits for
    /// that. Anything else passes sometimes: the next run follows later and later, if there is help left.
    fn not_begun(&mut self, ending: Ending, run: RunId, watch: &Watch, now: &Now, scribe: &mut Scribe) -> Outcome {
        let Ending::NotBegun { error, is_shortage } = &ending else { unreachable!("it has not begun") };
        if *is_shortage {
            return self.again(run, ending, Setback::Shortage, None, now, scribe);
        }
        if self.recoveries >= watch.max_recoveries {
            return self.give_up_after(watch, error.clone(), run, now, scribe);
        }
        let delay = NOT_BEGUN_DELAY.as_ms() << self.recoveries.min(NOT_BEGUN_DOUBLINGS);
        self.recoveries += 1;
        self.again(run, ending, Setback::Never, None, now, scribe);
        self.state = State::Resting { until: now.lease + Span::from_ms(delay) };
        Outcome::Again(Setback::Never)
    }

    /// A guard of its phase did not hold when the command was to begin, so nothing was tried.
    fn refused(&mut self, refused: &Refused, ending: Ending, run: RunId, now: &Now, scribe: &mut Scribe) -> Outcome {
        if refused.fails.is_some() {
            return self.finish(Done::Failed { error: refused.reason().into() }, Some(run), now, scribe);
        }
        self.again(run, ending, Setback::Guard, Some(refused.reason().into()), now, scribe);
        self.state = State::Held;
        Outcome::Again(Setback::Guard)
    }

    fn exhausted(&mut self, watch: &Watch, setback: Setback, run: RunId, now: &Now, scribe: &mut Scribe) -> Outcome {
        let why = match setback {
            Setback::Lost => "its session was lost",
            Setback::Failed
            | Setback::NoVerdict
            | Setback::Overtime
            | Setback::Stuck
            | Setback::Never
            | Setback::Shortage
            | Setback::Guard => "it had to be restarted",
        };
        self.give_up_after(watch, why.into(), run, now, scribe)
    }

    fn give_up_after(&mut self, watch: &Watch, why: Box<str>, run: RunId, now: &Now, scribe: &mut Scribe) -> Outcome {
        let error = format!("{why}; recoveries before that: {}", self.recoveries).into();
        match self.on_exhausted(watch) {
            OnExhausted::Escalate => self.park(run, error, scribe, now),
            OnExhausted::Fail => self.finish(Done::Failed { error }, Some(run), now, scribe),
        }
    }

    fn again(
        &mut self,
        run: RunId,
        ending: Ending,
        why: Setback,
        error: Option<Box<str>>,
        now: &Now,
        scribe: &mut Scribe,
    ) -> Outcome {
        let (failures, recoveries) = (Some(self.failures), Some(self.recoveries));
        // One that could not begin does not count, unless somebody has said how it went.
        let is_uncounted =
            matches!((&ending, why), (Ending::NotBegun { .. }, Setback::Never | Setback::Shortage) | (_, Setback::Guard));
        let attempts = is_uncounted.then(|| self.attempts.saturating_sub(1));
        self.attempts = attempts.unwrap_or(self.attempts);
        self.emit(TaskFact::Restarting { run, ending, why: Some(why), error, failures, recoveries, attempts }, scribe);
        self.turn_into(State::Pending, now);
        Outcome::Again(why)
    }

    /// A person decides. The run is dead, so nothing is held meanwhile.
    fn park(&mut self, run: RunId, error: Box<str>, scribe: &mut Scribe, now: &Now) -> Outcome {
        let question = Question::of_task(&self.id, &self.spec.title, &error);
        let decision = question.raise(Some(NoticeKind::Escalate), scribe);
        self.emit(TaskFact::Escalated { run, error, decision: decision.clone() }, scribe);
        self.turn_into(State::Parked { decision: decision.clone() }, now);
        Outcome::Parked(decision)
    }

    /// It is done, as far as it depends on itself.
    pub(super) fn settle(
        &mut self,
        output: Option<Value>,
        run: Option<RunId>,
        children: u32,
        now: &Now,
        scribe: &mut Scribe,
    ) -> Outcome {
        let wait = self.spec.restart.as_ref().map(|policy| policy.child_wait);
        match wait {
            Some(wait) if children > 0 => {
                self.emit(TaskFact::Awaiting { run, output: output.clone(), children }, scribe);
                self.turn_into(State::Awaiting { output, until: Some(now.lease + wait) }, now);
                Outcome::Awaiting(children)
            }
            _ => self.finish(Done::Success { output, warning: None }, run, now, scribe),
        }
    }

    pub(super) fn settle_after_children(&mut self, children: u32, now: &Now, scribe: &mut Scribe) -> Outcome {
        let (State::Awaiting { output, until }, Some(policy)) = (&self.state, &self.spec.restart) else {
            return Outcome::NotPending(self.status());
        };
        let output = output.clone();
        match policy.next(self.failures, Fact::Waiting { children, until: *until }, now.lease) {
            Next::Settled { warning } => self.finish(Done::Success { output, warning }, None, now, scribe),
            Next::Failed(error) => self.finish(Done::Failed { error }, None, now, scribe),
            Next::KillChildren => {
                self.emit(TaskFact::EndingChildren {}, scribe);
                self.state = State::Awaiting { output, until: None };
                Outcome::EndChildren
            }
            Next::Wait | Next::Attempt | Next::Restart(_) | Next::Done { .. } => Outcome::Awaiting(children),
        }
    }

    pub(super) fn finish(&mut self, done: Done, run: Option<RunId>, now: &Now, scribe: &mut Scribe) -> Outcome {
        if let State::Done(done) = &self.state {
            return Outcome::Over(done.status());
        }
        let status = done.status();
        self.emit(
            match &done {
                Done::Success { output, warning } => TaskFact::Complete { run, output: output.clone(), warning: warning.clone() },
                Done::Failed { error } => TaskFact::Failed { run, error: error.clone() },
                Done::Cancelled => TaskFact::Cancelled { run },
                Done::Skipped => TaskFact::Marked { status },
            },
            scribe,
        );
        // What the failure of a part means is for the whole to say.
        if let Done::Failed { error } = &done
            && !self.spec.is_part()
        {
            let subject = format!("failed: {}", self.spec.title).into();
            scribe.send(Errand::Notify(Box::new(Notice { kind: NoticeKind::TaskFailed, subject, text: error.clone() })));
        }
        self.turn_into(State::Done(done), now);
        Outcome::Ended(status)
    }
}
