//! Waits that never end: a pure function over everything that is held and everything that is waited for.
//!
//! Parties that wait for nothing finish: they give back all they hold, the waiters are served, and a party that got all
//! it waits for finishes, too. The remaining parties are deadlocked. This is right for weighted slots and for strict
//! queues of waiters, where looking for a cycle of edges alone would be wrong.
//!
//! A resource that is reserved for a claim is kept from other waiters; a waiter that passes the reservation is served
//! before them. A claim that lost its reservation because its process is stopped has it again as soon as the process
//! tries, so that no later claim is in its way.
//!
//! Several programs may act under one name. A wait blocks what its name holds now, because the program that holds it
//! may be the one that waits. It does not block what a namesake's wait will get, where both want the same lock: one
//! program does not wait for a lock twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::Resource;
use crate::ids::{HolderId, Ticket};
use crate::process::ProcessId;
use crate::resource::grant::Waiters;

/// A resource in the form for this function.
#[derive(Debug, Clone)]
pub struct Held<'a> {
    pub resource: Resource,
    /// Its slots; a lock has one.
    pub capacity: u64,
    /// The holders with their slots.
    pub holders: Vec<(&'a HolderId, u64)>,
    pub waiters: &'a Waiters,
    /// Whether one name may stand for several parties. Several programs may act under the name of a lock's holder, so a
    /// wait for a lock that the own name holds is the wait of a stranger. A semaphore knows its holders by name.
    pub strangers: bool,
}

/// One edge of a cycle: `party` waits for `resource`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub party: HolderId,
    /// The ticket that it, or a descendant on its behalf, waits with.
    pub ticket: Ticket,
    pub resource: Resource,
    /// The waiting process: if it is dead, there is no deadlock.
    pub process: ProcessId,
    /// The processes whose waits come before and will get the resource, for the party that is next in the cycle: if
    /// they are dead, there is no deadlock either.
    pub before: Vec<ProcessId>,
}

/// A claim that waits for all that it wants at once, and is no waiter of any single resource.
#[derive(Debug, Clone)]
pub struct ClaimWait<'a> {
    pub ticket: Ticket,
    pub holder: &'a HolderId,
    /// The parties that are blocked for as long as it waits.
    pub parties: Vec<&'a HolderId>,
    pub process: &'a ProcessId,
    /// The wanted resources by index, and the weights.
    pub wants: Vec<(usize, u64)>,
    /// Whether it takes the resources; a run that waits for tasks only needs them to be free.
    pub takes: bool,
    /// The indices of the resources that are reserved for it: others cannot have them before.
    pub reserved: Vec<usize>,
    /// The indices of the resources that would be reserved for it if it tried now and no earlier claim did: no later
    /// claim can have them before.
    pub due: Vec<usize>,
    /// The holders that pass its reservations.
    pub passes: BTreeSet<HolderId>,
}

/// A wait that has not been satisfied yet.
struct Wait<'a> {
    ticket: Ticket,
    /// The wanted resources by index, and the weights.
    wants: Vec<(usize, u64)>,
    /// The waiter and its ancestors; only these if the waiter is a stranger to another of its own name.
    parties: Vec<&'a HolderId>,
    holder: &'a HolderId,
    process: &'a ProcessId,
    /// The claim, if it is one. All other waits are in the waiters of a resource.
    claim: Option<&'a ClaimWait<'a>>,
    /// Whether another wait of the same name wants the same lock, and so belongs to another program. Among the waiters
    /// of one lock the later one is a stranger already; claims are not served in order.
    has_namesake: bool,
}

impl Wait<'_> {
    /// Whether a holding stays for as long as this wait lasts.
    fn blocks(&self, (name, by_wait): Holder<'_>) -> bool {
        self.parties.contains(&name) && !(by_wait.is_some() && self.has_namesake && self.holder == name)
    }

    /// Whether a resource is reserved for another wait, and kept from this one.
    fn yields_to(&self, other: &Wait<'_>, resource: usize) -> bool {
        let is_earlier = self.ticket < other.ticket && self.claim.is_some_and(|own| own.due.contains(&resource));
        self.ticket != other.ticket && other.reserves(resource) && !self.passes(other) && !is_earlier
    }

    fn reserves(&self, resource: usize) -> bool {
        self.claim.is_some_and(|claim| claim.reserved.contains(&resource))
    }

    /// Whether the reservations of another wait let it pass.
    fn passes(&self, other: &Wait<'_>) -> bool {
        let mut parties = self.parties.iter().chain([&self.holder]);
        other.claim.is_some_and(|claim| parties.any(|party| claim.passes.contains(*party)))
    }

    /// Whether it is served before earlier waiters.
    fn passes_waiters(&self, resource: usize, waits: &[Wait<'_>]) -> bool {
        waits.iter().any(|other| other.reserves(resource) && self.passes(other))
    }

    /// The wanted weight of a resource.
    fn weight_of(&self, resource: usize) -> u64 {
        self.wants.iter().filter(|(wanted, _)| *wanted == resource).map(|(_, weight)| weight).sum()
    }

    fn wants(&self, resource: usize) -> bool {
        self.wants.iter().any(|(wanted, _)| *wanted == resource)
    }
}

