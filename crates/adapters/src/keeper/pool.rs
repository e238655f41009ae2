//! Keepers that have done their work and may keep another session: starting one anew costs more than most of the rest.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::client::{Session, start_idle, start_to_stay};
use super::protocol::{Notice, Spec};
use crate::{host, reentry};

/// How long keepers wait for another session. One of them stays, so that the next session begins soon however long nothing was to do.
const SPARE: Duration = Duration::from_secs(2);

/// The keepers of one runner that have no session to keep.
#[derive(Debug, Default)]
pub struct Keepers {
    /// Another program than the one that [`reentry`] knows.
    program: Option<PathBuf>,
    /// Those that wait for another session, with the moment since when.
    idle: Vec<(Session, Instant)>,
    /// Those whose session has ended, and that have not said yet what they do next.
    leaving: Vec<Session>,
}

impl Keepers {
    /// Keepers that are this program, whose `main` calls [`reentry::enter`]. For tests, whose own `main` does not.
    #[doc(hidden)]
    pub fn of(program: PathBuf) -> Keepers {
        Keepers { program: Some(program), idle: Vec::new(), leaving: Vec::new() }
    }

    /// Starts a keeper for a session that is expected soon: it takes the kernel some milliseconds to put one into its own group.
    pub fn prepare(&mut self) {
        // If it cannot be started, the session tells.
        let keeper = self.program().and_then(start_idle);
        self.idle.extend(keeper.map(|keeper| (keeper, Instant::now())));
    }

    /// Starts a session, with a keeper that waits for one if there is any. See [`start`](super::start).
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

    /// Takes in what keepers have said. Those that have waited for long are let go, but for the last one.
    pub fn tend(&mut self) {
        for mut session in std::mem::take(&mut self.leaving) {
            let notices = session.notices();
            // It was taken for lost, and has ended only now.
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

    /// When the next one is to be let go.
    pub fn next_deadline(&self) -> Option<Instant> {
        let (_, others) = self.idle.split_last()?;
        others.iter().map(|(_, since)| *since + SPARE).min()
    }

    /// What becomes readable when there is something to [tend](Keepers::tend) to.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.leaving.iter().map(AsFd::as_fd)
    }

    /// Lets all of them go, and waits a moment until those whose session has just ended have removed its record.
    pub fn dismiss(mut self, patience: Duration) {
        let patience_ends = host::deadline(patience);
        self.tend();
        while !self.leaving.is_empty() && Instant::now() < patience_ends {
            let mut fds: Vec<PollFd<'_>> = self.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            // Whether it was interrupted or not, they are looked at.
            poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 })).ok();
            self.tend();
        }
    }
}
