//! The record of what was merged: for each branch that landed as other commits than its own, these commits.
//!
//! It is a ref that is made in the transaction that moves the target, so it exists exactly if the target has moved.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::journal::Journal;
use super::transaction::{Transaction, Update};
use super::{Git, GitError, Id};

/// How many records and former tips of a branch are kept. The oldest are removed when there are twice as many: removing
/// locks all refs for a moment, so it is not done each time.
const KEPT: usize = 50;

impl Git {
    /// The ref that records that the branch with this tip has landed as `commit`.
    pub(super) fn landing(into: &str, tip: &Id, commit: &Id) -> Update {
        Update::Create { name: format!("{}{}-{tip}", landed(into), now()), at: commit.clone() }
    }

    /// Whether a branch with this tip was merged into another, which still contains the commit.
    pub(super) fn is_landed(&self, into: &str, at: &Id, tip: &Id) -> Result<bool, GitError> {
        for (commit, name) in self.own_refs(&landed(into))? {
            if name.ends_with(tip.as_str()) && self.contains(at, &commit)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Keeps the tip of a branch by a ref, unless the newest such ref has it.
    pub(super) fn save_tip(&self, common: &Path, into: &str, tip: &Id) -> Result<(), GitError> {
        let place = merges(into);
        if self.own_refs(&place)?.last().is_some_and(|(id, _)| id == tip) {
            return Ok(());
        }
        let name = format!("{place}{}-{}", now(), tip.get(..12).unwrap_or(tip));
        self.set_own_ref(common, &["update-ref", &name, tip])
    }

    /// Removes refs that are not needed any more, and the oldest records and former tips of a branch, if there are
    /// many. If git refuses, the next call tries again.
    pub(super) fn prune_records(&self, journal: &Journal, into: &str, unneeded: Vec<Update>) -> Result<(), GitError> {
        let mut old = unneeded;
        for place in [landed(into), merges(into)] {
            let refs = self.own_refs(&place)?;
            let surplus = if refs.len() > 2 * KEPT { refs.len() - KEPT } else { 0 };
            old.extend(refs.into_iter().take(surplus).map(|(at, name)| Update::Delete { name, at }));
        }
        if old.is_empty() {
            return Ok(());
        }
        if let Ok(transaction) = Transaction::prepare(self, journal.common(), journal, "banksman: prune", &old)? {
            transaction.commit().ok();
        }
        journal.expect_no_ref_locks()
    }

    /// The refs directly below a place, the oldest first. The place of a branch `a/b` is below the one of `a`.
    fn own_refs(&self, place: &str) -> Result<Vec<(Id, String)>, GitError> {
        let list = self.line(&["for-each-ref", "--format=%(objectname) %(refname)", "--sort=refname", place])?;
        let is_own = |name: &str| name.strip_prefix(place).is_some_and(|rest| !rest.contains('/'));
        let refs = list.lines().filter_map(|line| line.split_once(' ')).filter(|(_, name)| is_own(name));
        Ok(refs.map(|(id, name)| (id.to_owned(), name.to_owned())).collect())
    }
}

fn landed(into: &str) -> String {
    format!("refs/banksman/landed/{into}/")
}

fn merges(into: &str) -> String {
    format!("refs/banksman/merges/{into}/")
}

fn now() -> String {
    format!("{:014}", SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis())
}
