//! The output of `runbooks list` and `runbooks show`.

use banksman_runbook::Runbook;
use banksman_runtime::{RunbookError, load_all, load_runbook};
use clap::Args;

use super::applied::{Applied, applied_runbooks};
use super::check::contents;
use super::picture;
use crate::commands::ExitResult;
use crate::context::Context;
use crate::format;
use crate::printer::{DIM, RED};
use crate::table;
use crate::views::runbooks::{Listed, RunbookView, Runbooks};

/// List the runbooks of the project, and whether they are applied.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman runbooks list")]
pub(super) struct List {}

/// Show one runbook: its pipelines with their phases, its guards, workers and routes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman runbooks show feature\n  banksman runbooks show drafts/triage.toml")]
pub(super) struct Show {
    /// The runbook, by name or file
    name: String,
}

impl List {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let loaded = load_all(&project)?;
        let keys = Applied::keys(loaded.iter().filter_map(|(_, found)| found.as_ref().ok()));
        let snapshot = project.reader()?.view().load(&keys)?;
        let applied = |runbook: &Runbook| Applied::of(runbook, &snapshot, project.config());
        let views = loaded.iter().map(|(file, found)| {
            let runbook = found.as_ref().ok();
            let in_force = runbook.map(applied).filter(|applied| *applied != Applied::Nothing).map(Applied::as_str);
            Listed::new(file, runbook, in_force)
        });
        let lost: Vec<Box<str>> =
            applied_runbooks(&snapshot).into_iter().filter(|name| loaded.iter().all(|(file, _)| *file.name != **name)).collect();
        let mut human = if loaded.is_empty() {
            format!("no runbooks yet\n{DIM}create one from a template: banksman runbooks new triage{DIM:#}")
        } else {
            let rows = loaded.iter().map(|(file, found)| match found {
                Ok(runbook) => {
                    let description = runbook.description.as_deref().unwrap_or("-").to_owned();
                    vec![file.name.clone(), applied(runbook).coloured(), contents(runbook), description]
                }
                Err(error) => vec![file.name.clone(), "?".into(), format!("{RED}invalid{RED:#}"), mistakes(error)],
            });
            table::render(&["NAME", "APPLIED?", "CONTENTS~", "DESCRIPTION~??"], rows.collect())
        };
        for (file, _) in
            loaded.iter().filter(|(_, found)| found.as_ref().is_ok_and(|runbook| applied(runbook) == Applied::Differs))
        {
            let name = format::last(&file.name);
            human += &format!("\n{DIM}{} differs from the applied version: banksman runbooks apply {name}{DIM:#}", file.name);
        }
        for name in &lost {
            human +=
                &format!("\n{DIM}{name} is applied, but has no file: banksman runbooks remove {}{DIM:#}", format::last(name));
        }
        context.printer.result(&Runbooks { runbooks: views.collect(), without_file: &lost }, human)
    }
}

fn mistakes(error: &RunbookError) -> String {
    match error {
        RunbookError::Wrong(wrong) => {
            let more = wrong.list.len() + wrong.more - 1;
            let rest = if more == 0 { String::new() } else { format!(" (and {more} more)") };
            wrong.list.first().map_or_else(String::new, |first| format!("line {}: {}{rest}", first.line, first.message))
        }
        RunbookError::NotFound { .. } | RunbookError::Io { .. } => error.to_string(),
    }
}

impl Show {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let runbook = load_runbook(&context.project()?, &self.name)?;
        context.printer.result(&RunbookView::from(&runbook), picture::runbook(&runbook))
    }
}
