//! Who waits for ever: a pure function over everything that is held and everything that is waited for.
//!
//! Parties that wait for nothing are let finish: they give back all they hold, the lines are served, and whoever
//! got all it waits for finishes too. Those who remain are deadlocked. This is right for weighted slots and for
//! strict lines, where looking for a cycle of arrows alone would be wrong.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::Resource;
use crate::ids::{HolderId, Ticket};
use crate::process::ProcessId;
use crate::resource::grant::Waiters;

/// A resource as this function sees it.
#[derive(Debug, Clone)]
pub struct Held<'a> {
    pub resource: Resource,
    /// How many slots it has; one for a lock.
    pub capacity: u64,
    /// Who holds how many of them.
    pub holders: Vec<(&'a HolderId, u64)>,
    pub waiters: &'a Waiters,
    /// Whether one name may stand for several parties. Under a lock's name several programs may act, so a wait
    /// for what the own name holds is the wait of a stranger. A semaphore knows its holders by name.
    pub strangers: bool,
}

/// One arrow of a cycle: `party` waits for `resource`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub party: HolderId,
    /// The ticket it, or a descendant on its behalf, waits with.
    pub ticket: Ticket,
    pub resource: Resource,
    /// The process that stands in line: if it is dead, there is no deadlock.
    pub process: ProcessId,
}

/// A claim that waits for all that it wants at once, and stands in no line.
#[derive(Debug, Clone)]
pub struct ClaimWait<'a> {
    pub ticket: Ticket,
    pub holder: &'a HolderId,
    /// Who is blocked for as long as it waits.
    pub parties: Vec<&'a HolderId>,
    /// The process that waits.
    pub process: &'a ProcessId,
    /// What it wants, by the index of the resource, and how much of it.
    pub wants: Vec<(usize, u64)>,
    /// Whether it takes what it wants; a run that waits for tasks only needs it to be free.
    pub takes: bool,
    /// What is reserved for it: others cannot have that before.
    pub reserved: Vec<usize>,
    /// Who passes its reservations.
    pub passes: BTreeSet<HolderId>,
}

/// A wait that has not been satisfied yet.
struct Wait<'a> {
    ticket: Ticket,
    /// What is wanted, and how much of it.
    wants: Vec<(usize, u64)>,
    /// The waiter and its ancestors; only these if the waiter is a stranger to another of its own name.
    parties: Vec<&'a HolderId>,
    holder: &'a HolderId,
    process: &'a ProcessId,
    /// The claim, if it is one: others stand in line.
    claim: Option<&'a ClaimWait<'a>>,
}

impl Wait<'_> {
    fn link(&self, party: &HolderId, resource: usize, resources: &[Held<'_>]) -> Link {
        let resource = resources[resource].resource.clone();
        Link { party: party.clone(), ticket: self.ticket, resource, process: self.process.clone() }
    }

    /// Whether it cannot have a resource before this other wait, for which that is reserved.
    fn yields_to(&self, other: &Wait<'_>, resource: usize) -> bool {
        let passes = |claim: &ClaimWait<'_>| self.parties.iter().chain([&self.holder]).any(|party| claim.passes.contains(*party));
        let reserves = |claim: &&ClaimWait<'_>| claim.reserved.contains(&resource);
        self.ticket != other.ticket && other.claim.filter(reserves).is_some_and(|claim| !passes(claim))
    }

    fn wants(&self, resource: usize) -> bool {
        self.wants.iter().any(|(wanted, _)| *wanted == resource)
    }
}

/// The cycle that the wait with `ticket` is part of or stands behind, if it would wait for ever.
pub fn find(resources: &[Held<'_>], claims: &[ClaimWait<'_>], ticket: Ticket) -> Option<Vec<Link>> {
    let (waits, holdings) = stuck(resources, claims);
    waits.iter().any(|wait| wait.ticket == ticket).then(|| cycle(resources, &waits, &holdings, ticket))
}

/// Who holds how many slots of one resource.
type Holding<'a> = BTreeMap<&'a HolderId, u64>;

