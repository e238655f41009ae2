//! Queues and items for people and for programs.

use std::collections::BTreeSet;

use banksman::core::queue::{Item, Part, Queue, State};
use banksman::core::{ItemId, Name, Stamp};
use banksman::store::{Key, QueueCounts, Reader};
use clap::Args;
use serde_json::{Value, json};

use super::{no_item, no_queue};
use crate::commands::tasks::brief;
use crate::commands::{Done, events};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::printer::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::table;
use crate::words;

/// How many items of each kind `show` prints.
const SHOWN: u32 = 10;

/// How many dead items of each queue `list --dead` prints.
const DEAD: u32 = 1_000;

/// Show all queues, with how many items of each kind they have.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman queues list\n  banksman queues list --dead")]
pub(super) struct List {
    /// The dead items of all queues instead, with what went wrong
    #[arg(long)]
    dead: bool,
}

/// Show one queue with its first items, or one item with its history.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman queues show triage\n  banksman queues show triage q-17")]
pub(super) struct Show {
    /// The queue
    queue: Name,
    /// The item
    item: Option<ItemId>,
}

impl List {
    pub(super) fn run(self, context: &Context) -> Done {
        let mut reader = context.reader()?;
        let queues = reader.view().load(&[Key::Queues].into())?.queues.queues;
        if self.dead {
            return dead(context, &mut reader, queues.keys());
        }
        let counts = reader.view().queue_counts()?;
        let rows: Vec<(&Queue, QueueCounts)> =
            queues.values().map(|queue| (queue, counts.get(&queue.name).copied().unwrap_or_default())).collect();
        let data: Vec<Value> = rows.iter().map(|(queue, counts)| queue_json(queue, counts)).collect();
        let human = if rows.is_empty() {
            format!("no queues yet\n{DIM}try: banksman queues define triage{DIM:#}")
        } else {
            let row = |(queue, counts): &(&Queue, QueueCounts)| {
                let state = if queue.paused { format!("{YELLOW}paused{YELLOW:#}") } else { format!("{GREEN}open{GREEN:#}") };
                let numbers = [counts.ready, counts.resting, counts.processing, counts.dead, counts.takers];
                let number = |number: u64| if number == 0 { "-".to_owned() } else { number.to_string() };
                [vec![queue.name.to_string(), state], numbers.map(number).to_vec()].concat()
            };
            let columns = ["NAME", "STATE", "READY>", "RESTING>", "PROCESSING>", "DEAD>", "WAITERS>"];
            table::render(&columns, rows.iter().map(row).collect())
        };
        context.printer.result(json!({ "queues": data }), human);
        Ok(exit::OK)
    }
}

fn dead<'a>(context: &Context, reader: &mut Reader, queues: impl Iterator<Item = &'a Name>) -> Done {
    let part = |queue: &Name, part| Key::Part { queue: queue.clone(), part, limit: DEAD };
    let keys: BTreeSet<Key> = queues.flat_map(|queue| [part(queue, Part::Dead), part(queue, Part::Moved)]).collect();
    let snapshot = reader.view().load(&keys)?;
    let at = Stamp { lease: snapshot.lease, wall: snapshot.wall };
    let items: Vec<Item> = snapshot.queues.items.into_values().collect();
    let data: Vec<Value> = items.iter().map(|item| item_json(item, at)).collect();
    let human = if items.is_empty() {
        format!("{DIM}nothing is dead{DIM:#}")
    } else {
        let row = |item: &Item| {
            let (queue, reason, died) = death(item).unwrap_or((&item.queue, "", item.created.wall));
            vec![item.id.to_string(), item.queue.to_string(), queue.to_string(), words::rfc3339(died), brief(reason, 60)]
        };
        table::render(&["ID", "IN", "DIED IN", "AT", "REASON"], items.iter().map(row).collect())
    };
    context.printer.result(json!({ "items": data }), human);
    Ok(exit::OK)
}

