//! Cancels, retries and deletes tasks.

use std::fs;
use std::io::{ErrorKind, IsTerminal};

use banksman_core::task::{Outcome, State, WorkspaceSpec};
use banksman_core::{Label, RunId, Status, Task, TaskId};
use banksman_engine::{TaskOutcome, TaskRequest};
use banksman_runtime::workspaces::{self, WorkspaceError};
use banksman_runtime::{Client, Sessions};
use banksman_store::{Key, Reader, TaskFilter};
use clap::Args;

use super::refused::refused;
use super::view;
use crate::commands::do_tasks::asks;
use crate::commands::end_wait::EndWait;
use crate::commands::recording::record_ended;
use crate::commands::resources::Dur;
use crate::commands::{ExitResult, find, tail};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM, YELLOW};
use crate::signals::Signals;
use crate::views::Named;
use crate::views::tasks::{Changed, Deleted};

/// The upper bound on tasks, with their children, that one transaction cancels.
const CANCEL_ROWS: usize = 1_000;

/// The number of tasks that the confirmation names.
const NAMED: usize = 3;

/// Cancel tasks and their children.
///
/// All processes of their runs are asked to end, and killed if they are still alive after task.kill_grace. Returns when they are
/// dead. --label, --section and --running may be combined; in a terminal they ask first. All of the tasks are cancelled in one
/// transaction, or none if one of them refuses; more than 1,000 tasks, including children, in several. To run the tasks again later,
/// use banksman stop instead.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman tasks cancel 'Run the tests'\n  banksman tasks cancel t-7k2m9q1a --no-wait\n  banksman tasks cancel --section backend --running"
)]
pub(super) struct Cancel {
    /// The tasks
    #[arg(
        required_unless_present_any = ["all", "labels", "section", "running"],
        conflicts_with_all = ["all", "labels", "section", "running"],
        value_name = "TASK"
    )]
    tasks: Vec<String>,
    /// All unfinished tasks
    #[arg(long, conflicts_with_all = ["labels", "section", "running"])]
    all: bool,
    /// Tasks with this label; with several labels, tasks that have all of them
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<Label>,
    /// Tasks of this section
    #[arg(long, value_name = "SECTION")]
    section: Option<String>,
    /// Tasks with a run or a pipeline in progress
    #[arg(long)]
    running: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Do not wait until their processes are dead
    #[arg(long)]
    no_wait: bool,
    /// Maximum time to wait [default: task.kill_grace plus one minute]
    #[arg(long, value_name = "DUR", conflicts_with = "no_wait")]
    timeout: Option<Dur>,
}

/// Retry tasks that have ended, or are in review.
///
/// If a task cannot be retried, the tasks named before it are retried, and the tasks after it are not.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman tasks retry 'Run the tests'")]
pub(super) struct Retry {
    /// The tasks
    #[arg(required = true, value_name = "TASK")]
    tasks: Vec<String>,
    /// Save and remove their worktrees and branches first, so that they start over
    #[arg(long)]
    fresh: bool,
}

/// Delete tasks, with their runs and logs.
///
/// A task with dependents or children is deleted only together with them. A pipeline is deleted with its phases. Workspaces are
/// kept.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman tasks delete 'Run the tests'\n  banksman tasks delete t-7k2m9q1a --force")]
pub(super) struct Delete {
    /// The tasks
    #[arg(required = true, value_name = "TASK")]
    tasks: Vec<String>,
    /// Also tasks in progress: runs and pipelines are cancelled first
    #[arg(long)]
    force: bool,
}

