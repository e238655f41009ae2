//! A semaphore: a number of slots, taken in any weight, and a strict line of those who wait.
//!
//! ```text
//!   acquire: fits and nobody waits -> holder          else -> line
//!   acquire again: not more -> already held           more -> increased, or keeps the old weight and stands in line
//!   release, reclaim, lapse, a larger capacity -> the line is served from its front until one does not fit
//! ```
//!
//! Invariants: what holders have fits the capacity, unless the capacity was made smaller since; the first in line
//! does not fit; nobody waits for more than the capacity.

use std::collections::BTreeMap;

use crate::event::{Defined, Event, Fact, Forced, Increased, Kind, Resource};
use crate::ids::{Epoch, HolderId, Name, Ticket};
use crate::resource::grant::{
    Ask, Blocked, Grant, GrantRequest, OFFER, Offer, Reason, Term, WAITERS_LIMIT, Waiter, Waiters, Waiting,
};
use crate::resource::work_claim::Reservation;
use crate::step::{EffectBuffer, Now, Step};
use crate::task::admission::weight_left;
use crate::time::{Lease, Span};

/// The largest capacity.
pub const CAPACITY_LIMIT: u32 = 1_000_000;

/// The most holders of one semaphore.
pub const HOLDER_LIMIT: usize = 10_000;

/// A semaphore with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Semaphore {
    pub name: Name,
    /// What was defined.
    pub config: Config,
    /// Who holds how much.
    pub holders: BTreeMap<HolderId, Grant>,
    /// How many slots are held by others whom this decision does not have to know: neither time nor a death ends their grants.
    pub elsewhere: u32,
    pub waiters: Waiters,
    /// For whom slots are kept that are free. It follows from the claims that wait, and is not stored.
    pub reservation: Option<Box<Reservation>>,
}

/// The definition of a semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// How many slots there are.
    pub capacity: u32,
    /// The default time to live of a grant.
    pub ttl: Option<Span>,
}

/// What can be asked of a semaphore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Set the capacity and the default time to live. Holders over the new capacity keep what they have.
    Define(Config),
    /// Get slots, or more slots, or stand in line for them.
    Acquire(Box<Ask>),
    /// Ask, as a waiter, how things stand; takes up what was offered.
    Poll { ticket: Ticket },
    /// Give up waiting; also gives back what was granted to the ticket.
    Leave { ticket: Ticket },
    /// Show a sign of life.
    Heartbeat {
        holder: HolderId,
        /// Of which grant, if the caller knows.
        epoch: Option<Epoch>,
    },
    /// Give all slots back.
    Release {
        holder: HolderId,
        /// Which grant, if the caller knows.
        epoch: Option<Epoch>,
    },
    /// Take the slots of one holder away.
    Force { holder: HolderId, by: Forced },
    /// Take away every grant that is over.
    Reap,
}

/// What a semaphore can answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Defined,
    Acquired(Grant),
    /// You have as much already; the lease starts again.
    AlreadyHeld(Grant),
    /// You have more than before, under the same epoch.
    Increased(Grant),
    /// A sign of life was recorded.
    Extended(Grant),
    /// Not enough slots are free, or others wait.
    Full {
        available: u32,
        blocked: Blocked,
    },
    Waiting(Waiting),
    /// The line, or the list of holders, has no place left.
    TooManyWaiters,
    /// No slot was asked for.
    NoWeight,
    /// A grant of its own was asked for, and this holder has one, or waits for one.
    HeldAlready,
    /// More was asked for than there will ever be.
    TooHeavy {
        /// How many slots there are.
        capacity: u32,
    },
    /// This request was granted before, and that grant has ended since.
    Spent {
        /// The grant it got.
        epoch: Epoch,
    },
    /// The ticket is not in line any more: ask again.
    Gone,
    Left,
    /// The slots are given back.
    Released,
    /// This holder has no slots.
    NotHolder,
    /// The epoch is not that of the holder's grant.
    Fenced {
        /// The epoch of the grant that the holder has now, if it has one.
        current: Option<Epoch>,
    },
    /// These grants were over and are taken away.
    Reaped(Vec<(HolderId, Reason)>),
}

impl Semaphore {
    /// A semaphore that nobody holds.
    pub fn new(name: Name, config: Config) -> Semaphore {
        Semaphore { name, config, holders: BTreeMap::new(), elsewhere: 0, waiters: Waiters::default(), reservation: None }
    }

