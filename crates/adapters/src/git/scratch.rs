//! The worktree that a merge works in. One merge of a project runs at a time, and removes its worktree at the end.
//!
//! Each worktree has a name of its own: a git whose merge was killed continues for a while, and removes its worktree
//! when it finds it incomplete. It must not remove the worktree of the next merge.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use super::{Git, GitError, Id, file_names};
use crate::{ids, private};

/// Upper bound on attempts to remove the worktree of a killed merge, and the pause between.
const CLEARINGS: usize = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// The prefix of the names of these worktrees. Earlier versions had a single one with exactly this name.
const NAME: &str = ".merge";

/// The lock of merges. Other merges wait until this process releases it or is dead.
pub(super) struct MergeLock {
    scratch: PathBuf,
    _lock: File,
}

/// A worktree without a branch, removed on drop.
pub(super) struct Tree<'a> {
    git: &'a Git,
    path: PathBuf,
}

impl MergeLock {
    /// Waits for the lock, and removes the worktrees that killed merges have left behind.
    pub(super) fn take(git: &Git, directory: &Path, common: &Path) -> Result<MergeLock, GitError> {
        let system = |source| GitError::System { what: directory.display().to_string(), source };
        private::make_dir(directory).map_err(system)?;
        let lock = private::open(&directory.join(".merge.lock"), OFlags::RDWR | OFlags::CREATE).map_err(system)?;
        lock.lock().map_err(system)?;
        let directory = directory.canonicalize().map_err(system)?;
        let merge_lock = MergeLock { scratch: directory, _lock: lock };
        remove_half_made(common);
        // The merges that made them are dead: otherwise one would hold the lock.
        merge_lock.left_behind(common).iter().for_each(|path| clear(git, path));
        Ok(merge_lock)
    }

    /// The worktrees of killed merges, registered in git or not.
    fn left_behind(&self, common: &Path) -> BTreeSet<PathBuf> {
        let is_ours = |path: &Path| {
            let end = path.file_name().and_then(|name| name.as_bytes().strip_prefix(NAME.as_bytes()));
            path.parent() == Some(&self.scratch) && end.is_some_and(|end| end.first().is_none_or(|letter| *letter == b'-'))
        };
        let known = entries(&common.join("worktrees")).into_iter().filter_map(|record| {
            let mut file = fs::read(record.join("gitdir")).ok()?;
            file.truncate(file.trim_ascii_end().len());
            Some(PathBuf::from(OsString::from_vec(file)).parent()?.to_owned())
        });
        known.chain(entries(&self.scratch)).filter(|path| is_ours(path)).collect()
    }

    /// The directory in which only one merge at a time works.
    pub(super) fn scratch(&self) -> &Path {
        &self.scratch
    }
}

impl<'a> Tree<'a> {
    /// Checks a commit out.
    pub(super) fn add(git: &'a Git, merge_lock: &'a MergeLock, commit: &Id) -> Result<Tree<'a>, GitError> {
        let tree = Tree { git, path: merge_lock.scratch.join(ids::short(NAME)) };
        let args: [&OsStr; 7] = [
            "worktree".as_ref(),
            "add".as_ref(),
            "--detach".as_ref(),
            "--quiet".as_ref(),
            "--".as_ref(),
            tree.path.as_ref(),
            commit.as_ref(),
        ];
        quiet(git.clone()).get(&args)?;
        Ok(tree)
    }

    pub(super) fn git(&self) -> Git {
        quiet(self.git.at(&self.path))
    }

    /// The commit of the worktree.
    pub(super) fn head(&self) -> Result<Id, GitError> {
        self.git().line(&["rev-parse", "--verify", "HEAD"])
    }

    /// The files with conflicts.
    pub(super) fn conflicts(&self) -> Result<Vec<String>, GitError> {
        Ok(file_names(&self.git().get(&["diff", "--name-only", "--diff-filter=U", "-z"])?))
    }
}

impl Drop for Tree<'_> {
    fn drop(&mut self) {
        clear(self.git, &self.path);
    }
}

/// Removes a worktree and its record in git. Retries, because a git whose merge was killed may still write there; it
/// gives up when it finds the worktree gone.
fn clear(git: &Git, path: &Path) {
    let remove: [&OsStr; 6] =
        ["worktree".as_ref(), "remove".as_ref(), "--force".as_ref(), "--force".as_ref(), "--".as_ref(), path.as_ref()];
    for _ in 0..CLEARINGS {
        let (was_known, was_there) = (git.says(&remove).unwrap_or(false), path.exists());
        if !was_known {
            // Git does not recognize a half-made worktree. If it cannot be removed, the next merge tries again.
            fs::remove_dir_all(path).ok();
        }
        match (was_there, path.exists()) {
            (false, _) => return,
            // The next round removes the record.
            (true, false) => {}
            (true, true) => std::thread::sleep(PAUSE),
        }
    }
}

/// The entries of a directory.
fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Removes the incomplete records of our worktrees that a killed git has left: with one, no git can list the worktrees
/// of the repository, and people are blocked too. A live git completes its record within milliseconds.
pub(super) fn remove_half_made(common: &Path) {
    for _ in 0..CLEARINGS {
        let found = half_made(common);
        let is_old = |path: &PathBuf| {
            let changed = fs::metadata(path).and_then(|meta| meta.modified());
            changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= PAUSE * 25))
        };
        for path in found.iter().filter(|path| is_old(path)) {
            // If it cannot be removed, the next git fails and reports it.
            fs::remove_dir_all(path).ok();
        }
        if found.iter().all(is_old) {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// The incomplete records of worktrees with a name like ours. A worktree that was used has an index or a log, and does
/// not count, whatever is missing.
fn half_made(common: &Path) -> Vec<PathBuf> {
    let ours = entries(&common.join("worktrees")).into_iter();
    let ours = ours.filter(|path| is_name_of_ours(path.file_name().unwrap_or_default().as_bytes()));
    let is_half = |path: &PathBuf| {
        ["gitdir", "commondir", "HEAD"].iter().any(|name| fs::metadata(path.join(name)).map_or(true, |file| file.len() == 0))
            && !["index", "logs/HEAD"].iter().any(|name| path.join(name).exists())
    };
    ours.filter(is_half).collect()
}

/// Whether the record of a worktree has the name of a merge, of a task, or of the checks of a branch. Git appends a
/// number to a name that is taken.
fn is_name_of_ours(name: &[u8]) -> bool {
    let checks = name.iter().rposition(|byte| *byte == b'-').map(|at| &name[at + 1..]);
    let is_of_checks = checks.is_some_and(|end| end.len() >= 8 && end.iter().all(u8::is_ascii_hexdigit));
    name.starts_with(b"-merge") || name.starts_with(b"t-") || is_of_checks
}

/// Turns off hooks, which are for the directories of people, and recorded resolutions, which no person would review.
fn quiet(git: Git) -> Git {
    git.with("core.hooksPath=/dev/null").with("rerere.enabled=false")
}
