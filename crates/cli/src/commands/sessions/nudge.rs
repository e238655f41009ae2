use std::time::Duration;

use banksman_adapters::keeper;
use clap::Args;
use serde::Serialize;

use super::{is_here, talk_failure};
use crate::commands::{ExitResult, find};
use crate::context::Context;
use crate::failure::Failure;
use crate::printer::BOLD;

/// How long a keeper may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Wake up a session that seems to hang.
///
/// Continues stopped processes, and sends SIGUSR1 to processes with a handler for it, except agents, Node and Bun. A runner nudges every
/// session that is silent for task.silence_timeout.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman sessions nudge r-7k2m9q1a")]
pub(super) struct Nudge {
    /// The run, the beginning of its id, or the task
    run: String,
}

#[derive(Serialize)]
struct Nudged<'a> {
    run: &'a banksman_core::RunId,
}

impl Nudge {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let run = find::run(&mut project.reader()?, &self.run)?;
        if !is_here(&run, &project) {
            return Err(Failure::elsewhere(&run));
        }
        let record = context.sessions(&project).record(&run.id);
        keeper::nudge(&record, ANSWER_TIMEOUT).map_err(|error| talk_failure(error, &run.id))?;
        context.printer.result(&Nudged { run: &run.id }, format!("nudged run {BOLD}{}{BOLD:#}", run.id))
    }
}
