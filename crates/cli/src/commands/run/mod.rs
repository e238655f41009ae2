mod ending;
mod interrupt;
mod live_line;
mod report;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use banksman_core::pipeline::{Reason as Blocked, State as PipelineState};
use banksman_core::{Limits, Pipeline, RunId, RunnerId, SectionId, Status, TaskId, Wall};
use banksman_engine::why::{Attended, Life};
use banksman_runtime::inspect::{self, Leftovers, LiveRun};
use banksman_runtime::workspaces::{prune, removals};
use banksman_runtime::{Client, Error, RunOptions, Runner, recover_run};
use clap::Args;
use serde::Serialize;

use super::doctor::limit_differences;
use super::report::notice as report_of;
use super::{ExitResult, find, pausing, status, top};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::output_queue::OutputQueue;
use crate::printer::{DIM, GREEN, RED, YELLOW};
use crate::signals::Signals;
use crate::views::Named;
use crate::views::status::ItemsView;
use live_line::LiveLine;
pub(crate) use report::after;
use report::{Trouble, line};

/// Claim tasks and run them.
///
/// Any number of runners may work on one project. A stopped runner leaves its sessions running; the next runner adopts them. In a
/// terminal, a second Ctrl-C within five seconds stops the sessions, too. A runner resumes a project that was stopped, but not one that
/// was paused. In a store that is not trusted, a runner starts nothing: it supervises the live sessions until they end, and exits with 5
/// if something is left to do.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman run\n  banksman run --until-idle --max-runs 4")]
pub(crate) struct Run {
    /// Maximum number of concurrent runs of this runner, within limits.max_concurrent_runs of the project
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_runs: Option<u32>,
    /// Run only tasks of this section; may be given more than once
    #[arg(long = "section", value_name = "SECTION")]
    sections: Vec<String>,
    /// Exit when nothing is left to do: with 0 if all tasks are completed and no item of a worker is dead, else with 7; with 130 if
    /// the runner is interrupted before
    #[arg(long)]
    until_idle: bool,
    /// Show the screen of banksman top; quitting it stops this runner
    #[arg(long, conflicts_with = "json")]
    top: bool,
    /// Another command prints what came of it.
    #[arg(skip)]
    is_for_others: bool,
}

/// The JSON output of a runner that has ended because nothing is left to do.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Finished<'a> {
    runner: &'a RunnerId,
    completed: u64,
    tasks: u64,
    by_status: &'a BTreeMap<Status, u64>,
    items: ItemsView<'a>,
    /// The pipelines that need a person.
    blocked: Vec<&'a TaskId>,
}

/// The JSON output of a runner that may not start anything.
#[derive(Serialize)]
struct Adopted<'a> {
    runner: Option<RunnerId>,
    adopted: &'a [RunId],
}

impl Run {
    /// A runner that ends when nothing is left to do; another command prints the result.
    pub(crate) fn for_others(max_runs: Option<u32>) -> Run {
        Run { max_runs, sections: Vec::new(), until_idle: true, top: false, is_for_others: true }
    }

    /// The sections to work in. The connection for the lookup is not kept: the server may have few.
    fn section_ids(&self, client: &Client) -> Result<Vec<SectionId>, Failure> {
        if self.sections.is_empty() {
            return Ok(Vec::new());
        }
        let mut reader = client.reader()?;
        self.sections.iter().map(|name| Ok(find::section(&mut reader, name)?.id)).collect()
    }

