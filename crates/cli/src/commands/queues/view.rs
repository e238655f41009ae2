//! The output of `queues list` and `queues show`.

use std::collections::{BTreeMap, BTreeSet};

use banksman_adapters::host::Host;
use banksman_core::queue::{Item, Part, Queue, Queues, State};
use banksman_core::worker::Worker;
use banksman_core::{ItemId, Liveness, Name, Now, ProcessId, Stamp, TaskId};
use banksman_store::{Key, QueueCounts, Reader};
use clap::Args;

use super::{no_item, no_queue};
use crate::commands::tasks::brief;
use crate::commands::{ExitResult, events};
use crate::context::Context;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::table::{self, TableFlags};
use crate::views::Named;
use crate::views::events::WithEvents;
use crate::views::queues::{ItemView, QueuePage, QueueView, WorkerState, death};

/// The number of items of each kind that `show` prints.
const SHOWN: u32 = 10;

/// The number of dead items of each queue that `list --dead` prints.
const DEAD: u32 = 1_000;

/// List queues, with the number of items in each state.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman queues list\n  banksman queues list --dead")]
pub(super) struct List {
    /// List the dead items of all queues instead, with their errors
    #[arg(long)]
    dead: bool,
    #[command(flatten)]
    table: TableFlags,
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

/// The state of the queues at one moment.
struct QueueSnapshot {
    queues: Queues,
    /// The tasks of the items that workers hold.
    tasks: BTreeMap<ItemId, TaskId>,
    /// The workers, each with its queue and its state.
    workers: Vec<(Name, Name, &'static str)>,
    at: Stamp,
}

impl QueueSnapshot {
    /// Reads the queues and probes the waiters: the effects of elapsed time and of dead processes are applied before
    /// any process records them.
    fn load(reader: &mut Reader, host: &Host, keys: &BTreeSet<Key>) -> Result<QueueSnapshot, Failure> {
        let snapshot = reader.view().load(keys)?;
        let processes = snapshot.queues.takers.values().map(|taker| &taker.standing.process);
        let is_gone = |process: &&ProcessId| matches!(host.probe(process), Liveness::Dead | Liveness::OtherBoot);
        let dead = processes.filter(is_gone).cloned().collect();
        let now = Now { lease: snapshot.lease, wall: snapshot.wall, dead, ..Now::default() };
        let jobs = snapshot.automation.workers.workers.values().flat_map(|worker| &worker.jobs);
        let tasks = jobs.map(|(task, taken)| (taken.item, task.clone())).collect();
        let worker = |worker: &Worker| (worker.definition.name.clone(), worker.definition.queue.clone(), worker.state());
        let workers = snapshot.automation.workers.workers.values().map(worker).collect();
        Ok(QueueSnapshot { queues: snapshot.tables.queues.as_of(&now), tasks, workers, at: now.stamp() })
    }

    /// The workers of a queue with their states.
    fn workers(&self, queue: &Name) -> impl Iterator<Item = (&Name, &'static str)> {
        self.workers.iter().filter(move |(_, of, _)| of == queue).map(|(name, _, state)| (name, *state))
    }

    fn item<'a>(&'a self, item: &'a Item) -> ItemView<'a> {
        ItemView::new(item, self.tasks.get(&item.id))
    }

