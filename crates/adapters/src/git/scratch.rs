//! The worktree that a merge works in: one for a project, by one merge at a time, and gone when the merge is over.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use super::{Git, GitError, Id};
use crate::private;

/// How often the worktree of a killed merge is removed until it stays away, and the pause between.
const CLEARINGS: usize = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// The right to merge. Others wait until this process gives it back or is dead.
pub(super) struct MergeLock {
    scratch: PathBuf,
    path: PathBuf,
    _lock: File,
}

/// A worktree without a branch. It is removed when it is dropped.
pub(super) struct Tree<'a> {
    git: &'a Git,
    merge_lock: &'a MergeLock,
}

impl MergeLock {
    /// Waits for it, and clears away what a merge has left behind that was killed.
    pub(super) fn take(git: &Git, directory: &Path, common: &Path) -> Result<MergeLock, GitError> {
        let system = |source| GitError::System { what: directory.display().to_string(), source };
        private::make_dir(directory).map_err(system)?;
        let lock = private::open(&directory.join(".merge.lock"), OFlags::RDWR | OFlags::CREATE).map_err(system)?;
        lock.lock().map_err(system)?;
        let directory = directory.canonicalize().map_err(system)?;
        let merge_lock = MergeLock { path: directory.join(".merge"), scratch: directory, _lock: lock };
        remove_half_made(common);
        // Whoever made it is dead: otherwise the turn would be theirs.
        merge_lock.clear(git);
        Ok(merge_lock)
    }

    /// The directory that only one merge at a time works in.
    pub(super) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Removes the worktree. A git whose merge was killed may still write there, and gives up when it finds it gone.
    fn clear(&self, git: &Git) {
        let remove: [&OsStr; 6] =
            ["worktree".as_ref(), "remove".as_ref(), "--force".as_ref(), "--force".as_ref(), "--".as_ref(), self.path.as_ref()];
        for _ in 0..CLEARINGS {
            if !self.path.exists() {
                return;
            }
            if !git.says(&remove).unwrap_or(false) {
                // Half a worktree, which git does not know as one. What cannot be removed is told by whoever wants the place next.
                fs::remove_dir_all(&self.path).ok();
            }
            if self.path.exists() {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

impl<'a> Tree<'a> {
    /// Checks a commit out.
    pub(super) fn add(git: &'a Git, merge_lock: &'a MergeLock, commit: &Id) -> Result<Tree<'a>, GitError> {
        let tree = Tree { git, merge_lock };
        // Forced, as git may still know one here whose directory is gone.
        let options: [&OsStr; 7] = [
            "worktree".as_ref(),
            "add".as_ref(),
            "--force".as_ref(),
            "--force".as_ref(),
            "--detach".as_ref(),
            "--quiet".as_ref(),
            "--".as_ref(),
        ];
        let mut args = options.to_vec();
        args.extend([merge_lock.path.as_os_str(), commit.as_ref()]);
        quiet(git.clone()).get(&args)?;
        Ok(tree)
    }

    pub(super) fn git(&self) -> Git {
        quiet(self.git.at(&self.merge_lock.path))
    }

    /// The commit that it is at.
    pub(super) fn head(&self) -> Result<Id, GitError> {
        self.git().line(&["rev-parse", "--verify", "HEAD"])
    }

    /// The files that two sides have changed in different ways.
    pub(super) fn conflicts(&self) -> Result<Vec<String>, GitError> {
        let list = self.git().get(&["diff", "--name-only", "--diff-filter=U", "-z"])?;
        let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }
}

impl Drop for Tree<'_> {
    fn drop(&mut self) {
        self.merge_lock.clear(self.git);
    }
}

/// Removes what a git that was killed had begun to write down about a worktree of ours: with half of it, no git can list the
/// worktrees of the repository, and people are held up too. Whoever writes it is done within milliseconds.
pub(super) fn remove_half_made(common: &Path) {
    for _ in 0..CLEARINGS {
        let found = half_made(common);
        let is_old = |path: &PathBuf| {
            let changed = fs::metadata(path).and_then(|meta| meta.modified());
            changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= PAUSE * 25))
        };
        for path in found.iter().filter(|path| is_old(path)) {
            // If it cannot be removed, git says so when it is asked next.
            fs::remove_dir_all(path).ok();
        }
        if found.iter().all(is_old) {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// The records of worktrees with a name like ours that are not complete. One that was ever worked in has an index or a log: what is missing
/// there is not for us to judge.
fn half_made(common: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| is_name_of_ours(entry.file_name().as_bytes())).map(|entry| entry.path());
    let is_half = |path: &PathBuf| {
        ["gitdir", "commondir", "HEAD"].iter().any(|name| fs::metadata(path.join(name)).map_or(true, |file| file.len() == 0))
            && !["index", "logs/HEAD"].iter().any(|name| path.join(name).exists())
    };
    ours.filter(is_half).collect()
}

/// Whether a record of a worktree is called like that of a merge, of a task, or of the checks of a branch. Git adds a number to a name that
/// is taken.
fn is_name_of_ours(name: &[u8]) -> bool {
    let checks = name.iter().rposition(|byte| *byte == b'-').map(|at| &name[at + 1..]);
    let is_of_checks = checks.is_some_and(|end| end.len() >= 8 && end.iter().all(u8::is_ascii_hexdigit));
    name.starts_with(b"-merge") || name.starts_with(b"t-") || is_of_checks
}

/// Hooks are for the directories that people work in; so are resolutions that were recorded, which nobody would look at here.
fn quiet(git: Git) -> Git {
    git.with("core.hooksPath=/dev/null").with("rerere.enabled=false")
}
