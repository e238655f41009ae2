//! No claim is overtaken for longer than its bound.
//!
//! A claim that has waited for its bound is owed what is free of all that it wants: whoever gets some of it nevertheless came earlier
//! and waited for the bound as well, or holds something that the claim waits for, so that the claim could not have it anyway. This is
//! computed from rows and events alone, in other terms than those of the engine.

use std::collections::BTreeSet;

use banksman_core::event::{Event, Fact, Kind, Resource};
use banksman_core::resource::coordination::Coordination;
use banksman_core::resource::grant::GrantRequest;
use banksman_core::{HolderId, Lease, Span, WorkClaim};
use banksman_store::Snapshot;

use super::checks::grants;
use super::person::OVERTAKE;
use crate::commit::CommittedCall;
use crate::report::Checker;
use crate::world::World;

/// Whether a claim has waited for a resource as long as others may overtake it: not at all for a task and a section, as nobody else wants them.
fn is_due(claim: &WorkClaim, resource: &Resource, at: Lease) -> bool {
    let bound = if resource.name.is_work() { Span::ZERO } else { Span::from_ms(OVERTAKE) };
    claim.waits().is_some_and(|terms| terms.overtake.is_some() && at >= terms.since.lease + bound)
}

/// Everybody without whom a claim cannot be had: the holders of what it wants, and those of what the claims before it want, for whom it
/// waits as well.
fn needed(claim: &WorkClaim, rows: &Coordination, at: Lease) -> BTreeSet<HolderId> {
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

impl World<'_> {
    pub(super) fn check_overtaking(&mut self, before: &Snapshot, after: &Snapshot, calls: &[CommittedCall<'_>], at: Lease) {
        for logged in calls.iter().flat_map(|call| call.events) {
            if let Event::Resource { resource, fact: Fact::Acquired(claim) } = &logged.event {
                self.check_acquired(resource, claim, before, after, at);
            }
        }
    }

    fn check_acquired(&mut self, resource: &Resource, acquired: &GrantRequest, before: &Snapshot, after: &Snapshot, at: Lease) {
        let rows = &before.coordination;
        let still_waits =
            |claim: &&WorkClaim| after.coordination.claims.get(&claim.ticket).is_some_and(|claim| claim.waits().is_some());
        let waits = |claim: &&WorkClaim| {
            let is_alive = claim.waits().is_some_and(|terms| self.machine.lives(&terms.standing.process));
            is_alive && claim.wants(resource) && is_due(claim, resource, at)
        };
        // What is kept is kept for the first one: if that has ended in the same transaction, nothing was kept for the next.
        let Some(first) = rows.claims.values().find(waits).filter(still_waits) else { return };
        self.tally.count("acquired beside a due claim");
        // What goes from one run of a runner to the next was never free.
        let is_handed =
            resource.name.is_section() && acquired.holder.as_str().starts_with("run:") && was_live(before, &acquired.holder);
        let needed = needed(first, rows, at);
        let parties = acquired.ancestors.iter().chain([&acquired.holder]);
        // Slots are held in the name of a person and a task.
        let person = acquired.holder.as_str().split_once('/').map(|(person, _)| person);
        let is_needed = parties.clone().any(|party| needed.contains(party) || person == Some(first.holder.as_str()));
        // A claim that came earlier gets it first.
        let is_own = |claim: &&WorkClaim| claim.holder == acquired.holder || person == Some(claim.holder.as_str());
        let mut own = rows.claims.values().filter(is_own).filter(|claim| claim.waits().is_some());
        let came_earlier = own.any(|claim| claim.ticket < first.ticket && claim.wants(resource));
        let leaves_enough = resource.kind == Kind::Semaphore && free(&after.coordination, resource) >= weight(first, resource);
        self.verdict.expect(Checker::Overtaken, is_handed || is_needed || came_earlier || leaves_enough, || {
            let since = first.waits().map(|terms| terms.since.lease);
            format!("{} gets {resource}, for which {} waits since {since:?}; now {at:?}", acquired.holder, first.holder)
        });
    }
}

fn was_live(before: &Snapshot, holder: &HolderId) -> bool {
    before.backlog.runs.values().any(|run| run.is_live() && run.id.holder() == *holder)
}

fn weight(claim: &WorkClaim, resource: &Resource) -> u32 {
    claim.parts.iter().filter(|part| part.resource == *resource).map(|part| part.weight).sum()
}

fn free(rows: &Coordination, resource: &Resource) -> u32 {
    let used: u32 = grants(rows, resource).iter().map(|grant| grant.claim.weight).sum();
    rows.semaphores.get(&resource.name).map_or(0, |semaphore| semaphore.config.capacity.saturating_sub(used))
}
