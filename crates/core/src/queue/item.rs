//! One item of a queue, from its push to its end.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::IntoStaticStr;
use thiserror::Error;

use crate::ids::{DedupeKey, Epoch, HolderId, ItemId, Name};
use crate::json::{self, JsonError};
use crate::time::{Lease, Span, Stamp, Wall};

/// The largest content of an item, as JSON, in bytes. Larger content belongs in a file whose path the item carries.
pub const DATA_LIMIT: usize = 64 * 1_024;

/// One step of priority counts as much as this much waiting, so that no item of a low priority waits for ever.
pub const AGEING: Span = Span::from_secs(3_600);

/// How many failed attempts an item remembers: the last ones.
pub const HISTORY_LIMIT: usize = 20;

/// The content of an item: any JSON. A copy of it costs nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data(Arc<Value>);

/// Why a text cannot be the content of an item.
#[derive(Debug, Error)]
pub enum DataError {
    /// It is not JSON, or cannot be stored.
    #[error(transparent)]
    Json(#[from] JsonError),
    #[error("an item may have at most {DATA_LIMIT} bytes, this one has {bytes}")]
    TooLarge { bytes: usize },
}

/// An item of a queue. The baseline of the log keeps it in its serialized form, which has no times on the lease clock:
/// a new field needs a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// The number of the event that pushed it.
    #[serde(skip_serializing)]
    pub id: ItemId,
    pub queue: Name,
    pub data: Data,
    /// Items with a higher priority come first.
    pub priority: i32,
    #[serde(with = "wall_alone")]
    pub created: Stamp,
    /// While it is open, no other item with this key is pushed. A dead item keeps the key for when it is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe: Option<DedupeKey>,
    /// How often it was taken, since a person last requeued it.
    pub attempts: u32,
    /// The number of its last take or time-out: every epoch below it is fenced.
    pub fence: Epoch,
    #[serde(rename = "standing")]
    pub state: State,
    /// The attempts that failed, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Attempt>,
    /// Where it died, if this is a dead-letter queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// How many routes led to it, one after the other.
    #[serde(skip)]
    pub depth: u32,
}

/// The state of an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(from = "LoggedState", into = "LoggedState")]
pub enum State {
    /// It waits to be taken.
    Pending {
        /// Not before this moment; at once if there is none.
        not_before: Option<Lease>,
    },
    Processing(Taken),
    /// An attempt has failed, and it waits for the next.
    Failed {
        due: Lease,
    },
    /// It is done. No row is kept of it: the log has it.
    Completed,
    /// It will not be retried by itself.
    Dead {
        reason: Box<str>,
        at: Wall,
    },
}

/// The state of an item as the log has it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum LoggedState {
    Waiting,
    Held { holder: HolderId, epoch: Epoch, since: Wall },
    Dead { reason: Box<str>, at: Wall },
}

/// The take of an item that is being processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub holder: HolderId,
    pub since: Stamp,
    /// The number of the take, by which the calls of its holder are fenced.
    pub epoch: Epoch,
    /// When others may take it, unless it is extended.
    pub until: Lease,
}

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    pub holder: HolderId,
    /// The number of the take.
    pub epoch: Epoch,
    pub started: Wall,
    pub ended: Wall,
    pub error: Box<str>,
    /// Whether its time was over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
}

/// Where an item died before it came here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub queue: Name,
    pub reason: Box<str>,
    pub at: Wall,
}

impl From<State> for LoggedState {
    fn from(state: State) -> LoggedState {
        match state {
            State::Pending { .. } | State::Failed { .. } => LoggedState::Waiting,
            State::Processing(taken) => LoggedState::Held { holder: taken.holder, epoch: taken.epoch, since: taken.since.wall },
            State::Dead { reason, at } => LoggedState::Dead { reason, at },
            State::Completed => unreachable!("nothing is kept of it"),
        }
    }
}

impl From<LoggedState> for State {
    fn from(state: LoggedState) -> State {
        match state {
            LoggedState::Waiting => State::Pending { not_before: None },
            LoggedState::Held { holder, epoch, since: wall } => {
                State::Processing(Taken { holder, since: Stamp { lease: Lease(0), wall }, epoch, until: Lease(0) })
            }
            LoggedState::Dead { reason, at } => State::Dead { reason, at },
        }
    }
}

/// A time on the wall clock alone.
mod wall_alone {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::time::{Lease, Stamp, Wall};

    pub(super) fn serialize<S: Serializer>(stamp: &Stamp, serializer: S) -> Result<S::Ok, S::Error> {
        stamp.wall.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Stamp, D::Error> {
        Wall::deserialize(deserializer).map(|wall| Stamp { lease: Lease(0), wall })
    }
}

impl Data {
    /// Reads a text from outside.
    pub fn parse(text: &str) -> Result<Data, DataError> {
        Data::new(json::parse(text)?)
    }

    /// Takes a value, if it is neither too large nor nested too deeply.
    pub fn new(value: Value) -> Result<Data, DataError> {
        json::keepable(&value).map_err(JsonError::from)?;
        // The limit is for the stored form, which has no spaces between the parts.
        let bytes = value.to_string().len();
        if bytes > DATA_LIMIT { Err(DataError::TooLarge { bytes }) } else { Ok(Data(Arc::new(value))) }
    }

    pub fn value(&self) -> &Value {
        &self.0
    }
}

impl Serialize for Data {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Data, D::Error> {
        Value::deserialize(deserializer).map(|value| Data(Arc::new(value)))
    }
}

impl State {
    /// When time alone changes it.
    pub fn due(&self) -> Option<Lease> {
        match self {
            State::Pending { not_before } => *not_before,
            State::Processing(taken) => Some(taken.until),
            State::Failed { due } => Some(*due),
            State::Completed | State::Dead { .. } => None,
        }
    }

    pub fn word(&self) -> &'static str {
        self.into()
    }
}

impl Item {
    /// Its rank among waiting items: lower ones come first. It never changes, so that one index has all items in order.
    pub fn rank(&self) -> i64 {
        self.created.lease.0.saturating_sub(i64::from(self.priority).saturating_mul(AGEING.as_ms()))
    }

    /// Whether it can be taken at once.
    pub fn is_ready(&self) -> bool {
        matches!(self.state, State::Pending { not_before: None })
    }

    /// The key under which other items are refused now.
    pub fn keeps_out(&self) -> Option<&DedupeKey> {
        let is_dead = matches!(self.state, State::Dead { .. }) || self.origin.is_some();
        self.dedupe.as_ref().filter(|_| !is_dead)
    }

    /// When time alone changes its state.
    pub fn due(&self) -> Option<Lease> {
        self.state.due()
    }

    /// The word for its state.
    pub fn status(&self) -> &'static str {
        self.state.word()
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        let id = self.id;
        match &self.state {
            State::Processing(taken) => {
                assert_eq!(taken.epoch, self.fence, "the epoch of {id} is not its fence");
                assert!(self.attempts > 0, "{id} is worked on and was never taken");
            }
            State::Pending { .. } | State::Failed { .. } | State::Dead { .. } => {}
            State::Completed => unreachable!("{id} is done and still there"),
        }
        assert!(self.history.len() <= HISTORY_LIMIT, "{id} remembers too much");
    }
}
