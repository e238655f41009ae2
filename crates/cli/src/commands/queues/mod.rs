//! Queues: items that wait to be worked on.

mod dead;
mod push;
mod take;
mod terms;
mod view;

use banksman_core::queue::{Outcome, QUEUES_LIMIT};
use banksman_core::suggest::closest;
use banksman_core::{ItemId, Name};
use banksman_store::Key;
use clap::Args;
use serde_json::Value;

use super::ExitResult;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;

/// Manage queues: each item is processed by one holder at a time.
///
/// Items are taken by priority, then in the order of arrival. The holder of an item completes it, fails it, or extends its
/// visibility timeout; after that time another holder may take the item, and the former holder is fenced.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman queues define triage --max-attempts 5\n  banksman queues push triage '{\"issue\": 17}'\n  banksman queues take triage --wait"
)]
pub(crate) struct Queues {
    #[command(subcommand)]
    verb: Verb,
}

subcommands! {
    enum Verb {
        Define(terms::Define),
        List(view::List),
        Show(view::Show),
        Push(push::Push),
        Take(take::Take),
        Extend(take::Extend),
        Complete(take::Complete),
        Fail(take::Fail),
        Requeue(dead::Requeue),
        Purge(dead::Purge),
        Pause(terms::Pause),
        Resume(terms::Resume),
    }
}

impl Queues {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        self.verb.run(context).map_err(|failure| with_suggestion(context, failure))
    }
}

fn no_queue(queue: &Name) -> Failure {
    Failure::new(exit::NOT_FOUND, "QUEUE_NOT_FOUND", format!("there is no queue {queue}"))
        .detail("queue", &queue)
        .hint(format!("define it with: banksman queues define {}", format::last(queue)))
}

/// Adds a similar name as the hint if a queue is not found.
fn with_suggestion(context: &Context, failure: Failure) -> Failure {
    let name = failure.details.get("queue").and_then(Value::as_str);
    let Some(name) = name.filter(|_| failure.code == "QUEUE_NOT_FOUND") else { return failure };
    let Ok(rows) = context.reader().and_then(|mut reader| Ok(reader.view().load(&[Key::Queues].into())?)) else { return failure };
    match closest(name, rows.queues.queues.keys().map(Name::as_str)) {
        Some(near) => failure.hint(format!("did you mean {near}?")),
        None => failure,
    }
}

fn no_item(queue: &Name, item: ItemId) -> Failure {
    let message = format!("there is no item {item} in {queue}: it was completed, removed or moved, or never existed");
    Failure::new(exit::NOT_FOUND, "ITEM_NOT_FOUND", message)
        .detail("queue", &queue)
        .detail("item", &item)
        .hint(format!("show its history: banksman events --source queue:{queue}"))
}

/// The refusals that several subcommands share.
fn refusal(queue: &Name, item: Option<ItemId>, outcome: &Outcome) -> Failure {
    let name = || item.map_or_else(|| "it".to_owned(), |item| item.to_string());
    let failure = |exit, code, message| Failure::new(exit, code, message).detail("queue", queue).detail("item", &item);
    match (outcome, item) {
        (Outcome::Unknown, _) => no_queue(queue),
        (Outcome::NoItem, Some(item)) => no_item(queue, item),
        (Outcome::Fenced { fence }, _) => {
            let message = format!("fenced: {} is no longer held with this epoch (the fence is {fence})", name());
            failure(exit::FENCED, "FENCED", message).hint("stop working on it; another holder may have it now")
        }
        (Outcome::NotOwner { holder }, _) => {
            let message = format!("{} is held by {holder}", name());
            failure(exit::NOT_PERMITTED, "NOT_OWNER", message).hint("give the holder that `take` printed with --holder")
        }
        (Outcome::NotProcessing { status }, _) => {
            let message = format!("{} is {status}: this attempt has ended already", name());
            failure(exit::NOT_PERMITTED, "ITEM_NOT_PROCESSING", message)
        }
        (Outcome::NotDead { status }, _) => {
            failure(exit::USAGE, "ITEM_NOT_DEAD", format!("{} is {status}, and only dead items can be requeued", name()))
        }
        (Outcome::NoWayBack(to), _) => {
            let message = format!("{} cannot return to {to}: that queue is full or no longer exists", name());
            failure(exit::LOCKED, "QUEUE_FULL", message)
        }
        (Outcome::TooManyQueues, _) => {
            Failure::new(exit::LOCKED, "FULL", format!("a project may have at most {QUEUES_LIMIT} queues"))
        }
        (Outcome::TooManyWaiters, _) => {
            Failure::new(exit::LOCKED, "LINE_FULL", format!("too many processes are waiting for an item of {queue}"))
        }
        (Outcome::Halted, _) => Failure::new(exit::LOCKED, "QUEUE_PAUSED", format!("{queue} is paused"))
            .detail("queue", &queue)
            .hint(format!("resume it with: banksman queues resume {}", format::last(queue))),
        (other, _) => Failure::unexpected(other),
    }
}
