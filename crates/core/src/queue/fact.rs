//! The events of a queue and its items in the log.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::{Config, Data};
use crate::ids::{DedupeKey, Epoch, HolderId, ItemId, Name};
use crate::time::Wall;

/// The events of a queue or one of its items in the log. The variants are the second words of their kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case", prefix = "queue:")]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Fact {
    /// The queue was defined, or its terms were changed.
    Defined(Config),
    /// Nothing is taken from it any more.
    Paused {},
    /// Items are taken from it again.
    Resumed {},
    /// An item was pushed. The event's number is its id.
    Push {
        item: ItemId,
        data: Data,
        /// Items with a higher priority come first.
        #[serde(default, skip_serializing_if = "is_zero")]
        priority: i32,
        /// When it may be taken, if not at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_before: Option<Wall>,
        /// Items with the same key are refused while this one is open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dedupe: Option<DedupeKey>,
    },
    /// An item was taken. The event's number is the epoch.
    Take {
        item: ItemId,
        holder: HolderId,
        /// The number of the attempt, counted from 1.
        attempt: u32,
    },
    Complete {
        item: ItemId,
        holder: HolderId,
        /// The number of the take.
        epoch: Epoch,
    },
    Fail {
        item: ItemId,
        holder: HolderId,
        /// The number of the take.
        epoch: Epoch,
        error: Box<str>,
        /// Whether its time was over; then the event's number is the fence.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        timed_out: bool,
        /// When the next attempt may begin, if not at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Wall>,
    },
    /// An item will not be retried by itself.
    Dead {
        item: ItemId,
        reason: Box<str>,
        /// The queue that it went to, if it did not stay.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        moved_to: Option<Name>,
        /// The key under which items are refused once more when this one is requeued.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dedupe: Option<DedupeKey>,
    },
    /// A person retries an item.
    Requeue {
        item: ItemId,
        /// The queue that it went back to, if it was in another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        moved_to: Option<Name>,
    },
    Purged {
        item: ItemId,
    },
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl Fact {
    /// The kind as the log has it.
    pub fn kind(&self) -> &'static str {
        self.into()
    }

    /// The item that it is about; if there is none, it is about the queue.
    pub fn item(&self) -> Option<ItemId> {
        match self {
            Fact::Defined(_) | Fact::Paused {} | Fact::Resumed {} => None,
            Fact::Push { item, .. }
            | Fact::Take { item, .. }
            | Fact::Complete { item, .. }
            | Fact::Fail { item, .. }
            | Fact::Dead { item, .. }
            | Fact::Requeue { item, .. }
            | Fact::Purged { item } => Some(*item),
        }
    }

    /// The fields as JSON text, without the word for the fact, which is part of the event's kind.
    pub(crate) fn data(&self) -> Result<String, serde_json::Error> {
        // An object with one key. Going through a tree of values would cost as much as the rest of a push.
        let text = serde_json::to_string(self)?;
        let from = text.find(':').map_or(0, |colon| colon + 1);
        Ok(text[from..text.len() - 1].to_owned())
    }
}
