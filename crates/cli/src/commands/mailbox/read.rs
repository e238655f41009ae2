use std::os::fd::AsFd;
use std::time::Instant;

use banksman_runtime::{Letter, caller};
use clap::Args;
use serde::Serialize;

use crate::commands::ExitResult;
use crate::commands::bus::message_line;
use crate::commands::resources::Dur;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{DIM, YELLOW};
use crate::signals::Signals;
use crate::views::bus::LetterView;

/// Read the messages for the current run, each once.
///
/// The next read, or the result of the run, acknowledges the messages: their senders then see the receipt `read`. Messages that a run has
/// read but not acknowledged when it dies go to the next run of the task, marked as redelivered.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman mailbox read\n  banksman mailbox read --wait --timeout 10m --json\n  banksman mailbox read --again"
)]
pub(super) struct Read {
    /// Wait for a message
    #[arg(long)]
    wait: bool,
    /// Maximum time to wait; then exit code 6
    #[arg(long, value_name = "DUR", requires = "wait")]
    timeout: Option<Dur>,
    /// Print the last read messages again, without acknowledging them
    #[arg(long, conflicts_with = "wait")]
    again: bool,
}

#[derive(Serialize)]
struct Letters<'a> {
    messages: Vec<LetterView<'a>>,
}

impl Read {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let calling = caller::run()?;
        let calling = calling.and_then(|calling| Some((calling.run?, calling.task, calling.epoch)));
        let Some((run, task, epoch)) = calling else {
            return Err(Failure::usage("`mailbox read` works only inside of a run")
                .hint("list the messages for a task with: banksman mailbox list --task TASK"));
        };
        let fenced = || {
            Failure::new(exit::FENCED, "FENCED", format!("run {run} has ended: its mailbox belongs to the next run"))
                .detail("run", &run)
        };
        let signals = Signals::install()?;
        let client = context.client()?;
        let until = self.timeout.map(|timeout| Instant::now() + timeout.0);
        let mut letters = client.read_mailbox(&task, &run, epoch, self.again)?.ok_or_else(fenced)?;
        while letters.is_empty() && self.wait {
            if !client.wait_for_mail(&task, epoch, until, Some(signals.as_fd()))? {
                return Err(match until.is_some_and(|until| Instant::now() >= until) {
                    true => Failure::new(exit::LOCKED, "WAIT_TIMEOUT", "no message arrived in time"),
                    false => Failure::interrupted(),
                });
            }
            letters = client.read_mailbox(&task, &run, epoch, false)?.ok_or_else(fenced)?;
        }
        let human = match letters.is_empty() {
            true => format!("{DIM}no messages{DIM:#}"),
            false => letters.iter().map(line).collect::<Vec<_>>().join("\n"),
        };
        context.printer.result(&Letters { messages: letters.iter().map(LetterView::from).collect() }, human)
    }
}

fn line(letter: &Letter) -> String {
    let again = if letter.is_redelivered {
        format!("\n        {YELLOW}an earlier run may have read this message{YELLOW:#}")
    } else {
        String::new()
    };
    format!("{}{again}", message_line(&letter.message))
}
