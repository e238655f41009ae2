//! Requests, grants and waiters: the parts that locks and semaphores share.
//!
//! ```text
//! Ask --(free)--> Grant            Ask --(busy, may wait)--> Waiter among the Waiters
//!                                  Waiter --(served)--> Grant, offered until the waiter's first call with it
//! ```

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{Fact, Forced, GrantEnd};
use crate::ids::{Epoch, HolderId, RequestId, Ticket};
use crate::process::ProcessId;
use crate::resource::work_claim::Reservation;
use crate::step::Now;
use crate::time::{Lease, Span, Stamp, Wall};

/// How long a waiter has to take up an offer.
pub const OFFER: Span = Span::from_secs(15);

/// How many waiters a resource can have at most.
pub const WAITERS_LIMIT: usize = 1_000;

/// Where a waiter can be woken: the name of its socket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Address(pub Box<str>);

/// The request of a holder and, once granted, what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantRequest {
    pub holder: HolderId,
    /// The holders on whose behalf it asks, nearest first: they wait for as long as it waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<HolderId>,
    /// How many slots; always one for a lock.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub weight: u32,
    /// How long the grant lives without a heartbeat. Without a value the grant has no lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
    /// How long the grant lives at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_hold: Option<Span>,
    /// The processes that the grant is bound to: it is over when all of them are dead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessId>,
    /// Data of the user to show with the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// The id of the request, for a retry after a lost reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
}

fn one() -> u32 {
    1
}

fn is_one(weight: &u32) -> bool {
    *weight == 1
}

/// How long a grant lives whose request does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Term {
    /// As the definition of the resource says, or else this long without a heartbeat.
    Usual(Option<Span>),
    /// As long as its holder keeps it, whatever the definition says: a run does not send a heartbeat for each of its
    /// locks, and the transaction that has seen its end gives everything back.
    Open,
}

/// A request to acquire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub claim: GrantRequest,
    /// How long the grant lives, where the request does not say.
    pub term: Term,
    /// The epoch of a grant that the holder already has and wants to extend.
    pub epoch: Option<Epoch>,
    /// The epoch that the event log has for this very request, if it was granted before.
    pub granted_before: Option<Epoch>,
    /// The process that waits if the resource is not free; without it the answer is a refusal.
    pub wait: Option<WaitingProcess>,
    /// Whether only a new grant will do: a holder that has slots already, or waits for some, is refused. Otherwise such
    /// a holder gets its present grant, with more slots if it asks for more.
    pub anew: bool,
}

impl GrantRequest {
    /// A request for one slot, without a lease and bound to no process.
    pub fn new(holder: HolderId) -> GrantRequest {
        GrantRequest {
            holder,
            ancestors: Vec::new(),
            weight: 1,
            ttl: None,
            max_hold: None,
            processes: Vec::new(),
            metadata: None,
            request: None,
        }
    }
}

impl Ask {
    /// A request without a present grant, on the usual terms, that does not wait.
    pub fn new(claim: GrantRequest) -> Ask {
        Ask { claim, term: Term::Usual(None), epoch: None, granted_before: None, wait: None, anew: false }
    }
}

/// A waiting process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingProcess {
    pub process: ProcessId,
    pub address: Option<Address>,
    /// How long its place lasts without a poll, where its death cannot be seen from everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Span>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    /// Its place: lower ones come first.
    pub ticket: Ticket,
    pub claim: GrantRequest,
    pub standing: WaitingProcess,
    pub since: Stamp,
    /// When it last polled. Only maintained if its place has a lease.
    pub seen: Lease,
}

impl Waiter {
    /// A waiter that arrives now.
    pub(crate) fn new(claim: GrantRequest, standing: WaitingProcess, now: &Now) -> Waiter {
        Waiter { ticket: now.ticket, claim, standing, since: now.stamp(), seen: now.lease }
    }

    /// Whether it is dead, or has not polled for too long.
    pub fn is_over(&self, now: &Now) -> bool {
        now.dead.contains(&self.standing.process) || self.standing.lease.is_some_and(|lease| now.is_past(self.seen + lease))
    }

    /// Records a poll. A precision of a third of the lease is enough, and saves the write of most polls.
    fn poll(&mut self, now: &Now) {
        if self.standing.lease.is_some_and(|lease| (now.lease - self.seen).as_ms().saturating_mul(3) >= lease.as_ms()) {
            self.seen = now.lease;
        }
    }
}

/// The grant of one holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// What was granted, with the time-outs that apply.
    pub claim: GrantRequest,
    /// The fencing number.
    pub epoch: Epoch,
    pub acquired: Stamp,
    /// The last sign of life.
    pub heartbeat: Stamp,
    /// The ticket of the wait, so that a repeated poll gets the same answer.
    pub ticket: Option<Ticket>,
    /// Set until the waiter takes it up.
    pub offer: Option<Offer>,
}

