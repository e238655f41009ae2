//! The identity and liveness of a process. There are three answers, because "unknown" must never count as "dead".

use serde::{Deserialize, Serialize};

/// One process of one boot of one host. A pid alone is reused; all of this together is not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessId {
    /// The machine. A random part distinguishes it from clones.
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

/// The result of a liveness check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It runs or is stopped; in any case it can continue.
    Alive,
    /// It is proven dead: it has exited, even if it was not reaped yet.
    Dead,
    /// It belonged to another boot of this host. The store knows which of the two boots came first.
    OtherBoot,
    /// It cannot be seen from here: another host, another pid namespace, a hidden `/proc`.
    Unknown,
}
