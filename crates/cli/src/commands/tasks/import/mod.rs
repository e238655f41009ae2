//! Imports a file of tasks: read (`source`, one parser per format), checked (`record`, `plan`), added.

mod csv;
mod jsonl;
mod markdown;
mod plan;
mod problem;
mod record;
mod source;
mod sync;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use banksman_adapters::ids;
use banksman_core::task::dependencies::DagError;
use banksman_core::{ImportId, TaskId};
use banksman_engine::ImportOutcome;
use banksman_runtime::{Client, ImportError};
use clap::Args;
use serde::Serialize;

use self::plan::Plan;
use self::problem::Problems;
use self::source::{Format, Parsed};
use self::sync::Sync;
use crate::commands::{ExitResult, tasks};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM, YELLOW};
use crate::signals::Signals;

/// The width of the progress bar.
const BAR: usize = 30;

/// Add all tasks of a file at once.
///
/// The file has one JSON object per line, or is a CSV file with a header, or a Markdown checklist. Either all of its tasks are
/// added, or none: if the file is invalid, every mistake is reported with its line. The tasks become visible, and can start,
/// only when all of them are in place. Fields: key, title, run, section, labels, priority, retries, loop,
/// maxAttempts, maxDuration, silenceTimeout, workspace, locks, semaphores, dependsOn, allowFailed.
///
/// With --sync the tasks that were imported from the same file before are found by their key, or else by their title: new tasks are
/// added, and tasks that differ are changed, in one transaction. Tasks in progress, ended tasks, and tasks that are no longer in the
/// file are not changed, but listed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman tasks import backlog.jsonl\n  banksman tasks import plan.md --create-sections --run './agent.sh \"$BANKSMAN_TITLE\"'\n  banksman tasks import tasks.csv --dry-run\n  banksman tasks import plan.md --sync\n  jq -c '.[]' issues.json | banksman tasks import - --format jsonl"
)]
pub(super) struct Import {
    /// The file; - is stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The format, if the file name does not show it
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// The command of every task that has none; BANKSMAN_TITLE contains the title
    #[arg(long, value_name = "CMD")]
    run: Option<String>,
    /// Retry every task that has a command, and no retries, until it reports that it is done
    #[arg(long = "loop")]
    looped: bool,
    /// Create missing sections
    #[arg(long)]
    create_sections: bool,
    /// Add new tasks of a file that was imported before, and change tasks that differ
    #[arg(long, conflicts_with = "ids")]
    sync: bool,
    /// The name that identifies the tasks of this file for a later --sync [default: its path in the project]
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Only check the file
    #[arg(long)]
    dry_run: bool,
    /// Include the id of every task in the JSON output
    #[arg(long)]
    ids: bool,
}

impl Import {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let began = Instant::now();
        let format = Format::of(&self.file, self.format)?;
        if let Some(run) = &self.run {
            tasks::spec::work(run).map_err(|failure| failure.at("--run"))?;
        }
        let mut problems = Problems::default();
        let text = source::read(&self.file, &mut problems)?;
        let mut parsed = format.parse(&text, &mut problems);
        drop(text);
        for record in &mut parsed.records {
            record.run = record.run.take().or_else(|| self.run.clone());
            record.looped |= self.looped && record.run.is_some() && record.retries == 0;
        }
        let client = context.client()?;
        if !self.sync || self.dry_run {
            return self.apply(context, &client, &parsed, problems, began);
        }
        client.sync_alone(|| self.apply(context, &client, &parsed, problems, began))?.unwrap_or_else(|| {
            Err(Failure::new(exit::LOCKED, "LOCKED", "another import with --sync is in progress in this project")
                .hint("nothing was imported; try again"))
        })
    }

    fn apply(&self, context: &Context, client: &Client, parsed: &Parsed, mut problems: Problems, began: Instant) -> ExitResult {
        let id = ImportId::new(&ids::short("i")).expect("a short id is valid");
        let file = if source::is_stdin(&self.file) { "stdin".into() } else { self.file.display().to_string() };
        let source = sync::source_name(&self.file, self.source.as_deref(), client.project().root());
        let policy = &client.config().restart;
        let mut reader = client.reader()?;
        let plan = plan::plan(parsed, &id, &source, self.create_sections, policy, &mut reader, &mut problems)?;
        let compared = match plan.as_ref().filter(|_| self.sync) {
            Some(plan) => Some(sync::compare(plan, parsed, &id, &source, &mut reader, &mut problems)?),
            None => None,
        };
        problems.check(&file)?;
        let plan = plan.expect("without problems there is a plan");
        if let Some(sync) = compared {
            return self.sync(context, client, &id, plan, sync);
        }
        let mut summary = ImportSummary::of(&plan, parsed);
        let is_second = match plan.keys.first() {
            Some(first) => sync::has_imported(&plan.tasks[0].0, first, &source, &mut reader)?,
            None => false,
        };
        let note_second = |rest: &str| {
            if is_second {
                context.printer.note(&format!(
                    "{YELLOW}note:{YELLOW:#} the tasks of {file} were imported before, and {rest} (--sync imports only new and changed tasks)"
                ));
            }
        };
        if self.dry_run {
            note_second("would be duplicated");
            return context.printer.result(&summary, format!("{} can be imported{}", summary.describe(), summary.left_out()));
        }
        client.clear_imports()?;
        if plan.tasks.is_empty() {
            return context.printer.result(&summary, format!("nothing to import{}", summary.left_out()));
        }
        let ids = || (0..).zip(&plan.keys).map(|(number, key)| (key.clone(), id.task(number))).collect();
        summary.ids = self.ids.then(ids);
        add_tasks(context, client, &id, plan)?;
        note_second("are duplicated; cancel one of each");
        let seconds = began.elapsed().as_secs_f64();
        let human = format!(
            "imported {BOLD}{}{BOLD:#} in {seconds:.1} s {DIM}(import {id}){DIM:#}{}",
            summary.describe(),
            summary.left_out()
        );
        summary.import = Some(id);
        context.printer.result(&summary, human)
    }
}

