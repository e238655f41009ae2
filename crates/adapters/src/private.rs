//! The files of a project: for their owner only, and never reached through a symbolic link.
//!
//! `.banksman` may come with a repository or a tarball, so a link in it may lead anywhere. Therefore all paths below
//! the folder are opened relative to it, without following links. Nothing above the folder is ever created: a project
//! that was moved away must not come back.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use rustix::io::Errno;
use thiserror::Error;

/// The name of a project's folder.
pub const FOLDER: &str = ".banksman";

/// Entries of the folder that must be for its owner only.
const FILES: [&str; 6] = ["store.db", "store.db-wal", "store.db-shm", "turn", "turn.gate", "run/bell"];
const FOLDERS: [&str; 5] = ["run", "runs", "logs", "tasks", "workspaces"];

/// Entries of the folder that belong to the repository and keep their modes.
const COMMITTED: [&str; 3] = ["config.toml", ".gitignore", "runbooks"];

/// Why a project's folder must not be used.
#[derive(Debug, Error)]
#[error("{} is not safe to use: {what}", path.display())]
pub struct Unsafe {
    pub path: PathBuf,
    pub what: String,
}

/// Makes sure that no entry of a project's folder is a link, that its files are for their owner only, and that files that root
/// has created belong to the owner of the project.
pub fn secure(folder: &Path) -> Result<(), Unsafe> {
    let Some(own) = entry(folder)? else { return Ok(()) };
    let ours = folder.ends_with(FOLDER);
    let owner = if ours { owner_above(folder, &own) } else { (own.st_uid, own.st_gid) };
    let modes = if ours { 0o700 } else { 0o7777 };
    set(folder, &own, modes, owner)?;
    // A store may be in any directory, whose other folders are not ours.
    let folders = FOLDERS.map(|name| (name, 0o700)).into_iter().filter(|_| ours);
    for (name, mode) in folders.chain(FILES.map(|name| (name, 0o600))) {
        let path = folder.join(name);
        if let Some(found) = entry(&path)? {
            set(&path, &found, mode, owner)?;
        }
    }
    for path in COMMITTED.map(|name| folder.join(name)).into_iter().filter(|_| ours) {
        // These may be links, which dotfile managers create.
        if let Ok(Some(found)) = entry(&path) {
            set(&path, &found, 0o7777, owner)?;
        }
    }
    Ok(())
}

/// The paths with modes that are too open, for a report.
pub fn too_open(folder: &Path) -> Vec<(PathBuf, u32)> {
    let names = FOLDERS.into_iter().chain(FILES).map(|name| folder.join(name));
    let paths = std::iter::once(folder.to_owned()).chain(names);
    let found = paths.filter_map(|path| Some((rustix::fs::lstat(&path).ok()?.st_mode & 0o7777, path)));
    found.filter(|(mode, _)| mode & 0o077 != 0).map(|(mode, path)| (path, mode)).collect()
}

/// Opens a file without following links. A file that is created is for its owner only, under sudo for the owner of the folder.
pub fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let (base, rest) = split(path);
    let base = open_base(&base)?;
    let file = beneath(&base, &rest, flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::from_raw_mode(0o600)).map_err(explain)?;
    if flags.contains(OFlags::CREATE) {
        give_to_owner(&file, &base);
    }
    Ok(file.into())
}

/// Creates a folder, and its parents up to the project's folder, which must exist.
pub fn make_dir(path: &Path) -> io::Result<()> {
    if !path.components().any(|part| part.as_os_str() == FOLDER) {
        return fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    }
    let (base, rest) = split(path);
    let mut dir = open_base(&base)?;
    for part in rest.components().filter(|part| matches!(part, Component::Normal(_))) {
        let name = Path::new(part.as_os_str());
        let made = match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let is_link = || rustix::fs::readlinkat(&dir, name, Vec::new()).is_ok();
        let next = rustix::fs::openat(&dir, name, flags, Mode::empty())
            .map_err(|error| explain(if is_link() { Errno::LOOP } else { error }))?;
        if made {
            give_to_owner(&next, &dir);
        }
        dir = next;
    }
    Ok(())
}

/// Splits a path into the folder that must exist and the rest: after `.banksman`, or else the last component.
fn split(path: &Path) -> (PathBuf, PathBuf) {
    let folder = path.ancestors().skip(1).find(|above| above.ends_with(FOLDER));
    let base = folder.or(path.parent().filter(|parent| !parent.as_os_str().is_empty())).unwrap_or(Path::new("."));
    let rest = path.strip_prefix(base).unwrap_or(path);
    (base.into(), rest.into())
}

/// The project's folder itself must not be a link either. The path above it is under the user's control.
fn open_base(base: &Path) -> io::Result<OwnedFd> {
    let nofollow = if base.ends_with(FOLDER) { OFlags::NOFOLLOW } else { OFlags::empty() };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | nofollow;
    rustix::fs::openat(CWD, base, flags, Mode::empty()).map_err(explain)
}

fn beneath(base: &OwnedFd, rest: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let mode = if flags.contains(OFlags::CREATE) { mode } else { Mode::empty() };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(base, rest, flags | OFlags::NOFOLLOW, mode, resolve) {
        // The kernel or the container lacks this call: NOFOLLOW guards the last component, and `secure` has checked the others.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::openat(base, rest, flags | OFlags::NOFOLLOW, mode),
        opened => opened,
    }
}

