//! Queues: items to be processed, each by one holder at a time.

use std::time::Duration;

use banksman_core::queue::{self as core_queue, Data, Input, New, Outcome, Pushed as Each};
use banksman_core::{DedupeKey, HolderId, Name, Span};
use banksman_runbook::QueueTerms;
use banksman_runtime::TakeEnd;
use serde::Serialize;

use crate::cancel::CancelToken;
use crate::client::Client;
use crate::error::{Error, OrPublic, Result, bad_name};
use crate::item::Item;
use crate::{fresh_holder, json};

/// A queue. Its items are delivered at least once, the highest priority first.
///
/// ```
/// use std::time::Duration;
/// use banksman::{Project, QueueOptions};
/// # use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Issue {
///     number: u32,
/// }
///
/// # let dir = tempfile::tempdir()?;
/// # let client = Project::init(dir.path())?.open()?;
/// let queue = client.queue("triage");
/// queue.define(QueueOptions::new().max_attempts(3))?;
/// queue.push(&Issue { number: 17 })?;
///
/// let item = queue.take_within(Duration::from_secs(5))?.expect("there is one");
/// let issue: Issue = item.data()?;
/// assert_eq!((issue.number, item.attempt()), (17, 1));
/// item.fail("the tracker does not answer", Duration::ZERO)?;
///
/// // It is tried again. A dropped item goes back, too; only `complete` removes it.
/// let item = queue.take()?.expect("it is back");
/// assert_eq!(item.attempt(), 2);
/// item.complete()?;
/// assert!(queue.take()?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Queue {
    client: Client,
    name: String,
    holder: Option<String>,
    cancel: Option<CancelToken>,
}

/// The terms of a queue. The settings provide missing values.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct QueueOptions {
    visibility_timeout: Option<Duration>,
    max_attempts: Option<u32>,
    max_length: Option<u32>,
    dead_letter: Option<String>,
}

/// Options of a push.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct PushOptions {
    priority: i32,
    delay: Duration,
    dedupe_key: Option<String>,
}

/// The result of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pushed {
    /// The item was added, with this id.
    Added(String),
    /// An item with the same key is in the queue already, with this id.
    Duplicate(String),
}

/// The number of items of a queue by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueCounts {
    /// Items that can be taken now.
    pub ready: u64,
    /// Items that can be taken later: they are delayed, or wait for their next attempt.
    pub delayed: u64,
    /// Items that are being processed.
    pub processing: u64,
    /// Items whose last attempt has failed.
    pub dead: u64,
}

impl Pushed {
    /// The id of the item in the queue: the new one, or the one with the same key.
    pub fn id(&self) -> &str {
        match self {
            Pushed::Added(id) | Pushed::Duplicate(id) => id,
        }
    }
}

impl QueueOptions {
    /// The terms of the settings.
    pub fn new() -> QueueOptions {
        QueueOptions::default()
    }

    /// Sets how long a taken item belongs to its holder; then others may take it.
    pub fn visibility_timeout(mut self, timeout: Duration) -> QueueOptions {
        self.visibility_timeout = Some(timeout);
        self
    }

    /// Sets the maximum number of attempts at an item; then the item is dead.
    pub fn max_attempts(mut self, attempts: u32) -> QueueOptions {
        self.max_attempts = Some(attempts);
        self
    }

    /// Sets the maximum number of items.
    pub fn max_length(mut self, items: u32) -> QueueOptions {
        self.max_length = Some(items);
        self
    }

    /// Moves dead items to this queue, which must exist.
    pub fn dead_letter(mut self, queue: impl Into<String>) -> QueueOptions {
        self.dead_letter = Some(queue.into());
        self
    }

    fn terms(&self) -> Result<QueueTerms> {
        let attempts = 1..=core_queue::ATTEMPTS_LIMIT;
        if self.max_attempts.is_some_and(|max| !attempts.contains(&max)) {
            return Err(Error::invalid(format!("an item has 1 to {} attempts", core_queue::ATTEMPTS_LIMIT)));
        }
        if self.max_length.is_some_and(|max| !(1..=core_queue::LENGTH_LIMIT).contains(&max)) {
            return Err(Error::invalid(format!("a queue has 1 to {} items", core_queue::LENGTH_LIMIT)));
        }
        if self.visibility_timeout.map(Span::from) == Some(Span::ZERO) {
            return Err(Error::invalid("a visibility timeout must be at least one millisecond"));
        }
        Ok(QueueTerms {
            visibility_timeout: self.visibility_timeout.map(Span::from),
            max_attempts: self.max_attempts,
            dead_letter: self.dead_letter.as_deref().map(Name::new).transpose().or_public()?,
            max_length: self.max_length,
        })
    }
}

impl PushOptions {
    /// Priority 0, no delay and no key.
    pub fn new() -> PushOptions {
        PushOptions::default()
    }

    /// Sets the priority: higher comes first.
    pub fn priority(mut self, priority: i32) -> PushOptions {
        self.priority = priority;
        self
    }

    /// Sets how long the item cannot be taken.
    pub fn delay(mut self, delay: Duration) -> PushOptions {
        self.delay = delay;
        self
    }

    /// Pushes nothing while an item with the same key is in the queue and not dead.
    pub fn dedupe_key(mut self, key: impl Into<String>) -> PushOptions {
        self.dedupe_key = Some(key.into());
        self
    }
}

