//! A lock: one holder at a time, a fence against earlier holders, and a queue of waiters.
//!
//! ```text
//!            acquire                         release, force, reclaim, lapse: no waiters
//!   Free ----------------> Held(grant) ------------------------------------------------------> Free
//!                            |    ^
//!                            +----+  the same with waiters: the first one gets it as an offer
//! ```
//!
//! Invariants: a free lock has no waiters, unless it is reserved for a claim; `fence` never falls, and a held lock's
//! epoch is its fence.

use crate::event::{Defined, Event, Fact, Forced, Kind, Resource};
use crate::ids::{Epoch, HolderId, Name, Ticket};
use crate::resource::grant::{Ask, Blocked, Grant, GrantRequest, Reason, Term, WAITERS_LIMIT, Waiter, Waiters, Waiting};
use crate::resource::work_claim::Reservation;
use crate::step::{EffectBuffer, Now, Step};
use crate::time::{Lease, Span};

/// A lock with its waiters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    pub name: Name,
    /// The defaults of its grants.
    pub config: Config,
    /// The sequence of the last grant, force, reclaim or lapse: every epoch below it is fenced.
    pub fence: Epoch,
    pub state: State,
    pub waiters: Waiters,
    /// The claim that it is kept for when it is free. It follows from the claims that wait, and is not stored.
    pub reservation: Option<Box<Reservation>>,
}

/// Whether the lock is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Free,
    Held(Box<Grant>),
}

/// The defaults of a lock's grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Config {
    /// The time to live without a heartbeat.
    pub ttl: Option<Span>,
    /// The longest hold.
    pub max_hold: Option<Span>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Set the defaults of later grants.
    Define(Config),
    /// Get it, or wait for it.
    Acquire(Box<Ask>),
    /// Poll as a waiter; takes up an offer.
    Poll {
        ticket: Ticket,
    },
    /// Stop waiting; also gives back what was granted to the ticket.
    Leave {
        ticket: Ticket,
    },
    /// Renew the lease.
    Heartbeat {
        holder: HolderId,
        epoch: Epoch,
    },
    Release {
        holder: HolderId,
        epoch: Epoch,
    },
    /// Take it away from its holder.
    Force {
        by: Forced,
    },
    /// Take it away if its grant is over.
    Reap,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Defined,
    Acquired(Grant),
    /// The caller holds it already, and keeps it for another time to live.
    Extended(Grant),
    /// The caller has it; the grant of `from` was over.
    Reclaimed {
        grant: Grant,
        /// The former holder.
        from: HolderId,
        /// Why its grant was over.
        reason: Reason,
    },
    /// Another holder has it.
    Busy(Blocked),
    Waiting(Waiting),
    /// The lock has as many waiters as it can have.
    TooManyWaiters,
    /// The request is not for one slot, which is all that a lock has.
    NotOneSlot,
    /// This request was granted before, and that grant has ended since.
    Spent {
        /// The grant it got.
        epoch: Epoch,
    },
    /// The ticket is not among the waiters any more: the caller acquires again.
    Gone,
    Left,
    Released,
    /// Another holder has it, or the same one under another epoch.
    NotOwner {
        holder: HolderId,
    },
    /// It is free: this very epoch gave it back before.
    AlreadyFree,
    /// The epoch is from before the fence: the lock was granted or taken away since.
    Fenced {
        fence: Epoch,
    },
    /// It has reached its longest hold.
    Lost,
    /// The grant was over and is taken away.
    Reaped {
        holder: HolderId,
        reason: Reason,
    },
    /// No grant was over.
    Kept,
}

impl Lock {
    /// A free lock that was never held.
    pub fn new(name: Name) -> Lock {
        Lock {
            name,
            config: Config::default(),
            fence: Epoch(0),
            state: State::Free,
            waiters: Waiters::default(),
            reservation: None,
        }
    }

