//! The branch that a merge or a landing moves, together with its checkout.

use std::path::{Path, PathBuf};

use super::checkouts::Checkout;
use super::journal::Journal;
use super::merge::{Halt, MergeError};
use super::moving::Move;
use super::staging::{Staged, stage};
use super::transaction::{Transaction, Update};
use super::{Git, GitError, Id};

/// A branch that is to move.
pub(super) struct Target<'a> {
    pub(super) git: &'a Git,
    /// Git's directory for the checkout that `git` runs in.
    pub(super) git_dir: &'a Path,
    pub(super) journal: &'a Journal,
    pub(super) name: &'a str,
    /// The message for the reflog.
    pub(super) note: String,
}

impl Target<'_> {
    pub(super) fn tip(&self) -> Result<Id, GitError> {
        self.git.tip(self.name)?.ok_or_else(|| GitError::NoBranch(self.name.into()))
    }

    /// The tip of the branch, which must not be an alias of another one.
    pub(super) fn own_tip(&self) -> Result<Id, MergeError> {
        match self.git.branch(self.name)?.ok_or_else(|| GitError::NoBranch(self.name.into()))? {
            (tip, None) => Ok(tip),
            (_, Some(other)) => Err(MergeError::Alias { into: self.name.into(), other }),
        }
    }

    pub(super) fn full_name(&self) -> String {
        format!("refs/heads/{}", self.name)
    }

    /// The checkout of the branch, in which no operation may be in progress.
    pub(super) fn checkout(&self) -> Result<Option<Checkout>, MergeError> {
        let mut all = self.git.checkouts(self.name)?;
        let Some(checkout) = all.pop() else { return Ok(None) };
        if !all.is_empty() {
            return Err(MergeError::SeveralCheckouts { into: self.name.into(), path: checkout.path });
        }
        if let Some(what) = self.git.under_way(&checkout)? {
            return Err(MergeError::UnderWay { path: checkout.path, what });
        }
        Ok(Some(checkout))
    }

    fn prepare(&self, git: &Git, git_dir: &Path, updates: &[Update]) -> Result<Transaction<'_>, Halt> {
        let said = match Transaction::prepare(git, git_dir, self.journal, &self.note, updates)? {
            Ok(transaction) => return Ok(transaction),
            Err(said) => said,
        };
        // A hook of the user's can refuse the transaction as well.
        let has_moved = |update: &Update| match update {
            Update::Move { from, .. } => self.tip().is_ok_and(|tip| tip != *from),
            Update::Create { .. } | Update::Delete { .. } => false,
        };
        let is_moved = updates.iter().any(has_moved) || said.contains(".lock'");
        Err(if is_moved { Halt::Again(said) } else { GitError::Failed { what: "update-ref".into(), said }.into() })
    }

    /// Moves a target that is not checked out anywhere.
    pub(super) fn move_alone(&self, updates: &[Update]) -> Result<(), Halt> {
        let transaction = self.prepare(self.git, self.git_dir, updates)?;
        // In a checkout made meanwhile, the index would revert everything that was merged.
        if !self.git.checkouts(self.name)?.is_empty() {
            return Err(Halt::Again("it was checked out".into()));
        }
        transaction.commit().map_err(|said| GitError::Failed { what: "update-ref".into(), said }.into())
    }

    /// Moves the target together with its checkout. A move that fails is undone.
    pub(super) fn move_with(&self, checkout: &Checkout, from: &Id, to: &Id, updates: &[Update]) -> Result<Option<PathBuf>, Halt> {
        let there = self.git.at(&checkout.path);
        let staged = match stage(&there, self.journal, &self.full_name(), from, to) {
            // A commit made meanwhile looks like changes when the checkout is compared with the former tip.
            Err(Halt::Refused(MergeError::Dirty(_))) if self.tip()? != *from => {
                return Err(Halt::Again("somebody has committed to it".into()));
            }
            staged => staged?,
        };
        let moving = &staged.moving;
        self.journal.write_record(moving.record())?;
        let end = self.move_locked(&there, &staged, updates);
        if let Err(Halt::Refused(MergeError::Halfway { .. })) = &end {
            return end.map(|()| None);
        }
        self.journal.close_record()?;
        moving.unlock_index()?;
        let saved = moving.dispose()?;
        end?;
        if staged.hook.exists() || there.knows_hooks_by_settings() {
            // Its exit status does not matter: the merge is over.
            there.ask(&["hook", "run", "--ignore-missing", "post-merge", "--", "0"])?;
        }
        Ok(saved)
    }

    /// Locks, verifies and moves. Leaves the index locked.
    fn move_locked(&self, there: &Git, staged: &Staged<'_>, updates: &[Update]) -> Result<(), Halt> {
        let moving = &staged.moving;
        let transaction = self.prepare(there, &moving.record().git_dir, updates)?;
        if !moving.lock_index()? {
            return Err(Halt::Locked(there.directory.clone()));
        }
        staged.verify()?;
        if let Err(halt) = moving.forward() {
            undo(moving)?;
            return Err(halt);
        }
        let Err(said) = transaction.commit() else { return Ok(()) };
        // Git may have been killed after the commit.
        if self.git.contains(&self.tip()?, &moving.record().to)? {
            return Ok(());
        }
        undo(moving)?;
        Err(GitError::Failed { what: "update-ref".into(), said }.into())
    }
}

fn undo(moving: &Move<'_>) -> Result<(), MergeError> {
    moving.undo().map_err(|source| MergeError::Halfway { path: moving.record().root.clone(), source })
}