    fn waiters(&self, queue: &Name) -> usize {
        self.queues.takers.values().filter(|taker| taker.queue == *queue).count()
    }
}

impl List {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let mut reader = project.reader()?;
        let seen = QueueSnapshot::load(&mut reader, project.host(), &[Key::Queues, Key::AllTakers].into())?;
        if self.dead {
            return dead(context, &mut reader, project.host(), seen.queues.queues.keys());
        }
        let counts = reader.view().queue_counts(seen.at.lease)?;
        let rows: Vec<(&Queue, QueueCounts)> =
            seen.queues.queues.values().map(|queue| (queue, counts.get(&queue.name).copied().unwrap_or_default())).collect();
        let views = rows.iter().map(|(queue, counts)| QueueView::new(queue, *counts, seen.waiters(&queue.name)));
        let views: Vec<_> = views.collect();
        let human = if rows.is_empty() {
            format!("no queues yet\n{DIM}try: banksman queues define triage{DIM:#}")
        } else {
            let row = |(queue, counts): &(&Queue, QueueCounts)| {
                let state = if queue.paused { format!("{YELLOW}paused{YELLOW:#}") } else { format!("{GREEN}open{GREEN:#}") };
                let waiters = seen.waiters(&queue.name) as u64;
                let numbers = [counts.ready, counts.resting, counts.processing, counts.dead, waiters];
                let number = |number: u64| if number == 0 { "-".to_owned() } else { number.to_string() };
                [vec![queue.name.to_string(), state], numbers.map(number).to_vec()].concat()
            };
            let columns = ["NAME~", "STATE?", "READY>", "RESTING>??", "PROCESSING>", "DEAD>", "WAITERS>???"];
            self.table.render(&columns, rows.iter().map(row).collect())?
        };
        context.printer.result(&Named("queues", views), human)
    }
}

fn dead<'a>(context: &Context, reader: &mut Reader, host: &Host, queues: impl Iterator<Item = &'a Name>) -> ExitResult {
    let part = |queue: &Name, part| Key::Part { queue: queue.clone(), part, limit: DEAD };
    let parts = |queue| [Part::Dead, Part::Moved, Part::Processing].map(|one| part(queue, one));
    let keys: BTreeSet<Key> = queues.flat_map(parts).chain([Key::Queues]).collect();
    let seen = QueueSnapshot::load(reader, host, &keys)?;
    let is_dead = |item: &&Item| Part::Dead.has(item) || Part::Moved.has(item);
    let items: Vec<&Item> = seen.queues.items.values().filter(is_dead).collect();
    let views: Vec<_> = items.iter().map(|item| seen.item(item)).collect();
    let human = if items.is_empty() {
        format!("{DIM}no dead items{DIM:#}")
    } else {
        let row = |item: &&Item| {
            let (queue, reason, died) = death(item).unwrap_or((&item.queue, "", item.created.wall));
            vec![item.id.to_string(), item.queue.to_string(), queue.to_string(), format::ago(died), brief(reason, 60)]
        };
        table::render(&["ID", "IN~", "DIED IN~??", "WHEN>?", "REASON~"], items.iter().map(row).collect())
    };
    context.printer.result(&Named("items", views), human)
}

impl Show {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let mut reader = project.reader()?;
        let part = |queue: &Name, part| Key::Part { queue: queue.clone(), part, limit: SHOWN };
        let mut keys = BTreeSet::from([Key::Queues, Key::Automation, Key::Takers(self.queue.clone())]);
        match self.item {
            Some(item) => drop(keys.insert(Key::Item(item))),
            None => {
                let all = reader.view().load(&[Key::Queues].into())?.tables.queues.queues;
                // Dead items of other queues may move to this one.
                let from = all.values().filter(|queue| queue.config.dead_letter.as_ref() == Some(&self.queue));
                keys.extend(from.map(|queue| part(&queue.name, Part::Processing)));
                keys.extend([Part::Ready, Part::Backoff, Part::Processing, Part::Dead].map(|one| part(&self.queue, one)));
            }
        }
        let seen = QueueSnapshot::load(&mut reader, project.host(), &keys)?;
        let queue = seen.queues.queues.get(&self.queue).ok_or_else(|| no_queue(&self.queue))?;
        let here = |item: &&Item| item.queue == self.queue;
        if let Some(id) = self.item {
            let item = seen.queues.items.get(&id).filter(here).ok_or_else(|| no_item(&self.queue, id))?;
            return context.printer.result(&seen.item(item), item_page(item, &seen));
        }
        let counts = reader.view().queue_counts(seen.at.lease)?.get(&self.queue).copied().unwrap_or_default();
        let recent = reader.view().recent("queue", self.queue.as_str(), 5)?;
        let waiters = seen.waiters(&self.queue);
        let mut items: Vec<&Item> = seen.queues.items.values().filter(here).collect();
        items.sort_by_key(|item| sort_key(item));
        let view = QueuePage {
            queue: QueueView::new(queue, counts, waiters),
            items: items.iter().map(|item| seen.item(item)).collect(),
            workers: seen.workers(&self.queue).map(|(name, state)| WorkerState { name, state }).collect(),
        };
        let mut human = queue_page(queue, &counts, waiters);
        for (name, state) in seen.workers(&self.queue) {
            human += &format!("\n  {DIM}{:<12}{DIM:#} {name} is {state}", "worker");
        }
        if !items.is_empty() {
            let rows = items.iter().map(|item| item_row(item, &seen)).collect();
            human +=
                &format!("\n\n{}", table::render(&["ID", "STATE", "PRIORITY>???", "ATTEMPTS>??", "DATA~", "DETAIL~?"], rows));
        }
        human += &events::recent(&recent, &Default::default());
        context.printer.result(&WithEvents::new(view, &recent), human)
    }
}

