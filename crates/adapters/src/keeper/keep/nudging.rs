//! Nudging a session that shows no activity.

use std::ffi::OsStr;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use super::{Keeper, own_pid};
use crate::tree;

/// How many nudges are remembered.
const NUDGES: usize = 1_000;

impl Keeper {
    /// Nudges the session, once per effect: stopped processes continue, and processes of a command that have a handler
    /// for SIGUSR1 get it. The handler is checked first, because the signal kills other processes. Agent programs do
    /// not get it: none of them uses it.
    pub(super) fn nudge(&mut self, effect_id: i64) {
        if self.nudged.contains(&effect_id) {
            return;
        }
        if self.nudged.len() >= NUDGES {
            self.nudged.remove(0);
        }
        self.nudged.push(effect_id);
        self.nudges += 1;
        self.log.take(b"banksman: nudged\n");
        for pid in tree::descendants(own_pid()) {
            let Some(process) = Pid::from_raw(pid) else { continue };
            // The pid is not reused before this process has reaped it. A process that has just died needs no nudge.
            kill_process(process, Signal::CONT).ok();
            if self.spec.agent.is_none() && catches(pid, Signal::USR1) && !opens_debugger(pid) {
                kill_process(process, Signal::USR1).ok();
            }
        }
    }
}

/// Whether a process has a handler for a signal.
fn catches(pid: i32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    caught >> (signal.as_raw() - 1) & 1 == 1
}

/// Whether SIGUSR1 makes a program open its debugger, to which every user of the machine could connect, as in Node and Bun.
fn opens_debugger(pid: i32) -> bool {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    program.file_name().and_then(OsStr::to_str).is_some_and(|name| ["node", "nodejs", "bun"].contains(&name))
}
