//! All descendants of a process, and how they are ended.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, kill_process_group, pidfd_open,
    pidfd_send_signal, set_parent_process_death_signal, wait,
};

use crate::host;
use crate::process::{has_exited, stat};

/// The interval of the checks for processes that must die: the first one, and the last if they do not, as in an
/// uninterruptible sleep.
const ROUND: Duration = Duration::from_millis(5);
const LAST_ROUND: Duration = Duration::from_secs(1);

/// Upper bound on the searches for new processes before the found ones are killed. A search stops the processes that it finds,
/// and a stopped process does not fork, so the searches end long before.
const SEARCHES: usize = 100;

/// The living descendants of `pid`, parents before their children.
pub fn descendants(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut todo = children(pid);
    while let Some(next) = todo.pop() {
        found.push(next);
        todo.extend(children(next));
    }
    found
}

/// The children of every thread of a process.
fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>()).collect()
}

/// How many descendants of this process live. Zombies and exiting processes do not count.
pub fn living() -> usize {
    let lives = |pid: &i32| open(*pid).is_some_and(|pidfd| !stat(*pid).is_ok_and(|stat| stat.exiting) && !has_exited(&pidfd));
    descendants(own_pid()).iter().filter(|pid| lives(pid)).count()
}

/// Ends all descendants of this process, with SIGTERM first and SIGKILL after `grace`. Returns when all are reaped. This process
/// must be a subreaper, so that no descendant is lost when its parent dies.
pub fn end_descendants(grace: Duration) {
    let mut end = TreeShutdown::begin(grace);
    while reap(|_, _| {}) {
        // No descriptor becomes readable for "any descendant", and this loop runs once in the life of a process.
        std::thread::sleep(end.step().min(ROUND));
    }
}

/// Ends all descendants of this process step by step, for a caller that does other work meanwhile and reaps them itself. It is
/// complete when no child is left to reap: this process must be a subreaper.
#[derive(Debug)]
pub struct TreeShutdown {
    patience_ends: Instant,
    asked: BTreeSet<i32>,
    round: Duration,
}

impl TreeShutdown {
    /// Begins the shutdown. The descendants have `grace` to end after SIGTERM.
    pub fn begin(grace: Duration) -> TreeShutdown {
        TreeShutdown { patience_ends: host::deadline(grace), asked: BTreeSet::new(), round: ROUND }
    }

    /// Shortens the remaining time to `grace` at most.
    pub fn hurry(&mut self, grace: Duration) {
        self.patience_ends = self.patience_ends.min(host::deadline(grace));
    }

    /// Does what is due, and returns the time until the next step at the latest. An additional step after a SIGCHLD is useful.
    pub fn step(&mut self) -> Duration {
        let own = own_pid();
        let left = self.patience_ends.saturating_duration_since(Instant::now());
        if left.is_zero() {
            kill_all(own);
            let round = self.round;
            self.round = (round * 2).min(LAST_ROUND);
            return round;
        }
        self.ask(own);
        left
    }

    /// Sends SIGTERM to all descendants the first time. Later, only to processes that have lost their parent, which
    /// were missed before: a process that a living parent starts now is part of its cleanup.
    fn ask(&mut self, own: i32) {
        let mut newcomers = Vec::new();
        for child in children(own).into_iter().filter(|child| !self.asked.contains(child)) {
            newcomers.push(child);
            newcomers.extend(descendants(child).into_iter().filter(|pid| !self.asked.contains(pid)));
        }
        let asked = signal_all(own, &newcomers, Signal::TERM);
        // A stopped process cannot act on SIGTERM.
        signal_all(own, &asked, Signal::CONT);
        self.asked.extend(asked);
    }
}

/// Kills a child that is not reaped and leads its own process group, with the group and all descendants. A process that has left
/// both the group and its parents is not found.
pub(crate) fn kill_group(leader: &std::process::Child) {
    let Ok(pid) = i32::try_from(leader.id()) else { return };
    let Some(group) = Pid::from_raw(pid) else { return };
    // These calls fail only if the process is gone.
    kill_process(group, Signal::STOP).ok();
    kill_all(pid);
    kill_process_group(group, Signal::KILL).ok();
    kill_process(group, Signal::KILL).ok();
}

/// Stops the tree from the top, so that no process forks unnoticed, and kills it.
fn kill_all(own: i32) {
    let mut found = Vec::new();
    for _ in 0..SEARCHES {
        let known: BTreeSet<i32> = found.iter().copied().collect();
        let newcomers: Vec<i32> = descendants(own).into_iter().filter(|pid| !known.contains(pid)).collect();
        if newcomers.is_empty() {
            break;
        }
        signal_all(own, &newcomers, Signal::STOP);
        found.extend(newcomers);
    }
    signal_all(own, &found, Signal::KILL);
}

/// Reaps every dead child, of any process group, and passes its status to `show`. Returns whether any child is left.
pub(crate) fn reap(mut show: impl FnMut(Pid, WaitStatus)) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => show(pid, status),
            Ok(None) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Signals the processes of `pids` that still are descendants of `own`, and returns them: if a parent has reaped one
/// meanwhile, its pid may belong to an unrelated process.
fn signal_all(own: i32, pids: &[i32], signal: Signal) -> Vec<i32> {
    let signalled = pids.iter().copied().filter(|pid| {
        let Some(pidfd) = open(*pid) else { return false };
        descends(*pid, own) && !has_exited(&pidfd) && pidfd_send_signal(&pidfd, signal).is_ok()
    });
    signalled.collect()
}

/// Whether `pid` has `own` among its ancestors.
pub(crate) fn descends(mut pid: i32, own: i32) -> bool {
    while pid > 1 {
        if pid == own {
            return true;
        }
        let Ok(stat) = stat(pid) else { return false };
        pid = stat.parent;
    }
    false
}

fn open(pid: i32) -> Option<std::os::fd::OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

/// Makes a command die with this thread, which must be the main one: nothing else would end the command.
#[expect(unsafe_code, reason = "nothing else sets PDEATHSIG between fork and exec")]
pub(crate) fn die_with_this_process(command: &mut Command) {
    let parent = getpid();
    let bind = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before this call; then nothing would end this process.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
    };
    // SAFETY: between fork and exec only system calls are made; nothing is allocated and no lock is taken.
    unsafe { command.pre_exec(bind) };
}

fn own_pid() -> i32 {
    getpid().as_raw_nonzero().get()
}
