//! A cgroup for each keeper, where one can be made. All that it starts is in the same group whatever it does to its environment, session
//! and parents; so when the keeper was killed, the group ends the rest at once, and tells when nothing is left, in every pid namespace.
//!
//! The keeper itself is in it: a process joins its parent's group for free when it is made, while moving one takes the kernel some
//! milliseconds. Keepers keep many sessions one after the other, so it is moved once.
//!
//! Needed is cgroup v2 (also beside v1), the right to make a group below that of the keeper, and Linux 5.14 for `cgroup.kill`. Otherwise a
//! keeper has none, and its processes are found by their marker. A process that may write to the groups above can leave its own; it
//! is found by its marker as well.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::ids;

/// The kernel's number for the file system of cgroup v2.
const CGROUP2: u64 = 0x6367_7270;

/// How soon a group that was killed is looked at again. It tells of its end by inotify only, and this is over in a moment.
const ROUND: Duration = Duration::from_millis(2);

/// How the names of groups begin.
const PREFIX: &str = "banksman-";

/// When an empty group belongs to nobody any more.
const STALE: Duration = Duration::from_secs(10);

/// The cgroup of a run, as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupId {
    pub path: String,
    /// The kernel's id for it, which no other ever gets.
    pub id: u64,
}

/// The cgroup of this process, which is a keeper.
#[derive(Debug)]
pub(super) struct Cgroup {
    id: CgroupId,
    home: &'static Path,
}

impl Cgroup {
    /// Makes a group and joins it, if that is possible.
    pub(super) fn join() -> Option<Cgroup> {
        let home = home()?;
        remove_stale(home);
        let path = home.join(format!("{PREFIX}{}", ids::random(10)));
        fs::create_dir(&path).ok()?;
        let joined = Cgroup::enter(&path, home);
        if joined.is_none() {
            remove(&path);
        }
        joined
    }

    fn enter(path: &Path, home: &'static Path) -> Option<Cgroup> {
        let id = CgroupId { path: path.to_str()?.into(), id: fs::metadata(path).ok()?.ino() };
        // Without the right to go back it could not be removed in the end.
        let back = rustix::fs::access(home.join("cgroup.procs"), rustix::fs::Access::WRITE_OK);
        if !path.join("cgroup.kill").exists() || back.is_err() {
            return None;
        }
        fs::write(path.join("cgroup.procs"), "0").ok()?;
        Some(Cgroup { id, home })
    }

    /// The id to record.
    pub(super) fn id(&self) -> &CgroupId {
        &self.id
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // If it cannot be left, the next keeper removes it.
        if fs::write(self.home.join("cgroup.procs"), "0").is_ok() {
            self.id.remove();
        }
    }
}

/// Removes the groups of keepers that were killed. One that is not empty cannot be removed.
fn remove_stale(home: &Path) {
    let entries = fs::read_dir(home).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        // A new one may be that of a keeper that is about to join it.
        let age = entry.metadata().ok().and_then(|found| found.modified().ok()?.elapsed().ok());
        if age.is_some_and(|age| age > STALE) {
            fs::remove_dir(entry.path()).ok();
        }
    }
}

impl CgroupId {
    /// Whether it is there, and is not another one of the same name.
    pub(super) fn exists(&self) -> bool {
        let path = Path::new(&self.path);
        let is_cgroup = rustix::fs::statfs(path).is_ok_and(|stat| (stat.f_type as u64) & 0xffff_ffff == CGROUP2);
        is_cgroup && fs::metadata(path).is_ok_and(|found| found.ino() == self.id)
    }

    /// The processes in it that can be seen from here.
    pub(super) fn processes(&self) -> Vec<i32> {
        let text = fs::read_to_string(Path::new(&self.path).join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).collect()
    }

    /// Kills all that is in it, and waits until nothing is. Says whether that is so.
    pub(super) fn end(&self, patience: Duration) -> bool {
        let patience_ends = Instant::now() + patience;
        while self.is_populated() {
            // If it may not be written, the group does not become empty, and that is said.
            fs::write(Path::new(&self.path).join("cgroup.kill"), "1").ok();
            if Instant::now() > patience_ends {
                return false;
            }
            std::thread::sleep(ROUND);
        }
        self.remove();
        true
    }

    /// Removes it, if it is empty.
    pub(super) fn remove(&self) {
        remove(Path::new(&self.path));
    }

    /// Whether a process lives in it or below it. One that cannot be read may have any.
    fn is_populated(&self) -> bool {
        match fs::read_to_string(Path::new(&self.path).join("cgroup.events")) {
            Ok(events) => !events.lines().any(|line| line == "populated 0"),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }
}

/// Whether a keeper that this process starts gets a cgroup of its own.
pub fn has_cgroups() -> bool {
    let Some(path) = home().map(|home| home.join(format!("{PREFIX}{}", ids::random(10)))) else { return false };
    let may = fs::create_dir(&path).is_ok() && path.join("cgroup.kill").exists();
    remove(&path);
    may
}

/// The group of this process, below which others are made.
fn home() -> Option<&'static Path> {
    static HOME: OnceLock<Option<PathBuf>> = OnceLock::new();
    HOME.get_or_init(find_home).as_deref()
}

fn find_home() -> Option<PathBuf> {
    let home = locate(&fs::read_to_string("/proc/self/cgroup").ok()?, &fs::read_to_string("/proc/self/mountinfo").ok()?)?;
    let own = rustix::process::getpid().as_raw_nonzero().to_string();
    // In a namespace of cgroups, or with an unusual mount, it may be another group that is found there.
    let is_own = fs::read_to_string(home.join("cgroup.procs")).is_ok_and(|procs| procs.lines().any(|line| line == own));
    (is_own && rustix::fs::access(&home, rustix::fs::Access::WRITE_OK).is_ok()).then_some(home)
}

/// The directory of a process's group, from its `/proc/PID/cgroup` and `/proc/PID/mountinfo`.
fn locate(cgroup: &str, mounts: &str) -> Option<PathBuf> {
    let own = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        if source.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let below = Path::new(own).strip_prefix(root).ok()?;
        Some(Path::new(point).join(below))
    })
}

/// Removes an empty group with the empty groups that were made below it.
fn remove(path: &Path) {
    if fs::remove_dir(path).is_ok() {
        return;
    }
    let below = fs::read_dir(path).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove(&entry.path());
    }
    // What is not empty stays; the next who looks after the run ends it.
    fs::remove_dir(path).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_a_process_is_found_below_its_mount() {
        let v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(locate("0::/user.slice/a.scope\n", v2), Some("/sys/fs/cgroup/user.slice/a.scope".into()));
        let hybrid = format!(
            "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n{}",
            v2.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
        );
        assert_eq!(locate("4:memory:/x\n0::/\n", &hybrid), Some("/sys/fs/cgroup/unified/".into()));
        let bound = v2.replace(" / /sys", " /docker/1 /sys");
        assert_eq!(locate("0::/docker/1/a\n", &bound), Some("/sys/fs/cgroup/a".into()));
        assert_eq!(locate("0::/other\n", &bound), None);
        assert_eq!(locate("4:memory:/x\n", v2), None, "a machine with v1 only");
    }
}
