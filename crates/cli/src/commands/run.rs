use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use banksman_core::pipeline::{Reason as Blocked, State as Stand};
use banksman_core::task::{After, Outcome, RetryReason, State, TaskEnd};
use banksman_core::{Limits, Pipeline, RunId, RunnerId, SectionId, Status, TaskId};
use banksman_engine::why::{Attended, Life};
use banksman_engine::{RunnerEvent, Work};
use banksman_runtime::inspect::{self, LiveRun};
use banksman_runtime::workspaces::{prune, removals};
use banksman_runtime::{Client, Error, RunOptions, Runner, RunnerReport, recover_run};
use banksman_store::Key;
use clap::Args;
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;

use super::doctor::limit_differences;
use super::{ExitResult, find, status, top};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::output_queue::OutputQueue;
use crate::printer::{BOLD, CYAN, DIM, GREEN, RED, YELLOW};
use crate::signals::Signals;
use crate::views::Named;
use crate::views::status::ItemsView;

/// How many pipelines are looked at when those that cannot go on are named.
const NAMED: i64 = 100;

/// How long this process may take to leave after it was asked to.
const LEAVE_WITHIN: Duration = Duration::from_secs(15);

/// Claim tasks and run them.
///
/// Any number of runners may work on one project. A runner that is stopped leaves its sessions running; the next one
/// looks after them. In a store that is not trusted, a runner starts nothing: it looks after sessions that live already until they
/// end, and exits with 5 if there are none.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman run\n  banksman run --until-idle --max-runs 4")]
pub(crate) struct Run {
    /// How many tasks this runner runs at a time, at most: a share of what limits.max_concurrent_runs allows the project
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_runs: Option<u32>,
    /// Work on tasks of this section only; may be given more than once
    #[arg(long = "section", value_name = "SECTION")]
    sections: Vec<String>,
    /// End when nothing is left to do: with 0 if every task is completed and no item of a worker is dead, else with 7; with 130 if
    /// it is interrupted before
    #[arg(long)]
    until_idle: bool,
    /// Show the screen of banksman top meanwhile; leaving it stops this runner
    #[arg(long, conflicts_with = "json")]
    top: bool,
    /// Another command prints what came of it.
    #[arg(skip)]
    is_for_others: bool,
}

/// What came of a runner that has ended because nothing is left to do.
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

/// The runs that were looked after where nothing may be started.
#[derive(Serialize)]
struct Adopted<'a> {
    runner: Option<RunnerId>,
    adopted: &'a [RunId],
}

impl Run {
    /// A runner that ends when nothing is left to do, and leaves it to another command to print what came of it.
    pub(crate) fn for_others(max_runs: Option<u32>) -> Run {
        Run { max_runs, sections: Vec::new(), until_idle: true, top: false, is_for_others: true }
    }

    /// The sections that it works in. The connection that they are looked up with is not kept: it may be one of few.
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
        let mut signals = Signals::install().map_err(|error| Failure::system("take note of signals", error))?;
        let client = context.client_of_nobody()?;
        let sections = self.section_ids(&client)?;
        let files = context.sessions(client.project());
        let options = RunOptions { max_runs: self.max_runs, sections, until_idle: self.until_idle };
        let runner = match Runner::new(&client, files, options) {
            Err(refusal @ Error::Untrusted { .. }) => return adopt_only(context, &client, &mut signals, refusal),
            runner => runner?,
        };
        let id = runner.id().clone();
        sweep_workspaces(&client);
        // Whoever reads the output, or does not, holds no task up; and a signal ends this process in any case.
        let output = OutputQueue::start(context.printer.clone()).map_err(|error| Failure::system("start a thread", error))?;
        exit_after_signal(signals.as_fd()).map_err(|error| Failure::system("start a thread", error))?;
        let settings = client.config().limits();
        let limits = client.load(&Default::default())?.backlog.limits.unwrap_or(settings);
        output.note(format!("{DIM}runner {id} is at work: {}{DIM:#}", self.share(limits)));
        for (text, command) in limit_differences(settings, limits) {
            output.note(format!("{DIM}note: {text}; to apply the setting: {command}{DIM:#}"));
        }
        let mut trouble = Trouble::default();
        runner.run(signals.as_fd(), &mut |told| {
            trouble.filter(told).into_iter().filter_map(line).for_each(|line| output.note(line))
        })?;
        let is_interrupted = !signals.take().is_empty();
        if !self.until_idle || is_interrupted {
            let sessions = client.load(&[Key::Live].into())?.backlog.runs;
            let left = sessions.values().any(|run| run.is_live() && run.owner == id);
            let left = format!("runner {id} has left{}", if left { "; its sessions go on" } else { "" });
            // Whoever waits for the end of the work must not take this for it.
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
        let counts = client.reader()?.view().counts()?;
        let completed = counts.by_status.get(&Status::Completed).copied().unwrap_or_default();
        let all: u64 = counts.by_status.values().sum();
        let blocked = blocked(&client)?;
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
        output.result(&view, human);
        output.finish();
        Ok(if completed == all && counts.items.dead.is_empty() { exit::OK } else { exit::UNHEALTHY })
    }
}

