//! The model of locks and semaphores: who holds what and who waits, from the committed events and the answers alone.
//!
//! It shares no code with the state machines of the core, and is simpler than they are: it does not decide, it only
//! knows what must not happen. Every committed call passes through [`Ledger::check`].

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::event::{Event, Fact, Forced, GrantEnd, Kind, Resource};
use banksman_core::resource::grant::{GrantRequest, OFFER, WaitingProcess};
use banksman_core::{Epoch, HolderId, Lease, ProcessId, RequestId, Seq, Span, Ticket};

use crate::clock::Ms;
use crate::commit::Logged;
use crate::format::Asked;
use crate::report::{Checker, Verdict};

/// The state of the model.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) accounts: BTreeMap<Resource, Account>,
    /// Every epoch that was ever granted, with its resource and holder.
    pub(crate) granted: BTreeMap<Epoch, (Resource, HolderId)>,
    /// Every request that was ever granted, by its id: a repetition gets the same grant or none.
    requests: BTreeSet<(RequestId, Resource)>,
    /// The process to which an epoch was reported.
    pub(crate) reported_to: BTreeMap<Epoch, ProcessId>,
    /// Processes that were stalled while they were the first waiter of a lock.
    pub(crate) stalls: BTreeMap<ProcessId, Stall>,
}

#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) capacity: u32,
    pub(crate) fence: Epoch,
    pub(crate) holders: BTreeMap<HolderId, Holding>,
    /// The waiters, in the order in which they learnt that they wait.
    pub(crate) waiters: Vec<Place>,
}

/// A grant of one holder.
#[derive(Debug)]
pub(crate) struct Holding {
    pub(crate) claim: GrantRequest,
    pub(crate) epoch: Epoch,
    pub(crate) acquired: Lease,
    pub(crate) heard: Lease,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) offer: Option<Offered>,
}

/// A grant that its waiter has not taken up yet.
#[derive(Debug, Clone)]
pub(crate) struct Offered {
    until: Lease,
    process: ProcessId,
    pub(crate) from_weight: Option<u32>,
}

/// A waiter.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) ticket: Ticket,
    pub(crate) claim: GrantRequest,
    pub(crate) process: ProcessId,
    /// How long the place lasts without a poll, and when the last poll was.
    pub(crate) lease: Option<Span>,
    pub(crate) looked: Lease,
}

impl Place {
    pub(crate) fn new(ticket: Ticket, claim: &GrantRequest, standing: &WaitingProcess, now: Lease) -> Place {
        let WaitingProcess { process, lease, .. } = standing;
        Place { ticket, claim: claim.clone(), process: process.clone(), lease: *lease, looked: now }
    }

    /// Whether it may be passed over: its process is dead, or has not polled for long. Polls are recorded only every
    /// third of the lease, so only the rest of the lease is reliable.
    pub(crate) fn is_over(&self, scene: &Scene<'_>) -> bool {
        let silent = |lease: Span| scene.lease.0 >= self.looked.0 + lease.as_ms() - lease.as_ms() / 3;
        (scene.dead)(&self.process) || self.lease.is_some_and(silent)
    }
}

/// A stall of a waiting process. The holders may have been stalled too, so they get that much more time.
#[derive(Debug, Clone)]
pub(crate) struct Stall {
    pub(crate) resource: Resource,
    /// The last answer before the stall. A holder that has proved to be alive since gets no extra time.
    pub(crate) asleep: Lease,
    pub(crate) late: Ms,
}

/// The circumstances of a call.
pub(crate) struct Scene<'a> {
    pub(crate) asked: Asked<'a>,
    pub(crate) lease: Lease,
    /// How much extra time the caller grants to others.
    pub(crate) patience: Ms,
    /// The stall for which it must grant more.
    pub(crate) stall: Option<Stall>,
    /// Whether a process is really dead, whatever the caller believes.
    pub(crate) dead: &'a dyn Fn(&ProcessId) -> bool,
}

impl Account {
    fn new(kind: Kind) -> Account {
        let capacity = if kind == Kind::Lock { 1 } else { 0 };
        Account { capacity, fence: Epoch(0), holders: BTreeMap::new(), waiters: Vec::new() }
    }

    pub(crate) fn used(&self) -> u32 {
        self.holders.values().map(|holding| holding.claim.weight).sum()
    }

    pub(crate) fn rightful(&self, holder: &HolderId, epoch: Option<Epoch>) -> bool {
        self.holders.get(holder).is_some_and(|holding| epoch.is_none_or(|epoch| epoch == holding.epoch))
    }

