//! Guards in words.

use banksman::core::guard::{Cmd, Condition, FRESH_FOR, Guard, GuardAction, IssueFilter};
use serde_json::{Value, json};

use super::picture::text;
use crate::commands::tasks::brief;
use crate::printer::{BOLD, DIM};

/// How much of a command is shown.
const SHOWN: usize = 60;

/// A guard with its condition, in one line.
pub(super) fn lines(guard: &Guard) -> String {
    let fresh = if guard.fresh_for == FRESH_FOR { String::new() } else { format!(", good for {}", guard.fresh_for) };
    format!("{BOLD}{}{BOLD:#}  {}  {DIM}else {}{fresh}{DIM:#}", guard.name, words(&guard.condition), action(&guard.on_failure))
}

pub(in crate::commands) fn json(guard: &Guard) -> Value {
    json!({
        "name": guard.name,
        "condition": words(&guard.condition),
        "onFailure": action(&guard.on_failure),
        "freshFor": guard.fresh_for.to_string(),
        "timeout": guard.timeout.to_string(),
    })
}

pub(in crate::commands) fn action(action: &GuardAction) -> String {
    match action {
        GuardAction::Block => "block".into(),
        GuardAction::Warn => "warn".into(),
        GuardAction::Retry { delay } => format!("look again after {delay}"),
        GuardAction::Fail { message } => format!("fail: {message}"),
    }
}

pub(in crate::commands) fn words(condition: &Condition) -> String {
    match condition {
        Condition::LockFree { lock } => format!("lock {} is free", text(lock)),
        Condition::LockHeld { lock, by: None } => format!("lock {} is held", text(lock)),
        Condition::LockHeld { lock, by: Some(by) } => format!("lock {} is held by {}", text(lock), text(by)),
        Condition::SemaphoreAvailable { semaphore, slots } => {
            format!("{} of {} free", crate::words::slots(*slots), text(semaphore))
        }
        Condition::IssuesComplete { filter } => format!("issues{} are complete", filter_words(filter)),
        Condition::NoBlockedIssues { filter } => format!("no issues{} are blocked", filter_words(filter)),
        Condition::BranchExists { branch } => format!("branch {} exists", text(branch)),
        Condition::BranchClean { branch } => format!("branch {} is clean", text(branch)),
        Condition::BranchMerged { branch, into } => format!("branch {} is merged into {}", text(branch), text(into)),
        Condition::FileExists { path } => format!("file {} exists", text(path)),
        Condition::FileContains { path, pattern } => format!("file {} contains /{pattern}/", text(path)),
        Condition::PipelineInPhase { pipeline, phase } => format!("pipeline {} is in phase {phase}", text(pipeline)),
        Condition::PipelineComplete { pipeline } => format!("pipeline {} is complete", text(pipeline)),
        Condition::All(parts) => joined(parts, " and ", "always"),
        Condition::Any(parts) => joined(parts, " or ", "never"),
        Condition::Not(part) => format!("not ({})", words(part)),
        Condition::Command { cmd: command, expect_success: true } => format!("`{}` succeeds", cmd(command)),
        Condition::Command { cmd: command, expect_success: false } => format!("`{}` fails", cmd(command)),
    }
}

fn joined(parts: &[Condition], between: &str, empty: &str) -> String {
    match parts {
        [] => empty.into(),
        [one] => words(one),
        many => format!("({})", many.iter().map(words).collect::<Vec<_>>().join(between)),
    }
}

fn cmd(cmd: &Cmd) -> String {
    match cmd {
        Cmd::Run(line) => brief(line, SHOWN),
        Cmd::Argv(argv) => brief(&argv.iter().map(text).collect::<Vec<_>>().join(" "), SHOWN),
    }
}

/// ` of section release with label must`.
fn filter_words(filter: &IssueFilter) -> String {
    let ids = filter.ids.iter().map(text).collect::<Vec<_>>().join(", ");
    let parts = [
        filter.section.as_ref().map(|section| format!(" of section {}", text(section))),
        filter.label.as_ref().map(|label| format!(" with label {}", text(label))),
        filter.status.map(|status| format!(" that are {status}")),
        (!ids.is_empty()).then(|| format!(" {ids}")),
        filter.from.as_ref().map(|from| format!(" from `{}`", cmd(from))),
    ];
    parts.into_iter().flatten().collect()
}
