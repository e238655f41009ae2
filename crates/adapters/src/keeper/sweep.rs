//! Ending a session whose keeper was killed: its processes have lost their common ancestor.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::Timespec;

use super::MARKER;
use super::cgroup::CgroupId;
use super::client::place;
use super::record::Record;
use crate::pid_namespace::{self, Search};
use crate::process::{has_exited, is_same_start, start_time, stat};
use crate::{host, tree};

/// How long killed processes may take to end. Only a process in an uninterruptible sleep takes longer.
const KILLED: Duration = Duration::from_secs(5);

/// The result of a sweep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many processes were ended.
    pub ended: usize,
    /// The processes that are left: this process may not signal them, or they are in an uninterruptible sleep.
    pub left: Vec<i32>,
}

/// Ends the processes that are left of a session: those in its cgroup, with its marker in their environment or with its
/// session id, and all their descendants. They have `grace` to end after SIGTERM. The sweep is over when two searches
/// in a row find nothing, and the cgroup is empty. Without a cgroup, a process that has dropped its marker, its session
/// id and its parent is not found.
///
/// Fails if the session was in another pid namespace, unless that namespace is proven to be gone: its processes cannot
/// be seen from here.
pub fn sweep(record: &Record, grace: Duration) -> io::Result<Swept> {
    let (boot, pid_ns) = place()?;
    if record.boot != *boot {
        return Ok(Swept::default());
    }
    // The keeper may live after all, and keep another session in its cgroup; then the cgroup is not touched.
    let has_keeper = || start_time(record.keeper_pid).is_ok_and(|start| is_same_start(start, record.keeper_start));
    let cgroup = record.cgroup.as_ref().filter(|cgroup| cgroup.exists());
    let cgroup = cgroup.filter(|cgroup| !(cgroup.processes().contains(&record.keeper_pid) && has_keeper()));
    if record.pid_ns != *pid_ns {
        // A cgroup can be killed from any pid namespace, and contains the entire session.
        if cgroup.is_some_and(|cgroup| cgroup.end(KILLED)) {
            return Ok(Swept::default());
        }
        return match pid_namespace::find_any(record.pid_ns) {
            // A pid namespace ends with all its processes.
            Search::Absent => Ok(Swept::default()),
            Search::Found(_) => Err(unseen("its processes are in another container (pid namespace), which still exists")),
            Search::Unclear => {
                Err(unseen("its processes were in another container (pid namespace), which cannot be seen from here"))
            }
        };
    }
    let patience_ends = host::deadline(grace);
    let (mut asked, mut empty) = (BTreeSet::new(), 0);
    while empty < 2 {
        let found = search(record, cgroup)?;
        let now = Instant::now();
        if found.is_empty() {
            empty += 1;
        } else if now > patience_ends + KILLED {
            let left: Vec<i32> = found.iter().map(|process| process.pid).collect();
            return Ok(Swept { ended: asked.len().saturating_sub(left.len()), left });
        } else if now < patience_ends {
            empty = 0;
            let newcomers: Vec<&Process> = found.iter().filter(|process| asked.insert((process.pid, process.start))).collect();
            signal(&newcomers, Signal::TERM);
            signal(&newcomers, Signal::CONT);
            wait(&found, patience_ends);
        } else {
            empty = 0;
            asked.extend(found.iter().map(|process| (process.pid, process.start)));
            let all: Vec<&Process> = found.iter().collect();
            // Stopped processes do not fork.
            signal(&all, Signal::STOP);
            signal(&all, Signal::KILL);
            wait(&found, now + Duration::from_millis(100));
        }
    }
    // Processes that were started between two searches, or are in a pid namespace of their own.
    if let Some(cgroup) = cgroup.filter(|cgroup| !cgroup.end(KILLED)) {
        return Err(io::Error::other(format!("processes in {} cannot be ended", cgroup.path)));
    }
    Ok(Swept { ended: asked.len(), left: Vec::new() })
}

fn unseen(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// A process of the session. A signal through its pidfd reaches no other process.
struct Process {
    pid: i32,
    start: u64,
    pidfd: OwnedFd,
}

fn search(record: &Record, cgroup: Option<&CgroupId>) -> io::Result<Vec<Process>> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let marker = format!("{MARKER}={}", record.run);
    let foreign = format!("{MARKER}=");
    // The kernel does not reuse the session id while the session has members. If another process has this pid, the
    // session is empty.
    let session = (!matches!(start_time(record.keeper_pid), Ok(start) if !is_same_start(start, record.keeper_start)))
        .then_some(record.keeper_pid);
    let ours = |pid: i32| {
        let stat = stat(pid).ok().filter(|stat| stat.start + 1 >= record.keeper_start)?;
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let marked = environ.split(|byte| *byte == 0).find(|pair| pair.starts_with(foreign.as_bytes()));
        let ours = match marked {
            Some(pair) => pair == marker.as_bytes(),
            None => Some(stat.session) == session,
        };
        ours.then_some(stat.start)
    };
    let mut found = Vec::new();
    let mut seen = BTreeSet::from([own]);
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if pid == own || ours(pid).is_none() {
            continue;
        }
        // All conditions are checked again, now that the pidfd pins the process.
        let Some(process) = open(pid, ours) else { continue };
        let below = |below: i32| tree::descends(below, pid).then(|| start_time(below).ok()).flatten();
        let family = tree::descendants(pid).into_iter().filter_map(|pid| open(pid, below));
        found.extend(std::iter::once(process).chain(family).filter(|process| seen.insert(process.pid)));
    }
    let grouped =
        |pid: i32| cgroup.is_some_and(|cgroup| cgroup.processes().contains(&pid)).then(|| start_time(pid).ok()).flatten();
    let in_group = cgroup.map(CgroupId::processes).unwrap_or_default();
    let in_group = in_group.into_iter().filter(|pid| !seen.contains(pid)).filter_map(|pid| open(pid, grouped));
    found.extend(in_group.collect::<Vec<_>>());
    Ok(found)
}

/// Opens a live process. `start` returns its start time if it is one of ours, and runs after the pidfd was opened.
fn open(pid: i32, start: impl Fn(i32) -> Option<u64>) -> Option<Process> {
    let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    let start = start(pid)?;
    (!has_exited(&pidfd)).then_some(Process { pid, start, pidfd })
}

fn signal(processes: &[&Process], signal: Signal) {
    for process in processes {
        // It may have died meanwhile, which is fine. A process that may not be signalled is reported as left.
        pidfd_send_signal(&process.pidfd, signal).ok();
    }
}

/// Waits until all processes are dead, but not longer than `until`.
fn wait(processes: &[Process], until: Instant) {
    for process in processes {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        // An interruption only causes an earlier search.
        poll(&mut [PollFd::new(&process.pidfd, PollFlags::IN)], Some(&timeout)).ok();
    }
}