/// The part of a grant that exists until its waiter takes it up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// When the offer lapses.
    pub until: Lease,
    /// The process that waited for it.
    pub process: ProcessId,
    /// The weight to go back to if this is an increase that lapses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_weight: Option<u32>,
}

/// Why a grant ended without a call of its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// All its processes are proven dead.
    Dead,
    /// No heartbeat within its time to live.
    Expired,
    /// It has reached its longest hold.
    MaxHold,
    /// It was offered and not taken up.
    Lapsed,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Reason::Dead => "dead",
            Reason::Expired => "expired",
            Reason::MaxHold => "held too long",
            Reason::Lapsed => "not taken up",
        })
    }
}

impl Grant {
    /// A grant without a wait.
    pub(crate) fn new(claim: GrantRequest, epoch: Epoch, now: &Now) -> Grant {
        Grant { claim, epoch, acquired: now.stamp(), heartbeat: now.stamp(), ticket: None, offer: None }
    }

    /// A grant to a waiter, to be taken up.
    pub(crate) fn offered(waiter: Waiter, epoch: Epoch, now: &Now) -> Grant {
        let offer = Offer { until: now.lease + OFFER, process: waiter.standing.process, from_weight: None };
        Grant { ticket: Some(waiter.ticket), offer: Some(offer), ..Grant::new(waiter.claim, epoch, now) }
    }

    /// The event of its end against its holder's will.
    pub(crate) fn reclaimed(&self, reason: Reason) -> Fact {
        let end = GrantEnd { reason: Some(reason), ..self.end() };
        if reason == Reason::Lapsed { Fact::OfferLapsed(end) } else { Fact::Reclaimed(end) }
    }

    /// The event of its end by its holder's will, or by force.
    pub(crate) fn released(&self, forced: Option<Forced>) -> Fact {
        Fact::Released(GrantEnd { forced, ..self.end() })
    }

    /// The event of an increase that was offered and not taken up: the holder keeps `weight`.
    pub(crate) fn decreased(&self, weight: u32) -> Fact {
        Fact::OfferLapsed(GrantEnd { reason: Some(Reason::Lapsed), keeps: Some(weight), ..self.end() })
    }

    fn end(&self) -> GrantEnd {
        GrantEnd { holder: self.claim.holder.clone(), epoch: self.epoch, reason: None, forced: None, keeps: None }
    }

    /// Why the grant is over, if it is.
    pub fn over(&self, now: &Now) -> Option<Reason> {
        if let Some(offer) = &self.offer {
            let lapsed = now.dead.contains(&offer.process) || now.is_past(offer.until);
            return lapsed.then_some(Reason::Lapsed);
        }
        if now.all_dead(&self.claim.processes) {
            return Some(Reason::Dead);
        }
        if self.max_hold_ends().is_some_and(|end| now.is_past(end)) {
            return Some(Reason::MaxHold);
        }
        self.lease_ends().is_some_and(|end| now.is_past(end)).then_some(Reason::Expired)
    }

    /// Whether even a heartbeat of its own holder comes too late.
    pub(crate) fn is_lost(&self, now: &Now) -> bool {
        self.max_hold_ends().is_some_and(|end| now.lease >= end)
    }

    /// A sign of life: the lease starts again, and an offer is taken up.
    pub(crate) fn renew(&mut self, now: &Now) {
        self.heartbeat = now.stamp();
        // The slots that an increase added can no longer be distinguished from the rest. So its ticket ends here: a
        // later leave with it would give back the rest, too, which is in use.
        if self.offer.take().is_some_and(|offer| offer.from_weight.is_some()) {
            self.ticket = None;
        }
    }

    /// A sign of life of the holder, which need not be the process that an increase is offered to: the offer of the
    /// increase stays open for that one.
    pub(crate) fn beat(&mut self, now: &Now) {
        match &self.offer {
            Some(Offer { from_weight: Some(_), .. }) => self.heartbeat = now.stamp(),
            Some(_) | None => self.renew(now),
        }
    }

    /// The moment at which time alone ends the grant.
    pub fn deadline(&self) -> Option<Lease> {
        match &self.offer {
            Some(offer) => Some(offer.until),
            None => [self.lease_ends(), self.max_hold_ends()].into_iter().flatten().min(),
        }
    }

    /// The deadline on the wall clock. It is derived from the stamps of the grant, so that every caller gets the same
    /// one: the two clocks are not read at the same instant, and the difference of two readings varies by a
    /// millisecond.
    pub fn expires(&self) -> Option<Wall> {
        let deadline = self.deadline()?;
        let from = if self.max_hold_ends() == Some(deadline) { self.acquired } else { self.heartbeat };
        Some(from.wall_of(deadline))
    }

    /// The processes whose death would end the grant.
    pub fn watch(&self) -> Vec<ProcessId> {
        match &self.offer {
            Some(offer) => vec![offer.process.clone()],
            None => self.claim.processes.clone(),
        }
    }

