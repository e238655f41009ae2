//! The specification of a task.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;
use thiserror::Error;

use crate::agent::AgentWork;
use crate::event::{Kind, Resource};
use crate::ids::{Label, Name, SectionId, TaskId, Title};
use crate::pause::Pause;
use crate::pipeline::plan::{MergeHow, Plan};
use crate::task::retry::Policy;
use crate::time::Span;
use crate::worker::Taken;

/// The longest command, in bytes.
pub const COMMAND_LIMIT: usize = 100_000;

/// How many resources a task can need at most.
pub const NEED_LIMIT: usize = 20;

/// How many labels a task can have at most.
pub const LABEL_LIMIT: usize = 20;

/// The environment variable with the pipeline of a run.
pub const PIPELINE_ENV: &str = "BANKSMAN_PIPELINE";

/// The environment variable with the phase of a run.
pub const PHASE_ENV: &str = "BANKSMAN_PHASE";

/// In the environment of a phase that follows a failure: the error.
pub const REASON_ENV: &str = "BANKSMAN_REASON";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    pub title: Title,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<SectionId>,
    /// The task that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Label>,
    /// Tasks with a higher priority come first.
    #[serde(default)]
    pub priority: i32,
    /// The work of a runner. Without it, the task is manual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
    /// The resources that a run must hold while it lives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// How many runs may follow a failed one.
    #[serde(default)]
    pub retries: u32,
    /// The number of its first attempt, if it is a later attempt at a phase.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub first_attempt: u32,
    /// Whether the guards of its phase are evaluated again when a run of it is claimed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub guarded: bool,
    /// The terms of a loop. A loop has no retries beside them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Policy>,
    #[serde(default)]
    pub workspace: WorkspaceSpec,
    /// Additional variables in the environment of its runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<Box<str>, Box<str>>,
    /// How long a run of it may take, if that differs from the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// How long a run of it may be silent, if that differs from the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence: Option<Span>,
    /// Whether it fails without recoveries left, whatever the settings say: something else is tried then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fails_when_stuck: bool,
    /// The branch that its work lands on. With it, the task is completed when its work has landed, not when its run is
    /// done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub land: Option<Box<LandSpec>>,
    /// How many routes led to it, one after the other.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u32,
    /// The item of a queue and the attempt at it, if a worker has made the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<Box<OfItem>>,
    /// How its live runs can receive messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<LiveInput>,
    /// The pause, if a person has set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Box<Pause>>,
    /// The entry of the file that it was imported from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Box<SourceEntry>>,
}

/// An entry of a file with tasks, by which a later import recognizes its task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourceEntry {
    /// The path of the file in the project, or another name for the source of the entries.
    pub file: Box<str>,
    /// The key of the entry, or its title if it has none.
    pub key: Box<str>,
}

/// How a live run can receive messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LiveInput {
    /// Through a pipe to its stdin.
    Pipe,
    Terminal,
}

/// An attempt at an item of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfItem {
    pub worker: Name,
    #[serde(flatten)]
    pub taken: Taken,
    /// The number of the attempt, counted from 1.
    pub attempt: u32,
}

impl Spec {
    /// The name of the phase, if it is one of a pipeline.
    pub fn phase(&self) -> Option<&str> {
        self.parent.as_ref().and_then(|_| self.env.get(PHASE_ENV)).map(|phase| &**phase)
    }

    /// The resources that must be free for it to begin. A pipeline holds nothing itself; but where the number of roots
    /// is limited, it begins when its first phase could, unless a guard comes before that.
    pub fn needs_to_begin(&self, is_limited: bool) -> &[Need] {
        match &self.work {
            Some(Work::Pipeline(plan)) if is_limited => {
                plan.phases.first().filter(|phase| phase.pre.is_empty()).map_or(&[], |phase| &phase.needs)
            }
            _ => &self.needs,
        }
    }

    /// The weight of a resource that it needs to begin.
    pub fn weight_of(&self, resource: &Resource) -> u32 {
        self.needs_to_begin(true).iter().find(|need| need.resource() == *resource).map_or(1, Need::weight)
    }

