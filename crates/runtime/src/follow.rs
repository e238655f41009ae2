//! Follows the event log: sleeps on the change notifier, never repeats an event, and misses none that is not compacted.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use banksman_core::Seq;
use banksman_store::{EventFilter, EventRow, Mark, Reader};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::Error;
use crate::project::Project;
use crate::wakeups::EventListener;

/// A reading position in the event log.
pub struct Follower {
    reader: Reader,
    listener: EventListener,
    after: Seq,
    missed: Option<Mark>,
    poll_interval: Duration,
}

impl Follower {
    pub(crate) fn open(project: &Project, after: Seq) -> Result<Follower, Error> {
        let reader = project.reader()?;
        let listener = EventListener::open(project, reader.project())?;
        Ok(Follower { reader, listener, after, missed: None, poll_interval: project.config().poll_interval })
    }

    /// The next events that pass the filter; none if there is nothing new. The listener wakes for later ones.
    pub fn next(&mut self, filter: &EventFilter) -> Result<Vec<EventRow>, Error> {
        self.listener.empty();
        loop {
            let page = self.reader.view().events(self.after, filter)?;
            if page.compacted.through > self.after {
                self.missed = Some(page.compacted);
            }
            self.after = page.last.max(page.compacted.through);
            if !page.events.is_empty() || !page.more {
                return Ok(page.events);
            }
        }
    }

    /// How far the log was compacted past this position, if it was since the last call: the events up to there that
    /// `next` has not returned are lost.
    pub fn missed(&mut self) -> Option<Mark> {
        self.missed.take()
    }

    /// Sleeps until the change notifier rings, a poll is due, or `cancel` becomes readable. Returns false in the last case.
    pub fn wait(&self, cancel: BorrowedFd<'_>) -> bool {
        self.wait_for(cancel, &[], self.poll_interval)
    }

    /// The same, but for at most `at_most`, and also until one of `others` becomes readable.
    pub fn wait_for(&self, cancel: BorrowedFd<'_>, others: &[BorrowedFd<'_>], at_most: Duration) -> bool {
        let fds = [&[self.listener.as_fd()], others].concat();
        sleep(cancel, &fds, at_most.min(self.poll_interval.max(Duration::from_secs(1))))
    }

    /// The same without the change notifier, for a caller that has only just read the log.
    pub fn rest(&self, cancel: BorrowedFd<'_>, others: &[BorrowedFd<'_>], at_most: Duration) -> bool {
        sleep(cancel, others, at_most)
    }
}

/// Sleeps until one of these becomes readable, or for `at_most`. Returns whether it was not `cancel`.
fn sleep(cancel: BorrowedFd<'_>, others: &[BorrowedFd<'_>], at_most: Duration) -> bool {
    let mut fds = vec![PollFd::from_borrowed_fd(cancel, PollFlags::IN)];
    fds.extend(others.iter().map(|other| PollFd::from_borrowed_fd(*other, PollFlags::IN)));
    let timeout = Timespec { tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(5), tv_nsec: i64::from(at_most.subsec_nanos()) };
    // An interruption is a reason to read, like any other.
    poll(&mut fds, Some(&timeout)).ok();
    fds[0].revents().is_empty()
}
