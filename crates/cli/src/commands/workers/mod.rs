//! Workers turn the items of queues into tasks.

mod control;
mod view;

use banksman_core::Name;

use crate::exit_codes as exit;
use crate::failure::Failure;

subcommands! {
    /// Manage workers, which turn queue items into tasks or pipelines.
    ///
    /// Runbooks define them; `runbooks apply` applies them, and runners do the work.
    #[command(after_help = "Examples:\n  banksman workers list\n  banksman workers show triager\n  banksman workers wake triager")]
    pub(crate) noun Workers {
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
        .hint("list workers: banksman workers list; to apply those of runbooks: banksman runbooks apply")
}
