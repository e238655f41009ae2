use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory};
use clap_mangen::Man as Page;
use serde::Serialize;

use super::ExitResult;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::views::{Named, Text};

/// Write the manual: a page for every command into a directory, or the first page to stdout.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman man ~/.local/share/man/man1\n  banksman man | man -l -")]
pub(crate) struct Man {
    /// Where to put the pages; it is made if it is not there
    #[arg(value_name = "DIR")]
    target: Option<PathBuf>,
}

#[derive(Serialize)]
struct Written<'a> {
    directory: Text<std::path::Display<'a>>,
    pages: Vec<String>,
}

impl Man {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        let mut command = crate::Cli::command();
        command.build();
        match &self.target {
            Some(dir) => {
                let pages = write(&command, dir).map_err(|error| failure(dir, &error))?;
                let human = format!("{} pages written to {}", pages.len(), dir.display());
                context.printer.print(&Written { directory: Text(dir.display()), pages }, human);
            }
            None => {
                let mut page = Vec::new();
                Page::new(command).render(&mut page).expect("memory can be written to");
                let page = String::from_utf8_lossy(&page);
                context.printer.print(&Named("page", &page), &page);
            }
        }
        Ok(exit::OK)
    }
}

fn write(command: &clap::Command, dir: &Path) -> io::Result<Vec<String>> {
    fs::create_dir_all(dir)?;
    let mut names = Vec::new();
    let mut left = vec![command];
    while let Some(command) = left.pop() {
        let page = Page::new(command.clone());
        page.generate_to(dir)?;
        names.push(page.get_filename());
        left.extend(command.get_subcommands());
    }
    names.sort();
    Ok(names)
}

fn failure(dir: &Path, error: &io::Error) -> Failure {
    let message = format!("{}: {error}", dir.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Failure::new(exit::NOT_PERMITTED, "READ_ONLY", message)
        }
        _ => Failure::new(exit::ERROR, "SYSTEM", message),
    }
}