impl Cancel {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        if !self.tasks.is_empty() {
            return cancel_all(context, &self.tasks, self.no_wait, self.timeout);
        }
        let selected = self.selected(&mut context.reader()?)?;
        let nothing = |why: &str| context.printer.result(&Named("tasks", [(); 0]), why);
        let question = match &selected[..] {
            [] => return nothing("no matching tasks"),
            [task] => format!("cancel {}?", format::one_line(task.spec.title.as_str())),
            all => {
                let named: Vec<String> = all.iter().take(NAMED).map(|task| format::one_line(task.spec.title.as_str())).collect();
                let more = all.len().saturating_sub(NAMED);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("cancel {} tasks: {}{more}?", all.len(), named.join(", "))
            }
        };
        if !self.yes && std::io::stdin().is_terminal() && !asks(context, &question) {
            return nothing("nothing was cancelled");
        }
        let ids: Vec<String> = selected.iter().map(|task| task.id.to_string()).collect();
        cancel_all(context, &ids, self.no_wait, self.timeout)
    }

    /// The tasks that match the flags, without the phases of pipelines.
    fn selected(&self, reader: &mut Reader) -> Result<Vec<Task>, Failure> {
        let section = self.section.as_deref().map(|name| find::section(reader, name)).transpose()?;
        let filter = TaskFilter {
            statuses: Status::ALL.into_iter().filter(|status| !status.is_over()).collect(),
            section: section.map(|section| section.id),
            labels: self.labels.clone(),
            hide_phases: true,
            ..TaskFilter::default()
        };
        let is_selected = |task: &Task| !self.running || task.live().is_some() || matches!(task.state, State::InPhases { .. });
        Ok(find::all_tasks(reader, &filter)?.into_iter().map(|listed| listed.task).filter(is_selected).collect())
    }
}

/// Cancels tasks with their descendants, and waits until their processes are dead unless `no_wait` is set.
pub(crate) fn cancel_all(context: &Context, names: &[String], no_wait: bool, timeout: Option<Dur>) -> ExitResult {
    let signals = Signals::install()?;
    let client = context.client()?;
    let mut reader = client.reader()?;
    let ids = find::task_ids(&mut reader, names.iter().map(String::as_str))?;
    // Record runs that have ended by themselves first, so that they do not count as cancelled.
    record_ended(context, client.project(), &mut reader)?;
    let mut families = Vec::with_capacity(ids.len());
    for id in &ids {
        let living = family(&mut reader, id)?.iter().filter(|task| task.id != *id && !task.status().is_over()).count();
        families.push(living);
    }
    let cancelled: Vec<(bool, usize)> = cancel_together(&client, &ids, &families)?.into_iter().zip(families).collect();
    if !no_wait {
        EndWait::new(&client, timeout).end_all(context, &client, &signals, &living(&mut reader, &ids)?)?;
    }
    let (mut views, mut lines) = (Vec::new(), Vec::new());
    for (id, (over_before, children)) in ids.iter().zip(cancelled) {
        let task = view::listed(&mut reader, id)?.0.task;
        let outcome = match task.status() {
            status if over_before && status.is_over() => "already_over",
            status if status.is_over() => "cancelled",
            _ => "stopping",
        };
        lines.push(cancelled_line(&task, outcome, children));
        views.push(Changed { task: (&task).into(), outcome, children: Some(children) });
    }
    context.printer.result(&Named("tasks", views), lines.join("\n"))
}

fn cancelled_line(task: &Task, outcome: &str, children: usize) -> String {
    let name = format!("{BOLD}{}{BOLD:#} {DIM}{}{DIM:#}", task.spec.title, task.id);
    let with = match children {
        0 => String::new(),
        1 => ", and its child".into(),
        several => format!(", and its {several} children"),
    };
    match outcome {
        "already_over" if children == 0 => format!("{name} is {} already", view::coloured(task.status())),
        "already_over" => format!("{name} is {} already{with} cancelled", view::coloured(task.status())),
        "stopping" => format!("{YELLOW}stopping{YELLOW:#} {name}{with}"),
        _ => format!("{} {name}{with}", view::coloured(task.status())),
    }
}

/// Cancels tasks with their descendants in one transaction, or in several if one would change too many rows. Returns
/// for each task whether it was over before.
fn cancel_together(client: &Client, ids: &[TaskId], children: &[usize]) -> Result<Vec<bool>, Failure> {
    let mut were_over = Vec::with_capacity(ids.len());
    while were_over.len() < ids.len() {
        let begin = were_over.len();
        let mut rows = 0;
        let fits = children[begin..].iter().take_while(|children| {
            rows += 1 + **children;
            rows <= CANCEL_ROWS
        });
        let end = begin + fits.count().max(1);
        match client.request(TaskRequest::CancelAll { ids: ids[begin..end].to_vec() })? {
            TaskOutcome::Several(outcomes) => {
                were_over.extend(outcomes.iter().map(|outcome| matches!(outcome, TaskOutcome::Stepped(Outcome::Over(_), _))))
            }
            outcome => {
                let failure = refused(&ids[begin], &outcome);
                let so_far = if begin == 0 {
                    "nothing was cancelled".into()
                } else {
                    format!("cancelled {} before it", format::tasks(begin))
                };
                let hint = failure.hint.as_ref().map_or(so_far.clone(), |hint| format!("{so_far}; {hint}"));
                return Err(if ids.len() > 1 { failure.hint(hint) } else { failure });
            }
        }
    }
    Ok(were_over)
}

