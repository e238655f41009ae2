//! Queues that are broken on purpose, one fault each.

use banksman_core::queue::{Input, State};
use banksman_core::{Epoch, Lease};
use banksman_engine::{Reply, Request};
use banksman_store::{Call as _, Tables, Tx};

use crate::report::Checker;
use crate::tried::Tamper;

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slip {
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

impl Slip {
    /// All of them.
    pub const ALL: [Slip; 6] = [Slip::FencingOff, Slip::NoTime, Slip::Silent, Slip::LostItem, Slip::OldEpoch, Slip::SilentRow];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Slip::FencingOff => "queue-fencing-off",
            Slip::NoTime => "queue-no-time",
            Slip::Silent => "queue-silent",
            Slip::LostItem => "queue-lost-item",
            Slip::OldEpoch => "queue-old-epoch",
            Slip::SilentRow => "queue-silent-row",
        }
    }

    /// The checker that must find it without the help of the others.
    pub fn checker(self) -> Checker {
        match self {
            Slip::FencingOff => Checker::Fencing,
            Slip::NoTime => Checker::Living,
            Slip::Silent => Checker::Waiters,
            Slip::LostItem => Checker::Left,
            Slip::OldEpoch => Checker::Epochs,
            Slip::SilentRow => Checker::Fold,
        }
    }
}

impl Tamper for Slip {
    fn decide(self, request: &Request, tables: &mut Tables, tx: &mut Tx) -> Reply {
        let Request::Queue(asked) = request else { return request.decide(tables, tx) };
        let mut asked = asked.clone();
        let mut hidden = None;
        match (self, &mut asked.input) {
            (Slip::FencingOff, Input::Complete(hold)) => {
                if let Some(State::Processing(taken)) = tables.queues.items.get(&hold.item).map(|item| &item.state) {
                    (hold.epoch, hold.holder) = (taken.epoch, taken.holder.clone());
                }
            }
            (Slip::NoTime, Input::Take { .. }) => {
                for item in tables.queues.items.values_mut() {
                    if let State::Processing(taken) = &mut item.state {
                        taken.until = Lease(0);
                    }
                }
            }
            (Slip::Silent, Input::Push(_)) => hidden = Some(std::mem::take(&mut tables.queues.takers)),
            _ => {}
        }
        let before: Vec<_> = tables.queues.items.keys().copied().collect();
        let reply = Request::Queue(asked.clone()).decide(tables, tx);
        if let Some(takers) = hidden {
            tables.queues.takers = takers;
        }
        match (self, asked.input) {
            (Slip::LostItem, Input::Push(_)) => {
                tables.queues.items.retain(|id, _| before.contains(id));
            }
            (Slip::OldEpoch, Input::Take { .. }) => return older(reply),
            (Slip::SilentRow, Input::Extend(hold, _)) => {
                if let Some(item) = tables.queues.items.get_mut(&hold.item) {
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
