//! The output of `workers list` and `workers show`.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::route::Route;
use banksman_core::worker::{Taken, Worker};
use banksman_core::{Name, Span, Task, TaskId};
use banksman_store::{Key, QueueCounts};
use clap::Args;

use super::no_worker;
use crate::commands::runbooks::picture;
use crate::commands::tasks::brief;
use crate::commands::{ExitResult, events};
use crate::context::Context;
use crate::format;
use crate::printer::{BOLD, DIM, GREEN, YELLOW};
use crate::table;
use crate::views::events::WithEvents;
use crate::views::workers::{Applied, JobView, RouteView, WorkerPage, WorkerView};

/// The number of jobs that `show` prints.
const SHOWN: usize = 20;

/// List workers with their jobs and waiting items, and the applied routes.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman workers list")]
pub(super) struct List {}

/// Show one worker with its jobs.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman workers show triager")]
pub(super) struct Show {
    /// The worker
    worker: Name,
}

/// A worker with the state of its queue.
struct Listed<'a> {
    worker: &'a Worker,
    /// The number of items waiting in its queue.
    waiting: u64,
    /// Whether its queue is paused.
    is_halted: bool,
}

impl Listed<'_> {
    /// The state as one word: a paused queue has precedence over the worker's own state.
    fn state(&self) -> &'static str {
        match self.worker.state() {
            "awake" if self.is_halted => "halted",
            state => state,
        }
    }

    fn coloured(&self) -> String {
        match self.state() {
            state @ ("busy" | "awake") => format!("{GREEN}{state}{GREEN:#}"),
            state @ ("asleep" | "finishing") => format!("{DIM}{state}{DIM:#}"),
            state => format!("{YELLOW}{state}{YELLOW:#}"),
        }
    }

    /// A note if items wait although the worker has room, with the command that helps.
    fn held_up(&self) -> Option<String> {
        let definition = &self.worker.definition;
        let (worker, queue) = (format::quoted(&definition.name), format::quoted(&definition.queue));
        let (why, what) = match self.state() {
            "asleep" => ("asleep", format!("banksman workers wake {worker}")),
            "paused" => ("paused", format!("banksman workers resume {worker}")),
            "halted" => ("halted, because its queue is paused", format!("banksman queues resume {queue}")),
            _ => return None,
        };
        let items = if self.waiting == 1 { "1 item waits".to_owned() } else { format!("{} items wait", self.waiting) };
        (self.waiting > 0).then(|| format!("\n{DIM}{items} while {} is {why}: {what}{DIM:#}", definition.name))
    }

    fn view(&self) -> WorkerView<'_> {
        WorkerView::new(self.worker, self.state(), self.waiting)
    }

    fn row(&self) -> Vec<String> {
        let definition = &self.worker.definition;
        vec![
            definition.name.to_string(),
            self.coloured(),
            definition.queue.to_string(),
            brief(&definition.job.describe(), 40),
            format!("{}/{}", self.worker.jobs.len(), definition.concurrency),
            if self.waiting == 0 { "-".into() } else { self.waiting.to_string() },
            definition.runbook.to_string(),
        ]
    }
}

impl List {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let mut reader = context.reader()?;
        let snapshot = reader.view().load(&[Key::Automation, Key::Queues].into())?;
        let counts = reader.view().queue_counts(snapshot.lease)?;
        let is_halted = |queue: &Name| snapshot.queues.queues.get(queue).is_some_and(|queue| queue.paused);
        let seen = |worker| listed(worker, &counts, is_halted);
        let workers: Vec<Listed<'_>> = snapshot.automation.workers.workers.values().map(seen).collect();
        let routes: Vec<&Route> = snapshot.automation.routes.routes.values().map(|in_force| &*in_force.route).collect();
        let mut human = if workers.is_empty() {
            format!("no workers yet\n{DIM}workers come from runbooks: banksman runbooks apply{DIM:#}")
        } else {
            let columns = ["NAME~", "STATE", "QUEUE~", "DOES~??", "BUSY>", "WAITING>?", "RUNBOOK~???"];
            table::render(&columns, workers.iter().map(Listed::row).collect())
                + &workers.iter().filter_map(Listed::held_up).collect::<String>()
        };
        if !routes.is_empty() {
            let then = |route: &Route| route.then.iter().map(picture::then).collect::<Vec<_>>().join(", ");
            let row = |route: &&Route| vec![route.on.to_string(), then(route), route.runbook.to_string()];
            human += &format!("\n\n{}", table::render(&["ON", "THEN~", "RUNBOOK?"], routes.iter().map(row).collect()));
        }
        let routes = routes.into_iter().map(RouteView::applied);
        context.printer.result(&Applied { workers: workers.iter().map(Listed::view).collect(), routes: routes.collect() }, human)
    }
}

