//! The ends of runs and tasks: verdicts, stops, the proof of death, and what follows.

use super::*;
use crate::agent::{AgentEnd, AgentVerdict};
use crate::decision::Question;
use crate::step::{Notice, NoticeKind};
use crate::task::retry::Policy;

/// The backoff after the session of a task could not begin for the first time, and how often it doubles.
const NOT_BEGUN_DELAY: Span = Span::from_secs(1);
const NOT_BEGUN_DOUBLINGS: u32 = 6;

/// The backoff after the provider of an agent did not answer for the first time, and how often it doubles.
const PROVIDER_DELAY: Span = Span::from_secs(30);
const PROVIDER_DOUBLINGS: u32 = 5;

impl Task {
    pub(super) fn conclude(&mut self, epoch: Option<Epoch>, verdict: Verdict, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let has_phases = self.has_phases();
        match (self.live_mut(), epoch) {
            (Some(live), Some(epoch)) if live.epoch == epoch => {
                live.verdict = Some(verdict);
                live.seen = now.stamp();
                // A run that reports a verdict is not stuck, and is watched again until its end.
                if let State::Stuck { .. } = self.state {
                    self.recover(true, now, buffer);
                }
                Outcome::Noted
            }
            (Some(live), Some(_)) => Outcome::Fenced(Some(live.epoch)),
            (Some(live), None) => Outcome::Busy(live.epoch),
            (None, Some(_)) => Outcome::Fenced(None),
            (None, None) => match verdict {
                _ if matches!(self.state, State::Landing { .. }) => Outcome::NotPending(self.status()),
                Verdict::NoChange { output } if !has_phases || self.state == State::Review => {
                    self.finish(TaskEnd::Success { output, warning: None }, None, now, buffer)
                }
                _ if has_phases => Outcome::HasPhases,
                // The queue decides whether the work is good.
                Verdict::Done { .. } if self.spec.land.is_some() && !self.status().is_over() => Outcome::MustLand,
                Verdict::Done { output } | Verdict::NoChange { output } => {
                    self.finish(TaskEnd::Success { output, warning: None }, None, now, buffer)
                }
                Verdict::Failed { error } => self.finish(TaskEnd::Failed { error }, None, now, buffer),
                // Only a run has these verdicts.
                Verdict::Ask { .. } | Verdict::Refused(_) | Verdict::Untrusted { .. } | Verdict::Agent(_) => Outcome::Late,
            },
        }
    }

