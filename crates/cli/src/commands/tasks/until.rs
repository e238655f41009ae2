//! Waits for something to become so. The event log tells when to look; nobody asks again and again.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use banksman_core::TaskId;
use banksman_runtime::Project;
use banksman_store::{EventFilter, EventRow, Reader};

use crate::failure::Failure;
use crate::signals::Signals;

/// How a wait ended.
pub(super) enum Ended<T> {
    /// It is so.
    Met(T),
    TimedOut,
    Interrupted,
}

/// Looks, and looks again whenever something has happened: with what has happened, or with nothing if it was only time
/// to look. `tick` is how often to look for the sake of a person who watches. One of `others` that becomes readable is a reason to look.
pub(super) fn until<T>(
    project: &Project,
    signals: &Signals,
    others: &RefCell<Vec<OwnedFd>>,
    timeout: Option<Duration>,
    tick: Option<Duration>,
    mut look: impl FnMut(&mut Reader, &[EventRow]) -> Result<Option<T>, Failure>,
) -> Result<Ended<T>, Failure> {
    let start = Instant::now();
    let mut reader = project.reader()?;
    // Followed from before the first look, so that nothing happens unseen in between.
    let mut follower = project.follow(reader.view().last_event()?)?;
    let everything = EventFilter::default();
    let mut events = Vec::new();
    loop {
        if let Some(met) = look(&mut reader, &events)? {
            return Ok(Ended::Met(met));
        }
        let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(Ended::TimedOut);
        }
        events = follower.next(&everything)?;
        if events.is_empty() {
            let at_most = left.into_iter().chain(tick).min().unwrap_or(Duration::MAX);
            let others = others.borrow();
            let others: Vec<_> = others.iter().map(AsFd::as_fd).collect();
            if !follower.wait_for(signals.as_fd(), &others, at_most) {
                return Ok(Ended::Interrupted);
            }
            events = follower.next(&everything)?;
        }
    }
}

/// Whether one of these events, or the lack of any, is a reason to look at these tasks.
pub(super) fn concern(events: &[EventRow], mut is_meant: impl FnMut(&str) -> bool) -> bool {
    let about = |event: &EventRow| &*event.source.component == "task" && event.source.id.as_deref().is_some_and(&mut is_meant);
    events.is_empty() || events.iter().any(about)
}

/// The same for a list of tasks.
pub(super) fn concern_any(events: &[EventRow], tasks: &[TaskId]) -> bool {
    concern(events, |id| tasks.iter().any(|task| task.as_str() == id))
}
