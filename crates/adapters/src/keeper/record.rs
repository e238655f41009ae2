//! The record of a run: one file, made once, locked for as long as its keeper lives.
//!
//! ```text
//! no file, or an empty one that is not locked: nothing has started in this boot
//! {"buried":…}                                 nothing ever will
//! {"kept":…}            locked                 the keeper lives
//! {"kept":…} {"ended":…} not locked            the session has ended, and its end is not acknowledged
//! {"kept":…}            not locked             the keeper was killed
//! ```
//!
//! The lock shows whether the keeper lives: unlike a pid it cannot pass to another process. Readers take a shared lock,
//! so that two of them do not take each other for a keeper.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::cgroup::CgroupId;
use super::protocol::{SessionEnd, Unclear, decode, encode};
use crate::os_bytes;
use crate::private;

/// How long a record may be locked and yet have no first line.
const PATIENCE: Duration = Duration::from_secs(1);

/// The first line of a record: a keeper and its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The id of the run.
    pub run: String,
    /// The owner epoch at the start.
    pub owner_epoch: i64,
    /// The pid of the keeper, which is also the session id of processes that have not changed it.
    pub keeper_pid: i32,
    /// When the keeper started, in ticks since the boot.
    pub keeper_start: u64,
    /// The boot in which it lives.
    pub boot: String,
    /// The pid namespace in which it lives.
    pub pid_ns: u64,
    /// The control socket, which the keeper may open a little later.
    #[serde(with = "os_bytes")]
    pub socket: PathBuf,
    /// The file for the output.
    #[serde(with = "os_bytes")]
    pub log: PathBuf,
    /// The start of the session, in milliseconds since 1970.
    pub started_at_ms: i64,
    /// The cgroup of the keeper and its session, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<CgroupId>,
}

/// The state of a run according to its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing was started in this boot. It still might be, unless it has a [tombstone](write_tombstone).
    Nothing,
    /// Nothing was started, and nothing will be.
    Tombstone,
    /// The keeper lives: [adopt](super::adopt) it.
    Live(Record),
    /// The session has ended and its keeper is gone.
    Ended(Record, SessionEnd),
    /// The keeper was killed: [sweep](super::sweep), then the run is lost.
    Dead(Record),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry {
    Kept(Record),
    Ended(SessionEnd),
    #[serde(rename = "buried")]
    Tombstone {},
}

/// Reads the record of a run.
pub fn read_record(record: &Path) -> io::Result<Found> {
    let mut file = match private::open(record, OFlags::RDONLY | OFlags::NONBLOCK) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        file => file?,
    };
    let live = !try_lock(&file, FlockOperation::NonBlockingLockShared)?;
    read(&mut file, live)
}

/// Makes sure that a run that has not started never will. Returns [`Found::Tombstone`] unless the run has started.
pub fn write_tombstone(record: &Path) -> io::Result<Found> {
    loop {
        let mut file = with_parents(record, || private::open(record, OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK))?;
        if !try_lock(&file, FlockOperation::NonBlockingLockExclusive)? {
            return read_record(record);
        }
        if file.metadata()?.nlink() == 0 {
            // The keeper has just removed the record. There may be another one by now.
            continue;
        }
        let found = read(&mut file, false)?;
        if found != Found::Nothing {
            return Ok(found);
        }
        // A keeper that has made the file but not locked it yet will find the tombstone and refuse.
        file.write_all(&encode(&Entry::Tombstone {}))?;
        return Ok(Found::Tombstone);
    }
}

