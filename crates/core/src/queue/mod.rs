//! Queues: items that wait to be processed, each by one holder at a time, until they are done or dead.
//!
//! ```text
//!   push            take                     complete
//! --------> Pending ------> Processing ------------------> gone: the log has it
//!            ^   ^              |
//!            |   |  due         |  fail, or its time is over
//!            |   +---- Failed <-+
//!            |                  |  the same at the last attempt
//!            +--- requeue --- Dead, here or as Pending in the dead-letter queue
//! ```
//!
//! Invariants: an item is processed by one holder at a time, under the epoch that is its fence; a queue knows how many
//! items it has; every waiter for an item belongs to an existing queue.
//!
//! Takes carry out what is due: the first few items whose time has come are settled before one is chosen, so that no
//! process has to watch the time. Runners do the same for queues without takes, so that dead items are reported. Like
//! the locks of a project, all queues are one machine: it is the model of all queues of a project in tests, and filled
//! with the rows of one batch it *is* the decision.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::ids::{DedupeKey, Epoch, HolderId, ItemId, Name, Ticket};
use crate::resource::grant::{WAITERS_LIMIT, WaitingProcess};
use crate::step::{EffectBuffer, Now, Step};
use crate::time::{Lease, Span, Wall};

mod attempt_end;
mod fact;
mod item;
mod part;
mod taking;
mod waiters;

use attempt_end::FailedAttempt;
pub(crate) use attempt_end::remember;
pub use fact::Fact;
pub use item::{AGEING, Attempt, DATA_LIMIT, Data, DataError, HISTORY_LIMIT, Item, Origin, State, Taken};
pub use part::Part;
pub use waiters::{Taker, Waiting};

/// How many items whose time has come a take settles before it chooses.
pub const DUE_PER_TAKE: usize = 4;

/// How many items whose time has come one [`Input::Settle`] settles.
pub const DUE_PER_SETTLE: usize = 16 * DUE_PER_TAKE;

/// How many attempts an item can have at most.
pub const ATTEMPTS_LIMIT: u32 = 1_000;

/// How many items a queue can have at most.
pub const LENGTH_LIMIT: u32 = 10_000_000;

/// How many items a queue can have unless it is defined otherwise.
pub const DEFAULT_LENGTH: u32 = 1_000_000;

/// How many queues a project can have.
pub const QUEUES_LIMIT: usize = 1_000;

/// The longest error text of an attempt that is kept, in bytes.
pub const ERROR_LIMIT: usize = 10_000;

/// All queues of a project, their items, and their waiters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Queues {
    pub queues: BTreeMap<Name, Queue>,
    /// The items of all queues.
    pub items: BTreeMap<ItemId, Item>,
    /// The waiters, in the order of their arrival.
    pub takers: BTreeMap<Ticket, Taker>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    #[serde(skip_serializing)]
    pub name: Name,
    pub config: Config,
    /// Whether nothing is taken from it.
    pub paused: bool,
    /// How many items it has, dead ones included: it follows from the items.
    #[serde(skip)]
    pub length: u32,
}

/// The terms of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// How long an item that was taken stays with its holder.
    pub visibility_timeout: Span,
    /// How often an item is taken at most.
    pub max_attempts: u32,
    /// The queue for dead items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<Name>,
    /// How many items it has at most.
    pub max_length: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Create it, or change its terms.
    Define(Config),
    Push(Vec<New>),
    /// Take the first item, or wait for one.
    Take {
        holder: HolderId,
        /// How a waiting process can be reached.
        wait: Option<WaitingProcess>,
        /// The ticket of a holder that waits already.
        ticket: Option<Ticket>,
    },
    Leave {
        ticket: Ticket,
    },
    /// Keep an item for longer.
    Extend(Hold, Option<Span>),
    Complete(Hold),
    Fail {
        hold: Hold,
        error: Box<str>,
        /// The delay of the next attempt; without it there is none, however many are left.
        retry_after: Option<Span>,
    },
    /// Settle the first items whose time has come.
    Settle,
    /// Retry a dead item, or send it back to where it died.
    Requeue(ItemId),
    /// Requeue the first few items of this part.
    RequeueAll(Part, usize),
    /// Remove the first few items of this part.
    Purge(Part, usize),
    /// Let nothing be taken.
    Pause,
    /// Let items be taken again.
    Resume,
}

/// A new item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct New {
    pub data: Data,
    /// Items with a higher priority come first.
    pub priority: i32,
    /// How long it cannot be taken.
    pub delay: Span,
    /// It is refused while another item with this key is open.
    pub dedupe: Option<DedupeKey>,
}