    pub fn step(mut self, input: Input, now: &Now) -> Step<Lock, Outcome> {
        let mut buffer = EffectBuffer::new(now);
        let outcome = match input {
            Input::Define(config) => {
                self.config = config;
                let Config { ttl, max_hold } = config;
                self.emit(Fact::Defined(Defined { capacity: None, ttl, max_hold }), &mut buffer);
                Outcome::Defined
            }
            Input::Acquire(ask) => self.acquire(*ask, now, &mut buffer),
            Input::Poll { ticket } => {
                self.settle(now, &mut buffer);
                self.poll(ticket, now)
            }
            Input::Leave { ticket } => {
                let granted = matches!(&self.state, State::Held(grant) if grant.ticket == Some(ticket));
                if granted {
                    self.end(None, &mut buffer);
                    self.serve(now, &mut buffer);
                } else {
                    self.waiters.remove(ticket);
                }
                Outcome::Left
            }
            Input::Heartbeat { holder, epoch } => self.extend(&holder, epoch, now, &mut buffer),
            Input::Release { holder, epoch } => match self.owned(&holder, epoch) {
                Err(refusal) => refusal,
                Ok(_) => {
                    self.end(None, &mut buffer);
                    self.serve(now, &mut buffer);
                    Outcome::Released
                }
            },
            Input::Force { by } => match &self.state {
                State::Free => Outcome::AlreadyFree,
                State::Held(_) => {
                    self.end(Some(by), &mut buffer);
                    self.serve(now, &mut buffer);
                    Outcome::Released
                }
            },
            Input::Reap => match self.settle(now, &mut buffer) {
                Some((holder, reason)) => Outcome::Reaped { holder, reason },
                None => Outcome::Kept,
            },
        };
        Step { state: self, outcome, effects: buffer.effects }
    }

    pub fn next_deadline(&self) -> Option<Lease> {
        match &self.state {
            State::Free => None,
            State::Held(grant) => grant.deadline(),
        }
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        self.waiters.check();
        match &self.state {
            State::Free => {
                let passes = self.waiters.iter().any(|waiter| self.may_have(&waiter.claim));
                assert!(!passes, "the free lock {} has a waiter", self.name);
            }
            State::Held(grant) => {
                assert_eq!(grant.epoch, self.fence, "the epoch of {} is not its fence", self.name);
                assert_eq!(grant.claim.weight, 1, "a lock has one slot");
            }
        }
    }

    fn acquire(&mut self, ask: Ask, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let Ask { mut claim, term, epoch, granted_before, wait, anew: _ } = ask;
        if claim.weight != 1 {
            return Outcome::NotOneSlot;
        }
        if let Some(epoch) = epoch {
            return self.extend(&claim.holder, epoch, now, buffer);
        }
        let rejoined = self.waiters.rejoin(&claim, wait.as_ref(), now);
        let ended = self.settle(now, buffer);
        if let State::Held(grant) = &mut self.state
            && claim.request.is_some()
            && (&grant.claim.request, &grant.claim.holder) == (&claim.request, &claim.holder)
        {
            grant.renew(now);
            return Outcome::Extended((**grant).clone());
        }
        if let Some(epoch) = granted_before {
            return Outcome::Spent { epoch };
        }
        if let Some(ticket) = rejoined {
            return self.poll(ticket, now);
        }
        if let Term::Usual(ttl) = term {
            claim.ttl = claim.ttl.or(self.config.ttl).or(ttl);
            claim.max_hold = claim.max_hold.or(self.config.max_hold);
        }
        match (&self.state, wait) {
            (State::Free, _) if self.may_have(&claim) => {
                self.fence = self.emit(Fact::Acquired(claim.clone()), buffer);
                let grant = Grant::new(claim, self.fence, now);
                self.state = State::Held(Box::new(grant.clone()));
                match ended {
                    Some((from, reason)) => Outcome::Reclaimed { grant, from, reason },
                    None => Outcome::Acquired(grant),
                }
            }
            (State::Free | State::Held(_), None) => Outcome::Busy(self.blocked(None)),
            (State::Free | State::Held(_), Some(_)) if self.waiters.len() >= WAITERS_LIMIT => Outcome::TooManyWaiters,
            (State::Free | State::Held(_), Some(standing)) => {
                self.waiters.push(Waiter::new(claim, standing, now));
                self.poll(now.ticket, now)
            }
        }
    }

    /// A sign of life of the holder. A lease that ran out is revived, as the lock was not taken since; a lock that has
    /// reached its longest hold is lost.
    fn extend(&mut self, holder: &HolderId, epoch: Epoch, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        match self.owned(holder, epoch) {
            Err(refusal) => refusal,
            Ok(grant) if grant.is_lost(now) => {
                self.reclaim(Reason::MaxHold, buffer);
                self.serve(now, buffer);
                Outcome::Lost
            }
            Ok(grant) => {
                grant.renew(now);
                Outcome::Extended(grant.clone())
            }
        }
    }

