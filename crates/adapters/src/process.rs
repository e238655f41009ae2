//! The identity of a process, and whether it lives.
//!
//! | observation | verdict |
//! |---|---|
//! | no such pid, another start time, or its pidfd is readable (also for a zombie) | dead |
//! | the same host (or a store that only one kernel uses), another boot | another boot: the store knows which came first |
//! | a start time that differs by one tick: offsets of time namespaces need not be whole ticks | unknown |
//! | another pid namespace, and every process of the machine is visible | as in the same one |
//! | another pid namespace, and it has a [life file](crate::life_file) | dead if the file is unlocked, alive if not |
//! | another host, another pid namespace otherwise, a hidden `/proc`, no permission | unknown |

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use banksman_core::{Liveness, ProcessId};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::host::Host;
use crate::life_file;
use crate::pid_namespace::{self, Search};
use crate::time_namespace::Offsets;

impl Host {
    /// The identity of this process.
    pub fn current(&self) -> io::Result<ProcessId> {
        self.identify(rustix::process::getpid().as_raw_nonzero().get())
    }

    /// The identity of a living process.
    pub fn identify(&self, pid: i32) -> io::Result<ProcessId> {
        let start = start_time(pid)?;
        Ok(ProcessId { host: self.id.clone(), boot: self.boot.clone(), pid_ns: self.pid_ns, pid, start })
    }

    /// Whether a process lives.
    pub fn probe(&self, process: &ProcessId) -> Liveness {
        match self.watch(process) {
            Ok(_) => Liveness::Alive,
            Err(liveness) => liveness,
        }
    }

    /// A descriptor that becomes readable when the process dies, or the known liveness if the process cannot be watched.
    pub fn watch(&self, process: &ProcessId) -> Result<OwnedFd, Liveness> {
        if process.boot != self.boot {
            let same_machine = self.one_kernel || process.host == self.id;
            return Err(if same_machine { Liveness::OtherBoot } else { Liveness::Unknown });
        }
        if process.pid_ns == self.pid_ns {
            return watch_here(process.pid, process.start);
        }
        match pid_namespace::find(process.pid_ns, process.pid) {
            Search::Found(pid) => watch_here(pid, process.start),
            Search::Absent => Err(Liveness::Dead),
            Search::Unclear => {
                Err(self.life_files.as_deref().map_or(Liveness::Unknown, |files| life_file::probe(files, process)))
            }
        }
    }
}

/// A descriptor that becomes readable when the process with this pid and start time dies.
fn watch_here(number: i32, expected: u64) -> Result<OwnedFd, Liveness> {
    let pid = Pid::from_raw(number).ok_or(Liveness::Unknown)?;
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(Errno::SRCH) => return Err(Liveness::Dead),
        Err(_) => return Err(Liveness::Unknown),
    };
    // The pidfd refers to the process that has the pid now. The start time, read after that, shows whether it is the
    // expected one.
    match start_time(number) {
        Ok(start) if start == expected => {}
        Ok(start) if is_same_start(start, expected) => return Err(Liveness::Unknown),
        Ok(_) => return Err(Liveness::Dead),
        Err(_) if has_exited(&pidfd) => return Err(Liveness::Dead),
        Err(_) => return Err(Liveness::Unknown),
    }
    if has_exited(&pidfd) { Err(Liveness::Dead) } else { Ok(pidfd) }
}

/// Whether the process of a pidfd is dead, reaped or not.
pub(crate) fn has_exited(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut fds, Some(&now)), Ok(n) if n > 0)
}

/// The kernel's flag for a task that has begun to exit.
const PF_EXITING: u64 = 0x4;

/// What `/proc` says of the process that has a pid now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) parent: i32,
    pub(crate) session: i32,
    /// Whether the process has begun to exit. It closes its files before it becomes a zombie.
    pub(crate) exiting: bool,
    /// The start time, in ticks since the boot, as in the initial time namespace.
    pub(crate) start: u64,
    /// The processor time of the process and of the children that it has waited for, in ticks.
    pub(crate) cpu: u64,
}

/// Fields 4, 6, 9, 14 to 17 and 22 of `/proc/<pid>/stat`. The second field is the name of the program, which may
/// contain anything, so fields are counted from its closing parenthesis.
pub(crate) fn stat(pid: i32) -> io::Result<Stat> {
    let stat = fs::read(format!("/proc/{pid}/stat"))?;
    let text = String::from_utf8_lossy(&stat);
    let mut fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(1);
    let mut field = |n: usize| fields.nth(n).and_then(|field| field.parse::<u64>().ok());
    let offsets = Offsets::own()?;
    let mut found = || {
        let (parent, session) = (field(0)?, field(1)?);
        let flags = field(2)?;
        let cpu = field(4)? + field(0)? + field(0)? + field(0)?;
        let start = field(4)?;
        let pid = |value: u64| i32::try_from(value).ok();
        let start = offsets.start_ticks(start);
        Some(Stat { parent: pid(parent)?, session: pid(session)?, exiting: flags & PF_EXITING != 0, start, cpu })
    };
    found().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat cannot be understood")))
}

/// The start time of the process that has this pid now.
pub(crate) fn start_time(pid: i32) -> io::Result<u64> {
    stat(pid).map(|stat| stat.start)
}

/// Whether two readings of a start time may be of one process: in different time namespaces they can be one tick apart.
pub(crate) fn is_same_start(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn sleeper() -> std::process::Child {
        Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn a_zombie_is_dead_before_it_is_reaped() {
        let host = Host::detect(None).unwrap();
        let mut child = sleeper();
        let process = host.identify(i32::try_from(child.id()).unwrap()).unwrap();
        let pidfd = host.watch(&process).unwrap();
        assert_eq!(host.probe(&process), Liveness::Alive);
        child.kill().unwrap();
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
        assert_eq!(host.probe(&process), Liveness::Dead, "not reaped yet");
        child.wait().unwrap();
        assert_eq!(host.probe(&process), Liveness::Dead, "reaped");
    }

    #[test]
    fn a_reused_pid_is_not_the_same_process() {
        let host = Host::detect(None).unwrap();
        let mut process = host.current().unwrap();
        assert_eq!(host.probe(&process), Liveness::Alive);
        process.start += 1;
        assert_eq!(host.probe(&process), Liveness::Unknown, "it may be the same, seen from another time namespace");
        process.start += 1;
        assert_eq!(host.probe(&process), Liveness::Dead);
    }

    #[test]
    fn an_invisible_process_is_not_dead() {
        let host = Host::detect(None).unwrap();
        let process = host.current().unwrap();
        assert_eq!(host.probe(&ProcessId { boot: "b".into(), host: "h".into(), ..process.clone() }), Liveness::Unknown);
        let elsewhere = ProcessId { boot: "b".into(), host: "h".into(), ..process.clone() };
        assert_eq!(host.clone().with_one_kernel("/nowhere".into()).probe(&elsewhere), Liveness::OtherBoot);
        assert_eq!(host.probe(&ProcessId { boot: "b".into(), ..process }), Liveness::OtherBoot);
    }
}
