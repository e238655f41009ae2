//! What can happen to a pipeline, as the event log keeps it.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::{CHECKPOINT_LIMIT, Checkpoint, Reason, When};
use crate::ids::{Name, TaskId};
use crate::pipeline::plan::Context;

/// What can happen to a pipeline. The variants are the second words of the events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase")]
#[strum(serialize_all = "snake_case", prefix = "pipeline:")]
pub enum Fact {
    Created {
        /// The variables that it begins with.
        #[serde(default, skip_serializing_if = "Context::is_empty")]
        context: Context,
    },
    Started {},
    /// The guards of a phase are to be looked at.
    Checking {
        phase: Name,
        /// On which side.
        when: When,
        /// Which attempt at the phase.
        attempt: u32,
    },
    Blocked {
        phase: Name,
        /// Before it begins, or before it is over.
        when: When,
        reason: Reason,
    },
    /// It goes on: something is done in a phase.
    Phase {
        phase: Name,
        attempt: u32,
        /// Which approach of its strategy.
        #[serde(default)]
        approach: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskId>,
        /// Whether it keeps its locks until the end of the pipeline.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        keeps: bool,
    },
    /// A person lets it go on, whatever its guards say.
    Unblocked {
        phase: Name,
        /// Before it begins, or before it is over.
        when: When,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Box<str>>,
    },
    /// The task of its phase waits for a decision, or for a guard, no longer.
    Resumed {},
    /// A phase has failed, and the pipeline goes on.
    PhaseFailed {
        phase: Name,
        error: Box<str>,
    },
    /// A guard does not hold, and only warns.
    Warned {
        guard: Name,
        /// The part that fails.
        part: Box<str>,
    },
    Set {
        vars: Context,
    },
    /// Something was said on the way.
    Checkpoint(Checkpoint),
    Complete {},
    Failed {
        phase: Name,
        error: Box<str>,
        /// Whether it can be tried again.
        recoverable: bool,
    },
    /// A person wants the phase that failed tried again.
    Retry {
        phase: Name,
    },
    Cancelled {
        /// In which phase, if it had begun.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<Name>,
    },
    Deleted {},
    /// An approach has failed, and the next is tried.
    Fallback {
        strategy: Name,
        from: Name,
        to: Name,
        error: Box<str>,
    },
    /// No approach is left, or none may be tried after this error.
    Exhausted {
        strategy: Name,
        /// The last approach.
        approach: Name,
        error: Box<str>,
    },
}

impl Fact {
    /// The kind as it stands in the log.
    pub fn kind(&self) -> &'static str {
        match self {
            Fact::Fallback { .. } => "strategy:fallback",
            Fact::Exhausted { .. } => "strategy:exhausted",
            fact => fact.into(),
        }
    }

    /// The phase that it tells of.
    pub fn phase(&self) -> Option<&Name> {
        match self {
            Fact::Checking { phase, .. }
            | Fact::Blocked { phase, .. }
            | Fact::Phase { phase, .. }
            | Fact::Unblocked { phase, .. }
            | Fact::PhaseFailed { phase, .. }
            | Fact::Failed { phase, .. }
            | Fact::Retry { phase } => Some(phase),
            Fact::Cancelled { phase } => phase.as_ref(),
            Fact::Checkpoint(checkpoint) => checkpoint.phase.as_ref(),
            Fact::Created { .. }
            | Fact::Started {}
            | Fact::Warned { .. }
            | Fact::Set { .. }
            | Fact::Complete {}
            | Fact::Resumed {}
            | Fact::Deleted {}
            | Fact::Fallback { .. }
            | Fact::Exhausted { .. } => None,
        }
    }
}

/// Keeps the last checkpoints.
pub(crate) fn remember(checkpoints: &mut Vec<Checkpoint>, checkpoint: Checkpoint) {
    if checkpoints.len() >= CHECKPOINT_LIMIT {
        checkpoints.remove(0);
    }
    checkpoints.push(checkpoint);
}
