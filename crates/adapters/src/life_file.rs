//! A file that a process holds by `flock` as long as it lives: the proof of its death for those who cannot see it, in any pid namespace of
//! the same kernel. The kernel releases the lock when the process is dead, and nobody else does.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use banksman_core::{Liveness, ProcessId};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::{ids, private};

/// How the name of such a file ends.
const SUFFIX: &str = ".alive";

/// The file of this process. It is removed when this is dropped.
#[derive(Debug)]
pub struct LifeFile {
    path: PathBuf,
    /// Holds the lock.
    _file: File,
}

/// Those of this process: whoever needs the same one shares it.
static HELD: Mutex<BTreeMap<PathBuf, Weak<LifeFile>>> = Mutex::new(BTreeMap::new());

impl LifeFile {
    /// Makes that of this process in `directory`, unless it has one there.
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
        // It has its name only when it is locked: nobody finds it free while its process lives.
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
        // If it cannot be removed, it is found free, which is the truth.
        fs::remove_file(&self.path).ok();
    }
}

/// What the file of a process tells: nothing if there is none.
pub(crate) fn probe(directory: &Path, process: &ProcessId) -> Liveness {
    let Ok(file) = private::open(&path(directory, process), OFlags::RDONLY | OFlags::NONBLOCK) else { return Liveness::Unknown };
    // Shared, so that two who look do not take each other for the process.
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Liveness::Dead,
        Err(Errno::WOULDBLOCK) => Liveness::Alive,
        Err(_) => Liveness::Unknown,
    }
}

/// The files of dead processes other than these.
pub fn dead(directory: &Path, keep: &[ProcessId]) -> Vec<PathBuf> {
    let keep: Vec<PathBuf> = keep.iter().map(|process| path(directory, process)).collect();
    let files = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let ours = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX));
    let is_free = |path: &PathBuf| File::open(path).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_ok());
    files.filter(ours).filter(|path| !keep.contains(path)).filter(is_free).collect()
}

/// Removes them. A file that is free belongs to nobody any more, so that others may do the same at the same time.
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
    fn it_tells_life_and_death_and_nothing_when_it_is_missing() {
        let directory = tempfile::tempdir().unwrap();
        let process = ProcessId { host: "h".into(), boot: "b".into(), pid_ns: 1, pid: 2, start: 3 };
        let other = ProcessId { pid: 3, ..process.clone() };
        let held = LifeFile::hold(directory.path(), &process).unwrap();
        drop(LifeFile::hold(directory.path(), &process).unwrap());
        assert_eq!(probe(directory.path(), &process), Liveness::Alive);
        assert_eq!(probe(directory.path(), &other), Liveness::Unknown);
        remove_dead(directory.path(), &[]);
        assert_eq!(probe(directory.path(), &process), Liveness::Alive, "the living keep theirs");
        // What a process that was killed leaves behind.
        fs::hard_link(&held.path, directory.path().join("kept")).unwrap();
        drop(held);
        fs::rename(directory.path().join("kept"), super::path(directory.path(), &process)).unwrap();
        assert_eq!(probe(directory.path(), &process), Liveness::Dead);
        remove_dead(directory.path(), std::slice::from_ref(&process));
        assert_eq!(probe(directory.path(), &process), Liveness::Dead, "somebody still asks for it");
        remove_dead(directory.path(), &[]);
        assert_eq!(probe(directory.path(), &process), Liveness::Unknown);
    }
}