/// Removes the record and the socket of a session, once the end of the run is stored. Returns false, and removes nothing, if its
/// keeper lives.
pub fn forget(record: &Path) -> io::Result<bool> {
    let socket = match read_record(record)? {
        Found::Live(_) => return Ok(false),
        // An empty record may belong to a keeper that is just starting. A tombstone stays: a keeper that was delayed before it
        // could make its record must find the tombstone, however late.
        Found::Nothing | Found::Tombstone => return Ok(true),
        Found::Ended(found, _) | Found::Dead(found) => found.socket,
    };
    for path in [socket.as_path(), record] {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(true)
}

/// The record on the side of the keeper that has made it.
#[derive(Debug)]
pub(super) struct Own {
    file: File,
    path: PathBuf,
    /// Whether an ending may have been written in part.
    torn: bool,
}

impl Own {
    /// Makes the record. Returns `None` if there is one already.
    pub(super) fn create(path: &Path, record: Record) -> io::Result<Option<Own>> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        let made = with_parents(path, || private::open(path, flags));
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            file => Own::begin(file?, path, record),
        }
    }

    /// Locks the new file and writes its first line. Returns `None` if a tombstone was written before the file was locked.
    fn begin(mut file: File, path: &Path, record: Record) -> io::Result<Option<Own>> {
        retry(|| flock(&file, FlockOperation::LockExclusive))?;
        if file.metadata()?.len() > 0 {
            return Ok(None);
        }
        file.write_all(&encode(&Entry::Kept(record)))?;
        Ok(Some(Own { file, path: path.into(), torn: false }))
    }

    /// Appends the ending. It fits into the disk block of the first line, so it succeeds even if the disk is full.
    pub(super) fn end(&mut self, ending: &SessionEnd) -> io::Result<()> {
        let mut line = encode(&Entry::Ended(ending.clone()));
        if self.torn {
            line.insert(0, b'\n');
        }
        self.torn = true;
        self.file.write_all(&line)
    }

    /// Makes the record survive a power cut.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Removes the record. The lock is held until this process ends.
    pub(super) fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

/// Calls `open`, and if a parent directory is missing, makes the parents below the project's folder and calls it again.
pub(super) fn with_parents<T>(path: &Path, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match (open(), path.parent()) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            private::make_dir(parent)?;
            open()
        }
        (done, _) => done,
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

fn try_lock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    match retry(|| flock(file, operation)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reads a record; `live` is whether its keeper holds the lock.
fn read(file: &mut File, live: bool) -> io::Result<Found> {
    let mut bytes = Vec::new();
    let patience_ends = Instant::now() + PATIENCE;
    loop {
        file.read_to_end(&mut bytes)?;
        match parse(&bytes)? {
            (Some(Entry::Kept(record)), _) if live => return Ok(Found::Live(record)),
            (Some(Entry::Kept(record)), Some(ending)) => return Ok(Found::Ended(record, ending)),
            (Some(Entry::Kept(record)), None) => return Ok(Found::Dead(record)),
            (Some(Entry::Tombstone {}), _) => return Ok(Found::Tombstone),
            (Some(Entry::Ended(_)), _) => return Err(invalid("the record has no beginning")),
            (None, _) if !live => return Ok(Found::Nothing),
            (None, _) if Instant::now() > patience_ends => return Err(invalid("the record has no beginning")),
            // The keeper has locked it and is about to write the line.
            (None, _) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Parses the first line, and the ending if there is a complete one. A line without a line break was not written completely.
fn parse(bytes: &[u8]) -> io::Result<(Option<Entry>, Option<SessionEnd>)> {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let first = match lines.next().map(decode::<Entry>) {
        None => None,
        Some(Ok(entry)) => Some(entry),
        Some(Err(Unclear::Version)) => return Err(invalid("the record is of another version of Banksman")),
        // After a power cut the file may have its length without its content.
        Some(Err(Unclear::Garbage)) => None,
    };
    let ending = lines.filter_map(|line| decode(line).ok()).find_map(|entry| match entry {
        Entry::Ended(ending) => Some(ending),
        Entry::Kept(_) | Entry::Tombstone {} => None,
    });
    Ok((first, ending))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tombstone_stops_a_keeper_that_has_not_locked_its_record_yet() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        let file = File::options().append(true).create_new(true).open(&path).unwrap();
        assert_eq!(read_record(&path).unwrap(), Found::Nothing, "the keeper has not begun");
        assert_eq!(write_tombstone(&path).unwrap(), Found::Tombstone);
        let record = Record {
            run: "r-1".into(),
            owner_epoch: 1,
            keeper_pid: 1,
            keeper_start: 1,
            boot: "boot".into(),
            pid_ns: 1,
            socket: "/s".into(),
            log: "/l".into(),
            started_at_ms: 1,
            cgroup: None,
        };
        assert!(Own::begin(file, &path, record).unwrap().is_none());
        assert_eq!(read_record(&path).unwrap(), Found::Tombstone);
    }
}
