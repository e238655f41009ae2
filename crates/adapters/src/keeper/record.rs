//! The record of a run: one file, made once, locked for as long as its keeper lives.
//!
//! ```text
//! no file, or an empty one that is not locked: nothing has started in this boot
//! {"buried":…}                                 nothing ever will
//! {"kept":…}            locked                 the keeper lives
//! {"kept":…} {"ended":…} not locked            the session has ended, nobody has acknowledged it yet
//! {"kept":…}            not locked             the keeper was killed
//! ```
//!
//! The lock tells whether the keeper lives: it cannot be mistaken for another process that got its pid. Who looks
//! takes a shared lock, so that two who look do not take each other for a keeper.

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

/// What a keeper writes down about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The id of the run.
    pub run: String,
    /// The owner epoch at the start.
    pub owner_epoch: i64,
    /// The pid of the keeper, which is the session id of all that do not change it.
    pub keeper_pid: i32,
    /// When the keeper started, in ticks since the boot.
    pub keeper_start: u64,
    /// The boot in which it lives.
    pub boot: String,
    /// The pid namespace in which it lives.
    pub pid_ns: u64,
    /// Its control socket, which may come a little later.
    #[serde(with = "os_bytes")]
    pub socket: PathBuf,
    /// Where the output goes.
    #[serde(with = "os_bytes")]
    pub log: PathBuf,
    /// When it began, in milliseconds since 1970.
    pub started_at_ms: i64,
    /// The cgroup of the keeper and of all that it starts, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<CgroupId>,
}

/// What the record of a run tells.
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

/// Looks at the record of a run.
pub fn read_record(record: &Path) -> io::Result<Found> {
    let mut file = match private::open(record, OFlags::RDONLY | OFlags::NONBLOCK) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        file => file?,
    };
    let live = !try_lock(&file, FlockOperation::NonBlockingLockShared)?;
    read(&mut file, live)
}

/// Makes sure that a run that has not started never will. Returns what is there: [`Found::Tombstone`] unless it did start.
pub fn write_tombstone(record: &Path) -> io::Result<Found> {
    loop {
        let mut file = with_parents(record, || private::open(record, OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK))?;
        if !try_lock(&file, FlockOperation::NonBlockingLockExclusive)? {
            return read_record(record);
        }
        if file.metadata()?.nlink() == 0 {
            // Its keeper has just removed it. Another one may be there by now.
            continue;
        }
        let found = read(&mut file, false)?;
        if found != Found::Nothing {
            return Ok(found);
        }
        // A keeper that has made the file, but not locked it yet, will find it written and refuse.
        file.write_all(&encode(&Entry::Tombstone {}))?;
        return Ok(Found::Tombstone);
    }
}

/// Removes what is left of a session: its record and its socket. To be called once the end of the run is stored.
/// Returns false if its keeper lives; then nothing is removed.
pub fn forget(record: &Path) -> io::Result<bool> {
    let socket = match read_record(record)? {
        Found::Live(_) => return Ok(false),
        // An empty one may be that of a keeper that is just starting. A tombstone stays: a keeper that was held up before
        // it could make its record must find it there, however late.
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

/// The side of the keeper: the record that it has made.
#[derive(Debug)]
pub(super) struct Own {
    file: File,
    path: PathBuf,
    /// Whether a part of an ending may have been written.
    torn: bool,
}

impl Own {
    /// Makes the record. `None` if there is one already.
    pub(super) fn create(path: &Path, record: Record) -> io::Result<Option<Own>> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        let made = with_parents(path, || private::open(path, flags));
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            file => Own::begin(file?, path, record),
        }
    }

    /// Locks the new file and writes its first line. `None` if it had a tombstone before it was locked.
    fn begin(mut file: File, path: &Path, record: Record) -> io::Result<Option<Own>> {
        retry(|| flock(&file, FlockOperation::LockExclusive))?;
        if file.metadata()?.len() > 0 {
            return Ok(None);
        }
        file.write_all(&encode(&Entry::Kept(record)))?;
        Ok(Some(Own { file, path: path.into(), torn: false }))
    }

    /// Adds the ending. It fits into the block that the first line has taken, so a full disk does not matter.
    pub(super) fn end(&mut self, ending: &SessionEnd) -> io::Result<()> {
        let mut line = encode(&Entry::Ended(ending.clone()));
        if self.torn {
            line.insert(0, b'\n');
        }
        self.torn = true;
        self.file.write_all(&line)
    }

    /// Makes it survive a power cut.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Removes it. The lock stays until this process ends.
    pub(super) fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

/// Does it again with all parents made if one is missing, as far as the project's folder is there.
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

/// Reads a record whose keeper is `live`.
fn read(file: &mut File, live: bool) -> io::Result<Found> {
    let mut bytes = Vec::new();
    let patience_ends = Instant::now() + PATIENCE;
    loop {
        file.read_to_end(&mut bytes)?;
        match understand(&bytes)? {
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

/// The first line, and the ending if there is a whole one. A line without its end was not written to the end.
fn understand(bytes: &[u8]) -> io::Result<(Option<Entry>, Option<SessionEnd>)> {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let first = match lines.next().map(decode::<Entry>) {
        None => None,
        Some(Ok(entry)) => Some(entry),
        Some(Err(Unclear::Version)) => return Err(invalid("the record is of another version of Banksman")),
        // After a power cut the file may have its length, but not its content.
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
    fn a_burial_comes_before_a_keeper_that_has_not_locked_yet() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        let file = File::options().append(true).create_new(true).open(&path).unwrap();
        assert_eq!(read_record(&path).unwrap(), Found::Nothing, "it has not begun");
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
