//! All descendants of a process, and their end.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

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

/// Ends all descendants of this process: asks them first, and after `grace` does not ask. Returns when all of
/// them are reaped. This process must be a subreaper, so that none of them can hide behind a dead parent.
pub fn end_descendants(grace: Duration) {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let patience_ends = Instant::now() + grace;
    signal_all(&descendants(own), Signal::TERM);
    // A stopped process cannot act on what it is asked.
    signal_all(&descendants(own), Signal::CONT);
    loop {
        if !reap() {
            return;
        }
        if Instant::now() >= patience_ends {
            signal_all(&descendants(own), Signal::KILL);
        }
        // There is no descriptor that tells of "any descendant", and this happens once in the life of a process.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reaps every child that is dead. Says whether any child is left.
fn reap() -> bool {
    loop {
        match waitpid(None, WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

fn signal_all(pids: &[i32], signal: Signal) {
    for pid in pids.iter().copied().filter_map(Pid::from_raw) {
        // It may have died meanwhile, which is what is wanted.
        kill_process(pid, signal).ok();
    }
}
