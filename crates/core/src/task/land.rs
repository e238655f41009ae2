//! The landing of a task's work: into the merge queue, and out of it.

use super::*;
use crate::landing;
use crate::step::{Notice, NoticeKind};

impl Task {
    /// It is done. If it lands, its work goes into the merge queue, unless there is none.
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
        self.turn_into(State::Landing { output, warning }, now);
        Outcome::Landing
    }

    /// A person wants what is in its worktree to land.
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
                self.turn_into(State::Landing { output: None, warning: None }, now);
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
            // Which of its phases would have to go on, only a person can say.
            landing::LandingEnd::Returned(why) if self.has_phases() && !self.goes_back_to_a_phase() => {
                self.shelve(why.to_string().into(), now, buffer)
            }
            landing::LandingEnd::Returned(why) => {
                self.emit(TaskFact::SentBack { reason: why.to_string().into() }, buffer);
                self.turn_into(State::Pending, now);
                Outcome::Again(RetryReason::Landing)
            }
            landing::LandingEnd::Shelved { reason } => self.shelve(reason, now, buffer),
            landing::LandingEnd::Removed { .. } => self.enter_review(now, buffer),
        }
    }

    /// Whether it is a pipeline that says which phase goes on then.
    fn goes_back_to_a_phase(&self) -> bool {
        let Some(Work::Pipeline(plan)) = &self.spec.work else { return false };
        plan.land.as_ref().is_some_and(|land| land.returned.is_some())
    }

    /// A person looks at it, and is told why.
    fn shelve(&mut self, reason: Box<str>, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let subject = format!("review: {}", self.spec.title).into();
        buffer.send(OutboxCommand::Notify(Box::new(Notice { kind: NoticeKind::Escalate, subject, text: reason })));
        self.enter_review(now, buffer)
    }

    fn enter_review(&mut self, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        self.turn_into(State::Review, now);
        self.emit(TaskFact::Marked { status: Status::Review }, buffer);
        Outcome::Marked(Status::Review)
    }
}
