//! The real machine, as the store sees it.

use banksman_adapters::host::{self, Host};
use banksman_store::{Machine, Reading};

/// The machine that this process runs on.
#[derive(Debug, Clone)]
pub struct RealMachine(pub Host);

impl Machine for RealMachine {
    fn host(&self) -> String {
        self.0.id.to_string()
    }

    fn has_one_kernel(&self) -> bool {
        self.0.one_kernel
    }

    fn boot(&self) -> String {
        self.0.boot.to_string()
    }

    fn read(&self) -> Reading {
        Reading { monotonic_ms: host::monotonic_ms(), wall_ms: host::wall_ms() }
    }
}
