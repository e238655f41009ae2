use banksman_runtime::workspaces::{PruneStep, Removed, WorkspaceError, prune, prune_steps, removal_refusal};
use clap::Args;

use crate::commands::ExitResult;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::printer::{DIM, RED};
use crate::views::workspaces::{PruneView, PrunedView, SavedView};

/// Remove unneeded workspaces and old saved states.
///
/// A worktree is removed when its task ended longer than `workspace.keep_for` ago, or was deleted. It is saved first. With --dry-run the
/// output is the same, and nothing is changed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman workspaces prune --dry-run\n  banksman workspaces prune")]
pub(super) struct Prune {
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
}

impl Prune {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let steps = prune_steps(&client)?;
        let mut views: Vec<PruneView> = Vec::new();
        if self.dry_run {
            for step in &steps {
                let refusal = match step {
                    PruneStep::Remove { kept, .. } => removal_refusal(&client, kept)?,
                    PruneStep::Forget(_) => None,
                };
                views.push(view(step, refusal.map(Err)));
            }
        } else {
            prune(&client, steps, |step, result| views.push(view(step, Some(result))));
        }
        let failed = views.iter().any(|view| view.error.is_some());
        let lines: Vec<String> = views.iter().map(line).collect();
        let human = if lines.is_empty() { format!("{DIM}nothing to prune{DIM:#}") } else { lines.join("\n") };
        context.printer.print(&PrunedView { dry_run: self.dry_run, steps: views }, human);
        Ok(if failed { exit::ERROR } else { exit::OK })
    }
}

fn view(step: &PruneStep, result: Option<Result<Option<Removed>, WorkspaceError>>) -> PruneView {
    let (action, what, reason) = match step {
        PruneStep::Remove { kept, reason } => ("remove", kept.workspace.place.path().to_owned(), (*reason).to_owned()),
        PruneStep::Forget(saved) => {
            ("forget", format!("{}/{}", saved.id, saved.number), "older than the retention time".to_owned())
        }
    };
    let (saved, error) = match result {
        None | Some(Ok(None)) => (None, None),
        Some(Ok(Some(removed))) => (removed.saved.as_ref().map(SavedView::from), None),
        Some(Err(error)) => (None, Some(error.to_string())),
    };
    PruneView { action, what, reason, saved, error }
}

/// The line of a step, the same for a dry run.
fn line(view: &PruneView) -> String {
    match &view.error {
        Some(error) => format!("{RED}not done{RED:#} {} {}: {error}", view.action, view.what),
        None => format!("{} {} {DIM}{}{DIM:#}", view.action, view.what, view.reason),
    }
}
