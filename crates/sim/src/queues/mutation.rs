//! Queues that are broken on purpose, one fault each.

use banksman_core::queue::{Input, State};
use banksman_core::{Epoch, Lease};
use banksman_engine::{Reply, Request};
use banksman_store::{Call as _, Tx};

use crate::report::Checker;
use crate::tried::Tamper;

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueMutation {
    /// A stale epoch passes for the current one.
    FencingOff,
    /// The time of whoever works on an item is over at once.
    NoTime,
    /// A push wakes nobody.
    Silent,
    /// An item that was acknowledged is not written.
    LostItem,
    /// A take carries an old number.
    OldEpoch,
    /// A row changes and the log does not tell.
    SilentRow,
}

impl QueueMutation {
    /// All of them.
    pub const ALL: [QueueMutation; 6] = [
        QueueMutation::FencingOff,
        QueueMutation::NoTime,
        QueueMutation::Silent,
        QueueMutation::LostItem,
        QueueMutation::OldEpoch,
        QueueMutation::SilentRow,
    ];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            QueueMutation::FencingOff => "queue-fencing-off",
            QueueMutation::NoTime => "queue-no-time",
            QueueMutation::Silent => "queue-silent",
            QueueMutation::LostItem => "queue-lost-item",
            QueueMutation::OldEpoch => "queue-old-epoch",
            QueueMutation::SilentRow => "queue-silent-row",
        }
    }

    /// The checker that must find it without the help of the others.
    pub fn checker(self) -> Checker {
        match self {
            QueueMutation::FencingOff => Checker::Fencing,
            QueueMutation::NoTime => Checker::Living,
            QueueMutation::Silent => Checker::Waiters,
            QueueMutation::LostItem => Checker::Left,
            QueueMutation::OldEpoch => Checker::Epochs,
            QueueMutation::SilentRow => Checker::Fold,
        }
    }
}

impl Tamper for QueueMutation {
    fn decide(self, request: &Request, tx: &mut Tx) -> Reply {
        let Request::Queue(asked) = request else { return request.decide(tx) };
        let mut asked = asked.clone();
        let mut hidden = None;
        match (self, &mut asked.input) {
            (QueueMutation::FencingOff, Input::Complete(hold)) => {
                if let Some(State::Processing(taken)) = tx.tables.queues.items.get(&hold.item).map(|item| &item.state) {
                    (hold.epoch, hold.holder) = (taken.epoch, taken.holder.clone());
                }
            }
            (QueueMutation::NoTime, Input::Take { .. }) => {
                for item in tx.tables.queues.items.values_mut() {
                    if let State::Processing(taken) = &mut item.state {
                        taken.until = Lease(0);
                    }
                }
            }
            (QueueMutation::Silent, Input::Push(_)) => hidden = Some(std::mem::take(&mut tx.tables.queues.takers)),
            _ => {}
        }
        let before: Vec<_> = tx.tables.queues.items.keys().copied().collect();
        let reply = Request::Queue(asked.clone()).decide(tx);
        if let Some(takers) = hidden {
            tx.tables.queues.takers = takers;
        }
        match (self, asked.input) {
            (QueueMutation::LostItem, Input::Push(_)) => {
                tx.tables.queues.items.retain(|id, _| before.contains(id));
            }
            (QueueMutation::OldEpoch, Input::Take { .. }) => return older(reply),
            (QueueMutation::SilentRow, Input::Extend(hold, _)) => {
                if let Some(item) = tx.tables.queues.items.get_mut(&hold.item) {
                    item.attempts += 1;
                }
            }
            _ => {}
        }
        reply
    }
}

/// The same answer, with the number of an earlier take.
fn older(reply: Reply) -> Reply {
    match reply {
        Reply::Queue { outcome: banksman_core::queue::Outcome::Taken(mut item), at } => {
            item.fence = Epoch(item.fence.0 / 2);
            if let State::Processing(taken) = &mut item.state {
                taken.epoch = item.fence;
            }
            Reply::Queue { outcome: banksman_core::queue::Outcome::Taken(item), at }
        }
        other => other,
    }
}
