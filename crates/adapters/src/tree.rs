//! All descendants of a process, and their end.

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

/// How soon those who must die are looked at again: at first, and when they do not die, as in an uninterruptible sleep.
const ROUND: Duration = Duration::from_millis(5);
const LAST_ROUND: Duration = Duration::from_secs(1);

/// How often the tree is searched for newcomers before those that were found are killed. Every search stops what it
/// finds, and what is stopped does not fork, so this ends long before.
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

/// How many descendants of this process live. Zombies do not count, nor does who is just exiting.
pub fn living() -> usize {
    let lives = |pid: &i32| open(*pid).is_some_and(|pidfd| !stat(*pid).is_ok_and(|stat| stat.exiting) && !has_exited(&pidfd));
    descendants(own_pid()).iter().filter(|pid| lives(pid)).count()
}

/// Ends all descendants of this process: asks them first, and after `grace` does not ask. Returns when all of
/// them are reaped. This process must be a subreaper, so that none of them can hide behind a dead parent.
pub fn end_descendants(grace: Duration) {
    let mut end = TreeShutdown::begin(grace);
    while reap(|_, _| {}) {
        // There is no descriptor that tells of "any descendant", and this happens once in the life of a process.
        std::thread::sleep(end.step().min(ROUND));
    }
}

/// The end of all descendants of this process, step by step, for who has other things to do meanwhile and reaps
/// them itself. It is reached when there is no child left to reap: this process must be a subreaper.
#[derive(Debug)]
pub struct TreeShutdown {
    patience_ends: Instant,
    asked: BTreeSet<i32>,
    round: Duration,
}

impl TreeShutdown {
    /// Begins it. They have `grace` to end by themselves.
    pub fn begin(grace: Duration) -> TreeShutdown {
        TreeShutdown { patience_ends: host::deadline(grace), asked: BTreeSet::new(), round: ROUND }
    }

    /// They have no more than `grace` from now on.
    pub fn hurry(&mut self, grace: Duration) {
        self.patience_ends = self.patience_ends.min(host::deadline(grace));
    }

    /// Does what is due, and says when the next step is, at the latest. A step after every SIGCHLD is useful too.
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

    /// Asks all at first. Later on only those who lost their parent, as they slipped through while it was asked; what
    /// a living parent starts now is part of its cleaning up.
    fn ask(&mut self, own: i32) {
        let mut newcomers = Vec::new();
        for child in children(own).into_iter().filter(|child| !self.asked.contains(child)) {
            newcomers.push(child);
            newcomers.extend(descendants(child).into_iter().filter(|pid| !self.asked.contains(pid)));
        }
        let asked = signal_all(own, &newcomers, Signal::TERM);
        // A stopped process cannot act on what it is asked.
        signal_all(own, &asked, Signal::CONT);
        self.asked.extend(asked);
    }
}

/// Kills a child that nobody has reaped, which leads its own process group, with the group and all descendants. One that
/// has left both the group and its parents is not found.
pub(crate) fn kill_group(leader: &std::process::Child) {
    let Ok(pid) = i32::try_from(leader.id()) else { return };
    let Some(group) = Pid::from_raw(pid) else { return };
    // Who is gone already needs no end, and there is no other reason to fail here.
    kill_process(group, Signal::STOP).ok();
    kill_all(pid);
    kill_process_group(group, Signal::KILL).ok();
    kill_process(group, Signal::KILL).ok();
}

/// Stops the tree from the top, so that nobody forks behind our back, and kills it.
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

/// Reaps every child that is dead, of whatever process group, and shows how it ended. Says whether any child is left.
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

/// Signals those of `pids` that still are descendants of `own`, and returns them. One of them may have been reaped by
/// its parent meanwhile, and its pid may belong to a stranger by now.
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

/// Lets a command die when this thread does, which must be the main one: nobody else would end it.
#[expect(unsafe_code, reason = "nothing else sets PDEATHSIG between fork and exec")]
pub(crate) fn die_with_this_process(command: &mut Command) {
    let parent = getpid();
    let bind = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the kernel was told; then nobody would end this process.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
    };
    // SAFETY: between fork and exec only system calls are made; nothing is allocated and no lock is taken.
    unsafe { command.pre_exec(bind) };
}

fn own_pid() -> i32 {
    getpid().as_raw_nonzero().get()
}