    fn lease_ends(&self) -> Option<Lease> {
        self.claim.ttl.map(|ttl| self.heartbeat.lease + ttl)
    }

    fn max_hold_ends(&self) -> Option<Lease> {
        self.claim.max_hold.map(|max_hold| self.acquired.lease + max_hold)
    }
}

/// The waiters for one resource, in order of arrival.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Waiters(Vec<Waiter>);

impl Waiters {
    pub fn iter(&self) -> std::slice::Iter<'_, Waiter> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of waiters that are neither dead nor silent for too long: the others are dropped before any is
    /// served.
    pub fn present(&self, now: &Now) -> usize {
        self.0.iter().filter(|waiter| !waiter.is_over(now)).count()
    }

    pub fn first(&self) -> Option<&Waiter> {
        self.0.first()
    }

    /// The index of a ticket: 0 is the first.
    pub fn position(&self, ticket: Ticket) -> Option<usize> {
        self.0.iter().position(|waiter| waiter.ticket == ticket)
    }

    pub fn get(&self, index: usize) -> Option<&Waiter> {
        self.0.get(index)
    }

    /// Inserts a waiter by its ticket: at the end, for a new one.
    pub fn push(&mut self, waiter: Waiter) {
        let at = self.0.partition_point(|other| other.ticket < waiter.ticket);
        self.0.insert(at, waiter);
    }

    pub fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        self.position(ticket).map(|at| self.0.remove(at))
    }

    /// Drops the waiters that are dead or have not polled for too long.
    pub(crate) fn drop_over(&mut self, now: &Now) {
        self.drop_where(|waiter| waiter.is_over(now));
    }

    /// The index of a ticket whose waiter polls right now.
    pub(crate) fn poll(&mut self, ticket: Ticket, now: &Now) -> Option<usize> {
        let index = self.position(ticket)?;
        self.0[index].poll(now);
        Some(index)
    }

    /// Drops the waiters for whom `over` holds, and returns them.
    pub(crate) fn drop_where(&mut self, over: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        self.0.extract_if(.., |waiter| over(waiter)).collect()
    }

    /// The waiter that made this request before, now with the processes of the repetition: the grant would be over at
    /// once if it were bound to the processes of a caller that has died since.
    pub(crate) fn rejoin(&mut self, claim: &GrantRequest, standing: Option<&WaitingProcess>, now: &Now) -> Option<Ticket> {
        let request = claim.request.as_ref()?;
        let same = |waiter: &&mut Waiter| waiter.claim.request.as_ref() == Some(request) && waiter.claim.holder == claim.holder;
        let waiter = self.0.iter_mut().find(same)?;
        if let Some(standing) = standing {
            waiter.standing = standing.clone();
            waiter.seen = now.lease;
            waiter.claim.processes.clone_from(&claim.processes);
        }
        Some(waiter.ticket)
    }

    /// Panics if tickets do not rise.
    pub(crate) fn check(&self) {
        assert!(self.0.is_sorted_by(|a, b| a.ticket < b.ticket), "tickets of waiters must rise: {self:?}");
    }
}

/// Why a request is not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// The present grants.
    pub holders: Vec<Grant>,
    /// The number of waiters, including the caller if it waits.
    pub waiters: usize,
    /// Groups of processes to watch: once all processes of a group are dead, another poll may have another result. The
    /// first waiter watches the holders, every other one only the waiter before it.
    pub watch: Vec<Vec<ProcessId>>,
    /// When time alone may change something for the caller.
    pub deadline: Option<Lease>,
    /// The reservation, if only that is in the way.
    pub reserved: Option<Box<Reservation>>,
}

/// A place among the waiters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The ticket to poll with.
    pub ticket: Ticket,
    /// Counted from 1.
    pub place: usize,
    pub blocked: Blocked,
}

impl Blocked {
    /// The obstacles of the waiter at `index`, or of a caller that is not a waiter if there is no index.
    pub(crate) fn new(holders: Vec<Grant>, waiters: &Waiters, index: Option<usize>, reserved: Option<&Reservation>) -> Blocked {
        let predecessor = index.and_then(|index| index.checked_sub(1)).and_then(|before| waiters.get(before));
        let (watch, deadline) = match (predecessor, reserved) {
            (Some(before), _) => (vec![vec![before.standing.process.clone()]], None),
            (None, Some(reserved)) => (vec![vec![reserved.process.clone()]], reserved.until),
            (None, None) => {
                let groups = holders.iter().map(Grant::watch).filter(|group| !group.is_empty()).collect();
                (groups, holders.iter().filter_map(Grant::deadline).min())
            }
        };
        Blocked { holders, waiters: waiters.len(), watch, deadline, reserved: reserved.cloned().map(Box::new) }
    }
}
