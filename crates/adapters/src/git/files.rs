//! Single files below a directory in which another process may change anything at any moment.
//!
//! A file is never written in place: it is moved to a free path, moved away, or exchanged with another file, each in
//! one atomic step of the file system. So a file that was moved away has exactly the content that it had in its place.
//! Parent directories that are links are never followed.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, linkat, mkdirat, open, openat, readlinkat, renameat, renameat_with, statat,
    unlinkat,
};
use rustix::io::Errno;

use super::blob::is_blob;
use super::writers::has_writer;

/// Copies an index of git with its modification time: a file that was changed in the second in which the index was
/// written looks unchanged to git unless the index is as old as the file.
pub(super) fn copy_index(from: &Path, to: &Path) -> io::Result<()> {
    let modified = fs::metadata(from)?.modified()?;
    fs::copy(from, to)?;
    File::options().write(true).open(to)?.set_modified(modified)
}

/// The metadata that shows whether a file is still the same, with the same content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    /// The time of the last change of the inode, which includes renames.
    changed: (i64, i64),
    mode: u32,
}

impl Stamp {
    /// Whether both are the same file with the same content, maybe under different names.
    pub(super) fn is_same_content(&self, other: &Stamp) -> bool {
        (self.device, self.inode, self.size, self.modified) == (other.device, other.inode, other.size, other.modified)
    }

    /// The part that `is_same_content` compares, as text.
    pub(super) fn encode(&self) -> String {
        format!("{} {} {} {} {}", self.device, self.inode, self.size, self.modified.0, self.modified.1)
    }

    pub(super) fn decode(text: &str) -> Option<Stamp> {
        let mut words = text.split(' ');
        let device = words.next()?.parse().ok()?;
        let inode = words.next()?.parse().ok()?;
        let mut number = || words.next()?.parse::<i64>().ok();
        let (size, modified) = (number()?, (number()?, number()?));
        Some(Stamp { device, inode, size, modified, changed: (0, 0), mode: 0 })
    }
}

/// A directory, and the files below it.
pub(super) struct Root {
    path: PathBuf,
    directory: OwnedFd,
}

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Root> {
        let directory = open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Root { path: path.into(), directory })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The stamp of the file at a path. A directory has none.
    pub(super) fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>> {
        let stat = match self.place(path, false).and_then(|(parent, name)| Ok(statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?)) {
            Ok(stat) => stat,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return Ok(None);
        }
        Ok(Some(Stamp {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec.cast_signed()),
            changed: (stat.st_ctime, stat.st_ctime_nsec.cast_signed()),
            mode: stat.st_mode,
        }))
    }

    /// Whether a file is, byte by byte, the one of an index entry (`MODE ID`). If not, git may still consider it unchanged.
    pub(super) fn is_exactly(&self, path: &Path, entry: &str) -> io::Result<bool> {
        let Some((mode, id)) = entry.split_once(' ') else { return Ok(false) };
        let (parent, name) = self.place(path, false)?;
        let stat = statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        match (mode, FileType::from_raw_mode(stat.st_mode)) {
            ("120000", FileType::Symlink) => {
                let target = readlinkat(&parent, &name, Vec::new())?.into_bytes();
                is_blob(id, target.len() as u64, &target[..])
            }
            ("100644" | "100755", FileType::RegularFile) => {
                if (stat.st_mode & 0o100 != 0) != (mode == "100755") {
                    return Ok(false);
                }
                let file = open_file(&parent, &name)?;
                is_blob(id, file.metadata()?.len(), file)
            }
            _ => Ok(false),
        }
    }

    /// Whether a program has a file open for writing.
    pub(super) fn has_writer(&self, path: &Path) -> io::Result<bool> {
        let (parent, name) = self.place(path, false)?;
        let is_file =
            FileType::from_raw_mode(statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode) == FileType::RegularFile;
        Ok(is_file && has_writer(&open_file(&parent, &name)?))
    }

    /// Exchanges a file with the one of the same path below another directory.
    pub(super) fn exchange(&self, path: &Path, with: &Root) -> io::Result<()> {
        let ((there, from), (here, to)) = (with.place(path, false)?, self.place(path, false)?);
        Ok(renameat_with(there, from, here, to, RenameFlags::EXCHANGE)?)
    }

    /// Moves a file here from below another directory, if its path is free.
    pub(super) fn put(&self, path: &Path, from: &Root) -> io::Result<()> {
        let ((there, source), (here, name)) = (from.place(path, false)?, self.place(path, true)?);
        match renameat_with(&there, &source, &here, &name, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => {
                linkat(&there, &source, &here, &name, AtFlags::empty())?;
                Ok(unlinkat(&there, &source, AtFlags::empty())?)
            }
            end => Ok(end?),
        }
    }

    /// Moves a file from here to below another directory, where its path is free: no other process writes there.
    pub(super) fn take(&self, path: &Path, to: &Root) -> io::Result<()> {
        let ((here, name), (there, target)) = (self.place(path, false)?, to.place(path, true)?);
        Ok(renameat(here, name, there, target)?)
    }

    /// Removes the empty parent directories of a path, the innermost first.
    pub(super) fn prune(&self, path: &Path) {
        for directory in path.ancestors().skip(1).filter(|part| !part.as_os_str().is_empty()) {
            if !self.remove_directory(directory) {
                return;
            }
        }
    }

    /// Removes a directory, if it is empty.
    pub(super) fn remove_directory(&self, path: &Path) -> bool {
        self.place(path, false).is_ok_and(|(parent, name)| unlinkat(parent, name, AtFlags::REMOVEDIR).is_ok())
    }

    /// Removes a directory that contains nothing but directories.
    pub(super) fn remove_empty(&self, path: &Path) -> bool {
        let entries = std::fs::read_dir(self.path.join(path)).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            self.remove_empty(&path.join(entry.file_name()));
        }
        self.remove_directory(path)
    }

    /// Makes a directory, and returns whether it is new.
    pub(super) fn make_directory(&self, path: &Path) -> io::Result<bool> {
        let (parent, name) = self.place(path, true)?;
        match mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The parent directory of a path, and the name in it.
    fn place(&self, path: &Path, create: bool) -> io::Result<(OwnedFd, OsString)> {
        let mut names: Vec<&OsStr> = Vec::new();
        for part in path.components() {
            let Component::Normal(name) = part else { return Err(Errno::INVAL.into()) };
            names.push(name);
        }
        let name = names.pop().ok_or(Errno::INVAL)?.to_owned();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut directory = self.directory.try_clone()?;
        for part in names {
            directory = match openat(&directory, part, flags, Mode::empty()) {
                Err(Errno::NOENT) if create => {
                    match mkdirat(&directory, part, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    openat(&directory, part, flags, Mode::empty())?
                }
                opened => opened?,
            };
        }
        Ok((directory, name))
    }
}

fn open_file(parent: &OwnedFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(openat(parent, name, flags, Mode::empty())?))
}

/// Whether the file system can exchange two entries, tested with two empty directories.
pub(super) fn can_exchange(one: &Path, other: &Path) -> bool {
    renameat_with(rustix::fs::CWD, one, rustix::fs::CWD, other, RenameFlags::EXCHANGE).is_ok()
}

/// Whether an error means that there is no such file, maybe because of one of its parents.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}
