//! Replacements of the real machine for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::machine::{Machine, Reading};

/// A machine whose clock moves only when a test moves it. Clones share the clock.
#[derive(Debug, Clone, Default)]
pub struct ManualMachine(Arc<AtomicI64>);

impl ManualMachine {
    /// A machine that was started this many milliseconds ago.
    pub fn at(ms: i64) -> ManualMachine {
        ManualMachine(Arc::new(AtomicI64::new(ms)))
    }

    /// The monotonic clock, in milliseconds.
    pub fn now(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn advance(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Machine for ManualMachine {
    fn host(&self) -> String {
        "host".into()
    }

    fn boot(&self) -> String {
        "boot".into()
    }

    fn read(&self) -> Reading {
        Reading { monotonic_ms: self.now(), wall_ms: self.now() + 1_000_000 }
    }
}
