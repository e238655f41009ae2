//! `runbooks check`.

use std::path::Path;

use banksman_runbook::{Diagnostics, Runbook};
use banksman_runtime::runbooks::{is_path, load_file};
use banksman_runtime::{LoadedRunbook, Project, RunbookError, RunbookFile, load_all, load_runbook};
use clap::Args;

use crate::commands::ExitResult;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::{Failure, near_path};
use crate::printer::{DIM, GREEN};
use crate::terminal;
use crate::views::problems::RunbookProblem;
use crate::views::runbooks::Sizes;
use crate::views::{Named, Text};

/// Check runbooks, and report every mistake with its file, line and column.
///
/// Exits with 0 if all runbooks are valid, else with 3. Files given by path need no project.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman runbooks check\n  banksman runbooks check feature drafts/triage.toml --json")]
pub(super) struct Check {
    /// The runbooks, by name or path [default: all in .banksman/runbooks]
    #[arg(value_name = "FILE")]
    files: Vec<String>,
}

impl Check {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let loaded = if self.files.is_empty() { load_all(&context.project()?)? } else { self.named(context)? };
        let (count, wrong) = (loaded.len(), loaded.iter().filter(|(_, found)| found.is_err()).count());
        if wrong > 0 {
            return Err(failure(loaded, count, wrong));
        }
        let views: Vec<_> = loaded.iter().filter_map(|(file, found)| Some(sizes(file, found.as_ref().ok()?))).collect();
        let lines: Vec<String> = loaded.iter().filter_map(|(file, found)| Some(line(file, found.as_ref().ok()?))).collect();
        let human = if lines.is_empty() { format!("{DIM}no runbooks{DIM:#}") } else { lines.join("\n") };
        context.printer.result(&Named("runbooks", views), human)
    }

    /// Loads the named files. Only a name, not a path, needs a project.
    fn named(&self, context: &Context) -> Result<Vec<LoadedRunbook>, Failure> {
        let project: Option<Project> =
            if self.files.iter().all(|file| is_path(file)) { context.project().ok() } else { Some(context.project()?) };
        let load = |file: &String| {
            let found = match &project {
                Some(project) => load_runbook(project, file),
                None => load_file(Path::new(file), None),
            };
            (RunbookFile { name: file.clone(), path: file.into() }, found)
        };
        Ok(self.files.iter().map(load).collect())
    }
}

/// One failure with all problems of all files.
fn failure(loaded: Vec<LoadedRunbook>, count: usize, wrong: usize) -> Failure {
    let mut errors: Vec<RunbookError> = loaded.into_iter().filter_map(|(_, found)| found.err()).collect();
    if let [_] = errors.as_slice()
        && let Some(only) = errors.pop()
    {
        return only.into();
    }
    let bodies: Vec<String> = errors.iter().map(drawn).collect();
    let list: Vec<_> = errors.iter().flat_map(RunbookProblem::list).collect();
    Failure::new(exit::CONFIG, "RUNBOOK_INVALID", format!("{wrong} of {count} runbooks are invalid"))
        .detail("problems", &list)
        .body(bodies.join("\n\n"))
}

fn drawn(error: &RunbookError) -> String {
    match error {
        RunbookError::Wrong(wrong) => {
            terminal::from_ansi(&Diagnostics { file: near_path(&wrong.file).into(), ..(**wrong).clone() }.draw(true))
        }
        RunbookError::NotFound { .. } | RunbookError::Io { .. } => format!("error: {error}"),
    }
}

pub(super) fn phases(runbook: &Runbook) -> usize {
    runbook.pipelines.values().map(|def| def.plan.phases.len()).sum()
}

fn sizes<'a>(file: &'a RunbookFile, runbook: &'a Runbook) -> Sizes<'a> {
    Sizes {
        name: &runbook.name,
        file: Text(file.path.display()),
        pipelines: runbook.pipelines.len(),
        phases: phases(runbook),
        guards: runbook.guards.len(),
        workers: runbook.workers.len(),
        routes: runbook.routes.len(),
    }
}

fn line(file: &RunbookFile, runbook: &Runbook) -> String {
    format!("{GREEN}ok{GREEN:#}  {}  {DIM}{}{DIM:#}", near_path(&file.path.to_string_lossy()), contents(runbook))
}

/// `2 pipelines with 7 phases, 3 guards, 1 worker`.
pub(super) fn contents(runbook: &Runbook) -> String {
    let counted = |count: usize, what: &str| match count {
        0 => None,
        1 => Some(format!("1 {what}")),
        _ => Some(format!("{count} {what}s")),
    };
    let pipelines = counted(runbook.pipelines.len(), "pipeline")
        .map(|words| format!("{words} with {}", counted(phases(runbook), "phase").unwrap_or_default()));
    let rest = [
        counted(runbook.guards.len(), "guard"),
        counted(runbook.locks.len(), "lock"),
        counted(runbook.semaphores.len(), "semaphore"),
        counted(runbook.queues.len(), "queue"),
        counted(runbook.workers.len(), "worker"),
        counted(runbook.routes.len(), "route"),
    ];
    let all: Vec<String> = [pipelines].into_iter().chain(rest).flatten().collect();
    if all.is_empty() { "empty".into() } else { all.join(", ") }
}
