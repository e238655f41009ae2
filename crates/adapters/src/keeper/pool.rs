//! Idle keepers that can keep another session: starting a keeper is one of the most expensive parts of starting a session.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::client::{Session, start_idle, start_to_stay};
use super::protocol::{Notice, Spec};
use crate::{host, reentry};

/// How long keepers wait for another session. One always stays, so that the next session begins soon even after a long pause.
const SPARE: Duration = Duration::from_secs(2);

/// The idle keepers of one runner.
#[derive(Debug, Default)]
pub struct Keepers {
    /// The program of the keepers, if it is not the one that [`reentry`] knows.
    program: Option<PathBuf>,
    /// The keepers that wait for another session, each with the start of its wait.
    idle: Vec<(Session, Instant)>,
    /// The keepers whose session has ended, and that have not reported yet whether they stay.
    leaving: Vec<Session>,
}

impl Keepers {
    /// Keepers that run another program, whose `main` calls [`reentry::enter`]. For tests, whose own `main` does not.
    #[doc(hidden)]
    pub fn of(program: PathBuf) -> Keepers {
        Keepers { program: Some(program), idle: Vec::new(), leaving: Vec::new() }
    }

    /// Starts a keeper for a session that is expected soon: moving it into its own cgroup takes some milliseconds.
    pub fn prepare(&mut self) {
        // If it cannot be started, starting the session fails and reports the error.
        let keeper = self.program().and_then(start_idle);
        self.idle.extend(keeper.map(|keeper| (keeper, Instant::now())));
    }

    /// Starts a session, with an idle keeper if there is one. See [`start`](super::start).
    pub fn start(&mut self, spec: &Spec) -> io::Result<Session> {
        self.tend();
        match self.idle.pop() {
            Some((session, _)) => session.again(spec),
            None => start_to_stay(self.program()?, spec),
        }
    }

    fn program(&self) -> io::Result<&Path> {
        self.program.as_deref().map_or_else(|| Ok(reentry::program()?), Ok)
    }

    /// Acknowledges the end of a session. Its keeper may keep another one.
    pub fn acknowledge(&mut self, mut session: Session) {
        session.acknowledge();
        self.leaving.push(session);
    }

    /// Reads the notices of the keepers, and dismisses keepers that have been idle for long, except for the last one.
    pub fn tend(&mut self) {
        for mut session in std::mem::take(&mut self.leaving) {
            let notices = session.notices();
            // A session that was taken for lost has ended only now.
            if notices.iter().any(|notice| matches!(notice, Notice::Ended(_))) {
                session.acknowledge();
            }
            if notices.contains(&Notice::Gone) {
                continue;
            }
            if notices.contains(&Notice::Ready) {
                self.idle.push((session, Instant::now()));
            } else {
                self.leaving.push(session);
            }
        }
        self.idle.retain_mut(|(session, _)| session.notices().is_empty());
        let last = self.idle.pop();
        self.idle.retain(|(_, since)| since.elapsed() < SPARE);
        self.idle.extend(last);
    }

    /// The time at which the next keeper is dismissed.
    pub fn next_deadline(&self) -> Option<Instant> {
        let (_, others) = self.idle.split_last()?;
        others.iter().map(|(_, since)| *since + SPARE).min()
    }

    /// The descriptors that become readable when [`tend`](Keepers::tend) has work.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.leaving.iter().map(AsFd::as_fd)
    }

    /// Dismisses all keepers. Waits a moment until those whose session has just ended have removed its record.
    pub fn dismiss(mut self, patience: Duration) {
        let patience_ends = host::deadline(patience);
        self.tend();
        while !self.leaving.is_empty() && Instant::now() < patience_ends {
            let mut fds: Vec<PollFd<'_>> = self.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            // The keepers are read again, whatever ends the poll.
            poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 })).ok();
            self.tend();
        }
    }
}