/// The claim on an item, which its holder presents with every call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    pub item: ItemId,
    pub holder: HolderId,
    /// The number of the take.
    pub epoch: Epoch,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Defined,
    TooManyQueues,
    /// There is no such queue.
    Unknown,
    /// The dead-letter queue is not there, or is the queue itself.
    BadDeadLetter(Name),
    /// The result for each item.
    Pushed(Vec<Pushed>),
    Taken(Box<Item>),
    /// There is nothing to take.
    Empty {
        /// When that may change by itself.
        next: Option<Lease>,
    },
    /// Nothing is taken from it.
    Halted,
    Waiting(Waiting),
    /// The queue has as many waiters as it can have.
    TooManyWaiters,
    Left,
    /// The item stays with its holder until then.
    Extended {
        until: Lease,
    },
    Completed,
    /// The attempt is over; the next may begin then.
    Failed {
        due: Lease,
    },
    /// It was the last attempt.
    Dead {
        /// The queue that it went to, if it did not stay.
        moved_to: Option<Name>,
    },
    /// There is no such item in this queue: it is done, removed, or never was.
    NoItem,
    /// The item is not processed: this very attempt has ended.
    NotProcessing {
        status: &'static str,
    },
    /// Another holder processes it.
    NotOwner {
        holder: HolderId,
    },
    /// The epoch is from before the fence: its time was over.
    Fenced {
        fence: Epoch,
    },
    /// The items whose time has come are settled.
    Settled {
        /// Whether more of them are left.
        more: bool,
    },
    /// It can be taken again.
    Requeued {
        queue: Name,
    },
    NotDead {
        status: &'static str,
    },
    /// The queue that it came from is gone or full.
    NoWayBack(Name),
    SomeRequeued {
        count: usize,
        /// How many cannot go back.
        stuck: usize,
    },
    Purged {
        count: usize,
    },
    /// Nothing is taken from now on.
    Paused,
    Resumed,
}

/// The result of a push for one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    Added(ItemId),
    /// An open item has its key already.
    Duplicate(ItemId),
    /// The queue has no room.
    Full,
}

impl Queue {
    /// An empty queue.
    pub fn new(name: Name, config: Config) -> Queue {
        Queue { name, config, paused: false, length: 0 }
    }
}

impl Queues {
    /// Decides one input to the queue of this name.
    pub fn step(mut self, name: &Name, input: Input, now: &Now) -> Step<Queues, Outcome> {
        let mut buffer = EffectBuffer::new(now);
        let outcome = match input {
            Input::Define(config) => self.define(name, config, &mut buffer),
            Input::Leave { ticket } => self.leave(name, ticket, now, &mut buffer),
            _ if !self.queues.contains_key(name) => Outcome::Unknown,
            Input::Push(items) => {
                let pushed = items.into_iter().map(|new| self.push(name, new, now, &mut buffer)).collect();
                self.wake(name, &mut buffer);
                Outcome::Pushed(pushed)
            }
            Input::Take { holder, wait, ticket } => self.take(name, holder, wait, ticket, now, &mut buffer),
            Input::Extend(hold, by) => self.extend(name, &hold, by, now),
            Input::Complete(hold) => self.complete(name, &hold, &mut buffer),
            Input::Fail { hold, error, retry_after } => match self.owned(name, &hold) {
                Err(refusal) => refusal,
                Ok(item) => {
                    let id = item.id;
                    let failed = FailedAttempt { error, timed_out: false, retry_after };
                    let outcome = self.end(id, failed, now, &mut buffer);
                    self.wake(name, &mut buffer);
                    outcome
                }
            },
            Input::Settle => {
                self.settle(name, DUE_PER_SETTLE, now, &mut buffer);
                self.wake(name, &mut buffer);
                Outcome::Settled { more: self.next_due(name).is_some_and(|due| now.is_past(due)) }
            }
            Input::Requeue(id) => self.requeue(name, id, &mut buffer),
            Input::RequeueAll(part, limit) => self.requeue_all(name, part, limit, &mut buffer),
            Input::Purge(part, limit) => self.purge(name, part, limit, &mut buffer),
            Input::Pause => {
                if self.set_paused(name, true) {
                    buffer.emit(Event::Queue { name: name.clone(), fact: Fact::Paused {} });
                }
                Outcome::Paused
            }
            Input::Resume => {
                if self.set_paused(name, false) {
                    buffer.emit(Event::Queue { name: name.clone(), fact: Fact::Resumed {} });
                    self.wake(name, &mut buffer);
                }
                Outcome::Resumed
            }
        };
        Step { state: self, outcome, effects: buffer.effects }
    }

    pub fn next_deadline(&self) -> Option<Lease> {
        self.items.values().filter_map(Item::due).min()
    }

    /// The state at this moment for readers, including due changes that were not carried out yet.
    pub fn as_of(mut self, now: &Now) -> Queues {
        let names: Vec<Name> = self.queues.keys().cloned().collect();
        for name in &names {
            self.settle(name, usize::MAX, now, &mut EffectBuffer::new(now));
            self.drop_gone(name, now);
        }
        self
    }

