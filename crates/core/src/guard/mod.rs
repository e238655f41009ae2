//! A guard: a condition that must hold before a phase begins, or before it is over.
//!
//! ```text
//!   Guard --wants(vars)--> Wants --looked at by somebody--> GuardInputs --evaluate--> Passed | Failed { part }
//! ```
//!
//! Conditions are three-valued. What nobody could find out is unknown, and only what is true passes: the opposite of
//! unknown is unknown. Invariants: what is true or false stays so when more becomes known, but for a lock that nothing is
//! known of, which counts as free; an answer depends on nothing but what its condition wants; and nothing fails for good by
//! what is unknown.

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

/// How deep conditions can stand in each other.
pub const DEPTH_LIMIT: usize = 20;

/// How many conditions one guard can have.
pub const CONDITION_LIMIT: usize = 200;

/// How long a command of a guard may take, unless the runbook says otherwise.
pub const COMMAND_TIMEOUT: Span = Span::from_secs(60);

/// How long the answer of the world outside is good, unless the runbook says otherwise.
pub const FRESH_FOR: Span = Span::from_secs(30);

/// A condition with a name, and what follows if it does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Guard {
    pub name: Name,
    pub condition: Condition,
    /// What follows if it does not.
    #[serde(default, skip_serializing_if = "GuardAction::is_block")]
    pub on_failure: GuardAction,
    /// How long an answer of the world outside is good: files, branches and commands tell nobody when they change.
    pub fresh_for: Span,
    /// How long one of its commands may take.
    pub timeout: Span,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Condition {
    /// All of them hold. That is true of none.
    All(Vec<Condition>),
    /// One of them holds. That is not true of none.
    Any(Vec<Condition>),
    Not(Box<Condition>),
    /// One question. It is stored without a word for this variant.
    #[serde(untagged)]
    Predicate(Predicate),
}

/// A condition without parts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Predicate {
    /// Nobody holds the lock. One that is not there is free.
    LockFree { lock: Text },
    LockHeld {
        lock: Text,
        /// Who, if it must be a certain one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Text>,
    },
    /// So many slots of a semaphore are free.
    SemaphoreAvailable { semaphore: Text, slots: u32 },
    /// All these issues are completed. None at all is as good.
    IssuesComplete { filter: IssueFilter },
    /// None of these issues is blocked.
    NoBlockedIssues { filter: IssueFilter },
    /// There is a branch of this name.
    BranchExists { branch: Text },
    /// The checkout of a branch has no changes. One that is not checked out has none.
    BranchClean { branch: Text },
    /// All that is in a branch is in another: its commits, or changes that are equal to theirs.
    BranchMerged { branch: Text, into: Text },
    FileExists {
        /// Where, seen from the project.
        path: Text,
    },
    /// A file has a line that a regular expression matches.
    FileContains {
        /// Where, seen from the project.
        path: Text,
        /// The regular expression.
        pattern: Box<str>,
    },
    PipelineInPhase {
        /// Which pipeline, by its id.
        pipeline: Text,
        phase: Name,
    },
    PipelineComplete {
        /// Which pipeline, by its id.
        pipeline: Text,
    },
    /// One of these pipelines runs, other than the one that asks.
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

/// Which issues are meant: those that all of it is true of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IssueFilter {
    /// Those of this section, by its name or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<Text>,
    /// Those that this command prints, as a JSON list of objects with `id`, `status` and `labels`; the tasks of the project
    /// without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Cmd>,
}

/// Which pipelines are meant: those that all of it is true of.
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
    /// The pipeline waits until it does.
    #[default]
    Block,
    /// It goes on, and that is written down.
    Warn,
    /// It is looked at again after a while.
    Retry { delay: Span },
    /// The pipeline has failed for good. As long as nobody knows whether it holds, the pipeline waits.
    Fail { message: Box<str> },
}

/// What is known of all that conditions ask about. What is missing is unknown. The keys are texts whose variables have been
/// put in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuardInputs {
    /// The variables of the pipeline.
    pub vars: Context,
    /// Who holds which lock; `None` if nobody does.
    pub locks: BTreeMap<Box<str>, Option<HolderId>>,
    /// How many slots are free.
    pub semaphores: BTreeMap<Box<str>, u32>,
    /// The issues that were asked for.
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
    /// What commands came to, by the command with its variables put in.
    pub command_results: BTreeMap<Cmd, CommandResult>,
    /// Until when all answers from outside of the store are fresh.
    pub fresh_until: Option<Lease>,
    /// Why something could not be found out, or how a command failed: words that go on after its name, as in "took too long".
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

/// What is known of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchInfo {
    pub exists: bool,
    /// Whether its checkout has no changes; `None` if that could not be found out.
    pub clean: Option<bool>,
}

/// What is known of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileInfo {
    pub exists: bool,
    /// Which of the regular expressions that were asked about match; those that could not be looked at are missing.
    pub matches: BTreeMap<Box<str>, bool>,
}

/// What is known of a pipeline.
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
    /// It took too long, or could not be started: nobody knows.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardResult {
    Passed,
    /// It does not hold, as far as is known.
    Failed {
        guard: Name,
        /// What follows: what the guard says, but to fail takes more than a doubt.
        action: GuardAction,
        /// The part of its condition that it fails at, in words.
        part: Box<str>,
    },
}

impl Guard {
    /// Whether its condition holds, as far as is known.
    pub fn evaluate(&self, inputs: &GuardInputs) -> GuardResult {
        let action = match (self.condition.truth(inputs), &self.on_failure) {
            (Truth::True, _) => return GuardResult::Passed,
            // Nobody knows that it does not hold, and what has failed for good is never tried again.
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
