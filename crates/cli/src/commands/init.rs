use banksman_runtime::{Project, StoreUrl};
use clap::Args;
use serde::Serialize;

use super::ExitResult;
use crate::context::Context;
use crate::printer::{BOLD, DIM};

/// Create a project in this directory.
///
/// Creates the folder `.banksman/` with the store. Only its config and runbooks belong in version control; its .gitignore
/// excludes the rest.
///
/// In a clone, the existing config keeps its id. If it says that the project is stored in a database (`shared = true`), no
/// second store is created.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman init\n  banksman -C ~/src/app init\n  banksman init --store postgres://me@db.example.org/agents\n  banksman init --new-id"
)]
pub(crate) struct Init {
    /// Create a separate project, even if the config in this directory names another one
    #[arg(long)]
    new_id: bool,
}

#[derive(Serialize)]
struct Made<'a> {
    project: &'a str,
    store: String,
}

impl Init {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        let (directory, place) = (context.directory(), context.store_url()?);
        let own_store = !self.new_id && !matches!(place, Some(StoreUrl::Postgres(_)));
        let committed = Project::committed_id(&directory).filter(|_| own_store);
        let project = match self.new_id {
            true => Project::init_with_new_id(&directory, place)?,
            false => Project::init_at(&directory, place)?,
        };
        if let Some(id) = committed {
            context.printer.note(&format!(
                "note: the config in this directory already names project {id}; this is a new, separate store that shares no locks and \
                 no tasks with other clones. If {id} is stored in a database, remove {} and set BANKSMAN_STORE",
                project.store()
            ));
        }
        // The URL may contain a password, so it is stored only if the user sets it.
        if context.store.is_some() && std::env::var_os("BANKSMAN_STORE").is_none() {
            context.printer.note(
                "note: --store applies to this command only; for the others set BANKSMAN_STORE, or once for this machine: \
                 banksman config set --user store URL",
            );
        }
        let root = project.root().display().to_string();
        let view = Made { project: &root, store: project.store() };
        let human = format!(
            "{BOLD}{root}{BOLD:#} is a banksman project now\n\
             {DIM}next: banksman tasks add \"Run the tests\" --run \"make test\", then banksman run{DIM:#}"
        );
        context.printer.result(&view, human)
    }
}
