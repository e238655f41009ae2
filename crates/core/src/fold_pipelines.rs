//! What the log says of pipelines.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Folded;
use crate::ids::{Name, TaskId};
use crate::pipeline::{Checkpoint, Fact, Pipeline, Reason, State, remember};
use crate::plan::Context;

/// A pipeline, without the moments of the lease clock. This is stored: a new field needs a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Going {
    state: State,
    attempt: u32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    context: Context,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    checkpoints: Vec<Checkpoint>,
    tasks: u32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    failures: BTreeMap<Name, u32>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    attempts: BTreeMap<Name, u32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_keeping: bool,
}

impl Folded {
    pub(super) fn apply_to_pipeline(&mut self, id: TaskId, fact: Fact) {
        match fact {
            Fact::Created { context } => drop(self.pipelines.insert(id, Going::new(context))),
            Fact::Deleted {} => drop(self.pipelines.remove(&id)),
            fact => drop(self.pipelines.get_mut(&id).map(|going| going.apply(fact))),
        }
    }
}

impl Going {
    fn new(context: Context) -> Going {
        let (failures, attempts) = (BTreeMap::new(), BTreeMap::new());
        let is_keeping = false;
        Going { state: State::Init, attempt: 1, context, checkpoints: Vec::new(), tasks: 0, failures, attempts, is_keeping }
    }

    pub(super) fn of(pipeline: &Pipeline) -> Going {
        Going {
            state: timeless(pipeline.state.clone()),
            attempt: pipeline.attempt,
            context: pipeline.context.clone(),
            checkpoints: pipeline.checkpoints.clone(),
            tasks: pipeline.tasks,
            failures: pipeline.failures.clone(),
            attempts: pipeline.attempts.clone(),
            is_keeping: pipeline.is_keeping,
        }
    }

    fn apply(&mut self, fact: Fact) {
        match fact {
            Fact::Created { .. } | Fact::Deleted {} => unreachable!("they make and remove the whole entry"),
            Fact::Started {} | Fact::Unblocked { .. } | Fact::Warned { .. } | Fact::Fallback { .. } | Fact::Exhausted { .. } => {}
            Fact::Checking { phase, when, attempt } => {
                self.attempts.insert(phase.clone(), attempt);
                (self.state, self.attempt) = (State::Checking { phase, when }, attempt);
            }
            Fact::Blocked { phase, when, reason } => self.state = timeless(State::Blocked { phase, when, reason }),
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

    pub(super) fn fields(&self) -> [(&'static str, String); 6] {
        [
            ("state", format!("{:?}", self.state)),
            ("attempt", format!("{} ({} tasks), of all {:?}", self.attempt, self.tasks, self.attempts)),
            ("is_keeping", self.is_keeping.to_string()),
            ("context", format!("{:?}", self.context)),
            ("checkpoints", format!("{:?}", self.checkpoints)),
            ("failures", format!("{:?}", self.failures)),
        ]
    }
}

fn timeless(state: State) -> State {
    match state {
        State::Blocked { phase, when, reason } => State::Blocked { phase, when, reason: reason.timeless() },
        state => state,
    }
}