/// The entry at a path, which must not be a link.
fn entry(path: &Path) -> Result<Option<Stat>, Unsafe> {
    let cannot = |what: String| Unsafe { path: path.into(), what };
    let found = match rustix::fs::lstat(path) {
        // An entry that cannot be read cannot be used either, and a later attempt to use it reports the error.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(None),
        found => found.map_err(|error| cannot(error.to_string()))?,
    };
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Symlink => Err(cannot("it is a symbolic link, which banksman does not follow".into())),
        _ => Ok(Some(found)),
    }
}

/// Removes the access of other users, and gives the owner what root has created.
fn set(path: &Path, found: &Stat, mode: u32, owner: (u32, u32)) -> Result<(), Unsafe> {
    let euid = rustix::process::geteuid();
    if euid.is_root() && found.st_uid == 0 && owner.0 != 0 {
        // Where owners cannot be changed, as in some containers, the file stays root's.
        rustix::fs::chownat(CWD, path, Some(Uid::from_raw(owner.0)), Some(Gid::from_raw(owner.1)), AtFlags::SYMLINK_NOFOLLOW)
            .ok();
    }
    let open_to_others = found.st_mode & 0o7777 & !mode & 0o077;
    if open_to_others == 0 {
        return Ok(());
    }
    if euid.is_root() || euid.as_raw() == found.st_uid {
        let less = found.st_mode & 0o7777 & !0o077;
        // On a file system without modes nothing changes; `doctor` reports it.
        rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(less), AtFlags::empty()).ok();
        return Ok(());
    }
    let (mode, owner) = (found.st_mode & 0o777, found.st_uid);
    let what =
        format!("it belongs to another user (uid {owner}), and its mode {mode:o} lets others read it and block its writers");
    Err(Unsafe { path: path.into(), what })
}

/// Under sudo, a project belongs to the owner of the directory that contains it.
fn owner_above(folder: &Path, own: &Stat) -> (u32, u32) {
    let above = folder.parent().filter(|_| own.st_uid == 0).and_then(|root| rustix::fs::stat(root).ok());
    above.map_or((own.st_uid, own.st_gid), |above| (above.st_uid, above.st_gid))
}

/// Gives an entry that root has created in the folder of another user to that user.
fn give_to_owner(made: impl AsFd, folder: impl AsFd) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (Ok(made_as), Ok(folder)) = (rustix::fs::fstat(&made), rustix::fs::fstat(folder)) else { return };
    if made_as.st_uid == 0 && folder.st_uid != 0 {
        // Where owners cannot be changed, as in some containers, the file stays root's.
        rustix::fs::fchown(made, Some(Uid::from_raw(folder.st_uid)), Some(Gid::from_raw(folder.st_gid))).ok();
    }
}

/// The same for an entry that has no descriptor, such as a socket.
pub(crate) fn give_entry_to_owner(folder: impl AsFd, name: &Path) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let Ok(owner) = rustix::fs::fstat(&folder) else { return };
    if owner.st_uid != 0 {
        let (uid, gid) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
        rustix::fs::chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).ok();
    }
}

fn explain(error: Errno) -> io::Error {
    match error {
        Errno::LOOP => io::Error::other("it is a symbolic link, which banksman does not follow"),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn no_link_below_the_folder_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, outside) = (dir.path().join(FOLDER), dir.path().join("outside"));
        fs::create_dir_all(folder.join("runs")).unwrap();
        fs::create_dir(&outside).unwrap();
        symlink(&outside, folder.join("logs")).unwrap();
        symlink(outside.join("turn"), folder.join("turn")).unwrap();
        let create = OFlags::WRONLY | OFlags::CREATE;
        for path in ["logs/r-1.log", "turn"] {
            let error = open(&folder.join(path), create).unwrap_err();
            assert!(error.to_string().contains("symbolic link"), "{path}: {error}");
        }
        assert!(make_dir(&folder.join("logs/deep")).unwrap_err().to_string().contains("symbolic link"));
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "nothing was made outside");
        open(&folder.join("runs/r-1"), create).unwrap();
        assert_eq!(mode(&folder.join("runs/r-1")), 0o600);
        assert!(secure(&folder).unwrap_err().to_string().contains("symbolic link"));
    }

    #[test]
    fn a_missing_folder_is_not_created_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("project").join(FOLDER);
        assert_eq!(make_dir(&folder.join("tasks/t-1")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(open(&folder.join("turn"), OFlags::RDWR | OFlags::CREATE).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        fs::create_dir_all(&folder).unwrap();
        make_dir(&folder.join("tasks/t-1")).unwrap();
        make_dir(&folder.join("tasks/t-1")).unwrap();
        assert_eq!(mode(&folder.join("tasks/t-1")), 0o700);
    }

    #[test]
    fn the_folder_of_a_clone_is_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(FOLDER);
        fs::create_dir_all(folder.join("logs")).unwrap();
        for name in ["store.db", "config.toml"] {
            fs::write(folder.join(name), "").unwrap();
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o644)).unwrap();
        }
        for path in [&folder, &folder.join("logs")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        assert_eq!(too_open(&folder).len(), 3);
        secure(&folder).unwrap();
        assert_eq!([".", "logs", "store.db", "config.toml"].map(|name| mode(&folder.join(name))), [0o700, 0o700, 0o600, 0o644]);
        assert!(too_open(&folder).is_empty());
    }

    #[test]
    fn a_directory_with_only_a_store_keeps_the_modes_of_its_folders() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("logs")).unwrap();
        fs::write(dir.path().join("store.db"), "").unwrap();
        for name in ["", "logs", "store.db"] {
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        symlink("/tmp", dir.path().join("tasks")).unwrap();
        secure(dir.path()).unwrap();
        assert_eq!(["", "logs", "store.db"].map(|name| mode(&dir.path().join(name))), [0o755, 0o755, 0o700]);
    }
}
