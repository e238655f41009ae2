//! `runbooks apply` and `runbooks remove`: change the workers and routes of the project.

use std::collections::BTreeSet;

use banksman_core::queue;
use banksman_core::worker::{self, WORKERS_LIMIT};
use banksman_engine::{ApplyOutcome, Change, How, Incompatible};
use banksman_runbook::Runbook;
use banksman_runtime::runbooks::{load_all, load_runbook};
use banksman_store::Key;
use clap::Args;

use super::applied::applied_runbooks;
use crate::commands::{ExitResult, tasks};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::views::Named;
use crate::views::runbooks::Applied;

/// Apply runbooks: define their locks, semaphores and queues, and create or change their workers and routes.
///
/// Workers and routes that a runbook no longer contains are removed; a removed worker finishes its current items. Each runbook
/// is applied entirely or not at all, and stays as applied until it is applied again.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman runbooks apply\n  banksman runbooks apply nightly\n  banksman runbooks apply ops/release.toml"
)]
pub(super) struct Apply {
    /// The runbooks, by name or path [default: all runbooks of the project]
    #[arg(value_name = "NAME|FILE")]
    runbooks: Vec<String>,
}

/// Remove the workers and routes of a runbook. Its locks, semaphores and queues stay: others may use them.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman runbooks remove nightly")]
pub(super) struct Remove {
    /// The name of the runbook
    runbook: String,
}

impl Apply {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let books: Vec<Runbook> = if self.runbooks.is_empty() {
            let all = load_all(client.project())?.into_iter().map(|(_, runbook)| runbook);
            all.collect::<Result<_, _>>()?
        } else {
            let load = |name: &String| load_runbook(client.project(), name);
            self.runbooks.iter().map(load).collect::<Result<_, _>>()?
        };
        let mut applied = Vec::new();
        let mut left: Vec<&Runbook> = books.iter().collect();
        // A runbook that uses definitions of another is applied after it, whatever their names are.
        while !left.is_empty() {
            let mut waiting = Vec::new();
            for book in &left {
                match client.apply(book)? {
                    ApplyOutcome::Applied(changes) => applied.push((book.name.clone(), changes)),
                    ApplyOutcome::Refused(incompatible) => waiting.push((*book, incompatible)),
                }
            }
            if let Some((book, incompatible)) = waiting.first().filter(|_| waiting.len() == left.len()) {
                return Err(refused(&book.name, incompatible, &applied));
            }
            left = waiting.into_iter().map(|(book, _)| book).collect();
        }
        let views: Vec<_> = applied.iter().map(|(name, changes)| Applied::new(name, changes)).collect();
        let mut human = match &applied[..] {
            [] => format!("no runbooks yet\n{DIM}create one from a template: banksman runbooks new triage{DIM:#}"),
            all => all.iter().map(|(name, changes)| page(name, changes)).collect::<Vec<_>>().join("\n"),
        };
        let mut reader = client.reader()?;
        if self.runbooks.is_empty() {
            let known: BTreeSet<&str> = books.iter().map(|book| &*book.name).collect();
            let automation = reader.view().load(&[Key::Automation].into())?;
            for name in applied_runbooks(&automation).into_iter().filter(|name| !known.contains(&**name)) {
                human += &format!("\n{DIM}{name} is applied, but has no file: banksman runbooks remove {name}{DIM:#}");
            }
        }
        let has_workers = books.iter().any(|book| !book.workers.is_empty() || !book.routes.is_empty());
        if let Some(note) = tasks::runner_note(&client, &mut reader)?.filter(|_| has_workers) {
            human += &format!("\n{DIM}{note}{DIM:#}");
        }
        context.printer.result(&Named("runbooks", views), human)
    }
}

