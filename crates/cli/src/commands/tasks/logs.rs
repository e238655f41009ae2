use banksman::core::TaskId;
use banksman::core::backlog::Run;
use banksman::store::{Key, Reader};
use clap::Args;
use serde_json::json;

use super::until::{self, Ended};
use crate::commands::tail::{self, LogFlags};
use crate::commands::{Done, find};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::signals::Signals;

/// Print what a task's latest run has printed.
///
/// A log that has reached its limit begins anew, and only the part before is kept; `tasks show` tells if output was
/// dropped. With --follow this waits for a run if there is none yet, and ends when the run ends.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman tasks logs 'Run the tests' --follow\n  banksman tasks logs t-7k2m9q1a --tail 20\n  banksman tasks logs t-7k2m9q1a --run r-0b4ndx3c"
)]
pub(super) struct Logs {
    /// The task
    task: String,
    /// Of this run instead of the latest
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    #[command(flatten)]
    flags: LogFlags,
}

impl Logs {
    pub(super) fn run(self, context: &Context) -> Done {
        let project = context.project()?;
        let mut reader = project.reader()?;
        let id = find::task_id(&mut reader, &self.task)?;
        let mut runs = runs(&mut reader, &id)?;
        if let Some(name) = &self.run {
            let meant = |run: &Run| !name.is_empty() && run.id.as_str().starts_with(name.as_str());
            let exact = |run: &&Run| run.id.as_str() == name;
            let found: Vec<&Run> = runs.iter().filter(|run| meant(run)).collect();
            let run = match &found[..] {
                [run] => run,
                several => several.iter().find(|run| exact(run)).ok_or_else(|| no_run(&id, Some(name)))?,
            };
            return tail::print(context, &project, run, &self.flags);
        }
        if runs.is_empty() && self.flags.follow {
            let signals = Signals::install().map_err(|error| Failure::system("take note of signals", error))?;
            let ended = until::until(&project, &signals, None, None, |reader, events| {
                let is_meant = until::concern_any(events, std::slice::from_ref(&id));
                Ok(if is_meant { Some(self::runs(reader, &id)?).filter(|runs| !runs.is_empty()) } else { None })
            });
            match ended? {
                Ended::Met(found) => runs = found,
                Ended::TimedOut | Ended::Interrupted => return Err(Failure::interrupted()),
            }
        }
        let run = runs.last().ok_or_else(|| no_run(&id, None))?;
        tail::print(context, &project, run, &self.flags)
    }
}

/// The runs of a task, the newest last.
fn runs(reader: &mut Reader, id: &TaskId) -> Result<Vec<Run>, Failure> {
    let mut runs: Vec<Run> = reader.view().load(&[Key::RunsOf(id.clone())].into())?.backlog.runs.into_values().collect();
    runs.sort_by_key(|run| run.epoch);
    Ok(runs)
}

fn no_run(task: &TaskId, run: Option<&str>) -> Failure {
    let message = run.map_or_else(|| format!("{task} has had no run yet"), |run| format!("{task} has had no run {run:?}"));
    Failure::new(exit::NOT_FOUND, "RUN_NOT_FOUND", message)
        .details(json!({ "taskId": task, "run": run }))
        .hint(format!("banksman tasks show {task} lists its runs; --follow waits for one"))
}