    pub(crate) fn place(&self, ticket: Ticket) -> Option<usize> {
        self.waiters.iter().position(|place| place.ticket == ticket)
    }

    /// Serves the waiter at `index`, or a new claimant. Only dead waiters may be skipped.
    fn serve(&mut self, index: Option<usize>, scene: &Scene<'_>, verdict: &mut Verdict, who: &HolderId) -> Option<Place> {
        let before = &self.waiters[..index.unwrap_or(self.waiters.len())];
        let passed = before.iter().find(|place| !place.is_over(scene));
        verdict.expect(Checker::Fifo, passed.is_none(), || {
            format!("{who} was served before {:?}", passed.map(|place| (place.ticket, place.claim.holder.as_str())))
        });
        index.and_then(|index| self.waiters.drain(..=index).next_back())
    }
}

impl Ledger {
    pub(crate) fn account(&mut self, resource: &Resource) -> &mut Account {
        if !self.accounts.contains_key(resource) {
            self.accounts.insert(resource.clone(), Account::new(resource.kind));
        }
        self.accounts.get_mut(resource).expect("it was just put there")
    }

    /// Records an event, and reports its violations.
    pub(crate) fn enter(&mut self, logged: &Logged, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Seq(seq) = logged.seq;
        let Event::Resource { resource, fact } = &logged.event else { return };
        match fact {
            Fact::Defined(defined) => {
                let account = self.account(resource);
                if let Some(capacity) = defined.capacity {
                    account.capacity = capacity;
                    account.waiters.retain(|place| place.claim.weight <= capacity);
                }
            }
            Fact::Acquired(claim) => self.acquired(resource, claim, Epoch(seq), scene, verdict),
            Fact::Increased(increased) => self.increased(resource, &increased.holder, increased.weight, scene, verdict),
            Fact::Reclaimed(ended) | Fact::Released(ended) | Fact::OfferLapsed(ended) => {
                self.ended(resource, ended, Epoch(seq), scene, verdict);
            }
        }
    }

    fn acquired(&mut self, resource: &Resource, claim: &GrantRequest, epoch: Epoch, scene: &Scene<'_>, verdict: &mut Verdict) {
        let before = self.granted.insert(epoch, (resource.clone(), claim.holder.clone()));
        verdict.expect(Checker::Epochs, before.is_none(), || format!("epoch {epoch} was given to {before:?} before"));
        if let Some(request) = &claim.request {
            let new = self.requests.insert((request.clone(), resource.clone()));
            verdict.expect(Checker::Epochs, new, || format!("request {request} was granted {resource} for the second time"));
        }
        let account = self.account(resource);
        let fence = account.fence;
        verdict.expect(Checker::Order, epoch > fence, || format!("epoch {epoch} of {resource} is not above {fence}"));
        account.fence = account.fence.max(epoch);
        let index = account.waiters.iter().position(|place| place.claim.metadata == claim.metadata);
        let place = account.serve(index, scene, verdict, &claim.holder);
        let offer = place.as_ref().map(|place| offered(place, None, scene));
        let (acquired, heard) = (scene.lease, scene.lease);
        let ticket = place.map(|place| place.ticket);
        let holding = Holding { claim: claim.clone(), epoch, acquired, heard, ticket, offer };
        let twice = account.holders.insert(claim.holder.clone(), holding).is_some();
        verdict.expect(Checker::Epochs, !twice, || format!("{} got {resource} while it had it", claim.holder));
        account.fits(resource, verdict);
    }

    fn increased(&mut self, resource: &Resource, holder: &HolderId, weight: u32, scene: &Scene<'_>, verdict: &mut Verdict) {
        let account = self.account(resource);
        let index = account.waiters.iter().position(|place| place.claim.holder == *holder);
        let place = account.serve(index, scene, verdict, holder);
        let Some(holding) = account.holders.get_mut(holder) else {
            return verdict.report(Checker::Epochs, || format!("{holder} got more of {resource} and had nothing"));
        };
        let grew = weight > holding.claim.weight;
        if let Some(place) = place {
            let from = holding.offer.as_ref().map_or(Some(holding.claim.weight), |offer| offer.from_weight);
            holding.offer = Some(offered(&place, from, scene));
            holding.ticket = Some(place.ticket);
        }
        holding.claim.weight = weight;
        if grew {
            account.fits(resource, verdict);
        }
    }