/// The store is not trusted, so nothing of it is started. Sessions that live already are looked after until they end.
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
    let sessions =
        if left.len() == 1 { "1 session that lives is".into() } else { format!("{} sessions that live are", left.len()) };
    output.note(format!("{YELLOW}note:{YELLOW:#} {refusal}; {sessions} looked after until the end"));
    let cancel = signals.as_fd();
    let (lines, said) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for run in left.clone() {
            let (files, lines) = (context.sessions(client.project()), lines.clone());
            // The receiver lives longer than the threads.
            let note = move |text: String| drop(lines.send(text));
            scope.spawn(move || {
                let mut tell = |told| line(told).into_iter().for_each(&note);
                if let Err(error) = recover_run(client, files, run.clone(), cancel, Duration::MAX, &mut tell) {
                    note(format!("{RED}run {run}{RED:#}: {error}"));
                }
            });
        }
        drop(lines);
        said.into_iter().for_each(|line| output.note(line));
    });
    let is_interrupted = !signals.take().is_empty();
    output.result(&Adopted { runner: None, adopted: &left }, "nothing was started: to trust the store: banksman trust".into());
    output.finish();
    if is_interrupted { Err(Failure::interrupted()) } else { Ok(exit::OK) }
}

/// The pipelines that cannot go on without a person.
fn blocked(client: &Client) -> Result<Vec<Pipeline>, Failure> {
    let open = client.reader()?.view().open_pipelines(NAMED)?;
    let is_blocked = |pipeline: &Pipeline| match &pipeline.state {
        Stand::Blocked { reason, .. } => *reason != Blocked::Dependencies,
        _ => false,
    };
    Ok(open.into_iter().map(|hosted| hosted.pipeline).filter(is_blocked).collect())
}

