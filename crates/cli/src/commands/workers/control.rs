//! `workers wake`, `pause` and `resume`.

use banksman_core::Name;
use banksman_core::worker::Outcome;
use banksman_engine::{WorkerOutcome, WorkerRequest};
use clap::Args;

use super::no_worker;
use crate::commands::ExitResult;
use crate::context::Context;
use crate::failure::Failure;
use crate::printer::{BOLD, DIM, GREEN, YELLOW};
use crate::views::workers::{Paused, Woken};

/// Wake a worker, as one of its events would. It takes items until its queue is empty.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman workers wake triager")]
pub(super) struct Wake {
    /// The worker
    worker: Name,
}

/// Pause a worker until it is resumed. Its running jobs continue.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman workers pause triager")]
pub(super) struct Pause {
    /// The worker
    worker: Name,
}

/// Resume a worker.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman workers resume triager")]
pub(super) struct Resume {
    /// The worker
    worker: Name,
}

fn ask(context: &Context, worker: &Name, request: WorkerRequest) -> Result<Outcome, Failure> {
    match context.client()?.request(request)? {
        WorkerOutcome::Stepped(Outcome::Unknown) => Err(no_worker(worker)),
        WorkerOutcome::Stepped(outcome) => Ok(outcome),
        reply => Err(Failure::unexpected(&reply)),
    }
}

impl Wake {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let outcome = ask(context, &self.worker, WorkerRequest::Wake { worker: self.worker.clone() })?;
        let (word, human) = match outcome {
            Outcome::Woken => ("woken", format!("{GREEN}woken{GREEN:#} {BOLD}{}{BOLD:#}", self.worker)),
            Outcome::Awake => ("awake", format!("{BOLD}{}{BOLD:#} {DIM}is awake already{DIM:#}", self.worker)),
            other => return Err(Failure::unexpected(&other)),
        };
        context.printer.result(&Woken { worker: &self.worker, outcome: word }, human)
    }
}

impl Pause {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        ask(context, &self.worker, WorkerRequest::Pause { worker: self.worker.clone() })?;
        let human = format!("{YELLOW}paused{YELLOW:#} {BOLD}{}{BOLD:#}", self.worker);
        context.printer.result(&Paused { worker: &self.worker, paused: true }, human)
    }
}

impl Resume {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        ask(context, &self.worker, WorkerRequest::Resume { worker: self.worker.clone() })?;
        let human = format!("resumed {BOLD}{}{BOLD:#}", self.worker);
        context.printer.result(&Paused { worker: &self.worker, paused: false }, human)
    }
}
