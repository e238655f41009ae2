//! What a store must know of the machine it runs on.

/// One reading of both clocks, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Time since boot that stands still while the machine sleeps.
    pub monotonic_ms: i64,
    /// Time since 1970 (UTC).
    pub wall_ms: i64,
}

/// The real machine, or a simulated one.
pub trait Machine: Send {
    /// The machine's own id, the same after a reboot.
    fn host(&self) -> String;

    /// Whether all processes that share the store run on one kernel: then all processes of any other boot are gone, whatever
    /// machine they name.
    fn has_one_kernel(&self) -> bool {
        false
    }

    /// Whether it stands for all machines of a simulation: its clocks count also where a server has one, and whoever is to be woken is
    /// told to the caller.
    fn is_simulated(&self) -> bool {
        false
    }

    /// The current boot. Under another boot the monotonic clock starts anew.
    fn boot(&self) -> String;

    /// Reads both clocks.
    fn read(&self) -> Reading;
}
