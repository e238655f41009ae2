//! A directory that is held open by a descriptor, to notice that its path leads elsewhere.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// A directory and the path that opened it. The descriptor prevents the reuse of its inode.
#[derive(Debug)]
pub struct Anchor {
    path: PathBuf,
    dir: OwnedFd,
}

/// What happened to a directory that is not at its path any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gone {
    /// The directory has this path now.
    Moved(PathBuf),
    Removed,
}

impl Anchor {
    pub fn open(path: &Path) -> io::Result<Anchor> {
        let dir = rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Anchor { path: path.into(), dir })
    }

    /// The path that opened the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns where the directory went, or `None` if it is still at its path.
    pub fn gone(&self) -> Option<Gone> {
        let held = rustix::fs::fstat(&self.dir).ok()?;
        let found = rustix::fs::stat(&self.path);
        if found.is_ok_and(|found| (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)) {
            return None;
        }
        let now = fs::read_link(format!("/proc/self/fd/{}", self.dir.as_raw_fd()));
        // A removed directory has no links any more, whatever path the kernel shows for it.
        Some(now.ok().filter(|_| held.st_nlink > 0).map_or(Gone::Removed, Gone::Moved))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_or_removed_directory_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (old, new) = (root.join("old"), root.join("new"));
        fs::create_dir_all(old.join("sub")).unwrap();
        let anchor = Anchor::open(&old.join("sub")).unwrap();
        assert_eq!(anchor.gone(), None);
        fs::rename(&old, &new).unwrap();
        assert_eq!(anchor.gone(), Some(Gone::Moved(new.join("sub"))));
        fs::create_dir_all(old.join("sub")).unwrap();
        assert_eq!(anchor.gone(), Some(Gone::Moved(new.join("sub"))), "another directory has taken its place");
        fs::remove_dir_all(&new).unwrap();
        assert_eq!(anchor.gone(), Some(Gone::Removed));
    }
}
