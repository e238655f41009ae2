//! The workspaces of tasks and pipelines: the records of the sessions that work in them, and of the processes that remove them.

use banksman_core::event::{Kind, Resource};
use banksman_core::workspace::{self, Input, Outcome};
use banksman_core::{HolderId, TaskId, Workspace};
use banksman_store::{Key, Tx};

#[derive(Debug, Clone)]
pub struct WorkspaceRequest {
    pub owner: TaskId,
    /// The caller: a run, or the process that removes the workspace under a name of its own. Neither name is ever used twice, so that
    /// the holder of the lock is its fence.
    pub holder: HolderId,
    pub input: Input,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkspaceOutcome {
    /// The machine's answer, with the workspace after the step.
    Stepped(Outcome, Option<Box<Workspace>>),
    /// The caller does not hold the lock of the workspace.
    Fenced,
}

impl WorkspaceRequest {
    pub(crate) fn keys(&self) -> Vec<Key> {
        vec![Key::Workspace(self.owner.clone()), Key::Lock(self.owner.workspace_lock())]
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> WorkspaceOutcome {
        let lock = Resource { kind: Kind::Lock, name: self.owner.workspace_lock() };
        if tx.tables.coordination.grant_of(&lock, &self.holder).is_none() {
            return WorkspaceOutcome::Fenced;
        }
        let now = tx.now(Vec::new(), Default::default());
        let before = tx.tables.backlog.workspaces.remove(&self.owner);
        let step = workspace::step(&self.owner, before, self.input.clone(), &now);
        tx.tables.backlog.workspaces.extend(step.state.clone().map(|after| (self.owner.clone(), after)));
        tx.carry_out(step.effects, false);
        WorkspaceOutcome::Stepped(step.outcome, step.state.map(Box::new))
    }
}
