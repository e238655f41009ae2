use banksman::Project;
use clap::Args;
use serde_json::json;

use super::Done;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::printer::{BOLD, DIM};

/// Make a project in this directory.
///
/// Creates the folder `.banksman/` with the store. Only its config and runbooks belong into version control; a
/// .gitignore in it sees to that.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman init\n  banksman -C ~/src/app init\n  banksman init --store postgres://me@db.example.org/agents"
)]
pub(crate) struct Init {}

impl Init {
    pub(crate) fn run(self, context: &Context) -> Done {
        let project = Project::init_at(&context.directory(), context.place()?)?;
        let root = project.root().display().to_string();
        let data = json!({ "project": root, "store": project.store() });
        let human = format!(
            "{BOLD}{root}{BOLD:#} is a banksman project now\n\
             {DIM}next: banksman tasks add \"Run the tests\" --run \"make test\", then banksman run{DIM:#}"
        );
        context.printer.result(data, human);
        Ok(exit::OK)
    }
}