/// The order of items in a list: items in progress, then those ready to be taken, then those that wait.
fn sort_key(item: &Item) -> (u8, i64) {
    let due = item.due().map_or(0, |due| due.0);
    match item.state {
        State::Processing(_) => (0, due),
        State::Pending { not_before: None } => (1, item.rank()),
        State::Pending { not_before: Some(_) } | State::Failed { .. } => (2, due),
        State::Dead { .. } | State::Completed => (3, 0),
    }
}

fn queue_page(queue: &Queue, counts: &QueueCounts, waiters: usize) -> String {
    let state = if queue.paused { format!("{YELLOW}paused{YELLOW:#}") } else { format!("{GREEN}open{GREEN:#}") };
    let mut text = format!("{BOLD}{}{BOLD:#} is {state}", queue.name);
    let mut field = |name: &str, value: String| text.push_str(&format!("\n  {DIM}{name:<12}{DIM:#} {value}"));
    let QueueCounts { ready, resting, processing, dead } = counts;
    field("items", format!("{ready} ready, {resting} delayed, {processing} in progress, {dead} dead"));
    field("max length", format!("{} items", format::thousands(queue.config.max_length as usize)));
    field("waiters", waiters.to_string());
    field("visibility", format!("{} after a take", queue.config.visibility_timeout));
    field("attempts", queue.config.max_attempts.to_string());
    field("dead items", queue.config.dead_letter.as_ref().map_or("stay here".into(), |name| format!("go to {name}")));
    text
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

/// Details on the state of an item, in a few words.
fn detail(item: &Item, seen: &QueueSnapshot) -> String {
    let at = seen.at;
    let soon = |due| format::span(due - at.lease);
    match &item.state {
        State::Pending { not_before: Some(due) } => format!("in {}", soon(*due)),
        State::Failed { due } => format!("retry in {}", soon(*due)),
        State::Processing(taken) => {
            let left =
                seen.tasks.get(&item.id).map_or_else(|| format!("{} left", soon(taken.until)), |task| format!("as {task}"));
            format!("{} for {}, {left}", taken.holder, format::span(at.lease - taken.since.lease))
        }
        State::Dead { reason, .. } => brief(reason, 40),
        State::Pending { not_before: None } | State::Completed => item
            .origin
            .as_ref()
            .map_or_else(String::new, |origin| format!("died in {}: {}", origin.queue, brief(&origin.reason, 30))),
    }
}

fn item_row(item: &Item, seen: &QueueSnapshot) -> Vec<String> {
    let data = brief(&item.data.value().to_string(), 40);
    vec![item.id.to_string(), coloured(item), item.priority.to_string(), item.attempts.to_string(), data, detail(item, seen)]
}

fn item_page(item: &Item, seen: &QueueSnapshot) -> String {
    let mut text = format!("{BOLD}{}{BOLD:#} in {} is {}", item.id, item.queue, coloured(item));
    let mut field = |name: &str, value: String| text.push_str(&format!("\n  {DIM}{name:<10}{DIM:#} {value}"));
    field("data", format::one_line(&item.data.value().to_string()));
    field("priority", item.priority.to_string());
    field("pushed", format::ago(item.created.wall));
    field("attempts", item.attempts.to_string());
    let detail = detail(item, seen);
    if !detail.is_empty() && death(item).is_none() {
        field("now", detail);
    }
    if let Some(key) = &item.dedupe {
        field("key", key.to_string());
    }
    if let Some((queue, reason, died)) = death(item) {
        field("died", format!("in {queue} {}: {}", format::ago(died), format::one_line(reason)));
    }
    for attempt in &item.history {
        let ended = format::ago(attempt.ended);
        text.push_str(&format!(
            "\n  {DIM}{ended}{DIM:#}  {} {DIM}(epoch {}){DIM:#}  {}",
            attempt.holder,
            attempt.epoch,
            brief(&format::one_line(&attempt.error), 200)
        ));
    }
    text
}
