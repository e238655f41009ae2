//! Waits until the rows meet a condition. The event log shows when to read them, so no process polls.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use banksman_core::TaskId;
use banksman_store::{EventFilter, EventRow, Reader, StoreError};

use crate::error::Error;
use crate::project::Project;

#[derive(Debug)]
pub enum WaitEnd<T> {
    Met(T),
    TimedOut,
    Cancelled,
}

/// How long to wait, and what else is a reason to check.
#[derive(Debug)]
pub struct UntilOptions<'a> {
    /// Ends the wait when it becomes readable.
    pub cancel: BorrowedFd<'a>,
    /// How long to wait at most.
    pub timeout: Option<Duration>,
    /// How often to check without an event, for a person who watches.
    pub tick: Option<Duration>,
}

/// Calls `check` now, and whenever something has happened: with the new events, or with none if only a poll is due. One
/// of `others` that becomes readable is a reason to check.
pub fn until<T, E: From<Error> + From<StoreError>>(
    project: &Project,
    options: &UntilOptions<'_>,
    others: &RefCell<Vec<OwnedFd>>,
    mut check: impl FnMut(&mut Reader, &[EventRow]) -> Result<Option<T>, E>,
) -> Result<WaitEnd<T>, E> {
    let start = Instant::now();
    let mut reader = project.reader()?;
    // Follow from before the first check, so that no event is missed in between.
    let mut follower = project.follow(reader.view().last_event()?)?;
    let everything = EventFilter::default();
    let mut events = Vec::new();
    loop {
        if let Some(met) = check(&mut reader, &events)? {
            return Ok(WaitEnd::Met(met));
        }
        let left = options.timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(WaitEnd::TimedOut);
        }
        events = follower.next(&everything)?;
        if events.is_empty() {
            let at_most = left.into_iter().chain(options.tick).min().unwrap_or(Duration::MAX);
            let others = others.borrow();
            let others: Vec<_> = others.iter().map(AsFd::as_fd).collect();
            if !follower.wait_for(options.cancel, &others, at_most) {
                return Ok(WaitEnd::Cancelled);
            }
            events = follower.next(&everything)?;
        }
    }
}

/// Whether one of these events, or the lack of any, is a reason to read tasks with a matching id.
pub fn concern(events: &[EventRow], mut is_meant: impl FnMut(&str) -> bool) -> bool {
    let about = |event: &EventRow| &*event.source.component == "task" && event.source.id.as_deref().is_some_and(&mut is_meant);
    events.is_empty() || events.iter().any(about)
}

/// The same for a list of tasks.
pub(crate) fn concern_any(events: &[EventRow], tasks: &[TaskId]) -> bool {
    concern(events, |id| tasks.iter().any(|task| task.as_str() == id))
}