    pub(crate) fn run(self, context: &Context) -> ExitResult {
        if self.top {
            return top::show(context, Some(self.as_command(context)?));
        }
        let mut signals = Signals::install()?;
        let client = context.runner_client()?;
        let sections = self.section_ids(&client)?;
        let files = context.sessions(client.project());
        let options = RunOptions { max_runs: self.max_runs, sections, until_idle: self.until_idle, report: Some(report_of) };
        let runner = match Runner::new(&client, files, options) {
            Err(refusal @ Error::Untrusted { .. }) => return adopt_only(context, &client, &mut signals, refusal),
            runner => runner?,
        };
        let id = runner.id().clone();
        sweep_workspaces(&client);
        // Output never blocks the work, whether it is read or not; and a signal ends this process in any case.
        let output = OutputQueue::start(context.printer.clone()).map_err(|error| Failure::system("start a thread", error))?;
        let exit = interrupt::exit_after_signal(signals.as_fd()).map_err(|error| Failure::system("start a thread", error))?;
        let settings = client.config().limits();
        let limits = client.load(&Default::default())?.backlog.limits.unwrap_or(settings);
        output.note(format!("{DIM}runner {id} is running: {}{DIM:#}", self.share(limits)));
        for (text, command) in limit_differences(settings, limits) {
            output.note(format!("{DIM}note: {text}; to apply the setting: {command}{DIM:#}"));
        }
        if let Some(lifted) = pausing::lift(context)? {
            output.note(format!("{GREEN}resumed{GREEN:#}: {}", pausing::because(&lifted)));
        }
        // In a terminal, lines have a time, and a status line stays below them.
        let is_watched = context.printer.is_watched();
        let live = if is_watched { LiveLine::start(client.project(), &output) } else { None };
        let mut trouble = Trouble::default();
        let ended = runner.run(signals.as_fd(), &mut |report| {
            let lines = trouble.filter(report).into_iter().filter_map(line);
            lines.for_each(|line| output.note(if is_watched { format!("{DIM}{}{DIM:#}  {line}", now()) } else { line }))
        });
        drop(live);
        ended?;
        let arrived = signals.take();
        let is_interrupted = !arrived.is_empty();
        if !self.until_idle || is_interrupted {
            let left = interrupt::leave(context, &client, &id, &output, &mut signals, &arrived, &exit)?;
            // With --until-idle, an interruption must not look like the end of the work.
            if self.until_idle {
                output.note(left);
                output.finish();
                return Err(Failure::interrupted());
            }
            output.result(&Named("runner", id), left);
            output.finish();
            return Ok(exit::OK);
        }
        if self.is_for_others {
            output.finish();
            return Ok(exit::OK);
        }
        let left = inspect::leftovers(&client)?;
        let counts = &left.counts;
        let completed = counts.by_status.get(&Status::Completed).copied().unwrap_or_default();
        let all: u64 = counts.by_status.values().sum();
        let blocked = blocked(&left);
        let view = Finished {
            runner: &id,
            completed,
            tasks: all,
            by_status: &counts.by_status,
            items: (&counts.items).into(),
            blocked: blocked.iter().map(|pipeline| &pipeline.id).collect(),
        };
        let tasks = (all > 0).then(|| format!("{completed} of {all} tasks completed"));
        let dead = status::dead_items(&counts.items);
        let waiting = status::items_wait(counts.items.waiting);
        let needs_you = blocked.iter().map(|pipeline| {
            let why = super::why::detail(pipeline, None).unwrap_or_default();
            format!("{} needs you: {why} (banksman why {})", pipeline.id, pipeline.id)
        });
        let said: Vec<String> = [tasks, dead, waiting].into_iter().flatten().chain(needs_you).collect();
        let human = if said.is_empty() { "nothing is left to do".into() } else { said.join("; ") };
        ending::lines(&left).into_iter().for_each(|line| output.note(line));
        output.result(&view, human);
        output.finish();
        Ok(if completed == all && counts.items.dead.is_empty() { exit::OK } else { exit::UNHEALTHY })
    }
}

fn now() -> String {
    format::local(Wall(banksman_adapters::host::wall_ms()))
}

