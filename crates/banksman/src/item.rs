//! An item of a queue that this process works on.

use std::fmt;
use std::time::Duration;

use banksman_core::queue::{self, ERROR_LIMIT, Hold, Input, Outcome, State};
use banksman_core::{Name, Span};
use serde::de::DeserializeOwned;

use crate::error::{Error, OrPublic, Result};
use crate::json;
use crate::queue::Queue;

/// An item that this process works on, until its visibility timeout is over. Dropping it gives it back, which counts as an attempt that
/// failed: an item whose work panics does not come back for ever.
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

    /// Its id, such as `q-17`.
    pub fn id(&self) -> String {
        self.item.id.to_string()
    }

    /// Its data, as the type that was pushed.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T> {
        json::read(self.item.data.value(), || format!("the data of item {}", self.item.id))
    }

    /// Which attempt this is, counted from 1.
    pub fn attempt(&self) -> u32 {
        self.item.attempts
    }

    /// Its priority.
    pub fn priority(&self) -> i32 {
        self.item.priority
    }

    /// The fencing number of this attempt.
    pub fn epoch(&self) -> u64 {
        self.hold.epoch.0.unsigned_abs()
    }

    /// Removes the item: its work is done.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if its time was over: another holder may work on it.
    pub fn complete(mut self) -> Result<()> {
        match self.end(Input::Complete(self.hold.clone()))? {
            Outcome::Completed => Ok(()),
            // After an error with an unknown outcome, the first attempt may have been the one that counts.
            Outcome::NoItem if self.queue.client().inner().was_completed(&self.name, &self.hold).or_public()? => Ok(()),
            other => Err(self.lost(&other)),
        }
    }

    /// Ends this attempt without success. After `retry_after` the item can be taken again, unless it was the last attempt.
    pub fn fail(mut self, error: impl Into<String>, retry_after: Duration) -> Result<()> {
        self.end_failed(&error.into(), retry_after)
    }

    /// Begins the visibility timeout anew. Call it from time to time while the work goes on.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if its time was over.
    pub fn extend(&self) -> Result<()> {
        self.extend_by(None)
    }

    /// Keeps the item for so long from now on.
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
            // If it fails, the item comes back when its time is over.
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
