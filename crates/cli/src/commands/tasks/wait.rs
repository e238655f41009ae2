use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use banksman_core::event::{Kind, Resource};
use banksman_core::{Name, Status, Task, TaskId};
use banksman_runtime::{AwaitedTask, TaskWaitError, UntilOptions, WaitEnd, caller, wait_for_tasks};
use banksman_store::{Key, Reader};
use clap::Args;
use serde::Serialize;

use super::view;
use crate::commands::resources::{self, Dur};
use crate::commands::{ExitResult, find};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM};
use crate::signals::Signals;
use crate::views::tasks::Awaited;

/// Wait until tasks have ended.
///
/// Exits with 0 if all of them are completed, with 7 if one of them ended otherwise, and with 6 if the time is up. Inside
/// of a run, the run's slot is released while it waits and acquired again before the command returns; so a run may wait for its
/// children even if only one run is allowed at a time. A run that would wait for itself, directly or through other tasks, is
/// refused with the cycle, exit 9.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman tasks wait 'Run the tests'\n  banksman tasks wait t-7k2m9q1a t-0b4ndx3c --timeout 10m"
)]
pub(super) struct Wait {
    /// The tasks
    #[arg(required = true, value_name = "TASK")]
    tasks: Vec<String>,
    /// Maximum time to wait [default: unlimited]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    timeout: Option<Dur>,
}

impl Wait {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let signals = Signals::install()?;
        let client = context.client()?;
        let ids = find::task_ids(&mut client.reader()?, self.tasks.iter().map(String::as_str))?;
        let watched = context.printer.is_watched();
        let mut runners_seen = caller::run()?.is_some() || context.printer.json;
        let start = Instant::now();
        let mut progress = |reader: &mut Reader, tasks: &[AwaitedTask]| {
            if !std::mem::replace(&mut runners_seen, true) {
                let runners = reader.view().load(&[Key::Runners].into())?.tables.backlog.runners;
                if !runners.values().any(|runner| super::is_alive(&client, runner)) {
                    context.printer.note(&format!("{DIM}{}{DIM:#}", super::NO_RUNNER));
                }
            }
            if watched {
                context.printer.rewrite(&line(tasks, start.elapsed()));
            }
            Ok(())
        };
        let timeout = self.timeout.map(|timeout| timeout.0);
        let options = UntilOptions { cancel: signals.as_fd(), timeout, tick: watched.then_some(Duration::from_secs(1)) };
        let (files, open) = (context.sessions(client.project()), || context.runner_client().ok());
        let ended = wait_for_tasks(&client, &files, &ids, &options, &open, &mut progress);
        if watched {
            context.printer.rewrite("");
        }
        match ended.map_err(|error| failure(&ids, error))? {
            (WaitEnd::Met(()), tasks) => Ok(print(context, &tasks)),
            (WaitEnd::TimedOut, tasks) => Err(timed_out(&tasks)),
            (WaitEnd::Cancelled, _) => Err(Failure::interrupted()),
        }
    }
}

fn failure(tasks: &[TaskId], error: TaskWaitError) -> Failure {
    match error {
        TaskWaitError::Failed(error) => error.into(),
        TaskWaitError::Caller(error) => error.into(),
        TaskWaitError::Fenced { run } => Failure::new(exit::FENCED, "FENCED", format!("fenced: run {run} has ended"))
            .detail("run", &run)
            .hint("stop its remaining processes"),
        TaskWaitError::Deadlock { run, cycle } => {
            let names: Vec<&str> = tasks.iter().map(TaskId::as_str).collect();
            resources::circle(&format!("waiting for {}", names.join(", ")), &cycle)
                .detail("tasks", &tasks)
                .detail("run", &run)
                .hint("let one of them end first")
        }
        TaskWaitError::NoSlot(acquisition) => {
            let runs = Resource { kind: Kind::Semaphore, name: Name::runs() };
            match resources::granted(&runs, *acquisition) {
                Err(failure) => failure,
                Ok(_) => Failure::unexpected(&"a slot that was not taken"),
            }
        }
    }
}

fn is_completed(awaited: &AwaitedTask) -> bool {
    awaited.task.as_ref().is_some_and(|task| task.status() == Status::Completed)
}

fn to_view(awaited: &AwaitedTask) -> Awaited<'_> {
    let task = awaited.task.as_ref();
    Awaited {
        id: &awaited.id,
        title: task.map(|task| &task.spec.title),
        status: task.map_or("deleted", |task| task.status().as_str()),
        error: task.and_then(view::error),
    }
}

fn result_line(awaited: &AwaitedTask) -> String {
    let Some(task) = &awaited.task else { return format!("{} was deleted", awaited.id) };
    let error = view::error(task).map(|error| format!(": {}", view::brief(error, 80))).unwrap_or_default();
    format!("{} {BOLD}{}{BOLD:#} {DIM}{}{DIM:#}{error}", view::coloured(task.status()), task.spec.title, task.id)
}

fn line(tasks: &[AwaitedTask], elapsed: Duration) -> String {
    let left: Vec<&Task> = tasks.iter().filter(|task| !task.is_over()).filter_map(|task| task.task.as_ref()).collect();
    let what = match &left[..] {
        [task] => format!("{BOLD}{}{BOLD:#} ({})", view::brief(task.spec.title.as_str(), 50), task.status()),
        several => format!("{} of {}", several.len(), view::tasks(tasks.len())),
    };
    format!("waiting for {what} {DIM}({}; Ctrl-C to stop waiting){DIM:#}", format::span(Dur(elapsed).span()))
}

/// The JSON output.
#[derive(Serialize)]
struct Waited<'a> {
    completed: bool,
    tasks: Vec<Awaited<'a>>,
}

fn print(context: &Context, tasks: &[AwaitedTask]) -> u8 {
    let all = tasks.iter().all(is_completed);
    let view = Waited { completed: all, tasks: tasks.iter().map(to_view).collect() };
    context.printer.print(&view, tasks.iter().map(result_line).collect::<Vec<_>>().join("\n"));
    if all { exit::OK } else { exit::UNHEALTHY }
}

fn timed_out(tasks: &[AwaitedTask]) -> Failure {
    let left: Vec<&AwaitedTask> = tasks.iter().filter(|task| !task.is_over()).collect();
    let names: Vec<&str> = left.iter().take(5).map(|task| task.id.as_str()).collect();
    let more = if left.len() > names.len() { " and others" } else { "" };
    let message = format!("waited too long for {}{more}", names.join(", "));
    Failure::new(exit::LOCKED, "WAIT_TIMEOUT", message)
        .detail("tasks", &left.iter().map(|task| to_view(task)).collect::<Vec<_>>())
        .hint(format!("see: banksman why {}", names.first().unwrap_or(&"TASK")))
}
