//! Settling the remains of killed merges in a repository: checkouts between two commits, and locks.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::journal::{Journal, TITLE, is_same_file};
use super::merge::MergeError;
use super::moving::Move;
use super::ref_locks::remove_own_ref_locks;
use super::scratch::remove_half_made;
use super::{Git, GitError, system};

/// How long one command of git may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The remains of one killed merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// The checkout that may be between two commits.
    pub checkout: Option<PathBuf>,
    /// The lock files that may belong to the merge. They are removed only if that is proven.
    pub locks: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The checkout that is at one of its two commits now.
    pub checkout: Option<PathBuf>,
    /// The lock files that were removed.
    pub locks: Vec<PathBuf>,
    /// The folder with the files that were changed while the checkout moved.
    pub saved: Option<PathBuf>,
}

/// The remains of killed merges in the repository that `repo` belongs to. None if there is no repository.
pub fn leftovers(repo: &Path) -> Result<Vec<Leftover>, GitError> {
    let Some((_, common)) = repository(repo)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for folder in Journal::folders(&common) {
        let Some(journal) = Journal::left(&common, &folder, false)? else { continue };
        let record = journal.open_record()?;
        let mut locks = journal.possible_ref_locks();
        let index_lock = record.as_ref().map(|record| record.git_dir.join("index.lock"));
        locks.extend(index_lock.filter(|lock| journal.is_lock(lock)));
        found.push(Leftover { checkout: record.map(|record| record.root), locks });
    }
    found.extend(orphans(&common).into_iter().map(|(lock, _)| Leftover { checkout: None, locks: vec![lock] }));
    Ok(found)
}

/// Settles the remains of killed merges in the repository that `repo` belongs to.
pub fn settle_leftovers(repo: &Path) -> Result<Vec<Settled>, MergeError> {
    let Some((git, common)) = repository(repo)? else { return Ok(Vec::new()) };
    settle_all(&git, &common, None)
}

/// The same, for a merge that holds the lock of `scratch`: the former holder is dead, so this waits for the end of its git.
pub(super) fn settle_all(git: &Git, common: &Path, scratch: Option<&Path>) -> Result<Vec<Settled>, MergeError> {
    let mut settled = Vec::new();
    remove_half_made(common);
    remove_own_ref_locks(common);
    for folder in Journal::folders(common) {
        let wait = scratch.is_some_and(|scratch| Journal::is_of(&folder, scratch));
        if let Some(journal) = Journal::left(common, &folder, wait)? {
            settled.push(settle(git, &journal)?);
        }
    }
    for (lock, _held) in orphans(common) {
        fs::remove_file(&lock).map_err(system(&lock))?;
        settled.push(Settled { checkout: None, locks: vec![lock], saved: None });
    }
    Ok(settled)
}

fn settle(git: &Git, journal: &Journal) -> Result<Settled, MergeError> {
    let mut settled = Settled { checkout: None, locks: journal.remove_ref_locks()?, saved: None };
    if let Some(record) = journal.open_record()? {
        let (root, lock) = (record.root.clone(), record.git_dir.join("index.lock"));
        if journal.is_lock(&lock) {
            settled.locks.push(lock.clone());
        }
        let halfway = |source| MergeError::Halfway { path: root.clone(), source };
        if let Some(moving) = Move::resume(git, journal, record)? {
            if !moving.lock_index()? {
                return Err(MergeError::Locked(root));
            }
            let is_landed = is_landed(git, &moving)?;
            let end = if is_landed { moving.complete() } else { moving.undo() };
            end.map_err(halfway)?;
            journal.close_record()?;
            moving.unlock_index()?;
            settled.checkout = Some(root);
        } else {
            journal.close_record()?;
            if journal.is_lock(&lock) {
                fs::remove_file(&lock).map_err(system(&lock))?;
            }
        }
    }
    if let Some(record) = journal.closed_record()?
        && let Some(moving) = Move::resume(git, journal, record)?
    {
        settled.saved = moving.dispose()?;
    }
    journal.end()?;
    Ok(settled)
}

/// Whether the ref of a move has moved.
fn is_landed(git: &Git, moving: &Move<'_>) -> Result<bool, GitError> {
    let record = moving.record();
    let tip = git.ask(&["rev-parse", "--quiet", "--verify", &record.target])?;
    let tip = String::from_utf8_lossy(&tip.stdout).trim_end().to_owned();
    // A commit that does not exist any more has never landed.
    let is_there = git.ask(&["cat-file", "-e", &format!("{}^{{commit}}", record.to)])?.status == 0;
    Ok(!tip.is_empty() && is_there && git.contains(&tip, &record.to)?)
}

/// Index locks of dead processes with our title and without a journal: an earlier version has left them, or the journal
/// was removed. The returned files hold their locks.
fn orphans(common: &Path) -> Vec<(PathBuf, File)> {
    let linked = fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten().map(|entry| entry.path());
    let locks = linked.chain([common.to_path_buf()]).map(|git_dir| git_dir.join("index.lock"));
    let folders = Journal::folders(common);
    let orphan = |lock: PathBuf| {
        let file = File::open(&lock).ok()?;
        let mut line = String::new();
        BufReader::new(&file).read_line(&mut line).ok()?;
        let own = file.metadata().ok()?;
        let has_journal = folders.iter().any(|folder| is_same_file(&folder.join("lock"), &own));
        (line.trim_end() == TITLE && !has_journal && file.try_lock().is_ok() && is_same_file(&lock, &own)).then_some((lock, file))
    };
    locks.filter_map(orphan).collect()
}

fn repository(repo: &Path) -> Result<Option<(Git, PathBuf)>, GitError> {
    let git = Git::new(repo, LIMIT);
    match git.place("--git-common-dir") {
        Ok(common) => Ok(Some((git, common))),
        // No git, or no repository.
        Err(GitError::Failed { .. } | GitError::System { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
