//! Runbooks: files that say what is done, phase by phase.

mod apply;
mod check;
mod force;
pub(crate) mod guard;
mod new;
pub(crate) mod picture;
mod view;

use clap::{Args, Subcommand};

use super::Done;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::views::Named;

/// Runbooks: TOML files with pipelines, guards, strategies, workers and what they need.
///
/// They are in .banksman/runbooks, and belong to the repository. What can stand in one is described in
/// docs/reference/runbook.md.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman runbooks new feature\n  banksman runbooks check\n  banksman runbooks show feature")]
pub(crate) struct Runbooks {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    New(new::New),
    Check(check::Check),
    List(view::List),
    Show(view::Show),
    Schema(Schema),
    Apply(apply::Apply),
    Drop(apply::Drop),
}

/// Print a JSON Schema of the format, so that editors complete and check runbooks while one writes.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman runbooks schema > runbook.schema.json")]
struct Schema {}

impl Runbooks {
    pub(crate) fn run(self, context: &Context) -> Done {
        match self.verb {
            Verb::New(new) => new.run(context),
            Verb::Check(check) => check.run(context),
            Verb::List(list) => list.run(context),
            Verb::Show(show) => show.run(context),
            Verb::Schema(Schema {}) => schema(context),
            Verb::Apply(apply) => apply.run(context),
            Verb::Drop(drop) => drop.run(context),
        }
    }
}

fn schema(context: &Context) -> Done {
    let schema = banksman_runbook::schema();
    let text = format!("{schema:#}");
    context.printer.result(&Named("schema", schema), text);
    Ok(exit::OK)
}
