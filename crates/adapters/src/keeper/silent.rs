//! Unresponsive keepers: finding them, and killing those whose session must end anyway.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::Timespec;

use super::client::{place, status_within};
use super::record::{Found, Record, read_record};
use crate::process::{has_exited, is_same_start, start_time};

/// The interval of the checks of a keeper that must end its session.
const ROUND: Duration = Duration::from_millis(50);

/// How long a keeper may be silent while it kills and reaps its session.
const BUSY: Duration = Duration::from_secs(2);

/// The shortest time that a keeper has to answer.
const SHORTEST: Duration = Duration::from_millis(500);

/// Why a keeper does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Silence {
    /// The keeper is stopped, for example by SIGSTOP.
    #[error("it is stopped")]
    Stopped,
    /// The keeper seems to run.
    #[error("it does not answer")]
    Busy,
}

/// Whether the keeper of a live session is stopped. Asks the kernel, not the keeper, and does not wait.
pub fn is_stopped(record: &Record) -> bool {
    open(record).is_some() && is_process_stopped(record.keeper_pid)
}

/// Whether and why the live keeper of a run does not answer. Waits for its answer `patience` at most.
pub fn silence(path: &Path, patience: Duration) -> Option<Silence> {
    let Ok(Found::Live(record)) = read_record(path) else { return None };
    if is_stopped(&record) {
        return Some(Silence::Stopped);
    }
    let error = status_within(path, patience).err()?;
    (error.kind() == io::ErrorKind::TimedOut).then_some(Silence::Busy)
}

/// Waits until a session is over whose keeper was asked to end it within `grace`. Returns early if the keeper cannot do
/// that: at once if it is stopped, after `grace` if it does not answer. Then the result is the record of the keeper,
/// which must be [killed](kill).
pub fn await_end(path: &Path, grace: Duration) -> Option<(Record, Silence)> {
    // A keeper that answers now ends the session after its grace, unless it is stopped or blocked meanwhile.
    let mut ask_at = Instant::now();
    let give_up = ask_at + grace + 2 * BUSY;
    loop {
        let Ok(Found::Live(record)) = read_record(path) else { return None };
        let pidfd = open(&record)?;
        if is_stopped(&record) {
            return Some((record, Silence::Stopped));
        }
        if Instant::now() >= ask_at {
            let is_first = ask_at + grace + BUSY < give_up;
            let patience = if is_first { grace.max(SHORTEST) } else { BUSY };
            if status_within(path, patience).is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
                return Some((record, Silence::Busy));
            }
            ask_at = Instant::now() + grace + BUSY;
        }
        if Instant::now() > give_up {
            return None;
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: ROUND.subsec_nanos().into() };
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)).ok();
    }
}

/// Kills a keeper and returns whether it was alive. Its program dies with it; [sweep](super::sweep) the rest of the
/// session. The caller must know that this keeper has not begun another session since.
pub fn kill(record: &Record) -> io::Result<bool> {
    match open(record) {
        Some(pidfd) => Ok(pidfd_send_signal(&pidfd, Signal::KILL).map(|()| true)?),
        None => Ok(false),
    }
}

/// The keeper, if it is alive and can be seen from here.
fn open(record: &Record) -> Option<OwnedFd> {
    let (boot, pid_ns) = place().ok()?;
    if record.boot != *boot || record.pid_ns != *pid_ns {
        return None;
    }
    let pidfd = pidfd_open(Pid::from_raw(record.keeper_pid)?, PidfdFlags::empty()).ok()?;
    // The pidfd refers to the process that has the pid now, so the start time is compared afterwards.
    let is_same = is_same_start(start_time(record.keeper_pid).ok()?, record.keeper_start);
    (is_same && !has_exited(&pidfd)).then_some(pidfd)
}

/// Whether the process that has this pid now is stopped: the third field of `/proc/<pid>/stat`.
pub(crate) fn is_process_stopped(pid: i32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.iter().rposition(|byte| *byte == b')').and_then(|end| stat.get(end + 2).copied());
    matches!(state, Some(b'T' | b't'))
}
