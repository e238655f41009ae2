//! A shell in a workspace, and its diff.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use banksman_core::workspace::Place;
use banksman_runtime::Client;
use banksman_runtime::workspaces::{self, Kept};

use super::git_failed;
use crate::commands::ExitResult;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::DIM;
use crate::views::workspaces::DiffView;

/// Starts the user's shell in a workspace, and returns its status.
pub(crate) fn open(kept: &Kept) -> ExitResult {
    let path = directory(kept)?;
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into());
    let mut command = Command::new(shell);
    command.current_dir(path).env("BANKSMAN_WORKSPACE", path);
    command.envs(kept.workspace.place.branch().map(|branch| ("BANKSMAN_BRANCH", branch)));
    let status = command.status().map_err(|error| Failure::system(&format!("start a shell in {}", path.display()), error))?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    Ok(u8::try_from(code).unwrap_or(exit::ERROR))
}

/// The directory of the workspace, if it still exists.
fn directory(kept: &Kept) -> Result<&Path, Failure> {
    let path = Path::new(kept.workspace.place.path());
    if path.is_dir() {
        return Ok(path);
    }
    let failure = Failure::new(exit::NOT_FOUND, "WORKSPACE_MISSING", format!("{} is missing: it was deleted", path.display()));
    Err(match &kept.workspace.place {
        Place::Worktree { base, branch, .. } => failure.hint(format!(
            "the next run creates it again; the committed work: git diff {} {branch}",
            base.get(..12).unwrap_or(base)
        )),
        Place::Dir { .. } => failure,
    })
}

/// Prints the differences between a worktree and its base.
pub(crate) fn diff(context: &Context, client: &Client, kept: &Kept) -> ExitResult {
    let Place::Worktree { base, .. } = &kept.workspace.place else {
        return Err(Failure::usage(format!("the workspace of {} is a plain directory, which has no base", kept.workspace.owner)));
    };
    let directory = directory(kept)?;
    let repository = workspaces::repository(client.project())?;
    let diff = repository.diff(directory, base).map_err(git_failed)?;
    if !context.printer.json {
        match diff.patch.is_empty() {
            true => context.printer.line(&format!("{DIM}no changes{DIM:#}")),
            false => context.printer.raw(&diff.patch),
        }
        return Ok(exit::OK);
    }
    let text = String::from_utf8_lossy(&diff.patch).into_owned();
    context.printer.result(&DiffView { owner: &kept.workspace.owner, base, files: diff.files, diff: text }, "")
}
