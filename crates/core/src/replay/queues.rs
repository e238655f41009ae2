//! Replays queues and their items.

use super::Replay;
use crate::ids::{Epoch, Name, Seq};
use crate::queue::{Attempt, Fact, Item, Origin, Queue, Queues, State, Taken, remember};
use crate::time::{Lease, Stamp, Wall};

impl Replay {
    pub(super) fn apply_to_queue(&mut self, seq: Seq, wall: Wall, name: Name, fact: Fact) {
        match fact {
            Fact::Defined(config) => {
                let paused = self.queues.get(&name).is_some_and(|queue| queue.paused);
                self.queues.insert(name.clone(), Queue { name, config, paused, length: 0 });
            }
            Fact::Paused {} => drop(self.queues.get_mut(&name).map(|queue| queue.paused = true)),
            Fact::Resumed {} => drop(self.queues.get_mut(&name).map(|queue| queue.paused = false)),
            Fact::Push { item, data, priority, dedupe, .. } => {
                let pushed = Item {
                    id: item,
                    queue: name,
                    data,
                    priority,
                    created: timeless(wall),
                    dedupe,
                    attempts: 0,
                    fence: Epoch(0),
                    state: WAITING,
                    history: Vec::new(),
                    origin: None,
                    depth: 0,
                };
                self.items.insert(item, pushed);
            }
            Fact::Complete { item, .. } | Fact::Purged { item } => drop(self.items.remove(&item)),
            fact @ (Fact::Take { .. } | Fact::Fail { .. } | Fact::Dead { .. } | Fact::Requeue { .. }) => {
                let id = fact.item().expect("it is about an item");
                if let Some(item) = self.items.get_mut(&id) {
                    item.replay(seq, wall, name, fact);
                }
            }
        }
    }

    /// This view with the real queues beside the other tables.
    pub fn with_queues(self, tables: &Queues) -> Replay {
        let items = tables.items.iter().map(|(id, item)| (*id, as_logged(item))).collect();
        Replay { queues: tables.queues.clone(), items, ..self }
    }

    /// The queues, with their lengths computed from the items.
    pub(super) fn measured(&self) -> std::collections::BTreeMap<Name, Queue> {
        let mut queues = self.queues.clone();
        queues.values_mut().for_each(|queue| queue.length = 0);
        for item in self.items.values() {
            if let Some(queue) = queues.get_mut(&item.queue) {
                queue.length += 1;
            }
        }
        queues
    }
}

/// An item without a holder. Whether it waits for a time is not part of the log.
const WAITING: State = State::Pending { not_before: None };

fn timeless(wall: Wall) -> Stamp {
    Stamp { lease: Lease(0), wall }
}

/// An item as the log has it: without the times on the lease clock.
fn as_logged(item: &Item) -> Item {
    let state = match &item.state {
        State::Pending { .. } | State::Failed { .. } => WAITING,
        State::Processing(taken) => {
            State::Processing(Taken { since: timeless(taken.since.wall), until: Lease(0), ..taken.clone() })
        }
        State::Dead { .. } => item.state.clone(),
        State::Completed => unreachable!("no row is kept of it"),
    };
    Item { created: timeless(item.created.wall), state, depth: 0, ..item.clone() }
}

impl Item {
    fn replay(&mut self, seq: Seq, wall: Wall, name: Name, fact: Fact) {
        match fact {
            Fact::Take { holder, attempt, .. } => {
                (self.attempts, self.fence) = (attempt, Epoch::from(seq));
                let taken = Taken { holder, since: timeless(wall), epoch: self.fence, until: Lease(0) };
                self.state = State::Processing(taken);
            }
            Fact::Fail { holder, epoch, error, timed_out, .. } => {
                let started = match &self.state {
                    State::Processing(taken) => taken.since.wall,
                    State::Pending { .. } | State::Failed { .. } | State::Dead { .. } | State::Completed => wall,
                };
                remember(&mut self.history, Attempt { holder, epoch, started, ended: wall, error, timed_out });
                if timed_out {
                    self.fence = Epoch::from(seq);
                }
                self.state = WAITING;
            }
            Fact::Dead { reason, moved_to, dedupe, .. } => {
                self.dedupe = dedupe;
                match moved_to {
                    None => self.state = State::Dead { reason, at: wall },
                    Some(to) => {
                        self.origin = Some(Origin { queue: name, reason, at: wall });
                        (self.queue, self.attempts, self.state) = (to, 0, WAITING);
                    }
                }
            }
            Fact::Requeue { moved_to, .. } => {
                (self.attempts, self.origin, self.state) = (0, None, WAITING);
                if let Some(to) = moved_to {
                    self.queue = to;
                }
            }
            Fact::Defined(_) | Fact::Paused {} | Fact::Resumed {} => unreachable!("they are about the queue"),
            Fact::Push { .. } | Fact::Complete { .. } | Fact::Purged { .. } => {
                unreachable!("they add and remove the entry")
            }
        }
    }
}