    /// How many slots are free.
    pub fn available(&self) -> u32 {
        let used: u64 = self.holders.values().map(|grant| u64::from(grant.claim.weight)).sum();
        let used = used + u64::from(self.elsewhere);
        u32::try_from(u64::from(self.config.capacity).saturating_sub(used)).expect("at most the capacity, which is a u32")
    }

    /// How many slots are taken by grants that are not over, whether anybody has cleared those away or not.
    pub fn used(&self, now: &Now) -> u64 {
        let known: u64 = self.holders.values().map(|grant| u64::from(weight_left(grant, now))).sum();
        known + u64::from(self.elsewhere)
    }

    /// How many slots somebody who asks now would find free.
    pub fn free(&self, now: &Now) -> u32 {
        let free = u64::from(self.config.capacity).saturating_sub(self.used(now));
        u32::try_from(free).expect("at most the capacity, which is a u32")
    }

    pub fn step(mut self, input: Input, now: &Now) -> Step<Semaphore, Outcome> {
        let mut buffer = EffectBuffer::new(now);
        let outcome = match input {
            Input::Define(config) => {
                self.define(config, now, &mut buffer);
                Outcome::Defined
            }
            Input::Acquire(ask) => self.acquire(*ask, now, &mut buffer),
            Input::Poll { ticket } => {
                self.settle(now, &mut buffer);
                self.poll(ticket, now)
            }
            Input::Leave { ticket } => {
                self.leave(ticket, now, &mut buffer);
                Outcome::Left
            }
            Input::Heartbeat { holder, epoch } => match self.owned(&holder, epoch) {
                Err(refusal) => refusal,
                Ok(grant) => {
                    grant.beat(now);
                    Outcome::Extended(grant.clone())
                }
            },
            Input::Release { holder, epoch } => match self.owned(&holder, epoch) {
                Err(refusal) => refusal,
                Ok(_) => {
                    self.end(&holder, None, &mut buffer);
                    self.serve(now, &mut buffer);
                    Outcome::Released
                }
            },
            Input::Force { holder, by } => match self.owned(&holder, None) {
                Err(refusal) => refusal,
                Ok(_) => {
                    self.end(&holder, Some(by), &mut buffer);
                    self.serve(now, &mut buffer);
                    Outcome::Released
                }
            },
            Input::Reap => Outcome::Reaped(self.settle(now, &mut buffer)),
        };
        Step { state: self, outcome, effects: buffer.effects }
    }

    /// The next moment at which time alone could change something.
    pub fn next_deadline(&self) -> Option<Lease> {
        self.holders.values().filter_map(Grant::deadline).min()
    }

    /// Whether a grant is over: its time is up, or its holder is dead.
    pub fn has_ended(&self, now: &Now) -> bool {
        self.holders.values().any(|grant| grant.over(now).is_some())
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        self.waiters.check();
        if let Some(first) = self.waiters.first() {
            assert!(self.needs(first) > self.available_to(&first.claim), "the first in line for {} fits", self.name);
        }
        for waiter in self.waiters.iter() {
            assert!(waiter.claim.weight <= self.config.capacity, "a waiter for {} will never fit", self.name);
        }
        for (holder, grant) in &self.holders {
            assert_eq!(holder, &grant.claim.holder);
            assert!(grant.claim.weight > 0, "a holder of {} holds nothing", self.name);
        }
    }

    fn define(&mut self, config: Config, now: &Now, buffer: &mut EffectBuffer) {
        self.config = config;
        let Config { capacity, ttl } = config;
        self.emit(Fact::Defined(Defined { capacity: Some(capacity), ttl, max_hold: None }), buffer);
        // Those who ask for more than there is now are woken; asking again tells them so.
        for waiter in self.waiters.drop_where(|waiter| waiter.claim.weight > capacity) {
            buffer.wake(waiter.standing.address.as_ref());
        }
        self.serve(now, buffer);
    }

