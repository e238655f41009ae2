//! Processes of other pid namespaces, as far as this process can see them.
//!
//! `/proc` shows the processes of its own pid namespace and of the namespaces below it. In the initial namespace these
//! are all processes of the machine, so a missing process does not exist: a process of a container, or an entire
//! container, can be proven dead. A pid namespace ends with its first process, which the kernel lets exit last. So
//! while any process of a namespace lives, its first process is there for the full duration of a search, and the search
//! cannot miss the namespace.
//!
//! Below the initial namespace, and where `/proc` hides the processes of other users, a missing process proves nothing.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// The inode of the initial pid namespace, which is fixed (PROC_PID_INIT_INO).
const INITIAL: u64 = 0xefff_fffc;

/// The result of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Search {
    /// The process exists, and has this pid in the namespace of this process.
    Found(i32),
    Absent,
    Unclear,
}

/// Searches for the process that has `pid` in the pid namespace `pid_ns`, which is not that of this process.
pub(crate) fn find(pid_ns: u64, pid: i32) -> Search {
    search(pid_ns, |inner| inner == pid)
}

/// Searches for any process of a pid namespace, which is not that of this process.
pub(crate) fn find_any(pid_ns: u64) -> Search {
    search(pid_ns, |_| true)
}

fn search(pid_ns: u64, wanted: impl Fn(i32) -> bool) -> Search {
    let mut nothing_hidden = sees_all();
    let Ok(entries) = fs::read_dir("/proc") else { return Search::Unclear };
    for entry in entries {
        let Ok(entry) = entry else { return Search::Unclear };
        let Some(outer) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let inner = match innermost(outer) {
            Ok(Some(inner)) => inner,
            // The process is in the namespace of this process, or dead.
            Ok(None) => continue,
            Err(error) if is_gone(&error) => continue,
            Err(_) => {
                nothing_hidden = false;
                continue;
            }
        };
        if !wanted(inner) {
            continue;
        }
        match namespace(outer) {
            Ok(found) if found == pid_ns => return Search::Found(outer),
            Ok(_) => {}
            Err(error) if is_gone(&error) => {}
            // The process belongs to another user, and may be the wanted one.
            Err(_) => nothing_hidden = false,
        }
    }
    if nothing_hidden { Search::Absent } else { Search::Unclear }
}

/// Whether every process of the machine is visible.
fn sees_all() -> bool {
    let is_initial = fs::metadata("/proc/self/ns/pid").is_ok_and(|own| own.ino() == INITIAL);
    // With the option `hidepid`, a process that may see the first process may see all others too.
    is_initial && own_status_is_plain() && fs::read("/proc/1/status").is_ok()
}

/// Whether `/proc` belongs to the pid namespace of this process, not to one above.
fn own_status_is_plain() -> bool {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    matches!(innermost(own), Ok(None)) && fs::read_link("/proc/self").is_ok_and(|link| link.to_str() == Some(&own.to_string()))
}

/// The pid of a process in its own namespace, if that namespace is below the one of `/proc` and the process lives.
fn innermost(outer: i32) -> io::Result<Option<i32>> {
    let status = fs::read(format!("/proc/{outer}/status"))?;
    let status = String::from_utf8_lossy(&status);
    if is_dead(&status) {
        return Ok(None);
    }
    parse_innermost(&status).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Whether the process has exited and was not reaped. The first thread of a process may be a zombie while other threads live.
fn is_dead(status: &str) -> bool {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_zombie = field("State:").is_some_and(|state| state.starts_with(['Z', 'X']));
    is_zombie && field("Threads:").is_none_or(|threads| threads == "1")
}

/// The line `NSpid:` has the pids of a process in every namespace from the one of `/proc` to its own.
fn parse_innermost(status: &str) -> Option<Option<i32>> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let mut numbers = numbers.split_whitespace();
    numbers.next()?;
    numbers.last().map(str::parse).transpose().ok()
}

fn namespace(outer: i32) -> io::Result<u64> {
    fs::metadata(format!("/proc/{outer}/ns/pid")).map(|found| found.ino())
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pid_in_its_own_namespace_is_the_last() {
        assert_eq!(parse_innermost("Name:\tx\nNSpid:\t4711\n"), Some(None), "it is in the namespace of /proc");
        assert_eq!(parse_innermost("NSpid:\t4711\t12\t1\n"), Some(Some(1)));
        assert_eq!(parse_innermost("Name:\tx\n"), None);
    }

    #[test]
    fn a_zombie_is_dead_unless_it_has_other_threads() {
        assert!(is_dead("Name:\tx\nState:\tZ (zombie)\nThreads:\t1\nNSpid:\t7\t1\n"));
        assert!(!is_dead("Name:\tx\nState:\tZ (zombie)\nThreads:\t2\nNSpid:\t7\t1\n"));
        assert!(!is_dead("Name:\tZ\nState:\tS (sleeping)\nThreads:\t1\nNSpid:\t7\t1\n"));
    }

    #[test]
    fn a_missing_process_is_absent_only_if_all_are_visible() {
        let expected = if sees_all() { Search::Absent } else { Search::Unclear };
        assert_eq!(find_any(1), expected);
        assert_eq!(find(1, 1), expected);
    }
}