/// Cancels one task with its descendants. Returns whether it was over before.
fn cancel(client: &Client, id: &TaskId) -> Result<bool, Failure> {
    match client.request(TaskRequest::Cancel { id: id.clone() })? {
        TaskOutcome::Stepped(Outcome::Ended(_) | Outcome::Stopping, _) => Ok(false),
        TaskOutcome::Stepped(Outcome::Over(_), _) => Ok(true),
        outcome => Err(refused(id, &outcome)),
    }
}

/// A task and all its descendants.
fn family(reader: &mut Reader, id: &TaskId) -> Result<Vec<Task>, Failure> {
    Ok(reader.view().load(&[Key::Family(id.clone())].into())?.tables.backlog.tasks.into_values().collect())
}

/// The live runs of these tasks and their descendants.
fn living(reader: &mut Reader, ids: &[TaskId]) -> Result<Vec<RunId>, Failure> {
    let keys = ids.iter().cloned().map(Key::Family).collect();
    let tasks = reader.view().load(&keys)?.tables.backlog.tasks;
    Ok(tasks.values().filter_map(|task| task.live()).map(|live| live.run.clone()).collect())
}

impl Retry {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let mut reader = client.reader()?;
        let ids = find::task_ids(&mut reader, self.tasks.iter().map(String::as_str))?;
        let (mut views, mut lines) = (Vec::new(), Vec::new());
        let files = context.sessions(client.project());
        for id in &ids {
            let task = view::listed(&mut reader, id)?.0.task;
            remove_done(&files, &task)?;
            if self.fresh {
                remove_workspace(&client, &task)?;
            }
            let (outcome, said, task) = match client.request(TaskRequest::Retry { id: id.clone() })? {
                TaskOutcome::Stepped(Outcome::Clear, task) => ("pending", "is queued for retry", task),
                TaskOutcome::Stepped(Outcome::NotPending(Status::Pending), task) => {
                    ("already_pending", "is pending already", task)
                }
                outcome => return Err(refused(id, &outcome)),
            };
            let (listed, _) = view::listed(&mut reader, id)?;
            views.push(Changed { task: (&listed).into(), outcome, children: None });
            lines.push(format!("{BOLD}{}{BOLD:#} {DIM}{id}{DIM:#} {said}", task.spec.title));
        }
        context.printer.print(&Named("tasks", views), lines.join("\n"));
        let runners = reader.view().load(&[Key::Runners].into())?.tables.backlog.runners;
        if !context.printer.json && !runners.values().any(|runner| super::is_alive(&client, runner)) {
            context.printer.note(&format!("{DIM}{}{DIM:#}", super::NO_RUNNER));
        }
        Ok(exit::OK)
    }
}

/// Saves and removes the workspace of a task, so that its next run creates a new one.
fn remove_workspace(client: &Client, task: &Task) -> Result<(), Failure> {
    if let WorkspaceSpec::Shared { owner } = &task.spec.workspace {
        return Err(Failure::usage(format!("task {} works in the workspace of {owner}: retry that task with --fresh", task.id)));
    }
    match workspaces::remove(client, &task.id, true) {
        Err(WorkspaceError::Unknown(_)) => Ok(()),
        removed => Ok(removed.map(drop)?),
    }
}

/// Removes the file that marks a task as done before a retry, because it would end the task again at once. The result
/// of a run in progress stays: the retry will be refused.
pub(crate) fn remove_done(files: &Sessions, task: &Task) -> Result<(), Failure> {
    if !matches!(task.state, State::AwaitingDecision { .. } | State::Review | State::Done(_)) {
        return Ok(());
    }
    let path = files.done(&task.id);
    files.remove_done(&task.id).map_err(|error| {
        Failure::system(&format!("remove {}", path.display()), error)
            .hint("the file DONE marks the task as done; remove it first")
    })
}

