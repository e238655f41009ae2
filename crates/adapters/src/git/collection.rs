//! Keeps `git gc` away while a merge makes commits that no ref reaches yet.
//!
//! While git collects unused objects, `gc.pid` in its directory names the process and the host, and another `git gc`
//! refuses to begin while such a process lives. A merge writes the same file. Git ignores the file of a killed merge.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, test_kill_process};

use super::journal::{Journal, is_same_file};
use super::{GitError, system};

/// How long a merge waits for the end of a `git gc`. After that it continues, and checks that no object is missing.
const PATIENCE: Duration = Duration::from_secs(60);

/// The age of a lock of that file at which its owner must be dead.
const ABANDONED: Duration = Duration::from_secs(3);

/// The age at which git ignores the file.
const FORGOTTEN: Duration = Duration::from_secs(12 * 3_600);

impl Journal {
    /// Keeps `git gc` away. Waits for the end of one that is running.
    pub(super) fn keep_collection_away(&self) -> Result<(), GitError> {
        let (own, name, lock) = (self.path("gc.pid"), self.common().join("gc.pid"), self.common().join("gc.pid.lock"));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        fs::write(&own, format!("{} {host}", std::process::id())).map_err(system(&own))?;
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            match fs::hard_link(&own, &lock) {
                Ok(()) if is_collecting(&name, &host) => fs::remove_file(&lock).map_err(system(&lock))?,
                Ok(()) => return fs::rename(&lock, &name).map_err(system(&name)),
                // While the lock of a killed git exists, no other `git gc` can begin.
                Err(_) if is_abandoned(&lock) && !is_collecting(&name, &host) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(system(&lock)(error)),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Whether a `git gc` is running nevertheless.
    pub(super) fn is_being_collected(&self) -> bool {
        let name = self.common().join("gc.pid");
        name.exists() && !self.is_ours(&name)
    }

    /// Whether git may have failed because unused objects were collected at the same time.
    pub(super) fn may_be_collecting(&self, error: &GitError) -> bool {
        let said = error.to_string();
        let is_missing = [
            "missing",
            "bad object",
            "invalid object",
            "unable to read",
            "could not read",
            "could not parse",
            "not a valid object",
            "nonexistent object",
            "unable to write file",
            "No such file or directory",
        ];
        self.is_being_collected() || is_missing.iter().any(|words| said.contains(words))
    }

    /// Lets `git gc` begin again.
    pub(super) fn let_collect(&self) {
        for name in ["gc.pid", "gc.pid.lock"].map(|name| self.common().join(name)) {
            if self.is_ours(&name) {
                // If it stays, git ignores it once this process has ended.
                fs::remove_file(name).ok();
            }
        }
    }

    fn is_ours(&self, name: &Path) -> bool {
        fs::symlink_metadata(self.path("gc.pid")).is_ok_and(|own| is_same_file(name, &own))
    }
}

/// Whether a lock is too old to become `gc.pid`, which takes milliseconds.
fn is_abandoned(lock: &Path) -> bool {
    let changed = fs::symlink_metadata(lock).and_then(|file| file.modified());
    changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ABANDONED))
}

/// Whether the process that has written the file may live. Git uses the same test.
fn is_collecting(name: &Path, host: &str) -> bool {
    let is_old = |at: SystemTime| at.elapsed().is_ok_and(|age| age > FORGOTTEN);
    if fs::metadata(name).and_then(|file| file.modified()).map_or(true, is_old) {
        return false;
    }
    let text = fs::read_to_string(name).unwrap_or_default();
    let Some((pid, there)) = text.trim_end().split_once(' ') else { return false };
    let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) else { return false };
    there != host || test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
}