    /// Panics if an invariant is broken. The check of lengths needs all items to be loaded.
    pub fn check(&self) {
        self.items.values().for_each(Item::check);
        for queue in self.queues.values() {
            let there = self.items.values().filter(|item| item.queue == queue.name).count();
            assert_eq!(there, queue.length as usize, "{} has a wrong length", queue.name);
        }
        for taker in self.takers.values() {
            assert!(self.queues.contains_key(&taker.queue), "a taker waits for {}, which is not there", taker.queue);
        }
    }

    fn define(&mut self, name: &Name, config: Config, buffer: &mut EffectBuffer) -> Outcome {
        if let Some(dead_letter) = &config.dead_letter
            && (dead_letter == name || !self.queues.contains_key(dead_letter))
        {
            return Outcome::BadDeadLetter(dead_letter.clone());
        }
        if !self.queues.contains_key(name) && self.queues.len() >= QUEUES_LIMIT {
            return Outcome::TooManyQueues;
        }
        buffer.emit(Event::Queue { name: name.clone(), fact: Fact::Defined(config.clone()) });
        match self.queues.get_mut(name) {
            Some(queue) => queue.config = config,
            None => drop(self.queues.insert(name.clone(), Queue::new(name.clone(), config))),
        }
        Outcome::Defined
    }

    fn push(&mut self, name: &Name, new: New, now: &Now, buffer: &mut EffectBuffer) -> Pushed {
        let New { data, priority, delay, dedupe } = new;
        let same = |item: &&Item| item.queue == *name && item.keeps_out() == dedupe.as_ref();
        while dedupe.is_some()
            && let Some(item) = self.items.values().find(same)
        {
            let id = item.id;
            // An item whose last attempt has timed out is dead, though this was not carried out yet: it does not refuse
            // others.
            if !taking::is_over(item, now) || item.attempts < self.queues[name].config.max_attempts {
                return Pushed::Duplicate(id);
            }
            self.end(id, FailedAttempt::timed_out(), now, buffer);
        }
        let queue = self.queues.get_mut(name).expect("it was looked for before");
        if queue.length >= queue.config.max_length {
            return Pushed::Full;
        }
        queue.length += 1;
        let id = ItemId(buffer.next());
        let is_delayed = delay > Span::ZERO;
        let not_before = is_delayed.then(|| wall_after(now, delay));
        let fact = Fact::Push { item: id, data: data.clone(), priority, not_before, dedupe: dedupe.clone() };
        buffer.emit(Event::Queue { name: name.clone(), fact });
        let item = Item {
            id,
            queue: name.clone(),
            data,
            priority,
            created: now.stamp(),
            dedupe,
            attempts: 0,
            fence: Epoch(0),
            state: State::Pending { not_before: is_delayed.then(|| now.lease + delay) },
            history: Vec::new(),
            origin: None,
            depth: 0,
        };
        self.items.insert(id, item);
        Pushed::Added(id)
    }

    /// Returns whether that was a change.
    fn set_paused(&mut self, name: &Name, paused: bool) -> bool {
        let queue = self.queues.get_mut(name).expect("it was looked for before");
        std::mem::replace(&mut queue.paused, paused) != paused
    }

    fn items_of<'a>(&'a self, name: &'a Name) -> impl Iterator<Item = &'a Item> {
        self.items.values().filter(move |item| item.queue == *name)
    }

    fn next_due(&self, name: &Name) -> Option<Lease> {
        self.items_of(name).filter_map(Item::due).min()
    }

    /// The first items of a part.
    fn part(&self, name: &Name, part: Part, limit: usize) -> Vec<ItemId> {
        let mut keys: Vec<(i64, ItemId)> =
            self.items_of(name).filter(|item| part.has(item)).map(|item| (part.key(item), item.id)).collect();
        if limit == 1 {
            return keys.into_iter().min().map(|(_, id)| id).into_iter().collect();
        }
        keys.sort_unstable();
        keys.into_iter().take(limit).map(|(_, id)| id).collect()
    }

    fn remove(&mut self, id: ItemId) {
        if let Some(item) = self.items.remove(&id)
            && let Some(queue) = self.queues.get_mut(&item.queue)
        {
            queue.length -= 1;
        }
    }

    fn move_to(&mut self, id: ItemId, to: &Name) {
        let item = self.items.get_mut(&id).expect("the caller has found it");
        let from = std::mem::replace(&mut item.queue, to.clone());
        if let Some(queue) = self.queues.get_mut(&from) {
            queue.length -= 1;
        }
        if let Some(queue) = self.queues.get_mut(to) {
            queue.length += 1;
        }
    }
}

fn wall_after(now: &Now, span: Span) -> Wall {
    Wall(now.wall.0.saturating_add(span.as_ms()))
}

#[cfg(test)]
mod tests;
