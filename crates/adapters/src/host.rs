//! This machine: its id, its boot, its clocks.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::ids;
use crate::time_namespace::Offsets;

/// The facts that all processes of one pid namespace, in one boot of one machine, share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The machine: its machine-id and a random part, so that clones differ.
    pub id: Box<str>,
    /// The kernel's boot id.
    pub boot: Box<str>,
    /// The inode of the pid namespace.
    pub pid_ns: u64,
    /// Whether all processes that share the store run on one kernel, as with SQLite. Then the boot id alone identifies
    /// the machine: the random part of `id` is in the home of a user, so two users of one machine have different ids.
    pub one_kernel: bool,
    /// The directory of the [life files](crate::life_file), if there are any.
    pub life_files: Option<PathBuf>,
}

impl Host {
    /// Detects the host of this process. The random part of the id is stored in `state_dir`, outside of any project; without a
    /// `state_dir`, the id is the machine-id alone.
    pub fn detect(state_dir: Option<&Path>) -> io::Result<Host> {
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let random = state_dir.and_then(|dir| random_part(dir).ok()).unwrap_or_default();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let pid_ns = fs::metadata("/proc/self/ns/pid")?.ino();
        let machine: String = machine.trim().chars().take(12).collect();
        Offsets::own().map_err(|error| io::Error::other(format!("the offsets of the time namespace cannot be read: {error}")))?;
        Ok(Host {
            id: format!("{machine}-{random}").into(),
            boot: boot.trim().into(),
            pid_ns,
            one_kernel: false,
            life_files: None,
        })
    }

    /// The same host, for a store that only processes of one kernel can open. Some of them have life files in this directory.
    #[must_use]
    pub fn with_one_kernel(self, life_files: PathBuf) -> Host {
        Host { one_kernel: true, life_files: Some(life_files), ..self }
    }

    /// The same host, for a store that other machines can open too.
    #[must_use]
    pub fn among_others(self) -> Host {
        Host { one_kernel: false, life_files: None, ..self }
    }

    /// The directory for the random part: `$XDG_STATE_HOME/banksman` or `~/.local/state/banksman`.
    pub fn state_dir(xdg_state_home: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
        let base = xdg_state_home.filter(|path| path.is_absolute()).or_else(|| home.map(|home| home.join(".local/state")))?;
        Some(base.join("banksman"))
    }
}

/// Reads the random part, or creates it. Of several processes that create it at once, one wins.
fn random_part(dir: &Path) -> io::Result<String> {
    let path = dir.join("host");
    if let Ok(text) = fs::read_to_string(&path)
        && !text.trim().is_empty()
    {
        return Ok(text.trim().to_owned());
    }
    fs::create_dir_all(dir)?;
    let draft = dir.join(format!("host.{}", ids::random(8)));
    fs::File::options().write(true).create_new(true).mode(0o600).open(&draft)?.write_all(ids::random(12).as_bytes())?;
    let linked = fs::hard_link(&draft, &path);
    fs::remove_file(&draft)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(fs::read_to_string(&path)?.trim().to_owned()),
    }
}

/// The moment after `after`, which is capped at a hundred years: an `Instant` cannot represent every sum.
pub fn deadline(after: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 366 * 86_400);
    Instant::now() + after.min(CENTURY)
}

/// Milliseconds since boot, not counting suspended time. The same in every time namespace.
pub fn monotonic_ms() -> i64 {
    let time = clock_gettime(ClockId::Monotonic);
    (time.tv_sec * NANOS + time.tv_nsec - offsets().monotonic_ns).div_euclid(1_000_000)
}

/// Milliseconds since boot, counting suspended time. The same in every time namespace.
pub fn boot_ms() -> i64 {
    let time = clock_gettime(ClockId::Boottime);
    (time.tv_sec * NANOS + time.tv_nsec - offsets().boottime_ns).div_euclid(1_000_000)
}

/// The value of CLOCK_BOOTTIME in this process at a moment of [`boot_ms`], in nanoseconds, for timers.
pub(crate) fn own_boottime_ns(boot_ms: i64) -> i64 {
    boot_ms.saturating_mul(1_000_000).saturating_add(offsets().boottime_ns)
}

const NANOS: i64 = 1_000_000_000;

/// The offsets of the time namespace. [`Host::detect`] fails where they cannot be read.
fn offsets() -> Offsets {
    Offsets::own().unwrap_or_default()
}

/// Milliseconds since 1970 (UTC).
pub fn wall_ms() -> i64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec * 1_000 + time.tv_nsec / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_random_part_is_created_once() {
        let dir = tempfile::tempdir().unwrap();
        let first = Host::detect(Some(dir.path())).unwrap();
        assert_eq!(first, Host::detect(Some(dir.path())).unwrap());
        let other = tempfile::tempdir().unwrap();
        assert_ne!(first.id, Host::detect(Some(other.path())).unwrap().id);
    }
}
