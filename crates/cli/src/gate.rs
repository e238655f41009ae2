//! The gate before a command: a process that waits for the lock, and then becomes the command.
//!
//! It exists so that the identity of the command can be recorded together with the lock: pid and start time survive
//! `exec`. The gate dies with the wrapper that started it, and so does the command.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use crate::exit_codes as exit;
use crate::terminal;

/// The hidden first argument of a gate process.
const MARK: &str = "__gate";

/// The wrapper's side: the waiting child, and the pipe that releases it.
pub(crate) struct Gate {
    child: Child,
    pipe: File,
    /// Stays open because the child opens the read end through `/proc` at any later time.
    _read: OwnedFd,
}

/// Starts a gate for `command`. Must be called from the main thread: the child dies with the thread that started it.
pub(crate) fn start(command: &[OsString]) -> std::io::Result<Gate> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let mut gate = Command::new("/proc/self/exe");
    let own = getpid().as_raw_nonzero().get();
    gate.arg0("banksman").arg(MARK).arg(own.to_string()).arg(read.as_raw_fd().to_string()).args(command);
    let child = gate.spawn()?;
    Ok(Gate { child, pipe: File::from(write), _read: read })
}

impl Gate {
    /// The pid of the gate, and of the command that it becomes.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid fits")
    }

    /// Opens the gate: the command starts, with these variables added to its environment. The gate must be kept until
    /// the command ends, because the child may not have opened its end of the pipe yet.
    pub(crate) fn open(&mut self, variables: &[(&str, OsString)]) -> std::io::Result<()> {
        let mut text = Vec::new();
        for (name, value) in variables {
            text.extend([name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat());
        }
        text.push(0);
        self.pipe.write_all(&text)
    }

    /// Closes the gate for good: the command never starts.
    pub(crate) fn abandon(self) {
        let Gate { mut child, pipe, _read } = self;
        drop(pipe);
        // The gate exits when the pipe closes.
        child.wait().ok();
    }
}

/// The child's side. Returns `None` if this process is not a gate.
pub(crate) fn enter(args: &[OsString]) -> Option<ExitCode> {
    let mut args = args.iter().skip(1);
    if args.next()? != MARK {
        return None;
    }
    let number = |arg: Option<&OsString>| arg?.to_str()?.parse::<i32>().ok();
    let (parent, fd) = (number(args.next())?, number(args.next())?);
    let command: Vec<&OsString> = args.collect();
    Some(wait_and_become(parent, fd, &command))
}

fn wait_and_become(parent: i32, fd: i32, command: &[&OsString]) -> ExitCode {
    let orphan = |()| getppid().is_none_or(|pid| pid.as_raw_nonzero().get() != parent);
    // If the wrapper died before the death signal was set, nothing would end this process.
    if set_parent_process_death_signal(Some(Signal::KILL)).map_or(true, orphan) {
        return ExitCode::from(exit::ERROR);
    }
    let Some(variables) = read_variables(parent, fd) else { return ExitCode::from(exit::ERROR) };
    let Some((program, arguments)) = command.split_first() else { return ExitCode::from(exit::USAGE) };
    let error = Command::new(program).args(arguments).envs(variables).exec();
    let status = if error.kind() == std::io::ErrorKind::NotFound { exit::NO_SUCH_COMMAND } else { exit::NOT_EXECUTABLE };
    let mut stderr = std::io::stderr();
    writeln!(stderr, "banksman: {}: {error}", terminal::plain(&program.to_string_lossy())).ok();
    ExitCode::from(status)
}

/// Reads `NAME=value` pairs until the empty pair that releases the command; `None` if the pipe closes before. The pipe
/// is opened through the parent's `/proc`, so that the command does not inherit a stray descriptor.
fn read_variables(parent: i32, fd: i32) -> Option<Vec<(OsString, OsString)>> {
    let mut pipe = BufReader::new(File::open(format!("/proc/{parent}/fd/{fd}")).ok()?);
    let mut variables = Vec::new();
    loop {
        let mut pair = Vec::new();
        pipe.read_until(0, &mut pair).ok()?;
        if pair.pop()? != 0 {
            return None;
        }
        if pair.is_empty() {
            return Some(variables);
        }
        let value = pair.split_off(pair.iter().position(|byte| *byte == b'=')?);
        variables.push((OsString::from_vec(pair), OsStr::from_bytes(&value[1..]).into()));
    }
}
