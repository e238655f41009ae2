//! Workspaces: the directories in which tasks work.

mod prune;
mod visit;

use banksman_core::task::WorkspaceSpec;
use banksman_core::{Status, TaskId};
use banksman_runtime::Client;
use banksman_runtime::workspaces::{self, Kept};
use clap::Args;

pub(crate) use visit::{diff, open};

use super::{ExitResult, find};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{BOLD, DIM, GREEN};
use crate::views::Named;
use crate::views::workspaces::{RemovedView, SavedView, WorkspacePage, WorkspaceView};
use crate::{format, table};

subcommands! {
    /// Manage workspaces: the worktrees and directories in which tasks work.
    ///
    /// A task that was added with --worktree has a worktree of its own, used by all its attempts; a pipeline has one for all its phases. A
    /// workspace is named by its task.
    #[command(
        after_help = "Examples:\n  banksman workspaces list\n  banksman workspaces diff 'Add login'\n  banksman workspaces prune --dry-run"
    )]
    pub(crate) noun Workspaces {
        List(List),
        Show(Show),
        Open(Open),
        Diff(Diff),
        Remove(Remove),
        Prune(prune::Prune),
    }
}

/// List workspaces.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman workspaces list")]
struct List {}

/// Show one workspace with its saved states.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman workspaces show 'Add login'")]
struct Show {
    /// The task
    task: String,
}

/// Start a shell in a workspace.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman workspaces open 'Add login'")]
struct Open {
    /// The task
    task: String,
}

/// Show the commits, changes and new files in a worktree since its base.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman workspaces diff 'Add login'")]
struct Diff {
    /// The task
    task: String,
}

/// Save and remove a workspace that is not in use.
///
/// Content of a worktree that exists nowhere else is saved first; `banksman recover list` lists it.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman workspaces remove 'Add login'")]
struct Remove {
    /// The task
    task: String,
}

impl List {
    fn run(self, context: &Context) -> ExitResult {
        let all = Kept::all(&*context.client()?)?;
        let views: Vec<_> = all.iter().map(WorkspaceView::from).collect();
        let human = if all.is_empty() {
            format!("{DIM}no workspaces{DIM:#}")
        } else {
            table::render(&["TASK?", "STATE", "BRANCH~", "PATH~??", "TITLE~"], views.iter().map(row).collect())
        };
        context.printer.result(&Named("workspaces", views), human)
    }
}

fn row(view: &WorkspaceView<'_>) -> Vec<String> {
    let state = match view.state {
        "in_use" => format!("{GREEN}in use{GREEN:#}"),
        state => state.to_owned(),
    };
    let text = |text: Option<&str>| text.unwrap_or("-").to_owned();
    vec![view.owner.to_string(), state, text(view.branch), view.path.into(), text(view.title.map(|title| title.as_str()))]
}

impl Show {
    fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let kept = find_kept(&client, &self.task)?;
        let saved = match kept.workspace.place.branch() {
            Some(_) => {
                workspaces::repository(client.project())?.saved(Some(kept.workspace.owner.as_str())).map_err(git_failed)?
            }
            None => Vec::new(),
        };
        let view = WorkspaceView::from(&kept);
        let mut lines = vec![format!("{BOLD}{}{BOLD:#} {}", view.owner, view.title.map_or("(deleted)", |title| title.as_str()))];
        let mut field = |name: &str, value: &str| lines.push(format!("  {name:<9} {value}"));
        field("state", &view.state.replace('_', " "));
        field("path", view.path);
        view.branch.into_iter().for_each(|branch| field("branch", branch));
        view.base.into_iter().for_each(|base| field("base", base));
        view.holder.into_iter().for_each(|holder| field("used by", holder.as_str()));
        field("created", &format::ago(kept.workspace.created));
        lines.extend(
            saved.iter().map(|saved| format!("  {:<9} {}/{} {DIM}{}{DIM:#}", "saved", saved.id, saved.number, saved.reason)),
        );
        let page = WorkspacePage { workspace: view, saved: saved.iter().map(SavedView::from).collect() };
        context.printer.result(&page, lines.join("\n"))
    }
}

impl Open {
    fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        open(&find_kept(&client, &self.task)?)
    }
}

impl Diff {
    fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let kept = find_kept(&client, &self.task)?;
        diff(context, &client, &kept)
    }
}

impl Remove {
    fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let kept = find_kept(&client, &self.task)?;
        if let Some(task) = kept.task.as_ref().filter(|task| !task.status().is_over()) {
            let message = format!("task {} is {}, and needs its workspace", task.id, task.status());
            let hint = match task.status() {
                Status::Landing => "cancel it first, or take it out of its merge queue: banksman landing list",
                _ => "cancel it first, or start over with: banksman tasks retry --fresh",
            };
            return Err(Failure::new(exit::USAGE, "WORKSPACE_NEEDED", message).detail("task", &task.id).hint(hint));
        }
        let removed = workspaces::remove(&client, &kept.workspace.owner, false)?;
        let saved = removed.saved.as_ref().map(|saved| format!("; saved as {}/{}", saved.id, saved.number)).unwrap_or_default();
        let human = format!("removed {BOLD}{}{BOLD:#}{saved}", removed.path.display());
        context.printer.result(&RemovedView::from(&removed), human)
    }
}

/// The workspace of the task with this name, or the one that the task shares.
pub(crate) fn find_kept(client: &Client, name: &str) -> Result<Kept, Failure> {
    let all = Kept::all(client)?;
    if let Some(kept) = TaskId::new(name).ok().and_then(|id| all.iter().find(|kept| kept.workspace.owner == id)) {
        return Ok(kept.clone());
    }
    let mut reader = client.reader()?;
    let id = find::task_id(&mut reader, name)?;
    let rows = reader.view().load(&[banksman_store::Key::Task(id.clone())].into())?;
    let spec = rows.backlog.tasks.get(&id).map(|task| &task.spec.workspace);
    let owner = spec.and_then(|spec| spec.owner(&id).cloned()).unwrap_or(id.clone());
    all.into_iter().find(|kept| kept.workspace.owner == owner).ok_or_else(|| {
        if let Some(WorkspaceSpec::Checkout) = spec {
            let message = format!("task {id} works in the checkout: it has no workspace of its own");
            return Failure::new(exit::NOT_FOUND, "WORKSPACE_NOT_FOUND", message)
                .detail("task", &id)
                .hint("a task that is added with --workspace worktree has a worktree of its own");
        }
        Failure::new(exit::NOT_FOUND, "WORKSPACE_NOT_FOUND", format!("task {id} has no workspace"))
            .detail("task", &id)
            .hint(format!("list its saved states: banksman recover list {id}"))
    })
}

pub(crate) fn git_failed(error: banksman_adapters::git::GitError) -> Failure {
    workspaces::WorkspaceError::from(error).into()
}
