//! A guard: a condition that must hold before a phase begins, or before it is over.
//!
//! ```text
//!   Guard --wants(vars)--> Wants --collected by the caller--> GuardInputs --evaluate--> Passed | Failed { part }
//! ```
//!
//! Conditions are three-valued. What could not be determined is unknown, and only true passes; the negation of unknown
//! is unknown. Invariants: a known truth stays when more becomes known, except for a lock of which nothing is known,
//! which counts as free; a result depends on nothing but what its condition wants; and an unknown condition never fails
//! for good.

mod explain;
mod residual;
mod rows;
mod truth;
mod wants;

pub use truth::Truth;
pub use wants::Wants;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::ids::{HolderId, Name, TaskId};
use crate::pipeline::plan::{Context, Text};
use crate::task::Status;
use crate::time::{Lease, Span};

/// How deep conditions can be nested.
pub const DEPTH_LIMIT: usize = 20;

/// How many conditions one guard can have.
pub const CONDITION_LIMIT: usize = 200;

/// How long a command of a guard may take, unless the runbook says otherwise.
pub const COMMAND_TIMEOUT: Span = Span::from_secs(60);

/// How long results from outside of the store are fresh, unless the runbook says otherwise.
pub const FRESH_FOR: Span = Span::from_secs(30);

/// A condition with a name, and what follows if it does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Guard {
    pub name: Name,
    pub condition: Condition,
    /// What follows if the condition does not hold.
    #[serde(default, skip_serializing_if = "GuardAction::is_block")]
    pub on_failure: GuardAction,
    /// How long results from outside of the store are fresh: files, branches and commands send no event when they
    /// change.
    pub fresh_for: Span,
    /// How long one of its commands may take.
    pub timeout: Span,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Condition {
    /// All of them hold; true if there are none.
    All(Vec<Condition>),
    /// At least one of them holds; false if there are none.
    Any(Vec<Condition>),
    Not(Box<Condition>),
    /// A single predicate, stored without a word for this variant.
    #[serde(untagged)]
    Predicate(Predicate),
}

/// A condition without parts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Predicate {
    /// The lock has no holder. A lock without a row is free.
    LockFree { lock: Text },
    LockHeld {
        lock: Text,
        /// The holder, if it must be a certain one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Text>,
    },
    /// At least this many slots of a semaphore are free.
    SemaphoreAvailable { semaphore: Text, slots: u32 },
    /// All selected issues are completed; true if there are none.
    IssuesComplete { filter: IssueFilter },
    /// None of the selected issues is blocked.
    NoBlockedIssues { filter: IssueFilter },
    /// The branch exists.
    BranchExists { branch: Text },
    /// The checkout of a branch has no changes; true if it is not checked out.
    BranchClean { branch: Text },
    /// A branch is contained in another: its commits, or changes that are equal to them.
    BranchMerged { branch: Text, into: Text },
    FileExists {
        /// The path, relative to the project.
        path: Text,
    },
    /// A file has a line that a regular expression matches.
    FileContains {
        /// The path, relative to the project.
        path: Text,
        pattern: Box<str>,
    },
    PipelineInPhase {
        /// The id of the pipeline.
        pipeline: Text,
        phase: Name,
    },
    PipelineComplete {
        /// The id of the pipeline.
        pipeline: Text,
    },
    /// One of the selected pipelines runs, other than the one that asks.
    PipelineRunning { filter: PipelineFilter },
    /// A command exits with 0, or does not.
    Command { cmd: Cmd, expect_success: bool },
}

/// A command of a guard.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cmd {
    /// A line for the shell, which finds the variables in its environment.
    Run(Box<str>),
    /// A program with its arguments.
    Argv(Vec<Text>),
}

/// Selects the issues that all criteria match.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IssueFilter {
    /// The name or id of a section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<Text>,
    /// The issues that this command prints, as a JSON list of objects with `id`, `status` and `labels`; without it, the
    /// tasks of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Cmd>,
}

/// Selects the pipelines that all criteria match.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PipelineFilter {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runbook: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Name>,
}

/// What follows if a guard does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "camelCase")]
pub enum GuardAction {
    /// The pipeline waits until it holds.
    #[default]
    Block,
    /// The pipeline continues, and an event records the failure.
    Warn,
    /// The guard is checked again after this delay.
    Retry { delay: Span },
    /// The pipeline fails for good. While the result is unknown, it waits.
    Fail { message: Box<str> },
}

