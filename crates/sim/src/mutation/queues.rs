//! Faults of queues.

use banksman_core::queue::{Input, State};
use banksman_core::{Epoch, Lease};
use banksman_engine::{Reply, Request};
use banksman_store::{Call as _, Tx};

use super::Mutation;

/// Decides like the real request, except for the fault.
pub(super) fn decide(mutation: Mutation, request: &Request, tx: &mut Tx) -> Reply {
    let Request::Queue(asked) = request else { return request.decide(tx) };
    let mut asked = asked.clone();
    let mut hidden = None;
    match (mutation, &mut asked.input) {
        (Mutation::QueueFencingOff, Input::Complete(hold)) => {
            if let Some(State::Processing(taken)) = tx.tables.queues.items.get(&hold.item).map(|item| &item.state) {
                (hold.epoch, hold.holder) = (taken.epoch, taken.holder.clone());
            }
        }
        (Mutation::QueueNoTime, Input::Take { .. }) => {
            for item in tx.tables.queues.items.values_mut() {
                if let State::Processing(taken) = &mut item.state {
                    taken.until = Lease(0);
                }
            }
        }
        (Mutation::QueueSilent, Input::Push(_)) => hidden = Some(std::mem::take(&mut tx.tables.queues.takers)),
        _ => {}
    }
    let before: Vec<_> = tx.tables.queues.items.keys().copied().collect();
    let reply = Request::Queue(asked.clone()).decide(tx);
    if let Some(takers) = hidden {
        tx.tables.queues.takers = takers;
    }
    match (mutation, asked.input) {
        (Mutation::QueueLostItem, Input::Push(_)) => {
            tx.tables.queues.items.retain(|id, _| before.contains(id));
        }
        (Mutation::QueueOldEpoch, Input::Take { .. }) => return older(reply),
        (Mutation::QueueSilentRow, Input::Extend(hold, _)) => {
            if let Some(item) = tx.tables.queues.items.get_mut(&hold.item) {
                item.attempts += 1;
            }
        }
        _ => {}
    }
    reply
}

/// The same reply, with the epoch of an earlier take.
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