impl Remove {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let changes = match client.drop_runbook(&self.runbook)? {
            ApplyOutcome::Applied(changes) => changes,
            ApplyOutcome::Refused(incompatible) => return Err(refused(&self.runbook, &incompatible, &[])),
        };
        if changes.is_empty() {
            let message = format!("runbook {:?} is not applied", self.runbook);
            return Err(Failure::new(exit::NOT_FOUND, "RUNBOOK_NOT_FOUND", message)
                .detail("name", &self.runbook)
                .hint("list the applied runbooks: banksman runbooks list"));
        }
        context.printer.result(&Applied::new(&self.runbook, &changes), page(&self.runbook, &changes))
    }
}

fn page(name: &str, changes: &[Change]) -> String {
    let mut text = format!("{BOLD}{name}{BOLD:#}");
    if changes.is_empty() {
        text += &format!(" {DIM}has nothing to apply{DIM:#}");
    }
    for change in changes {
        let word = format!("{:<9}", change.how.as_str());
        let word = match change.how {
            How::Created => format!("{GREEN}{word}{GREEN:#}"),
            How::Changed | How::Removed | How::Finishing { .. } => format!("{YELLOW}{word}{YELLOW:#}"),
            How::Same => format!("{DIM}{word}{DIM:#}"),
        };
        let note = match change.how {
            How::Finishing { jobs: 1 } => format!(" {DIM}(1 job left){DIM:#}"),
            How::Finishing { jobs } => format!(" {DIM}({jobs} jobs left){DIM:#}"),
            How::Created | How::Changed | How::Same | How::Removed => String::new(),
        };
        text += &format!("\n  {word}  {} {}{note}", change.sort, change.name);
    }
    text
}

fn refused(runbook: &str, incompatible: &[Incompatible], applied: &[(Box<str>, Vec<Change>)]) -> Failure {
    let problems: Vec<String> = incompatible.iter().map(describe).collect();
    let applied: Vec<&str> = applied.iter().map(|(name, _)| &**name).collect();
    let message = match &problems[..] {
        [only] => format!("runbook {runbook} cannot be applied: {only}"),
        all => format!("runbook {runbook} cannot be applied, for {} reasons", all.len()),
    };
    let lines: Vec<String> = problems.iter().map(|problem| format!("{RED}-{RED:#} {problem}")).collect();
    let failure = Failure::new(exit::CONFIG, "RUNBOOK_REFUSED", message);
    let failure = if lines.len() > 1 { failure.body(lines.join("\n")) } else { failure };
    failure
        .detail("runbook", &runbook)
        .detail("problems", &problems)
        .detail("applied", &applied)
        .hint("no part of this runbook was applied")
}

fn describe(incompatible: &Incompatible) -> String {
    match incompatible {
        Incompatible::NoQueue { user, queue } => format!("{user}: there is no queue {queue}"),
        Incompatible::NoWorker { route, worker } => format!("route {route}: there is no worker {worker}"),
        Incompatible::Lacks { user, lack } => format!("{user}: {lack}"),
        Incompatible::Worker(name, worker::Outcome::Foreign { runbook }) => {
            format!("worker {name}: runbook {runbook} has a worker of this name")
        }
        Incompatible::Worker(name, worker::Outcome::TooMany) => {
            format!("worker {name}: a project may have at most {WORKERS_LIMIT} workers")
        }
        Incompatible::Worker(name, worker::Outcome::BadName) => format!("worker {name}: its name is too long"),
        // Applying a worker has no other answers.
        Incompatible::Worker(name, _) => format!("worker {name} cannot be changed now"),
        Incompatible::Queue(name, queue::Outcome::BadDeadLetter(dead_letter)) => {
            format!("queue {name}: there is no queue {dead_letter} for its dead items")
        }
        Incompatible::Queue(name, queue::Outcome::TooManyQueues) => format!("queue {name}: there are too many queues"),
        // Defining a queue has no other answers.
        Incompatible::Queue(name, _) => format!("queue {name} cannot be changed now"),
        Incompatible::Feeds(error) => format!("route {}: {error}", error.pattern),
        Incompatible::TooManyRoutes => "there are too many routes".into(),
    }
}