    fn acquire(&mut self, ask: Ask, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let Ask { mut claim, term, epoch, granted_before, wait, anew } = ask;
        if claim.weight == 0 {
            return Outcome::NoWeight;
        }
        if epoch.is_some() {
            match self.owned(&claim.holder, epoch) {
                Err(refusal) => return refusal,
                // A lease that ran out is revived, or the settling below would take it from the one who asks.
                Ok(grant) => grant.beat(now),
            }
        }
        let rejoined = self.waiters.rejoin(&claim, wait.as_ref(), now);
        self.settle(now, buffer);
        if let Some(ticket) = rejoined {
            return self.poll(ticket, now);
        }
        if let Term::Usual(ttl) = term {
            claim.ttl = claim.ttl.or(self.config.ttl).or(ttl);
        }
        claim.max_hold = None;
        if let Some(epoch) = granted_before
            && self.holders.get(&claim.holder).is_none_or(|grant| grant.epoch != epoch)
        {
            return Outcome::Spent { epoch };
        }
        if anew && granted_before.is_none() && self.knows(&claim.holder) {
            return Outcome::HeldAlready;
        }
        let available = self.available_to(&claim);
        let fits_now = |extra: u32| extra <= available;
        // Who holds what a claim waits for must not wait behind those who wait for that claim.
        let nobody_waits = self.waiters.is_empty() || self.reservation.as_ref().is_some_and(|kept| kept.lets(&claim));
        let crowded = self.holders.len() >= HOLDER_LIMIT;
        let capacity = self.config.capacity;
        match self.holders.get_mut(&claim.holder) {
            Some(grant) if grant.claim.weight >= claim.weight => {
                grant.renew(now);
                return Outcome::AlreadyHeld(grant.clone());
            }
            _ if claim.weight > capacity => return Outcome::TooHeavy { capacity },
            Some(grant) if nobody_waits && fits_now(claim.weight - grant.claim.weight) => {
                grant.claim.weight = claim.weight;
                grant.renew(now);
                let grant = grant.clone();
                self.increased(&grant, buffer);
                return Outcome::Increased(grant);
            }
            Some(_) => {}
            None if crowded => return Outcome::TooManyWaiters,
            None if nobody_waits && fits_now(claim.weight) => {
                let epoch = self.emit(Fact::Acquired(claim.clone()), buffer);
                let grant = Grant::new(claim, epoch, now);
                self.holders.insert(grant.claim.holder.clone(), grant.clone());
                return Outcome::Acquired(grant);
            }
            None => {}
        }
        match wait {
            None => Outcome::Full { available, blocked: self.blocked(None) },
            Some(_) if self.waiters.len() >= WAITERS_LIMIT => Outcome::TooManyWaiters,
            Some(standing) => {
                self.waiters.push(Waiter::new(claim, standing, now));
                self.poll(now.ticket, now)
            }
        }
    }

    /// How things stand for a ticket; takes up what was offered to it.
    fn poll(&mut self, ticket: Ticket, now: &Now) -> Outcome {
        if let Some(grant) = self.holders.values_mut().find(|grant| grant.ticket == Some(ticket)) {
            grant.renew(now);
            return Outcome::Acquired(grant.clone());
        }
        let Some(index) = self.waiters.poll(ticket, now) else { return Outcome::Gone };
        Outcome::Waiting(Waiting { ticket, place: index + 1, blocked: self.blocked(Some(index)) })
    }

    fn leave(&mut self, ticket: Ticket, now: &Now, buffer: &mut EffectBuffer) {
        let granted = self.holders.values().find(|grant| grant.ticket == Some(ticket));
        match granted.map(|grant| (grant.claim.holder.clone(), grant.offer.as_ref().and_then(|offer| offer.from_weight))) {
            Some((holder, Some(weight))) => self.decrease(&holder, weight, buffer),
            Some((holder, None)) => self.end(&holder, None, buffer),
            None => {
                self.waiters.remove(ticket);
            }
        }
        self.serve(now, buffer);
    }

    fn owned(&mut self, holder: &HolderId, epoch: Option<Epoch>) -> Result<&mut Grant, Outcome> {
        match (self.holders.get_mut(holder), epoch) {
            (Some(grant), Some(epoch)) if grant.epoch != epoch => Err(Outcome::Fenced { current: Some(grant.epoch) }),
            (Some(grant), _) => Ok(grant),
            (None, Some(_)) => Err(Outcome::Fenced { current: None }),
            (None, None) => Err(Outcome::NotHolder),
        }
    }

    /// Drops dead waiters, ends the grants that are over, and serves the line.
    fn settle(&mut self, now: &Now, buffer: &mut EffectBuffer) -> Vec<(HolderId, Reason)> {
        self.waiters.drop_over(now);
        let mut ended = Vec::new();
        loop {
            let over = |(holder, grant): (&HolderId, &Grant)| grant.over(now).map(|reason| (holder.clone(), reason));
            let round: Vec<_> = self.holders.iter().filter_map(over).collect();
            // An increase that lapses leaves a grant that may be over itself, so one round is not enough.
            if round.is_empty() {
                self.serve(now, buffer);
                return ended;
            }
            for (holder, reason) in &round {
                self.reclaim(holder, *reason, buffer);
            }
            ended.extend(round);
        }
    }