/// The cycle that the wait with `ticket` is part of or is blocked by, if it would wait for ever.
pub fn find(resources: &[Held<'_>], claims: &[ClaimWait<'_>], ticket: Ticket) -> Option<Vec<Link>> {
    let stuck = stuck(resources, claims);
    stuck.waits.iter().any(|wait| wait.ticket == ticket).then(|| cycle(resources, &stuck, ticket))
}

/// A holder: a name, and the wait that gained the resource, unless it is held now.
type Holder<'a> = (&'a HolderId, Option<Ticket>);

/// The slots of one resource by holder.
type Holding<'a> = BTreeMap<Holder<'a>, u64>;

/// The state when all parties that can finish have finished.
struct Stuck<'a> {
    /// The waits that are never satisfied.
    waits: Vec<Wait<'a>>,
    /// The holdings by then, by the index of the resource.
    holdings: Vec<Holding<'a>>,
    /// The gains of the waits that were satisfied: the index of the resource, the name, and the process.
    gains: Vec<(usize, &'a HolderId, &'a ProcessId)>,
}

/// All waits, in the order of their tickets.
fn all_waits<'a>(resources: &'a [Held<'a>], claims: &'a [ClaimWait<'a>]) -> Vec<Wait<'a>> {
    let mut waits: Vec<Wait<'a>> = Vec::new();
    for (index, held) in resources.iter().enumerate() {
        let mut names: BTreeSet<&HolderId> = held.holders.iter().map(|(name, _)| *name).collect();
        for waiter in held.waiters.iter() {
            let holder = &waiter.claim.holder;
            // An earlier waiter of the same name counts like the holder, which it will be by the time.
            let stranger = !names.insert(holder) && held.strangers;
            let own = (!stranger).then_some(holder);
            let parties = own.into_iter().chain(&waiter.claim.ancestors).collect();
            let wants = vec![(index, u64::from(waiter.claim.weight))];
            let (ticket, process) = (waiter.ticket, &waiter.standing.process);
            waits.push(Wait { ticket, wants, parties, holder, process, claim: None, has_namesake: false });
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
        waits.push(Wait { ticket, wants, parties, holder, process, claim: Some(claim), has_namesake: false });
    }
    waits.sort_by_key(|wait| wait.ticket);
    mark_namesakes(resources, &mut waits);
    waits
}

/// Marks the waits of one name for the same lock, at least one of which is a claim.
fn mark_namesakes<'a>(resources: &[Held<'a>], waits: &mut [Wait<'a>]) {
    // The number of waits for a lock under a name, and whether one of them is a claim.
    let mut wishes: BTreeMap<(&HolderId, usize), (usize, bool)> = BTreeMap::new();
    for wait in waits.iter() {
        for (resource, _) in &wait.wants {
            let (number, has_claim) = wishes.entry((wait.holder, *resource)).or_default();
            (*number, *has_claim) = (*number + 1, *has_claim || wait.claim.is_some());
        }
    }
    for wait in waits {
        let is_shared = |(resource, _): &(usize, u64)| {
            resources[*resource].strangers && wishes.get(&(wait.holder, *resource)).is_some_and(|wish| wish.0 > 1 && wish.1)
        };
        wait.has_namesake = wait.wants.iter().any(is_shared);
    }
}

/// Lets every party finish that can.
fn stuck<'a>(resources: &'a [Held<'a>], claims: &'a [ClaimWait<'a>]) -> Stuck<'a> {
    let mut waits = all_waits(resources, claims);
    let held_now = |held: &Held<'a>| held.holders.iter().map(|(name, weight)| ((*name, None), *weight)).collect();
    let mut holdings: Vec<Holding<'a>> = resources.iter().map(held_now).collect();
    let mut gains = Vec::new();
    loop {
        // The names that keep what they hold now, and the names that keep what they gained by a wait.
        let mut blocked: [BTreeSet<&HolderId>; 2] = Default::default();
        for (wait, party) in waits.iter().flat_map(|wait| wait.parties.iter().map(move |party| (wait, *party))) {
            blocked[0].insert(party);
            if wait.blocks((party, Some(wait.ticket))) {
                blocked[1].insert(party);
            }
        }
        for holding in &mut holdings {
            holding.retain(|(name, by_wait), _| blocked[usize::from(by_wait.is_some())].contains(name));
        }
        let mut fronts_blocked = BTreeSet::new();
        let satisfied: BTreeSet<Ticket> = waits
            .iter()
            .filter(|wait| {
                // The weight that is kept for others.
                let kept = |resource: usize| -> u64 {
                    waits.iter().filter(|other| wait.yields_to(other, resource)).map(|other| other.weight_of(resource)).sum()
                };
                let fits = |(resource, weight): &(usize, u64)| {
                    let holding = &holdings[*resource];
                    let used: u64 = holding.values().sum();
                    let has: u64 = holding.iter().filter(|((name, _), _)| *name == wait.holder).map(|(_, weight)| weight).sum();
                    let own_lock = resources[*resource].strangers && has > 0;
                    // A holder with enough slots fits even if the capacity is now smaller than what is held.
                    let fits = *weight <= has || used - has + weight + kept(*resource) <= resources[*resource].capacity;
                    fits && !own_lock
                };
                let queued_at = wait.wants.first().map(|(resource, _)| *resource).filter(|_| wait.claim.is_none());
                let is_first = queued_at.is_none_or(|at| !fronts_blocked.contains(&at) || wait.passes_waiters(at, &waits));
                if is_first && wait.wants.iter().all(fits) {
                    for (resource, weight) in wait.wants.iter().filter(|_| wait.claim.is_none_or(|claim| claim.takes)) {
                        let holder = (wait.holder, resources[*resource].strangers.then_some(wait.ticket));
                        let has = holdings[*resource].get(&holder).copied().unwrap_or(0);
                        holdings[*resource].insert(holder, (*weight).max(has));
                        gains.push((*resource, wait.holder, wait.process));
                    }
                    return true;
                }
                fronts_blocked.extend(queued_at);
                false
            })
            .map(|wait| wait.ticket)
            .collect();
        if satisfied.is_empty() {
            return Stuck { waits, holdings, gains };
        }
        waits.retain(|wait| !satisfied.contains(&wait.ticket));
    }
}

/// Follows the edges from a stuck wait until one comes up for the second time.
fn cycle(resources: &[Held<'_>], stuck: &Stuck<'_>, ticket: Ticket) -> Vec<Link> {
    let waits = &stuck.waits;
    let mut path: Vec<(&Wait<'_>, &HolderId, usize)> = Vec::new();
    let mut wait = waits.iter().find(|wait| wait.ticket == ticket).expect("the caller found it among the stuck");
    let mut party = wait.holder;
    loop {
        if let Some(start) = path.iter().position(|(earlier, ..)| earlier.ticket == wait.ticket) {
            // The name under which the cycle closes: of a descendant that waits, the ancestor that holds.
            path[start].1 = party;
            return links(resources, stuck, &path[start..]);
        }
        // Something that blocks this wait is stuck, too: a party that holds the resource in the end, perhaps because it
        // waits now and will get it, an earlier waiter, or a claim with a reservation.
        let blocker = |resource: usize| {
            // The slots that it holds itself do not block its own increase.
            let increases = |(name, _): Holder<'_>| !resources[resource].strangers && name == wait.holder;
            let holders = || stuck.holdings[resource].keys().copied().filter(|holder| !increases(*holder));
            let waits_of =
                |holder, own: bool| waits.iter().find(|next| next.blocks(holder) && (next.ticket == wait.ticket) == own);
            let by_holder = |own: bool| holders().find_map(|holder| waits_of(holder, own).map(|next| (next, holder.0)));
            let is_before = |next: &&Wait<'_>| next.wants(resource) && next.ticket < wait.ticket && next.claim.is_none();
            let is_queued = wait.claim.is_none() && !wait.passes_waiters(resource, waits);
            let by_waiter = || waits.iter().find(is_before).filter(|_| is_queued).map(|next| (next, next.holder));
            let by_claim = || waits.iter().find(|next| wait.yields_to(next, resource)).map(|next| (next, next.holder));
            by_holder(false).or_else(|| by_holder(true)).or_else(by_waiter).or_else(by_claim)
        };
        let found = wait.wants.iter().find_map(|(resource, _)| blocker(*resource).map(|next| (*resource, next)));
        let first = wait.wants.first().map_or(0, |(resource, _)| *resource);
        path.push((wait, party, found.as_ref().map_or(first, |(resource, _)| *resource)));
        let Some((_, (next, next_party))) = found else {
            // Only its own holdings block it, as with an increase that can never fit.
            return links(resources, stuck, &path);
        };
        (wait, party) = (next, next_party);
    }
}

/// The edges of a path.
fn links(resources: &[Held<'_>], stuck: &Stuck<'_>, path: &[(&Wait<'_>, &HolderId, usize)]) -> Vec<Link> {
    let link = |at: usize| {
        let (wait, party, resource) = path[at];
        let (_, next, _) = path[(at + 1) % path.len()];
        let before = stuck.gains.iter().filter(|(gained, name, _)| *gained == resource && *name == next);
        Link {
            party: party.clone(),
            ticket: wait.ticket,
            resource: resources[resource].resource.clone(),
            process: wait.process.clone(),
            before: before.map(|(.., process)| (*process).clone()).collect(),
        }
    };
    (0..path.len()).map(link).collect()
}

#[cfg(test)]
mod tests;
