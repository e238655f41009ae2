//! The limits on concurrent work. They are a row of the project, so that every process decides by the same ones; 0
//! stands for no limit.

use serde::{Deserialize, Serialize};

use crate::resource::semaphore::CAPACITY_LIMIT;

/// The limits of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// How many runs may live at a time, on all runners.
    #[serde(rename = "maxConcurrentRuns")]
    pub runs: u32,
    /// How many roots may be under way at a time.
    #[serde(rename = "maxConcurrentRootTasks")]
    pub roots: u32,
}

/// A change of some of the limits; `None` leaves a limit as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitsChange {
    pub runs: Option<u32>,
    pub roots: Option<u32>,
}

impl Limits {
    /// No limits.
    pub const NONE: Limits = Limits { runs: 0, roots: 0 };

    /// These limits after a change.
    pub fn changed(self, change: LimitsChange) -> Limits {
        Limits { runs: change.runs.unwrap_or(self.runs), roots: change.roots.unwrap_or(self.roots) }
    }

    /// The capacity of the semaphore `runs`.
    pub fn capacity(self) -> u32 {
        if self.runs == 0 { CAPACITY_LIMIT } else { self.runs.min(CAPACITY_LIMIT) }
    }
}