    pub(super) fn stop(&mut self, after: After, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        match &self.state {
            State::Pending
            | State::Backoff { .. }
            | State::Held
            | State::Awaiting { .. }
            | State::AwaitingDecision { .. }
            | State::Manual { .. }
            | State::InPhases { .. }
            | State::Landing { .. }
            | State::Review => match after {
                After::Cancel => self.finish(TaskEnd::Cancelled, None, now, buffer),
                After::Fail { error } => self.finish(TaskEnd::Failed { error }, None, now, buffer),
                After::Escalate { .. } | After::Overtime { .. } | After::Restart | After::PutBack { .. } => {
                    Outcome::NotPending(self.status())
                }
            },
            State::Running(live) | State::Stuck { live, .. } => {
                let live = live.clone();
                self.emit(TaskFact::Stopping { run: live.run.clone(), then: after.clone() }, buffer);
                let at_once = after == After::PutBack { now: true };
                buffer.send(OutboxCommand::Kill { run: live.run.clone(), now: at_once });
                self.set_state(State::Stopping { live, since: now.stamp(), then: after }, now);
                Outcome::Stopping
            }
            State::Stopping { live, since, then } => {
                // A stronger request replaces a weaker one: a cancelled run is not restarted, and a run that is
                // cancelled while it is being failed does not complete because it reported success meanwhile.
                let (live, since, is_stronger) = (live.clone(), *since, after.precedence() > then.precedence());
                // An immediate end does not change what follows.
                let hurries = after == (After::PutBack { now: true }) && after != *then;
                let then = if is_stronger { after } else { then.clone() };
                if is_stronger || hurries {
                    self.emit(TaskFact::Stopping { run: live.run.clone(), then: then.clone() }, buffer);
                }
                if hurries {
                    buffer.send(OutboxCommand::Kill { run: live.run.clone(), now: true });
                }
                self.state = State::Stopping { live, since, then };
                Outcome::Stopping
            }
            State::Done(done) => Outcome::Over(done.status()),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "all that is known of the end of a run comes together here")]
    pub(super) fn end(
        &mut self,
        run: &RunId,
        ending: RunEnd,
        ran: Option<Span>,
        marker: Marker,
        children: u32,
        watch: &Watch,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Outcome {
        let Some(mut live) = self.live().filter(|live| live.run == *run).cloned() else { return Outcome::Late };
        let mut then = match &self.state {
            // It had ended in time, before the request reached it.
            State::Stopping { then: After::Overtime { max }, .. } if ran.is_some_and(|ran| ran <= *max) => None,
            State::Stopping { then: After::PutBack { .. }, .. } if ran.is_some() => None,
            State::Stopping { then, .. } => Some(then.clone()),
            _ => None,
        };
        if then == Some(After::Cancel) {
            return self.finish(TaskEnd::Cancelled, Some(live.run), now, buffer);
        }
        let agent = live.verdict.take_if(|verdict| matches!(verdict, Verdict::Agent(_)));
        // Once the run is being ended, the verdict of its agent does not count.
        if let (Some(Verdict::Agent(end)), None) = (agent, &then) {
            if let Some(outcome) = self.kept_from_working(&end, &ending, &live, watch, now, buffer) {
                return outcome;
            }
            live.verdict = self.verdict_of_agent(&end);
        }
        if let Some(After::PutBack { .. }) = then {
            let is_done = self.spec.restart.is_some() && marker != Marker::Absent;
            if live.verdict.is_none() && !is_done {
                return self.again(live.run, ending, RetryReason::Stopped, None, now, buffer);
            }
            // The verdict of the run itself counts.
            then = None;
        }
        if let (Some(Verdict::Ask { question, options }), None | Some(After::Overtime { .. } | After::Restart)) =
            (&live.verdict, &then)
        {
            return self.ask(live.run.clone(), question, options, now, buffer);
        }
        if let (Some(Verdict::Untrusted { error }), None | Some(After::Overtime { .. } | After::Restart)) = (&live.verdict, &then)
        {
            return self.await_trust(live.run.clone(), error.clone(), now, buffer);
        }
        match self.spec.restart.clone() {
            Some(policy) => self.end_of_attempt(&policy, then, live, ending, marker, children, watch, now, buffer),
            None => self.end_of_run(then, live, ending, watch, now, buffer),
        }
    }

    /// Ends a run of a task that is not a loop.
    fn end_of_run(
        &mut self,
        then: Option<After>,
        live: Live,
        ending: RunEnd,
        watch: &Watch,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Outcome {
        let run = Some(live.run.clone());
        match (then, live.verdict, ending) {
            // The verdict of the run takes precedence over its exit and over the request to stop it.
            (_, Some(Verdict::Done { output }), _) => self.succeed(output, None, false, run, now, buffer),
            (_, Some(Verdict::NoChange { output }), _) => self.succeed(output, None, true, run, now, buffer),
            (Some(After::Fail { error }), _, _) => self.finish(TaskEnd::Failed { error }, run, now, buffer),
            (Some(After::Escalate { error }), _, _) => self.park(live.run, error, buffer, now),
            (Some(After::Overtime { .. } | After::Restart) | None, Some(Verdict::Refused(refused)), ending) => {
                self.refused(&refused, ending, live.run, now, buffer)
            }
            // It never began, so nothing was tried.
            (Some(After::Overtime { .. } | After::Restart) | None, None, RunEnd::Never) => {
                self.again(live.run, RunEnd::Never, RetryReason::Never, None, now, buffer)
            }
            (Some(After::Overtime { .. } | After::Restart) | None, None, ending @ RunEnd::NotBegun { .. }) => {
                self.not_begun(ending, live.run, watch, now, buffer)
            }
            (Some(After::Overtime { max }), _, ending) => {
                let error = format!("it took longer than {max}");
                self.fail(Some(error.into()), RetryReason::Overtime, ending, live.run, now, buffer)
            }
            (Some(After::Restart), _, ending) => self.again_if(watch, RetryReason::Stuck, ending, live.run, now, buffer),
            (None, Some(Verdict::Failed { error }), ending) => {
                self.fail(Some(error), RetryReason::Failed, ending, live.run, now, buffer)
            }
            (None, None, RunEnd::Exited(0)) => self.succeed(None, None, false, run, now, buffer),
            (None, None, RunEnd::Lost) => self.again_if(watch, RetryReason::Lost, RunEnd::Lost, live.run, now, buffer),
            (None, None, ending @ (RunEnd::Exited(_) | RunEnd::Signalled(_) | RunEnd::NotStarted { .. })) => {
                self.fail(None, RetryReason::Failed, ending, live.run, now, buffer)
            }
            (Some(After::Cancel), _, _) => unreachable!("a cancelled run was handled before"),
            (Some(After::PutBack { .. }), _, _) => unreachable!("it was put back, or has said how it ended"),
            (None, Some(Verdict::Agent(_)), _) => unreachable!("it was replaced by the verdict that it means"),
            (None, Some(Verdict::Ask { .. }), _) => unreachable!("it waits for the answer"),
            (None, Some(Verdict::Untrusted { .. }), _) => unreachable!("it waits for trust"),
        }
    }

    /// Ends a run of a loop.
    #[expect(clippy::too_many_arguments, reason = "all that is known of the end of a run comes together here")]
    fn end_of_attempt(
        &mut self,
        policy: &Policy,
        then: Option<After>,
        live: Live,
        ending: RunEnd,
        marker: Marker,
        children: u32,
        watch: &Watch,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Outcome {
        let setback = match &then {
            _ if ending.is_not_begun() => None,
            Some(After::Restart) => Some(RetryReason::Stuck),
            Some(After::Overtime { .. }) => Some(RetryReason::Overtime),
            Some(After::Fail { .. } | After::Escalate { .. } | After::Cancel | After::PutBack { .. }) | None => None,
        };
        let fact = Fact::Ended { marker, verdict: live.verdict.clone(), ending: ending.clone(), setback };
        let no_change = matches!(live.verdict, Some(Verdict::NoChange { .. }));
        let said = live.verdict.and_then(Verdict::failure);
        match (policy.next(self.failures + 1, fact, now.lease), then) {
            (RetryDecision::Done { output }, _) => self.settle(output, no_change, Some(live.run), children, now, buffer),
            (_, Some(After::Fail { error })) => self.finish(TaskEnd::Failed { error }, Some(live.run), now, buffer),
            (_, Some(After::Escalate { error })) => self.park(live.run, error, buffer, now),
            (RetryDecision::Failed(error), _) => self.finish(TaskEnd::Failed { error }, Some(live.run), now, buffer),
            (RetryDecision::Restart(RetryReason::Never | RetryReason::Shortage), _)
                if matches!(ending, RunEnd::NotBegun { .. }) =>
            {
                self.not_begun(ending, live.run, watch, now, buffer)
            }
            (RetryDecision::Restart(setback), _) => {
                if setback == RetryReason::Stuck {
                    if self.recoveries >= watch.max_recoveries {
                        return self.exhausted(watch, setback, live.run, now, buffer);
                    }
                    self.recoveries += 1;
                }
                self.failures += u32::from(setback != RetryReason::Never);
                self.again(live.run, ending, setback, said, now, buffer);
                if setback != RetryReason::Never && policy.delay > Span::ZERO {
                    self.state = State::Backoff { until: now.lease + policy.delay };
                }
                Outcome::Again(setback)
            }
            (RetryDecision::Attempt | RetryDecision::Wait | RetryDecision::Settled { .. } | RetryDecision::KillChildren, _) => {
                unreachable!("the end of an attempt is none of these")
            }
        }
    }

    /// A run has failed, perhaps with an error of its own: the next one follows, if there are retries left.
    fn fail(
        &mut self,
        said: Option<Box<str>>,
        setback: RetryReason,
        ending: RunEnd,
        run: RunId,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Outcome {
        if self.failures >= self.spec.retries {
            let error = said.unwrap_or_else(|| ending.to_string().into());
            return self.finish(TaskEnd::Failed { error }, Some(run), now, buffer);
        }
        self.failures += 1;
        self.again(run, ending, setback, said, now, buffer)
    }

    /// A run had no result without having failed: the next one follows, if there are recoveries left.
    fn again_if(
        &mut self,
        watch: &Watch,
        setback: RetryReason,
        ending: RunEnd,
        run: RunId,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Outcome {
        if self.recoveries >= watch.max_recoveries {
            return self.exhausted(watch, setback, run, now, buffer);
        }
        self.recoveries += 1;
        self.again(run, ending, setback, None, now, buffer)
    }

    /// The session of a run could not begin, so nothing was tried. A shortage of the machine passes, and the runner
    /// waits for that. Other errors may pass: the next run follows after a growing backoff, if there are recoveries
    /// left.
    fn not_begun(&mut self, ending: RunEnd, run: RunId, watch: &Watch, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let RunEnd::NotBegun { error, is_shortage } = &ending else { unreachable!("it has not begun") };
        if *is_shortage {
            return self.again(run, ending, RetryReason::Shortage, None, now, buffer);
        }
        if self.recoveries >= watch.max_recoveries {
            return self.give_up_after(watch, error.clone(), run, now, buffer);
        }
        let delay = NOT_BEGUN_DELAY.as_ms() << self.recoveries.min(NOT_BEGUN_DOUBLINGS);
        self.recoveries += 1;
        self.again(run, ending, RetryReason::Never, None, now, buffer);
        self.state = State::Backoff { until: now.lease + Span::from_ms(delay) };
        Outcome::Again(RetryReason::Never)
    }

    /// The agent of a run was kept from working, by its account, its provider or a permission: that is not an attempt
    /// at the task. A limit of the account keeps it from starting until the end of the limit (see
    /// [`limit`](crate::agent::limit)); after other errors it is retried with a growing backoff, if there are
    /// recoveries left.
    fn kept_from_working(
        &mut self,
        end: &AgentEnd,
        ending: &RunEnd,
        live: &Live,
        watch: &Watch,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Option<Outcome> {
        let said = Some(end.text.clone()).filter(|text| !text.is_empty());
        if end.verdict == AgentVerdict::Refused {
            let error = format!("its agent was not permitted to go on: {}", end.text).into();
            return Some(self.park(live.run.clone(), error, buffer, now));
        }
        let why = RetryReason::of_agent(&end.verdict)?;
        let is_account = matches!(why, RetryReason::Quota | RetryReason::Auth);
        if !is_account && self.recoveries >= watch.max_recoveries {
            let error = format!("{}: {}", why.describe(ending), end.text).into();
            return Some(self.give_up_after(watch, error, live.run.clone(), now, buffer));
        }
        let delay = Span::from_ms(PROVIDER_DELAY.as_ms() << self.recoveries.min(PROVIDER_DOUBLINGS));
        self.recoveries += u32::from(!is_account);
        self.again(live.run.clone(), ending.clone(), why, said, now, buffer);
        if !is_account {
            self.state = State::Backoff { until: now.lease + delay };
        }
        Some(Outcome::Again(why))
    }

    /// The verdict that follows from the end of an agent that was not kept from working. A loop is over only when the
    /// run itself reports it.
    fn verdict_of_agent(&self, end: &AgentEnd) -> Option<Verdict> {
        match end.verdict {
            AgentVerdict::Ok if self.spec.restart.is_some() => None,
            AgentVerdict::Ok => Some(Verdict::Done { output: None }),
            _ if end.text.is_empty() => Some(Verdict::Failed { error: end.verdict.as_str().into() }),
            _ => Some(Verdict::Failed { error: format!("{}: {}", end.verdict.as_str(), end.text).into() }),
        }
    }

    /// A guard of its phase did not hold when the command was to start, so nothing was tried.
    fn refused(&mut self, refused: &Refused, ending: RunEnd, run: RunId, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        if refused.fails.is_some() {
            return self.finish(TaskEnd::Failed { error: refused.reason().into() }, Some(run), now, buffer);
        }
        self.again(run, ending, RetryReason::Guard, Some(refused.reason().into()), now, buffer);
        self.state = State::Held;
        Outcome::Again(RetryReason::Guard)
    }

    fn exhausted(&mut self, watch: &Watch, setback: RetryReason, run: RunId, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let why = match setback {
            RetryReason::Lost => "its session was lost",
            RetryReason::Failed
            | RetryReason::NoVerdict
            | RetryReason::Overtime
            | RetryReason::Stuck
            | RetryReason::Never
            | RetryReason::Shortage
            | RetryReason::Guard
            | RetryReason::Untrusted
            | RetryReason::Landing
            | RetryReason::Stopped => "it had to be restarted",
            RetryReason::Quota | RetryReason::Auth | RetryReason::Overloaded | RetryReason::Network | RetryReason::Hung => {
                "its agent could not work"
            }
        };
        self.give_up_after(watch, why.into(), run, now, buffer)
    }

    fn give_up_after(&mut self, watch: &Watch, why: Box<str>, run: RunId, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let error = format!("{why}; recoveries before that: {}", self.recoveries).into();
        match self.on_exhausted(watch) {
            OnExhausted::Escalate => self.park(run, error, buffer, now),
            OnExhausted::Fail => self.finish(TaskEnd::Failed { error }, Some(run), now, buffer),
        }
    }

    fn again(
        &mut self,
        run: RunId,
        ending: RunEnd,
        why: RetryReason,
        error: Option<Box<str>>,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Outcome {
        let (failures, recoveries) = (Some(self.failures), Some(self.recoveries));
        // A run that could not begin does not count, unless it reported a verdict.
        let is_uncounted =
            matches!((&ending, why), (RunEnd::NotBegun { .. }, RetryReason::Never | RetryReason::Shortage)) || why.is_uncounted();
        let attempts = is_uncounted.then(|| self.attempts.saturating_sub(1));
        self.attempts = attempts.unwrap_or(self.attempts);
        self.emit(TaskFact::Restarting { run, ending, why: Some(why), error, failures, recoveries, attempts }, buffer);
        self.set_state(State::Pending, now);
        Outcome::Again(why)
    }

    /// A person decides. The run is dead, so nothing is held meanwhile.
    fn park(&mut self, run: RunId, error: Box<str>, buffer: &mut EffectBuffer, now: &Now) -> Outcome {
        let question = Question::of_task(&self.id, &self.spec.title, &error);
        let decision = question.raise(Some(NoticeKind::Escalate), buffer);
        self.emit(TaskFact::Escalated { run, error, decision: decision.clone(), attempts: None }, buffer);
        self.set_state(State::AwaitingDecision { decision: decision.clone() }, now);
        Outcome::AwaitingDecision(decision)
    }

    /// Its agent was not started: a person checks what it would execute. That is not an attempt, and the task continues
    /// where it was.
    fn await_trust(&mut self, run: RunId, error: Box<str>, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        self.attempts = self.attempts.saturating_sub(1);
        let question = Question::of_trust(&self.id, &self.spec.title, &error);
        let decision = question.raise(Some(NoticeKind::Escalate), buffer);
        self.emit(TaskFact::Escalated { run, error, decision: decision.clone(), attempts: Some(self.attempts) }, buffer);
        self.set_state(State::AwaitingDecision { decision: decision.clone() }, now);
        Outcome::AwaitingDecision(decision)
    }

    /// Its run has a question: the task continues with the answer. No retry is used.
    fn ask(&mut self, run: RunId, question: &str, options: &[Box<str>], now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let asked = Question::of_run(&self.id, question, options);
        let decision = asked.raise(Some(NoticeKind::Decision), buffer);
        self.emit(TaskFact::Asked { run, question: question.into(), decision: decision.clone() }, buffer);
        self.set_state(State::AwaitingDecision { decision: decision.clone() }, now);
        Outcome::AwaitingDecision(decision)
    }

    /// Its own work is done.
    pub(super) fn settle(
        &mut self,
        output: Option<Value>,
        no_change: bool,
        run: Option<RunId>,
        children: u32,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Outcome {
        let wait = self.spec.restart.as_ref().map(|policy| policy.child_wait);
        match wait {
            Some(wait) if children > 0 => {
                self.emit(TaskFact::Awaiting { run, output: output.clone(), children, no_change }, buffer);
                self.set_state(State::Awaiting { output, until: Some(now.lease + wait), no_change }, now);
                Outcome::Awaiting(children)
            }
            _ => self.succeed(output, None, no_change, run, now, buffer),
        }
    }

    pub(super) fn settle_after_children(&mut self, children: u32, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let (State::Awaiting { output, until, no_change }, Some(policy)) = (&self.state, &self.spec.restart) else {
            return Outcome::NotPending(self.status());
        };
        let (output, no_change) = (output.clone(), *no_change);
        match policy.next(self.failures, Fact::Waiting { children, until: *until }, now.lease) {
            RetryDecision::Settled { warning } => self.succeed(output, warning, no_change, None, now, buffer),
            RetryDecision::Failed(error) => self.finish(TaskEnd::Failed { error }, None, now, buffer),
            RetryDecision::KillChildren => {
                self.emit(TaskFact::EndingChildren {}, buffer);
                self.state = State::Awaiting { output, until: None, no_change };
                Outcome::EndChildren
            }
            RetryDecision::Wait | RetryDecision::Attempt | RetryDecision::Restart(_) | RetryDecision::Done { .. } => {
                Outcome::Awaiting(children)
            }
        }
    }

    pub(super) fn finish(&mut self, done: TaskEnd, run: Option<RunId>, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        if let State::Done(done) = &self.state {
            return Outcome::Over(done.status());
        }
        let status = done.status();
        self.emit(
            match &done {
                TaskEnd::Success { output, warning } => {
                    TaskFact::Complete { run, output: output.clone(), warning: warning.clone() }
                }
                TaskEnd::Failed { error } => TaskFact::Failed { run, error: error.clone() },
                TaskEnd::Cancelled => TaskFact::Cancelled { run },
                TaskEnd::Skipped => TaskFact::Marked { status },
            },
            buffer,
        );
        // For a phase or an attempt at an item, the pipeline or the item decides what its failure means.
        if let TaskEnd::Failed { error } = &done
            && !self.spec.is_part()
        {
            let subject = format!("failed: {}", self.spec.title).into();
            buffer.send(OutboxCommand::Notify(Box::new(Notice { kind: NoticeKind::TaskFailed, subject, text: error.clone() })));
        }
        self.set_state(State::Done(done), now);
        Outcome::Ended(status)
    }
}