/// Where, why and when it died.
fn death(item: &Item) -> Option<(&Name, &str, banksman::core::Wall)> {
    match (&item.state, &item.origin) {
        (State::Dead { reason, at }, _) => Some((&item.queue, reason, *at)),
        (_, Some(origin)) => Some((&origin.queue, &origin.reason, origin.at)),
        (_, None) => None,
    }
}

impl Show {
    pub(super) fn run(self, context: &Context) -> Done {
        let mut reader = context.reader()?;
        let part = |part| Key::Part { queue: self.queue.clone(), part, limit: SHOWN };
        let mut keys = BTreeSet::from([Key::NamedQueue(self.queue.clone())]);
        match self.item {
            Some(item) => drop(keys.insert(Key::Item(item))),
            None => keys.extend([Part::Ready, Part::Resting, Part::Processing, Part::Dead].map(part)),
        }
        let snapshot = reader.view().load(&keys)?;
        let at = Stamp { lease: snapshot.lease, wall: snapshot.wall };
        let queue = snapshot.queues.queues.get(&self.queue).ok_or_else(|| no_queue(&self.queue))?;
        if let Some(id) = self.item {
            let item = snapshot.queues.items.get(&id).filter(|item| item.queue == self.queue);
            let item = item.ok_or_else(|| no_item(&self.queue, id))?;
            context.printer.result(item_json(item, at), item_page(item, at));
            return Ok(exit::OK);
        }
        let counts = reader.view().queue_counts()?.get(&self.queue).copied().unwrap_or_default();
        let recent = reader.view().recent("queue", self.queue.as_str(), 5)?;
        let mut data = queue_json(queue, &counts);
        let items: Vec<&Item> = snapshot.queues.items.values().collect();
        data["items"] = items.iter().map(|item| item_json(item, at)).collect();
        data["recentEvents"] = recent.iter().map(events::event_json).collect();
        let mut human = queue_page(queue, &counts);
        if !items.is_empty() {
            let rows = items.iter().map(|item| item_row(item, at)).collect();
            human += &format!("\n\n{}", table::render(&["ID", "STATE", "PRIORITY>", "ATTEMPTS>", "DATA", "DETAIL"], rows));
        }
        if !recent.is_empty() {
            human += &format!("\n\n{DIM}RECENT{DIM:#}");
            recent.iter().rev().for_each(|event| human += &format!("\n{}", events::event_line(event)));
        }
        context.printer.result(data, human);
        Ok(exit::OK)
    }
}

fn queue_json(queue: &Queue, counts: &QueueCounts) -> Value {
    json!({
        "name": queue.name,
        "paused": queue.paused,
        "visibilityTimeout": queue.config.visibility_timeout.to_string(),
        "maxAttempts": queue.config.max_attempts,
        "deadLetter": queue.config.dead_letter,
        "maxLength": queue.config.max_length,
        "length": queue.length,
        "ready": counts.ready,
        "resting": counts.resting,
        "processing": counts.processing,
        "dead": counts.dead,
        "waiters": counts.takers,
    })
}

fn queue_page(queue: &Queue, counts: &QueueCounts) -> String {
    let state = if queue.paused { format!("{YELLOW}paused{YELLOW:#}") } else { format!("{GREEN}open{GREEN:#}") };
    let mut text = format!("{BOLD}{}{BOLD:#} is {state}", queue.name);
    let mut field = |name: &str, value: String| text.push_str(&format!("\n  {DIM}{name:<12}{DIM:#} {value}"));
    let QueueCounts { ready, resting, processing, dead, takers } = counts;
    field("items", format!("{ready} ready, {resting} waiting for their time, {processing} worked on, {dead} dead"));
    field("at most", format!("{} items", words::thousands(queue.config.max_length as usize)));
    field("waiters", takers.to_string());
    field("visibility", format!("{} after a take", queue.config.visibility_timeout));
    field("attempts", queue.config.max_attempts.to_string());
    field("dead items", queue.config.dead_letter.as_ref().map_or("stay here".into(), |name| format!("go to {name}")));
    text
}

