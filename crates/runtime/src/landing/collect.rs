//! Turns what a task has left in its worktree into the commit that lands.

use std::path::PathBuf;

use banksman_adapters::git::{Collected, Collecting, Repository};
use banksman_core::landing::{CommitId, Entry, Found, Obstacle, Report, Terms};
use banksman_core::workspace::Place;
use banksman_core::{Task, TaskId, Workspace};
use banksman_store::Key;

use super::{LandingAttempt, LandingError, failure, git_message};
use crate::config::OnConflict;
use crate::sessions::Sessions;
use crate::workspaces::{self, WorkspaceError};

impl LandingAttempt<'_> {
    /// Reads the worktree of an entry's task under the lock of the workspace, so that no other process works in it
    /// meanwhile.
    pub(super) fn collect(&self, entry: &Entry) -> Result<Report, LandingError> {
        let Some(owner) = &entry.spec.task else { return Ok(failure("its commit is not known".into())) };
        let keys = [Key::Task(owner.clone()), Key::Workspace(owner.clone()), Key::Family(owner.clone())];
        let mut rows = self.client.load(&keys.into())?.tables.backlog;
        // What the children do in its workspace, or land on its branch, is part of its work. Its run is over, so no
        // more children come.
        let open = rows.tasks.values().filter(|task| task.id != *owner && !task.status().is_over());
        let tasks: Vec<TaskId> = open.map(|task| task.id.clone()).collect();
        if !tasks.is_empty() {
            return Ok(Report::Obstructed(Obstacle::Children { tasks }));
        }
        let settings = &self.client.config().landing;
        let terms = Terms { rounds: settings.retries, ask_on_conflict: settings.on_conflict == OnConflict::Decision };
        let found = |found: Found| Ok(Report::Collected { found, terms });
        let Some(task) = rows.tasks.remove(owner) else { return found(review("its task was deleted".into())) };
        if !entry.spec.unchecked && matches!(self.client.project().landing_check(), Ok(None)) {
            return found(review(
                "landing.check is not set, and nothing lands unchecked unless a person says so (--unchecked)".into(),
            ));
        }
        let Some(workspace) = rows.workspaces.remove(owner) else { return found(Found::Nothing) };
        match workspaces::with_lock(self.client, owner, |_| self.inspect(&task, &workspace)) {
            Ok(Ok(collected)) => found(collected),
            Ok(Err(error)) => Ok(failure(error)),
            Err(WorkspaceError::InUse { holder, .. }) => Ok(Report::Obstructed(Obstacle::Checkout {
                path: workspace.place.path().into(),
                reason: format!("{holder} works in it").into(),
                files: Vec::new(),
            })),
            Err(error) => Ok(failure(error.to_string())),
        }
    }

    /// The content of a worktree, or why it is unknown.
    fn inspect(&self, task: &Task, workspace: &Workspace) -> Result<Result<Found, String>, WorkspaceError> {
        self.forget_done(&task.id)?;
        let Place::Worktree { path, branch, .. } = &workspace.place else {
            return Ok(Ok(review("it does not work in a worktree".into())));
        };
        let config = self.client.config();
        let what = Collecting {
            target: self.target.as_str(),
            branch,
            title: task.spec.title.as_str(),
            leftovers: config.landing.leftovers,
            copied: &config.workspace.copy,
        };
        let collected = workspaces::repository(self.client.project()).and_then(|repository: Repository| {
            let path = PathBuf::from(&**path);
            Ok(repository.collect(&path, what)?)
        });
        let found = match collected {
            Ok(Collected::Commit { commit, branch }) => {
                if let Err(error) = self.lander.hold(self.target.as_str(), &[&commit]) {
                    return Ok(Err(git_message(&error)));
                }
                match CommitId::new(&commit) {
                    Ok(source) => Found::Commit { source, branch: branch.map(Into::into) },
                    Err(error) => return Ok(Err(error.to_string())),
                }
            }
            Ok(Collected::Nothing) => Found::Nothing,
            Ok(Collected::Unfinished(reason)) => Found::Unfinished { reason: reason.into() },
            Ok(Collected::Uncommitted(reason)) => review(reason),
            Err(WorkspaceError::Git(error)) => return Ok(Err(git_message(&error))),
            Err(error) => return Ok(Err(error.to_string())),
        };
        Ok(Ok(found))
    }

    /// Removes the file DONE of a loop: if the work is returned, there is more to do.
    fn forget_done(&self, task: &TaskId) -> Result<(), WorkspaceError> {
        let files = Sessions::new(self.client.project());
        files.remove_done(task).map_err(|source| WorkspaceError::Io { path: files.done(task), source })
    }
}

fn review(reason: String) -> Found {
    Found::ForReview { reason: reason.into() }
}
