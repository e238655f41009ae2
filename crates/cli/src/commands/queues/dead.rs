//! Operations on many items: retry dead ones, remove them.

use banksman_core::queue::{Input, Outcome, Part};
use banksman_core::{ItemId, Name};
use banksman_runtime::Client;
use clap::Args;

use super::refusal;
use crate::commands::ExitResult;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, GREEN};
use crate::views::queues::{Purged, Requeued};

/// The number of items that one transaction changes: each is a row and an event.
const CHUNK: usize = 400;

/// Retry dead items, with all their attempts. Items in a dead-letter queue return to the queue in which they died.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman queues requeue triage q-17\n  banksman queues requeue broken --all")]
pub(super) struct Requeue {
    /// The queue
    queue: Name,
    /// The item
    #[arg(required_unless_present = "all")]
    item: Option<ItemId>,
    /// All dead items: those of this queue, and those that other queues have moved here
    #[arg(long, conflicts_with = "item")]
    all: bool,
}

/// Remove the waiting items of a queue.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman queues purge triage\n  banksman queues purge triage --dead\n  banksman queues purge triage --all"
)]
pub(super) struct Purge {
    /// The queue
    queue: Name,
    /// Remove the dead items instead
    #[arg(long, conflicts_with = "all")]
    dead: bool,
    /// Remove all items, also those in progress: the next call of their holders fails
    #[arg(long)]
    all: bool,
}

impl Requeue {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        client.settle_queue(&self.queue)?;
        let Some(item) = self.item else { return self.all_of_them(context, &client) };
        match client.ask_queue(&self.queue, Input::Requeue(item))?.0 {
            Outcome::Requeued { queue } => {
                let human = format!("{GREEN}requeued{GREEN:#} {BOLD}{item}{BOLD:#} in {queue}");
                let (id, moved_to) = (Some(item), Some(queue));
                context.printer.result(&Requeued { queue: &self.queue, id, moved_to, requeued: 1, stuck: 0 }, human)
            }
            other => Err(refusal(&self.queue, Some(item), &other)),
        }
    }

    fn all_of_them(&self, context: &Context, client: &Client) -> ExitResult {
        let (mut requeued, mut left) = (0, 0);
        for part in [Part::Dead, Part::Moved] {
            loop {
                match client.ask_queue(&self.queue, Input::RequeueAll(part, CHUNK))?.0 {
                    Outcome::SomeRequeued { count: 0, stuck } => {
                        left += stuck;
                        break;
                    }
                    Outcome::SomeRequeued { count, .. } => requeued += count,
                    other => return Err(refusal(&self.queue, None, &other)),
                }
            }
        }
        if left > 0 {
            let message = format!("requeued {requeued}; the original queue of the remaining items is full or no longer exists");
            let failure = Failure::new(exit::LOCKED, "QUEUE_FULL", message);
            return Err(failure.detail("queue", &self.queue).detail("requeued", &requeued));
        }
        let view = Requeued { queue: &self.queue, id: None, moved_to: None, requeued, stuck: left };
        context.printer.result(&view, format!("{GREEN}requeued{GREEN:#} {} of {}", format::thousands(requeued), self.queue))
    }
}

impl Purge {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        client.settle_queue(&self.queue)?;
        let parts: &[Part] = match (self.dead, self.all) {
            (true, _) => &[Part::Dead],
            (false, true) => &[Part::Ready, Part::Backoff, Part::Processing, Part::Dead],
            (false, false) => &[Part::Ready, Part::Backoff],
        };
        let mut purged = 0;
        for part in parts {
            loop {
                match client.ask_queue(&self.queue, Input::Purge(*part, CHUNK))?.0 {
                    Outcome::Purged { count: 0 } => break,
                    Outcome::Purged { count } => purged += count,
                    other => return Err(refusal(&self.queue, None, &other)),
                }
            }
        }
        let view = Purged { queue: &self.queue, purged };
        context.printer.result(&view, format!("removed {} from {BOLD}{}{BOLD:#}", format::thousands(purged), self.queue))
    }
}
