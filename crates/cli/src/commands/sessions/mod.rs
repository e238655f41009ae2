//! Sessions: the live process trees of runs.

mod attach;
mod kill;
mod nudge;
mod view;

use std::io::ErrorKind;

use banksman_adapters::keeper::{self, Found, InputRefusal, Silence, Status, TalkError};
use banksman_core::backlog::Run;
use banksman_core::{RunId, Task};
use banksman_runtime::inspect::{self, LiveRun};
use banksman_runtime::{Project, Sessions as Files};
use banksman_store::Key;
use clap::Args;

use super::recording::record_ended;
use super::tail::{self, LogFlags};
use super::{ExitResult, find};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::DIM;
use crate::table::TableFlags;
use crate::views::Named;

/// The columns of a list of sessions.
const COLUMNS: [&str; 10] =
    ["RUN??", "STATE~", "TASK~", "TRY>????", "RUNNER????", "KEEPER>?????", "CHILD>?????", "PROCESSES>???", "OUTPUT>?", "FOR>"];

/// The number of ended runs that `--all` shows.
const ENDED: i64 = 20;

subcommands! {
    /// List and control sessions: the live processes of runs.
    #[command(after_help = "Examples:\n  banksman sessions list\n  banksman sessions logs r-7k2m9q1a --follow")]
    pub(crate) noun Sessions {
        List(List),
        Show(Show),
        Logs(Logs),
        Attach(attach::Attach),
        Send(SendTo),
        Nudge(nudge::Nudge),
        Kill(kill::Kill),
    }
}

/// List the live sessions.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman sessions list\n  banksman sessions list --all")]
pub(crate) struct List {
    /// Also the last ended sessions
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    table: TableFlags,
}

/// Show one session: its processes, its output, how it ended.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman sessions show r-7k2m9q1a")]
struct Show {
    /// The run, the beginning of its id, or the task
    run: String,
}

/// Print the output of a session.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman sessions logs r-7k2m9q1a --tail 20\n  banksman sessions logs r-7k2m9q1a --follow")]
struct Logs {
    /// The run, the beginning of its id, or the task
    run: String,
    #[command(flatten)]
    flags: LogFlags,
}

/// Send a message to the task of a live run: into its session if that takes input, otherwise into its mailbox.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman sessions send r-7k2m9q1a 'use port 8080'")]
struct SendTo {
    /// The run, the beginning of its id, or the task
    run: String,
    #[command(flatten)]
    message: super::send::Body,
}

/// A run with the observed state of its session.
struct Observed {
    run: Run,
    title: String,
    /// The live run with its runner, while it lives.
    live: Option<LiveRun>,
    /// The record, if the session is on this machine.
    found: Option<Found>,
    /// The keeper's answer, if the session lives.
    status: Option<Status>,
    /// The reason why a live keeper does not answer.
    silence: Option<Silence>,
}

impl Observed {
    fn live(live: LiveRun, files: &Files, host: &str) -> Observed {
        // A keeper that ends right now does not answer; its record, or the run's row, has the rest.
        let here = *live.run.host == *host;
        let found = here.then(|| files.read_record(&live.run.id).ok()).flatten();
        let (status, silence) = match &found {
            Some(Found::Live(record)) if keeper::is_stopped(record) => (None, Some(Silence::Stopped)),
            Some(Found::Live(_)) => match keeper::status(&files.record(&live.run.id)) {
                Ok(status) => (Some(status), None),
                Err(error) => (None, (error.kind() == ErrorKind::TimedOut).then_some(Silence::Busy)),
            },
            _ => (None, None),
        };
        Observed { run: live.run.clone(), title: live.title.to_string(), live: Some(live), found, status, silence }
    }

    fn ended(run: Run, task: Option<&Task>) -> Observed {
        let title = task.map(|task| task.spec.title.to_string()).unwrap_or_default();
        Observed { run, title, live: None, found: None, status: None, silence: None }
    }
}

