//! An item of a queue that this process works on.

use std::fmt;
use std::time::Duration;

use banksman_core::queue::{self, ERROR_LIMIT, Hold, Input, Outcome, State};
use banksman_core::{Name, Span};
use serde::de::DeserializeOwned;

use crate::error::{Error, OrPublic, Result};
use crate::json;
use crate::queue::Queue;

/// An item that this process works on, until the end of its visibility timeout. Dropping the item returns it to the
/// queue, which counts as a failed attempt, so that an item whose work panics does not come back for ever.
///
/// ```
/// use std::time::Duration;
/// use banksman::{Project, QueueOptions};
///
/// # let dir = tempfile::tempdir()?;
/// # let client = Project::init(dir.path())?.open()?;
/// let queue = client.queue("numbers");
/// queue.define(QueueOptions::new())?;
/// queue.push(&42)?;
///
/// let item = queue.take()?.expect("it was just pushed");
/// item.extend()?; // the work takes longer than the visibility timeout
/// match item.data::<u32>() {
///     Ok(42) => item.complete()?,
///     Ok(other) => item.fail(format!("{other} is not the answer"), Duration::from_secs(60))?,
///     Err(error) => item.fail(error.to_string(), Duration::ZERO)?,
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it gives the item back at once"]
pub struct Item {
    queue: Queue,
    name: Name,
    item: queue::Item,
    hold: Hold,
    is_over: bool,
}

impl Item {
    pub(crate) fn new(queue: &Queue, name: Name, item: queue::Item) -> Item {
        let State::Processing(taken) = &item.state else { unreachable!("it was just taken") };
        let hold = Hold { item: item.id, holder: taken.holder.clone(), epoch: taken.epoch };
        Item { queue: queue.clone(), name, item, hold, is_over: false }
    }

    /// The id of the item, such as `q-17`.
    pub fn id(&self) -> String {
        self.item.id.to_string()
    }

    /// The data of the item, as the type that was pushed.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T> {
        json::read(self.item.data.value(), || format!("the data of item {}", self.item.id))
    }

    /// The number of this attempt, counted from 1.
    pub fn attempt(&self) -> u32 {
        self.item.attempts
    }

    /// The priority of the item.
    pub fn priority(&self) -> i32 {
        self.item.priority
    }

    /// The fencing number of this attempt.
    pub fn epoch(&self) -> u64 {
        self.hold.epoch.0.unsigned_abs()
    }

    /// Completes the item and removes it from the queue.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if its visibility timeout was over: another holder may work on it.
    pub fn complete(mut self) -> Result<()> {
        match self.end(Input::Complete(self.hold.clone()))? {
            Outcome::Completed => Ok(()),
            // After an error with an unknown outcome, the first attempt may have completed the item.
            Outcome::NoItem if self.queue.client().inner().was_completed(&self.name, &self.hold).or_public()? => Ok(()),
            other => Err(self.lost(&other)),
        }
    }

    /// Ends this attempt as failed. After `retry_after` the item can be taken again, unless this was the last attempt.
    pub fn fail(mut self, error: impl Into<String>, retry_after: Duration) -> Result<()> {
        self.end_failed(&error.into(), retry_after)
    }

    /// Restarts the visibility timeout. Call this from time to time during long work.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if its visibility timeout was over.
    pub fn extend(&self) -> Result<()> {
        self.extend_by(None)
    }

    /// Keeps the item for this time from now on.
    pub fn extend_for(&self, time: Duration) -> Result<()> {
        match Span::from(time) {
            Span::ZERO => Err(Error::invalid("an item must be kept for at least one millisecond")),
            time => self.extend_by(Some(time)),
        }
    }

    fn extend_by(&self, time: Option<Span>) -> Result<()> {
        match self.queue.ask(Input::Extend(self.hold.clone(), time))? {
            Outcome::Extended { .. } => Ok(()),
            other => Err(self.lost(&other)),
        }
    }

    fn end_failed(&mut self, error: &str, retry_after: Duration) -> Result<()> {
        let error = &error[..error.floor_char_boundary(ERROR_LIMIT)];
        let (hold, retry_after) = (self.hold.clone(), Some(Span::from(retry_after)));
        match self.end(Input::Fail { hold, error: error.into(), retry_after })? {
            Outcome::Failed { .. } | Outcome::Dead { .. } => Ok(()),
            other => Err(self.lost(&other)),
        }
    }

    fn end(&mut self, input: Input) -> Result<Outcome> {
        self.is_over = true;
        self.queue.ask(input)
    }

    fn lost(&self, outcome: &Outcome) -> Error {
        match outcome {
            Outcome::NoItem | Outcome::NotProcessing { .. } | Outcome::NotOwner { .. } | Outcome::Fenced { .. } => {
                Error::Lost { what: format!("item {} of queue {}", self.item.id, self.name) }
            }
            Outcome::Unknown => Error::NotFound { kind: "queue", name: self.name.to_string() },
            other => unreachable!("an item was spoken of, and the answer is {other:?}"),
        }
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        if !self.is_over {
            // On failure, the item returns when its visibility timeout ends.
            self.end_failed("it was given back", Duration::ZERO).ok();
        }
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Item");
        fields.field("id", &self.id()).field("queue", &self.name.as_str()).field("attempt", &self.attempt());
        fields.field("data", self.item.data.value()).finish_non_exhaustive()
    }
}
