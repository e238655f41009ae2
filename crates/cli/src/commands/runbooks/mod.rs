//! Runbooks: files that define pipelines, guards, queues, workers and routes.

mod applied;
mod apply;
mod check;
pub(crate) mod guard;
mod new;
pub(crate) mod picture;
mod view;

use clap::Args;

use super::ExitResult;
use crate::context::Context;
use crate::views::Named;

subcommands! {
    /// Write, check and apply runbooks.
    ///
    /// Runbooks are files in .banksman/runbooks, and belong to the repository. Their format is described in
    /// docs/reference/runbook.md.
    #[command(after_help = "Examples:\n  banksman runbooks new feature\n  banksman runbooks check\n  banksman runbooks show feature")]
    pub(crate) noun Runbooks {
        New(new::New),
        Check(check::Check),
        List(view::List),
        Show(view::Show),
        Schema(Schema),
        Apply(apply::Apply),
        #[command(alias = "drop")]
        Remove(apply::Remove),
    }
}

/// Print a JSON Schema of the runbook format, for completion and checks in editors.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman runbooks schema > runbook.schema.json")]
struct Schema {}

impl Schema {
    fn run(self, context: &Context) -> ExitResult {
        let schema = banksman_runbook::schema();
        let text = format!("{schema:#}");
        context.printer.result(&Named("schema", schema), text)
    }
}
