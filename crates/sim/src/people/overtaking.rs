//! No claim is overtaken for longer than its bound.
//!
//! A claim that has waited for its bound is owed whatever is free of all that it wants: a holder that gets some of it
//! nevertheless came earlier and waited for the bound as well, or holds something for which the claim waits, so that
//! the claim could not be granted anyway. This is computed from rows and events alone, in other terms than those of the
//! engine.
//!
//! Only the oldest of these claims is owed anything, and a transaction may end the wait of several. So the claim that
//! counts is the oldest at the moment of the grant, not the oldest that still waits after the commit: a run that leaves
//! enough slots for the oldest may take the others, although the oldest takes its own later in the same transaction and
//! the next claim then finds too few.
//!
//! The claim of a dead process counts until the transaction knows of the death: what is owed to the next claim follows
//! from that.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::event::{Event, Fact, Kind, Resource};
use banksman_core::resource::coordination::Coordination;
use banksman_core::resource::grant::{GrantRequest, OFFER};
use banksman_core::{HolderId, Lease, Liveness, ProcessId, Span, WorkClaim};
use banksman_engine::{Request, RunRequest, TaskRequest};
use banksman_store::Snapshot;

use super::checks::grants;
use super::person::OVERTAKE;
use crate::commit::CommittedCall;
use crate::report::Checker;
use crate::world::World;

/// Whether a claim has waited for a resource as long as others may overtake it: not at all for a task and a section,
/// which only claims and runs want.
pub(super) fn is_due(claim: &WorkClaim, resource: &Resource, at: Lease) -> bool {
    let bound = if resource.name.is_work() { Span::ZERO } else { Span::from_ms(OVERTAKE) };
    // A claim that was woken and has not tried again in time lets the others pass.
    let is_absent = |turn: Lease| at >= turn + OFFER;
    claim
        .waits()
        .is_some_and(|terms| terms.overtake.is_some() && at >= terms.since.lease + bound && !terms.turn.is_some_and(is_absent))
}

/// The holders without whom a claim cannot be granted: those of what it wants, and those of what earlier claims want,
/// for which it waits as well.
pub(super) fn needed(claim: &WorkClaim, rows: &Coordination, at: Lease) -> BTreeSet<HolderId> {
    let (mut claims, mut open) = (vec![claim], vec![claim]);
    while let Some(next) = open.pop() {
        for part in &next.parts {
            let before = rows.claims.values().filter(|other| other.ticket < next.ticket && other.wants(&part.resource));
            for other in before.filter(|other| is_due(other, &part.resource, at)) {
                if !claims.iter().any(|known| known.ticket == other.ticket) {
                    claims.push(other);
                    open.push(other);
                }
            }
        }
    }
    let parts = claims.iter().flat_map(|claim| &claim.parts);
    let holders = parts.flat_map(|part| grants(rows, &part.resource)).map(|grant| grant.claim.holder.clone());
    holders.chain([claim.holder.clone()]).collect()
}

/// A committed transaction.
struct Commit<'a> {
    before: &'a Snapshot,
    after: &'a Snapshot,
    /// Its events, in their order.
    events: Vec<&'a Event>,
    at: Lease,
}

/// A grant of a transaction: the event with this index.
struct NewGrant<'a> {
    resource: &'a Resource,
    request: &'a GrantRequest,
    index: usize,
    /// The processes that the requester knows to be dead.
    dead: &'a BTreeSet<&'a ProcessId>,
}

impl Commit<'_> {
    /// Whether a claim got a resource by one of these events.
    fn gets(&self, claim: &WorkClaim, resource: &Resource, events: std::ops::Range<usize>) -> bool {
        self.events[events].iter().any(|event| match event {
            Event::Resource { resource: other, fact: Fact::Acquired(request) } => other == resource && is_of(claim, request),
            _ => false,
        })
    }

    /// How many slots are free right after a grant.
    fn free_after(&self, grant: &NewGrant<'_>) -> u32 {
        let before = grants(&self.before.coordination, grant.resource).into_iter();
        let mut held: BTreeMap<&HolderId, u32> = before.map(|grant| (&grant.claim.holder, grant.claim.weight)).collect();
        for event in &self.events[..=grant.index] {
            let Event::Resource { resource, fact } = event else { continue };
            if resource != grant.resource {
                continue;
            }
            match fact {
                Fact::Acquired(request) => held.insert(&request.holder, request.weight),
                Fact::Increased(increased) => held.insert(&increased.holder, increased.weight),
                Fact::Reclaimed(end) | Fact::Released(end) | Fact::OfferLapsed(end) => held.remove(&end.holder),
                Fact::Defined(_) => None,
            };
        }
        let semaphore = self.after.coordination.semaphores.get(&grant.resource.name);
        semaphore.map_or(0, |semaphore| semaphore.config.capacity.saturating_sub(held.values().sum()))
    }

    /// Whether a grant takes nothing away from a waiting claim that is due.
    fn is_owed_nothing(&self, first: &WorkClaim, grant: &NewGrant<'_>) -> bool {
        let (rows, NewGrant { resource, request, .. }) = (&self.before.coordination, grant);
        // A section that passes from one run of a runner to the next was never free.
        let is_handed =
            resource.name.is_section() && request.holder.as_str().starts_with("run:") && was_live(self.before, &request.holder);
        let needed = needed(first, rows, self.at);
        let is_needed = request.ancestors.iter().chain([&request.holder]).any(|party| needed.contains(party));
        // An earlier claim gets it first.
        let mut own = rows.claims.values().filter(|claim| claim.waits().is_some() && is_of(claim, request));
        let came_earlier = own.any(|claim| claim.ticket <= first.ticket && claim.wants(resource));
        let leaves_enough = resource.kind == Kind::Semaphore && self.free_after(grant) >= weight(first, resource);
        is_handed || is_needed || came_earlier || leaves_enough
    }
}

