use std::collections::BTreeSet;

use banksman_core::backlog::Run;
use banksman_core::task::RetryReason;
use banksman_core::{Pause as Pausing, PauseVerb, RunId, Task, TaskId};
use banksman_engine::{PauseOutcome, PauseRequest, Stopped, TaskOutcome};
use banksman_runtime::Client;
use banksman_store::Key;
use clap::Args;

use super::user;
use crate::commands::end_wait::EndWait;
use crate::commands::recording::record_ended;
use crate::commands::resources::Dur;
use crate::commands::tasks::refused;
use crate::commands::{ExitResult, find};
use crate::context::Context;
use crate::failure::Failure;
use crate::printer::{BOLD, DIM, YELLOW};
use crate::signals::Signals;
use crate::views::pausing::{StopView, StoppedSession, StoppedTask};

/// Stop sessions; their tasks become pending again, and no attempt is used up.
///
/// Without TASK, this stops all sessions and pauses the project: nothing is started until banksman resume, or until a runner is started
/// (banksman run, banksman do). With TASK, only these tasks and their children are stopped, until banksman resume TASK.
///
/// The processes of a session are asked to end, and killed if they have not ended within task.kill_grace. The command returns when they
/// are dead. A session that has ended meanwhile is recorded as it ended.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman stop\n  banksman stop --now\n  banksman stop 'Fix the login'")]
pub(crate) struct Stop {
    /// The tasks [default: all sessions of the project]
    #[arg(value_name = "TASK")]
    tasks: Vec<String>,
    /// Kill the processes at once, without task.kill_grace
    #[arg(long)]
    now: bool,
    /// Do not wait until the processes are dead
    #[arg(long)]
    no_wait: bool,
    /// Maximum time to wait [default: task.kill_grace and a minute]
    #[arg(long, value_name = "DUR", conflicts_with = "no_wait")]
    timeout: Option<Dur>,
}

/// The result of the request: the pause of the project or the stopped tasks, and the runs that end.
struct Asked {
    pause: Option<Pausing>,
    tasks: Vec<(TaskId, Stopped)>,
    stopping: Vec<RunId>,
}

impl Stop {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        let signals = Signals::install()?;
        let client = context.client()?;
        let mut reader = client.reader()?;
        let ids = find::task_ids(&mut reader, self.tasks.iter().map(String::as_str))?;
        // Record runs that have ended by themselves first, so that they do not count as stopped.
        record_ended(context, client.project(), &mut reader)?;
        let by = user();
        let request = match ids.is_empty() {
            true => PauseRequest::Stop { by, verb: PauseVerb::Stop, now: self.now },
            false => PauseRequest::StopTasks { by, tasks: ids, now: self.now },
        };
        let asked = ask(&client, request)?;
        let left = match self.no_wait {
            true => None,
            false => EndWait::new(&client, self.timeout).end_all(context, &client, &signals, &asked.stopping).err(),
        };
        print(context, &client, &asked)?;
        left.map_or(Ok(crate::exit_codes::OK), Err)
    }
}

/// Stops all sessions because the runner was interrupted, waits for their end, and returns a line about each.
pub(crate) fn stop_all(context: &Context, signals: &Signals) -> Result<Vec<String>, Failure> {
    let client = context.client()?;
    record_ended(context, client.project(), &mut client.reader()?)?;
    let asked = ask(&client, PauseRequest::Stop { by: user(), verb: PauseVerb::Interrupt, now: false })?;
    EndWait::new(&client, None).end_all(context, &client, signals, &asked.stopping)?;
    Ok(described(&client, &asked)?.1)
}

fn ask(client: &Client, request: PauseRequest) -> Result<Asked, Failure> {
    Ok(match client.request(request)? {
        PauseOutcome::Stopped { pause, stopping } => Asked { pause: Some(pause), tasks: Vec::new(), stopping },
        PauseOutcome::TasksStopped { tasks, stopping } => Asked { pause: None, tasks, stopping },
        PauseOutcome::Unknown(id) => return Err(refused(&id, &TaskOutcome::Unknown)),
        outcome => return Err(Failure::unexpected(&outcome)),
    })
}

/// The state of a run after the request to stop it.
fn outcome(run: &Run) -> &'static str {
    match &run.ended {
        None => "stopping",
        Some(ended) if ended.setback == Some(RetryReason::Stopped) => "stopped",
        Some(_) => "ended",
    }
}

struct Described {
    runs: Vec<(Run, Task)>,
    tasks: Vec<(Task, &'static str)>,
}

/// The current runs and tasks, and the lines about them.
fn described(client: &Client, asked: &Asked) -> Result<(Described, Vec<String>), Failure> {
    let mut reader = client.reader()?;
    let mut runs = Vec::new();
    for run in &asked.stopping {
        runs.push(find::run(&mut reader, run.as_str())?);
    }
    let keys = runs.iter().map(|run| &run.task).chain(asked.tasks.iter().map(|(id, _)| id)).cloned().map(Key::Task);
    let keys: BTreeSet<Key> = keys.collect();
    let known = if keys.is_empty() { Default::default() } else { reader.view().load(&keys)?.tables.backlog.tasks };
    let runs: Vec<(Run, Task)> =
        runs.into_iter().filter_map(|run| known.get(&run.task).cloned().map(|task| (run, task))).collect();
    let tasks: Vec<(Task, &'static str)> = asked
        .tasks
        .iter()
        .filter_map(|(id, stopped)| known.get(id).cloned().map(|task| (task, stopped)))
        .map(|(task, stopped)| (task, if *stopped == Stopped::Over { "already_over" } else { "stopped" }))
        .collect();
    let name = |task: &Task| format!("{BOLD}{}{BOLD:#} {DIM}{}{DIM:#}", task.spec.title, task.id);
    let mut lines: Vec<String> = Vec::new();
    for (run, task) in &runs {
        lines.push(match outcome(run) {
            "stopping" => format!("{YELLOW}stopping{YELLOW:#} {}", name(task)),
            "stopped" => format!("{YELLOW}stopped{YELLOW:#} {}, which is {} again", name(task), task.status()),
            _ => format!("{} had already ended: the task is {}", name(task), task.status()),
        });
    }
    for (task, outcome) in &tasks {
        match *outcome {
            "already_over" => lines.push(format!("{} is {} already", name(task), task.status())),
            _ => lines.push(format!("{} is not started until: banksman resume {}", name(task), task.id)),
        }
    }
    if asked.pause.is_some() {
        let none = if runs.is_empty() { "no session is running; " } else { "" };
        lines.push(format!(
            "{none}the project is {YELLOW}paused{YELLOW:#}; {DIM}nothing is started until: banksman resume (or banksman run){DIM:#}"
        ));
    }
    Ok((Described { runs, tasks }, lines))
}

fn print(context: &Context, client: &Client, asked: &Asked) -> Result<(), Failure> {
    let (described, lines) = described(client, asked)?;
    let sessions = described.runs.iter().map(|(run, task)| StoppedSession {
        run: &run.id,
        task: &task.id,
        title: &task.spec.title,
        status: task.status(),
        outcome: outcome(run),
    });
    let tasks = described.tasks.iter().map(|(task, outcome)| StoppedTask { id: &task.id, title: &task.spec.title, outcome });
    let view = StopView { paused: asked.pause.as_ref().map(Into::into), tasks: tasks.collect(), sessions: sessions.collect() };
    context.printer.print(&view, lines.join("\n"));
    Ok(())
}
