use std::os::fd::AsFd;

use banksman_adapters::keeper::Found;
use banksman_core::backlog::Run;
use banksman_core::task::Outcome;
use banksman_engine::why::Life;
use banksman_engine::{TaskOutcome, TaskRequest};
use banksman_runtime::{inspect, recover_run};
use clap::Args;

use crate::commands::end_wait::EndWait;
use crate::commands::resources::Dur;
use crate::commands::{ExitResult, find};
use crate::context::Context;
use crate::failure::Failure;
use crate::printer::{BOLD, DIM, RED, YELLOW};
use crate::signals::Signals;
use crate::views::sessions::Killed;

/// End a session with all its processes.
///
/// The processes are asked to end, and killed if they have not ended within task.kill_grace. The task of the session fails. The
/// runner of the session does this; if the runner is gone, this command does. The command returns when no process is left. A session
/// that had ended before is recorded as it ended.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman sessions kill r-7k2m9q1a\n  banksman sessions kill r-7k2m9q1a --no-wait")]
pub(super) struct Kill {
    /// The run, the beginning of its id, or the task
    run: String,
    /// Do not wait until its processes are dead
    #[arg(long)]
    no_wait: bool,
    /// Maximum time to wait [default: task.kill_grace and a minute]
    #[arg(long, value_name = "DUR", conflicts_with = "no_wait")]
    timeout: Option<Dur>,
}

impl Kill {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let signals = Signals::install()?;
        let client = context.client()?;
        let mut reader = client.reader()?;
        let run = find::run(&mut reader, &self.run)?;
        let wait = EndWait::new(&client, self.timeout);
        // A session that has ended by itself is recorded as it ended.
        if run.is_live() && matches!(context.sessions(client.project()).read_record(&run.id), Ok(Found::Ended(..))) {
            let files = context.sessions(client.project());
            recover_run(&client, files, run.id.clone(), signals.as_fd(), wait.left(), &mut |_| {})?;
        }
        let request = TaskRequest::Kill { id: run.task.clone(), run: run.id.clone(), error: "its session was killed".into() };
        let outcome = match client.request(request)? {
            TaskOutcome::Stepped(Outcome::Stopping, _) => "killed",
            // The run has ended, perhaps with another run after it.
            TaskOutcome::Fenced | TaskOutcome::Unknown => "already_ended",
            reply => return Err(Failure::unexpected(&reply)),
        };
        if outcome == "already_ended" {
            return said(context, &find::run(&mut reader, run.id.as_str())?, outcome, None);
        }
        if self.no_wait {
            let (_, live) = inspect::sessions(&mut reader, client.project())?;
            let live = live.into_iter().find(|live| live.run.id == run.id);
            let gone = live.filter(|live| live.attended.life == Life::Gone && live.attended.heir.is_none());
            let note = gone.map(|_| "its runner is gone; the next runner ends it: banksman run");
            return said(context, &run, "stopping", note);
        }
        wait.end_all(context, &client, &signals, std::slice::from_ref(&run.id))?;
        said(context, &find::run(&mut reader, run.id.as_str())?, outcome, None)
    }
}

fn said(context: &Context, run: &Run, outcome: &str, note: Option<&str>) -> ExitResult {
    let ended = run.ended.as_ref();
    let how = ended.map(|ended| ended.ending.to_string());
    let words = match outcome {
        "killed" => format!("{RED}killed{RED:#} run"),
        "stopping" => format!("{YELLOW}stopping{YELLOW:#} run"),
        _ => "already ended: run".into(),
    };
    let mut human = format!("{words} {BOLD}{}{BOLD:#} {DIM}of task {}{DIM:#}", run.id, run.task);
    human.extend(how.iter().map(|how| format!(": {how}")));
    human.extend(ended.and_then(|ended| ended.note.as_ref()).map(|note| format!(" {DIM}({note}){DIM:#}")));
    human.extend(note.map(|note| format!("\n{DIM}{note}{DIM:#}")));
    let note = ended.and_then(|ended| ended.note.as_deref()).or(note);
    context.printer.result(&Killed { run: &run.id, task: &run.task, outcome, ending: how, note }, human)
}
