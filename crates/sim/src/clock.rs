//! Virtual time: only the scheduler advances it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use banksman_store::{Machine, Reading};

/// Milliseconds of virtual time since the history began. Unlike the machine's own clocks it survives reboots.
pub(crate) type Ms = i64;

/// The simulated host.
pub(crate) const HOST: &str = "host";

/// The monotonic time right after a boot.
const BOOT_TAKES: Ms = 700;

/// The clocks of the simulated machine, shared with the store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock(Arc<Times>);

#[derive(Debug, Default)]
struct Times {
    now: AtomicI64,
    booted_at: AtomicI64,
    boot: AtomicI64,
    wall_offset: AtomicI64,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        let clock = Clock::default();
        clock.0.wall_offset.store(1_800_000_000_000, Ordering::Relaxed);
        clock
    }

    pub(crate) fn now(&self) -> Ms {
        self.0.now.load(Ordering::Relaxed)
    }

    pub(crate) fn advance(&self, by: Ms) {
        self.0.now.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn set_wall(&self, by: Ms) {
        self.0.wall_offset.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn reboot(&self) {
        self.0.booted_at.store(self.now(), Ordering::Relaxed);
        self.0.boot.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn boot_number(&self) -> i64 {
        self.0.boot.load(Ordering::Relaxed)
    }

    pub(crate) fn monotonic(&self) -> Ms {
        self.now() - self.0.booted_at.load(Ordering::Relaxed) + BOOT_TAKES
    }
}

impl Machine for Clock {
    fn host(&self) -> String {
        HOST.to_owned()
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn boot(&self) -> String {
        format!("boot{}", self.boot_number())
    }

    fn read(&self) -> Reading {
        Reading { monotonic_ms: self.monotonic(), wall_ms: self.now() + self.0.wall_offset.load(Ordering::Relaxed) }
    }
}
