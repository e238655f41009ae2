use banksman_core::Pause as Pausing;
use banksman_engine::{PauseOutcome, PauseRequest, TaskOutcome};
use banksman_runtime::Client;
use banksman_store::Key;
use clap::Args;

use super::{because, user};
use crate::commands::tasks::{refused, runner_note};
use crate::commands::{ExitResult, find};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::person_only;
use crate::printer::{BOLD, DIM, GREEN};
use crate::views::pausing::{PausedView, StopView, StoppedTask};

/// The number of stopped tasks that the output names.
const NAMED: i64 = 3;

/// Resume the project, or tasks that were stopped.
///
/// Without TASK, this ends the pause of the project, no matter which command has paused it. Tasks that were stopped by name stay stopped
/// until they are resumed by name.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman resume\n  banksman resume 'Fix the login'")]
pub(crate) struct Resume {
    /// The tasks; their children are resumed, too
    #[arg(value_name = "TASK")]
    tasks: Vec<String>,
}

impl Resume {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        if self.tasks.is_empty() { resume_project(context, &client) } else { self.resume_tasks(context, &client) }
    }

    fn resume_tasks(self, context: &Context, client: &Client) -> ExitResult {
        let mut reader = client.reader()?;
        let ids = find::task_ids(&mut reader, self.tasks.iter().map(String::as_str))?;
        let request = PauseRequest::ResumeTasks { by: user(), tasks: ids.clone() };
        let resumed = match client.request(request)? {
            PauseOutcome::TasksResumed(resumed) => resumed,
            PauseOutcome::Unknown(id) => return Err(refused(&id, &TaskOutcome::Unknown)),
            outcome => return Err(Failure::unexpected(&outcome)),
        };
        let tasks = reader.view().load(&ids.iter().cloned().map(Key::Task).collect())?.tables.backlog.tasks;
        let (mut views, mut lines) = (Vec::new(), Vec::new());
        for task in ids.iter().filter_map(|id| tasks.get(id)) {
            let name = format!("{BOLD}{}{BOLD:#} {DIM}{}{DIM:#}", task.spec.title, task.id);
            let (outcome, line) = match resumed.contains(&task.id) {
                true => ("resumed", format!("{GREEN}resumed{GREEN:#} {name}")),
                false => ("not_stopped", format!("{name} was not stopped")),
            };
            views.push(StoppedTask { id: &task.id, title: &task.spec.title, outcome });
            lines.push(line);
        }
        let pause = client.load(&Default::default())?.tables.backlog.pause;
        if let Some(pause) = &pause {
            lines.push(format!("{DIM}the project is paused: {}; resume it with: banksman resume{DIM:#}", because(pause)));
        }
        let view = StopView { paused: pause.as_ref().map(Into::into), tasks: views, sessions: Vec::new() };
        context.printer.result(&view, lines.join("\n"))
    }
}

fn resume_project(context: &Context, client: &Client) -> ExitResult {
    let was = match client.request(PauseRequest::Resume { by: user(), only_stopped: false })? {
        PauseOutcome::Resumed(was) => was,
        outcome => return Err(Failure::unexpected(&outcome)),
    };
    let mut reader = client.reader()?;
    let sessions = reader.view().load(&[Key::Live].into())?.backlog.runs.values().filter(|run| run.is_live()).count();
    let (outcome, mut human) = match &was {
        Some(_) => ("resumed", format!("{GREEN}resumed{GREEN:#}: tasks are started again")),
        None => ("not_paused", "the project is not paused".into()),
    };
    let stopped = reader.view().stopped(NAMED)?;
    if let Some(first) = stopped.first() {
        let titles: Vec<&str> = stopped.iter().map(|task| task.spec.title.as_str()).collect();
        human.push_str(&format!("\n{DIM}still stopped: {} (banksman resume {}){DIM:#}", titles.join(", "), first.id));
    }
    context.printer.print(&PausedView { paused: None, outcome, sessions }, human);
    if let Some(note) = runner_note(client, &mut reader)?.filter(|_| was.is_some() && !context.printer.json) {
        context.printer.note(&format!("{DIM}{note}{DIM:#}"));
    }
    Ok(exit::OK)
}

/// Ends a pause that was made by stopping: a new runner means that the work continues. Returns the pause that ended.
/// Does nothing inside of a run, because only a person ends a pause.
pub(crate) fn lift(context: &Context) -> Result<Option<Pausing>, Failure> {
    let client = context.client()?;
    let pause = client.load(&Default::default())?.tables.backlog.pause;
    if pause.is_none_or(|pause| !pause.verb.is_lifted_by_run()) || person_only::require_person("resume", context).is_err() {
        return Ok(None);
    }
    match client.request(PauseRequest::Resume { by: user(), only_stopped: true })? {
        PauseOutcome::Resumed(lifted) => Ok(lifted),
        PauseOutcome::StillPaused(_) => Ok(None),
        outcome => Err(Failure::unexpected(&outcome)),
    }
}
