use std::collections::BTreeMap;

use banksman_core::backlog::{Runner, Shortage};
use banksman_core::landing::{Entry, Obstacle, State as Landing};
use banksman_core::{Name, Status as Word, Task, TaskId};
use banksman_engine::why::Life;
use banksman_runtime::inspect::{self, LiveRun, Manned, Overview};
use banksman_store::{DeadItems, Key, WorkItems};
use clap::Args;

use super::recording::record_ended;
use super::tasks::brief;
use super::{ExitResult, pausing, pipelines, why};
use crate::context::Context;
use crate::format;
use crate::printer::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::table;
use crate::terminal::Style;
use crate::views::pipelines::PipelineView;
use crate::views::status::{Limited, Pipelines, RunnerView, StatusView};
use crate::views::{accounts, spend};

/// The next step when everything is done.
const DONE: &str = "nothing to do: all tasks are done";

/// The next step while work is in progress.
const FOLLOW: &str = "watch the progress: banksman events --follow";

/// Show the status: tasks, runs, runners, and what to do next.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman status\n  banksman status --json")]
pub(crate) struct Status {}

impl Status {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let mut reader = project.reader()?;
        record_ended(context, &project, &mut reader)?;
        let overview = inspect::overview(&mut reader, &project)?;
        let at_phases = pipelines::tasks_at(&mut reader, &overview.pipelines)?;
        let next = match next(&overview) {
            Some(next) => next,
            // With applied workers, the work comes from queues.
            None if reader.view().load(&[Key::Automation].into())?.automation.workers.workers.is_empty() => {
                "add a task: banksman tasks add TITLE --run CMD".into()
            }
            None => DONE.into(),
        };
        let budget = project.config().budget_micros();
        context.printer.result(&view(&overview, &next, budget), human(&overview, &at_phases, &next, &project.host().id))
    }
}

fn count(overview: &Overview, status: Word) -> u64 {
    overview.counts.by_status.get(&status).copied().unwrap_or_default()
}

fn all(overview: &Overview) -> u64 {
    overview.counts.by_status.values().sum()
}

/// The number of queues with dead items that the line names.
const DEAD_QUEUES: usize = 3;

/// `3 items are dead in 2 queues: banksman queues requeue a --all; banksman queues requeue b q-7`; `None` without dead
/// items.
pub(super) fn dead_items(items: &WorkItems) -> Option<String> {
    let requeue = |(queue, dead): (&Name, &DeadItems)| {
        let which = if dead.count == 1 { dead.first.to_string() } else { "--all".into() };
        format!("banksman queues requeue {} {which}", format::quoted(queue))
    };
    let number = if items.deaths() == 1 { "1 item is dead".into() } else { format!("{} items are dead", items.deaths()) };
    let commands = items.dead.iter().take(DEAD_QUEUES).map(requeue).collect::<Vec<_>>().join("; ");
    match items.dead.len() {
        0 => None,
        1 => Some(format!("{number}: {commands}")),
        queues if queues > DEAD_QUEUES => {
            Some(format!("{number} in {queues} queues: {commands}; list the others: banksman queues list"))
        }
        queues => Some(format!("{number} in {queues} queues: {commands}")),
    }
}

/// The next step; `None` if there never was a task, and neither an item nor a landing waits.
fn next(overview: &Overview) -> Option<String> {
    let is_empty = all(overview) == 0 && overview.runs.is_empty() && overview.counts.items.is_empty();
    (!is_empty || !overview.landings.is_empty()).then(|| next_step(overview))
}

