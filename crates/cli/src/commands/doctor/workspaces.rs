//! Workspaces without a directory, and directories without a workspace.

use std::path::Path;

use banksman_core::workspace::State;
use banksman_runtime::workspaces;
use banksman_store::Key;

use super::{Entry, Examination, Finding};
use crate::failure::Failure;

pub(super) fn check(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let rows = examination.reader.view().load(&[Key::Workspaces].into())?.tables.backlog.workspaces;
    let mut entries = Vec::new();
    for row in rows.values() {
        let (owner, path) = (&row.owner, row.place.path());
        let is_there = Path::new(path).is_dir();
        match row.state {
            State::Removing => {
                entries.push(Entry::new(format!("the removal of {path} was not finished")).solved_by("banksman workspaces prune"))
            }
            State::Ready if !is_there => entries.push(
                Entry::new(format!("{path}, the workspace of task {owner}, is missing; the next run creates it again"))
                    .solved_by(format!("banksman workspaces remove {owner}")),
            ),
            State::Ready | State::Creating => {}
        }
    }
    let strays = workspaces::strays(&examination.project, &rows)?;
    entries.extend(strays.iter().map(|path| {
        Entry::new(format!("{} is a worktree without a task", path.display()))
            .solved_by(format!("git worktree remove {}", path.display()))
    }));
    Ok(Finding::notes("workspaces", "rows and directories agree", entries))
}
