//! Whether the work of a new task lands, and on which branch.

use banksman_core::task::{LandSpec, WorkspaceSpec};
use banksman_core::{Name, TaskId};
use banksman_runtime::{Client, landing};
use banksman_store::{Key, Reader};
use clap::Args;

use crate::commands::landing::{git_failure, target_of};
use crate::context::variable;
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct LandArgs {
    /// Land its work through the merge queue; the task is completed when the work has landed [default for worktrees if landing.check is set]
    #[arg(long, conflicts_with = "no_land")]
    land: bool,
    /// Leave its work on its branch; the task is completed when its run is done
    #[arg(long)]
    no_land: bool,
    /// The branch to land on [default: landing.target, or the branch of the main checkout; of a child: the parent's branch]
    #[arg(long, value_name = "BRANCH", conflicts_with = "no_land")]
    into: Option<String>,
}

impl LandArgs {
    /// Makes the work land, on this branch unless another one was given.
    pub(super) fn or_into(&mut self, into: Option<String>) {
        if !self.no_land {
            self.land = true;
            self.into = self.into.take().or(into);
        }
    }

    pub(super) fn choose(
        self,
        client: &Client,
        reader: &mut Reader,
        parent: Option<&TaskId>,
        workspace: &WorkspaceSpec,
        has_work: bool,
    ) -> Result<Option<Box<LandSpec>>, Failure> {
        let is_asked = self.land || self.into.is_some();
        if self.no_land {
            return Ok(None);
        }
        if !has_work || !matches!(workspace, WorkspaceSpec::Worktree(_)) {
            return match is_asked {
                true => Err(Failure::usage("only the work of a worktree can land").hint("add --worktree")),
                false => Ok(None),
            };
        }
        if let Some(target) = parent_branch(reader, parent)?.filter(|_| self.into.is_none()) {
            return Ok(Some(Box::new(LandSpec { target, unchecked: true, of_child: true })));
        }
        if !is_asked && client.config().landing.check.is_none() {
            return Ok(None);
        }
        let lander = landing::lander(client.project()).map_err(git_failure)?;
        let target = target_of(client, &lander, self.into.as_deref()).map_err(|failure| match is_asked {
            true => failure,
            false => failure.hint("name a branch with --into, or leave the work on its own branch with --no-land"),
        })?;
        Ok(Some(Box::new(LandSpec { target, unchecked: false, of_child: false })))
    }
}

/// The branch of the parent's worktree, if the parent's own work lands: then that branch takes in the work of its
/// children.
fn parent_branch(reader: &mut Reader, parent: Option<&TaskId>) -> Result<Option<Name>, Failure> {
    let (Some(parent), Some(branch)) = (parent, variable("BANKSMAN_BRANCH")) else { return Ok(None) };
    let rows = reader.view().load(&[Key::Task(parent.clone())].into())?.tables.backlog;
    let lands = rows.tasks.get(parent).is_some_and(|task| task.spec.land.is_some());
    Ok(lands.then(|| Name::new(&branch).ok()).flatten())
}
