//! A cgroup for each keeper, where one can be made. All processes of the session are in it, whatever they do to their
//! environment, session id and parents. So when the keeper was killed, the cgroup kills the rest at once, and shows
//! when nothing is left, in every pid namespace.
//!
//! The keeper itself is in it: a new process joins the cgroup of its parent at no cost, while moving one takes the kernel some
//! milliseconds. A keeper keeps many sessions one after the other, so it moves only once.
//!
//! This needs cgroup v2 (also beside v1), the right to make a group below that of the keeper, and Linux 5.14 for
//! `cgroup.kill`. A keeper without a cgroup finds its processes by their marker. A process that may write to the groups
//! above can leave its cgroup; it is found by its marker as well.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::ids;

/// The magic number of the file system of cgroup v2.
const CGROUP2: u64 = 0x6367_7270;

/// The interval of the checks of a killed group. Only inotify reports its end, which is too much for such a short wait.
const ROUND: Duration = Duration::from_millis(2);

/// The prefix of the names of groups.
const PREFIX: &str = "banksman-";

/// The age from which an empty group counts as abandoned.
const STALE: Duration = Duration::from_secs(10);

/// The cgroup of a run, as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupId {
    pub path: String,
    /// The kernel's id of the group, which is never reused.
    pub id: u64,
}

/// The cgroup of this process, which is a keeper.
#[derive(Debug)]
pub(super) struct Cgroup {
    id: CgroupId,
    home: &'static Path,
}

impl Cgroup {
    /// Makes a group and joins it, if possible.
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
        // Without the right to return to its home group, the keeper could not remove its own group in the end.
        let back = rustix::fs::access(home.join("cgroup.procs"), rustix::fs::Access::WRITE_OK);
        if !path.join("cgroup.kill").exists() || back.is_err() {
            return None;
        }
        fs::write(path.join("cgroup.procs"), "0").ok()?;
        Some(Cgroup { id, home })
    }

    pub(super) fn id(&self) -> &CgroupId {
        &self.id
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // If the keeper cannot leave the group, the next keeper removes it.
        if fs::write(self.home.join("cgroup.procs"), "0").is_ok() {
            self.id.remove();
        }
    }
}

/// Removes the empty groups of killed keepers.
fn remove_stale(home: &Path) {
    let entries = fs::read_dir(home).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        // The keeper that has made a new group may be about to join it.
        let age = entry.metadata().ok().and_then(|found| found.modified().ok()?.elapsed().ok());
        if age.is_some_and(|age| age > STALE) {
            fs::remove_dir(entry.path()).ok();
        }
    }
}

impl CgroupId {
    /// Whether the group exists, and is not another one of the same name.
    pub(super) fn exists(&self) -> bool {
        let path = Path::new(&self.path);
        let is_cgroup = rustix::fs::statfs(path).is_ok_and(|stat| (stat.f_type as u64) & 0xffff_ffff == CGROUP2);
        is_cgroup && fs::metadata(path).is_ok_and(|found| found.ino() == self.id)
    }

    /// The processes in the group that this pid namespace can see.
    pub(super) fn processes(&self) -> Vec<i32> {
        let text = fs::read_to_string(Path::new(&self.path).join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).collect()
    }

    /// Kills all processes in the group, and waits until it is empty. Returns whether it is.
    pub(super) fn end(&self, patience: Duration) -> bool {
        let patience_ends = Instant::now() + patience;
        while self.is_populated() {
            // If this is not permitted, the group does not become empty, and the result is false.
            fs::write(Path::new(&self.path).join("cgroup.kill"), "1").ok();
            if Instant::now() > patience_ends {
                return false;
            }
            std::thread::sleep(ROUND);
        }
        self.remove();
        true
    }

    /// Removes the group, if it is empty.
    pub(super) fn remove(&self) {
        remove(Path::new(&self.path));
    }

    /// Whether a process lives in the group or below it. A group that cannot be read counts as populated.
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

/// The group of this process. The groups of keepers are made below it.
fn home() -> Option<&'static Path> {
    static HOME: OnceLock<Option<PathBuf>> = OnceLock::new();
    HOME.get_or_init(find_home).as_deref()
}

fn find_home() -> Option<PathBuf> {
    let home = locate(&fs::read_to_string("/proc/self/cgroup").ok()?, &fs::read_to_string("/proc/self/mountinfo").ok()?)?;
    let own = rustix::process::getpid().as_raw_nonzero().to_string();
    // In a cgroup namespace, or with an unusual mount, the path may lead to another group.
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

/// Removes an empty group and the empty groups below it.
fn remove(path: &Path) {
    if fs::remove_dir(path).is_ok() {
        return;
    }
    let below = fs::read_dir(path).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove(&entry.path());
    }
    // A group that is not empty stays; the next sweep of the run ends it.
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
