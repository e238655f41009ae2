//! The right to write, one process at a time. SQLite's own busy handler polls and starves; a blocking file lock is
//! fair.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::error::StoreError;

/// A file lock that is the right to write, behind a gate where one process waits at a time.
///
/// A free file lock goes to the first process that asks, which is usually the one that has just released it: that process
/// is running, while the waiting ones must first wake up. But the next process holds the gate until it has the writer
/// lock, so the one that released it queues up behind.
pub(crate) struct WriterLock {
    gate: File,
    file: File,
    inside: Option<Stay>,
}

/// How long the writer lock lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stay {
    /// For one transaction; its end releases the lock.
    OneTransaction,
    /// Until the owner releases it.
    UntilGivenBack,
}

/// The process that holds the writer lock right now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    pub pid: i32,
    pub command: String,
    /// The state of the process in a word: `running`, `stopped`, …
    pub state: &'static str,
}

/// The lock file of a store's writers. Two stores in one folder have two files, so that a process can write to both.
pub fn writer_lock_path(store: &Path) -> PathBuf {
    if store.file_name() == Some("store.db".as_ref()) {
        return store.with_file_name("turn");
    }
    let mut name = store.as_os_str().to_owned();
    name.push(".turn");
    name.into()
}

impl WriterLock {
    pub(crate) fn open(path: &Path) -> Result<WriterLock, StoreError> {
        // A link in a repository leads wherever its author likes.
        let flags = i32::try_from(OFlags::NOFOLLOW.bits()).expect("a flag of open is an int");
        let open = |path: &Path| {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
            options.open(path).map_err(StoreError::io)
        };
        Ok(WriterLock { gate: open(&path.with_extension("gate"))?, file: open(path)?, inside: None })
    }

    /// Waits for the writer lock, for any length of time. Returns whether other processes held it or waited for it. A
    /// lock that is held already stays held as it was taken.
    pub(crate) fn enter(&mut self, stay: Stay) -> Result<bool, StoreError> {
        if self.inside.is_some() {
            return Ok(false);
        }
        let has_queued = wait_for(&self.gate)?;
        let entered = wait_for(&self.file);
        unlock(&self.gate);
        let has_waited = entered?;
        self.inside = Some(stay);
        Ok(has_queued || has_waited)
    }

    /// Takes the writer lock if it is free. Returns whether it is held now.
    pub(crate) fn try_enter(&mut self) -> Result<bool, StoreError> {
        if self.inside.is_none() {
            if !try_lock(&self.gate)? {
                return Ok(false);
            }
            let entered = try_lock(&self.file);
            unlock(&self.gate);
            self.inside = entered?.then_some(Stay::UntilGivenBack);
        }
        Ok(self.inside.is_some())
    }

    /// Records the last event that was committed to this store, so that a store that was set back is detected. Not
    /// flushed: after a power cut the record may be too low, never too high.
    pub(crate) fn record(&self, store: &str, event: i64) {
        // Only the detection depends on the record.
        self.file.write_all_at(format!("{store} {event:020}\n").as_bytes(), 0).ok();
    }

    /// The last recorded event of this store.
    pub(crate) fn recorded(&self, store: &str) -> Option<i64> {
        let mut text = [0; 256];
        let length = self.file.read_at(&mut text, 0).ok()?;
        last_event(&String::from_utf8_lossy(&text[..length]), store)
    }

    pub(crate) fn end_transaction(&mut self) {
        if self.inside == Some(Stay::OneTransaction) {
            self.leave();
        }
    }

    pub(crate) fn leave(&mut self) {
        if self.inside.take().is_some() {
            unlock(&self.file);
        }
    }
}

/// Locks a file. Returns whether it had to wait.
fn wait_for(file: &File) -> Result<bool, StoreError> {
    Ok(if try_lock(file)? { false } else { lock(file).map(|()| true)? })
}

fn lock(file: &File) -> Result<(), StoreError> {
    loop {
        match file.lock() {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(StoreError::io(error)),
        }
    }
}

fn try_lock(file: &File) -> Result<bool, StoreError> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(StoreError::io(error)),
    }
}

fn unlock(file: &File) {
    file.unlock().expect("a lock that is held on an open file can be given up");
}

/// The last recorded event of this store.
pub(crate) fn recorded(writer_lock: &Path, store: &str) -> Option<i64> {
    last_event(&std::fs::read_to_string(writer_lock).ok()?, store)
}

fn last_event(text: &str, store: &str) -> Option<i64> {
    text.lines().next()?.strip_prefix(store)?.trim().parse().ok()
}

/// The process that holds the writer lock, according to the kernel. `None` if there is none, or it is not visible from
/// here.
pub fn occupant(writer_lock: &Path) -> Option<Occupant> {
    let inode = std::fs::metadata(writer_lock).ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| holder(line, inode))?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command).trim_end_matches('\0').replace('\0', " ");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let state = match stat.rsplit_once(')')?.1.trim_start().chars().next()? {
        'T' | 't' => "stopped",
        'D' => "waiting for the disk",
        'Z' => "dead",
        'R' => "running",
        _ => "waiting",
    };
    Some(Occupant { pid, command, state })
}

/// The pid in a line of /proc/locks such as `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`. Waiting processes have
/// an arrow after the number.
fn holder(line: &str, inode: u64) -> Option<i32> {
    let mut words = line.split_whitespace().skip(1);
    let (kind, _, _, pid, place) = (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?);
    let matches = kind == "FLOCK" && place.rsplit(':').next()?.parse() == Ok(inode);
    matches.then(|| pid.parse().ok()).flatten().filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_locks_are_parsed() {
        assert_eq!(holder("1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF", 5678), Some(1234));
        assert_eq!(holder("1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF", 678), None);
        assert_eq!(holder("1: -> FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF", 5678), None);
        assert_eq!(holder("2: POSIX  ADVISORY  WRITE 99 fe:00:5678 0 EOF", 5678), None);
    }

    #[test]
    fn the_holder_of_the_writer_lock_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("turn");
        let mut writer_lock = WriterLock::open(&path).unwrap();
        assert_eq!(occupant(&path), None);
        writer_lock.enter(Stay::UntilGivenBack).unwrap();
        writer_lock.end_transaction();
        assert_eq!(occupant(&path).unwrap().pid, i32::try_from(std::process::id()).unwrap());
        writer_lock.leave();
        assert_eq!(occupant(&path), None);
    }
}
