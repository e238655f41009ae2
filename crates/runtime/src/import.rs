//! Imports tasks: opens an import, adds chunk after chunk, and finishes it; or leaves nothing behind.

use std::ops::ControlFlow;

use banksman_adapters::ids;
use banksman_core::backlog::Edge;
use banksman_core::event::{Kind, Resource};
use banksman_core::import::{Import, NewSection};
use banksman_core::resource::coordination::{Command, Outcome as Answer};
use banksman_core::resource::grant::{Ask, GrantRequest, Term};
use banksman_core::resource::lock;
use banksman_core::task::Spec;
use banksman_core::{HolderId, ImportId, Liveness, Name};
use banksman_engine::{ImportOutcome, ImportRequest, Request, Seen};
use banksman_store::Key;
use thiserror::Error;

use crate::client::Client;
use crate::error::Error;
use crate::waiting::{Acquisition, WaitOptions};

/// How many rows one transaction writes at most, counting a task, its event and each of its dependencies: so few that
/// no process that waits for the writer lock notices.
const ROWS: usize = 1_000;

#[derive(Debug, Error)]
pub enum ImportError {
    #[error("the import was refused: {0:?}")]
    Refused(ImportOutcome),
    /// The caller has stopped the import.
    #[error("the import was stopped")]
    Stopped,
    /// A call failed. The import is dropped, if possible.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl Client {
    /// Calls `act` while no other process compares a file with the existing tasks: two that did so at once would both
    /// add the new tasks. Waits as for any lock; returns `None` if that takes too long. If this process is killed, its
    /// death frees the lock.
    pub fn sync_alone<T>(&self, act: impl FnOnce() -> T) -> Result<Option<T>, Error> {
        let lock = Resource { kind: Kind::Lock, name: Name::new("import:sync").expect("a short name is valid") };
        let holder = HolderId::new(&ids::short("import")).expect("a short id is a valid name");
        let claim = GrantRequest { processes: vec![self.this_process().clone()], ..GrantRequest::new(holder.clone()) };
        let wait = WaitOptions { wait: Some(self.config().wait_timeout), ..WaitOptions::default() };
        let epoch = match self.acquire_any(lock.clone(), Ask { term: Term::Open, ..Ask::new(claim) }, wait)? {
            Acquisition::Answered {
                outcome: Answer::Lock(lock::Outcome::Acquired(grant) | lock::Outcome::Reclaimed { grant, .. }),
                ..
            } => grant.epoch,
            _ => return Ok(None),
        };
        let result = act();
        // If the store does not answer, the exit of this process frees the lock.
        self.call(Request::plain(Command::Lock(lock.name, lock::Input::Release { holder, epoch }))).ok();
        Ok(Some(result))
    }

    /// Adds many tasks that appear all at once, or not at all. A dependency is an existing task, or one of the list
    /// ([`ImportId::task`] with its index in the list). `progress` is called with the number of tasks added so far, and
    /// may stop the import.
    pub fn import(
        &self,
        id: &ImportId,
        sections: Vec<NewSection>,
        tasks: Vec<(Spec, Vec<Edge>)>,
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<(), ImportError> {
        let total = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
        let open = ImportRequest::Open { id: id.clone(), process: self.this_process().clone(), total, sections };
        match self.request(open)? {
            ImportOutcome::Open { .. } => {}
            refusal => return Err(ImportError::Refused(refusal)),
        }
        if let Err(error) = self.fill(id, tasks, progress) {
            // If it cannot be dropped now, the next import removes it after this process has exited.
            self.drop_import(id, Seen::default()).ok();
            return Err(error);
        }
        let finished = self.request(ImportRequest::Finish { id: id.clone() });
        match (finished, self.drop_import(id, Seen::default())) {
            // If its commit has succeeded, even though the answer was lost, nothing is left to drop.
            (Ok(ImportOutcome::Finished(_)), _) | (Err(_), Ok(ImportOutcome::Unknown)) => {
                self.analyze();
                Ok(())
            }
            (Ok(refusal), _) => Err(ImportError::Refused(refusal)),
            (Err(error), _) => Err(error.into()),
        }
    }

    fn fill(
        &self,
        id: &ImportId,
        tasks: Vec<(Spec, Vec<Edge>)>,
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<(), ImportError> {
        let mut tasks = tasks.into_iter().peekable();
        let mut added = 0;
        while tasks.peek().is_some() {
            if progress(added as usize).is_break() {
                return Err(ImportError::Stopped);
            }
            let mut rows = 0;
            let chunk: Vec<_> = std::iter::from_fn(|| {
                let next = tasks.next_if(|(_, edges)| rows == 0 || rows + 2 + edges.len() <= ROWS)?;
                rows += 2 + next.1.len();
                Some(next)
            })
            .collect();
            match self.request(ImportRequest::Chunk { id: id.clone(), first: added, tasks: chunk })? {
                ImportOutcome::Open { added: now } => added = now,
                refusal => return Err(ImportError::Refused(refusal)),
            }
        }
        Ok(())
    }

    /// Removes the imports whose processes are dead, and returns them.
    pub fn clear_imports(&self) -> Result<Vec<Import>, Error> {
        let mut cleared = Vec::new();
        for import in self.load(&[Key::Imports].into())?.tables.backlog.imports.into_values() {
            let probe = match self.host().probe(&import.process) {
                Liveness::Alive | Liveness::Unknown => continue,
                dead @ (Liveness::Dead | Liveness::OtherBoot) => (import.process.clone(), dead),
            };
            let seen = Seen { probes: vec![probe], ..Seen::default() };
            if let ImportOutcome::Dropped = self.drop_import(&import.id, seen)? {
                cleared.push(import);
            }
        }
        Ok(cleared)
    }

    fn drop_import(&self, id: &ImportId, seen: Seen) -> Result<ImportOutcome, Error> {
        let by = self.this_process().clone();
        loop {
            match self.request(ImportRequest::Drop { id: id.clone(), by: by.clone(), seen: seen.clone() })? {
                ImportOutcome::Dropping => {}
                outcome => return Ok(outcome),
            }
        }
    }
}
