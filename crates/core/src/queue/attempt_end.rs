//! How attempts and items end: retries, dead items, and their return.

use super::{Attempt, Fact, HISTORY_LIMIT, Origin, Outcome, Part, Queue, Queues, State, wall_after};
use crate::event::Event;
use crate::ids::{ItemId, Name};
use crate::step::{EffectBuffer, Now};
use crate::time::{Span, Wall};

pub(super) struct FailedAttempt {
    pub(super) error: Box<str>,
    pub(super) timed_out: bool,
    pub(super) retry_after: Option<Span>,
}

impl FailedAttempt {
    pub(super) fn timed_out() -> FailedAttempt {
        FailedAttempt {
            error: "timed out: it was neither completed nor extended in time".into(),
            timed_out: true,
            retry_after: Some(Span::ZERO),
        }
    }
}

impl Queues {
    /// Ends an attempt that has failed: another one follows, unless it was the last.
    pub(super) fn end(&mut self, id: ItemId, failed: FailedAttempt, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let FailedAttempt { error, timed_out, retry_after } = failed;
        let item = self.items.get_mut(&id).expect("the caller has found it");
        let State::Processing(taken) = &item.state else { unreachable!("only an item that is processed can fail") };
        let (name, holder, epoch) = (item.queue.clone(), taken.holder.clone(), taken.epoch);
        let is_last = retry_after.is_none() || item.attempts >= self.queues[&name].config.max_attempts;
        let retry_after = retry_after.unwrap_or_default();
        let retry_at = (retry_after > Span::ZERO && !is_last).then(|| wall_after(now, retry_after));
        let fact = Fact::Fail { item: id, holder: holder.clone(), epoch, error: error.clone(), timed_out, retry_at };
        let seq = buffer.emit(Event::Queue { name: name.clone(), fact });
        let attempt = Attempt { holder, epoch, started: taken.since.wall, ended: now.wall, error: error.clone(), timed_out };
        remember(&mut item.history, attempt);
        if timed_out {
            item.fence = seq;
        }
        if is_last {
            return Outcome::Dead { moved_to: self.move_to_dead(id, error, now.wall, buffer) };
        }
        let due = now.lease + retry_after;
        item.state = if retry_at.is_some() { State::Failed { due } } else { State::Pending { not_before: None } };
        Outcome::Failed { due }
    }

    /// An item is dead: it goes to the dead-letter queue if there is one with room, and stays where it is otherwise. An
    /// item that died before in another queue stays, so that it does not go round in circles.
    fn move_to_dead(&mut self, id: ItemId, reason: Box<str>, at: Wall, buffer: &mut EffectBuffer) -> Option<Name> {
        let item = self.items.get_mut(&id).expect("the caller has found it");
        let name = item.queue.clone();
        let dead_letter = self.queues[&name].config.dead_letter.clone().filter(|_| item.origin.is_none());
        let has_room = |queue: &Queue| queue.length < queue.config.max_length;
        let moved_to = dead_letter.filter(|dead_letter| self.queues.get(dead_letter).is_some_and(has_room));
        buffer.emit(Event::Queue {
            name: name.clone(),
            fact: Fact::Dead { item: id, reason: reason.clone(), moved_to: moved_to.clone(), dedupe: item.dedupe.clone() },
        });
        match &moved_to {
            None => item.state = State::Dead { reason, at },
            Some(dead_letter) => {
                item.origin = Some(Origin { queue: name, reason, at });
                (item.state, item.attempts) = (State::Pending { not_before: None }, 0);
                self.move_to(id, dead_letter);
                self.wake(dead_letter, buffer);
            }
        }
        moved_to
    }

    pub(super) fn requeue(&mut self, name: &Name, id: ItemId, buffer: &mut EffectBuffer) -> Outcome {
        let Some(item) = self.items.get_mut(&id).filter(|item| item.queue == *name) else { return Outcome::NoItem };
        let is_dead = matches!(item.state, State::Dead { .. });
        if !is_dead && (item.origin.is_none() || !item.is_ready()) {
            return Outcome::NotDead { status: item.status() };
        }
        let back = item.origin.as_ref().map(|origin| origin.queue.clone());
        if let Some(back) = &back
            && self.queues.get(back).is_none_or(|queue| queue.length >= queue.config.max_length)
        {
            return Outcome::NoWayBack(back.clone());
        }
        (item.state, item.attempts, item.origin) = (State::Pending { not_before: None }, 0, None);
        let queue = back.clone().unwrap_or_else(|| name.clone());
        buffer.emit(Event::Queue { name: name.clone(), fact: Fact::Requeue { item: id, moved_to: back } });
        self.move_to(id, &queue);
        self.wake(&queue, buffer);
        Outcome::Requeued { queue }
    }

    pub(super) fn requeue_all(&mut self, name: &Name, part: Part, limit: usize, buffer: &mut EffectBuffer) -> Outcome {
        let mut count = 0;
        let items = self.part(name, part, limit);
        for id in &items {
            if let Outcome::Requeued { .. } = self.requeue(name, *id, buffer) {
                count += 1;
            }
        }
        Outcome::SomeRequeued { count, stuck: items.len() - count }
    }

    pub(super) fn purge(&mut self, name: &Name, part: Part, limit: usize, buffer: &mut EffectBuffer) -> Outcome {
        let items = self.part(name, part, limit);
        for item in &items {
            buffer.emit(Event::Queue { name: name.clone(), fact: Fact::Purged { item: *item } });
            self.remove(*item);
        }
        Outcome::Purged { count: items.len() }
    }
}

/// Adds an attempt to a history and drops the oldest one beyond the limit.
pub(crate) fn remember(history: &mut Vec<Attempt>, attempt: Attempt) {
    history.push(attempt);
    if history.len() > HISTORY_LIMIT {
        history.remove(0);
    }
}
