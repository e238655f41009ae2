//! Those who wait for an item of a queue.
//!
//! Nothing is reserved for them: a wake-up tells the first in line to try again. Each watches the process before it, so that
//! one that dies in line holds up nobody.

use super::{Name, Outcome, Queues, WAITERS_LIMIT};
use crate::ids::{HolderId, Ticket};
use crate::process::ProcessId;
use crate::resource::grant::WaitingProcess;
use crate::step::{EffectBuffer, Now};
use crate::time::{Lease, Stamp};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taker {
    /// Its place: lower comes first.
    pub ticket: Ticket,
    /// For an item of which queue.
    pub queue: Name,
    pub holder: HolderId,
    /// How it can be reached.
    pub standing: WaitingProcess,
    pub since: Stamp,
    /// When it last looked.
    pub seen: Lease,
}

/// How things stand for one who waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub ticket: Ticket,
    /// Its place, counted from 1.
    pub place: usize,
    pub before: Option<ProcessId>,
    /// When there may be something for it by itself. Only the first in line need look then.
    pub next: Option<Lease>,
    /// Whether nothing is taken from the queue.
    pub is_halted: bool,
}

impl Queues {
    /// Waits, or goes on doing so.
    pub(super) fn stand(
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
            // Where its death can be seen, its place needs no renewal, and a look that finds nothing writes nothing.
            Some(taker) if taker.standing.lease.is_some() => taker.seen = now.lease,
            Some(_) => {}
            None if length >= WAITERS_LIMIT => return Outcome::TooManyWaiters,
            None => {
                let taker = Taker { ticket, queue: name.clone(), holder, standing, since: now.stamp(), seen: now.lease };
                self.takers.insert(ticket, taker);
            }
        }
        let line: Vec<&Taker> = self.takers.values().filter(|taker| taker.queue == *name).collect();
        let index = line.iter().position(|taker| taker.ticket == ticket).expect("it was just put there");
        let before = index.checked_sub(1).map(|index| line[index].standing.process.clone());
        let next = due.filter(|_| index == 0);
        let is_halted = self.queues[name].paused;
        Outcome::Waiting(Waiting { ticket, place: index + 1, before, next, is_halted })
    }

    pub(super) fn leave(&mut self, name: &Name, ticket: Ticket, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        if self.takers.get(&ticket).is_some_and(|taker| taker.queue == *name) {
            self.takers.remove(&ticket);
            // It may have been woken for something that it does not take any more.
            self.drop_gone(name, now);
            self.wake(name, buffer);
        }
        Outcome::Left
    }

    /// Drops those who are proven dead, or have not looked for too long.
    pub(super) fn drop_gone(&mut self, name: &Name, now: &Now) {
        let is_gone = |taker: &Taker| {
            let is_silent = taker.standing.lease.is_some_and(|lease| now.is_past(taker.seen + lease));
            taker.queue == *name && (is_silent || now.dead.contains(&taker.standing.process))
        };
        self.takers.retain(|_, taker| !is_gone(taker));
    }

    /// Wakes the first in line.
    pub(super) fn wake(&self, name: &Name, buffer: &mut EffectBuffer) {
        if let Some(first) = self.takers.values().find(|taker| taker.queue == *name) {
            buffer.wake(first.standing.address.as_ref());
        }
    }
}
