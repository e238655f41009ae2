//! Guards in words.

use banksman_core::guard::{Condition, FRESH_FOR, Guard, GuardAction};

use crate::printer::{BOLD, DIM};

/// A guard with its condition, in one line.
pub(super) fn lines(guard: &Guard) -> String {
    let fresh = if guard.fresh_for == FRESH_FOR { String::new() } else { format!(", good for {}", guard.fresh_for) };
    format!("{BOLD}{}{BOLD:#}  {}  {DIM}else {}{fresh}{DIM:#}", guard.name, words(&guard.condition), action(&guard.on_failure))
}

pub(crate) fn action(action: &GuardAction) -> String {
    match action {
        GuardAction::Block => "block".into(),
        GuardAction::Warn => "warn".into(),
        GuardAction::Retry { delay } => format!("check again after {delay}"),
        GuardAction::Fail { message } => format!("fail: {message}"),
    }
}

pub(crate) fn words(condition: &Condition) -> String {
    match condition {
        Condition::LockFree { lock } => format!("lock {lock} is free"),
        Condition::LockHeld { lock, by: None } => format!("lock {lock} is held"),
        Condition::LockHeld { lock, by: Some(by) } => format!("lock {lock} is held by {by}"),
        Condition::SemaphoreAvailable { semaphore, slots } => format!("{} of {semaphore} free", crate::format::slots(*slots)),
        Condition::IssuesComplete { filter } => format!("{}s{filter} are completed", filter.noun()),
        Condition::NoBlockedIssues { filter } => format!("no {}s{filter} are blocked", filter.noun()),
        Condition::BranchExists { branch } => format!("branch {branch} exists"),
        Condition::BranchClean { branch } => format!("branch {branch} is clean"),
        Condition::BranchMerged { branch, into } => format!("branch {branch} is merged into {into}"),
        Condition::FileExists { path } => format!("file {path} exists"),
        Condition::FileContains { path, pattern } => format!("file {path} contains /{pattern}/"),
        Condition::PipelineInPhase { pipeline, phase } => format!("pipeline {pipeline} is in phase {phase}"),
        Condition::PipelineComplete { pipeline } => format!("pipeline {pipeline} is complete"),
        Condition::PipelineRunning { filter } => format!("another pipeline{filter} is running"),
        Condition::All(parts) => joined(parts, " and ", "always"),
        Condition::Any(parts) => joined(parts, " or ", "never"),
        Condition::Not(part) => format!("not ({})", words(part)),
        Condition::Command { cmd, expect_success: true } => format!("`{cmd}` succeeds"),
        Condition::Command { cmd, expect_success: false } => format!("`{cmd}` fails"),
    }
}

fn joined(parts: &[Condition], between: &str, empty: &str) -> String {
    match parts {
        [] => empty.into(),
        [one] => words(one),
        many => format!("({})", many.iter().map(words).collect::<Vec<_>>().join(between)),
    }
}