impl Delete {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        delete_all(context, &self.tasks, self.force)
    }
}

/// Deletes tasks; with `force` also tasks in progress.
pub(crate) fn delete_all(context: &Context, names: &[String], force: bool) -> ExitResult {
    let signals = Signals::install()?;
    let client = context.client()?;
    let mut reader = client.reader()?;
    let mut left = find::task_ids(&mut reader, names.iter().map(String::as_str))?;
    record_ended(context, client.project(), &mut reader)?;
    if force {
        let is_at_work = |task: &Task| task.live().is_some() || matches!(task.state, State::InPhases { .. });
        for id in &left {
            if family(&mut reader, id)?.iter().any(|task| task.id == *id && is_at_work(task)) {
                cancel(&client, id)?;
            }
        }
        EndWait::new(&client, None).end_all(context, &client, &signals, &living(&mut reader, &left)?)?;
    }
    let (mut views, mut lines) = (Vec::new(), Vec::new());
    // A task with dependents is deleted after them, if they are to be deleted, too.
    while !left.is_empty() {
        let mut held_back = Vec::new();
        for id in &left {
            let files = Files::of(&client, &mut reader, id)?;
            match client.request(TaskRequest::Delete { id: id.clone(), force })? {
                TaskOutcome::Deleted => {
                    let (view, line) = files.remove(id)?;
                    views.push(view);
                    lines.push(line);
                }
                outcome if goes_later(&outcome, &left) => held_back.push((id.clone(), outcome)),
                outcome => return Err(refused(id, &outcome)),
            }
        }
        if let Some((id, outcome)) = held_back.first().filter(|_| held_back.len() == left.len()) {
            return Err(refused(id, outcome));
        }
        left = held_back.into_iter().map(|(id, _)| id).collect();
    }
    context.printer.result(&Named("tasks", views), lines.join("\n"))
}

/// Whether all blocking tasks are to be deleted, too.
fn goes_later(outcome: &TaskOutcome, left: &[TaskId]) -> bool {
    match outcome {
        TaskOutcome::HasDependents(others) | TaskOutcome::HasChildren(others) => others.iter().all(|other| left.contains(other)),
        _ => false,
    }
}

/// The files of a task; for a pipeline also those of its phases.
struct Files {
    title: String,
    logs: Vec<std::path::PathBuf>,
    folders: Vec<std::path::PathBuf>,
    workspace: std::path::PathBuf,
}

impl Files {
    fn of(client: &Client, reader: &mut Reader, id: &TaskId) -> Result<Files, Failure> {
        let sessions = Sessions::new(client.project());
        let family = family(reader, id)?;
        let title = family.iter().find(|task| task.id == *id).map(|task| task.spec.title.to_string()).unwrap_or_default();
        let parts = family.iter().filter(|task| task.id == *id || task.spec.phase().is_some());
        let ids: Vec<&TaskId> = parts.map(|task| &task.id).collect();
        let runs = reader.view().load(&ids.iter().map(|id| Key::RunsOf((*id).clone())).collect())?.tables.backlog.runs;
        let logs = runs.keys().map(|run| sessions.log(run));
        Ok(Files {
            title,
            logs: logs.flat_map(|log| [tail::rotated(&log), log]).collect(),
            folders: ids.into_iter().map(|id| sessions.task_dir(id)).collect(),
            workspace: sessions.workspace(id),
        })
    }

    /// Removes the files that belong to Banksman. The workspace stays: it contains work.
    fn remove(self, id: &TaskId) -> Result<(Deleted, String), Failure> {
        let gone = |result: std::io::Result<()>| match result {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Failure::system("remove the files of the task", error)),
            _ => Ok(()),
        };
        for log in &self.logs {
            gone(fs::remove_file(log))?;
        }
        for folder in &self.folders {
            gone(fs::remove_dir_all(folder))?;
        }
        let workspace = self.workspace.exists().then(|| self.workspace.display().to_string());
        let left = workspace.as_ref().map(|path| format!("; its workspace is kept: {path}")).unwrap_or_default();
        let line = format!("deleted {BOLD}{}{BOLD:#} {DIM}{id}{DIM:#}{left}", self.title);
        Ok((Deleted { id: id.clone(), title: self.title, workspace }, line))
    }
}
