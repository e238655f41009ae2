//! What the log says of queues and their items.

use serde::{Deserialize, Serialize};

use super::Folded;
use crate::ids::{DedupeKey, Epoch, HolderId, Name, Seq};
use crate::queue::{Attempt, Config, Data, Fact, Item, Origin, Queue, Queues, State, remember};
use crate::time::Wall;

/// A queue. This and all below is stored: a new field needs a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Belt {
    config: Config,
    paused: bool,
    /// It follows from the items.
    #[serde(skip)]
    length: u32,
}

/// An item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Thing {
    queue: Name,
    data: Data,
    priority: i32,
    created: Wall,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dedupe: Option<DedupeKey>,
    attempts: u32,
    fence: Epoch,
    standing: Standing,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    history: Vec<Attempt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<Origin>,
}

/// How an item stands, without the moments of the lease clock: whether it waits for a time is not part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Standing {
    Waiting,
    Held { holder: HolderId, epoch: Epoch, since: Wall },
    Dead { reason: Box<str>, at: Wall },
}

impl Folded {
    pub(super) fn apply_to_queue(&mut self, seq: Seq, wall: Wall, name: Name, fact: Fact) {
        match fact {
            Fact::Defined(config) => {
                let paused = self.queues.get(&name).is_some_and(|belt| belt.paused);
                self.queues.insert(name, Belt { config, paused, length: 0 });
            }
            Fact::Paused {} => drop(self.queues.get_mut(&name).map(|belt| belt.paused = true)),
            Fact::Resumed {} => drop(self.queues.get_mut(&name).map(|belt| belt.paused = false)),
            Fact::Push { item, data, priority, dedupe, .. } => {
                let thing = Thing {
                    queue: name,
                    data,
                    priority,
                    created: wall,
                    dedupe,
                    attempts: 0,
                    fence: Epoch(0),
                    standing: Standing::Waiting,
                    history: Vec::new(),
                    origin: None,
                };
                self.items.insert(item, thing);
            }
            Fact::Complete { item, .. } | Fact::Purged { item } => drop(self.items.remove(&item)),
            fact @ (Fact::Take { .. } | Fact::Fail { .. } | Fact::Dead { .. } | Fact::Requeue { .. }) => {
                let item = fact.item().expect("it is about an item");
                if let Some(thing) = self.items.get_mut(&item) {
                    thing.apply(seq, wall, name, fact);
                }
            }
        }
    }

    /// The same view with the real queues beside the other tables.
    pub fn with_queues(self, tables: &Queues) -> Folded {
        Folded {
            queues: tables.queues.iter().map(|(name, queue)| (name.clone(), Belt::of(queue))).collect(),
            items: tables.items.iter().map(|(id, item)| (*id, Thing::of(item))).collect(),
            ..self
        }
    }

    /// The queues, with their lengths as they follow from the items.
    pub(super) fn measured(&self) -> std::collections::BTreeMap<Name, Belt> {
        let mut queues = self.queues.clone();
        queues.values_mut().for_each(|belt| belt.length = 0);
        for thing in self.items.values() {
            if let Some(belt) = queues.get_mut(&thing.queue) {
                belt.length += 1;
            }
        }
        queues
    }
}

impl Belt {
    fn of(queue: &Queue) -> Belt {
        Belt { config: queue.config.clone(), paused: queue.paused, length: queue.length }
    }

    pub(super) fn fields(&self) -> [(&'static str, String); 3] {
        [("terms", format!("{:?}", self.config)), ("paused", self.paused.to_string()), ("length", self.length.to_string())]
    }
}

impl Thing {
    fn of(item: &Item) -> Thing {
        let standing = match &item.state {
            State::Pending { .. } | State::Failed { .. } => Standing::Waiting,
            State::Processing(taken) => {
                Standing::Held { holder: taken.holder.clone(), epoch: taken.epoch, since: taken.since.wall }
            }
            State::Dead { reason, at } => Standing::Dead { reason: reason.clone(), at: *at },
            State::Completed => unreachable!("no row is kept of it"),
        };
        Thing {
            queue: item.queue.clone(),
            data: item.data.clone(),
            priority: item.priority,
            created: item.created.wall,
            dedupe: item.dedupe.clone(),
            attempts: item.attempts,
            fence: item.fence,
            standing,
            history: item.history.clone(),
            origin: item.origin.clone(),
        }
    }

    fn apply(&mut self, seq: Seq, wall: Wall, name: Name, fact: Fact) {
        match fact {
            Fact::Take { holder, attempt, .. } => {
                (self.attempts, self.fence) = (attempt, Epoch::from(seq));
                self.standing = Standing::Held { holder, epoch: self.fence, since: wall };
            }
            Fact::Fail { holder, epoch, error, timed_out, .. } => {
                let started = match &self.standing {
                    Standing::Held { since, .. } => *since,
                    Standing::Waiting | Standing::Dead { .. } => wall,
                };
                remember(&mut self.history, Attempt { holder, epoch, started, ended: wall, error, timed_out });
                if timed_out {
                    self.fence = Epoch::from(seq);
                }
                self.standing = Standing::Waiting;
            }
            Fact::Dead { reason, moved_to, dedupe, .. } => {
                self.dedupe = dedupe;
                match moved_to {
                    None => self.standing = Standing::Dead { reason, at: wall },
                    Some(to) => {
                        self.origin = Some(Origin { queue: name, reason, at: wall });
                        (self.queue, self.attempts, self.standing) = (to, 0, Standing::Waiting);
                    }
                }
            }
            Fact::Requeue { moved_to, .. } => {
                (self.attempts, self.origin, self.standing) = (0, None, Standing::Waiting);
                if let Some(to) = moved_to {
                    self.queue = to;
                }
            }
            Fact::Defined(_) | Fact::Paused {} | Fact::Resumed {} => unreachable!("they are about the queue"),
            Fact::Push { .. } | Fact::Complete { .. } | Fact::Purged { .. } => {
                unreachable!("they make and remove the whole entry")
            }
        }
    }

    pub(super) fn fields(&self) -> [(&'static str, String); 8] {
        [
            ("queue", self.queue.to_string()),
            ("data", self.data.value().to_string()),
            ("priority", self.priority.to_string()),
            ("created", self.created.0.to_string()),
            ("dedupe key", format!("{:?}", self.dedupe)),
            ("attempts", format!("{} (fence {})", self.attempts, self.fence)),
            ("state", format!("{:?}, from {:?}", self.standing, self.origin)),
            ("history", format!("{:?}", self.history)),
        ]
    }
}