fn listed<'a>(worker: &'a Worker, counts: &BTreeMap<Name, QueueCounts>, is_halted: impl Fn(&Name) -> bool) -> Listed<'a> {
    let queue = &worker.definition.queue;
    let waiting = counts.get(queue).map_or(0, |counts| counts.ready + counts.resting);
    Listed { worker, waiting, is_halted: is_halted(queue) }
}

impl Show {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let mut reader = context.reader()?;
        let snapshot = reader.view().load(&[Key::Worker(self.worker.clone()), Key::Queues].into())?;
        let worker = snapshot.automation.workers.workers.get(&self.worker).ok_or_else(|| no_worker(&self.worker))?;
        let keys: BTreeSet<Key> = worker.jobs.keys().take(SHOWN).cloned().map(Key::Task).collect();
        let tasks = reader.view().load(&keys)?.tables.backlog.tasks;
        let counts = reader.view().queue_counts(snapshot.lease)?;
        let recent = reader.view().recent("worker", self.worker.as_str(), 5)?;
        let seen = listed(worker, &counts, |queue| snapshot.queues.queues.get(queue).is_some_and(|queue| queue.paused));
        let jobs: Vec<(&TaskId, &Taken, Option<&Task>)> =
            worker.jobs.iter().take(SHOWN).map(|(id, taken)| (id, taken, tasks.get(id))).collect();
        let views = jobs.iter().map(|(id, taken, task)| JobView::new(id, taken, *task));
        let view = WorkerPage { worker: seen.view(), jobs: views.collect() };
        let mut human = page(&seen);
        if !jobs.is_empty() {
            let row = |(id, taken, task): &(&TaskId, &Taken, Option<&Task>)| {
                vec![id.to_string(), taken.item.to_string(), task.map_or("gone".into(), |task| task.status().to_string())]
            };
            human += &format!("\n\n{}", table::render(&["TASK", "ITEM", "STATUS"], jobs.iter().map(row).collect()));
        }
        if worker.jobs.len() > SHOWN {
            human += &format!("\n{DIM}and {} more{DIM:#}", worker.jobs.len() - SHOWN);
        }
        human += &events::recent(&recent, &Default::default());
        context.printer.result(&WithEvents::new(view, &recent), human)
    }
}

fn page(seen: &Listed<'_>) -> String {
    let definition = &seen.worker.definition;
    let mut text = format!("{BOLD}{}{BOLD:#} is {}", definition.name, seen.coloured());
    let mut field = |name: &str, value: String| text.push_str(&format!("\n  {DIM}{name:<10}{DIM:#} {value}"));
    field("queue", format!("{}, {} waiting", definition.queue, seen.waiting));
    field("does", brief(&definition.job.describe(), 100));
    field("busy", format!("{} of {}", seen.worker.jobs.len(), definition.concurrency));
    let patterns: Vec<String> = definition.wake_on.iter().map(ToString::to_string).collect();
    field("woken by", if patterns.is_empty() { "nothing: it is always awake".into() } else { patterns.join(", ") });
    field(
        "retries",
        match definition.retry_delay {
            Span::ZERO => "at once".into(),
            delay => format!("{delay} after a failure, doubled after each further one"),
        },
    );
    field("runbook", definition.runbook.to_string());
    text + &seen.held_up().unwrap_or_default()
}