/// Runs without starting anything, because the store is not trusted: recovers the sessions without a runner until they
/// end.
fn adopt_only(context: &Context, client: &Client, signals: &mut Signals, refusal: Error) -> ExitResult {
    let (_, live) = inspect::sessions(&mut client.reader()?, client.project())?;
    let is_left = |live: &LiveRun| {
        let Attended { life, heir, asked, .. } = &live.attended;
        *life == Life::Gone && heir.is_none() && asked.is_none()
    };
    let left: Vec<RunId> = live.into_iter().filter(is_left).map(|live| live.run.id).collect();
    if left.is_empty() {
        return Err(refusal.into());
    }
    let output = OutputQueue::start(context.printer.clone()).map_err(|error| Failure::system("start a thread", error))?;
    let sessions = if left.len() == 1 { "1 live session is".into() } else { format!("{} live sessions are", left.len()) };
    output.note(format!("{YELLOW}note:{YELLOW:#} {refusal}; {sessions} supervised until the end"));
    let cancel = signals.as_fd();
    let (lines, said) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for run in left.clone() {
            let (files, lines) = (context.sessions(client.project()), lines.clone());
            // The receiver outlives the threads.
            let note = move |text: String| drop(lines.send(text));
            scope.spawn(move || {
                let mut on_report = |report| line(report).into_iter().for_each(&note);
                if let Err(error) = recover_run(client, files, run.clone(), cancel, Duration::MAX, &mut on_report) {
                    note(format!("{RED}run {run}{RED:#}: {error}"));
                }
            });
        }
        drop(lines);
        said.into_iter().for_each(|line| output.note(line));
    });
    let is_interrupted = !signals.take().is_empty();
    let counts = client.reader()?.view().counts()?.by_status;
    output.result(&Adopted { runner: None, adopted: &left }, "nothing was started; to trust the store: banksman trust".into());
    output.finish();
    let left: Vec<Status> = counts.into_iter().filter_map(|(status, count)| (count > 0).then_some(status)).collect();
    match left[..] {
        _ if is_interrupted => Err(Failure::interrupted()),
        [] | [Status::Completed] => Ok(exit::OK),
        _ => Ok(exit::NOT_PERMITTED),
    }
}

/// The first pipelines that cannot continue without a person.
fn blocked(left: &Leftovers) -> Vec<&Pipeline> {
    let is_blocked = |pipeline: &&Pipeline| match &pipeline.state {
        PipelineState::Blocked { reason, .. } => *reason != Blocked::Dependencies,
        _ => false,
    };
    left.pipelines.iter().map(|hosted| &hosted.pipeline).filter(is_blocked).collect()
}

impl Run {
    /// The same runner as a command line.
    fn as_command(&self, context: &Context) -> Result<Command, Failure> {
        let mut args = vec!["run".to_owned()];
        args.extend(self.max_runs.map(|runs| format!("--max-runs={runs}")));
        args.extend(self.sections.iter().map(|section| format!("--section={section}")));
        args.extend(self.until_idle.then(|| "--until-idle".to_owned()));
        top::own(context, &args)
    }

    /// `at most 4 runs at a time (limits.max_concurrent_runs)`.
    fn share(&self, limits: Limits) -> String {
        let runs = |number: u32| if number == 1 { "1 run".into() } else { format!("{number} runs") };
        match (self.max_runs, limits.runs) {
            (Some(own), 0) => format!("at most {} at a time (--max-runs)", runs(own)),
            (Some(own), limit) if own < limit => {
                format!("at most {} at a time (--max-runs; the project allows {limit})", runs(own))
            }
            (_, 0) => "any number of runs at a time (limits.max_concurrent_runs is 0)".into(),
            (_, limit) => format!("at most {} at a time in the project (limits.max_concurrent_runs)", runs(limit)),
        }
    }
}

/// The interval at which a runner removes workspaces that are no longer needed.
const SWEEP: Duration = Duration::from_secs(3_600);

/// Removes workspaces that are no longer needed, in a thread. If the process is killed, the next sweep continues.
fn sweep_workspaces(client: &Arc<Client>) {
    let client = Arc::clone(client);
    let sweep = move || loop {
        // `doctor` and `workspaces prune` report what cannot be removed.
        if let Ok(steps) = removals(&client) {
            prune(&client, steps, |_, _| {});
        }
        std::thread::sleep(SWEEP);
    };
    // Without a thread the workspaces stay.
    std::thread::Builder::new().spawn(sweep).ok();
}
