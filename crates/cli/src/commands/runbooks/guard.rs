//! Guards as text.

use banksman_core::guard::{Condition, FRESH_FOR, Guard, GuardAction, Predicate};

use crate::printer::{BOLD, DIM};

/// A guard with its condition, in one line.
pub(super) fn lines(guard: &Guard) -> String {
    let fresh = if guard.fresh_for == FRESH_FOR { String::new() } else { format!(", good for {}", guard.fresh_for) };
    format!("{BOLD}{}{BOLD:#}  {}  {DIM}else {}{fresh}{DIM:#}", guard.name, describe(&guard.condition), action(&guard.on_failure))
}

pub(crate) fn action(action: &GuardAction) -> String {
    match action {
        GuardAction::Block => "block".into(),
        GuardAction::Warn => "warn".into(),
        GuardAction::Retry { delay } => format!("check again after {delay}"),
        GuardAction::Fail { message } => format!("fail: {message}"),
    }
}

pub(crate) fn describe(condition: &Condition) -> String {
    match condition {
        Condition::All(parts) => joined(parts, " and ", "always"),
        Condition::Any(parts) => joined(parts, " or ", "never"),
        Condition::Not(part) => format!("not ({})", describe(part)),
        Condition::Predicate(predicate) => assertion(predicate),
    }
}

fn assertion(predicate: &Predicate) -> String {
    match predicate {
        Predicate::LockFree { lock } => format!("lock {lock} is free"),
        Predicate::LockHeld { lock, by: None } => format!("lock {lock} is held"),
        Predicate::LockHeld { lock, by: Some(by) } => format!("lock {lock} is held by {by}"),
        Predicate::SemaphoreAvailable { semaphore, slots } => format!("{} of {semaphore} free", crate::format::slots(*slots)),
        Predicate::IssuesComplete { filter } => format!("{}s{filter} are completed", filter.noun()),
        Predicate::NoBlockedIssues { filter } => format!("no {}s{filter} are blocked", filter.noun()),
        Predicate::BranchExists { branch } => format!("branch {branch} exists"),
        Predicate::BranchClean { branch } => format!("branch {branch} is clean"),
        Predicate::BranchMerged { branch, into } => format!("branch {branch} is merged into {into}"),
        Predicate::FileExists { path } => format!("file {path} exists"),
        Predicate::FileContains { path, pattern } => format!("file {path} contains /{pattern}/"),
        Predicate::PipelineInPhase { pipeline, phase } => format!("pipeline {pipeline} is in phase {phase}"),
        Predicate::PipelineComplete { pipeline } => format!("pipeline {pipeline} is complete"),
        Predicate::PipelineRunning { filter } => format!("another pipeline{filter} is running"),
        Predicate::Command { cmd, expect_success: true } => format!("`{cmd}` succeeds"),
        Predicate::Command { cmd, expect_success: false } => format!("`{cmd}` fails"),
    }
}

fn joined(parts: &[Condition], between: &str, empty: &str) -> String {
    match parts {
        [] => empty.into(),
        [one] => describe(one),
        many => format!("({})", many.iter().map(describe).collect::<Vec<_>>().join(between)),
    }
}
