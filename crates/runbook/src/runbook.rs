//! A checked runbook.

use std::collections::BTreeMap;
use std::sync::Arc;

use banksman_core::guard::Guard;
use banksman_core::pipeline::plan::Plan;
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::route::Route;
use banksman_core::{Name, Span, worker};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Runbook {
    /// The file name without its extension.
    pub name: Box<str>,
    pub description: Option<Box<str>>,
    pub pipelines: BTreeMap<Name, PipelineDef>,
    pub guards: BTreeMap<Name, Guard>,
    pub locks: BTreeMap<Name, LockTerms>,
    pub semaphores: BTreeMap<Name, SemaphoreTerms>,
    pub queues: BTreeMap<Name, QueueTerms>,
    pub workers: BTreeMap<Name, worker::Definition>,
    /// The consequences of events.
    pub routes: Vec<Route>,
}

/// A pipeline of a runbook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineDef {
    pub description: Option<Box<str>>,
    pub plan: Arc<Plan>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockTerms {
    /// How long a grant lasts without a heartbeat.
    pub ttl: Option<Span>,
    /// How long a grant lasts at most.
    pub max_hold: Option<Span>,
}

impl LockTerms {
    /// The definition of the lock.
    pub fn config(self) -> lock::Config {
        lock::Config { ttl: self.ttl, max_hold: self.max_hold }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SemaphoreTerms {
    pub capacity: u32,
    /// How long a grant lasts without a heartbeat.
    pub ttl: Option<Span>,
}

impl SemaphoreTerms {
    /// The definition of the semaphore.
    pub fn config(self) -> semaphore::Config {
        semaphore::Config { capacity: self.capacity, ttl: self.ttl }
    }
}

/// The terms of a queue. The settings provide missing values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueTerms {
    /// How long a taken item belongs to its holder.
    pub visibility_timeout: Option<Span>,
    /// Maximum number of attempts at an item.
    pub max_attempts: Option<u32>,
    /// The queue for dead items.
    pub dead_letter: Option<Name>,
    /// Maximum number of items.
    pub max_length: Option<u32>,
}
