//! How a pipeline goes from phase to phase.

use super::*;
use crate::pipeline::strategy::{self, Strategy};

impl Pipeline {
    pub(super) fn start(&mut self, unmet: bool, buffer: &mut EffectBuffer) -> Outcome {
        if self.state != State::Init {
            return Outcome::Late;
        }
        self.emit(Fact::Created { context: self.context.clone(), given: self.given.clone() }, buffer);
        if !unmet {
            return Outcome::Noted;
        }
        let phase = self.plan.phases[0].name.clone();
        self.block(phase, When::Pre, Reason::Dependencies, buffer)
    }

    pub(super) fn begin(&mut self, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        self.emit(Fact::Started {}, buffer);
        self.enter(0, now, buffer)
    }

    /// A phase begins, for the first time or after others.
    fn enter(&mut self, index: usize, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        self.phase_started = now.stamp();
        self.approach_phase(index, buffer)
    }

    /// An attempt at a phase begins with its guards, if it has some.
    fn approach_phase(&mut self, index: usize, buffer: &mut EffectBuffer) -> Outcome {
        let phase = self.at(index).name.clone();
        // An attempt without an event does not count.
        if self.tasks >= TASK_LIMIT {
            return self.too_many(phase, buffer);
        }
        // Every run counts as an attempt, also the retries of its task.
        let more = self.retried.remove(&phase).unwrap_or_default().saturating_add(1);
        let attempts = self.attempts.entry(phase.clone()).or_default();
        *attempts = attempts.saturating_add(more);
        (self.attempt, self.recheck) = (*attempts, None);
        match self.at(index).pre.is_empty() {
            true => self.begin_action(index, 0, buffer),
            false => self.check_guards(phase, When::Pre, buffer),
        }
    }

    fn too_many(&mut self, phase: Name, buffer: &mut EffectBuffer) -> Outcome {
        let error = format!("its phases have had {TASK_LIMIT} tasks: it seems to go round in circles");
        self.fail(phase, error.into(), false, buffer)
    }

    pub(super) fn check_guards(&mut self, phase: Name, when: When, buffer: &mut EffectBuffer) -> Outcome {
        self.emit(Fact::Checking { phase: phase.clone(), when, attempt: self.attempt }, buffer);
        self.state = State::Checking { phase, when };
        Outcome::Check
    }

    pub(super) fn block(&mut self, phase: Name, when: When, reason: Reason, buffer: &mut EffectBuffer) -> Outcome {
        self.emit(Fact::Blocked { phase: phase.clone(), when, reason: reason.timeless() }, buffer);
        self.state = State::Blocked { phase, when, reason };
        Outcome::Blocked
    }

    /// The work of a phase begins.
    fn begin_action(&mut self, index: usize, approach: u32, buffer: &mut EffectBuffer) -> Outcome {
        let phase = self.at(index).name.clone();
        let is_push = matches!(self.at(index).action, Action::Push(_));
        if self.tasks >= TASK_LIMIT {
            return self.too_many(phase, buffer);
        }
        self.tasks += 1;
        let task = (!is_push).then(|| self.child());
        let keeps = self.at(index).keeps;
        self.is_keeping |= keeps;
        self.emit(Fact::Phase { phase: phase.clone(), attempt: self.attempt, approach, task: task.clone(), keeps }, buffer);
        self.state = State::Running { phase, approach, task: task.clone() };
        task.map_or(Outcome::Push, Outcome::Begin)
    }

    /// The id of its newest task.
    fn child(&self) -> TaskId {
        phase_task(&self.id, self.tasks)
    }

    /// A runner wants to check its guards. Events from here on may change the result that it will find; and should it
    /// find none, another runner is to check at once.
    pub(super) fn begin_check(&mut self, by: RunnerId, is_free: bool, heard: Seq, now: &Now) -> Outcome {
        let is_due = self.next_deadline().is_some_and(|due| due <= now.lease);
        let has_run_since = self.knows().is_some_and(|at| at < heard);
        if !(is_due || has_run_since) || self.guards().is_empty() || self.checker.is_some() && !is_free {
            return Outcome::Late;
        }
        if let State::Blocked { reason: Reason::Guard { again, rest, .. }, .. } = &mut self.state
            && !is_due
            && now.lease < *rest
        {
            *again = (*again).min(*rest);
            return Outcome::Noted;
        }
        self.checker = Some(by);
        if let State::Blocked { reason: Reason::Guard { at, again, .. }, .. } = &mut self.state {
            (*at, *again) = (Seq(now.seq.0 - 1), now.lease);
        }
        Outcome::Check
    }

