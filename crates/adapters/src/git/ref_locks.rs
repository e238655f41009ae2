//! The lock files that a killed `git update-ref` leaves.
//!
//! Their names are written down before git runs, and links to the files are made as soon as they exist: a file that is
//! the same as such a link is ours. A git that is killed in between leaves a lock without a link. It counts as ours
//! only if it has an expected path and content, was made after the names were written down, stays unchanged for a
//! while, and every git that ran in the repository when the lock was noticed has ended. All other locks belong to other
//! processes, and stay.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::journal::{Journal, is_same_file};
use super::transaction::Update;
use super::{Git, GitError, system};
use crate::process::start_time;

/// How long a lock without a link must stay as it is. Git holds one for milliseconds.
const GRACE: Duration = Duration::from_secs(3);

/// Stands for a content that is not known beforehand.
const NEEDS_LINK: &[u8] = b"-";

/// A lock file that our git may make.
struct Expected {
    path: PathBuf,
    /// The content that it would have.
    content: Vec<u8>,
}

impl Journal {
    /// Writes down the locks that a change of refs may leave. `git_dir` is git's directory for the checkout that git runs in.
    pub(super) fn expect_ref_locks(&self, git_dir: &Path, updates: &[Update]) -> Result<(), GitError> {
        for n in 0..self.expected().len() {
            fs::remove_file(self.link(n)).ok();
        }
        let mut expected = vec![
            Expected { path: self.common().join("packed-refs.lock"), content: Vec::new() },
            Expected { path: git_dir.join("HEAD.lock"), content: Vec::new() },
        ];
        for update in updates {
            let content = match update {
                Update::Move { to: at, .. } | Update::Create { at, .. } => format!("{at}\n").into_bytes(),
                Update::Delete { .. } => Vec::new(),
            };
            expected.push(Expected { path: self.common().join(format!("{}.lock", update.name())), content });
        }
        // Refs in the reftable format.
        for directory in [self.common(), git_dir] {
            let path = directory.join("reftable/tables.list.lock");
            expected.push(Expected { path, content: NEEDS_LINK.into() });
        }
        let fields: Vec<Vec<u8>> =
            expected.into_iter().flat_map(|lock| [lock.path.into_os_string().into_encoded_bytes(), lock.content]).collect();
        let name = self.path("locks");
        let write = || File::create(&name)?.write_all(&fields.join(&0));
        write().map_err(system(&name))
    }

    /// Between our changes of refs, where other commands of git may lock the packed refs for a moment.
    pub(super) fn expect_no_ref_locks(&self) -> Result<(), GitError> {
        self.expect_ref_locks(self.common(), &[])
    }

    /// Makes links to the locks that git holds now.
    pub(super) fn note_ref_locks(&self) {
        for (n, lock) in self.expected().iter().enumerate() {
            // A lock that does not exist, or is on another file system, gets no link.
            fs::hard_link(&lock.path, self.link(n)).ok();
        }
    }

