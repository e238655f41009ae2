//! The events of a merge queue and its entries in the log.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::Resolving;
use super::entry::{CommitId, EntrySpec, Obstacle, Return, Terms};
use crate::ids::{DecisionId, Name, TaskId};

/// The events of an entry in the log. The variants are the second words of their kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case", prefix = "landing:")]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum EntryFact {
    /// It was added. The event's number is its id.
    Added {
        /// The branch that it is to land on.
        target: Name,
        spec: Box<EntrySpec>,
    },
    /// The work in the worktree of a task was collected.
    Collected {
        /// The commit that has all of it.
        source: CommitId,
        /// The branch that it is on, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch: Option<Box<str>>,
        /// How often it may come back.
        #[serde(flatten)]
        terms: Terms,
    },
    /// Its commit was made.
    Built {
        /// On this tip of the target.
        tip: CommitId,
        commit: CommitId,
    },
    CheckFailed {
        commit: CommitId,
        log: Box<str>,
    },
    CheckPassed {
        commit: CommitId,
        /// Whether it failed on the same commit before.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        flaky: bool,
    },
    /// It is queued again.
    Requeued {
        /// How often it was built in vain because the target had moved.
        rebuilds: u32,
        /// How often an obstacle outside of the queue stopped it.
        tries: u32,
        /// Whether the worktree of its task is to be collected again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        collect: bool,
    },
    /// An obstacle outside of the queue stops it.
    Waiting {
        obstacle: Obstacle,
        /// How often an obstacle stopped it.
        tries: u32,
    },
    Asked {
        decision: DecisionId,
        because: Return,
    },
    /// The target has moved to its commit.
    Landed {
        from: CommitId,
        commit: CommitId,
        /// Whether the check has passed on it.
        checked: bool,
        /// Whether the check failed before it passed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        flaky: bool,
    },
    /// The target had all of it already.
    NoChange {
        tip: CommitId,
    },
    /// It went back to its author.
    Returned(Return),
    /// It cannot land without a review by a person.
    Shelved {
        reason: Box<str>,
    },
    /// A person has removed it.
    Removed {
        by: Box<str>,
    },
}

/// The events of the queue of a target in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case", prefix = "landing_target:")]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum TargetFact {
    Paused {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Box<str>>,
        /// The tip that fails the check, with the question to a person.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        red: Option<RedTip>,
    },
    Resumed {
        by: Box<str>,
    },
    /// The check has passed on a commit that is the target's tip.
    Green {
        commit: CommitId,
    },
    /// The author of a task resolves a conflict.
    Resolving(Resolving),
    /// The work of this task has landed or left the queue, or it waits for something else.
    Resolved {
        task: TaskId,
    },
}

/// A tip that fails the check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RedTip {
    pub tip: CommitId,
    /// The path of the output of the check.
    pub log: Box<str>,
    /// The question to a person.
    pub decision: DecisionId,
}

impl EntryFact {
    pub fn kind(&self) -> &'static str {
        self.into()
    }
}

impl TargetFact {
    pub fn kind(&self) -> &'static str {
        self.into()
    }
}
