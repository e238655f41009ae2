//! `runbooks new`: writes a template.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};

use banksman_runtime::runbooks::RunbookError;
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::commands::ExitResult;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::{Failure, near_path};
use crate::printer::{BOLD, DIM};
use crate::views::Text;

/// Write a runbook template to .banksman/runbooks. An existing file is not changed.
///
/// The first lines of the file describe how to use it. Adapt the file to your project.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman runbooks new feature\n  banksman runbooks new triage")]
pub(super) struct New {
    /// The template
    which: Which,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Which {
    /// Takes a branch through build, test and review to the main branch
    Feature,
    /// Processes a queue of issues at night, each with a pipeline
    Triage,
}

impl Which {
    fn name(self) -> &'static str {
        match self {
            Which::Feature => "feature",
            Which::Triage => "triage",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Which::Feature => include_str!("../../../../../docs/runbooks/feature.toml"),
            Which::Triage => include_str!("../../../../../docs/runbooks/triage.toml"),
        }
    }
}

#[derive(Serialize)]
struct Written<'a> {
    runbook: &'static str,
    path: Text<std::path::Display<'a>>,
}

impl New {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let name = self.which.name();
        let dir = project.runbooks_dir();
        let path = dir.join(format!("{name}.toml"));
        let write = || {
            fs::create_dir_all(&dir)?;
            OpenOptions::new().write(true).create_new(true).open(&path)?.write_all(self.which.text().as_bytes())
        };
        write().map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => Failure::new(exit::USAGE, "RUNBOOK_EXISTS", format!("runbook {name} already exists"))
                .detail("runbook", &name)
                .detail("path", &path.display().to_string())
                .hint("remove or rename it first"),
            _ => Failure::from(RunbookError::Io { path: path.clone(), source: error }),
        })?;
        let human = format!(
            "wrote {BOLD}{}{BOLD:#}\n{DIM}read its first lines, adapt it, and view it with: banksman runbooks show {name}{DIM:#}",
            near_path(&path.to_string_lossy())
        );
        context.printer.result(&Written { runbook: name, path: Text(path.display()) }, human)
    }
}
