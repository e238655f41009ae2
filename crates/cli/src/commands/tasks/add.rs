use std::num::NonZeroU32;
use std::path::PathBuf;

use banksman_adapters::ids;
use banksman_core::task::admission::Reason;
use banksman_core::task::retry::Policy;
use banksman_core::task::{LiveInput, Spec};
use banksman_core::{Name, Status, TaskId, Title};
use banksman_engine::why::{Answer, Cause, Why};
use banksman_engine::{TaskOutcome, TaskRequest};
use banksman_runtime::config::Config;
use banksman_runtime::inspect;
use clap::{ArgGroup, Args};

use super::refused::refused;
use super::task_args::{FoundTask, TaskArgs};
use super::{agents, spec, view};
use crate::commands::ExitResult;
use crate::commands::pipelines::StartRequest;
use crate::commands::resources::Dur;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM};
use crate::views::tasks::{Added, Brief};

/// Add a task.
///
/// With --run or --agent a runner runs it as soon as nothing blocks it; without either the task is manual. A command runs in the
/// project's directory, through a shell, with BANKSMAN_TASK, BANKSMAN_TITLE, BANKSMAN_RUN and BANKSMAN_RUN_EPOCH in its environment. An
/// agent works in a git worktree of its own, if the project is a git repository.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("work").args(["run", "agent"])),
    after_help = "Examples:\n  banksman tasks add 'Add login' --agent claude --prompt 'With OAuth, as in docs/auth.md'\n  banksman tasks add 'Run the tests' --run 'make test' --retries 1\n  banksman tasks add 'Release' --run ./release.sh --depends-on 'Run the tests' --lock deploy\n  banksman tasks add 'Train' --run 'python train.py' --semaphore gpu=2 --section models --max-duration 6h --silence-timeout 1h\n  banksman tasks add 'Add login' --runbook feature --var branch=login\n  banksman tasks add 'Decide about the name'"
)]
pub(super) struct Add {
    /// Its title
    title: Title,
    /// The command line to run, in a shell
    #[arg(long, value_name = "CMD")]
    run: Option<String>,
    /// The agent that does the work [see: banksman agents list]
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// Instructions for the agent, in addition to the title
    #[arg(long, value_name = "TEXT", requires = "agent", conflicts_with = "spec")]
    prompt: Option<String>,
    /// Read the instructions from this file; - for stdin
    #[arg(long, value_name = "FILE", requires = "agent")]
    spec: Option<PathBuf>,
    /// Run a pipeline of this runbook: its name or path, and the pipeline if it has several
    #[arg(long, value_name = "FILE[:PIPELINE]", conflicts_with_all = ["run", "agent", "locks", "semaphores", "retries", "looped"])]
    runbook: Option<String>,
    /// A variable of that pipeline: NAME=TEXT or NAME:=JSON; may be given more than once
    #[arg(long = "var", value_name = "NAME=VALUE", requires = "runbook")]
    vars: Vec<String>,
    #[command(flatten)]
    place: TaskArgs,
    /// How many times a failed run is retried
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    retries: u32,
    /// Retry until the task reports that it is done: with `tasks done` in its run, or with the file DONE in BANKSMAN_TASK_DIR
    #[arg(long = "loop", requires = "work", conflicts_with = "retries")]
    looped: bool,
    /// Maximum number of attempts [default: loop.max_attempts]
    #[arg(long, value_name = "N", requires = "looped", alias = "max-restarts")]
    max_attempts: Option<NonZeroU32>,
    /// Delay between two attempts [default: loop.restart_delay]
    #[arg(long, value_name = "DUR", requires = "looped")]
    restart_delay: Option<Dur>,
    /// How long a run may take [default: task.max_duration]
    #[arg(long, value_name = "DUR", requires = "work")]
    max_duration: Option<Dur>,
    /// How long a run may be silent before it counts as stuck [default: task.silence_timeout]
    #[arg(long, value_name = "DUR", requires = "work")]
    silence_timeout: Option<Dur>,
    /// Give its runs a terminal, which `sessions attach` shows
    #[arg(long, requires = "run", conflicts_with_all = ["input", "agent"])]
    pty: bool,
    /// Give its runs a pipe as stdin, which `send` writes to; otherwise stdin is empty
    #[arg(long, requires = "run", conflicts_with = "agent")]
    input: bool,
    /// A lock that its runs hold while they live; may be given more than once
    #[arg(long = "lock", value_name = "NAME")]
    locks: Vec<Name>,
    /// Slots that its runs hold while they live; may be given more than once
    #[arg(long = "semaphore", value_name = "NAME[=WEIGHT]")]
    semaphores: Vec<String>,
}

