//! What a merge has under way, in a folder of its own below the repository's, for whoever finds it after a crash.
//!
//! ```text
//! GIT-DIRECTORY/banksman/moves/ID/
//!   lock          locked (flock) by the merge and by its git while they live; linked as the checkout's `index.lock`
//!   locks         the lock files that a change of refs may leave, each with the content it would have
//!   ref-lock-N    links to those that are ours
//!   record        from where to where, and every path: there as long as the checkout may be between the two; then it is
//!                 `record.closed`, until what was taken away is disposed of
//!   new/, old/    the files that are to come, and those that were taken away (elsewhere, if that is another file system)
//!   index*        the index before and after
//!   gc.pid        linked into git's directory while the merge keeps `git gc` away
//!   check         the index that what was taken away is compared with
//! ```
//!
//! Who gets the lock knows that the merge and its git are dead.

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

/// The first line of the lock, and the last: people look into it when git tells them that `index.lock` is there.
pub(super) const TITLE: &str = "banksman moves this checkout";
const ADVICE: &str =
    "If no merge is running, `banksman doctor --fix` or the next merge puts things right: leave the file here until then.";

/// The folder of one merge.
pub(super) struct Journal {
    folder: PathBuf,
    common: PathBuf,
    lock: File,
    /// How much of the lock was read: git writes its complaints behind that.
    read: Cell<u64>,
    /// Whether a git that was killed has left locks which could not be told from those of others yet.
    pub(super) has_left_locks: Cell<bool>,
}

/// From where to where, and how far that can have got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// The ref that moves.
    pub(super) target: String,
    pub(super) from: Id,
    pub(super) to: Id,
    /// Where git keeps what belongs to the checkout.
    pub(super) git_dir: PathBuf,
    /// Where the files of the checkout are.
    pub(super) root: PathBuf,
    /// Where the files are kept that are to come, and those that were taken away.
    pub(super) slots: PathBuf,
    pub(super) steps: Vec<Step>,
}

impl Journal {
    /// Begins one. `scratch` tells merges of different projects in one repository apart.
    pub(super) fn begin(common: &Path, scratch: &Path) -> Result<Journal, GitError> {
        let ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let folder = moves(common).join(format!("{}-{ms:014}-{}", owner(scratch), std::process::id()));
        fs::create_dir_all(&folder).map_err(system(&folder))?;
        let text = format!("{TITLE}\nby process {}\n{ADVICE}\n", std::process::id());
        let create = || {
            let draft = folder.join("lock.new");
            let mut lock = File::options().read(true).append(true).create_new(true).open(&draft)?;
            // It has its name only when it is locked: nobody shall take the merge for dead in between.
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

    /// The folders of all merges that are under way or were killed.
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

    /// The journal of a merge that was killed. With `wait`, the end of its git is waited for; otherwise there is none as long as
    /// somebody lives.
    pub(super) fn left(common: &Path, folder: &Path, wait: bool) -> Result<Option<Journal>, GitError> {
        let name = folder.join("lock");
        let lock = match File::options().read(true).append(true).open(&name) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // It was killed before it had begun, or after all was done; or it begins right now.
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
        // Somebody else may have settled it meanwhile.
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

    /// The lock, for a child that is to hold it.
    pub(super) fn lock(&self) -> io::Result<File> {
        self.lock.try_clone()
    }

    /// Whether a file is a link to the lock.
    pub(super) fn is_lock(&self, path: &Path) -> bool {
        self.lock.metadata().is_ok_and(|own| is_same_file(path, &own))
    }

    /// What git has complained about since this was asked last.
    pub(super) fn complaints(&self) -> String {
        let mut text = vec![0; 4_096];
        let length = self.lock.read_at(&mut text, self.read.get()).unwrap_or(0);
        self.read.set(self.lock.metadata().map_or(0, |lock| lock.len()));
        String::from_utf8_lossy(&text[..length]).trim().to_owned()
    }

    /// Writes the record, before anything of what it says is done.
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

    /// The record, as long as a checkout may be between two commits.
    pub(super) fn open_record(&self) -> Result<Option<Record>, GitError> {
        self.read_record("record")
    }

    /// The record of a move that is over, as long as files are here that were taken away.
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

    /// Says that the checkout is at one of the two commits.
    pub(super) fn close_record(&self) -> Result<(), GitError> {
        let name = self.path("record");
        fs::rename(&name, self.path("record.closed")).map_err(system(&name))
    }

    /// Removes the folder. Nothing of it is needed any more.
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

/// Whether a path names the file that something else is known of.
pub(super) fn is_same_file(path: &Path, file: &fs::Metadata) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (file.dev(), file.ino()))
}

/// Removes a directory with all that is in it. A git whose merge was killed may still write there.
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

/// Waits until no merge that lives is about to move a checkout of this repository, but not for longer than `limit`. Says whether
/// there was one.
pub(super) fn await_moves(common: &Path, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    let was_moving = is_moving(common);
    while is_moving(common) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    was_moving
}

/// Whether a merge lives that has a record: its checkout is between two commits, or is about to be.
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
