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

/// Read the messages for the run that this command is started in, each once.
///
/// Reading again acknowledges what was read before, and so does the result of the run: its senders then see the receipt `read`. What a run
/// has read and not acknowledged when it dies goes to the next run of the task, marked as redelivered.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman mailbox read\n  banksman mailbox read --wait --timeout 10m --json\n  banksman mailbox read --again"
)]
pub(super) struct Read {
    /// Sleep until there is a message
    #[arg(long)]
    wait: bool,
    /// Wait no longer than this; then exit code 6
    #[arg(long, value_name = "DUR", requires = "wait")]
    timeout: Option<Dur>,
    /// Print what was read last once more, and acknowledge nothing
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
            return Err(Failure::usage("a mailbox is read inside of a run")
                .hint("see the messages for a task with: banksman mailbox list --task TASK"));
        };
        let fenced = || {
            Failure::new(exit::FENCED, "FENCED", format!("run {run} is over: its mailbox is for the next one"))
                .detail("run", &run)
        };
        let signals = Signals::install()?;
        let client = context.client()?;
        let until = self.timeout.map(|timeout| Instant::now() + timeout.0);
        let mut letters = client.read_mailbox(&task, &run, epoch, self.again)?.ok_or_else(fenced)?;
        while letters.is_empty() && self.wait {
            if !client.wait_for_mail(&task, epoch, until, Some(signals.as_fd()))? {
                return Err(match until.is_some_and(|until| Instant::now() >= until) {
                    true => Failure::new(exit::LOCKED, "WAIT_TIMEOUT", "no message came in time"),
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
        format!("\n        {YELLOW}an earlier run may have seen it{YELLOW:#}")
    } else {
        String::new()
    };
    format!("{}{again}", message_line(&letter.message))
}