impl Add {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        if self.runbook.is_some() {
            return self.start_request()?.carry_out(context);
        }
        let needs = spec::named_needs(&self.locks, &self.semaphores)?;
        let work = self.run.as_deref().map(|run| spec::work(run).map_err(|error| error.at("--run"))).transpose()?;
        let client = context.client()?;
        let work = match &self.agent {
            Some(agents) => {
                let prompt = agents::prompt(self.prompt.as_deref(), self.spec.as_deref())?;
                Some(agents::work(client.config(), agents, prompt)?)
            }
            None => work,
        };
        let mut reader = client.reader()?;
        let restart = self.policy(client.config());
        let timeout = self.max_duration.map(|max| max.positive("--max-duration")).transpose()?;
        let silence = self.silence_timeout.map(|silence| silence.positive("--silence-timeout")).transpose()?;
        let FoundTask { spec, section, depends_on, by } = self.place.find(self.title, work.as_ref(), &client, &mut reader)?;
        let input = match (self.pty, self.input) {
            (true, _) => Some(LiveInput::Terminal),
            (false, true) => Some(LiveInput::Pipe),
            (false, false) => None,
        };
        let spec = Spec { work, needs, retries: self.retries, restart, timeout, silence, input, ..spec };
        let id = TaskId::new(&ids::short("t")).expect("a short id is valid");
        let request = TaskRequest::Add { id: id.clone(), spec: Box::new(spec), depends_on: depends_on.clone(), by };
        let task = match client.request(request)? {
            TaskOutcome::Kept(task) => *task,
            // The parent is the task that was fenced.
            outcome => return Err(refused(super::inherited()?.as_ref().map_or(&id, |(parent, _)| parent), &outcome)),
        };
        // A runner may have started the task before this read, and a person may have deleted it.
        let why = inspect::why(&mut reader, client.project(), &id)?;
        let view = Added {
            task: Brief { status: why.as_ref().map_or(task.status(), |why| why.status), ..Brief::from(&task) },
            section: section.as_ref().map(|section| &section.name),
            parent: &task.spec.parent,
            depends_on: depends_on.iter().map(|edge| &edge.on).collect(),
            unmet: why.as_ref().map_or(0, |why| why.unmet),
            admission: if why.as_ref().is_some_and(Why::is_started) { "started" } else { "queued" },
            queue_position: why.as_ref().and_then(Why::position),
            runner_alive: why.as_ref().is_some_and(|why| why.has_runner),
        };
        let said = why.as_ref().map_or_else(|| "deleted".into(), describe);
        context.printer.print(&view, format!("added {BOLD}{id}{BOLD:#} {}: {said}", task.spec.title));
        if !context.printer.json {
            let untrusted = agents::untrusted(client.project(), &task);
            let notes = why.iter().flat_map(notes).chain(untrusted);
            notes.for_each(|note| context.printer.note(&format!("{DIM}{note}{DIM:#}")));
        }
        Ok(exit::OK)
    }

    /// The pipeline to start for `--runbook`.
    fn start_request(self) -> Result<StartRequest, Failure> {
        let runbook = self.runbook.unwrap_or_default();
        let (runbook, pipeline) = match runbook.rsplit_once(':') {
            Some((runbook, pipeline)) => (runbook.to_owned(), Some(Name::new(pipeline).map_err(Failure::usage)?)),
            None => (runbook, None),
        };
        Ok(StartRequest { pipeline, runbook: Some(runbook), vars: self.vars, title: Some(self.title), place: self.place })
    }

    /// The retry policy of a loop. The current settings are stored with the task.
    fn policy(&self, config: &Config) -> Option<Policy> {
        let policy = Policy {
            max_attempts: self.max_attempts.unwrap_or(config.restart.max_attempts),
            delay: self.restart_delay.map_or(config.restart.delay, Dur::span),
            ..config.restart.clone()
        };
        self.looped.then_some(policy)
    }
}

/// A short description of a new task, from the same data as `why`.
fn describe(why: &Why) -> String {
    match why.position() {
        _ if why.status == Status::Blocked => format!("waits for {}", view::tasks(why.unmet)),
        _ if why.task.spec.work.is_none() => "manual".into(),
        _ if why.is_started() => "starts at once".into(),
        Some(_) if !why.has_runner => "queued; no runner is running (start one: banksman run)".into(),
        Some(place) => format!("{} in the queue", format::ordinal(usize::try_from(place).unwrap_or(usize::MAX))),
        None => "queued".into(),
    }
}

/// A note that something the task needs does not exist or does not suffice.
fn note(cause: &Cause) -> Option<String> {
    match cause {
        Cause::Taken { reason: Reason::Undefined { resource }, .. } => Some(format!(
            "there is no semaphore {name} yet; define it with: banksman semaphores define {name} --capacity N",
            name = format::quoted(&resource.name)
        )),
        Cause::Taken { reason: Reason::Slots { resource, wanted, capacity, .. }, .. } if wanted > capacity => {
            Some(format!("semaphore {} has only {}, so the task can never start", resource.name, format::slots(*capacity)))
        }
        _ => None,
    }
}

/// The notes on a new task.
fn notes(why: &Why) -> Vec<String> {
    let causes = match &why.answer {
        Answer::Waits(causes) => &causes[..],
        _ => &[],
    };
    // A task with a queue position has this in its description.
    let is_idle = why.task.spec.work.is_some() && !why.has_runner && why.position().is_none();
    causes.iter().filter_map(note).chain(is_idle.then(|| super::NO_RUNNER.into())).collect()
}
