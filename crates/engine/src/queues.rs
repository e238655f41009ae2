//! What can be asked of a queue: which rows that needs. The machine decides.

use banksman_core::Name;
use banksman_core::queue::{Input, Outcome};
use banksman_store::{Key, Tables, Turn};

use crate::request::{Reply, Seen};

/// Something that is asked of a queue.
#[derive(Debug, Clone)]
pub struct QueueRequest {
    /// Which one.
    pub queue: Name,
    /// What.
    pub input: Input,
    /// What the caller found out before it asked.
    pub seen: Seen,
}

impl QueueRequest {
    /// A request without any probes.
    pub fn new(queue: Name, input: Input) -> QueueRequest {
        QueueRequest { queue, input, seen: Seen::default() }
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        let name = || self.queue.clone();
        // What others in the same batch may take away from the head of the queue.
        let gone = |removed: usize, ended: usize| {
            let [removed, ended] = [removed, ended].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
            Key::Head { queue: name(), takes: 0, removed, ended }
        };
        let part = |part, limit: usize| Key::Part { queue: name(), part, limit: u32::try_from(limit).unwrap_or(u32::MAX) };
        match &self.input {
            Input::Define(_) => vec![Key::Queues],
            Input::Push(items) => {
                let dedupe = items.iter().filter_map(|new| new.dedupe.clone()).map(|key| Key::Dedupe(name(), key));
                [Key::NamedQueue(name()), Key::FirstTaker(name())].into_iter().chain(dedupe).collect()
            }
            Input::Take { .. } => {
                vec![Key::NamedQueue(name()), Key::Takers(name()), Key::Head { queue: name(), takes: 1, removed: 0, ended: 0 }]
            }
            Input::Leave { .. } => vec![Key::NamedQueue(name()), Key::Takers(name())],
            Input::Extend(hold, _) | Input::Complete(hold) => {
                vec![Key::NamedQueue(name()), Key::Item(hold.item), gone(0, 1)]
            }
            Input::Fail { hold, .. } => {
                vec![Key::NamedQueue(name()), Key::Item(hold.item), Key::Takers(name()), gone(0, 1)]
            }
            Input::Expire(item) => vec![Key::NamedQueue(name()), Key::Item(*item), Key::Takers(name()), gone(0, 1)],
            // Where it goes back to stands in its row.
            Input::Requeue(item) => vec![Key::Queues, Key::Item(*item), Key::AllTakers, gone(1, 0)],
            Input::RequeueAll(of, limit) => vec![Key::Queues, part(*of, *limit), Key::AllTakers, gone(*limit, *limit)],
            Input::Purge(of, limit) => vec![Key::NamedQueue(name()), part(*of, *limit), gone(*limit, *limit)],
            Input::Pause => vec![Key::NamedQueue(name())],
            Input::Resume => vec![Key::NamedQueue(name()), Key::FirstTaker(name())],
        }
    }

    pub(crate) fn decide(&self, tables: &mut Tables, turn: &mut Turn) -> Reply {
        let now = self.seen.now(turn);
        let step = std::mem::take(&mut tables.queues).step(&self.queue, self.input.clone(), &now);
        tables.queues = step.state;
        let took_ticket = matches!(&step.outcome, Outcome::Waiting(waiting) if waiting.ticket == now.ticket);
        let errands = turn.carry_out(step.effects, took_ticket);
        debug_assert!(errands.is_empty(), "queues send no errands");
        Reply::Queue { outcome: step.outcome, at: now.stamp() }
    }
}
