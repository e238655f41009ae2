//! Tasks as text.

use std::collections::BTreeMap;

use banksman_core::backlog::Section;
use banksman_core::task::{Need, State, Stuck, TaskEnd};
use banksman_core::{SectionId, Stamp, Status, Task, TaskId};
use banksman_store::{Key, Listed, Reader};

use crate::commands::find;
use crate::failure::Failure;
use crate::format;
use crate::printer::{CYAN, DIM, GREEN, RED, YELLOW};
use crate::terminal;

/// The width of an error in a table without another limit.
const WIDEST: usize = 100;

/// The status in its colour.
pub(crate) fn coloured(status: Status) -> String {
    let style = match status {
        Status::Completed => GREEN,
        Status::InProgress | Status::Landing => CYAN,
        Status::Failed | Status::Stuck => RED,
        Status::Blocked | Status::Review => YELLOW,
        Status::Cancelled | Status::Skipped => DIM,
        Status::Pending => return status.to_string(),
    };
    format!("{style}{status}{style:#}")
}

/// The start of the first line of a text.
pub(crate) fn brief(text: &str, width: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    // Control characters are replaced.
    let harmless = |c: char| match c {
        '\t' => ' ',
        _ if c.is_control() => char::REPLACEMENT_CHARACTER,
        _ => c,
    };
    let shown: String = line.chars().map(harmless).collect();
    let is_whole = line.len() == text.trim_end().len();
    terminal::cut(&if is_whole { shown } else { format!("{}…", shown.trim_end()) }, width)
}

/// `1 task`, `2 tasks`.
pub(super) fn tasks(number: usize) -> String {
    if number == 1 { "1 task".into() } else { format!("{number} tasks") }
}

/// A task with its unmet dependencies, and all sections.
pub(super) fn listed(reader: &mut Reader, id: &TaskId) -> Result<(Listed, BTreeMap<SectionId, Section>), Failure> {
    let keys = [Key::Task(id.clone()), Key::Dependencies(id.clone()), Key::Sections].into();
    let mut backlog = reader.view().load(&keys)?.tables.backlog;
    let unmet = backlog.unmet(id);
    let task = backlog.tasks.remove(id).ok_or_else(|| find::no_task(id.as_str()))?;
    Ok((Listed { task, unmet }, backlog.sections))
}

/// The error of a failed task.
pub(crate) fn error(task: &Task) -> Option<&str> {
    let State::Done(TaskEnd::Failed { error }) = &task.state else { return None };
    Some(error)
}

/// Details on the status of a task.
pub(super) fn remark(listed: &Listed, at: Stamp) -> String {
    let task = &listed.task;
    match &task.state {
        State::Pending if listed.unmet > 0 => format!("waits for {}", tasks(listed.unmet as usize)),
        State::Pending if task.spec.work.is_none() => "manual".into(),
        State::Pending if task.attempts > 0 => format!("queued for retry, {} so far", runs(task.attempts)),
        State::Pending | State::Review => String::new(),
        State::Landing { .. } => "in the merge queue".into(),
        State::Held => "waits for a guard".into(),
        State::Backoff { until } => {
            format!("{} so far, the next in {}", attempts(task.failures), format::span(*until - at.lease))
        }
        State::Awaiting { until: Some(until), .. } => {
            format!("done; its children have {} left", format::span(*until - at.lease))
        }
        State::Awaiting { until: None, .. } => "done; its children are being stopped".into(),
        State::AwaitingDecision { decision } => format!("needs you: {decision}"),
        State::Manual { holder, .. } => format!("claimed by {holder}"),
        State::InPhases { is_blocked: true } => "its pipeline is blocked".into(),
        State::InPhases { is_blocked: false } => "in its phases".into(),
        State::Running(_) if task.attempts > 1 => format!("{} run", format::ordinal(task.attempts as usize)),
        State::Running(_) => String::new(),
        State::Stuck { reason, .. } => match reason {
            Stuck::NoHeartbeat { last_seen } => format!("last activity {} ago", format::span(at.lease - last_seen.lease)),
            Stuck::NoProgress { duration } => format!("no activity for {}", format::span(*duration)),
            Stuck::SessionDead => "its session is dead".into(),
        },
        State::Stopping { .. } => "being stopped".into(),
        State::Done(TaskEnd::Failed { error }) => brief(error, WIDEST),
        State::Done(TaskEnd::Success { warning: Some(warning), .. }) => brief(warning, WIDEST),
        State::Done(TaskEnd::Success { .. } | TaskEnd::Cancelled | TaskEnd::Skipped) => String::new(),
    }
}

fn attempts(number: u32) -> String {
    if number == 1 { "1 attempt".into() } else { format!("{number} attempts") }
}

fn runs(number: u32) -> String {
    if number == 1 { "1 run".into() } else { format!("{number} runs") }
}

/// A need in words.
pub(super) fn need_words(need: &Need) -> String {
    match need {
        Need::Lock(name) => format!("lock {name}"),
        Need::Slots { name, weight } => format!("{} of {name}", format::slots(*weight)),
        Need::Kept { name, slots: None, .. } => format!("lock {name}, held by the pipeline"),
        Need::Kept { name, slots: Some(weight), .. } => format!("{} of {name}, held by the pipeline", format::slots(*weight)),
    }
}