impl List {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let mut reader = project.reader()?;
        record_ended(context, &project, &mut reader)?;
        let (at, live) = inspect::sessions(&mut reader, &project)?;
        let files = Files::new(&project);
        let mut observed: Vec<Observed> = live.into_iter().map(|live| Observed::live(live, &files, &project.host().id)).collect();
        if self.all {
            let ended = reader.view().last_runs(ENDED)?;
            let keys = ended.iter().map(|run| Key::Task(run.task.clone())).collect();
            let tasks = reader.view().load(&keys)?.tables.backlog.tasks;
            // Runs that ended between the two reads are in both.
            let known: Vec<RunId> = observed.iter().map(|observed| observed.run.id.clone()).collect();
            let ended = ended.into_iter().filter(|run| !known.contains(&run.id));
            observed.extend(ended.map(|run| Observed::ended(run.clone(), tasks.get(&run.task))));
        }
        let human = if observed.is_empty() {
            let all = if self.all { "no run has been started yet" } else { "no live sessions" };
            format!("{all}\n{DIM}next: banksman status{DIM:#}")
        } else {
            let rows = observed.iter().map(|observed| view::row(observed, at)).collect();
            self.table.render(&COLUMNS, rows)?
        };
        let data: Vec<_> = observed.iter().map(|observed| view::summary(observed, &project)).collect();
        context.printer.result(&Named("sessions", data), human)
    }
}

impl Show {
    fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let mut reader = project.reader()?;
        let run = find::run(&mut reader, &self.run)?;
        record_ended(context, &project, &mut reader)?;
        let (at, live) = inspect::sessions(&mut reader, &project)?;
        let observed = match live.into_iter().find(|live| live.run.id == run.id) {
            Some(live) => Observed::live(live, &Files::new(&project), &project.host().id),
            None => {
                // The run may have ended since it was found.
                let run = find::run(&mut reader, run.id.as_str())?;
                let tasks = reader.view().load(&[Key::Task(run.task.clone())].into())?.tables.backlog.tasks;
                Observed::ended(run.clone(), tasks.get(&run.task))
            }
        };
        context.printer.result(&view::details(&observed, &project), view::page(&observed, &project, at))
    }
}

impl SendTo {
    fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        self.message.send_to_run(context, &client, &self.run)
    }
}

impl Logs {
    fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let run = find::run(&mut project.reader()?, &self.run)?;
        tail::print(context, &project, &run, &self.flags)
    }
}

/// The failure of a request to a keeper.
pub(crate) fn talk_failure(error: TalkError, run: &RunId) -> Failure {
    let message = format!("run {run}: {error}");
    let failure = |exit, code| Failure::new(exit, code, message.clone()).detail("run", run);
    match error {
        TalkError::Gone => failure(exit::NOT_FOUND, "SESSION_ENDED").hint(format!("read its log: banksman sessions logs {run}")),
        TalkError::Silent => {
            failure(exit::UNHEALTHY, "SESSION_SILENT").hint(format!("see what it does: banksman sessions show {run}"))
        }
        TalkError::Cannot => {
            failure(exit::USAGE, "SESSION_CANNOT").hint("its next run supports this, if a runner of this version starts it")
        }
        TalkError::Refused(InputRefusal::Typing | InputRefusal::Full { .. } | InputRefusal::NotTypist) => {
            failure(exit::LOCKED, "SESSION_BUSY").hint("retry later")
        }
        TalkError::Refused(InputRefusal::NoInput | InputRefusal::Closed) => failure(exit::USAGE, "SESSION_NO_INPUT")
            .hint("only tasks added with --pty or --input take input; for other tasks: banksman sessions logs --follow"),
        TalkError::Unknown => failure(exit::ERROR, "DELIVERY_UNKNOWN").hint("the message is not sent again automatically"),
        TalkError::System(_) => failure(exit::ERROR, "SYSTEM"),
    }
}

/// Whether the session of a run is, or was, on this machine.
fn is_here(run: &Run, project: &Project) -> bool {
    run.host == project.host().id
}
