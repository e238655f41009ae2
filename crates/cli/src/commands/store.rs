use clap::{Args, Subcommand};
use serde_json::json;

use banksman::{Place, Project};

use super::Done;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::printer::BOLD;

/// Stores: where the rows of a project are.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman store copy sqlite:.banksman/store.db postgres://me@db.example.org/agents")]
pub(crate) struct Store {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Copy(Copy),
}

/// Copy this project from one store to another that does not have it.
///
/// Everything that is held and everything that happened is copied and checked; what was left of a lease is still left.
/// Whoever waits in line stays at the old store, so stop your agents first. If it fails, the other store is as before.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman store copy sqlite:.banksman/store.db postgres://me@db.example.org/agents\n  banksman store copy postgres://me@db.example.org/agents sqlite:.banksman/store.db"
)]
struct Copy {
    /// The store to read
    #[arg(value_name = "FROM")]
    from: String,
    /// The store to write
    #[arg(value_name = "TO")]
    to: String,
}

impl Store {
    pub(crate) fn name(&self) -> &'static str {
        match self.verb {
            Verb::Copy(_) => "store copy",
        }
    }

    pub(crate) fn run(self, context: &Context) -> Done {
        match self.verb {
            Verb::Copy(copy) => copy.run(context),
        }
    }
}

impl Copy {
    fn run(self, context: &Context) -> Done {
        let place = |url: &str| Place::parse(url, crate::context::variable);
        let project = Project::find_at(&context.directory(), Some(place(&self.from)?))?;
        let copied = project.copy_to(place(&self.to)?)?;
        let data = json!({ "locks": copied.locks, "semaphores": copied.semaphores, "holders": copied.holders, "tasks": copied.tasks, "items": copied.items, "events": copied.events });
        let human = format!(
            "copied {BOLD}{}{BOLD:#} locks, {BOLD}{}{BOLD:#} semaphores, {} holders, {BOLD}{}{BOLD:#} tasks, {BOLD}{}{BOLD:#} items and {BOLD}{}{BOLD:#} events; the log folds to the tables",
            copied.locks, copied.semaphores, copied.holders, copied.tasks, copied.items, copied.events
        );
        context.printer.result(data, human);
        Ok(exit::OK)
    }
}
