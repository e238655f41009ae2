//! What a runbook says, once it was found to make sense.

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
    /// What it is called: its file name without the ending.
    pub name: Box<str>,
    /// What it is for.
    pub description: Option<Box<str>>,
    pub pipelines: BTreeMap<Name, PipelineDef>,
    pub guards: BTreeMap<Name, Guard>,
    pub locks: BTreeMap<Name, LockTerms>,
    pub semaphores: BTreeMap<Name, SemaphoreTerms>,
    pub queues: BTreeMap<Name, QueueTerms>,
    pub workers: BTreeMap<Name, worker::Definition>,
    /// What it does when something happens.
    pub routes: Vec<Route>,
}

/// A pipeline of a runbook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineDef {
    /// What it is for.
    pub description: Option<Box<str>>,
    /// The plan that it carries out.
    pub plan: Arc<Plan>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockTerms {
    /// How long a grant lasts without a heartbeat.
    pub ttl: Option<Span>,
    /// How long it lasts at most.
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
    /// How many slots it has.
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

/// The terms of a queue. What it does not say, the settings do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueTerms {
    /// How long an item that was taken is left to its holder.
    pub visibility_timeout: Option<Span>,
    /// How often it is taken at most.
    pub max_attempts: Option<u32>,
    /// Where it goes when it is dead.
    pub dead_letter: Option<Name>,
    /// How many items it has at most.
    pub max_length: Option<u32>,
}
