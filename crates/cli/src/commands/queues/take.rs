//! Work on items: take, extend, complete, fail.

use std::os::fd::AsFd;

use banksman_core::queue::{ERROR_LIMIT, Hold, Input, Item, Outcome, State, Waiting};
use banksman_core::{Epoch, HolderId, ItemId, Name, Span, Stamp};
use banksman_runtime::{Client, TakeEnd};
use banksman_store::Key;
use clap::Args;

use super::refusal;
use crate::commands::ExitResult;
use crate::commands::resources::Dur;
use crate::context::{Actor, Context};
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::signals::Signals;
use crate::views::{Time, queues as views};

/// Take the first item of a queue. It is held until its visibility timeout passes.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman queues take triage\n  banksman queues take triage --wait --timeout 10m --holder agent-7\n  banksman queues take triage --json | jq .data.item"
)]
pub(super) struct Take {
    /// The queue
    queue: Name,
    /// The holder [default: $BANKSMAN_HOLDER, or a fresh name]
    #[arg(long, value_name = "NAME")]
    holder: Option<HolderId>,
    /// Wait for an item if there is none
    #[arg(long)]
    wait: bool,
    /// Maximum time to wait [default: locking.wait_timeout, 30m]
    #[arg(long, value_name = "DUR", requires = "wait", allow_hyphen_values = true)]
    timeout: Option<Dur>,
}

/// The item and its holder.
#[derive(Debug, Args)]
struct Own {
    /// The queue
    queue: Name,
    /// The item
    item: ItemId,
    /// The holder [default: $BANKSMAN_HOLDER]
    #[arg(long, value_name = "NAME")]
    holder: Option<HolderId>,
    /// The epoch that `take` printed
    #[arg(long, value_name = "N")]
    epoch: i64,
}

/// Extend the visibility timeout of an item, counted from now.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman queues extend triage q-17 --holder agent-7 --epoch 42")]
pub(super) struct Extend {
    #[command(flatten)]
    own: Own,
    /// The new visibility timeout [default: the visibility timeout of the queue]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    visibility_timeout: Option<Dur>,
}

/// Complete an item. It leaves the queue.
///
/// Repeating the command, for example after a lost connection, is no error.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman queues complete triage q-17 --holder agent-7 --epoch 42")]
pub(super) struct Complete {
    #[command(flatten)]
    own: Own,
}

/// Report a failed attempt. The item can be taken again; after its last attempt it is dead.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  banksman queues fail triage q-17 --holder agent-7 --epoch 42 --error 'no such issue' --retry-after 1m"
)]
pub(super) struct Fail {
    #[command(flatten)]
    own: Own,
    /// The reason of the failure
    #[arg(long, value_name = "TEXT")]
    error: String,
    /// Delay before the next attempt
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    retry_after: Option<Dur>,
}

impl Own {
    fn hold(&self) -> Result<Hold, Failure> {
        Ok(Hold { item: self.item, holder: Actor::existing(self.holder.as_ref(), "take")?, epoch: Epoch(self.epoch) })
    }

    fn ask(&self, context: &Context, input: Input) -> Result<(Outcome, Stamp), Failure> {
        Ok(context.client()?.ask_queue(&self.queue, input)?)
    }

