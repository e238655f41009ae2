//! The evidence that a person should see before answering: the attempts, the end of the log, and the size of the change.

use std::path::Path;

use banksman_core::backlog::Run;
use banksman_core::decision::About;
use banksman_core::workspace::Place;
use banksman_core::{Decision, TaskId, Title};
use banksman_runtime::Client;
use banksman_runtime::workspaces;
use banksman_store::{Key, Reader};

use crate::commands::tail::LogEnd;
use crate::commands::workspaces as kept;
use crate::failure::Failure;
use crate::format;
use crate::printer::DIM;
use crate::terminal;

/// The number of attempts and of log lines shown.
const ATTEMPTS: usize = 5;
const LINES: usize = 5;

pub(super) fn task(decision: &Decision) -> Option<&TaskId> {
    match &decision.question.about {
        About::Task(task) | About::Run { task, .. } => Some(task),
        About::OutboxCommand(_) | About::Route(_) | About::Landing { .. } => None,
    }
}

/// The title of a task, if the task still exists.
pub(super) fn title(reader: &mut Reader, task: &TaskId) -> Result<Option<Title>, Failure> {
    let mut tasks = reader.view().load(&[Key::Task(task.clone())].into())?.tables.backlog.tasks;
    Ok(tasks.remove(task).map(|task| task.spec.title))
}

/// The evidence about a task, in lines.
pub(super) fn of(client: &Client, reader: &mut Reader, task: &TaskId) -> Result<String, Failure> {
    let rows = reader.view().load(&[Key::RunsOf(task.clone()), Key::Task(task.clone())].into())?.tables.backlog;
    let mut runs: Vec<Run> = rows.runs.into_values().collect();
    runs.sort_by_key(|run| run.epoch);
    let mut text = String::new();
    let hidden = runs.len().saturating_sub(ATTEMPTS);
    match hidden {
        0 => {}
        1 => text.push_str(&format!("\n  {DIM}1 earlier attempt{DIM:#}")),
        several => text.push_str(&format!("\n  {DIM}{several} earlier attempts{DIM:#}")),
    }
    for run in &runs[hidden..] {
        let how = run.ended.as_ref().map_or_else(
            || "running, started".into(),
            |ended| format!("{} after {},", ended.ending, format::span(ended.at - run.started.wall)),
        );
        text.push_str(&format!("\n  {DIM}attempt {}:{DIM:#} {how} {}", run.attempt + 1, format::ago(run.started.wall)));
    }
    let log = runs.last().map(|run| LogEnd::new(client.project(), rows.tasks.get(task), run).lines(LINES));
    let width = terminal::stderr_width().map_or(usize::MAX, |width| width.saturating_sub(4));
    // Lines that Banksman itself has written are not output of the program.
    let is_program_output = |line: &String| !line.trim().is_empty() && !line.starts_with("banksman: ");
    for line in log.into_iter().flatten().filter(is_program_output) {
        text.push_str(&format!("\n  {DIM}|{DIM:#} {}", terminal::cut(&terminal::one_line(&line), width)));
    }
    if let Some(changes) = changes(client, task) {
        text.push_str(&format!("\n  {DIM}changes:{DIM:#} {changes}"));
    }
    Ok(text)
}

/// `3 files, +120 -8` of the worktree, if there is one.
fn changes(client: &Client, task: &TaskId) -> Option<String> {
    let kept = kept::find_kept(client, task.as_str()).ok()?;
    let Place::Worktree { path, base, .. } = &kept.workspace.place else { return None };
    let diff = workspaces::repository(client.project()).ok()?.diff(Path::new(&**path), base).ok()?;
    let patch = String::from_utf8_lossy(&diff.patch);
    let count =
        |sign: &str, header: &str| patch.lines().filter(|line| line.starts_with(sign) && !line.starts_with(header)).count();
    let files = patch.lines().filter(|line| line.starts_with("diff --git ")).count();
    let files = if files == 1 { "1 file".into() } else { format!("{files} files") };
    Some(format!("{files}, +{} -{}", count("+", "+++"), count("-", "---")))
}
