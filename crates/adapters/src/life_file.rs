//! A file that a process keeps locked with `flock` while it lives: it proves the death of the process in pid namespaces
//! of the same kernel that cannot see the process itself. Only the kernel releases the lock, when the process is dead.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use banksman_core::{Liveness, ProcessId};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::{ids, private};

/// The suffix of the names of life files.
const SUFFIX: &str = ".alive";

/// The life file of this process, removed on drop.
#[derive(Debug)]
pub struct LifeFile {
    path: PathBuf,
    /// Holds the lock.
    _file: File,
}

/// The life files of this process. Holders of the same path share one.
static HELD: Mutex<BTreeMap<PathBuf, Weak<LifeFile>>> = Mutex::new(BTreeMap::new());

impl LifeFile {
    /// Creates the life file of this process in `directory`, unless the process has one there.
    pub fn hold(directory: &Path, process: &ProcessId) -> io::Result<Arc<LifeFile>> {
        let path = path(directory, process);
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = held.get(&path).and_then(Weak::upgrade) {
            return Ok(file);
        }
        let file = Arc::new(LifeFile::make(directory, path.clone())?);
        held.insert(path, Arc::downgrade(&file));
        Ok(file)
    }

    fn make(directory: &Path, path: PathBuf) -> io::Result<LifeFile> {
        private::make_dir(directory)?;
        let draft = directory.join(format!("{}{SUFFIX}.new", ids::random(12)));
        let file = private::open(&draft, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        // The file gets its name after it is locked, so that no process finds it unlocked while its owner lives.
        let held = flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from);
        if let Err(error) = held.and_then(|()| fs::rename(&draft, &path)) {
            fs::remove_file(&draft).ok();
            return Err(error);
        }
        Ok(LifeFile { path, _file: file })
    }
}

impl Drop for LifeFile {
    fn drop(&mut self) {
        // A file that cannot be removed is unlocked and reports the process dead, which is correct.
        fs::remove_file(&self.path).ok();
    }
}

/// Whether a process lives, according to its life file. Unknown if there is none.
pub(crate) fn probe(directory: &Path, process: &ProcessId) -> Liveness {
    let Ok(file) = private::open(&path(directory, process), OFlags::RDONLY | OFlags::NONBLOCK) else { return Liveness::Unknown };
    // A shared lock, so that two concurrent probes do not take each other for the process.
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Liveness::Dead,
        Err(Errno::WOULDBLOCK) => Liveness::Alive,
        Err(_) => Liveness::Unknown,
    }
}

/// The life files of dead processes, except for the processes in `keep`.
pub fn dead(directory: &Path, keep: &[ProcessId]) -> Vec<PathBuf> {
    let keep: Vec<PathBuf> = keep.iter().map(|process| path(directory, process)).collect();
    let files = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let ours = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX));
    let is_free = |path: &PathBuf| File::open(path).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_ok());
    files.filter(ours).filter(|path| !keep.contains(path)).filter(is_free).collect()
}

/// Removes the life files of dead processes and returns their number. Other processes may do the same at the same time:
/// nothing uses an unlocked file.
pub fn remove_dead(directory: &Path, keep: &[ProcessId]) -> usize {
    dead(directory, keep).iter().filter(|path| fs::remove_file(path).is_ok()).count()
}

fn path(directory: &Path, process: &ProcessId) -> PathBuf {
    directory.join(format!("{}-{}-{}{SUFFIX}", process.pid_ns, process.pid, process.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_file_proves_life_and_death_and_nothing_when_missing() {
        let directory = tempfile::tempdir().unwrap();
        let process = ProcessId { host: "h".into(), boot: "b".into(), pid_ns: 1, pid: 2, start: 3 };
        let other = ProcessId { pid: 3, ..process.clone() };
        let held = LifeFile::hold(directory.path(), &process).unwrap();
        drop(LifeFile::hold(directory.path(), &process).unwrap());
        assert_eq!(probe(directory.path(), &process), Liveness::Alive);
        assert_eq!(probe(directory.path(), &other), Liveness::Unknown);
        remove_dead(directory.path(), &[]);
        assert_eq!(probe(directory.path(), &process), Liveness::Alive, "a live process keeps its file");
        // The file that a killed process leaves behind.
        fs::hard_link(&held.path, directory.path().join("kept")).unwrap();
        drop(held);
        fs::rename(directory.path().join("kept"), super::path(directory.path(), &process)).unwrap();
        assert_eq!(probe(directory.path(), &process), Liveness::Dead);
        remove_dead(directory.path(), std::slice::from_ref(&process));
        assert_eq!(probe(directory.path(), &process), Liveness::Dead, "the file is still needed");
        remove_dead(directory.path(), &[]);
        assert_eq!(probe(directory.path(), &process), Liveness::Unknown);
    }
}