/// The next step in a project that is not empty.
fn next_step(overview: &Overview) -> String {
    let tasks = |number: u64| if number == 1 { "1 task".into() } else { format!("{number} tasks") };
    let waits = |number: u64| if number == 1 { "waits" } else { "wait" };
    if let Some(pause) = &overview.pause {
        return format!("the project is paused: {}; resume it with: banksman resume", pausing::because(pause));
    }
    let alive = overview.runners.iter().any(|manned| manned.life != Life::Gone);
    let ready: u64 = overview.counts.ready.iter().map(|(_, number)| number).sum();
    let (held, example) = &overview.held;
    let stuck = overview.counts.by_status.get(&Word::Stuck).copied().unwrap_or_default();
    let items = &overview.counts.items;
    let needs_runner = || overview.pipelines.iter().any(|hosted| why::needs_runner(&hosted.pipeline));
    let landings = Landings::of(overview);
    let needs_runner = || needs_runner() || landings.can_progress;
    if let Some(why) = &overview.uncheckable {
        return format!("nothing lands: {why}");
    }
    if !alive && (ready > 0 || !overview.runs.is_empty() || items.waiting + items.processing > 0 || needs_runner()) {
        return "no runner is running; start one: banksman run".into();
    }
    if overview.decisions > 0 {
        let decisions = if overview.decisions == 1 { "1 decision".into() } else { format!("{} decisions", overview.decisions) };
        return format!("{decisions} {} for you: banksman decisions review", waits(overview.decisions as u64));
    }
    if let Some(blocked) = overview.pipelines.iter().find(|hosted| pipelines::is_held_up(&hosted.pipeline)) {
        return format!("a pipeline is blocked: banksman why {}", blocked.task.id);
    }
    if let Some(live) = overview.runs.iter().find(|live| live.attended.silence.is_some()) {
        return format!("the keeper of {} does not answer: banksman why {}", live.title, live.run.task);
    }
    if let Some((runner, shortage)) = overview.runners.iter().filter(|manned| manned.life != Life::Gone).find_map(short) {
        return format!("runner {} cannot start more runs: {}", runner.id, shortage.error);
    }
    if stuck > 0 {
        return format!("no activity of {}: banksman tasks list --status stuck", tasks(stuck));
    }
    if let Some(said) = landings.wait_for_person() {
        return said;
    }
    if let Some(example) = example {
        let verb = waits(*held);
        return format!("{} {verb} for tasks that failed, were cancelled or skipped: banksman why {example}", tasks(*held));
    }
    if let Some(dead) = dead_items(items) {
        return dead;
    }
    if let Some(stopped) = overview.stopped.first() {
        let number = overview.stopped.len() as u64;
        let are = if number == 1 { "is" } else { "are" };
        return format!("{} {are} stopped: banksman resume {}", tasks(number), stopped.id);
    }
    if let Some(failed) = overview.failures.first() {
        let failures = count(overview, Word::Failed);
        return format!("{} failed: banksman why {}", tasks(failures), failed.id);
    }
    if !overview.runs.is_empty() || ready > 0 || items.processing > 0 || landings.can_progress {
        return FOLLOW.into();
    }
    match overview.counts.by_hand {
        0 => {}
        1 => return "1 manual task is pending: banksman tasks list --status pending".into(),
        several => return format!("{several} manual tasks are pending: banksman tasks list --status pending"),
    }
    if count(overview, Word::Review) > 0 {
        return format!(
            "{} {} for review: banksman tasks list --status review",
            tasks(count(overview, Word::Review)),
            waits(count(overview, Word::Review))
        );
    }
    if let Some(items) = items_wait(items.waiting) {
        return items;
    }
    let in_phases: u64 = ["checking", "running"].iter().filter_map(|state| overview.pipeline_counts.get(*state)).sum();
    match count(overview, Word::InProgress).saturating_sub(in_phases) {
        0 if in_phases > 0 => FOLLOW.into(),
        0 => DONE.into(),
        claimed => format!("{} in progress, taken manually: banksman tasks list --status in_progress", tasks(claimed)),
    }
}

/// The entries of the merge queues, except those that wait for a decision.
struct Landings<'a> {
    /// Whether an entry can progress with a runner.
    can_progress: bool,
    /// The entries that wait for changes in the checkout of their target.
    obstructed: Vec<&'a Entry>,
    /// A paused queue that has entries.
    paused: Option<&'a Name>,
}

impl Landings<'_> {
    fn of(overview: &Overview) -> Landings<'_> {
        let (paused, open): (Vec<_>, Vec<_>) = overview.landings.iter().partition(|queue| queue.target.paused.is_some());
        let entries = || open.iter().flat_map(|queue| queue.entries.values());
        let waits = |entry: &Entry| matches!(&entry.state, Landing::Waiting { obstacle: Obstacle::Checkout { .. } });
        let asks = |entry: &Entry| matches!(&entry.state, Landing::Asking { .. });
        Landings {
            can_progress: entries().any(|entry| !waits(entry) && !asks(entry)),
            obstructed: entries().filter(|entry| waits(entry)).collect(),
            paused: paused.iter().find(|queue| !queue.entries.is_empty()).map(|queue| &queue.target.name),
        }
    }

    fn wait_for_person(&self) -> Option<String> {
        if let Some(target) = self.paused {
            return Some(format!("the merge queue of {target} is paused: banksman landing resume {}", format::quoted(target)));
        }
        let entry = self.obstructed.first()?;
        let which = match &entry.spec.task {
            Some(task) => format!("banksman why {task}"),
            None => format!("banksman landing show {}", entry.id),
        };
        Some(match self.obstructed.len() {
            1 => format!("a checkout blocks 1 landing: {which}"),
            several => format!("a checkout blocks {several} landings: {which}"),
        })
    }
}

