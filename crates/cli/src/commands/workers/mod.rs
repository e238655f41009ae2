//! Workers: what turns the items of queues into tasks.

mod control;
mod view;

use banksman_core::Name;
use clap::Args;

use crate::exit_codes as exit;
use crate::failure::Failure;

/// Workers: they turn the items of a queue into tasks or pipelines, a few at a time.
///
/// A runbook says what they do; `runbooks apply` applies them, and runners do the work.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman workers list\n  banksman workers show triager\n  banksman workers wake triager")]
pub(crate) struct Workers {
    #[command(subcommand)]
    verb: Verb,
}

subcommands! {
    enum Verb of Workers {
        List(view::List),
        Show(view::Show),
        Wake(control::Wake),
        Pause(control::Pause),
        Resume(control::Resume),
    }
}

fn no_worker(worker: &Name) -> Failure {
    Failure::new(exit::NOT_FOUND, "WORKER_NOT_FOUND", format!("there is no worker {worker}"))
        .detail("worker", &worker)
        .hint("banksman runbooks apply puts the workers of runbooks into force; banksman workers list shows them")
}
