//! How guards stop a pipeline: before a phase is claimed, at the claim, and when they have not held for too long.

use super::*;

impl Pipeline {
    /// The task that a guard keeps from starting.
    pub(super) fn held(&self) -> Option<&Held> {
        match &self.state {
            State::Blocked { reason, .. } => reason.held(),
            _ => None,
        }
    }

    pub(super) fn refuted(
        &mut self,
        task: &TaskId,
        verdict: GuardsResult,
        at: Seq,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Outcome {
        let State::Running { phase, approach, task: Some(current) } = &self.state else { return Outcome::Late };
        if current != task {
            return Outcome::Late;
        }
        let index = self.plan.index(phase).expect("it is in a phase of its plan");
        let held = Some(Held { task: task.clone(), approach: *approach });
        self.stop_at(index, When::Pre, held, verdict, at, now, buffer)
    }

    /// The guards on one side of a phase do not pass.
    #[expect(clippy::too_many_arguments, reason = "they are the place and the result")]
    pub(super) fn stop_at(
        &mut self,
        index: usize,
        when: When,
        held: Option<Held>,
        verdict: GuardsResult,
        at: Seq,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Outcome {
        let (guard, part, again, asks_outside) = match verdict {
            GuardsResult::Pass { .. } => return Outcome::Noted,
            GuardsResult::Fail { guard, message, part } => {
                return self.failed_by_guard(index, format!("{message} (guard {guard}: {part})").into(), now, buffer);
            }
            GuardsResult::Block { guard, part, again, asks_outside } => (guard, part, again, asks_outside),
        };
        let phase = self.at(index).name.clone();
        let is_new = !matches!(self.state, State::Blocked { reason: Reason::Guard { .. }, .. });
        // The deadline is cleared once people were notified of a wait for the store. Waits for the world outside have
        // deadlines of their own.
        let was_notified = self.overdue.is_none();
        if is_new || was_notified && asks_outside {
            self.overdue = Some(now.lease + self.at(index).blocked_timeout());
        }
        let mut notifies = false;
        if self.overdue.is_some_and(|overdue| overdue <= now.lease) {
            // A release in the store is reported by an event. But a pipeline that waits after a phase still holds the
            // resources of that phase.
            if asks_outside || when == When::Post {
                return self.waited_too_long(index, when, held, guard, part, now, buffer);
            }
            self.overdue = None;
            notifies = true;
        }
        // Only news is recorded: the time of the next check is not.
        let is_same = matches!(&self.state, State::Blocked { reason: Reason::Guard { guard: old, part: was, .. }, .. }
            if (old, was) == (&guard, &part));
        let reason = Reason::Guard { guard, part, at, again, rest: now.lease + REST, looked: now.wall, held };
        if is_same && !notifies {
            self.state = State::Blocked { phase, when, reason };
            return Outcome::Blocked;
        }
        let outcome = self.block(phase, when, reason, buffer);
        // A notification belongs to the event before it.
        if notifies {
            self.notify_overdue(index, buffer);
        }
        outcome
    }

    /// A guard fails the phase: the runbook says what follows. If it says nothing, the failure is final.
    pub(super) fn failed_by_guard(&mut self, index: usize, error: Box<str>, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        match self.has_follow_up(index) {
            true => self.follow_up(index, error, now, buffer),
            false => self.fail(self.at(index).name.clone(), error, false, buffer),
        }
    }

    /// A guard has not held for too long: the phase has failed, and if nothing follows from that, a person is asked.
    #[expect(clippy::too_many_arguments, reason = "they are the place and the result")]
    fn waited_too_long(
        &mut self,
        index: usize,
        when: When,
        held: Option<Held>,
        guard: Name,
        part: Box<str>,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Outcome {
        let waited = self.at(index).blocked_timeout();
        let reason = format!("guard {guard}: {part}");
        self.overdue = None;
        if self.has_follow_up(index) {
            return self.follow_up(index, format!("blocked for {waited}: {reason}").into(), now, buffer);
        }
        let phase = self.at(index).name.clone();
        let decision = Question::of_guard(&self.id, &phase, &reason, waited).raise(Some(NoticeKind::Decision), buffer);
        self.block(phase, when, Reason::Overdue { guard, part, decision, held }, buffer)
    }

    fn notify_overdue(&self, index: usize, buffer: &mut EffectBuffer) {
        let State::Blocked { reason: Reason::Guard { guard, part, .. }, .. } = &self.state else { return };
        let (id, phase, waited) = (&self.id, &self.at(index).name, self.at(index).blocked_timeout());
        let subject = format!("blocked: {id}").into();
        let text = format!("Phase {phase} of {id} has been blocked for {waited}: guard {guard}: {part}").into();
        buffer.send(OutboxCommand::Notify(Box::new(Notice { kind: NoticeKind::Escalate, subject, text })));
    }

    /// A person wants to wait for an overdue guard once more: the guard is checked at once.
    pub(super) fn wait_again(&mut self, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let State::Blocked { phase, when, reason: Reason::Overdue { guard, part, held, .. } } = self.state.clone() else {
            return Outcome::Late;
        };
        let index = self.plan.index(&phase).expect("it is in a phase of its plan");
        self.overdue = Some(now.lease + self.at(index).blocked_timeout());
        let at = Seq(now.seq.0 - 1);
        let reason = Reason::Guard { guard, part, at, again: now.lease, rest: now.lease, looked: now.wall, held };
        self.block(phase, when, reason, buffer)
    }

    pub(super) fn give_up(&mut self, buffer: &mut EffectBuffer) -> Outcome {
        let State::Blocked { phase, reason: Reason::Overdue { guard, part, .. }, .. } = &self.state else {
            return Outcome::Late;
        };
        let (phase, error) = (phase.clone(), format!("guard {guard}: {part}").into());
        self.fail(phase, error, true, buffer)
    }
}