/// A line about items that wait for workers; `workers list` has the reasons.
pub(super) fn items_wait(number: u64) -> Option<String> {
    match number {
        0 => None,
        1 => Some("1 item waits for its worker: banksman workers list".into()),
        several => Some(format!("{several} items wait for their workers: banksman workers list")),
    }
}

/// A runner whose machine lacks a resource, and the resource.
fn short(manned: &Manned) -> Option<(&Runner, &Shortage)> {
    Some((&manned.runner, manned.runner.shortage.as_ref()?))
}

/// A limit; `None` if it is 0.
fn limit(limit: u32) -> Option<u32> {
    (limit > 0).then_some(limit)
}

fn view<'a>(overview: &'a Overview, next: &'a str, budget_micros: Option<u64>) -> StatusView<'a> {
    let open = overview.pipelines.iter().map(|hosted| PipelineView::new(&hosted.task, &hosted.pipeline, overview.at));
    StatusView {
        tasks: all(overview),
        by_status: Word::ALL.into_iter().map(|status| (status, count(overview, status))).collect(),
        by_hand: overview.counts.by_hand,
        queued_runs: overview.queued,
        slots: Limited { used: overview.used, limit: limit(overview.limits.runs) },
        roots: Limited { used: overview.roots, limit: limit(overview.limits.roots) },
        decisions: overview.decisions,
        account_limits: overview.account_limits.iter().map(Into::into).collect(),
        spend_today: overview.spend.iter().map(Into::into).collect(),
        budget_micros,
        runs: overview.runs.iter().map(Into::into).collect(),
        runners: overview.runners.iter().map(|manned| RunnerView::new(manned, overview.at)).collect(),
        pipelines: Pipelines { by_state: &overview.pipeline_counts, open: open.collect() },
        items: (&overview.counts.items).into(),
        failures: overview.failures.iter().map(Into::into).collect(),
        held_by_failed: overview.held.0,
        paused: overview.pause.as_ref().map(Into::into),
        stopped: overview.stopped.iter().map(|task| &task.id).collect(),
        next,
    }
}

fn error(task: &Task) -> &str {
    super::tasks::error(task).unwrap_or_default()
}

fn human(overview: &Overview, at_phases: &BTreeMap<TaskId, Task>, next: &str, host: &str) -> String {
    let mut text = summary(overview);
    for spent in &overview.spend {
        text.push_str(&format!("\n{DIM}today{DIM:#} {}", spend::summary(&spent.into())));
    }
    for limit in &overview.account_limits {
        text.push_str(&format!("\n{YELLOW}{}{YELLOW:#}", accounts::sentence(limit)));
    }
    for question in overview.untrusted.iter().take(3) {
        text.push_str(&format!("\n{YELLOW}not trusted{YELLOW:#}: {}", format::one_line(question)));
    }
    if overview.untrusted.len() > 3 {
        text.push_str(&format!("\n{YELLOW}not trusted{YELLOW:#}: {} more", overview.untrusted.len() - 3));
    }
    if let Some(pause) = &overview.pause {
        text.push_str(&format!("\n{YELLOW}paused{YELLOW:#}: {}; nothing is started", pausing::because(pause)));
    }
    if !overview.stopped.is_empty() {
        let titles: Vec<&str> = overview.stopped.iter().take(3).map(|task| task.spec.title.as_str()).collect();
        let more = overview.stopped.len().saturating_sub(3);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        text.push_str(&format!("\n{YELLOW}stopped{YELLOW:#}: {}{more}", titles.join(", ")));
    }
    if !overview.runs.is_empty() {
        let rows = overview.runs.iter().map(|live| run_row(live, overview)).collect();
        text.push_str(&format!("\n\n{}", table::render(&["RUNNING~", "TASK?", "RUN???", "RUNNER~??", "FOR>"], rows)));
    }
    if !overview.pipelines.is_empty() {
        let rows = overview.pipelines.iter().map(|hosted| pipelines::row(hosted, at_phases, overview.at)).collect();
        text.push_str(&format!("\n\n{}", table::render(&pipelines::COLUMNS, rows)));
    }
    if !overview.runners.is_empty() {
        let rows = overview.runners.iter().map(|manned| runner_row(manned, overview, host)).collect();
        text.push_str(&format!("\n\n{}", table::render(&["RUNNER", "STATE", "PID>?", "HOST??", "RUNS>", "FOR>"], rows)));
    }
    if !overview.failures.is_empty() {
        let ago = |task: &Task| format::span(overview.at.lease - task.changed.lease);
        let row = |task: &Task| {
            vec![format!("{RED}{}{RED:#}", task.spec.title), task.id.to_string(), ago(task), brief(error(task), 60)]
        };
        let rows = overview.failures.iter().map(row).collect();
        text.push_str(&format!("\n\n{}", table::render(&["RECENT FAILURES~", "TASK??", "AGO>?", "ERROR~"], rows)));
    }
    format!("{text}\n\n{DIM}next:{DIM:#} {next}")
}

