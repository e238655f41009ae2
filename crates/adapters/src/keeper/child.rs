//! Starting the program of a session.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::{ioctl_tiocsctty, setsid};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::tcsetwinsize;

use super::MARKER;
use super::input::{FIRST_SIZE, Input};
use super::protocol::{InputKind, Spec, message};
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

/// A program that was started.
pub(super) struct Started {
    pub(super) pid: i32,
    /// The reading end of its stdout, or of stdout and stderr together.
    pub(super) output: OwnedFd,
    /// The reading end of its stderr, if that is separate: the stderr of an agent does not have the format of its stdout.
    pub(super) errors: Option<OwnedFd>,
    pub(super) input: Option<Input>,
}

/// Starts the program. It dies with this thread, which must be the main one.
pub(super) fn spawn(spec: &Spec) -> Result<Started, NotStarted> {
    for dir in &spec.make_dirs {
        let cannot = |error: io::Error| NotStarted::new(&error, format!("cannot make {dir:?}: {}", message(&error)));
        private::make_dir(dir).map_err(cannot)?;
    }
    let Some((program, arguments)) = spec.argv.split_first() else {
        return Err(String::from("there is no program to start").into());
    };
    let cannot = |error: io::Error| NotStarted::new(&error, explain(spec, program, &error));
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&spec.cwd);
    let (output, errors, input) = match spec.input {
        Some(InputKind::Terminal) => {
            let (output, input) = terminal(&mut command).map_err(cannot)?;
            (output, None, Some(input))
        }
        kind => {
            let (output, write) = output_pipe().map_err(cannot)?;
            let errors = match spec.agent {
                Some(_) => {
                    widen(&output);
                    let (errors, its) = output_pipe().map_err(cannot)?;
                    command.stdout(write).stderr(its);
                    Some(errors)
                }
                None => {
                    command.stdout(write.try_clone().map_err(cannot)?).stderr(write);
                    None
                }
            };
            let input = match kind {
                Some(kind) => {
                    let mut input = input_pipe(kind, &mut command).map_err(cannot)?;
                    if let Some(path) = &spec.stdin {
                        let mut first = Vec::new();
                        stdin_file(path)?.read_to_end(&mut first).map_err(cannot)?;
                        input.begin_with(first);
                    }
                    Some(input)
                }
                None => {
                    let file = spec.stdin.as_deref().map(stdin_file).transpose()?;
                    command.stdin(file.map_or_else(Stdio::null, Stdio::from));
                    None
                }
            };
            (output, errors, input)
        }
    };
    for name in &spec.env_remove {
        command.env_remove(name);
    }
    command.envs(spec.env.iter().map(|(name, value)| (name, value))).env(MARKER, &spec.run);
    tree::die_with_this_process(&mut command);
    let child = command.spawn().map_err(cannot)?;
    Ok(Started { pid: i32::try_from(child.id()).expect("a pid fits"), output, errors, input })
}

/// A pipe with a non-blocking reading end.
fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (output, input) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&output, OFlags::NONBLOCK)?;
    Ok((output, input))
}

/// Makes a pipe as large as an unprivileged user may. An agent program may exit without waiting until its last lines
/// are read: output that does not fit into the pipe at that moment is lost, and the result with it. If the system
/// refuses, the pipe keeps the usual size.
fn widen(pipe: &OwnedFd) {
    const SIZE: usize = 1 << 20;
    fcntl_setpipe_size(pipe, SIZE).ok();
}

/// Gives the program a pipe as stdin, with a non-blocking writing end.
fn input_pipe(kind: InputKind, command: &mut Command) -> io::Result<Input> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&write, OFlags::NONBLOCK)?;
    command.stdin(read);
    Ok(Input::new(kind, write))
}

/// Gives the program a terminal of its own. Returns our side of it, to read from and to write to.
#[expect(unsafe_code, reason = "a terminal is taken between fork and exec, by the program itself")]
fn terminal(command: &mut Command) -> io::Result<(OwnedFd, Input)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    unlockpt(&ours)?;
    let theirs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    tcsetwinsize(&ours, FIRST_SIZE)?;
    fcntl_setfl(&ours, OFlags::RDWR | OFlags::NONBLOCK)?;
    command.stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(theirs);
    let take_terminal = || {
        setsid()?;
        // At this point stdin is the terminal.
        Ok(ioctl_tiocsctty(rustix::stdio::stdin())?)
    };
    // SAFETY: between fork and exec only system calls are made; nothing is allocated and no lock is taken.
    unsafe { command.pre_exec(take_terminal) };
    command.env("TERM", std::env::var_os("TERM").filter(|term| term != "dumb").unwrap_or_else(|| "xterm-256color".into()));
    let input = Input::new(InputKind::Terminal, ours.try_clone()?);
    Ok((ours, input))
}

/// Opens the stdin of the program. Does not block on a named pipe.
fn stdin_file(path: &Path) -> Result<File, NotStarted> {
    let cannot = |error: io::Error| NotStarted::new(&error, format!("cannot read {path:?}: {}", message(&error)));
    let file = private::open(path, OFlags::RDONLY | OFlags::NONBLOCK).map_err(cannot)?;
    if !file.metadata().map_err(cannot)?.is_file() {
        return Err(format!("cannot read {path:?}: it is not a plain file").into());
    }
    fcntl_setfl(&file, OFlags::empty()).map_err(|error| cannot(error.into()))?;
    Ok(file)
}

/// Explains why the program was not started: the system reports a missing directory and a missing program as the same error.
fn explain(spec: &Spec, program: &OsStr, error: &io::Error) -> String {
    match fs::metadata(&spec.cwd) {
        Err(error) => format!("cannot start in {:?}: {}", spec.cwd, message(&error)),
        Ok(found) if !found.is_dir() => format!("cannot start in {:?}: it is not a directory", spec.cwd),
        Ok(_) => format!("cannot start {program:?}: {}", message(error)),
    }
}
