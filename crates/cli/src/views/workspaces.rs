//! Workspaces and their saved states.

use banksman_adapters::git::Saved;
use banksman_core::{HolderId, TaskId, Title, Wall};
use banksman_runtime::workspaces::{Kept, Removed};
use serde::Serialize;

use super::Time;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WorkspaceView<'a> {
    pub(crate) owner: &'a TaskId,
    pub(crate) title: Option<&'a Title>,
    pub(crate) kind: &'static str,
    pub(crate) state: &'static str,
    pub(crate) path: &'a str,
    pub(crate) branch: Option<&'a str>,
    pub(crate) base: Option<&'a str>,
    pub(crate) host: &'a str,
    pub(crate) holder: Option<&'a HolderId>,
    pub(crate) created_at: Time,
}

impl<'a> From<&'a Kept> for WorkspaceView<'a> {
    fn from(kept: &'a Kept) -> WorkspaceView<'a> {
        let workspace = &kept.workspace;
        WorkspaceView {
            owner: &workspace.owner,
            title: kept.task.as_ref().map(|task| &task.spec.title),
            kind: if workspace.place.branch().is_some() { "worktree" } else { "dir" },
            state: kept.state(),
            path: workspace.place.path(),
            branch: workspace.place.branch(),
            base: workspace.place.base(),
            host: &workspace.host,
            holder: kept.holder.as_ref(),
            created_at: Time(workspace.created),
        }
    }
}

/// A workspace with its saved states.
#[derive(Debug, Serialize)]
pub(crate) struct WorkspacePage<'a> {
    #[serde(flatten)]
    pub(crate) workspace: WorkspaceView<'a>,
    pub(crate) saved: Vec<SavedView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SavedView {
    pub(crate) id: String,
    pub(crate) workspace: String,
    #[serde(rename = "ref")]
    pub(crate) name: String,
    pub(crate) commit: String,
    pub(crate) reason: String,
    pub(crate) saved_at: Time,
}

impl From<&Saved> for SavedView {
    fn from(saved: &Saved) -> SavedView {
        SavedView {
            id: format!("{}/{}", saved.id, saved.number),
            workspace: saved.id.clone(),
            name: saved.name(),
            commit: saved.commit.clone(),
            reason: saved.reason.clone(),
            saved_at: Time(Wall(saved.at.saturating_mul(1_000))),
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct RemovedView {
    pub(crate) owner: TaskId,
    pub(crate) path: String,
    pub(crate) saved: Option<SavedView>,
}

impl From<&Removed> for RemovedView {
    fn from(removed: &Removed) -> RemovedView {
        RemovedView {
            owner: removed.owner.clone(),
            path: removed.path.display().to_string(),
            saved: removed.saved.as_ref().map(SavedView::from),
        }
    }
}

/// A step of pruning.
#[derive(Debug, Serialize)]
pub(crate) struct PruneView {
    pub(crate) action: &'static str,
    pub(crate) what: String,
    pub(crate) reason: String,
    pub(crate) saved: Option<SavedView>,
    pub(crate) error: Option<String>,
}

/// The steps of pruning, done or planned.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PrunedView {
    pub(crate) dry_run: bool,
    pub(crate) steps: Vec<PruneView>,
}

/// The changes in a workspace.
#[derive(Debug, Serialize)]
pub(crate) struct DiffView<'a> {
    pub(crate) owner: &'a TaskId,
    pub(crate) base: &'a str,
    pub(crate) files: Vec<String>,
    pub(crate) diff: String,
}

/// A branch created from a saved state.
#[derive(Debug, Serialize)]
pub(crate) struct RestoredView {
    pub(crate) saved: SavedView,
    pub(crate) branch: String,
}
