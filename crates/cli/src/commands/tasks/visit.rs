use clap::Args;

use crate::commands::ExitResult;
use crate::commands::workspaces::{diff, find_kept, open};
use crate::context::Context;

/// Start a shell in the workspace of a task.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman tasks open 'Add login'")]
pub(super) struct Open {
    /// The task
    task: String,
}

/// Show the commits, changes and new files in the worktree of a task since its base.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman tasks diff 'Add login'")]
pub(super) struct Diff {
    /// The task
    task: String,
}

impl Open {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        open(&find_kept(&*context.client()?, &self.task)?)
    }
}

impl Diff {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let kept = find_kept(&client, &self.task)?;
        diff(context, &client, &kept)
    }
}