fn item_json(item: &Item, at: Stamp) -> Value {
    let taken = match &item.state {
        State::Processing(taken) => Some(taken),
        State::Pending { .. } | State::Failed { .. } | State::Dead { .. } | State::Completed => None,
    };
    let due = item.due().map(|due| words::rfc3339(words::wall_of(due, at)));
    let death = death(item);
    let attempt = |attempt: &banksman::core::queue::Attempt| {
        json!({
            "holder": attempt.holder,
            "epoch": attempt.epoch,
            "startedAt": words::rfc3339(attempt.started),
            "endedAt": words::rfc3339(attempt.ended),
            "error": attempt.error,
            "timedOut": attempt.timed_out,
        })
    };
    json!({
        "id": item.id,
        "queue": item.queue,
        "state": item.status(),
        "data": item.data,
        "priority": item.priority,
        "attempts": item.attempts,
        "dedupe": item.dedupe,
        "createdAt": words::rfc3339(item.created.wall),
        "dueAt": due,
        "holder": taken.map(|taken| &taken.holder),
        "epoch": taken.map(|taken| taken.epoch),
        "diedIn": death.map(|(queue, ..)| queue),
        "reason": death.map(|(_, reason, _)| reason),
        "diedAt": death.map(|(.., at)| words::rfc3339(at)),
        "history": item.history.iter().map(attempt).collect::<Vec<_>>(),
    })
}

fn coloured(item: &Item) -> String {
    let style = match item.state {
        State::Processing(_) | State::Completed => GREEN,
        State::Failed { .. } => YELLOW,
        State::Dead { .. } => RED,
        State::Pending { .. } => DIM,
    };
    format!("{style}{}{style:#}", item.status())
}

/// What is to be known about how it stands, in a few words.
fn detail(item: &Item, at: Stamp) -> String {
    let soon = |due| words::span(due - at.lease);
    match &item.state {
        State::Pending { not_before: Some(due) } => format!("in {}", soon(*due)),
        State::Failed { due } => format!("again in {}", soon(*due)),
        State::Processing(taken) => {
            format!("{} for {}, {} left", taken.holder, words::span(at.lease - taken.since.lease), soon(taken.until))
        }
        State::Dead { reason, .. } => brief(reason, 40),
        State::Pending { not_before: None } | State::Completed => item
            .origin
            .as_ref()
            .map_or_else(String::new, |origin| format!("died in {}: {}", origin.queue, brief(&origin.reason, 30))),
    }
}

fn item_row(item: &Item, at: Stamp) -> Vec<String> {
    let data = brief(&item.data.value().to_string(), 40);
    vec![item.id.to_string(), coloured(item), item.priority.to_string(), item.attempts.to_string(), data, detail(item, at)]
}

fn item_page(item: &Item, at: Stamp) -> String {
    let mut text = format!("{BOLD}{}{BOLD:#} in {} is {}", item.id, item.queue, coloured(item));
    let mut field = |name: &str, value: String| text.push_str(&format!("\n  {DIM}{name:<10}{DIM:#} {value}"));
    field("data", item.data.value().to_string());
    field("priority", item.priority.to_string());
    field("pushed", words::rfc3339(item.created.wall));
    field("attempts", item.attempts.to_string());
    let detail = detail(item, at);
    if !detail.is_empty() && death(item).is_none() {
        field("now", detail);
    }
    if let Some(key) = &item.dedupe {
        field("key", key.to_string());
    }
    if let Some((queue, reason, died)) = death(item) {
        field("died", format!("in {queue} at {}: {reason}", words::rfc3339(died)));
    }
    for attempt in &item.history {
        let ended = words::rfc3339(attempt.ended);
        text.push_str(&format!(
            "\n  {DIM}{ended}{DIM:#}  {} {DIM}(epoch {}){DIM:#}  {}",
            attempt.holder,
            attempt.epoch,
            brief(&attempt.error, 80)
        ));
    }
    text
}
