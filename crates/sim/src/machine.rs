//! The processes of the machine and the records on its disk, as other processes can see them.

use std::collections::BTreeMap;

use banksman_core::task::RunEnd;
use banksman_core::{Liveness, ProcessId, RunId, TaskId};

use crate::clock::HOST;

/// So few that numbers are soon reused.
const PIDS: i32 = 20;

/// The living processes and the files.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    boot: String,
    living: BTreeMap<i32, u64>,
    last: i32,
    ticks: u64,
    pub(crate) records: BTreeMap<RunId, Record>,
    /// What is in the place of the files DONE.
    pub(crate) files: BTreeMap<TaskId, Placed>,
}

/// What is in the place of a file DONE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placed {
    File,
    Directory,
}

/// The record of a run, as in the real keeper's `record.rs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    /// Created, and nothing written yet.
    Empty,
    Tombstone,
    /// Of a keeper, which locks it as long as it is alive.
    Kept {
        keeper: u32,
        ended: Option<RunEnd>,
        flushed: bool,
    },
}

impl Machine {
    pub(crate) fn new(boot: String) -> Machine {
        Machine { boot, ..Machine::default() }
    }

    /// A new process.
    pub(crate) fn fork(&mut self) -> ProcessId {
        let next = |last: i32| if last >= 100 + PIDS { 100 } else { last.max(99) + 1 };
        let mut pid = next(self.last);
        for _ in 0..PIDS {
            if !self.living.contains_key(&pid) {
                break;
            }
            pid = next(pid);
        }
        while self.living.contains_key(&pid) {
            pid += 1;
        }
        self.last = pid;
        self.ticks += 1;
        self.living.insert(pid, self.ticks);
        ProcessId { host: HOST.into(), boot: self.boot.as_str().into(), pid_ns: 1, pid, start: self.ticks }
    }

    pub(crate) fn exit(&mut self, process: &ProcessId) {
        if self.lives(process) {
            self.living.remove(&process.pid);
        }
    }

    /// Whether this very process is really alive.
    pub(crate) fn lives(&self, process: &ProcessId) -> bool {
        *process.boot == *self.boot && self.living.get(&process.pid) == Some(&process.start)
    }

    /// Whether any process has this number.
    pub(crate) fn is_taken(&self, pid: i32) -> bool {
        self.living.contains_key(&pid)
    }

    /// What one process sees when it probes another. Processes in a container cannot see those outside, nor be seen by
    /// them.
    pub(crate) fn probe_from(&self, viewer: &ProcessId, process: &ProcessId) -> Liveness {
        match self.probe(process) {
            Liveness::Alive | Liveness::Dead if viewer.pid_ns != process.pid_ns => Liveness::Unknown,
            found => found,
        }
    }

    /// The result of a probe.
    pub(crate) fn probe(&self, process: &ProcessId) -> Liveness {
        if *process.boot != *self.boot {
            Liveness::OtherBoot
        } else if self.lives(process) {
            Liveness::Alive
        } else {
            Liveness::Dead
        }
    }

    /// Ends all processes; numbers and start times start over.
    pub(crate) fn reboot(&mut self, boot: String) {
        self.boot = boot;
        self.living.clear();
        (self.last, self.ticks) = (0, 0);
    }
}
