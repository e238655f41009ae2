//! The journal of a merge: a folder in git's directory from which the next process settles the merge after a crash.
//!
//! ```text
//! GIT-DIRECTORY/banksman/moves/ID/
//!   lock          locked (flock) by the merge and by its git while they live; linked as the checkout's `index.lock`
//!   locks         the lock files that a change of refs may leave, each with its expected content
//!   ref-lock-N    links to the lock files that are ours
//!   record        both commits, and every path: it exists while the checkout may be between the two commits, and is renamed to
//!                 `record.closed` until the removed files are disposed of
//!   new/, old/    the new files, and the removed files (elsewhere, if the checkout is on another file system)
//!   index*        the index before and after
//!   gc.pid        linked into git's directory while the merge keeps `git gc` away
//!   check         the index that the removed files are compared with
//! ```
//!
//! A process that gets the lock knows that the merge and its git are dead.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use super::steps::Step;
use super::{GitError, Id, system};

/// The first and the last line of the lock: people read it when git reports that `index.lock` exists.
pub(super) const TITLE: &str = "banksman moves this checkout";
const ADVICE: &str =
    "If no merge is running, `banksman doctor --fix` or the next merge puts things right: leave the file here until then.";

/// The folder of one merge.
pub(super) struct Journal {
    folder: PathBuf,
    common: PathBuf,
    lock: File,
    /// How much of the lock was read: git appends its error messages to it.
    read: Cell<u64>,
    /// Whether a killed git has left locks that may be ours and are not settled yet.
    pub(super) has_left_locks: Cell<bool>,
}

/// The two commits of a move, and its steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// The ref that moves.
    pub(super) target: String,
    pub(super) from: Id,
    pub(super) to: Id,
    /// Git's directory for the checkout.
    pub(super) git_dir: PathBuf,
    /// The top directory of the checkout.
    pub(super) root: PathBuf,
    /// The directory of the new files and of the removed files.
    pub(super) slots: PathBuf,
    pub(super) steps: Vec<Step>,
}

impl Journal {
    /// Begins a journal. `scratch` distinguishes the merges of different projects in one repository.
    pub(super) fn begin(common: &Path, scratch: &Path) -> Result<Journal, GitError> {
        let ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let folder = moves(common).join(format!("{}-{ms:014}-{}", owner(scratch), std::process::id()));
        fs::create_dir_all(&folder).map_err(system(&folder))?;
        let text = format!("{TITLE}\nby process {}\n{ADVICE}\n", std::process::id());
        let create = || {
            let draft = folder.join("lock.new");
            let mut lock = File::options().read(true).append(true).create_new(true).open(&draft)?;
            // The lock gets its name after it is locked: no other process may take the merge for dead in between.
            lock.lock()?;
            lock.write_all(text.as_bytes())?;
            fs::rename(&draft, folder.join("lock"))?;
            Ok(lock)
        };
        let lock = create().map_err(system(&folder))?;
        let (read, has_left_locks) = (Cell::new(text.len() as u64), Cell::new(false));
        let journal = Journal { folder, common: common.into(), lock, read, has_left_locks };
        journal.expect_no_ref_locks()?;
        Ok(journal)
    }

    /// The folders of all merges that are in progress or were killed.
    pub(super) fn folders(common: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(moves(common)).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        folders.sort();
        folders
    }

    /// Whether a folder belongs to the project with this scratch directory.
    pub(super) fn is_of(folder: &Path, scratch: &Path) -> bool {
        folder.file_name().is_some_and(|name| name.as_bytes().starts_with(owner(scratch).as_bytes()))
    }