/// `12 tasks: 3 completed, 2 in progress; 2 of 4 run slots are taken, and 3 tasks wait for one`.
fn summary(overview: &Overview) -> String {
    let number = all(overview);
    let mut text = format!("{BOLD}{number}{BOLD:#} {}", if number == 1 { "task" } else { "tasks" });
    let words = |status: Word| {
        let number = count(overview, status);
        let style = match status {
            Word::Completed => GREEN,
            Word::Failed | Word::Stuck => RED,
            Word::Blocked | Word::Review => YELLOW,
            Word::Pending | Word::InProgress | Word::Landing | Word::Cancelled | Word::Skipped => Style::PLAIN,
        };
        let by_hand = match overview.counts.by_hand {
            by_hand if by_hand > 0 && status == Word::Pending => format!(" ({by_hand} manual)"),
            _ => String::new(),
        };
        (number > 0).then(|| format!("{style}{number} {}{style:#}{by_hand}", status.as_str().replace('_', " ")))
    };
    let counts: Vec<String> = Word::ALL.into_iter().filter_map(words).collect();
    if !counts.is_empty() {
        text.push_str(&format!(": {}", counts.join(", ")));
    }
    text.push_str(&items(&overview.counts.items));
    let taken = limit(overview.limits.runs).map(|limit| format!("{} of {limit} run slots are taken", overview.used));
    let roots = limit(overview.limits.roots).map(|limit| format!("{} of {limit} roots are in progress", overview.roots));
    let queued = match overview.queued {
        0 => None,
        1 => Some("1 ready task waits for a run to end".into()),
        several => Some(format!("{several} ready tasks wait for a run to end")),
    };
    let slots: Vec<String> = taken.into_iter().chain(roots).chain(queued).collect();
    if slots.is_empty() { text } else { format!("{text}\n{}", slots.join("; ")) }
}

/// `; items of workers: 3 waiting, 1 dead`.
fn items(items: &WorkItems) -> String {
    let plain = Style::PLAIN;
    let words = [(items.waiting, "waiting", plain), (items.processing, "in progress", plain), (items.deaths(), "dead", RED)];
    let said: Vec<String> = words
        .into_iter()
        .filter(|(number, ..)| *number > 0)
        .map(|(number, word, style)| format!("{style}{number} {word}{style:#}"))
        .collect();
    if said.is_empty() { String::new() } else { format!("; items of workers: {}", said.join(", ")) }
}

fn run_row(live: &LiveRun, overview: &Overview) -> Vec<String> {
    let runner = match live.attended.life {
        _ if live.attended.ended.is_some() => format!("{} {YELLOW}(ended, not recorded yet){YELLOW:#}", live.run.owner),
        _ if live.attended.asked.is_some() => format!("{} {RED}(needs you){RED:#}", live.run.owner),
        Life::Alive => live.run.owner.to_string(),
        Life::Gone => format!("{} {RED}(gone){RED:#}", live.run.owner),
        Life::Unknown => format!("{} {YELLOW}(elsewhere){YELLOW:#}", live.run.owner),
    };
    let span = format::span(overview.at.lease - live.run.started.lease);
    let silent = live.attended.silence.as_ref().map(|silence| format!(" {RED}(its keeper does not answer: {silence}){RED:#}"));
    let runner = runner + &silent.unwrap_or_default();
    vec![live.title.to_string(), live.run.task.to_string(), live.run.id.to_string(), runner, span]
}

fn runner_row(manned: &Manned, overview: &Overview, host: &str) -> Vec<String> {
    let runner = &manned.runner;
    let state = match manned.life {
        Life::Alive if runner.shortage.is_some() => format!("{YELLOW}low on resources{YELLOW:#}"),
        Life::Alive => format!("{GREEN}alive{GREEN:#}"),
        Life::Gone => format!("{RED}gone{RED:#}"),
        Life::Unknown => format!("{YELLOW}unknown{YELLOW:#}"),
    };
    let runs = runner.max_runs.map_or_else(|| manned.runs.to_string(), |max| format!("{}/{max}", manned.runs));
    // Without a lease, all runners are on this machine.
    let place =
        if runner.terms.is_none() || *runner.process.host == *host { "here".into() } else { brief(&runner.process.host, 12) };
    let span = format::span(overview.at.lease - runner.started.lease);
    vec![runner.id.to_string(), state, runner.process.pid.to_string(), place, runs, span]
}
