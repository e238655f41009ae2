//! Which process, and whether it lives: three answers, because "I cannot tell" must never count as "dead".

use serde::{Deserialize, Serialize};

/// One process of one boot of one host. A pid alone is reused; all of this together is not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessId {
    /// The machine, told apart from clones by a random part.
    pub host: Box<str>,
    /// The kernel's boot id.
    pub boot: Box<str>,
    /// The inode of the pid namespace: every container has pids of its own.
    pub pid_ns: u64,
    /// The process number.
    pub pid: i32,
    /// When the process started, in clock ticks since boot. It survives `exec`.
    pub start: u64,
}

/// What a look at a process told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It runs, or is stopped; in any case it can go on.
    Alive,
    /// It is proven dead: exited, even if nobody reaped it yet.
    Dead,
    /// It belonged to another boot of this host. The store knows which of the two boots came first.
    OtherBoot,
    /// It cannot be seen from here: another host, another pid namespace, a hidden `/proc`.
    Unknown,
}