    /// The journal of a killed merge. With `wait`, waits until its git has ended; otherwise returns `None` while the
    /// merge or its git lives.
    pub(super) fn left(common: &Path, folder: &Path, wait: bool) -> Result<Option<Journal>, GitError> {
        let name = folder.join("lock");
        let lock = match File::options().read(true).append(true).open(&name) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // The merge was killed before it began or after it was complete, or it is just beginning.
                if wait && folder.exists() {
                    remove_tree(folder)?;
                }
                return Ok(None);
            }
            Err(error) => return Err(system(&name)(error)),
        };
        if wait {
            lock.lock().map_err(system(&name))?;
        } else {
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(system(&name)(error)),
            }
        }
        let length = lock.metadata().map_err(system(&name))?.len();
        let (read, has_left_locks) = (Cell::new(length), Cell::new(false));
        let journal = Journal { folder: folder.into(), common: common.into(), lock, read, has_left_locks };
        // Another process may have settled the merge meanwhile.
        Ok(journal.is_lock(&name).then_some(journal))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn common(&self) -> &Path {
        &self.common
    }

    /// The lock, for a child that must hold it.
    pub(super) fn lock(&self) -> io::Result<File> {
        self.lock.try_clone()
    }

    /// Whether a file is a link to the lock.
    pub(super) fn is_lock(&self, path: &Path) -> bool {
        self.lock.metadata().is_ok_and(|own| is_same_file(path, &own))
    }

    /// The error messages of git since the last call.
    pub(super) fn complaints(&self) -> String {
        let mut text = vec![0; 4_096];
        let length = self.lock.read_at(&mut text, self.read.get()).unwrap_or(0);
        self.read.set(self.lock.metadata().map_or(0, |lock| lock.len()));
        String::from_utf8_lossy(&text[..length]).trim().to_owned()
    }

    /// Writes the record, before any of its steps is done.
    pub(super) fn write_record(&self, record: &Record) -> Result<(), GitError> {
        let draft = self.path("record.new");
        let write = || {
            let mut file = File::create(&draft)?;
            file.write_all(&record.encode())?;
            file.sync_all()?;
            fs::rename(&draft, self.path("record"))
        };
        write().map_err(system(&draft))
    }

    /// The record of a move whose checkout may be between two commits.
    pub(super) fn open_record(&self) -> Result<Option<Record>, GitError> {
        self.read_record("record")
    }

    /// The record of a move that is over and whose removed files are still here.
    pub(super) fn closed_record(&self) -> Result<Option<Record>, GitError> {
        self.read_record("record.closed")
    }

    fn read_record(&self, name: &str) -> Result<Option<Record>, GitError> {
        let name = self.path(name);
        match fs::read(&name) {
            Ok(bytes) => Ok(Record::decode(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(system(&name)(error)),
        }
    }

    /// Marks the checkout as being at one of the two commits.
    pub(super) fn close_record(&self) -> Result<(), GitError> {
        let name = self.path("record");
        fs::rename(&name, self.path("record.closed")).map_err(system(&name))
    }

    /// Removes the folder.
    pub(super) fn end(&self) -> Result<(), GitError> {
        self.let_collect();
        remove_tree(&self.folder)
    }
}

impl Record {
    fn encode(&self) -> Vec<u8> {
        let path = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let words = [&self.target, &self.from, &self.to].map(|word| word.clone().into_bytes());
        let mut fields: Vec<Vec<u8>> = words.into();
        fields.extend([path(&self.git_dir), path(&self.root), path(&self.slots)]);
        for step in &self.steps {
            fields.extend([step.encode().into_bytes(), path(&step.path)]);
        }
        fields.join(&0)
    }

    fn decode(bytes: &[u8]) -> Option<Record> {
        let mut fields = bytes.split(|byte| *byte == 0);
        let mut word = || fields.next().map(|field| String::from_utf8_lossy(field).into_owned());
        let (target, from, to) = (word()?, word()?, word()?);
        let mut path = || fields.next().map(|field| PathBuf::from(OsStr::from_bytes(field)));
        let (git_dir, root, slots) = (path()?, path()?, path()?);
        let rest: Vec<&[u8]> = fields.collect();
        let step = |pair: &[&[u8]]| Step::decode(&String::from_utf8_lossy(pair[0]), Path::new(OsStr::from_bytes(pair[1])));
        let steps = rest.chunks_exact(2).map(step).collect::<Option<Vec<Step>>>()?;
        Some(Record { target, from, to, git_dir, root, slots, steps })
    }
}

/// Whether a path, not followed if it is a link, is the file with this metadata.
pub(super) fn is_same_file(path: &Path, file: &fs::Metadata) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (file.dev(), file.ino()))
}

/// Removes a directory with all its content. Retries, because a git whose merge was killed may still write there.
pub(super) fn remove_tree(path: &Path) -> Result<(), GitError> {
    for _ in 0..50 {
        match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            Err(error) => return Err(system(path)(error)),
        }
    }
    Ok(())
}

/// Waits until no live merge is moving a checkout of this repository. Returns when the last merge began or ended: as long as
/// that stays the same, no checkout has moved. `None` if a merge is still moving one after `limit`.
pub(super) fn await_moves(common: &Path, limit: Duration) -> Option<SystemTime> {
    let until = Instant::now() + limit;
    loop {
        // Read first: a merge that begins afterwards changes it.
        let changed = fs::metadata(moves(common)).and_then(|folder| folder.modified()).unwrap_or(UNIX_EPOCH);
        if !is_moving(common) {
            return Some(changed);
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether there is a live merge with a record: its checkout is between two commits, or is about to be.
fn is_moving(common: &Path) -> bool {
    Journal::folders(common).iter().any(|folder| {
        let is_held =
            || File::open(folder.join("lock")).is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)));
        folder.join("record").exists() && is_held()
    })
}

fn moves(common: &Path) -> PathBuf {
    common.join("banksman/moves")
}

/// A name for the project that merges with this scratch directory.
pub(super) fn owner(scratch: &Path) -> String {
    let digest = Sha256::digest(scratch.as_os_str().as_bytes());
    digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}