/// Whether this request is one of a claim. Slots are held in the name of a person and a task.
fn is_of(claim: &WorkClaim, request: &GrantRequest) -> bool {
    let person = request.holder.as_str().split_once('/').map(|(person, _)| person);
    claim.holder == request.holder || person == Some(claim.holder.as_str())
}

impl World<'_> {
    pub(super) fn check_overtaking(&mut self, before: &Snapshot, after: &Snapshot, calls: &[CommittedCall<'_>], at: Lease) {
        let events = calls.iter().flat_map(|call| call.events).map(|logged| &logged.event).collect();
        let commit = Commit { before, after, events, at };
        let mut index = 0;
        for call in calls {
            let dead = &known_dead(call.request);
            for logged in call.events {
                if let Event::Resource { resource, fact: Fact::Acquired(request) } = &logged.event {
                    self.check_acquired(&NewGrant { resource, request, index, dead }, &commit);
                }
                index += 1;
            }
        }
    }

    fn check_acquired(&mut self, grant: &NewGrant<'_>, commit: &Commit<'_>) {
        let NewGrant { resource, request, index, dead } = *grant;
        let is_due = |claim: &&WorkClaim| {
            let is_over = claim.waits().is_none_or(|terms| dead.contains(&terms.standing.process));
            !is_over && claim.wants(resource) && is_due(claim, resource, commit.at)
        };
        let after = &commit.after.coordination.claims;
        let still_waits = |claim: &WorkClaim| after.get(&claim.ticket).is_some_and(|claim| claim.waits().is_some());
        for first in commit.before.coordination.claims.values().filter(is_due) {
            if still_waits(first) {
                self.tally.count("acquired beside a due claim");
                let what = || {
                    let (since, at) = (first.waits().map(|terms| terms.since.lease), commit.at);
                    format!("{} gets {resource}, for which {} waits since {since:?}; now {at:?}", request.holder, first.holder)
                };
                return self.verdict.expect(Checker::Overtaken, commit.is_owed_nothing(first, grant), what);
            }
            // A claim that got it before waits no longer, and the next one is the oldest.
            if commit.gets(first, resource, 0..index) {
                continue;
            }
            // A claim that gets it in the same transaction was the oldest, and loses nothing. A claim that leaves may
            // have left before the grant or after it: then the grant must be right for it, or for the next one.
            if commit.gets(first, resource, index..commit.events.len()) || commit.is_owed_nothing(first, grant) {
                return;
            }
        }
    }
}

/// The processes that the caller of a request knows to be dead. All others count as alive in the decision, and so do
/// their claims.
fn known_dead(request: &Request) -> BTreeSet<&ProcessId> {
    let seen = match request {
        Request::Coordinate { seen, .. } => Some(seen),
        Request::Task(TaskRequest::Take { taking, .. }) => Some(&taking.seen),
        Request::Task(TaskRequest::Leave { seen, .. }) => seen.as_ref(),
        Request::Run(RunRequest::Claim(claim)) => Some(&claim.seen),
        // This ends expired claims, and serves the waiters of what they held.
        Request::Run(RunRequest::MakeReady { seen, .. }) => Some(seen),
        _ => None,
    };
    let probes = seen.into_iter().flat_map(|seen| &seen.probes);
    let is_dead = |liveness: &Liveness| matches!(liveness, Liveness::Dead | Liveness::OtherBoot);
    probes.filter(|(_, liveness)| is_dead(liveness)).map(|(process, _)| process).collect()
}

fn was_live(before: &Snapshot, holder: &HolderId) -> bool {
    before.backlog.runs.values().any(|run| run.is_live() && run.id.holder() == *holder)
}

fn weight(claim: &WorkClaim, resource: &Resource) -> u32 {
    claim.parts.iter().filter(|part| part.resource == *resource).map(|part| part.weight).sum()
}
