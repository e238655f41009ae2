//! Whether a condition holds, in three values.

use std::ops::Not;

use super::{Cmd, CommandResult, Condition, GuardInputs, Issue, IssueFilter, PipelineFilter, PipelineInfo, Predicate, Topic};
use crate::pipeline::plan::{Context, Text};
use crate::task::Status;

/// The truth of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Truth {
    False,
    Unknown,
    True,
}

impl Not for Truth {
    type Output = Truth;
    fn not(self) -> Truth {
        match self {
            Truth::False => Truth::True,
            Truth::Unknown => Truth::Unknown,
            Truth::True => Truth::False,
        }
    }
}

impl From<Option<bool>> for Truth {
    fn from(known: Option<bool>) -> Truth {
        match known {
            Some(true) => Truth::True,
            Some(false) => Truth::False,
            None => Truth::Unknown,
        }
    }
}

impl Condition {
    /// Whether it holds. A variable without a value makes it unknown.
    pub fn truth(&self, inputs: &GuardInputs) -> Truth {
        match self {
            // False, unknown, true is the order of the values, so that "all" is the least and "any" the greatest of them.
            Condition::All(parts) => parts.iter().map(|part| part.truth(inputs)).min().unwrap_or(Truth::True),
            Condition::Any(parts) => parts.iter().map(|part| part.truth(inputs)).max().unwrap_or(Truth::False),
            Condition::Not(part) => !part.truth(inputs),
            Condition::Predicate(predicate) => predicate.truth(inputs),
        }
    }
}

impl Predicate {
    /// Whether it holds. A variable without a value makes it unknown.
    pub(super) fn truth(&self, inputs: &GuardInputs) -> Truth {
        Truth::from(self.known(inputs))
    }

    fn known(&self, inputs: &GuardInputs) -> Option<bool> {
        let get = |text: &Text| text.name(&inputs.vars);
        match self {
            Predicate::LockFree { lock } => inputs.is_free(get(lock)?),
            Predicate::LockHeld { lock, by } => {
                let by = by.as_ref().map(|by| get(by).ok_or(())).transpose().ok()?;
                let holder = inputs.locks.get(&get(lock)?)?.as_ref();
                Some(holder.is_some_and(|holder| by.is_none_or(|by| *by == *holder.as_str())))
            }
            Predicate::SemaphoreAvailable { semaphore, slots } => Some(inputs.semaphores.get(&get(semaphore)?)? >= slots),
            Predicate::IssuesComplete { filter } => {
                Some(inputs.found(filter)?.iter().all(|issue| issue.status == Status::Completed))
            }
            Predicate::NoBlockedIssues { filter } => {
                Some(inputs.found(filter)?.iter().all(|issue| issue.status != Status::Blocked))
            }
            Predicate::BranchExists { branch } => Some(inputs.branches.get(&get(branch)?)?.exists),
            // A branch that does not exist has no checkout, clean or not.
            Predicate::BranchClean { branch } => inputs.branches.get(&get(branch)?).filter(|info| info.exists)?.clean,
            Predicate::BranchMerged { branch, into } => inputs.merged.get(&(get(branch)?, get(into)?)).copied(),
            Predicate::FileExists { path } => Some(inputs.files.get(&get(path)?)?.exists),
            Predicate::FileContains { path, pattern } => {
                let info = inputs.files.get(&get(path)?)?;
                if info.exists { info.matches.get(pattern).copied() } else { Some(false) }
            }
            Predicate::PipelineInPhase { pipeline, phase } => {
                let PipelineInfo { phase: at, .. } = inputs.pipelines.get(&get(pipeline)?)?;
                Some(at.as_ref() == Some(phase))
            }
            Predicate::PipelineComplete { pipeline } => Some(inputs.pipelines.get(&get(pipeline)?)?.is_complete),
            Predicate::PipelineRunning { filter } => Some(!inputs.running.get(&filter.with(&inputs.vars)?)?.is_empty()),
            Predicate::Command { cmd, expect_success } => match inputs.command_results.get(&cmd.with(&inputs.vars)?)? {
                CommandResult::Success => Some(*expect_success),
                CommandResult::Failure => Some(!expect_success),
                CommandResult::Unknown => None,
            },
        }
    }
}

impl GuardInputs {
    /// The only place where a missing value counts as true: a lock has no row before its first request. A lock that
    /// could not be checked is unknown.
    fn is_free(&self, lock: Box<str>) -> Option<bool> {
        match self.locks.get(&lock) {
            Some(holder) => Some(holder.is_none()),
            None => (!self.unknown.contains_key(&Topic::Lock(lock))).then_some(true),
        }
    }

    /// The issues that a filter selects.
    pub(super) fn found(&self, filter: &IssueFilter) -> Option<&[Issue]> {
        self.issues.get(&filter.with(&self.vars)?).map(Vec::as_slice)
    }
}

impl Cmd {
    /// The command with its variables substituted; `None` if one has no value. A line for the shell finds them in its
    /// environment.
    pub fn with(&self, vars: &Context) -> Option<Cmd> {
        match self {
            Cmd::Run(line) => Some(Cmd::Run(line.clone())),
            Cmd::Argv(argv) => {
                let put = |arg: &Text| arg.get(vars).map(Text::Literal);
                argv.iter().map(put).collect::<Option<_>>().map(Cmd::Argv)
            }
        }
    }
}

impl IssueFilter {
    /// The filter with its variables substituted; `None` if one has no value.
    pub fn with(&self, vars: &Context) -> Option<IssueFilter> {
        let maybe = |text: &Option<Text>| match text {
            Some(text) => put(text, vars).map(Some),
            None => Some(None),
        };
        Some(IssueFilter {
            section: maybe(&self.section)?,
            label: maybe(&self.label)?,
            status: self.status,
            ids: self.ids.iter().map(|id| put(id, vars)).collect::<Option<_>>()?,
            from: match &self.from {
                Some(cmd) => Some(cmd.with(vars)?),
                None => None,
            },
        })
    }
}

impl PipelineFilter {
    /// The filter with its variables substituted; `None` if one has no value.
    pub fn with(&self, vars: &Context) -> Option<PipelineFilter> {
        let maybe = |text: &Option<Text>| match text {
            Some(text) => put(text, vars).map(Some),
            None => Some(None),
        };
        Some(PipelineFilter { name: maybe(&self.name)?, runbook: maybe(&self.runbook)?, phase: self.phase.clone() })
    }

    /// Everything that may be a variable.
    pub(super) fn texts(&self) -> impl Iterator<Item = &Text> {
        self.name.iter().chain(&self.runbook)
    }
}

fn put(text: &Text, vars: &Context) -> Option<Text> {
    text.name(vars).map(Text::Literal)
}
