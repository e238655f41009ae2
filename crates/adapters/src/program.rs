//! Running a program for a limited time, and keeping a limited part of its output.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use banksman_core::output::telling_line;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;

use crate::{host, tree};

/// The result of a program.
#[derive(Debug)]
pub struct ProgramOutput {
    pub status: ExitStatus,
    pub stdout: Kept,
    pub stderr: Kept,
}

/// A part of the output of a program.
#[derive(Debug)]
pub struct Kept {
    which: Which,
    limit: usize,
    pub bytes: Vec<u8>,
    /// Whether output was dropped.
    pub is_cut: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    First,
    Last,
}

impl Kept {
    /// Keeps the beginning.
    pub fn first(limit: usize) -> Kept {
        Kept { which: Which::First, limit, bytes: Vec::new(), is_cut: false }
    }

    /// Keeps the end.
    pub fn last(limit: usize) -> Kept {
        Kept { which: Which::Last, limit, bytes: Vec::new(), is_cut: false }
    }

    /// The last telling line, without control characters, which would disturb a terminal.
    pub fn last_line(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        telling_line(&text).chars().filter(|letter| !letter.is_control()).collect()
    }

    fn add(&mut self, piece: &[u8]) {
        let room = match self.which {
            Which::First => piece.len().min(self.limit - self.bytes.len()),
            Which::Last => piece.len(),
        };
        self.bytes.extend_from_slice(&piece[..room]);
        let over = self.bytes.len().saturating_sub(self.limit);
        self.bytes.drain(..over);
        self.is_cut |= room < piece.len() || over > 0;
    }
}

/// Runs a command in a process group of its own. After `limit` the group and all descendants are killed, and the result
/// is `None`. Processes that the command leaves behind are not waited for.
pub fn run(mut command: Command, limit: Duration, stdout: Kept, stderr: Kept) -> io::Result<Option<ProgramOutput>> {
    let end = host::deadline(limit);
    let (mut stdout, out) = Stream::new(stdout)?;
    let (mut stderr, err) = Stream::new(stderr)?;
    command.stdout(out).stderr(err).process_group(0);
    let mut child = command.spawn()?;
    // The `Command` holds the writing ends, which must close with the program.
    drop(command);
    let seen = watch(&child, &mut [&mut stdout, &mut stderr], end, None);
    if !matches!(seen, Ok(Seen::Dead)) {
        tree::kill_group(&child);
    }
    let status = child.wait()?;
    Ok((seen? == Seen::Dead).then_some(ProgramOutput { status, stdout: stdout.kept, stderr: stderr.kept }))
}

/// A pipe that is read while the program runs.
pub(crate) struct Stream {
    file: Option<File>,
    pub(crate) kept: Kept,
}

impl Stream {
    /// Returns the stream and the writing end of its pipe.
    pub(crate) fn new(kept: Kept) -> io::Result<(Stream, OwnedFd)> {
        let (output, input) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&output, OFlags::NONBLOCK)?;
        Ok((Stream { file: Some(File::from(output)), kept }, input))
    }

    /// Reads the available bytes, at most as many as a pipe holds.
    fn drain(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut piece = [0; 4_096];
        for _ in 0..16 {
            match file.read(&mut piece) {
                Ok(0) => {
                    self.file = None;
                    return Ok(());
                }
                Ok(length) => self.kept.add(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Why [`watch`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    Dead,
    Late,
    /// `stop` is readable or closed.
    Unwanted,
}

/// Waits until a child is dead, and reads its output meanwhile, so that the child never blocks on a full pipe. Waits
/// until `end` at most, or until `stop` is readable or closed at its other end.
pub(crate) fn watch(child: &Child, streams: &mut [&mut Stream], end: Instant, stop: Option<BorrowedFd<'_>>) -> io::Result<Seen> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a child has a pid");
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Seen::Late);
        }
        let mut fds = vec![PollFd::new(&pidfd, PollFlags::IN)];
        fds.extend(stop.map(|stop| PollFd::from_borrowed_fd(stop, PollFlags::IN)));
        fds.extend(streams.iter().filter_map(|stream| stream.file.as_ref()).map(|file| PollFd::new(file, PollFlags::IN)));
        let timeout = Timespec { tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |index: usize| !fds[index].revents().is_empty();
        let (is_dead, is_unwanted) = (is_ready(0), stop.is_some() && is_ready(1));
        drop(fds);
        streams.iter_mut().try_for_each(|stream| stream.drain())?;
        if is_dead {
            return Ok(Seen::Dead);
        }
        if is_unwanted {
            return Ok(Seen::Unwanted);
        }
    }
}