    fn changed(&self, outcome: &'static str) -> views::Changed<'_> {
        views::Changed { queue: &self.queue, id: self.item, outcome }
    }

    fn refused(&self, outcome: &Outcome) -> Failure {
        refusal(&self.queue, Some(self.item), outcome)
    }
}

impl Take {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let holder = Actor::new(self.holder.as_ref(), None)?.holder;
        let wait = self.wait.then(|| self.timeout.map_or(client.config().wait_timeout, |timeout| timeout.0));
        let signals = Signals::install()?;
        let mut reported = false;
        let mut on_wait = |waiting: &Waiting| {
            if !reported {
                context.printer.note(&waiting_line(&self.queue, waiting));
            }
            reported = true;
        };
        let mut ask = |wait| client.take(&self.queue, holder.clone(), wait, Some(signals.as_fd()), &mut on_wait);
        let end = match ask(None)? {
            // Items that died elsewhere by timeout belong to this dead-letter queue, but no call has moved them since.
            TakeEnd::Answered { outcome: Outcome::Empty { .. } | Outcome::Halted, .. } => {
                client.settle_queue(&self.queue)?;
                ask(wait)?
            }
            end => end,
        };
        match end {
            TakeEnd::Answered { outcome: Outcome::Taken(item), at } => {
                let (view, human) = describe(&self.queue, &item, at);
                context.printer.try_result(&view, human).map_err(|error| unprinted(&client, &self.queue, &item, &error))?;
                Ok(exit::OK)
            }
            TakeEnd::Answered { outcome: Outcome::Empty { next }, at } => {
                let next = next.map(|next| format::rfc3339(format::wall_of(next, at)));
                let hint = match &next {
                    Some(next) => format!("the next item may be ready at {next}; wait for it with --wait"),
                    None => "wait for an item with --wait".to_owned(),
                };
                Err(Failure::new(exit::NOT_FOUND, "QUEUE_EMPTY", format!("there is no item to take in {}", self.queue))
                    .detail("queue", &self.queue)
                    .detail("nextAt", &next)
                    .hint(hint))
            }
            TakeEnd::Answered { outcome, .. } => Err(refusal(&self.queue, None, &outcome)),
            TakeEnd::TimedOut(waiting) => {
                let why = if waiting.is_halted { "the queue is paused".to_owned() } else { empty_reason(&client, &self.queue)? };
                let message = format!("waited too long for an item of {}: {why}", self.queue);
                let failure = Failure::new(exit::LOCKED, "WAIT_TIMEOUT", message)
                    .detail("queue", &self.queue)
                    .detail("place", &waiting.place)
                    .detail("paused", &waiting.is_halted);
                let resume = format!("banksman queues resume {}", format::quoted(&self.queue));
                Err(if waiting.is_halted { failure.hint(resume) } else { failure })
            }
            TakeEnd::Cancelled => Err(Failure::interrupted()),
        }
    }
}

/// The reason why there is no item to take in a queue that is not paused.
fn empty_reason(client: &Client, queue: &Name) -> Result<String, Failure> {
    let mut reader = client.reader()?;
    let at = reader.view().load(&[Key::NamedQueue(queue.clone())].into())?.lease;
    let counts = reader.view().queue_counts(at)?.get(queue).copied().unwrap_or_default();
    let parts = [(counts.processing, "in progress"), (counts.resting, "not due yet"), (counts.dead, "dead")];
    let parts: Vec<String> =
        parts.into_iter().filter(|(count, _)| *count > 0).map(|(count, state)| format!("{count} {state}")).collect();
    Ok(if parts.is_empty() { "the queue is empty".into() } else { parts.join(", ") })
}

fn waiting_line(queue: &Name, waiting: &Waiting) -> String {
    let why = if waiting.is_halted { ", which is paused" } else { "" };
    let place = waiting.place;
    format!(
        "waiting for an item of {BOLD}{queue}{BOLD:#}{why}, position {place} among the waiters {DIM}(Ctrl-C to cancel){DIM:#}"
    )
}

/// Returns the item to the queue: the output failed, so no caller knows of the take and could complete it. Like the
/// death of a holder, this uses up an attempt.
fn unprinted(client: &Client, queue: &Name, item: &Item, error: &std::io::Error) -> Failure {
    let State::Processing(taken) = &item.state else { unreachable!("it was just taken") };
    let hold = Hold { item: item.id, holder: taken.holder.clone(), epoch: taken.epoch };
    let why = format!("the take could not be printed: {error}");
    let returned = client.ask_queue(queue, Input::Fail { hold, error: why.into(), retry_after: Some(Span::ZERO) }).is_ok();
    let state = if returned { "was returned to the queue" } else { "can be taken again after its visibility timeout" };
    Failure::system("print the item", error)
        .detail("queue", &queue)
        .detail("id", &item.id)
        .detail("returned", &returned)
        .hint(format!("{} {state}", item.id))
}

