use std::cell::RefCell;
use std::time::{Duration, Instant};

use banksman_core::{Status, Task, TaskId};
use banksman_runtime::inspect;
use banksman_store::{Key, Reader};
use clap::Args;
use serde::Serialize;

use super::slot::Slot;
use super::until::{Ended, concern_any, until};
use super::view;
use crate::commands::recording::record_ended;
use crate::commands::resources::Dur;
use crate::commands::{Done, find};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{BOLD, DIM};
use crate::signals::Signals;
use crate::views::tasks::Awaited;
use crate::words;

/// Wait until tasks are over.
///
/// Exits with 0 if all of them are completed, with 7 if one of them ended otherwise, and with 6 if the time is up. Inside
/// of a run, the run's slot goes to others meanwhile and is taken again before this returns; so a run may wait for its
/// children even if only one run is allowed at a time. A run that would wait for ever, because what it waits for waits for that run, is
/// refused with the circle, exit 9.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman tasks wait 'Run the tests'\n  banksman tasks wait t-7k2m9q1a t-0b4ndx3c --timeout 10m"
)]
pub(super) struct Wait {
    /// The tasks
    #[arg(required = true, value_name = "TASK")]
    tasks: Vec<String>,
    /// How long to wait at most [default: as long as it takes]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    timeout: Option<Dur>,
}

/// What became of one task.
struct Fate {
    id: TaskId,
    /// Without it the task was deleted meanwhile.
    task: Option<Task>,
}

impl Wait {
    pub(super) fn run(self, context: &Context) -> Done {
        let signals = Signals::install().map_err(|error| Failure::system("take note of signals", error))?;
        let client = context.client()?;
        let mut reader = client.reader()?;
        let ids = find::task_ids(&mut reader, self.tasks.iter().map(String::as_str))?;
        let mut slot = Slot::inherited(&client)?;
        let edge = slot.as_ref().map(|slot| slot.wait_for(&mut reader, &ids)).transpose()?;
        let mut runners_seen = slot.is_some();
        let watched = context.printer.is_watched();
        let start = Instant::now();
        let mut fates = Vec::new();
        let ends = RefCell::new(Vec::new());
        let ended = until(
            client.project(),
            &signals,
            &ends,
            self.timeout.map(|timeout| timeout.0),
            watched.then_some(Duration::from_secs(1)),
            |reader, events| {
                // Without an event it is only time to look.
                if events.is_empty() {
                    record_ended(context, client.project(), reader)?;
                }
                if concern_any(events, &ids) {
                    fates = look(reader, &ids)?;
                    // A session may end with no runner there who would say so.
                    ends.replace(inspect::watch_ends(reader, client.project())?);
                }
                if fates.iter().all(Fate::is_over) {
                    return Ok(Some(()));
                }
                if let Some(slot) = slot.as_mut().filter(|slot| !slot.is_given_back() || slot.was_taken(events)) {
                    slot.give_back()?;
                }
                if !std::mem::replace(&mut runners_seen, true) && !context.printer.json {
                    let runners = reader.view().load(&[Key::Runners].into())?.backlog.runners;
                    if !runners.values().any(|runner| super::is_alive(&client, runner)) {
                        context.printer.note(&format!("{DIM}{}{DIM:#}", super::NO_RUNNER));
                    }
                }
                if watched {
                    context.printer.rewrite(&progress(&fates, start.elapsed()));
                }
                Ok(None)
            },
        );
        if watched {
            context.printer.rewrite("");
        }
        drop(edge);
        if let Some(slot) = &slot {
            match &ended {
                Ok(Ended::Met(()) | Ended::TimedOut) => slot.take_again(&signals)?,
                Ok(Ended::Interrupted) | Err(_) => slot.take_if_free(),
            }
        }
        match ended? {
            Ended::Met(()) => Ok(tell(context, &fates)),
            Ended::TimedOut => Err(timed_out(&fates)),
            Ended::Interrupted => Err(Failure::interrupted()),
        }
    }
}

fn look(reader: &mut Reader, ids: &[TaskId]) -> Result<Vec<Fate>, Failure> {
    let keys = ids.iter().cloned().map(Key::Task).collect();
    let mut tasks = reader.view().load(&keys)?.backlog.tasks;
    Ok(ids.iter().map(|id| Fate { id: id.clone(), task: tasks.remove(id) }).collect())
}

impl Fate {
    fn is_over(&self) -> bool {
        self.task.as_ref().is_none_or(|task| task.status().is_over())
    }

    fn is_completed(&self) -> bool {
        self.task.as_ref().is_some_and(|task| task.status() == Status::Completed)
    }

    fn view(&self) -> Awaited<'_> {
        let task = self.task.as_ref();
        Awaited {
            id: &self.id,
            title: task.map(|task| &task.spec.title),
            status: task.map_or("deleted", |task| task.status().as_str()),
            error: task.and_then(view::error),
        }
    }

    fn line(&self) -> String {
        let Some(task) = &self.task else { return format!("{} was deleted", self.id) };
        let error = view::error(task).map(|error| format!(": {}", view::brief(error, 80))).unwrap_or_default();
        format!("{} {BOLD}{}{BOLD:#} {DIM}{}{DIM:#}{error}", view::coloured(task.status()), task.spec.title, task.id)
    }
}

fn progress(fates: &[Fate], elapsed: Duration) -> String {
    let left: Vec<&Task> = fates.iter().filter(|fate| !fate.is_over()).filter_map(|fate| fate.task.as_ref()).collect();
    let what = match &left[..] {
        [task] => format!("{BOLD}{}{BOLD:#} ({})", view::brief(task.spec.title.as_str(), 50), task.status()),
        several => format!("{} of {}", several.len(), view::tasks(fates.len())),
    };
    format!("waiting for {what} {DIM}({}; Ctrl-C to stop waiting){DIM:#}", words::span(Dur(elapsed).span()))
}

/// What became of all of them.
#[derive(Serialize)]
struct Waited<'a> {
    completed: bool,
    tasks: Vec<Awaited<'a>>,
}

fn tell(context: &Context, fates: &[Fate]) -> u8 {
    let all = fates.iter().all(Fate::is_completed);
    let view = Waited { completed: all, tasks: fates.iter().map(Fate::view).collect() };
    context.printer.print(&view, fates.iter().map(Fate::line).collect::<Vec<_>>().join("\n"));
    if all { exit::OK } else { exit::UNHEALTHY }
}

fn timed_out(fates: &[Fate]) -> Failure {
    let left: Vec<&Fate> = fates.iter().filter(|fate| !fate.is_over()).collect();
    let names: Vec<&str> = left.iter().take(5).map(|fate| fate.id.as_str()).collect();
    let more = if left.len() > names.len() { " and others" } else { "" };
    let message = format!("waited too long for {}{more}", names.join(", "));
    Failure::new(exit::LOCKED, "WAIT_TIMEOUT", message)
        .detail("tasks", &left.iter().map(|fate| fate.view()).collect::<Vec<_>>())
        .hint(format!("banksman why {} tells what it waits for", names.first().unwrap_or(&"TASK")))
}
