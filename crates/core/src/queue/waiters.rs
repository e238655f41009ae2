//! The waiters for an item of a queue.
//!
//! Nothing is reserved for a waiter: a wake-up only makes the first one try again. Each watches the process before it,
//! so that a waiter that dies does not hold up the others.

use super::{Name, Outcome, Queues, WAITERS_LIMIT};
use crate::ids::{HolderId, Ticket};
use crate::process::ProcessId;
use crate::resource::grant::WaitingProcess;
use crate::step::{EffectBuffer, Now};
use crate::time::{Lease, Stamp};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taker {
    /// Its place: lower ones come first.
    pub ticket: Ticket,
    pub queue: Name,
    pub holder: HolderId,
    /// How it can be reached.
    pub standing: WaitingProcess,
    pub since: Stamp,
    /// When it last polled.
    pub seen: Lease,
}

/// The position of a waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub ticket: Ticket,
    /// Its place, counted from 1.
    pub place: usize,
    pub before: Option<ProcessId>,
    /// When an item may be due without a wake-up. Only the first waiter need poll then.
    pub next: Option<Lease>,
    /// Whether nothing is taken from the queue.
    pub is_halted: bool,
}

impl Queues {
    /// Adds a waiter, or keeps its place.
    pub(super) fn add_waiter(
        &mut self,
        name: &Name,
        holder: HolderId,
        standing: WaitingProcess,
        ticket: Option<Ticket>,
        due: Option<Lease>,
        now: &Now,
    ) -> Outcome {
        let known = ticket.filter(|ticket| self.takers.get(ticket).is_some_and(|taker| taker.queue == *name));
        let ticket = known.unwrap_or(now.ticket);
        let length = self.takers.values().filter(|taker| taker.queue == *name).count();
        match self.takers.get_mut(&ticket) {
            // Where its death can be seen, its place needs no renewal, and a poll without a result writes nothing.
            Some(taker) if taker.standing.lease.is_some() => taker.seen = now.lease,
            Some(_) => {}
            None if length >= WAITERS_LIMIT => return Outcome::TooManyWaiters,
            None => {
                let taker = Taker { ticket, queue: name.clone(), holder, standing, since: now.stamp(), seen: now.lease };
                self.takers.insert(ticket, taker);
            }
        }
        let waiters: Vec<&Taker> = self.takers.values().filter(|taker| taker.queue == *name).collect();
        let index = waiters.iter().position(|taker| taker.ticket == ticket).expect("it was just put there");
        let before = index.checked_sub(1).map(|index| waiters[index].standing.process.clone());
        let next = due.filter(|_| index == 0);
        let is_halted = self.queues[name].paused;
        Outcome::Waiting(Waiting { ticket, place: index + 1, before, next, is_halted })
    }

    pub(super) fn leave(&mut self, name: &Name, ticket: Ticket, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        if self.takers.get(&ticket).is_some_and(|taker| taker.queue == *name) {
            self.takers.remove(&ticket);
            // It may have been woken for an item that it will not take now.
            self.drop_gone(name, now);
            self.wake(name, buffer);
        }
        Outcome::Left
    }

    /// Drops the waiters that are proven dead, or have not polled for too long.
    pub(super) fn drop_gone(&mut self, name: &Name, now: &Now) {
        let is_gone = |taker: &Taker| {
            let is_silent = taker.standing.lease.is_some_and(|lease| now.is_past(taker.seen + lease));
            taker.queue == *name && (is_silent || now.dead.contains(&taker.standing.process))
        };
        self.takers.retain(|_, taker| !is_gone(taker));
    }

    /// Wakes the first waiter.
    pub(super) fn wake(&self, name: &Name, buffer: &mut EffectBuffer) {
        if let Some(first) = self.takers.values().find(|taker| taker.queue == *name) {
            buffer.wake(first.standing.address.as_ref());
        }
    }
}
