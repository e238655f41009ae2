//! Replays pipelines: without title and plan, which are in the spec of the task, without the times on the lease clock,
//! and without the state that only runners need.

use std::collections::BTreeMap;

use super::Replay;
use crate::ids::TaskId;
use crate::pipeline::plan::{Bound, Plan};
use crate::pipeline::{Fact, Pipeline, Reason, State, remember, unknown_title};
use crate::step::Now;
use crate::time::Stamp;

impl Replay {
    pub(super) fn apply_to_pipeline(&mut self, id: TaskId, fact: Fact) {
        match fact {
            Fact::Created { context, given } => {
                let vars = Bound { context, given };
                let pipeline = Pipeline::new(id.clone(), unknown_title(), Plan::unknown(), vars, &Now::default());
                self.pipelines.insert(id, pipeline);
            }
            Fact::Deleted {} => drop(self.pipelines.remove(&id)),
            fact => drop(self.pipelines.get_mut(&id).map(|pipeline| pipeline.replay(fact))),
        }
    }
}

/// A pipeline as the log has it.
pub(super) fn timeless(pipeline: &Pipeline) -> Pipeline {
    Pipeline {
        title: unknown_title(),
        plan: Plan::unknown(),
        state: timeless_state(pipeline.state.clone()),
        phase_started: Stamp::default(),
        checker: None,
        recheck: None,
        overdue: None,
        retried: BTreeMap::new(),
        last_failure: None,
        ..pipeline.clone()
    }
}

impl Pipeline {
    fn replay(&mut self, fact: Fact) {
        match fact {
            Fact::Created { .. } | Fact::Deleted {} => unreachable!("they add and remove the entry"),
            Fact::Started {} | Fact::Unblocked { .. } | Fact::Warned { .. } | Fact::Fallback { .. } | Fact::Exhausted { .. } => {}
            Fact::Checking { phase, when, attempt } => {
                self.attempts.insert(phase.clone(), attempt);
                (self.state, self.attempt) = (State::Checking { phase, when }, attempt);
            }
            Fact::Blocked { phase, when, reason } => self.state = timeless_state(State::Blocked { phase, when, reason }),
            Fact::Phase { phase, attempt, approach, task, keeps } => {
                self.tasks += 1;
                self.is_keeping |= keeps;
                self.attempts.insert(phase.clone(), attempt);
                (self.state, self.attempt) = (State::Running { phase, approach, task }, attempt);
            }
            Fact::Resumed {} => {
                if let State::Blocked { phase, reason, .. } = &self.state {
                    let task = match reason {
                        Reason::Decision { approach, task, .. } => Some((*approach, task.clone())),
                        reason => reason.held().map(|held| (held.approach, held.task.clone())),
                    };
                    if let Some((approach, task)) = task {
                        self.state = State::Running { phase: phase.clone(), approach, task: Some(task) };
                    }
                }
            }
            Fact::PhaseFailed { phase, .. } => *self.failures.entry(phase).or_default() += 1,
            Fact::Set { vars } => self.context.extend(vars),
            Fact::Checkpoint(checkpoint) => remember(&mut self.checkpoints, checkpoint),
            Fact::Complete {} => self.state = State::Done,
            Fact::Failed { phase, error, recoverable } => self.state = State::Failed { phase, error, recoverable },
            Fact::Retry { .. } => self.failures.clear(),
            Fact::Cancelled { phase } => self.state = State::Cancelled { phase },
        }
    }
}

fn timeless_state(state: State) -> State {
    match state {
        State::Blocked { phase, when, reason } => State::Blocked { phase, when, reason: reason.timeless() },
        state => state,
    }
}
