//! The machine that a store runs on, as far as the store depends on it.

/// One reading of both clocks, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Time since boot, without the time that the machine sleeps.
    pub monotonic_ms: i64,
    /// Time since 1970 (UTC).
    pub wall_ms: i64,
}

/// The real machine, or a simulated one.
pub trait Machine: Send {
    /// The id of the machine, the same after a reboot.
    fn host(&self) -> String;

    /// Whether all processes that share the store run on one kernel: then the processes of every other boot are dead,
    /// whatever machine they name.
    fn has_one_kernel(&self) -> bool {
        false
    }

    /// Whether this stands for all machines of a simulation: its clocks count even if a server has one, and wakeups are
    /// returned to the caller.
    fn is_simulated(&self) -> bool {
        false
    }

    /// The current boot. Each boot starts the monotonic clock from zero.
    fn boot(&self) -> String;

    /// Reads both clocks.
    fn read(&self) -> Reading;
}
