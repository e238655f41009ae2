//! Reports the outcome of each task and the next command.

use banksman_core::landing::{Entry, LandingEnd, State as Landing};
use banksman_core::{Status, Task, TaskId};
use banksman_runtime::Client;
use banksman_store::Key;
use serde::Serialize;

use crate::commands::tasks;
use crate::context::Context;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::views::landing::EntryView;
use crate::views::spend;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    tasks: Vec<Reported<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reported<'a> {
    id: &'a TaskId,
    title: &'a str,
    status: Status,
    branch: Option<String>,
    cost_micros: u64,
    runs: usize,
    landing: Option<EntryView<'a>>,
    /// The next command.
    next: Option<String>,
    #[serde(skip)]
    price: Option<String>,
    #[serde(skip)]
    detail: String,
}

/// Prints the outcome of each task and the next command. Returns whether all tasks are completed.
pub(super) fn print(context: &Context, client: &Client, ids: &[TaskId]) -> Result<bool, Failure> {
    let keys =
        |id: &TaskId| [Key::Task(id.clone()), Key::RunsOf(id.clone()), Key::Workspace(id.clone()), Key::LandingOf(id.clone())];
    let rows = client.load(&ids.iter().flat_map(keys).collect())?.tables.backlog;
    let is_checked = client.config().landing.check.is_some();
    let reported = ids.iter().filter_map(|id| {
        let task = rows.tasks.get(id)?;
        let runs = || rows.runs.values().filter(|run| run.task == *id);
        let entry = rows.landings.values().find(|entry| entry.spec.task.as_ref() == Some(id));
        Some(Reported {
            id,
            title: task.spec.title.as_str(),
            status: task.status(),
            branch: rows.workspaces.get(id).and_then(|workspace| workspace.place.branch()).map(Into::into),
            cost_micros: runs().filter_map(|run| run.ended.as_ref()?.agent.as_ref()?.cost_micros).sum(),
            runs: runs().count(),
            landing: entry.map(EntryView::from),
            next: next(task, is_checked),
            price: spend::price(&spend::of_runs(runs())),
            detail: detail(task, entry),
        })
    });
    let tasks: Vec<Reported<'_>> = reported.collect();
    let is_complete = tasks.iter().all(|task| task.status == Status::Completed);
    let human: Vec<String> = tasks.iter().map(line).collect();
    context.printer.print(&Report { tasks }, human.join("\n"));
    Ok(is_complete)
}

/// The next command for a person.
fn next(task: &Task, is_checked: bool) -> Option<String> {
    let id = &task.id;
    match task.status() {
        Status::Completed => None,
        Status::Review if task.spec.land.is_some() && is_checked => Some(format!("banksman land {id}")),
        Status::Review if task.spec.land.is_some() => Some(format!("banksman land {id} --unchecked")),
        _ => Some(format!("banksman why {id}")),
    }
}

/// Details beside the status.
fn detail(task: &Task, entry: Option<&Entry>) -> String {
    let landing = entry.map(|entry| (&entry.state, &entry.target));
    match (task.status(), landing) {
        (Status::Completed, Some((Landing::Over(LandingEnd::Landed { commit, .. }), target))) => {
            format!("landed on {target} as {}", commit.short())
        }
        (Status::Review, Some((Landing::Over(LandingEnd::Shelved { reason }), _))) => reason.to_string(),
        (Status::Landing, Some((Landing::Waiting { obstacle }, _))) => obstacle.to_string(),
        (Status::Landing, Some((Landing::Asking { because, .. }, _))) => because.to_string(),
        _ => tasks::error(task).unwrap_or_default().to_string(),
    }
}

fn line(task: &Reported<'_>) -> String {
    let style = match task.status {
        Status::Completed => GREEN,
        Status::Failed => RED,
        _ => YELLOW,
    };
    let runs = (task.runs > 1).then(|| format!("{} runs", task.runs));
    let detail = (!task.detail.is_empty()).then(|| format::one_line(&task.detail));
    let more: Vec<String> = [detail, runs, task.price.clone()].into_iter().flatten().collect();
    let more = if more.is_empty() { String::new() } else { format!("  {DIM}{}{DIM:#}", more.join(", ")) };
    let next = task.next.as_ref().map(|next| format!("\n            {next}")).unwrap_or_default();
    format!("{style}{:<11}{style:#} {BOLD}{}{BOLD:#}{more}{next}", task.status.to_string(), format::one_line(task.title))
}
