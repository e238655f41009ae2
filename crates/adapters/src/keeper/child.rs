//! The start of the program.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};

use super::MARKER;
use super::protocol::{Spec, words};
use crate::shortage::Shortage;
use crate::{private, tree};

/// Why the program was not started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotStarted {
    pub(super) error: String,
    pub(super) shortage: Option<Shortage>,
}

impl NotStarted {
    fn new(error: &io::Error, text: String) -> NotStarted {
        NotStarted { error: text, shortage: Shortage::of(error) }
    }
}

impl From<String> for NotStarted {
    fn from(error: String) -> NotStarted {
        NotStarted { error, shortage: None }
    }
}

/// Starts the program. Returns its pid and the end of the pipe from which its output is read; or why not.
/// It dies when this thread does, which must be the main one.
pub(super) fn spawn(spec: &Spec) -> Result<(i32, OwnedFd), NotStarted> {
    for dir in &spec.make_dirs {
        let cannot = |error: io::Error| NotStarted::new(&error, format!("cannot make {dir:?}: {}", words(&error)));
        private::make_dir(dir).map_err(cannot)?;
    }
    let Some((program, arguments)) = spec.argv.split_first() else {
        return Err(String::from("there is no program to start").into());
    };
    let stdin = spec.stdin.as_deref().map_or_else(|| Ok(Stdio::null()), input)?;
    let cannot = |error: io::Error| NotStarted::new(&error, explain(spec, program, &error));
    let (output, input) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| cannot(error.into()))?;
    fcntl_setfl(&output, OFlags::NONBLOCK).map_err(|error| cannot(error.into()))?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&spec.cwd).stdin(stdin);
    command.stdout(input.try_clone().map_err(cannot)?).stderr(input);
    for name in &spec.env_remove {
        command.env_remove(name);
    }
    command.envs(spec.env.iter().map(|(name, value)| (name, value))).env(MARKER, &spec.run);
    tree::die_with_this_process(&mut command);
    let child = command.spawn().map_err(cannot)?;
    Ok((i32::try_from(child.id()).expect("a pid fits"), output))
}

/// What the program reads. Does not wait for a writer if it is a named pipe.
fn input(path: &Path) -> Result<Stdio, NotStarted> {
    let cannot = |error: io::Error| NotStarted::new(&error, format!("cannot read {path:?}: {}", words(&error)));
    let file = private::open(path, OFlags::RDONLY | OFlags::NONBLOCK).map_err(cannot)?;
    if !file.metadata().map_err(cannot)?.is_file() {
        return Err(format!("cannot read {path:?}: it is not a plain file").into());
    }
    fcntl_setfl(&file, OFlags::empty()).map_err(|error| cannot(error.into()))?;
    Ok(file.into())
}

/// A missing directory and a missing program are the same error to the system.
fn explain(spec: &Spec, program: &OsStr, error: &io::Error) -> String {
    match fs::metadata(&spec.cwd) {
        Err(error) => format!("cannot start in {:?}: {}", spec.cwd, words(&error)),
        Ok(found) if !found.is_dir() => format!("cannot start in {:?}: it is not a directory", spec.cwd),
        Ok(_) => format!("cannot start {program:?}: {}", words(error)),
    }
}