/// All waits, in the order of their tickets.
fn all_waits<'a>(resources: &'a [Held<'a>], claims: &'a [ClaimWait<'a>]) -> Vec<Wait<'a>> {
    let mut waits: Vec<Wait<'a>> = Vec::new();
    for (index, held) in resources.iter().enumerate() {
        let mut names: BTreeSet<&HolderId> = held.holders.iter().map(|(name, _)| *name).collect();
        for waiter in held.waiters.iter() {
            let holder = &waiter.claim.holder;
            // A namesake before it in the line counts like the holder, which it will be by the time.
            let stranger = !names.insert(holder) && held.strangers;
            let own = (!stranger).then_some(holder);
            let parties = own.into_iter().chain(&waiter.claim.ancestors).collect();
            let wants = vec![(index, u64::from(waiter.claim.weight))];
            waits.push(Wait { ticket: waiter.ticket, wants, parties, holder, process: &waiter.standing.process, claim: None });
        }
    }
    for claim in claims {
        // Another program of the same name may give back what it holds; a run that waits for a task cannot.
        let is_own = |(resource, _): &(usize, u64)| {
            let held = &resources[*resource];
            claim.takes && held.strangers && held.holders.iter().any(|(holder, _)| *holder == claim.holder)
        };
        let stranger = claim.wants.iter().any(is_own);
        let parties = claim.parties.iter().copied().filter(|party| !stranger || *party != claim.holder).collect();
        let (ticket, holder, process, wants) = (claim.ticket, claim.holder, claim.process, claim.wants.clone());
        waits.push(Wait { ticket, wants, parties, holder, process, claim: Some(claim) });
    }
    waits.sort_by_key(|wait| wait.ticket);
    waits
}

/// Lets everybody finish who can, and returns the waits that are never satisfied, with what is held by then.
fn stuck<'a>(resources: &'a [Held<'a>], claims: &'a [ClaimWait<'a>]) -> (Vec<Wait<'a>>, Vec<Holding<'a>>) {
    let mut waits = all_waits(resources, claims);
    let mut holdings: Vec<Holding<'a>> = resources.iter().map(|held| held.holders.iter().copied().collect()).collect();
    loop {
        let blocked: BTreeSet<&HolderId> = waits.iter().flat_map(|wait| wait.parties.iter().copied()).collect();
        for holding in &mut holdings {
            holding.retain(|party, _| blocked.contains(party));
        }
        let mut fronts_blocked = BTreeSet::new();
        let satisfied: BTreeSet<Ticket> = waits
            .iter()
            .filter(|wait| {
                let is_kept = |resource: usize| waits.iter().any(|other| wait.yields_to(other, resource));
                let fits = |(resource, weight): &(usize, u64)| {
                    let holding = &holdings[*resource];
                    let used: u64 = holding.values().sum();
                    let has = holding.get(wait.holder).copied().unwrap_or(0);
                    let own_lock = resources[*resource].strangers && has > 0;
                    // One who has enough fits also when the capacity is smaller by now than what is held.
                    let fits = *weight <= has || used - has + weight <= resources[*resource].capacity;
                    fits && !own_lock && !is_kept(*resource)
                };
                let is_first = wait.claim.is_some() || !fronts_blocked.contains(&wait.wants[0].0);
                if is_first && wait.wants.iter().all(fits) {
                    for (resource, weight) in wait.wants.iter().filter(|_| wait.claim.is_none_or(|claim| claim.takes)) {
                        let has = holdings[*resource].get(wait.holder).copied().unwrap_or(0);
                        holdings[*resource].insert(wait.holder, (*weight).max(has));
                    }
                    return true;
                }
                if wait.claim.is_none() {
                    fronts_blocked.insert(wait.wants[0].0);
                }
                false
            })
            .map(|wait| wait.ticket)
            .collect();
        if satisfied.is_empty() {
            return (waits, holdings);
        }
        waits.retain(|wait| !satisfied.contains(&wait.ticket));
    }
}

/// Follows the arrows from a stuck waiter until a party comes up for the second time.
fn cycle(resources: &[Held<'_>], waits: &[Wait<'_>], holdings: &[Holding<'_>], ticket: Ticket) -> Vec<Link> {
    let mut path: Vec<(&Wait<'_>, &HolderId, usize)> = Vec::new();
    let mut wait = waits.iter().find(|wait| wait.ticket == ticket).expect("the caller found it among the stuck");
    let mut party = wait.holder;
    loop {
        if let Some(start) = path.iter().position(|(earlier, ..)| earlier.ticket == wait.ticket) {
            // The name under which the circle closes: of a descendant that waits, the ancestor that holds.
            path[start].1 = party;
            return path[start..].iter().map(|(wait, party, resource)| wait.link(party, *resource, resources)).collect();
        }
        // Somebody who blocks this wait is stuck too: one who holds the resource in the end, perhaps because it
        // stands in line now and will get it, one before this wait in the line, or one for whom it is reserved.
        let blocker = |resource: usize| {
            // What it holds of a semaphore itself is in the way of no increase.
            let increases = |holder: &HolderId| !resources[resource].strangers && holder == wait.holder;
            let holders = || holdings[resource].keys().copied().filter(|holder| !increases(holder));
            let waits_of = |holder: &HolderId, own: bool| {
                waits.iter().find(|next| next.parties.contains(&holder) && (next.ticket == wait.ticket) == own)
            };
            let by_holder = |own: bool| holders().find_map(|holder| waits_of(holder, own).map(|next| (next, holder)));
            let is_before = |next: &&Wait<'_>| next.wants(resource) && next.ticket < wait.ticket && next.claim.is_none();
            let by_line = || waits.iter().find(is_before).filter(|_| wait.claim.is_none()).map(|next| (next, next.holder));
            let by_claim = || waits.iter().find(|next| wait.yields_to(next, resource)).map(|next| (next, next.holder));
            by_holder(false).or_else(|| by_holder(true)).or_else(by_line).or_else(by_claim)
        };
        let found = wait.wants.iter().find_map(|(resource, _)| blocker(*resource).map(|next| (*resource, next)));
        let first = wait.wants.first().map_or(0, |(resource, _)| *resource);
        path.push((wait, party, found.as_ref().map_or(first, |(resource, _)| *resource)));
        let Some((_, (next, next_party))) = found else {
            // Stuck only because of what it holds itself, such as an increase that can never fit.
            return path.iter().map(|(wait, party, resource)| wait.link(party, *resource, resources)).collect();
        };
        (wait, party) = (next, next_party);
    }
}

#[cfg(test)]
mod tests;
