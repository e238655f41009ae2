//! The parts of a queue: its items by how they stand, each part in an order of its own.

use super::{Item, State};

/// The items of a queue by how they stand; each is in one part only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Those that can be taken at once, in their order.
    Ready,
    /// Those that wait for a time: the earliest first.
    Backoff,
    /// Those that are worked on: the one whose time is over first comes first.
    Processing,
    /// Those that are dead: the oldest first.
    Dead,
    /// Of those that can be taken at once, those that died elsewhere.
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

    /// What its items are ordered by, before their ids.
    pub(super) fn key(self, item: &Item) -> i64 {
        match self {
            Part::Ready | Part::Moved => item.rank(),
            Part::Backoff | Part::Processing => item.due().map_or(0, |due| due.0),
            Part::Dead => 0,
        }
    }
}
