use std::os::fd::AsFd;

use banksman_core::TaskId;
use banksman_core::backlog::Run;
use banksman_runtime::{UntilOptions, WaitEnd, concern, until};
use banksman_store::{Key, Reader};
use clap::Args;

use super::logs_many;
use crate::commands::tail::{self, LogFlags};
use crate::commands::{ExitResult, find, pipelines};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::signals::Signals;

/// Print the output of a task's latest run.
///
/// For a pipeline, the latest run of its phases; with --follow also later ones. A log that reaches its limit is rotated, and only one
/// older part is kept; `tasks show` reports dropped output. --follow waits for a run if there is none, continues with the next attempt,
/// and ends when the task has ended.
///
/// With several tasks, or with --all, every line starts with the title of its task.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman tasks logs 'Run the tests' --follow\n  banksman tasks logs t-7k2m9q1a --tail 20\n  banksman tasks logs t-7k2m9q1a --run r-0b4ndx3c\n  banksman tasks logs Build Login --follow\n  banksman logs --all --follow"
)]
pub(crate) struct Logs {
    /// The tasks
    #[arg(value_name = "TASK", required_unless_present = "all")]
    tasks: Vec<String>,
    /// All live runs; with --follow also later ones
    #[arg(long, conflicts_with = "tasks")]
    all: bool,
    /// This run instead of the latest
    #[arg(long, value_name = "RUN", conflicts_with = "all")]
    run: Option<String>,
    #[command(flatten)]
    flags: LogFlags,
}

impl Logs {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let mut reader = project.reader()?;
        let ids = find::task_ids(&mut reader, self.tasks.iter().map(String::as_str))?;
        let id = match &ids[..] {
            [id] => id.clone(),
            several => {
                if self.run.is_some() {
                    return Err(Failure::usage("--run needs exactly one task"));
                }
                let named = (!self.all).then_some(several);
                let print = if self.flags.follow { logs_many::follow } else { logs_many::print };
                return print(context, &project, named, &self.flags);
            }
        };
        if let Some(name) = &self.run {
            let matches = |run: &Run| !name.is_empty() && run.id.as_str().starts_with(name.as_str());
            let exact = |run: &&Run| run.id.as_str() == name;
            let runs = runs(&mut reader, &id)?;
            let found: Vec<&Run> = runs.iter().filter(|run| matches(run)).collect();
            let run = match &found[..] {
                [run] => run,
                several => several.iter().find(|run| exact(run)).ok_or_else(|| no_run(&id, Some(name)))?,
            };
            return tail::print(context, &project, run, &self.flags);
        }
        if !self.flags.follow {
            let run = runs(&mut reader, &id)?.pop().ok_or_else(|| no_run(&id, None))?;
            return tail::print(context, &project, &run, &self.flags);
        }
        let signals = Signals::install()?;
        let mut shown: Option<Run> = None;
        loop {
            let options = UntilOptions { cancel: signals.as_fd(), timeout: None, tick: None };
            let ended = until(&project, &options, &Default::default(), |reader, events| {
                let is_relevant = concern(events, |task| task.starts_with(id.as_str()));
                if is_relevant { next(reader, &id, shown.as_ref()) } else { Ok(None) }
            });
            let next = match ended? {
                WaitEnd::Met(next) => next,
                WaitEnd::TimedOut | WaitEnd::Cancelled => return Err(Failure::interrupted()),
            };
            match (next, &shown) {
                (Some(run), _) => {
                    tail::print(context, &project, &run, &self.flags)?;
                    shown = Some(run);
                }
                (None, Some(_)) => return Ok(exit::OK),
                (None, None) => return Err(no_run(&id, None)),
            }
        }
    }
}

/// The runs of a task, or of the phases of a pipeline, newest last.
pub(super) fn runs(reader: &mut Reader, id: &TaskId) -> Result<Vec<Run>, Failure> {
    let phases = pipelines::phases(reader, id)?.into_iter().filter(|task| task.spec.phase().is_some()).map(|task| task.id);
    let keys = phases.chain([id.clone()]).map(Key::RunsOf).collect();
    let mut runs: Vec<Run> = reader.view().load(&keys)?.tables.backlog.runs.into_values().collect();
    runs.sort_by_key(|run| run.epoch);
    Ok(runs)
}

/// The next run to print: `Some(None)` if there will be none, `None` if that is not known yet.
fn next(reader: &mut Reader, id: &TaskId, shown: Option<&Run>) -> Result<Option<Option<Run>>, Failure> {
    // Read before the runs: a task that is over has no later run.
    let task = reader.view().load(&[Key::Task(id.clone())].into())?.backlog.tasks.remove(id);
    let is_over = task.as_ref().is_none_or(|task| task.status().is_over());
    let mut runs = runs(reader, id)?;
    let run = match shown {
        None => runs.pop(),
        Some(shown) => runs.into_iter().find(|run| run.epoch > shown.epoch),
    };
    Ok(if run.is_none() && !is_over { None } else { Some(run) })
}

fn no_run(task: &TaskId, run: Option<&str>) -> Failure {
    let message = run.map_or_else(|| format!("{task} has no run yet"), |run| format!("{task} has no run {run:?}"));
    Failure::new(exit::NOT_FOUND, "RUN_NOT_FOUND", message)
        .detail("taskId", &task)
        .detail("run", &run)
        .hint(format!("list its runs: banksman tasks show {task}; to wait for its next run, add --follow"))
}
