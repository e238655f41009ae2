//! A worker: turns the items of a queue into tasks or pipelines, a few at a time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::Name;
use crate::plan::{Deed, Plan};
use crate::router::Pattern;
use crate::time::Span;

/// The most items that one worker can be at.
pub const CONCURRENCY_LIMIT: u32 = 10_000;

/// What a runbook says of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    /// The runbook.
    pub runbook: Box<str>,
    /// Its name.
    pub name: Name,
    /// The queue whose items it takes.
    pub queue: Name,
    /// What it does with each.
    pub job: Job,
    /// How many it is at, at most.
    pub concurrency: u32,
    /// The events that wake it. Without any it is always awake.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wake_on: Vec<Pattern>,
}

/// What becomes of an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Job {
    /// A pipeline. Those of its variables that the item has get their values from there, and `item`, if it is one of them, the
    /// whole item.
    Pipeline(Arc<Plan>),
    /// A task that does this. A command finds the item in its environment.
    Task {
        /// What.
        deed: Deed,
        /// How long it may take.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout: Option<Span>,
    },
}
