//! The task of a pipeline: it mirrors the status of its pipeline.

use super::*;

/// The status of the task of a pipeline, as the pipeline reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PipelineStatus {
    /// The pipeline goes through its phases.
    InPhases {
        /// Whether the pipeline is blocked.
        is_blocked: bool,
    },
    Over(TaskEnd),
}

impl Task {
    /// Takes over the status of its pipeline. A task that is over changes only if it has failed: a person retries the
    /// pipeline.
    pub(super) fn mirror_status(&mut self, status: PipelineStatus, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        match (status, &self.state) {
            _ if !self.has_phases() => Outcome::NotPending(self.status()),
            (PipelineStatus::Over(TaskEnd::Success { output, warning }), State::InPhases { .. } | State::Pending) => {
                self.succeed(output, warning, false, None, now, buffer)
            }
            (PipelineStatus::Over(done), State::InPhases { .. } | State::Pending) => self.finish(done, None, now, buffer),
            (PipelineStatus::InPhases { is_blocked }, State::InPhases { is_blocked: was }) if is_blocked == *was => {
                Outcome::Followed(self.status())
            }
            (
                PipelineStatus::InPhases { is_blocked },
                State::Pending | State::InPhases { .. } | State::Done(TaskEnd::Failed { .. }),
            ) => {
                self.emit(TaskFact::InPhases { is_blocked }, buffer);
                self.set_state(State::InPhases { is_blocked }, now);
                Outcome::Followed(self.status())
            }
            (_, _) => Outcome::NotPending(self.status()),
        }
    }
}
