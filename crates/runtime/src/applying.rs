//! Applying runbooks.

use std::sync::Arc;

use banksman_engine::{ApplyOutcome, ApplyRequest};
use banksman_runbook::Runbook;

use crate::client::Client;
use crate::error::Error;

impl Client {
    /// Applies a runbook: its locks, semaphores and queues, its workers and routes, all of them or nothing. Workers and
    /// routes that it no longer names are removed.
    pub fn apply(&self, runbook: &Runbook) -> Result<ApplyOutcome, Error> {
        self.request(ApplyRequest {
            runbook: runbook.name.clone(),
            locks: runbook.locks.iter().map(|(name, terms)| (name.clone(), terms.config())).collect(),
            semaphores: runbook.semaphores.iter().map(|(name, terms)| (name.clone(), terms.config())).collect(),
            queues: runbook.queues.iter().map(|(name, terms)| (name.clone(), self.config().queue(terms))).collect(),
            workers: runbook.workers.iter().map(|(name, worker)| (name.clone(), Arc::new(worker.clone()))).collect(),
            routes: runbook.routes.iter().cloned().map(Arc::new).collect(),
        })
    }

    /// Removes the workers and routes of a runbook.
    pub fn drop_runbook(&self, name: &str) -> Result<ApplyOutcome, Error> {
        self.request(ApplyRequest { runbook: name.into(), ..ApplyRequest::default() })
    }
}
