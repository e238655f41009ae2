//! The events of a pipeline in the log.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::{CHECKPOINT_LIMIT, Checkpoint, Reason, When};
use crate::ids::{Name, TaskId};
use crate::pipeline::plan::Context;

/// The events of a pipeline in the log. The variants are the second words of their kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase")]
#[strum(serialize_all = "snake_case", prefix = "pipeline:")]
pub enum Fact {
    Created {
        /// The variables that it starts with.
        #[serde(default, skip_serializing_if = "Context::is_empty")]
        context: Context,
        /// The names of those that were given; the others have their defaults.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        given: BTreeSet<Box<str>>,
    },
    Started {},
    /// The guards of a phase are to be checked.
    Checking {
        phase: Name,
        when: When,
        attempt: u32,
    },
    Blocked {
        phase: Name,
        /// Before the phase begins, or before it is over.
        when: When,
        reason: Reason,
    },
    /// It continues: work begins in a phase.
    Phase {
        phase: Name,
        attempt: u32,
        /// The index of the approach in its strategy.
        #[serde(default)]
        approach: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskId>,
        /// Whether the phase keeps its locks until the end of the pipeline.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        keeps: bool,
    },
    /// A person lets it continue, whatever its guards say.
    Unblocked {
        phase: Name,
        /// Before the phase begins, or before it is over.
        when: When,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Box<str>>,
    },
    /// The task of its phase no longer waits for a decision or a guard.
    Resumed {},
    /// A phase has failed, and the pipeline continues.
    PhaseFailed {
        phase: Name,
        error: Box<str>,
    },
    /// A guard does not hold, and only warns.
    Warned {
        guard: Name,
        /// The part that does not hold.
        part: Box<str>,
    },
    Set {
        vars: Context,
    },
    /// A note was recorded on the way.
    Checkpoint(Checkpoint),
    Complete {},
    Failed {
        phase: Name,
        error: Box<str>,
        /// Whether it can be retried.
        recoverable: bool,
    },
    /// A person retries the phase that failed.
    Retry {
        phase: Name,
    },
    Cancelled {
        /// The phase that it was in, if it had begun.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<Name>,
    },
    Deleted {},
    /// An approach has failed, and the next one is tried.
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
    /// The kind as the log has it.
    pub fn kind(&self) -> &'static str {
        match self {
            Fact::Fallback { .. } => "strategy:fallback",
            Fact::Exhausted { .. } => "strategy:exhausted",
            fact => fact.into(),
        }
    }

    /// The phase that it is about.
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

/// Adds a checkpoint and drops the oldest one beyond the limit.
pub(crate) fn remember(checkpoints: &mut Vec<Checkpoint>, checkpoint: Checkpoint) {
    if checkpoints.len() >= CHECKPOINT_LIMIT {
        checkpoints.remove(0);
    }
    checkpoints.push(checkpoint);
}
