//! The requests to a queue: the rows that they need. The machine decides.

use banksman_core::event::Event;
use banksman_core::queue::{DUE_PER_SETTLE, DUE_PER_TAKE, Fact, Hold, Input, Outcome, Pushed};
use banksman_core::{Effect, Name, Now, Span};
use banksman_store::{Key, Tx};

use crate::request::{Reply, Seen};

/// A request to a queue.
#[derive(Debug, Clone)]
pub struct QueueRequest {
    pub queue: Name,
    pub input: Input,
    /// The results of the caller's probes.
    pub seen: Seen,
}

impl QueueRequest {
    /// A request without any probes.
    pub fn new(queue: Name, input: Input) -> QueueRequest {
        QueueRequest { queue, input, seen: Seen::default() }
    }

    /// The take that the request is about, if there is one.
    pub(crate) fn hold(&self) -> Option<&Hold> {
        match &self.input {
            Input::Extend(hold, _) | Input::Complete(hold) | Input::Fail { hold, .. } => Some(hold),
            _ => None,
        }
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        let name = || self.queue.clone();
        // The rows that other requests of the same batch may remove from the head of the queue.
        let gone = |removed: usize, ended: usize| {
            let [removed, ended] = [removed, ended].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
            Key::Head { queue: name(), takes: 0, removed, ended }
        };
        let part = |part, limit: usize| Key::Part { queue: name(), part, limit: u32::try_from(limit).unwrap_or(u32::MAX) };
        match &self.input {
            Input::Define(_) => vec![Key::Queues],
            Input::Push(items) => {
                let dedupe = items.iter().filter_map(|new| new.dedupe.clone()).map(|key| Key::Dedupe(name(), key));
                let mut keys: Vec<Key> = dedupe.collect();
                // Each dedupe key may find an item whose last attempt has expired.
                let ended = keys.len();
                keys.extend((ended > 0).then(|| gone(0, ended)));
                keys.extend([Key::NamedQueue(name()), Key::FirstTaker(name()), Key::WorkerRunners(name())]);
                keys
            }
            Input::Take { .. } => {
                // An item that expires here and moves to a queue with a worker is found by the slow polls of the runners.
                vec![Key::NamedQueue(name()), Key::Takers(name()), Key::Head { queue: name(), takes: 1, removed: 0, ended: 0 }]
            }
            Input::Leave { .. } => vec![Key::NamedQueue(name()), Key::Takers(name())],
            Input::Extend(hold, _) | Input::Complete(hold) => {
                vec![Key::NamedQueue(name()), Key::Item(hold.item), gone(0, 1)]
            }
            Input::Fail { hold, .. } => {
                vec![
                    Key::NamedQueue(name()),
                    Key::Item(hold.item),
                    Key::Takers(name()),
                    Key::WorkerRunnersBeyond(name()),
                    gone(0, 1),
                ]
            }
            Input::Settle => {
                let takes = (DUE_PER_SETTLE / DUE_PER_TAKE) as u32;
                let head = Key::Head { queue: name(), takes, removed: 0, ended: 0 };
                vec![Key::NamedQueue(name()), Key::Takers(name()), Key::WorkerRunnersBeyond(name()), head]
            }
            // The queue that the item goes back to is in its row.
            Input::Requeue(item) => vec![Key::Queues, Key::Item(*item), Key::AllTakers, Key::AllWorkerRunners, gone(1, 0)],
            Input::RequeueAll(of, limit) => {
                vec![Key::Queues, part(*of, *limit), Key::AllTakers, Key::AllWorkerRunners, gone(*limit, *limit)]
            }
            Input::Purge(of, limit) => vec![Key::NamedQueue(name()), part(*of, *limit), gone(*limit, *limit)],
            Input::Pause => vec![Key::NamedQueue(name())],
            Input::Resume => vec![Key::NamedQueue(name()), Key::FirstTaker(name()), Key::WorkerRunners(name())],
        }
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> Reply {
        let now = self.seen.now(tx);
        let outcome = step_at(&self.queue, self.input.clone(), &now, tx);
        Reply::Queue { outcome, at: now.stamp() }
    }
}

/// Steps a queue for a caller that does not wait, and carries out the effects.
pub(crate) fn step_queue(name: &Name, input: Input, tx: &mut Tx) -> Outcome {
    let now = tx.now(Vec::new(), Span::ZERO);
    step_at(name, input, &now, tx)
}

fn step_at(name: &Name, input: Input, now: &Now, tx: &mut Tx) -> Outcome {
    let step = std::mem::take(&mut tx.tables.queues).step(name, input, now);
    tx.tables.queues = step.state;
    if let Outcome::Pushed(pushed) = &step.outcome {
        for new in pushed.iter().filter_map(|one| if let Pushed::Added(id) = one { Some(id) } else { None }) {
            // The item may be with a waiting taker already; its depth is still the depth of the push.
            tx.tables.queues.items.entry(*new).and_modify(|item| item.depth = tx.depth);
        }
    }
    wake_worker_runners(&step.effects, tx);
    let took_ticket = matches!(&step.outcome, Outcome::Waiting(waiting) if waiting.ticket == now.ticket);
    let commands = tx.carry_out(step.effects, took_ticket);
    debug_assert!(commands.is_empty(), "queues send no commands");
    step.outcome
}

/// Wakes the runners of the workers of the filled queues. The runners were loaded with each queue.
fn wake_worker_runners(effects: &[Effect], tx: &mut Tx) {
    if tx.tables.automation.worker_runners.is_empty() {
        return;
    }
    let filled = |effect: &Effect| match effect {
        Effect::Emit(Event::Queue { name, fact }) => match fact {
            Fact::Push { .. } | Fact::Fail { .. } | Fact::Resumed {} => Some(name.clone()),
            Fact::Dead { moved_to, .. } => moved_to.clone(),
            Fact::Requeue { moved_to, .. } => Some(moved_to.clone().unwrap_or_else(|| name.clone())),
            Fact::Defined(_) | Fact::Paused {} | Fact::Take { .. } | Fact::Complete { .. } | Fact::Purged { .. } => None,
        },
        Effect::Emit(_) | Effect::Wake(_) | Effect::Send(_) => None,
    };
    let queues: std::collections::BTreeSet<Name> = effects.iter().filter_map(filled).collect();
    let runners = queues.iter().filter_map(|queue| tx.tables.automation.worker_runners.get(queue)).flatten();
    let wakes = runners.map(|address| Effect::Wake(address.clone())).collect();
    tx.carry_out(wakes, false);
}