impl Queue {
    pub(crate) fn new(client: &Client, name: String) -> Queue {
        Queue { client: client.clone(), name, holder: None, cancel: None }
    }

    /// Takes items under this holder name instead of a fresh one.
    pub fn holder(mut self, holder: impl Into<String>) -> Queue {
        self.holder = Some(holder.into());
        self
    }

    /// Ends waits for an item with [`Error::Cancelled`] when the token is cancelled.
    pub fn cancel_on(mut self, token: &CancelToken) -> Queue {
        self.cancel = Some(token.clone());
        self
    }

    /// Creates the queue, or changes its terms.
    pub fn define(&self, options: QueueOptions) -> Result<()> {
        let config = self.client.inner().config().queue(&options.terms()?);
        match self.ask(Input::Define(config))? {
            Outcome::Defined => Ok(()),
            other => Err(self.refused(other)),
        }
    }

    /// Pushes an item. Its data is stored as JSON.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the queue was not defined, [`Error::Refused`] if it is full.
    pub fn push(&self, data: &impl Serialize) -> Result<Pushed> {
        self.push_with(data, PushOptions::default())
    }

    /// The same, with options.
    pub fn push_with(&self, data: &impl Serialize, options: PushOptions) -> Result<Pushed> {
        let new = New {
            data: Data::new(json::value(data)?).map_err(Error::invalid)?,
            priority: options.priority,
            delay: Span::from(options.delay),
            dedupe: options.dedupe_key.as_deref().map(DedupeKey::new).transpose().or_public()?,
        };
        match self.ask(Input::Push(vec![new]))? {
            Outcome::Pushed(each) => match each.as_slice() {
                [Each::Added(id)] => Ok(Pushed::Added(id.to_string())),
                [Each::Duplicate(id)] => Ok(Pushed::Duplicate(id.to_string())),
                _ => Err(Error::refused(format!("queue {} is full", self.name))),
            },
            other => Err(self.refused(other)),
        }
    }

    /// Takes the first item that can be taken now, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the queue was not defined, [`Error::Refused`] if it is paused.
    pub fn take(&self) -> Result<Option<Item>> {
        self.take_item(None)
    }

    /// Takes the first item, and waits for one for at most this time; waiters are served in the order of their arrival.
    /// `None` after the timeout.
    pub fn take_within(&self, timeout: Duration) -> Result<Option<Item>> {
        self.take_item(Some(timeout))
    }

    /// The number of items by state.
    pub fn counts(&self) -> Result<QueueCounts> {
        let mut reader = self.client.inner().reader().or_public()?;
        let (name, keys) = (self.name()?, [banksman_store::Key::NamedQueue(self.name()?)].into());
        let rows = reader.view().load(&keys).or_public()?;
        if !rows.queues.queues.contains_key(&name) {
            return Err(self.refused(Outcome::Unknown));
        }
        let counts = reader.view().queue_counts(rows.lease).or_public()?.get(&name).copied().unwrap_or_default();
        Ok(QueueCounts { ready: counts.ready, delayed: counts.resting, processing: counts.processing, dead: counts.dead })
    }

    fn take_item(&self, wait: Option<Duration>) -> Result<Option<Item>> {
        let (client, name) = (self.client.inner(), self.name()?);
        let holder = self.holder.as_deref().map(HolderId::new).transpose().or_public()?.unwrap_or_else(fresh_holder);
        let cancel = self.cancel.as_ref().map(CancelToken::fd);
        let take = |wait| client.take(&name, holder.clone(), wait, cancel, &mut |_| {}).or_public();
        let end = match take(None)? {
            // Items of other queues whose attempts have timed out may belong here, but have not been moved yet.
            TakeEnd::Answered { outcome: Outcome::Empty { .. } | Outcome::Halted, .. } => {
                client.settle_queue(&name).or_public()?;
                take(wait)?
            }
            end => end,
        };
        match end {
            TakeEnd::Answered { outcome: Outcome::Taken(item), .. } => Ok(Some(Item::new(self, name, *item))),
            TakeEnd::Answered { outcome: Outcome::Empty { .. }, .. } | TakeEnd::TimedOut(_) => Ok(None),
            TakeEnd::Answered { outcome, .. } => Err(self.refused(outcome)),
            TakeEnd::Cancelled => Err(Error::Cancelled),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    fn name(&self) -> Result<Name> {
        Name::new(&self.name).map_err(|error| bad_name("queue", error))
    }

    pub(crate) fn ask(&self, input: Input) -> Result<Outcome> {
        Ok(self.client.inner().ask_queue(&self.name()?, input).or_public()?.0)
    }

    fn refused(&self, outcome: Outcome) -> Error {
        let name = &self.name;
        match outcome {
            Outcome::Unknown => Error::NotFound { kind: "queue", name: name.clone() },
            Outcome::Halted => Error::refused(format!("queue {name} is paused")),
            Outcome::TooManyWaiters => Error::refused(format!("too many are waiting for an item of queue {name} already")),
            Outcome::TooManyQueues => Error::refused("the project has too many queues"),
            Outcome::BadDeadLetter(to) if to.as_str() == name => {
                Error::invalid(format!("queue {name} cannot be its own dead-letter queue"))
            }
            Outcome::BadDeadLetter(to) => Error::invalid(format!("there is no queue {to} to be the dead-letter queue of {name}")),
            other => unreachable!("queue {name} does not answer so: {other:?}"),
        }
    }
}