    /// Adds the lock of its workspace to its needs: one session at a time works in it.
    #[must_use]
    pub fn with_workspace(mut self, id: &TaskId) -> Spec {
        // A pipeline holds nothing itself: its phases do.
        if matches!(self.work, Some(Work::Pipeline(_))) {
            return self;
        }
        if let Some(lock) = self.workspace.owner(id).map(|owner| Need::Lock(owner.workspace_lock()))
            && !self.needs.contains(&lock)
        {
            self.needs.push(lock);
            self.needs.sort();
        }
        self
    }

    /// Whether it is only a part of something else: a phase of a pipeline, or an attempt at an item.
    pub fn is_part(&self) -> bool {
        self.phase().is_some() || self.item.is_some()
    }

    /// A manual task with this title, without any conditions.
    pub fn new(title: Title) -> Spec {
        Spec {
            title,
            section: None,
            parent: None,
            labels: Vec::new(),
            priority: 0,
            work: None,
            needs: Vec::new(),
            retries: 0,
            first_attempt: 0,
            guarded: false,
            restart: None,
            workspace: WorkspaceSpec::Checkout,
            env: BTreeMap::new(),
            timeout: None,
            silence: None,
            fails_when_stuck: false,
            land: None,
            depth: 0,
            item: None,
            input: None,
            paused: None,
            source: None,
        }
    }
}

/// The work of a runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Work {
    /// Runs this line in a shell.
    Run(Box<str>),
    Exec {
        /// The program with its arguments.
        argv: Vec<Box<str>>,
        /// Its stdin.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Box<str>>,
    },
    /// Lets an agent program work.
    Agent(Arc<AgentWork>),
    Merge {
        branch: Box<str>,
        into: Box<str>,
        how: MergeHow,
    },
    /// Goes through the phases of a pipeline. Each of them is a task of its own; this one has no runs.
    Pipeline(Arc<Plan>),
}

/// Why a specification is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    #[error("there is no command")]
    NoCommand,
    /// No system could run it.
    #[error("a command must not contain a NUL character")]
    Nul,
    #[error("a command may have at most {COMMAND_LIMIT} bytes, this one has {0}")]
    CommandTooLong(usize),
    #[error("a task may have at most {LABEL_LIMIT} labels, not {0}")]
    TooManyLabels(usize),
    #[error("at least one slot must be asked for")]
    NoSlot,
    #[error("semaphore {0} is given twice, with different weights")]
    TwoWeights(Name),
    #[error("a task may need at most {NEED_LIMIT} locks and semaphores, not {0}")]
    TooManyNeeds(usize),
}

impl Work {
    /// A line for a shell.
    pub fn shell(command: &str) -> Result<Work, SpecError> {
        if command.trim().is_empty() {
            return Err(SpecError::NoCommand);
        }
        if command.contains('\0') {
            return Err(SpecError::Nul);
        }
        if command.len() > COMMAND_LIMIT {
            return Err(SpecError::CommandTooLong(command.len()));
        }
        Ok(Work::Run(command.into()))
    }

    /// The work in one line for people.
    pub fn describe(&self) -> String {
        match self {
            Work::Run(command) => command.to_string(),
            Work::Exec { argv, .. } => argv.join(" "),
            Work::Agent(work) => format!("agent {}", work.names()),
            Work::Merge { branch, into, how } => format!("merge {branch} into {into} ({})", how.as_str()),
            Work::Pipeline(plan) => format!("pipeline {} of runbook {}", plan.name, plan.runbook),
        }
    }
}

/// The directory in which the runs of a task work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "camelCase")]
pub enum WorkspaceSpec {
    /// The project's own directory, shared with everything else.
    #[default]
    #[serde(rename = "none")]
    Checkout,
    /// A directory of the task's own.
    Dir,
    /// A worktree of the task's own.
    Worktree(Box<WorktreeSpec>),
    /// The workspace of another task, one after the other.
    Shared { owner: TaskId },
    /// This directory, which Banksman does not manage.
    Cwd(Box<str>),
}