impl Run {
    /// The same runner as a process of its own.
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

/// Why a run is being stopped.
pub(super) fn after(then: &After) -> String {
    match then {
        After::Cancel => "it is cancelled".into(),
        After::Fail { error } | After::Escalate { error } => error.to_string(),
        After::Overtime { max } => format!("it has taken longer than {}", format::span(*max)),
        After::Restart => "no activity, restarting".into(),
    }
}

/// Ends this process some time after a signal has asked it to, whatever it is doing: its sessions live on, and the next runner
/// finds them. The end of the wait for somebody who reads its last words is one such case.
fn exit_after_signal(signals: BorrowedFd<'_>) -> std::io::Result<()> {
    let signals = signals.try_clone_to_owned()?;
    let wait = move || {
        while poll(&mut [PollFd::new(&signals, PollFlags::IN)], None) != Ok(1) {}
        std::thread::sleep(LEAVE_WITHIN);
        std::process::exit(i32::from(exit::INTERRUPTED));
    };
    std::thread::Builder::new().name("banksman-exit".into()).spawn(wait).map(drop)
}

/// The last error of the store: it is told once, and so is that it is over.
#[derive(Default)]
struct Trouble(Option<String>);

impl Trouble {
    /// What of this people have not heard yet.
    fn filter(&mut self, told: RunnerReport) -> Vec<RunnerReport> {
        match told {
            RunnerReport::Trouble(error) => {
                let is_known = self.0.replace(error.to_string()).is_some_and(|before| before == error.to_string());
                if is_known { Vec::new() } else { vec![RunnerReport::Trouble(error)] }
            }
            other => {
                self.0 = None;
                vec![other]
            }
        }
    }
}

/// What has happened, in a line for people.
fn line(report: RunnerReport) -> Option<String> {
    let name = |work: &Work| format!("{BOLD}{}{BOLD:#} {DIM}{}{DIM:#}", work.task.spec.title, work.task.id);
    let text = match report {
        RunnerReport::Event(RunnerEvent::Started(work)) => format!("{GREEN}started{GREEN:#}    {}", name(&work)),
        RunnerReport::Event(RunnerEvent::Adopted(work)) => format!("{YELLOW}adopted{YELLOW:#}    {}", name(&work)),
        RunnerReport::Event(RunnerEvent::Stuck(work)) => format!("{YELLOW}stuck{YELLOW:#}      {}", name(&work)),
        RunnerReport::Event(RunnerEvent::Recovered(work)) => format!("{GREEN}recovered{GREEN:#}  {}", name(&work)),
        RunnerReport::Event(RunnerEvent::Stopping(work)) => {
            let why = match &work.task.state {
                State::Stopping { then, .. } => format!(": {}", after(then)),
                _ => String::new(),
            };
            format!("{YELLOW}stopping{YELLOW:#}   {}{why}", name(&work))
        }
        RunnerReport::Event(RunnerEvent::Settled(task, outcome)) => {
            let title = format!("{BOLD}{}{BOLD:#} {DIM}{}{DIM:#}", task.spec.title, task.id);
            match outcome {
                Outcome::Ended(Status::Completed) => {
                    let warning = match &task.state {
                        State::Done(TaskEnd::Success { warning: Some(warning), .. }) => format!(": {YELLOW}{warning}{YELLOW:#}"),
                        _ => String::new(),
                    };
                    format!("{GREEN}completed{GREEN:#}  {title}{warning}")
                }
                Outcome::Ended(status) => {
                    let why = super::tasks::error(&task).map(|error| format!(": {error}")).unwrap_or_default();
                    format!("{RED}{status:<9}{RED:#}  {title}{why}")
                }
                Outcome::Landing => format!("{CYAN}landing{CYAN:#}    {title}"),
                Outcome::Awaiting(children) => format!("{YELLOW}waits{YELLOW:#}      {title} for {children} children"),
                Outcome::EndChildren => format!("{YELLOW}waits{YELLOW:#}      {title} for its children, which are being ended"),
                _ => return None,
            }
        }
        // That its pipeline is blocked is told of the pipeline.
        RunnerReport::Event(RunnerEvent::Ended(_, _, Outcome::Again(RetryReason::Shortage | RetryReason::Guard))) => return None,
        RunnerReport::Event(RunnerEvent::Short(error)) => {
            format!("{YELLOW}waiting{YELLOW:#}    {error}; tasks stay pending, and are tried again")
        }
        RunnerReport::Event(RunnerEvent::Enough) => format!("{GREEN}going on{GREEN:#}   there is enough to start runs again"),
        RunnerReport::Event(RunnerEvent::Ended(work, ended, outcome)) => {
            let took = format::span(ended.at - work.run.started.wall);
            let how = match outcome {
                Outcome::Ended(Status::Completed) => format!("{GREEN}completed{GREEN:#}"),
                Outcome::Ended(status) => format!("{RED}{status:<9}{RED:#}"),
                Outcome::AwaitingDecision(_) => format!("{RED}needs you{RED:#}"),
                Outcome::Landing => format!("{CYAN}landing{CYAN:#}  "),
                Outcome::Awaiting(_) => format!("{YELLOW}waits{YELLOW:#}    "),
                _ => format!("{YELLOW}retrying{YELLOW:#} "),
            };
            let why = match outcome {
                Outcome::Ended(Status::Completed) | Outcome::Landing => String::new(),
                Outcome::Awaiting(children) => format!(": it is done, {children} of its children are not"),
                Outcome::AwaitingDecision(decision) => format!(": what now? banksman decisions show {decision}"),
                Outcome::Again(setback) => format!(": {}", setback.words(&ended.ending)),
                Outcome::Ended(_) if super::tasks::error(&work.task).is_some() => {
                    format!(": {}", super::tasks::error(&work.task).unwrap_or_default())
                }
                _ => format!(": {}", ended.ending),
            };
            let note = ended.note.map(|note| format!(" {DIM}({note}){DIM:#}")).unwrap_or_default();
            format!("{how}  {} {DIM}after {took}{DIM:#}{why}{note}", name(&work))
        }
        RunnerReport::Event(RunnerEvent::Begins(pipeline)) => {
            format!("{GREEN}begins{GREEN:#}     {BOLD}{}{BOLD:#} {DIM}{}{DIM:#}", pipeline.plan.name, pipeline.id)
        }
        RunnerReport::Event(RunnerEvent::Stands(pipeline)) => {
            let name = format!("{BOLD}{}{BOLD:#} {DIM}{}{DIM:#}", pipeline.plan.name, pipeline.id);
            let why = super::why::detail(&pipeline, None).unwrap_or_default();
            match &pipeline.state {
                Stand::Blocked { phase, when, .. } => {
                    format!("{YELLOW}blocked{YELLOW:#}    {name} {}: {why}", super::why::side(*when, phase))
                }
                Stand::Failed { phase, .. } => format!("{RED}failed{RED:#}     {name} in phase {phase}: {why}"),
                Stand::Done => format!("{GREEN}done{GREEN:#}       {name}"),
                Stand::Init | Stand::Checking { .. } | Stand::Running { .. } | Stand::Cancelled { .. } => return None,
            }
        }
        RunnerReport::Event(RunnerEvent::Unfit { worker, queue, item, error }) => {
            format!("{RED}unfit{RED:#}      item {BOLD}{item}{BOLD:#} of queue {queue} for worker {worker}: {error}")
        }
        RunnerReport::Event(RunnerEvent::Landing(entry)) => super::landing::line(&entry)?,
        RunnerReport::Event(RunnerEvent::LandingTrouble(target, error)) => {
            format!("{YELLOW}not landing{YELLOW:#} on {target}: {error}")
        }
        RunnerReport::Event(RunnerEvent::Queued(_)) => return None,
        RunnerReport::Trouble(error) => format!("{RED}the store does not answer{RED:#}: {error}; trying again"),
        RunnerReport::RunTrouble(run, what) => format!("{RED}run {run}{RED:#}: {what}"),
        RunnerReport::NoticeTrouble(notice, what) => {
            format!("{RED}cannot send the notification{RED:#} \"{}\": {what}", notice.subject)
        }
        RunnerReport::Left { sessions, within } => {
            let (within, what) = (format::span(within), if sessions == 1 { "session goes" } else { "sessions go" });
            format!("{YELLOW}{sessions} {what} on{YELLOW:#}, but only for {within} unless banksman run is started here again")
        }
    };
    Some(text)
}

/// How often a runner removes workspaces that nobody needs any more.
const SWEEP: Duration = Duration::from_secs(3_600);

/// Removes workspaces that nobody needs any more, beside everything else. Where the thread is killed, the next sweep goes on.
fn sweep_workspaces(client: &Arc<Client>) {
    let client = Arc::clone(client);
    let sweep = move || loop {
        // What cannot be removed is told by `doctor` and `workspaces prune`.
        if let Ok(steps) = removals(&client) {
            prune(&client, steps, |_, _| {});
        }
        std::thread::sleep(SWEEP);
    };
    // Without a thread the workspaces stay.
    std::thread::Builder::new().spawn(sweep).ok();
}
