//! The landing of a task's work: into the merge queue, and out of it.

use super::*;
use crate::landing;
use crate::step::{Notice, NoticeKind};

impl Task {
    /// The task is done. If its work lands, it goes into the merge queue, unless there is nothing to land.
    pub(super) fn succeed(
        &mut self,
        output: Option<Value>,
        warning: Option<Box<str>>,
        no_change: bool,
        run: Option<RunId>,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Outcome {
        if self.spec.land.is_none() || no_change {
            return self.finish(TaskEnd::Success { output, warning }, run, now, buffer);
        }
        self.emit(TaskFact::Landing { run, output: output.clone(), warning: warning.clone() }, buffer);
        self.set_state(State::Landing { output, warning }, now);
        Outcome::Landing
    }

    /// A person lands the contents of its worktree.
    pub(super) fn land_as_it_is(&mut self, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        match &self.state {
            State::Running(live) | State::Stuck { live, .. } | State::Stopping { live, .. } => Outcome::Busy(live.epoch),
            State::InPhases { .. } => Outcome::HasPhases,
            State::Held | State::Awaiting { .. } | State::Landing { .. } => Outcome::NotPending(self.status()),
            State::Done(TaskEnd::Success { .. }) => Outcome::Over(self.status()),
            State::Pending if self.has_phases() => Outcome::HasPhases,
            State::Pending
            | State::Backoff { .. }
            | State::AwaitingDecision { .. }
            | State::Manual { .. }
            | State::Review
            | State::Done(TaskEnd::Failed { .. } | TaskEnd::Cancelled | TaskEnd::Skipped) => {
                self.emit(TaskFact::Landing { run: None, output: None, warning: None }, buffer);
                self.set_state(State::Landing { output: None, warning: None }, now);
                Outcome::Landing
            }
        }
    }

    /// Its entry has left the queue.
    pub(super) fn landing_ended(&mut self, end: landing::LandingEnd, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let State::Landing { output, warning } = &self.state else { return Outcome::NotPending(self.status()) };
        let (output, warning) = (output.clone(), warning.clone());
        match end {
            landing::LandingEnd::Landed { .. } => self.finish(TaskEnd::Success { output, warning }, None, now, buffer),
            landing::LandingEnd::NoChange { .. } => {
                let warning = warning.or_else(|| Some("the target had all of its work already".into()));
                self.finish(TaskEnd::Success { output, warning }, None, now, buffer)
            }
            // Only a person can say which of its phases to repeat.
            landing::LandingEnd::Returned(why) if self.has_phases() && !self.goes_back_to_a_phase() => {
                self.shelve(why.to_string().into(), now, buffer)
            }
            landing::LandingEnd::Returned(why) => {
                self.emit(TaskFact::SentBack { reason: why.to_string().into() }, buffer);
                self.set_state(State::Pending, now);
                Outcome::Again(RetryReason::Landing)
            }
            landing::LandingEnd::Shelved { reason } => self.shelve(reason, now, buffer),
            landing::LandingEnd::Removed { .. } => self.enter_review(now, buffer),
        }
    }

    /// Whether it is a pipeline whose plan names the phase for returned work.
    fn goes_back_to_a_phase(&self) -> bool {
        let Some(Work::Pipeline(plan)) = &self.spec.work else { return false };
        plan.land.as_ref().is_some_and(|land| land.returned.is_some())
    }

    /// A person reviews it, and is notified of the reason.
    fn shelve(&mut self, reason: Box<str>, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let subject = format!("review: {}", self.spec.title).into();
        buffer.send(OutboxCommand::Notify(Box::new(Notice { kind: NoticeKind::Escalate, subject, text: reason })));
        self.enter_review(now, buffer)
    }

    fn enter_review(&mut self, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        self.set_state(State::Review, now);
        self.emit(TaskFact::Marked { status: Status::Review }, buffer);
        Outcome::Marked(Status::Review)
    }
}