fn describe<'a>(queue: &'a Name, item: &'a Item, at: Stamp) -> (views::Taken<'a>, String) {
    let State::Processing(taken) = &item.state else { unreachable!("it was just taken") };
    let Item { id, data, priority, attempts, .. } = item;
    let view = views::Taken {
        queue,
        item: views::TakenItem { id: *id, data, priority: *priority, attempts: *attempts, epoch: taken.epoch },
        holder: &taken.holder,
        taken_at: Time(taken.since.wall),
        visible_until: Time(taken.since.wall_of(taken.until)),
    };
    let (quoted, holder) = (format::quoted(queue), format::quoted(&taken.holder));
    let lasts = format::span(taken.until - at.lease);
    let human = format!(
        "{GREEN}took{GREEN:#} {BOLD}{}{BOLD:#} from {queue}: holder {BOLD}{}{BOLD:#}, epoch {BOLD}{}{BOLD:#}, attempt {}, expires in {lasts}\n{}\n\
         {DIM}complete it with: banksman queues complete {quoted} {} --holder {holder} --epoch {}{DIM:#}",
        item.id,
        taken.holder,
        taken.epoch,
        item.attempts,
        item.data.value(),
        item.id,
        taken.epoch
    );
    (view, human)
}

impl Extend {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let by = self.visibility_timeout.map(|by| by.positive("--visibility-timeout")).transpose()?;
        match self.own.ask(context, Input::Extend(self.own.hold()?, by))? {
            (Outcome::Extended { until }, at) => {
                let human = format!("extended {BOLD}{}{BOLD:#}: expires in {}", self.own.item, format::span(until - at.lease));
                let visible_until = Time(format::wall_of(until, at));
                context.printer.result(&views::Extended { item: self.own.changed("extended"), visible_until }, human)
            }
            (outcome, _) => Err(self.own.refused(&outcome)),
        }
    }
}

impl Complete {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let (client, hold) = (context.client()?, self.own.hold()?);
        let (word, human) = match client.ask_queue(&self.own.queue, Input::Complete(hold.clone()))?.0 {
            Outcome::Completed => ("completed", format!("{GREEN}completed{GREEN:#} {BOLD}{}{BOLD:#}", self.own.item)),
            Outcome::NoItem if client.was_completed(&self.own.queue, &hold)? => {
                ("already_completed", format!("{BOLD}{}{BOLD:#} was completed before", self.own.item))
            }
            outcome => return Err(self.own.refused(&outcome)),
        };
        context.printer.result(&self.own.changed(word), human)
    }
}

impl Fail {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        if self.error.len() > ERROR_LIMIT {
            let message = format!("--error may have at most {ERROR_LIMIT} bytes, this one has {}", self.error.len());
            return Err(Failure::usage(message).hint("write the whole error to a file, and give its path"));
        }
        let retry_after = Some(self.retry_after.map_or(Span::ZERO, Dur::span));
        let input = Input::Fail { hold: self.own.hold()?, error: self.error.as_str().into(), retry_after };
        let item = self.own.item;
        let (outcome, retry_at, moved_to, human) = match self.own.ask(context, input)? {
            (Outcome::Failed { due }, at) => {
                let when = if due > at.lease { format!(" in {}", format::span(due - at.lease)) } else { String::new() };
                let human = format!("{YELLOW}failed{YELLOW:#} {BOLD}{item}{BOLD:#}: it can be taken again{when}");
                ("failed", Some(Time(format::wall_of(due, at))), None, human)
            }
            (Outcome::Dead { moved_to }, _) => {
                let whither = moved_to.as_ref().map_or_else(String::new, |to| format!("; it was moved to {to}"));
                let human = format!("{RED}dead{RED:#} {BOLD}{item}{BOLD:#}: it was the last attempt{whither}");
                ("dead", None, moved_to, human)
            }
            (outcome, _) => return Err(self.own.refused(&outcome)),
        };
        let view = views::Failed { item: self.own.changed(outcome), retry_at, moved_to };
        context.printer.result(&view, human)
    }
}