    pub(super) fn checked(
        &mut self,
        phase: &Name,
        when: When,
        verdict: GuardsResult,
        at: Seq,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Outcome {
        let is_awaited = match &self.state {
            State::Checking { phase: at, when: side }
            | State::Blocked { phase: at, when: side, reason: Reason::Guard { .. } } => (at, *side) == (phase, when),
            _ => false,
        };
        let Some(index) = self.plan.index(phase).filter(|_| is_awaited) else { return Outcome::Late };
        match verdict {
            GuardsResult::Pass { warnings, recheck } => {
                for (guard, part) in warnings {
                    self.emit(Fact::Warned { guard, part }, buffer);
                }
                self.recheck = recheck;
                self.pass(index, when, now, buffer)
            }
            GuardsResult::Block { .. } | GuardsResult::Fail { .. } => {
                let held = self.held().cloned();
                self.stop_at(index, when, held, verdict, at, now, buffer)
            }
        }
    }

    /// The guards on this side of a phase do not block it.
    pub(super) fn pass(&mut self, index: usize, when: When, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        match (when, self.held().cloned()) {
            (When::Pre, Some(Held { task, approach })) => {
                let (phase, task) = (self.at(index).name.clone(), Some(task));
                self.emit(Fact::Resumed {}, buffer);
                self.state = State::Running { phase, approach, task };
                Outcome::Noted
            }
            (When::Pre, None) => {
                // The time before the phase does not count as time in it.
                self.phase_started = now.stamp();
                self.begin_action(index, 0, buffer)
            }
            (When::Post, _) => self.leave(index, now, buffer),
        }
    }

    /// A phase is over: the next one, or the end.
    fn leave(&mut self, index: usize, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let next = match &self.at(index).then {
            After::Next => Some(index + 1).filter(|next| *next < self.plan.phases.len()),
            After::Phase(name) => self.plan.index(name),
            After::Done => None,
        };
        match next {
            Some(next) => self.enter(next, now, buffer),
            None => {
                self.emit(Fact::Complete {}, buffer);
                self.state = State::Done;
                Outcome::Over
            }
        }
    }

    /// Its work did not land: it continues with the phase that its plan names.
    pub(super) fn returned(&mut self, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let phase = self.plan.land.as_ref().and_then(|land| self.plan.index(land.returned.as_ref()?));
        match (&self.state, phase) {
            (State::Done, Some(index)) => self.enter(index, now, buffer),
            _ => Outcome::Late,
        }
    }

    /// The work of a phase is done.
    fn complete(&mut self, index: usize, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let phase = self.at(index);
        match phase.post.is_empty() {
            true => self.leave(index, now, buffer),
            false => self.check_guards(phase.name.clone(), When::Post, buffer),
        }
    }

    pub(super) fn ended(&mut self, task: &TaskId, end: PhaseEnd, runs: u32, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let approach = match &self.state {
            State::Running { approach, task: Some(current), .. }
            | State::Blocked { reason: Reason::Decision { approach, task: current, .. }, .. }
                if current == task =>
            {
                *approach
            }
            _ => match self.held() {
                Some(held) if held.task == *task => held.approach,
                Some(_) | None => return Outcome::Late,
            },
        };
        let phase = self.current().clone();
        let index = self.plan.index(&phase).expect("it is in a phase of its plan");
        *self.retried.entry(phase.clone()).or_default() += runs.saturating_sub(1);
        match end {
            PhaseEnd::Success { output } => {
                self.keep_output(index, output, now, buffer);
                self.complete(index, now, buffer)
            }
            PhaseEnd::Failed { error, tail, timed_out } => {
                self.task_failed(index, approach, error, &tail, timed_out, now, buffer)
            }
            PhaseEnd::Refused { error } => self.failed_by_guard(index, error, now, buffer),
            PhaseEnd::Dropped { how } => self.fail(phase, format!("its task was {how}").into(), true, buffer),
        }
    }

    /// The task of a phase has failed: the next approach follows, if the phase has a strategy and falls back on this
    /// error.
    #[expect(clippy::too_many_arguments, reason = "they are what is known of the end")]
    fn task_failed(
        &mut self,
        index: usize,
        approach: u32,
        error: Box<str>,
        tail: &str,
        timed_out: bool,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Outcome {
        let Action::Strategy { name, approaches } = &self.at(index).action else { return self.failed(index, error, now, buffer) };
        let strategy = Strategy { name: name.clone(), approaches: approaches.clone(), current: approach as usize };
        let name = name.clone();
        let details = format!("{error}\n{tail}").into();
        match strategy.step(strategy::Input::Failed { error: details, timed_out }).outcome {
            strategy::Outcome::TryNext { index: next, from, to, .. } => {
                self.emit(Fact::Fallback { strategy: name, from, to, error }, buffer);
                self.begin_action(index, u32::try_from(next).unwrap_or(u32::MAX), buffer)
            }
            strategy::Outcome::Exhausted { at, .. } => {
                self.emit(Fact::Exhausted { strategy: name, approach: at, error: error.clone() }, buffer);
                self.failed(index, error, now, buffer)
            }
            strategy::Outcome::Success { .. } => unreachable!("it has failed"),
        }
    }

    /// A phase has failed: the runbook says what follows.
    fn failed(&mut self, index: usize, error: Box<str>, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        match self.has_follow_up(index) {
            true => self.follow_up(index, error, now, buffer),
            false => self.fail(self.at(index).name.clone(), error, true, buffer),
        }
    }

    /// Whether the runbook says what follows the failure of a phase, and its limit is not reached.
    pub(super) fn has_follow_up(&self, index: usize) -> bool {
        let Phase { name, on_fail, .. } = self.at(index);
        let failures = self.failures.get(name).copied().unwrap_or(0);
        match on_fail {
            OnFail::Retry { times } | OnFail::Phase { times, .. } => failures < *times,
            OnFail::Fail => false,
        }
    }

    /// A phase has failed, and the pipeline continues.
    pub(super) fn follow_up(&mut self, index: usize, error: Box<str>, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let phase = self.at(index).name.clone();
        self.last_failure = Some(LastFailure { error: error.clone(), tasks: self.tasks });
        self.emit(Fact::PhaseFailed { phase: phase.clone(), error }, buffer);
        *self.failures.entry(phase).or_default() += 1;
        match self.at(index).on_fail.clone() {
            OnFail::Phase { to, .. } => {
                let to = self.plan.index(&to).expect("a plan leads to phases that it has");
                self.enter(to, now, buffer)
            }
            OnFail::Retry { .. } | OnFail::Fail => self.approach_phase(index, buffer),
        }
    }

    pub(super) fn fail(&mut self, phase: Name, error: Box<str>, recoverable: bool, buffer: &mut EffectBuffer) -> Outcome {
        self.emit(Fact::Failed { phase: phase.clone(), error: error.clone(), recoverable }, buffer);
        self.state = State::Failed { phase, error, recoverable };
        Outcome::Over
    }

    pub(super) fn awaits_decision(&mut self, task: &TaskId, decision: Option<DecisionId>, buffer: &mut EffectBuffer) -> Outcome {
        match (&self.state, decision) {
            (State::Running { phase, approach, task: Some(current) }, Some(decision)) if current == task => {
                let reason = Reason::Decision { decision, approach: *approach, task: task.clone() };
                self.block(phase.clone(), When::Post, reason, buffer)
            }
            (State::Blocked { phase, reason: Reason::Decision { approach, task: current, .. }, .. }, None) if current == task => {
                let (phase, approach, task) = (phase.clone(), *approach, Some(task.clone()));
                self.emit(Fact::Resumed {}, buffer);
                self.state = State::Running { phase, approach, task };
                Outcome::Noted
            }
            _ => Outcome::Late,
        }
    }

    pub(super) fn pushed(&mut self, phase: &Name, error: Option<Box<str>>, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        match &self.state {
            State::Running { phase: current, task: None, .. } if current == phase => {
                let index = self.plan.index(phase).expect("it is in a phase of its plan");
                match error {
                    None => self.complete(index, now, buffer),
                    Some(error) => self.failed(index, error, now, buffer),
                }
            }
            _ => Outcome::Late,
        }
    }

    /// The result of a guard may have changed: the guard is checked again at once.
    pub(super) fn poll(&mut self, now: &Now) -> Outcome {
        match &mut self.state {
            State::Blocked { reason: Reason::Guard { again, .. }, .. } => {
                *again = now.lease;
                Outcome::Check
            }
            _ => Outcome::Late,
        }
    }

    pub(super) fn unblock(&mut self, by: Option<Box<str>>, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        match &self.state {
            State::Blocked { reason: Reason::Dependencies, phase, when } => {
                self.emit(Fact::Unblocked { phase: phase.clone(), when: *when, by }, buffer);
                self.begin(now, buffer)
            }
            State::Blocked { reason: Reason::Decision { decision, .. }, .. } => {
                Outcome::Refused(Refusal::Undecided(decision.clone()))
            }
            State::Checking { phase, when }
            | State::Blocked { phase, when, reason: Reason::Guard { .. } | Reason::Overdue { .. } } => {
                let (index, when) = (self.plan.index(phase).expect("it is in a phase of its plan"), *when);
                self.emit(Fact::Unblocked { phase: phase.clone(), when, by }, buffer);
                self.recheck = None;
                self.pass(index, when, now, buffer)
            }
            State::Done | State::Failed { .. } | State::Cancelled { .. } => Outcome::Refused(Refusal::Over),
            State::Init | State::Running { .. } => Outcome::Refused(Refusal::NotBlocked),
        }
    }

    pub(super) fn retry(&mut self, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        match &self.state {
            State::Failed { recoverable: false, .. } => Outcome::Refused(Refusal::NotRecoverable),
            State::Failed { phase, error, .. } => {
                self.last_failure = Some(LastFailure { error: error.clone(), tasks: self.tasks });
                let phase = phase.clone();
                let index = self.plan.index(&phase).expect("it failed in a phase of its plan");
                self.emit(Fact::Retry { phase }, buffer);
                self.failures.clear();
                self.phase_started = now.stamp();
                self.approach_phase(index, buffer)
            }
            State::Init
            | State::Checking { .. }
            | State::Blocked { .. }
            | State::Running { .. }
            | State::Done
            | State::Cancelled { .. } => Outcome::Refused(Refusal::NotFailed),
        }
    }

    /// Whether it is over for good. A failed pipeline may be retried.
    fn is_final(&self) -> bool {
        matches!(self.state, State::Done | State::Cancelled { .. })
    }

    pub(super) fn add_checkpoint(&mut self, message: Box<str>, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        if self.is_final() {
            return Outcome::Refused(Refusal::Over);
        }
        let checkpoint = Checkpoint { phase: self.phase().cloned(), message, at: now.wall };
        self.emit(Fact::Checkpoint(checkpoint.clone()), buffer);
        remember(&mut self.checkpoints, checkpoint);
        Outcome::Noted
    }

    pub(super) fn set(&mut self, vars: Context, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        if self.is_final() {
            return Outcome::Refused(Refusal::Over);
        }
        let named = vars.keys().try_for_each(|name| plan::check_name(name));
        match named.and_then(|()| self.merge(vars, buffer)) {
            Ok(()) => {
                // With other variables a guard may ask other questions, which the collected results do not answer.
                self.recheck.iter_mut().for_each(|recheck| recheck.fresh_until = Lease(0));
                self.poll(now);
                Outcome::Noted
            }
            Err(error) => Outcome::Refused(Refusal::Unbound(error)),
        }
    }

    pub(super) fn merge(&mut self, vars: Context, buffer: &mut EffectBuffer) -> Result<(), BindError> {
        let news: Context = vars.into_iter().filter(|(name, value)| self.context.get(name) != Some(value)).collect();
        if news.is_empty() {
            return Ok(());
        }
        let mut context = self.context.clone();
        context.extend(news.clone());
        plan::fits(&context)?;
        self.context = context;
        self.emit(Fact::Set { vars: news }, buffer);
        Ok(())
    }

    pub(super) fn at(&self, index: usize) -> &Phase {
        &self.plan.phases[index]
    }
}

/// The id of a task of a pipeline. The tasks are counted from 1.
pub fn phase_task(pipeline: &TaskId, number: u32) -> TaskId {
    TaskId::new(&format!("{pipeline}.{number}")).expect("the id of a pipeline leaves room for a number")
}
