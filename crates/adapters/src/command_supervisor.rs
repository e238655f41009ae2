//! The supervisor: the parent process of a short command. It leaves no process of the command behind.
//!
//! ```text
//!  caller --socket-- supervisor --spawn--> command --> ...     the supervisor is a subreaper: whatever a descendant does, it stays
//!                      `-- "exit 0" to the caller          below the supervisor and can be found, killed and reaped
//! ```
//!
//! The command is over when it exits, or when the caller shuts the socket: because of its time limit, because its
//! result is not wanted any more, or because the caller is dead. Then the supervisor kills all processes that are left
//! below it, and reports how the command ended. If the command has stopped the supervisor, the caller kills both and
//! all their descendants. If the supervisor itself is killed, the command dies with it, and the descendants of the
//! command are left.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, WaitStatus, getpid, pidfd_open, set_child_subreaper};
use rustix::time::Timespec;

use crate::keeper::is_process_stopped;
use crate::program::{Kept, Seen, Stream, watch};
use crate::{host, reentry, tree};

/// The hidden first argument.
const MARK: &str = "__minder";

/// How long a supervisor may take to kill everything. Only a process that sleeps uninterruptibly takes longer.
const KILLED: Duration = Duration::from_secs(5);

/// The interval of the checks whether a supervisor that does not end is stopped.
const STOPPED: Duration = Duration::from_millis(50);

/// The interval of the checks for processes that must die.
const ROUND: Duration = Duration::from_millis(5);

/// A command and its limits.
#[derive(Debug)]
pub struct Task<'a> {
    /// The program with its arguments.
    pub argv: Vec<OsString>,
    pub directory: &'a Path,
    /// Variables in addition to the environment of this process.
    pub env: Vec<(String, OsString)>,
    /// Variables of this process that the command must not inherit.
    pub env_remove: &'a [&'a str],
    /// How long the command may take.
    pub limit: Duration,
    /// The command is cancelled as soon as this is readable, or closed at its other end.
    pub stop: Option<BorrowedFd<'a>>,
    /// How much of the beginning of its stdout is kept, in bytes.
    pub keep: usize,
}

/// The result of a command.
#[derive(Debug)]
pub struct CommandReport {
    pub end: CommandEnd,
    pub stdout: Kept,
    /// The end of stderr.
    pub stderr: Kept,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandEnd {
    /// The command exited with this status.
    Exited(i32),
    Signalled(i32),
    NotStarted(String),
    TimedOut,
    /// The command was cancelled, maybe before it began.
    Unwanted,
    /// The supervisor was killed.
    Lost,
}

/// Runs a command to its end, and kills the processes that it leaves behind. The supervisor is the program that
/// [`reentry`] knows; without one nothing is started.
pub fn run(task: Task<'_>) -> io::Result<CommandReport> {
    let end = host::deadline(task.limit);
    if task.stop.is_some_and(is_over) {
        return Ok(CommandReport { end: CommandEnd::Unwanted, stdout: Kept::first(0), stderr: Kept::last(0) });
    }
    let (ours, theirs) = UnixStream::pair()?;
    let (mut stdout, out) = Stream::new(Kept::first(task.keep))?;
    let (mut stderr, err) = Stream::new(Kept::last(4_096))?;
    let mut command_supervisor = Command::new(reentry::program()?);
    command_supervisor.arg0("banksman").arg(MARK).args(task.argv).current_dir(task.directory).envs(task.env).process_group(0);
    for name in task.env_remove {
        command_supervisor.env_remove(name);
    }
    command_supervisor.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(out).stderr(err);
    let mut child = command_supervisor.spawn()?;
    // The `Command` holds the other ends, which must close with the supervisor.
    drop(command_supervisor);
    let streams = &mut [&mut stdout, &mut stderr];
    let seen = watch(&child, streams, end, task.stop);
    if !matches!(seen, Ok(Seen::Dead)) {
        ours.shutdown(Shutdown::Write).ok();
        if !ends_everything(&child, streams) {
            tree::kill_group(&child);
        }
    }
    child.wait()?;
    let end = match seen? {
        Seen::Dead => report(ours)?,
        Seen::Late => CommandEnd::TimedOut,
        Seen::Unwanted => CommandEnd::Unwanted,
    };
    Ok(CommandReport { end, stdout: stdout.kept, stderr: stderr.kept })
}

/// Waits until the supervisor has ended all processes, and returns whether it has. One that its command has stopped never does.
fn ends_everything(command_supervisor: &Child, streams: &mut [&mut Stream]) -> bool {
    let until = Instant::now() + KILLED;
    loop {
        match watch(command_supervisor, streams, (Instant::now() + STOPPED).min(until), None) {
            Ok(Seen::Dead) => return true,
            Ok(Seen::Late | Seen::Unwanted) => {}
            Err(_) => return false,
        }
        let is_stopped = i32::try_from(command_supervisor.id()).is_ok_and(is_process_stopped);
        if is_stopped || Instant::now() >= until {
            return false;
        }
    }
}

/// Whether `stop` is readable, or closed at its other end.
fn is_over(stop: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(stop, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Reads the last words of the supervisor.
fn report(mut ours: UnixStream) -> io::Result<CommandEnd> {
    let mut text = String::new();
    ours.read_to_string(&mut text)?;
    let number = |text: &str| text.parse().ok();
    let end = match text.split_once(' ') {
        Some(("exit", status)) => number(status).map(CommandEnd::Exited),
        Some(("signal", signal)) => number(signal).map(CommandEnd::Signalled),
        Some(("error", words)) => Some(CommandEnd::NotStarted(words.into())),
        Some(_) | None => None,
    };
    Ok(end.unwrap_or(CommandEnd::Lost))
}

/// Becomes a supervisor if the arguments ask for one. Returns `None` otherwise.
pub(crate) fn enter(args: &[OsString]) -> Option<ExitCode> {
    let (mark, argv) = args.get(1..)?.split_first()?;
    if mark != MARK {
        return None;
    }
    let mut control = match io::stdin().as_fd().try_clone_to_owned() {
        Ok(socket) => UnixStream::from(socket),
        Err(_) => return Some(ExitCode::FAILURE),
    };
    let said = supervise(argv, &control).unwrap_or_else(|error| format!("error {error}"));
    // The caller may be gone; then the report is not needed.
    control.write_all(said.as_bytes()).ok();
    Some(ExitCode::SUCCESS)
}

fn supervise(argv: &[OsString], control: &UnixStream) -> io::Result<String> {
    set_child_subreaper(Some(getpid()))?;
    let (program, arguments) = argv.split_first().ok_or_else(|| io::Error::other("there is no command"))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).process_group(0);
    tree::die_with_this_process(&mut command);
    let child = command.spawn().map_err(|error| io::Error::other(format!("{}: {error}", display(program))))?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::other("a child without a pid"))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN), PollFd::new(control, PollFlags::IN)];
    while matches!(poll(&mut fds, None), Err(rustix::io::Errno::INTR)) {}
    Ok(end_all(pid))
}

/// Kills and reaps all descendants, and returns how the command ended.
fn end_all(command: Pid) -> String {
    let mut said = String::new();
    let mut end = tree::TreeShutdown::begin(Duration::ZERO);
    let mut reap = || {
        tree::reap(|pid, status| {
            if pid == command {
                said = describe(status)
            }
        })
    };
    // Reaping comes before killing: a command that is dead by now has ended by itself.
    while reap() {
        std::thread::sleep(end.step().min(ROUND));
    }
    said
}

fn describe(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => String::new(),
    }
}

fn display(program: &OsStr) -> String {
    program.to_string_lossy().into_owned()
}