    /// The position of a ticket; takes up an offer to it.
    fn poll(&mut self, ticket: Ticket, now: &Now) -> Outcome {
        if let State::Held(grant) = &mut self.state
            && grant.ticket == Some(ticket)
        {
            grant.renew(now);
            return Outcome::Acquired((**grant).clone());
        }
        let Some(index) = self.waiters.poll(ticket, now) else { return Outcome::Gone };
        Outcome::Waiting(Waiting { ticket, place: index + 1, blocked: self.blocked(Some(index)) })
    }

    /// The grant, if this holder has it under this epoch; else the refusal. The fence is checked first, so that a
    /// former holder is fenced whether the lock is held or free now.
    fn owned(&mut self, holder: &HolderId, epoch: Epoch) -> Result<&mut Grant, Outcome> {
        let fence = self.fence;
        match &mut self.state {
            _ if epoch < fence => Err(Outcome::Fenced { fence }),
            State::Held(grant) if grant.claim.holder != *holder => Err(Outcome::NotOwner { holder: grant.claim.holder.clone() }),
            State::Held(grant) if grant.epoch == epoch => Ok(grant),
            State::Free if epoch == fence && fence != Epoch(0) => Err(Outcome::AlreadyFree),
            // This epoch was never given out for this lock.
            State::Held(_) | State::Free => Err(Outcome::Fenced { fence }),
        }
    }

    /// Drops dead waiters, ends a grant that is over, and gives a free lock to the first waiter.
    fn settle(&mut self, now: &Now, buffer: &mut EffectBuffer) -> Option<(HolderId, Reason)> {
        self.waiters.drop_over(now);
        let reason = match &self.state {
            State::Free => None,
            State::Held(grant) => grant.over(now),
        };
        let holder = reason.map(|reason| (self.reclaim(reason, buffer), reason));
        self.serve(now, buffer);
        holder
    }

    /// Ends a grant against its holder's will; the fence rises.
    fn reclaim(&mut self, reason: Reason, buffer: &mut EffectBuffer) -> HolderId {
        let State::Held(grant) = std::mem::replace(&mut self.state, State::Free) else {
            unreachable!("only a held lock is reclaimed")
        };
        self.fence = self.emit(grant.reclaimed(reason), buffer);
        grant.claim.holder
    }

    /// Ends a grant by its holder's will, or by force, which alone raises the fence.
    fn end(&mut self, forced: Option<Forced>, buffer: &mut EffectBuffer) {
        let State::Held(grant) = std::mem::replace(&mut self.state, State::Free) else {
            unreachable!("only a held lock is released")
        };
        let by_force = forced.is_some();
        let seq = self.emit(grant.released(forced), buffer);
        if by_force {
            self.fence = seq;
        }
    }

    /// Whether no reservation keeps it from this request.
    fn may_have(&self, claim: &GrantRequest) -> bool {
        self.reservation.as_ref().is_none_or(|reservation| reservation.lets(claim))
    }

    /// Gives a free lock to the first waiter that may have it.
    fn serve(&mut self, now: &Now, buffer: &mut EffectBuffer) {
        let next = self.waiters.iter().find(|waiter| self.may_have(&waiter.claim)).map(|waiter| waiter.ticket);
        if let State::Free = self.state
            && let Some(waiter) = next.and_then(|ticket| self.waiters.remove(ticket))
        {
            self.fence = self.emit(Fact::Acquired(waiter.claim.clone()), buffer);
            buffer.wake(waiter.standing.address.as_ref());
            self.state = State::Held(Box::new(Grant::offered(waiter, self.fence, now)));
        }
    }

    fn blocked(&self, index: Option<usize>) -> Blocked {
        let (holders, reserved) = match &self.state {
            State::Free => (Vec::new(), self.reservation.as_deref()),
            State::Held(grant) => (vec![(**grant).clone()], None),
        };
        Blocked::new(holders, &self.waiters, index, reserved)
    }

    fn emit(&self, fact: Fact, buffer: &mut EffectBuffer) -> Epoch {
        buffer.emit(Event::Resource { resource: Resource { kind: Kind::Lock, name: self.name.clone() }, fact })
    }
}

#[cfg(test)]
mod tests;