    fn ended(&mut self, resource: &Resource, ended: &GrantEnd, seq: Epoch, scene: &Scene<'_>, verdict: &mut Verdict) {
        let account = self.account(resource);
        if ended.reason.is_some() || ended.forced.is_some() {
            account.fence = seq;
        }
        let GrantEnd { holder, epoch, .. } = ended;
        let Some(holding) = account.holders.get_mut(holder).filter(|holding| holding.epoch == *epoch) else {
            return verdict.report(Checker::Epochs, || format!("{holder} lost epoch {epoch} of {resource} and had it not"));
        };
        if let Err(why) = holding.may_end(resource, ended, scene) {
            verdict.report(Checker::Living, || {
                let (lease, patience, stall) = (scene.lease, scene.patience, &scene.stall);
                format!(
                    "{holder} lost epoch {epoch} of {resource} (event {seq}) at {lease:?}: {why}; the caller was patient for \
                     {patience} ms after {stall:?}; {holding:?}"
                )
            });
        }
        match ended.keeps {
            Some(weight) => {
                holding.claim.weight = weight;
                (holding.offer, holding.ticket) = (None, None);
            }
            None => drop(account.holders.remove(holder)),
        }
    }
}

impl Account {
    fn fits(&self, resource: &Resource, verdict: &mut Verdict) {
        let (used, capacity) = (self.used(), self.capacity);
        verdict.expect(Checker::Capacity, used <= capacity, || {
            format!("{used} of {capacity} are given out of {resource}: {:?}", self.holders.keys().collect::<Vec<_>>())
        });
    }
}

impl Holding {
    /// A proof of life by the holder itself, or by the waiter that takes an offer up.
    pub(crate) fn hear(&mut self, lease: Lease, takes_up: bool) {
        self.heard = lease;
        let increase = self.offer.as_ref().is_some_and(|offer| offer.from_weight.is_some());
        if takes_up || !increase {
            self.offer = None;
            self.ticket = self.ticket.filter(|_| !increase);
        }
    }

    /// When the grant expires.
    pub(crate) fn deadline(&self) -> Option<Lease> {
        if let Some(offer) = &self.offer {
            return Some(offer.until);
        }
        let lease = self.claim.ttl.map(|ttl| self.heard + ttl);
        let max_hold = self.claim.max_hold.map(|max_hold| self.acquired + max_hold);
        lease.into_iter().chain(max_hold).min()
    }

    /// Whether there was a valid reason for the end of the grant.
    fn may_end(&self, resource: &Resource, ended: &GrantEnd, scene: &Scene<'_>) -> Result<(), &'static str> {
        use banksman_core::resource::grant::Reason;
        let owes = |stall: &&Stall| stall.resource == *resource && self.heard < stall.asleep;
        let owed = scene.stall.as_ref().filter(owes).map_or(0, |stall| stall.late);
        let past = |deadline: Ms| scene.lease.0 >= deadline + scene.patience.max(owed);
        let left = matches!(scene.asked, Asked::Leave(ticket) if self.ticket == Some(ticket));
        let good = match (ended.reason, &ended.forced) {
            (None, None) => {
                let released = matches!(scene.asked, Asked::Release(holder, _) if *holder == ended.holder);
                return if left || released { Ok(()) } else { Err("released by nobody") };
            }
            (None, Some(Forced { .. })) => matches!(scene.asked, Asked::Force),
            (Some(Reason::Dead), _) => {
                let processes = &self.claim.processes;
                self.offer.is_none() && !processes.is_empty() && processes.iter().all(|process| (scene.dead)(process))
            }
            (Some(Reason::Expired), _) => {
                self.offer.is_none() && self.claim.ttl.is_some_and(|ttl| past(self.heard.0 + ttl.as_ms()))
            }
            // A holder that exceeds the longest hold may learn that by its own heartbeat, without any extra time.
            (Some(Reason::MaxHold), _) => {
                let own = matches!(scene.asked, Asked::Heartbeat(..) | Asked::Acquire(_));
                let late = |end: Ms| past(end) || (own && scene.lease.0 >= end);
                self.claim.max_hold.is_some_and(|max_hold| late(self.acquired.0 + max_hold.as_ms()))
            }
            (Some(Reason::Lapsed), _) => {
                let lapsed = |offer: &Offered| (scene.dead)(&offer.process) || past(offer.until.0);
                let increase_left = left && ended.keeps.is_some();
                self.offer.as_ref().is_some_and(lapsed) || increase_left
            }
        };
        if good { Ok(()) } else { Err("it was alive, or not due") }
    }
}

fn offered(place: &Place, from_weight: Option<u32>, scene: &Scene<'_>) -> Offered {
    Offered { until: scene.lease + OFFER, process: place.process.clone(), from_weight }
}
