//! The event log as a blocking iterator.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use banksman_core::Seq;
use banksman_runtime::Follower;
use banksman_store::{EventFilter, EventRow};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cancel::CancelToken;
use crate::client::Client;
use crate::error::{Error, OrPublic, Result};
use crate::{json, time_of};

/// Events of the project in order, each exactly once. [`next`](Iterator::next) sleeps until there is one.
///
/// ```
/// use std::time::Duration;
/// use banksman::Project;
///
/// # let dir = tempfile::tempdir()?;
/// # let client = Project::init(dir.path())?.open()?;
/// let mut locks = client.events()?.kind("lock:");
/// client.lock("deploy").acquire()?.release()?;
/// assert_eq!(locks.next().unwrap()?.kind(), "lock:acquired");
/// assert_eq!(locks.next().unwrap()?.source_id(), Some("deploy"));
///
/// // A custom event; the log also has earlier events.
/// client.emit("release:published", &"1.2")?;
/// let event = client.events_after(0)?.kind("release:").next_within(Duration::from_secs(5))?.expect("there is one");
/// assert_eq!(event.data::<String>()?, "1.2");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Events {
    client: Client,
    follower: Follower,
    filter: EventFilter,
    ready: VecDeque<EventRow>,
    cancel: CancelToken,
}

/// An event of the project.
#[derive(Clone)]
pub struct Event(EventRow);

impl Events {
    pub(crate) fn open(client: &Client, after: Option<u64>) -> Result<Events> {
        let after = match after {
            Some(number) => Seq(i64::try_from(number).unwrap_or(i64::MAX)),
            None => client.inner().reader().or_public()?.view().last_event().or_public()?,
        };
        let follower = client.inner().project().follow(after).or_public()?;
        let (filter, ready) = (EventFilter::default(), VecDeque::new());
        Ok(Events { client: client.clone(), follower, filter, ready, cancel: CancelToken::new()? })
    }

    /// Only events of this kind, such as `task:complete`, or of a category, such as `task:`.
    pub fn kind(mut self, kind: impl Into<String>) -> Events {
        self.filter.kind = Some(kind.into());
        self
    }

    /// Only events of this source, such as `lock:deploy`, or of a component, such as `lock`.
    pub fn source(mut self, source: impl Into<String>) -> Events {
        self.filter.source = Some(source.into());
        self
    }

    /// Ends the iteration when the token is cancelled.
    pub fn cancel_on(mut self, token: &CancelToken) -> Events {
        self.cancel = token.clone();
        self
    }

    /// The next event; `None` if the token was cancelled, or the timeout passed.
    ///
    /// # Errors
    ///
    /// [`Error::Compacted`] if unread events were removed; the next call continues after them.
    pub fn next_within(&mut self, timeout: Duration) -> Result<Option<Event>> {
        let deadline = banksman_adapters::host::deadline(timeout);
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(Event(event)));
            }
            self.ready.extend(self.follower.next(&self.filter).or_public()?);
            if let Some(mark) = self.follower.missed() {
                return Err(Error::Compacted { through: mark.through.0.unsigned_abs() });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if self.ready.is_empty() && (left.is_zero() || !self.follower.wait_for(self.cancel.fd(), &[], left)) {
                return Ok(None);
            }
        }
    }
}

impl Iterator for Events {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Result<Event>> {
        loop {
            match self.next_within(Duration::MAX) {
                Ok(None) if !self.cancel.is_cancelled() => {}
                event => return event.transpose(),
            }
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("client", &self.client).field("filter", &self.filter).finish_non_exhaustive()
    }
}

impl Event {
    /// The number of the event. It rises with every event of the project.
    pub fn number(&self) -> u64 {
        self.0.id.0.unsigned_abs()
    }

    /// The kind of the event, such as `lock:acquired`.
    pub fn kind(&self) -> &str {
        &self.0.kind
    }

    /// The kind of its subject, such as `lock`.
    pub fn source(&self) -> &str {
        &self.0.source.component
    }

    /// The name or the id of its subject.
    pub fn source_id(&self) -> Option<&str> {
        self.0.source.id.as_deref()
    }

    /// The time of the event, by the wall clock.
    pub fn time(&self) -> SystemTime {
        time_of(self.0.wall)
    }

    /// The data of the event. Use `serde_json::Value` for data of any type.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T> {
        json::read(&self.0.data, || format!("the data of event {}", self.number()))
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let data: &Value = &self.0.data;
        let mut fields = f.debug_struct("Event");
        fields.field("number", &self.number()).field("kind", &self.kind()).field("source", &self.source());
        fields.field("source_id", &self.source_id()).field("data", data).finish()
    }
}
