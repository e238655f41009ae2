//! `banksman doctor`: one file per check, each of which returns a `Finding`.
//!
//! A check only reads. With `--fix` it also repairs what needs no decision of a person, and its entries say what was
//! repaired; so a second `doctor` finds nothing. To add a check: add a file here, and a line to `CHECKS`.

mod claims;
mod files;
mod finding;
mod holders;
mod imports;
mod keepers;
mod limits;
mod merges;
mod messages;
mod runs;
mod shortages;
mod store;
mod trust;
mod workspaces;

use banksman_runtime::Project;
use banksman_store::Reader;
use clap::Args;
use serde::Serialize;

use super::ExitResult;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use finding::{Entry, Finding, FindingView};
pub(super) use limits::differences as limit_differences;

/// Check the health of the project, and repair it.
///
/// Checks the structure of the store, compares the event log with the tables, and lists leftovers of dead processes. Every
/// problem names the command that fixes it, if there is one. With `--fix`, problems that need no decision of yours are fixed
/// at once, and the output says what was done. Without it nothing is changed. Exits with 7 if something is wrong; stale
/// leftovers are notes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman doctor\n  banksman doctor --fix")]
pub(crate) struct Doctor {
    /// Repair problems that need no decision
    #[arg(long)]
    fix: bool,
}

/// The input of a check.
struct Examination<'a> {
    context: &'a Context,
    project: Project,
    reader: Reader,
    /// Whether to repair problems.
    fix: bool,
}

type Check = fn(&mut Examination<'_>) -> Result<Finding, Failure>;

/// In the order of the output. All of them read the store, so they are skipped if the store itself is damaged.
#[rustfmt::skip]
const CHECKS: &[Check] = &[
    store::event_log,
    store::counters,
    limits::check,
    holders::check,
    claims::check,
    runs::check,
    keepers::check,
    shortages::check,
    imports::check,
    files::check,
    trust::check,
    merges::check,
    messages::check,
    workspaces::check,
];

/// The JSON output.
#[derive(Serialize)]
struct Health<'a> {
    healthy: bool,
    checks: Vec<FindingView<'a>>,
}

impl Doctor {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        self.examine(context).map_err(|failure| match &failure.hint {
            // Doctor must not recommend itself.
            Some(hint) if hint.contains("banksman doctor") => {
                failure.hint("stop all agents, copy the .banksman folder, and restore a backup: docs/guides/backup.md")
            }
            _ => failure,
        })
    }

    fn examine(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let reader = project.reader()?;
        let mut examination = Examination { context, project, reader, fix: self.fix };
        let mut findings = vec![store::integrity(&mut examination)?];
        findings.extend(store::server(&mut examination)?);
        if !findings.iter().any(Finding::is_wrong) {
            for check in CHECKS {
                findings.push(check(&mut examination)?);
            }
            findings.extend(store::fan_outs(&mut examination)?);
        }
        let is_wrong = findings.iter().any(Finding::is_wrong);
        let view = Health { healthy: !is_wrong, checks: findings.iter().map(Finding::view).collect() };
        let lines: Vec<String> = findings.iter().map(Finding::line).collect();
        context.printer.print(&view, lines.join("\n"));
        Ok(if is_wrong { exit::UNHEALTHY } else { exit::OK })
    }
}
