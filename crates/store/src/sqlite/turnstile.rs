//! Processes take turns to write. SQLite's own busy handler polls and starves; a blocking file lock is fair.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::StoreError;

/// A file whose lock is the right to write.
pub(crate) struct Turnstile {
    file: File,
    inside: bool,
}

/// The process that has its turn right now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// Its pid.
    pub pid: i32,
    /// Its command line.
    pub command: String,
    /// What it does, in a word: `running`, `stopped`, …
    pub state: &'static str,
}

impl Turnstile {
    pub(crate) fn open(path: &Path) -> Result<Turnstile, StoreError> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(StoreError::io)?;
        Ok(Turnstile { file, inside: false })
    }

    /// Waits for the turn, however long it takes.
    pub(crate) fn enter(&mut self) -> Result<(), StoreError> {
        while !self.inside {
            match self.file.lock() {
                Ok(()) => self.inside = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StoreError::io(error)),
            }
        }
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        if self.inside {
            self.inside = false;
            self.file.unlock().expect("a lock that is held on an open file can be given up");
        }
    }
}

/// Who has its turn at this turnstile, as the kernel tells. `None` if nobody has or it cannot be seen from here.
pub fn occupant(turnstile: &Path) -> Option<Occupant> {
    let inode = std::fs::metadata(turnstile).ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| holder(line, inode))?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command).trim_end_matches('\0').replace('\0', " ");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let state = match stat.rsplit_once(')')?.1.trim_start().chars().next()? {
        'T' | 't' => "stopped",
        'D' => "waiting for the disk",
        'Z' => "dead",
        'R' => "running",
        _ => "waiting",
    };
    Some(Occupant { pid, command, state })
}

/// The pid in a line of /proc/locks such as `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`. Those who still
/// wait have an arrow after the number.
fn holder(line: &str, inode: u64) -> Option<i32> {
    let mut words = line.split_whitespace().skip(1);
    let (kind, _, _, pid, place) = (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?);
    let matches = kind == "FLOCK" && place.rsplit(':').next()?.parse() == Ok(inode);
    matches.then(|| pid.parse().ok()).flatten().filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_understood() {
        assert_eq!(holder("1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF", 5678), Some(1234));
        assert_eq!(holder("1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF", 678), None);
        assert_eq!(holder("1: -> FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF", 5678), None);
        assert_eq!(holder("2: POSIX  ADVISORY  WRITE 99 fe:00:5678 0 EOF", 5678), None);
    }

    #[test]
    fn who_has_the_turn_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("turn");
        let mut turnstile = Turnstile::open(&path).unwrap();
        assert_eq!(occupant(&path), None);
        turnstile.enter().unwrap();
        assert_eq!(occupant(&path).unwrap().pid, i32::try_from(std::process::id()).unwrap());
        turnstile.leave();
        assert_eq!(occupant(&path), None);
    }
}
