//! Commands of people on a task: retry it, mark it, or work on it themselves.

use super::*;

impl Task {
    pub(super) fn retry(&mut self, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        match &self.state {
            _ if self.has_phases() => Outcome::HasPhases,
            State::Pending
            | State::Backoff { .. }
            | State::Held
            | State::Running(_)
            | State::Stuck { .. }
            | State::Stopping { .. }
            | State::Awaiting { .. }
            | State::InPhases { .. }
            | State::Landing { .. }
            | State::Manual { .. } => Outcome::NotPending(self.status()),
            State::AwaitingDecision { .. } | State::Review | State::Done(_) => {
                (self.failures, self.recoveries) = (0, 0);
                self.spec.paused = None;
                self.emit(TaskFact::Retried {}, buffer);
                self.set_state(State::Pending, now);
                Outcome::Clear
            }
        }
    }

    /// The question of its run was answered.
    pub(super) fn answer(&mut self, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let State::AwaitingDecision { decision } = &self.state else { return Outcome::NotPending(self.status()) };
        self.emit(TaskFact::Answered { decision: decision.clone() }, buffer);
        self.set_state(State::Pending, now);
        Outcome::Clear
    }

    pub(super) fn mark(&mut self, mark: Mark, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        match &self.state {
            _ if self.has_phases() => Outcome::HasPhases,
            State::Running(live) | State::Stuck { live, .. } | State::Stopping { live, .. } => Outcome::Busy(live.epoch),
            State::Awaiting { .. } | State::InPhases { .. } | State::Landing { .. } => Outcome::NotPending(self.status()),
            // A task that others may have waited for stays as it is, until a retry.
            State::Done(done) => Outcome::Over(done.status()),
            State::Pending
            | State::Backoff { .. }
            | State::Held
            | State::AwaitingDecision { .. }
            | State::Manual { .. }
            | State::Review => {
                let state = match mark {
                    Mark::Skipped => State::Done(TaskEnd::Skipped),
                    Mark::Review => State::Review,
                };
                self.set_state(state, now);
                self.emit(TaskFact::Marked { status: self.status() }, buffer);
                Outcome::Marked(self.status())
            }
        }
    }

    /// A person has its lock, and works on it from now on.
    pub(super) fn take(
        &mut self,
        holder: HolderId,
        epoch: Epoch,
        until: Option<Lease>,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Outcome {
        match &self.state {
            _ if self.has_phases() => Outcome::HasPhases,
            State::Running(live) | State::Stuck { live, .. } | State::Stopping { live, .. } => Outcome::Busy(live.epoch),
            State::Awaiting { .. } | State::InPhases { .. } | State::Landing { .. } => Outcome::NotPending(self.status()),
            State::Done(done) => Outcome::Over(done.status()),
            // It is taken again by its holder, or the lock was renewed.
            State::Manual { epoch: current, .. } if *current == epoch => {
                self.state = State::Manual { holder, epoch, until };
                Outcome::Taken
            }
            State::Pending
            | State::Backoff { .. }
            | State::Held
            | State::AwaitingDecision { .. }
            | State::Manual { .. }
            | State::Review => {
                // The next run starts with all retries and recoveries.
                (self.failures, self.recoveries) = (0, 0);
                self.emit(TaskFact::Taken { holder: holder.clone(), epoch }, buffer);
                self.set_state(State::Manual { holder, epoch, until }, now);
                Outcome::Taken
            }
        }
    }

    pub(super) fn give_back(&mut self, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let State::Manual { .. } = self.state else { return Outcome::NotPending(self.status()) };
        self.emit(TaskFact::Returned {}, buffer);
        self.set_state(State::Pending, now);
        Outcome::Returned
    }
}