/// The values of everything that conditions ask about. A missing value is unknown. The keys are texts with their
/// variables substituted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuardInputs {
    /// The variables of the pipeline.
    pub vars: Context,
    /// The holders of locks; `None` if a lock is free.
    pub locks: BTreeMap<Box<str>, Option<HolderId>>,
    /// How many slots are free.
    pub semaphores: BTreeMap<Box<str>, u32>,
    /// The issues that each filter selects.
    pub issues: BTreeMap<IssueFilter, Vec<Issue>>,
    /// Branches, by name.
    pub branches: BTreeMap<Box<str>, BranchInfo>,
    /// Which branch is merged into which.
    pub merged: BTreeMap<(Box<str>, Box<str>), bool>,
    /// Files, by path.
    pub files: BTreeMap<Box<str>, FileInfo>,
    /// Pipelines, by id.
    pub pipelines: BTreeMap<Box<str>, PipelineInfo>,
    /// The ids of the pipelines that run, other than the one that asks.
    pub running: BTreeMap<PipelineFilter, Vec<Box<str>>>,
    /// The results of commands, by the command with its variables substituted.
    pub command_results: BTreeMap<Cmd, CommandResult>,
    /// All results from outside of the store are fresh until then.
    pub fresh_until: Option<Lease>,
    /// Files and commands are unknown because the workspace does not exist yet. The session that makes it checks them: until
    /// then they are expected to help.
    pub awaits_workspace: bool,
    /// Why a value is unknown, or how a command failed: a phrase that follows the name of the topic, such as "took too
    /// long".
    pub unknown: BTreeMap<Topic, Box<str>>,
}

/// Something that a condition asks about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    Lock(Box<str>),
    Semaphore(Box<str>),
    Issues(IssueFilter),
    Branch(Box<str>),
    /// Whether the one branch is merged into the other.
    Merged(Box<str>, Box<str>),
    File(Box<str>),
    Pipeline(Box<str>),
    /// Pipelines that run.
    Running(PipelineFilter),
    Command(Cmd),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    pub id: Box<str>,
    pub status: Status,
}

/// The known state of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchInfo {
    pub exists: bool,
    /// Whether its checkout has no changes; `None` if that is unknown.
    pub clean: Option<bool>,
}

/// The known state of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileInfo {
    pub exists: bool,
    /// Whether each of the requested regular expressions matches; those that could not be checked are missing.
    pub matches: BTreeMap<Box<str>, bool>,
}

/// The known state of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineInfo {
    pub phase: Option<Name>,
    pub is_complete: bool,
}

/// The result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandResult {
    /// It exited with 0.
    Success,
    /// It exited with something else, or by a signal.
    Failure,
    /// It timed out or could not be started.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardResult {
    Passed,
    /// It is not known to hold.
    Failed {
        guard: Name,
        /// The action of the guard, except that an unknown condition does not fail for good.
        action: GuardAction,
        /// The part of its condition that does not hold, in words.
        part: Box<str>,
    },
}

impl Guard {
    /// Whether its condition holds, as far as is known.
    pub fn evaluate(&self, inputs: &GuardInputs) -> GuardResult {
        let could_hold = || self.residual(inputs).is_none_or(|left| left.condition.truth(inputs) == Truth::True);
        let action = match (self.condition.truth(inputs), &self.on_failure) {
            (Truth::True, _) => return GuardResult::Passed,
            (Truth::Unknown, _) if inputs.awaits_workspace && could_hold() => return GuardResult::Passed,
            // The condition may still hold, and a pipeline that has failed for good is never retried.
            (Truth::Unknown, GuardAction::Fail { .. }) => GuardAction::Block,
            (Truth::Unknown | Truth::False, action) => action.clone(),
        };
        GuardResult::Failed { guard: self.name.clone(), action, part: self.condition.part(inputs) }
    }
}

impl GuardAction {
    pub fn as_str(&self) -> &'static str {
        self.into()
    }

    fn is_block(&self) -> bool {
        *self == GuardAction::Block
    }
}

/// The id of a task, or of a pipeline, in a condition.
pub fn task_id(text: &str) -> Option<TaskId> {
    TaskId::new(text).ok()
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod model;
