//! Running a program that delivers a notice, for a limited time.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;

use super::NotifyError;
use crate::tree;

/// How much of what it prints last is kept, in bytes.
const KEPT: usize = 1_000;

/// Runs it in a process group of its own. After `limit` the group and all descendants are killed.
pub(super) fn run(command: Command, limit: Duration) -> Result<(), NotifyError> {
    let program = command.get_program().to_string_lossy().into_owned();
    match run_to_end(command, limit) {
        Ok(Some((status, _))) if status.success() => Ok(()),
        Ok(Some((status, said))) => Err(NotifyError::Exit { program, how: words(status), said }),
        Ok(None) => Err(NotifyError::Overdue { program, limit }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(NotifyError::NoProgram { program }),
        Err(source) => Err(NotifyError::Start { program, source }),
    }
}

/// How it ended and the last line that it printed; `None` if it had to be killed.
fn run_to_end(mut command: Command, limit: Duration) -> io::Result<Option<(ExitStatus, String)>> {
    let end = Instant::now() + limit;
    let (output, input) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&output, OFlags::NONBLOCK)?;
    command.stdout(input.try_clone()?).stderr(input).process_group(0);
    let mut child = command.spawn()?;
    // The command has the ends to write into, which are to close with the program.
    drop(command);
    let ended = watch(&child, output, end);
    if !matches!(ended, Ok(Some(_))) {
        tree::kill_group(&child);
    }
    let status = child.wait()?;
    Ok(ended?.map(|said| (status, said)))
}

/// Waits until it is dead, and reads what it prints meanwhile, so that it never waits for a reader. `None` if it is
/// still alive at `end`. What it started and left behind does not count.
fn watch(child: &Child, output: OwnedFd, end: Instant) -> io::Result<Option<String>> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a child has a pid");
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let mut output = Some(File::from(output));
    let mut said = Vec::new();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        let mut fds = vec![PollFd::new(&pidfd, PollFlags::IN)];
        fds.extend(output.as_ref().map(|output| PollFd::new(output, PollFlags::IN)));
        let timeout = Timespec { tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let dead = !fds[0].revents().is_empty();
        drop(fds);
        if let Some(file) = &mut output
            && drain(file, &mut said)?
        {
            output = None;
        }
        if dead {
            return Ok(Some(last_line(&said)));
        }
    }
}

/// Reads what is there, at most a pipe full, and says whether that was all there will ever be.
fn drain(output: &mut File, said: &mut Vec<u8>) -> io::Result<bool> {
    let mut piece = [0; 4_096];
    for _ in 0..16 {
        match output.read(&mut piece) {
            Ok(0) => return Ok(true),
            Ok(length) => {
                said.extend_from_slice(&piece[..length]);
                said.drain(..said.len().saturating_sub(KEPT));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// The last line with something in it, without anything that would disturb a terminal.
fn last_line(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.trim().chars().filter(|letter| !letter.is_control()).collect()
}

fn words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".into(),
    }
}
