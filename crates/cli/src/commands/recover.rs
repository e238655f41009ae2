//! Work that was saved before a worktree was removed or moved.

use banksman_adapters::git::{Repository, Saved};
use banksman_runtime::workspaces;
use clap::Args;

use super::workspaces::git_failed;
use super::{ExitResult, find};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{BOLD, DIM, GREEN};
use crate::views::Named;
use crate::views::workspaces::{DiffView, RestoredView, SavedView};
use crate::{format, table};

subcommands! {
    /// Recover work that was saved from a worktree.
    ///
    /// Before a worktree is removed, or moved to another commit, its files, commits and stashes are saved under refs/banksman/saved.
    #[command(
        after_help = "Examples:\n  banksman recover list\n  banksman recover show t-7k2m9q1a/1\n  banksman recover restore t-7k2m9q1a/1 --branch rescued"
    )]
    pub(crate) noun Recover {
        List(List),
        Show(Show),
        Restore(Restore),
    }
}

/// List saved states, oldest first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman recover list\n  banksman recover list 'Add login'")]
struct List {
    /// Only saved states of this task
    task: Option<String>,
}

/// Show the changes of a saved state against its base commit.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman recover show t-7k2m9q1a/1")]
struct Show {
    /// The saved state, as listed by `recover list`
    saved: String,
}

/// Create a branch from a saved state.
///
/// The tip of the branch has the saved files; its parents are the saved commits.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman recover restore t-7k2m9q1a/1 --branch rescued")]
struct Restore {
    /// The saved state, as listed by `recover list`
    saved: String,
    /// The name of the new branch [default: recovered/STATE]
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
}

impl List {
    fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let id = self.task.as_deref().map(|name| owner(context, name)).transpose()?;
        let saved = workspaces::repository(&project)?.saved(id.as_deref()).map_err(git_failed)?;
        let views: Vec<SavedView> = saved.iter().map(SavedView::from).collect();
        let row = |view: &SavedView| {
            vec![view.id.clone(), format::ago(view.saved_at.0), view.commit[..12].to_owned(), view.reason.clone()]
        };
        let human = if views.is_empty() {
            format!("{DIM}no saved states{DIM:#}")
        } else {
            table::render(&["STATE~", "SAVED?", "COMMIT?", "REASON~"], views.iter().map(row).collect())
        };
        context.printer.result(&Named("saved", views), human)
    }
}

/// The id whose saved states are meant; a deleted task is named by its id.
fn owner(context: &Context, name: &str) -> Result<String, Failure> {
    let found = find::task_id(&mut context.reader()?, name);
    Ok(found.map_or_else(|_| name.to_owned(), |id| id.to_string()))
}

fn find_saved(repository: &Repository, name: &str) -> Result<Saved, Failure> {
    let all = repository.saved(None).map_err(git_failed)?;
    let wanted = name.strip_prefix("refs/banksman/saved/").unwrap_or(name);
    all.into_iter().find(|saved| format!("{}/{}", saved.id, saved.number) == wanted).ok_or_else(|| {
        Failure::new(exit::NOT_FOUND, "SAVED_NOT_FOUND", format!("there is no saved state {name:?}"))
            .hint("list the saved states: banksman recover list")
    })
}

impl Show {
    fn run(self, context: &Context) -> ExitResult {
        let repository = workspaces::repository(&context.project()?)?;
        let saved = find_saved(&repository, &self.saved)?;
        let diff = repository.diff_of_saved(&saved).map_err(git_failed)?;
        if !context.printer.json {
            context.printer.line(&format!("{BOLD}{}/{}{BOLD:#} {DIM}{}{DIM:#}", saved.id, saved.number, saved.reason));
            diff.commits.iter().for_each(|commit| context.printer.line(commit));
            context.printer.raw(&diff.patch);
            return Ok(exit::OK);
        }
        let owner = banksman_core::TaskId::new(&saved.id).map_err(Failure::usage)?;
        let text = String::from_utf8_lossy(&diff.patch).into_owned();
        context.printer.result(&DiffView { owner: &owner, base: &diff.base, files: diff.files, diff: text }, "")
    }
}

impl Restore {
    fn run(self, context: &Context) -> ExitResult {
        let repository = workspaces::repository(&context.project()?)?;
        let saved = find_saved(&repository, &self.saved)?;
        let branch = self.branch.unwrap_or_else(|| format!("recovered/{}-{}", saved.id, saved.number));
        if repository.commit(&format!("refs/heads/{branch}")).map_err(git_failed)?.is_some() {
            return Err(Failure::new(exit::USAGE, "BRANCH_EXISTS", format!("branch {branch} already exists"))
                .hint("choose another name with --branch"));
        }
        repository.restore(&saved, &branch).map_err(git_failed)?;
        let human = format!(
            "{GREEN}restored{GREEN:#} {}/{} as branch {BOLD}{branch}{BOLD:#}\n{DIM}inspect it with: git log --stat {branch}{DIM:#}",
            saved.id, saved.number
        );
        context.printer.result(&RestoredView { saved: SavedView::from(&saved), branch }, human)
    }
}
