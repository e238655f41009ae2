//! `git gc` is kept away while a merge makes commits that nothing refers to yet.
//!
//! Git writes `gc.pid` in its directory, with the process and the host, while it clears away unused objects, and refuses to
//! begin as long as such a process lives. So does a merge. One that was killed leaves a file that git takes for nothing.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, test_kill_process};

use super::journal::{Journal, is_same_file};
use super::{GitError, system};

/// How long a merge waits for the end of a `git gc`. Then it goes on, and looks whether everything is there.
const PATIENCE: Duration = Duration::from_secs(60);

/// How old a lock of that file is when nobody will remove it.
const ABANDONED: Duration = Duration::from_secs(3);

/// How old the file may be until nobody believes it any more.
const FORGOTTEN: Duration = Duration::from_secs(12 * 3_600);

impl Journal {
    /// Keeps `git gc` away. If one is at work already, its end is waited for.
    pub(super) fn keep_collection_away(&self) -> Result<(), GitError> {
        let (own, name, lock) = (self.path("gc.pid"), self.common().join("gc.pid"), self.common().join("gc.pid.lock"));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        fs::write(&own, format!("{} {host}", std::process::id())).map_err(system(&own))?;
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            match fs::hard_link(&own, &lock) {
                Ok(()) if is_collecting(&name, &host) => fs::remove_file(&lock).map_err(system(&lock))?,
                Ok(()) => return fs::rename(&lock, &name).map_err(system(&name)),
                // Nobody can begin as long as a lock is there that a killed git has left.
                Err(_) if is_abandoned(&lock) && !is_collecting(&name, &host) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(system(&lock)(error)),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Whether a `git gc` is at work in spite of that.
    pub(super) fn is_being_collected(&self) -> bool {
        let name = self.common().join("gc.pid");
        name.exists() && !self.is_ours(&name)
    }

    /// Whether git may fail because somebody clears away unused objects at the same time.
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
                // Git takes it for nothing when this process has ended.
                fs::remove_file(name).ok();
            }
        }
    }

    fn is_ours(&self, name: &Path) -> bool {
        fs::symlink_metadata(self.path("gc.pid")).is_ok_and(|own| is_same_file(name, &own))
    }
}

/// Whether a lock is older than any that somebody is about to turn into `gc.pid`, which takes milliseconds.
fn is_abandoned(lock: &Path) -> bool {
    let changed = fs::symlink_metadata(lock).and_then(|file| file.modified());
    changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ABANDONED))
}

/// Whether the process that has written the file lives, as far as that can be known. Git asks in the same way.
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