impl Import {
    fn sync(&self, context: &Context, client: &Client, id: &ImportId, plan: Plan, sync: Sync) -> ExitResult {
        let summary = if self.dry_run {
            sync.summary.of_dry_run()
        } else if sync.is_first() && !plan.tasks.is_empty() {
            client.clear_imports()?;
            add_tasks(context, client, id, plan)?;
            sync.summary.with_ids(id)
        } else {
            sync.carry_out(client, plan)?
        };
        context.printer.result(&summary, summary.describe())
    }
}

/// Adds the tasks chunk by chunk. Ctrl-C leaves nothing behind.
fn add_tasks(context: &Context, client: &Client, id: &ImportId, plan: Plan) -> Result<(), Failure> {
    let mut signals = Signals::install()?;
    let total = plan.tasks.len();
    let watched = context.printer.is_watched();
    let mut progress = |added: usize| {
        if watched {
            let filled = BAR * added / total;
            let bar = format!("{}{}", "=".repeat(filled), " ".repeat(BAR - filled));
            context.printer.rewrite(&format!("[{bar}] {} of {}", format::thousands(added), format::tasks(total)));
        }
        if signals.take().is_empty() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let result = client.import(id, plan.sections, plan.tasks, &mut progress);
    if watched {
        context.printer.rewrite("");
    }
    result.map_err(|error| match error {
        ImportError::Stopped => Failure::interrupted().hint("nothing was imported"),
        ImportError::Failed(error) => error.into(),
        ImportError::Refused(outcome) => refused(&outcome),
    })
}

/// The failure for a difference found inside of the transaction.
fn refused(outcome: &ImportOutcome) -> Failure {
    let changed = |what: String| {
        Failure::new(exit::LOCKED, "IMPORT_OVERTAKEN", what)
            .hint("the project changed while the file was read; nothing was imported; try again")
    };
    match outcome {
        ImportOutcome::SectionTaken(name) => changed(format!("section {:?} was created meanwhile", name.as_str())),
        ImportOutcome::UnknownSection(section) => changed(format!("section {section} was deleted meanwhile")),
        // An import has no cycles. A cycle of a sync leads through tasks that are not in the file.
        ImportOutcome::Dependencies(task, error @ DagError::Cycle(_)) => tasks::refused::dependencies(task, error),
        ImportOutcome::Dependencies(_, error) => changed(error.to_string()),
        ImportOutcome::Overtaken(task) => changed(format!("{task} was changed meanwhile")),
        ImportOutcome::Unknown => changed("the import was dropped meanwhile".into()),
        ImportOutcome::TooManySections => {
            Failure::usage("too many sections: a project may have at most 1000").hint("use labels for finer distinctions")
        }
        ImportOutcome::Open { .. }
        | ImportOutcome::Finished(_)
        | ImportOutcome::Dropped
        | ImportOutcome::Dropping
        | ImportOutcome::Taken
        | ImportOutcome::OutOfStep { .. }
        | ImportOutcome::Synced
        | ImportOutcome::InUse => Failure::unexpected(outcome),
    }
}

/// The JSON output.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ImportSummary {
    /// `None` before the tasks exist.
    import: Option<ImportId>,
    tasks: usize,
    dependencies: usize,
    sections_created: Vec<String>,
    skipped: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    ids: Option<BTreeMap<String, TaskId>>,
}

impl ImportSummary {
    fn of(plan: &Plan, parsed: &Parsed) -> ImportSummary {
        ImportSummary {
            import: None,
            tasks: plan.tasks.len(),
            dependencies: plan.tasks.iter().map(|(_, edges)| edges.len()).sum(),
            sections_created: plan.sections.iter().map(|section| section.name.to_string()).collect(),
            skipped: parsed.done.len(),
            ids: None,
        }
    }

    fn describe(&self) -> String {
        format::tasks(self.tasks)
    }

    fn left_out(&self) -> String {
        match self.skipped {
            0 => String::new(),
            skipped => format!("; {} skipped as done", format::thousands(skipped)),
        }
    }
}
