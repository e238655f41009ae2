use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use banksman_runtime::{Project, ProjectError, StoreUrl};
use banksman_store::{Copied, StoreError};

use super::ExitResult;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::BOLD;
use crate::views::Text;

subcommands! {
    /// Copy or back up the store.
    #[command(
        after_help = "Examples:\n  banksman store backup ../backup.db\n  banksman store copy sqlite:.banksman/store.db postgres://me@db.example.org/agents"
    )]
    pub(crate) noun Store {
        Copy(Copy),
        Backup(Backup),
    }
}

/// Write a copy of the store to a file, while the store is in use.
///
/// The copy contains everything that was committed before the command started. It is written entirely or not at all, only its owner can
/// read it, and an existing file is never overwritten. A plain copy of store.db is no backup: the newest events are in store.db-wal. To
/// restore a backup, see docs/guides/backup.md. Back up a project in PostgreSQL with pg_dump.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman store backup ../backup.db\n  banksman store backup \"/backups/app-$(date +%F).db\""
)]
struct Backup {
    /// The file to write, which must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Copy this project from one store to another, and retire the old store.
///
/// All current state and history is copied and checked; leases keep their remaining time. The old store cannot be written meanwhile,
/// and afterwards every command that opens it prints the new location. The command is refused while tasks run. If the copy fails, both
/// stores are unchanged; if it is killed, repeat the command. --undo makes the old store current again, as long as the new one has not
/// changed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman store copy sqlite:.banksman/store.db postgres://me@db.example.org/agents\n  banksman store copy postgres://me@db.example.org/agents sqlite:.banksman/store.db\n  banksman store copy --undo sqlite:.banksman/store.db postgres://me@db.example.org/agents"
)]
struct Copy {
    /// Make FROM current again, which was copied to TO before
    #[arg(long)]
    undo: bool,
    /// The store to read
    #[arg(value_name = "FROM")]
    from: String,
    /// The store to write
    #[arg(value_name = "TO")]
    to: String,
}

#[derive(Serialize)]
struct Written<'a> {
    file: Text<std::path::Display<'a>>,
    #[serde(flatten)]
    backup: banksman_store::sqlite::Backup,
}

/// The store in use, and the retired one.
#[derive(Serialize)]
struct Moved<'a> {
    store: &'a str,
    retired: &'a str,
}

#[derive(Serialize)]
struct CopiedStore<'a> {
    #[serde(flatten)]
    copied: Copied,
    #[serde(flatten)]
    moved: Moved<'a>,
}

impl Backup {
    fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let printer = context.printer.clone();
        let watched = printer.is_watched();
        let mut printed = Instant::now();
        let progress = move |bytes: u64| {
            if watched && printed.elapsed() > Duration::from_secs(1) {
                printed = Instant::now();
                printer.rewrite(&format!("{} written", format::bytes(bytes)));
            }
        };
        let written = project.backup(&self.file, Box::new(progress));
        if watched {
            context.printer.rewrite("");
        }
        let written = written.map_err(|error| match error {
            ProjectError::NoBackup { ref url } => {
                let hint = format!("pg_dump --schema=banksman '{url}' > {}", format::quoted(self.file.display()));
                Failure::usage(&error).hint(hint)
            }
            ProjectError::Store(StoreError::Exists { .. }) => {
                let message = format!("{} already exists", self.file.display());
                Failure::new(exit::USAGE, "FILE_EXISTS", message).hint("nothing was changed; give a file that does not exist")
            }
            error => error.into(),
        })?;
        let view = Written { file: Text(self.file.display()), backup: written };
        let size = format::bytes(written.bytes);
        context
            .printer
            .result(&view, format!("{BOLD}{}{BOLD:#}: {size}, up to event {}", self.file.display(), written.last_event))
    }
}

impl Copy {
    fn run(self, context: &Context) -> ExitResult {
        let place = |url: &str| StoreUrl::parse(url, crate::context::variable);
        let project = Project::find_at(&context.directory(), Some(place(&self.from)?))?;
        let (from, to) = (project.store_url(), place(&self.to)?);
        if self.undo {
            project.undo_copy(&to)?;
            let human = format!("{BOLD}{from}{BOLD:#} is the current store again; {} is retired", to.url());
            return context.printer.result(&Moved { store: &from, retired: &to.url() }, human);
        }
        let url = to.url();
        let copied = match project.copy_to(to.clone()) {
            // An earlier copy was killed just before its end.
            Err(ProjectError::Store(StoreError::Moved { to: there })) if there == url && project.finish_copy(&to)? => {
                let human = format!("the copy was already complete; {BOLD}{url}{BOLD:#} is the current store now");
                return context.printer.result(&Moved { store: &url, retired: &from }, human);
            }
            copied => copied?,
        };
        let Copied { locks, semaphores, holders, tasks, items, events, messages } = copied;
        let view = CopiedStore { copied, moved: Moved { store: &url, retired: &from } };
        let counted = |number: usize, noun: &str| {
            let plural = if number == 1 { "" } else { "s" };
            format!("{BOLD}{number}{BOLD:#} {noun}{plural}")
        };
        let counts = [
            (locks, "lock"),
            (semaphores, "semaphore"),
            (holders, "holder"),
            (tasks, "task"),
            (items, "item"),
            (messages, "message"),
        ];
        let rows = counts.map(|(number, noun)| counted(number, noun)).join(", ");
        let human = format!(
            "copied {rows} and {}; event log and tables agree\n\
             {from} is retired; use the project with BANKSMAN_STORE={}",
            counted(events, "event"),
            format::quoted(&url)
        );
        context.printer.result(&view, human)
    }
}