/// The landing of a task's work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandSpec {
    pub target: Name,
    /// Whether it lands without a check: a person wants that, or the landing of its parent is the check.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unchecked: bool,
    /// Whether the branch is that of its parent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_child: bool,
}

/// The branch and the base of a worktree.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorktreeSpec {
    /// Its branch; without it, one that is named after the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<Box<str>>,
    /// The base of a new branch; without it, the commit that the project's checkout is at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Box<str>>,
}

impl WorkspaceSpec {
    pub fn as_str(&self) -> &'static str {
        self.into()
    }

    /// The task whose workspace it is, for a task of this id; none if there is no workspace.
    pub fn owner<'a>(&'a self, task: &'a TaskId) -> Option<&'a TaskId> {
        match self {
            WorkspaceSpec::Dir | WorkspaceSpec::Worktree(_) => Some(task),
            WorkspaceSpec::Shared { owner } => Some(owner),
            WorkspaceSpec::Checkout | WorkspaceSpec::Cwd(_) => None,
        }
    }

    /// The workspace of a part of the task, such as a phase of a pipeline: the same as that of the task.
    #[must_use]
    pub fn of_part(&self, parent: &TaskId) -> WorkspaceSpec {
        match self.owner(parent) {
            Some(owner) => WorkspaceSpec::Shared { owner: owner.clone() },
            None => self.clone(),
        }
    }
}

/// A lock or slots that a run holds while it lives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Need {
    Lock(Name),
    Slots {
        name: Name,
        weight: u32,
    },
    /// A lock or slots that a pipeline holds beyond the run: until its end, or until the guards after the phase have
    /// passed.
    Kept {
        name: Name,
        pipeline: TaskId,
        /// The slots; none for a lock.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slots: Option<u32>,
    },
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The labels without duplicates.
pub fn labels(mut labels: Vec<Label>) -> Result<Vec<Label>, SpecError> {
    labels.sort();
    labels.dedup();
    if labels.len() > LABEL_LIMIT { Err(SpecError::TooManyLabels(labels.len())) } else { Ok(labels) }
}

/// Locks and slots without duplicates, in an order that does not depend on the input.
pub fn needs(mut needs: Vec<Need>) -> Result<Vec<Need>, SpecError> {
    if needs.iter().any(|need| need.weight() == 0) {
        return Err(SpecError::NoSlot);
    }
    needs.sort();
    needs.dedup();
    let is_twice = |pair: &&[Need]| matches!(pair, [Need::Slots { name, .. }, Need::Slots { name: other, .. }] if name == other);
    if let Some(twice) = needs.windows(2).find(is_twice) {
        return Err(SpecError::TwoWeights(twice[0].name().clone()));
    }
    if needs.len() > NEED_LIMIT { Err(SpecError::TooManyNeeds(needs.len())) } else { Ok(needs) }
}

impl Need {
    pub fn name(&self) -> &Name {
        match self {
            Need::Lock(name) | Need::Slots { name, .. } | Need::Kept { name, .. } => name,
        }
    }

    pub fn resource(&self) -> Resource {
        let kind = match self {
            Need::Lock(_) | Need::Kept { slots: None, .. } => Kind::Lock,
            Need::Slots { .. } | Need::Kept { slots: Some(_), .. } => Kind::Semaphore,
        };
        Resource { kind, name: self.name().clone() }
    }

    /// The slots; one for a lock.
    pub fn weight(&self) -> u32 {
        match self {
            Need::Lock(_) => 1,
            Need::Slots { weight, .. } => *weight,
            Need::Kept { slots, .. } => slots.unwrap_or(1),
        }
    }

    /// The same resource, held by a pipeline.
    pub fn kept_by(&self, pipeline: &TaskId) -> Need {
        let slots = (self.resource().kind == Kind::Semaphore).then(|| self.weight());
        Need::Kept { name: self.name().clone(), pipeline: pipeline.clone(), slots }
    }
}
