//! What can happen to a queue and its items, as the event log keeps it.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::{Config, Data};
use crate::ids::{DedupeKey, Epoch, HolderId, ItemId, Name};
use crate::time::Wall;

/// What can happen to a queue or one of its items. The variants are the second words of the events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case", prefix = "queue:")]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Fact {
    /// The queue was made, or its terms were changed.
    Defined(Config),
    /// Nothing is taken from it any more.
    Paused {},
    /// Items are taken from it again.
    Resumed {},
    /// An item came. The event's number is its id.
    Push {
        item: ItemId,
        data: Data,
        /// What is higher comes first.
        #[serde(default, skip_serializing_if = "is_zero")]
        priority: i32,
        /// When it may be taken, if not at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_before: Option<Wall>,
        /// What keeps others out while it is not over.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dedupe: Option<DedupeKey>,
    },
    /// An item was taken. The event's number is the epoch.
    Take {
        item: ItemId,
        holder: HolderId,
        /// Which attempt this is, counted from 1.
        attempt: u32,
    },
    Complete {
        item: ItemId,
        holder: HolderId,
        /// In which take.
        epoch: Epoch,
    },
    Fail {
        item: ItemId,
        holder: HolderId,
        /// Which take.
        epoch: Epoch,
        error: Box<str>,
        /// Whether its time was over; then the event's number is the fence.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        timed_out: bool,
        /// When the next may begin, if not at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Wall>,
    },
    /// An item will not be tried again by itself.
    Dead {
        item: ItemId,
        reason: Box<str>,
        /// The queue that it went to, if it did not stay.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        moved_to: Option<Name>,
        /// What keeps others out again when it is tried again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dedupe: Option<DedupeKey>,
    },
    /// A person wants an item tried again.
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
    /// The kind as it stands in the log.
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

    /// The fields as JSON text, without the word for it: that stands in the event's kind.
    pub(crate) fn data(&self) -> Result<String, serde_json::Error> {
        // An object with one key. Going through a tree of values would cost as much as the rest of a push.
        let text = serde_json::to_string(self)?;
        let from = text.find(':').map_or(0, |colon| colon + 1);
        Ok(text[from..text.len() - 1].to_owned())
    }
}
