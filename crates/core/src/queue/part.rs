//! The parts of a queue: its items by state, each part in an order of its own.

use super::{Item, State};

/// The items of a queue by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Items that can be taken at once, in order of rank.
    Ready,
    /// Items that wait for a time, the earliest first.
    Backoff,
    /// Items that are processed, the one that times out first comes first.
    Processing,
    /// Dead items, the oldest first.
    Dead,
    /// Items of `Ready` that died in another queue.
    Moved,
}

impl Part {
    /// Whether an item is in it.
    pub fn has(self, item: &Item) -> bool {
        match (self, &item.state) {
            (Part::Ready, _) => item.is_ready(),
            (Part::Moved, _) => item.is_ready() && item.origin.is_some(),
            (Part::Backoff, State::Pending { not_before: Some(_) } | State::Failed { .. })
            | (Part::Processing, State::Processing(_))
            | (Part::Dead, State::Dead { .. }) => true,
            (Part::Backoff | Part::Processing | Part::Dead, _) => false,
        }
    }

    /// The key that orders its items, before their ids.
    pub(super) fn key(self, item: &Item) -> i64 {
        match self {
            Part::Ready | Part::Moved => item.rank(),
            Part::Backoff | Part::Processing => item.due().map_or(0, |due| due.0),
            Part::Dead => 0,
        }
    }
}