    fn reclaim(&mut self, holder: &HolderId, reason: Reason, buffer: &mut EffectBuffer) {
        let grant = self.holders.get(holder).expect("a holder found to be over is there");
        if let Some(weight) = grant.offer.as_ref().and_then(|offer| offer.from_weight) {
            return self.decrease(holder, weight, buffer);
        }
        self.emit(grant.reclaimed(reason), buffer);
        self.holders.remove(holder);
    }

    /// Takes an increase back that was offered and not taken up: the holder keeps what it had.
    fn decrease(&mut self, holder: &HolderId, weight: u32, buffer: &mut EffectBuffer) {
        let grant = self.holders.get_mut(holder).expect("an increase was offered to a holder");
        grant.claim.weight = weight;
        grant.offer = None;
        grant.ticket = None;
        let fact = grant.decreased(weight);
        self.emit(fact, buffer);
    }

    fn end(&mut self, holder: &HolderId, forced: Option<Forced>, buffer: &mut EffectBuffer) {
        let grant = self.holders.remove(holder).expect("only a holder's slots are released");
        self.emit(grant.released(forced), buffer);
    }

    /// Serves the line from its front until one does not fit.
    fn serve(&mut self, now: &Now, buffer: &mut EffectBuffer) {
        while let Some(waiter) = self.next_served().and_then(|ticket| self.waiters.remove(ticket)) {
            buffer.wake(waiter.standing.address.as_ref());
            match self.holders.get_mut(&waiter.claim.holder) {
                Some(grant) => {
                    // A second offer on top of one that was not taken up lapses together with it.
                    let from_weight = match &grant.offer {
                        Some(offer) => offer.from_weight,
                        None => Some(grant.claim.weight),
                    };
                    grant.claim.weight = grant.claim.weight.max(waiter.claim.weight);
                    grant.ticket = Some(waiter.ticket);
                    grant.offer = Some(Offer { until: now.lease + OFFER, process: waiter.standing.process, from_weight });
                    let grant = grant.clone();
                    self.increased(&grant, buffer);
                }
                None => {
                    let epoch = self.emit(Fact::Acquired(waiter.claim.clone()), buffer);
                    let grant = Grant::offered(waiter, epoch, now);
                    self.holders.insert(grant.claim.holder.clone(), grant);
                }
            }
        }
    }

    /// The waiter to serve: the first in line, or one who passes the reservation that the first waits for.
    fn next_served(&self) -> Option<Ticket> {
        let fits = |waiter: &&Waiter| self.needs(waiter) <= self.available_to(&waiter.claim);
        let passes = |waiter: &&Waiter| self.reservation.as_ref().is_some_and(|kept| kept.lets(&waiter.claim));
        let first = self.waiters.first().filter(fits);
        first.or_else(|| self.waiters.iter().filter(passes).find(fits)).map(|waiter| waiter.ticket)
    }

    /// How many slots are free for one who asks.
    fn available_to(&self, claim: &GrantRequest) -> u32 {
        let kept = self.reservation.as_ref().filter(|kept| !kept.lets(claim)).map_or(0, |kept| kept.weight);
        self.available().saturating_sub(kept)
    }

    /// Whether a holder has slots or waits for some.
    fn knows(&self, holder: &HolderId) -> bool {
        self.holders.contains_key(holder) || self.waiters.iter().any(|waiter| waiter.claim.holder == *holder)
    }

    /// How many more slots a waiter needs: an increase counts only what is added.
    fn needs(&self, waiter: &Waiter) -> u32 {
        let has = self.holders.get(&waiter.claim.holder).map_or(0, |grant| grant.claim.weight);
        waiter.claim.weight.saturating_sub(has)
    }

    fn increased(&self, grant: &Grant, buffer: &mut EffectBuffer) {
        let increased = Increased { holder: grant.claim.holder.clone(), weight: grant.claim.weight };
        self.emit(Fact::Increased(increased), buffer);
    }

    fn blocked(&self, index: Option<usize>) -> Blocked {
        let holders: Vec<Grant> = self.holders.values().cloned().collect();
        let reserved = self.reservation.as_deref().filter(|kept| kept.weight <= self.available() || holders.is_empty());
        Blocked::new(holders, &self.waiters, index, reserved)
    }

    fn emit(&self, fact: Fact, buffer: &mut EffectBuffer) -> Epoch {
        buffer.emit(Event::Resource { resource: Resource { kind: Kind::Semaphore, name: self.name.clone() }, fact })
    }
}

#[cfg(test)]
mod tests;
