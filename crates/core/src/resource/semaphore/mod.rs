//! A semaphore: a number of slots, taken in any weight, and a strict queue of waiters.
//!
//! ```text
//!   acquire: fits and no waiters -> holder            else -> waiters
//!   acquire again: not more -> already held           more -> increased, or keeps the old weight and waits
//!   release, reclaim, lapse, a larger capacity -> the waiters are served in order until one does not fit
//! ```
//!
//! Invariants: the weights of the holders fit the capacity, unless the capacity was made smaller since; the first
//! waiter does not fit; no waiter wants more than the capacity.

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

/// How many holders a semaphore can have at most.
pub const HOLDER_LIMIT: usize = 10_000;

/// A semaphore with its waiters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Semaphore {
    pub name: Name,
    pub config: Config,
    /// The grants.
    pub holders: BTreeMap<HolderId, Grant>,
    /// The slots of other holders that this decision need not know: neither time nor a death ends their grants.
    pub elsewhere: u32,
    pub waiters: Waiters,
    /// The claim that free slots are kept for. It follows from the claims that wait, and is not stored.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Set the capacity and the default time to live. Holders over the new capacity keep what they have.
    Define(Config),
    /// Get slots, or more slots, or wait for them.
    Acquire(Box<Ask>),
    /// Poll as a waiter; takes up an offer.
    Poll { ticket: Ticket },
    /// Stop waiting; also gives back what was granted to the ticket.
    Leave { ticket: Ticket },
    /// Renew the lease.
    Heartbeat {
        holder: HolderId,
        /// The grant, if the caller knows.
        epoch: Option<Epoch>,
    },
    /// Give all slots back.
    Release {
        holder: HolderId,
        /// The grant, if the caller knows.
        epoch: Option<Epoch>,
    },
    /// Take the slots of one holder away.
    Force { holder: HolderId, by: Forced },
    /// Take away every grant that is over.
    Reap,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Defined,
    Acquired(Grant),
    /// The holder has as much already; the lease starts again.
    AlreadyHeld(Grant),
    /// The holder has more than before, under the same epoch.
    Increased(Grant),
    /// The lease starts again.
    Extended(Grant),
    /// Not enough slots are free, or others wait.
    Full {
        available: u32,
        blocked: Blocked,
    },
    Waiting(Waiting),
    /// The semaphore has as many waiters, or holders, as it can have.
    TooManyWaiters,
    /// The request has a weight of zero.
    NoWeight,
    /// The request wants a new grant, and this holder has one, or waits for one.
    HeldAlready,
    /// The weight is larger than the capacity.
    TooHeavy {
        capacity: u32,
    },
    /// This request was granted before, and that grant has ended since.
    Spent {
        /// The grant it got.
        epoch: Epoch,
    },
    /// The ticket is not among the waiters any more: the caller acquires again.
    Gone,
    Left,
    Released,
    /// This holder has no slots.
    NotHolder,
    /// The epoch is not that of the holder's grant.
    Fenced {
        /// The epoch of the grant that the holder has now, if it has one.
        current: Option<Epoch>,
    },
    /// These grants were over and were taken away.
    Reaped(Vec<(HolderId, Reason)>),
}

impl Semaphore {
    /// A semaphore without holders.
    pub fn new(name: Name, config: Config) -> Semaphore {
        Semaphore { name, config, holders: BTreeMap::new(), elsewhere: 0, waiters: Waiters::default(), reservation: None }
    }

    /// How many slots are free.
    pub fn available(&self) -> u32 {
        let used: u64 = self.holders.values().map(|grant| u64::from(grant.claim.weight)).sum();
        let used = used + u64::from(self.elsewhere);
        u32::try_from(u64::from(self.config.capacity).saturating_sub(used)).expect("at most the capacity, which is a u32")
    }

    /// How many slots are taken by grants that are not over, whether the others were ended already or not.
    pub fn used(&self, now: &Now) -> u64 {
        let known: u64 = self.holders.values().map(|grant| u64::from(weight_left(grant, now))).sum();
        known + u64::from(self.elsewhere)
    }

    /// How many slots a request would find free now.
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
            assert!(self.needs(first) > self.available_to(&first.claim), "the first waiter for {} fits", self.name);
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
        // Waiters that want more than the new capacity are woken; their next call gets the refusal.
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
                // A lease that ran out is revived, or the settling below would take it from the caller.
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
        // A holder of a resource that a claim waits for must not wait behind the waiters for that claim.
        let is_first = self.waiters.is_empty() || self.reservation.as_ref().is_some_and(|kept| kept.lets(&claim));
        let crowded = self.holders.len() >= HOLDER_LIMIT;
        let capacity = self.config.capacity;
        match self.holders.get_mut(&claim.holder) {
            Some(grant) if grant.claim.weight >= claim.weight => {
                grant.renew(now);
                return Outcome::AlreadyHeld(grant.clone());
            }
            _ if claim.weight > capacity => return Outcome::TooHeavy { capacity },
            Some(grant) if is_first && fits_now(claim.weight - grant.claim.weight) => {
                grant.claim.weight = claim.weight;
                grant.renew(now);
                let grant = grant.clone();
                self.increased(&grant, buffer);
                return Outcome::Increased(grant);
            }
            Some(_) => {}
            None if crowded => return Outcome::TooManyWaiters,
            None if is_first && fits_now(claim.weight) => {
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

    /// The position of a ticket; takes up an offer to it.
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

    /// Drops dead waiters, ends the grants that are over, and serves the waiters.
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

    /// Takes back an increase that was offered and not taken up: the holder keeps its earlier slots.
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

    /// Serves the waiters in order until one does not fit.
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

    /// The waiter to serve: the first one, or one that passes the reservation that the first waits for.
    fn next_served(&self) -> Option<Ticket> {
        let fits = |waiter: &&Waiter| self.needs(waiter) <= self.available_to(&waiter.claim);
        let passes = |waiter: &&Waiter| self.reservation.as_ref().is_some_and(|kept| kept.lets(&waiter.claim));
        let first = self.waiters.first().filter(fits);
        first.or_else(|| self.waiters.iter().filter(passes).find(fits)).map(|waiter| waiter.ticket)
    }

    /// How many slots are free for a request.
    fn available_to(&self, claim: &GrantRequest) -> u32 {
        let kept = self.reservation.as_ref().filter(|kept| !kept.lets(claim)).map_or(0, |kept| kept.weight);
        self.available().saturating_sub(kept)
    }

    /// Whether a holder has slots or waits for some.
    fn knows(&self, holder: &HolderId) -> bool {
        self.holders.contains_key(holder) || self.waiters.iter().any(|waiter| waiter.claim.holder == *holder)
    }

    /// How many more slots a waiter needs: an increase needs only the added ones.
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
