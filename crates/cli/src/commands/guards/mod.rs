//! Guards: named conditions in runbooks.

mod check;

use banksman_core::guard::Guard;
use banksman_runbook::Runbook;
use banksman_runtime::{RunbookError, RunbookFile, load_all, load_runbook};
use clap::Args;
use serde::Serialize;

use super::ExitResult;
use super::runbooks::guard;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::DIM;
use crate::table;
use crate::views::runbooks::GuardView;

subcommands! {
    /// Check guards: conditions before or after a phase.
    ///
    /// Guards are defined in runbooks. The conditions are described in docs/concepts/guards.md.
    #[command(after_help = "Examples:\n  banksman guards list\n  banksman guards check may-deploy --var branch=topic")]
    pub(crate) noun Guards {
        Check(check::Check),
        List(List),
    }
}

/// List the guards of all runbooks.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman guards list\n  banksman guards list --runbook feature --json")]
struct List {
    /// Only the guards of this runbook, by name or file
    #[arg(long, value_name = "RUNBOOK")]
    runbook: Option<String>,
}

/// The JSON output.
#[derive(Serialize)]
struct Listed<'a> {
    guards: Vec<GuardView<'a>>,
    wrong: Option<&'a str>,
}

/// The readable runbooks, and the first one that has an error.
struct LoadedRunbooks {
    runbooks: Vec<Runbook>,
    wrong: Option<(RunbookFile, RunbookError)>,
}

impl LoadedRunbooks {
    /// Loads one runbook, which must be valid, or all runbooks of the project.
    fn load(context: &Context, runbook: Option<&str>) -> Result<LoadedRunbooks, Failure> {
        let project = context.project()?;
        if let Some(name) = runbook {
            return Ok(LoadedRunbooks { runbooks: vec![load_runbook(&project, name)?], wrong: None });
        }
        let mut loaded = LoadedRunbooks { runbooks: Vec::new(), wrong: None };
        for (file, found) in load_all(&project)? {
            match found {
                Ok(runbook) => loaded.runbooks.push(runbook),
                Err(error) => loaded.wrong = loaded.wrong.or(Some((file, error))),
            }
        }
        Ok(loaded)
    }

    /// Prints a note that the guards of the invalid runbook are missing.
    fn note_wrong(&self, context: &Context) {
        if let Some((file, _)) = &self.wrong {
            let name = &file.name;
            context
                .printer
                .note(&format!("{DIM}runbook {name} is invalid, so its guards are not listed: banksman runbooks check{DIM:#}"));
        }
    }
}

impl List {
    fn run(self, context: &Context) -> ExitResult {
        let loaded = LoadedRunbooks::load(context, self.runbook.as_deref())?;
        let all: Vec<(&Runbook, &Guard)> =
            loaded.runbooks.iter().flat_map(|runbook| runbook.guards.values().map(move |guard| (runbook, guard))).collect();
        let views = all.iter().map(|(runbook, guard)| GuardView::of(runbook, guard));
        let guards = views.collect();
        let human = if let (true, Some((file, _))) = (all.is_empty(), &loaded.wrong) {
            format!(
                "runbook {} is invalid, so no guards can be listed\n{DIM}find the error: banksman runbooks check{DIM:#}",
                file.name
            )
        } else if all.is_empty() {
            format!("no guards yet\n{DIM}to write one, see docs/concepts/guards.md{DIM:#}")
        } else {
            let rows = all.iter().map(|(runbook, guard)| {
                let (holds, otherwise) = (guard::describe(&guard.condition), guard::action(&guard.on_failure));
                vec![guard.name.to_string(), runbook.name.to_string(), otherwise, holds]
            });
            table::render(&["GUARD", "RUNBOOK??", "ON FAILURE?", "HOLDS IF~"], rows.collect())
        };
        let wrong = loaded.wrong.as_ref().map(|(file, _)| file.name.as_str());
        context.printer.print(&Listed { guards, wrong }, human);
        if !all.is_empty() {
            loaded.note_wrong(context);
        }
        Ok(exit::OK)
    }
}