    /// Removes our locks, whose owners are dead. Returns the removed ones.
    pub(super) fn remove_ref_locks(&self) -> Result<Vec<PathBuf>, GitError> {
        let mut removed = Vec::new();
        let expected = self.expected();
        let mut foreign = false;
        // In reverse, so that the target comes before HEAD: a git that has locked the target has locked HEAD too.
        for (n, lock) in expected.iter().enumerate().rev() {
            let Ok(found) = fs::symlink_metadata(&lock.path) else { continue };
            let is_ours = match fs::symlink_metadata(self.link(n)) {
                Ok(link) => (link.dev(), link.ino()) == (found.dev(), found.ino()),
                Err(_) => !foreign && self.is_abandoned(lock, &found)?,
            };
            if !is_ours {
                foreign = true;
                continue;
            }
            match fs::remove_file(&lock.path) {
                Ok(()) => removed.push(lock.path.clone()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(system(&lock.path)(error)),
            }
        }
        Ok(removed)
    }

    /// Removes the locks of a killed git of this merge. If a lock stays that may be ours, the journal must stay too.
    pub(super) fn settle_ref_locks(&self) {
        let is_settled = self.remove_ref_locks().is_ok() && self.possible_ref_locks().is_empty();
        self.has_left_locks.set(!is_settled);
    }

    /// The existing locks that may be ours.
    pub(super) fn possible_ref_locks(&self) -> Vec<PathBuf> {
        let since = fs::metadata(self.path("locks")).and_then(|file| file.modified()).ok();
        let is_later =
            |path: &Path| fs::symlink_metadata(path).and_then(|file| file.modified()).is_ok_and(|at| Some(at) >= since);
        self.expected().into_iter().map(|lock| lock.path).filter(|path| is_later(path)).collect()
    }

    /// Whether a lock without a link can only be ours.
    fn is_abandoned(&self, lock: &Expected, found: &fs::Metadata) -> Result<bool, GitError> {
        let since = fs::metadata(self.path("locks")).and_then(|file| file.modified()).map_err(system(&lock.path))?;
        let is_like_ours = |found: &fs::Metadata| {
            let content = if found.is_file() && found.len() < 200 { fs::read(&lock.path).ok() } else { None };
            // A new lock is empty.
            found.modified().is_ok_and(|at| at >= since) && content.is_some_and(|is| is == lock.content || is.is_empty())
        };
        if lock.content == NEEDS_LINK || !is_like_ours(found) {
            return Ok(false);
        }
        // Only a git that runs already can have made it, so later attempts of a person do not prolong the wait.
        let suspects = running_gits(self.common());
        let is_unchanged = || {
            let now = fs::symlink_metadata(&lock.path).and_then(|now| now.modified()).ok();
            is_same_file(&lock.path, found) && now.is_some() && now == found.modified().ok()
        };
        let end = Instant::now() + GRACE;
        while Instant::now() < end && (!is_old(&lock.path) || suspects.iter().any(is_running)) {
            if !is_unchanged() {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(is_unchanged() && is_like_ours(found) && !suspects.iter().any(is_running))
    }

    fn link(&self, n: usize) -> PathBuf {
        self.path(&format!("ref-lock-{n}"))
    }

    fn expected(&self) -> Vec<Expected> {
        let bytes = fs::read(self.path("locks")).unwrap_or_default();
        let fields: Vec<&[u8]> = bytes.split(|byte| *byte == 0).collect();
        let expected = |pair: &[&[u8]]| Expected { path: OsStr::from_bytes(pair[0]).into(), content: pair[1].into() };
        fields.chunks_exact(2).map(expected).collect()
    }
}

/// Removes the locks below `refs/banksman` that a killed git has left: only our gits change these refs, within milliseconds.
pub(super) fn remove_own_ref_locks(common: &Path) {
    let end = Instant::now() + GRACE * 2;
    loop {
        let locks = locks_below(&common.join("refs/banksman"));
        for lock in locks.iter().filter(|lock| is_old(lock)) {
            // If it cannot be removed, the next git fails and reports it.
            fs::remove_file(lock).ok();
        }
        if locks.iter().all(|lock| is_old(lock)) || Instant::now() > end {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Git {
    /// Changes a ref below `refs/banksman` by one command, removing locks that a killed git has left there.
    pub(super) fn set_own_ref(&self, common: &Path, args: &[&str]) -> Result<(), GitError> {
        self.set_own_refs(common, args, &[])
    }

    /// The same for several refs, given as input for git.
    pub(super) fn set_own_refs(&self, common: &Path, args: &[&str], input: &[u8]) -> Result<(), GitError> {
        let set = || {
            let answer = self.ask_with(args, input)?;
            if answer.status == 0 { Ok(()) } else { Err(answer.failed()) }
        };
        match set() {
            Err(error) if locks_below(&common.join("refs/banksman")).is_empty() => Err(error),
            Err(_) => {
                remove_own_ref_locks(common);
                set()
            }
            Ok(()) => Ok(()),
        }
    }
}

fn locks_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(locks_below(&path));
        } else if path.extension().is_some_and(|end| end == "lock") {
            found.push(path);
        }
    }
    found
}

/// Whether a lock is older than any live git would hold it, or gone.
fn is_old(lock: &Path) -> bool {
    let Ok(changed) = fs::symlink_metadata(lock).and_then(|file| file.modified()) else { return true };
    changed.elapsed().is_ok_and(|age| age >= GRACE)
}

/// The pids and start times of the git processes whose directory is inside of this repository or its main checkout.
fn running_gits(common: &Path) -> Vec<(i32, u64)> {
    let around = common.parent().unwrap_or(common);
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let file = |pid: i32, name: &str| Path::new("/proc").join(pid.to_string()).join(name);
    let is_git = |pid: &i32| fs::read(file(*pid, "comm")).is_ok_and(|name| name.starts_with(b"git"));
    let is_here = |pid: &i32| fs::read_link(file(*pid, "cwd")).is_ok_and(|there| there.starts_with(around));
    pids.filter(is_git).filter(is_here).filter_map(|pid| Some((pid, start_time(pid).ok()?))).collect()
}

fn is_running((pid, start): &(i32, u64)) -> bool {
    start_time(*pid).is_ok_and(|now| now == *start)
}
