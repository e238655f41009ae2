//! The user's notification command.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};

use super::notice::fitting;
use super::{Notice, NotifyError, child};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A program with its arguments.
    Argv(Vec<String>),
    /// A line for `sh -c`.
    Shell(String),
}

impl Program {
    /// Runs the program. It gets the notice in variables and on stdin, never as part of a line that a shell parses.
    pub(super) fn send(&self, notice: &Notice, delivery: &str, directory: &Path, limit: Duration) -> Result<(), NotifyError> {
        let mut command = self.command()?;
        command
            .current_dir(directory)
            .env("BANKSMAN_NOTICE_KIND", notice.kind.as_str())
            .env("BANKSMAN_NOTICE_SUBJECT", fitting(&notice.subject))
            .env("BANKSMAN_NOTICE_TEXT", fitting(&notice.text))
            .env("BANKSMAN_NOTICE_DELIVERY", fitting(delivery))
            .env("BANKSMAN_PROJECT", &notice.project);
        let program = command.get_program().to_string_lossy().into_owned();
        let stdin = input(&notice.to_json()).map_err(|source| NotifyError::Start { program: program.clone(), source })?;
        command.stdin(stdin);
        // The system reports a missing directory and a missing program as the same error.
        if !directory.is_dir() {
            let source = io::Error::new(io::ErrorKind::NotADirectory, format!("{} is no directory", directory.display()));
            return Err(NotifyError::Start { program, source });
        }
        child::run(command, limit)
    }

    fn command(&self) -> Result<Command, NotifyError> {
        match self {
            Program::Shell(line) => {
                let mut command = Command::new("sh");
                command.arg("-c").arg(line);
                Ok(command)
            }
            Program::Argv(words) => {
                let nothing = || NotifyError::NoProgram { program: "a program without a name".into() };
                let (program, arguments) = words.split_first().ok_or_else(nothing)?;
                let mut command = Command::new(program);
                command.args(arguments);
                Ok(command)
            }
        }
    }
}

/// A file in memory rather than a pipe: a program that does not read its stdin must not block the writer.
fn input(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("banksman-notice", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}
