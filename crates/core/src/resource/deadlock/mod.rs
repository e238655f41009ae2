//! Who waits for ever: a pure function over everything that is held and everything that is waited for.
//!
//! Parties that wait for nothing are let finish: they give back all they hold, the lines are served, and whoever
//! got all it waits for finishes too. Those who remain are deadlocked. This is right for weighted slots and for
//! strict lines, where looking for a cycle of arrows alone would be wrong.
//!
//! What is reserved for a claim is kept from those who stand in line; whom the reservation lets pass is served before them. A claim that
//! lost its reservation because its process is stopped has it again as soon as that tries, so that no later claim is in its way.
//!
//! Several programs may act under one name. A wait blocks what its name holds now, because the program that holds it may be
//! the one that waits. It does not block what a namesake's wait will get, where both want the same lock: one program does
//! not wait for a lock twice.

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
    /// The processes whose waits come before and will get the resource, for the party that is next in the cycle: if they are
    /// dead, there is none either.
    pub before: Vec<ProcessId>,
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
    /// What is reserved for it, by the index of the resource: others cannot have that before.
    pub reserved: Vec<usize>,
    /// What would be reserved for it if it tried now and no earlier claim did: no later claim can have that before.
    pub due: Vec<usize>,
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
    /// Whether another wait of the same name wants the same lock, so that it is another program's. In a line the later one is
    /// a stranger already; claims are not served in order.
    has_namesake: bool,
}

impl Wait<'_> {
    /// Whether a holding is kept for as long as this wait lasts.
    fn blocks(&self, (name, by_wait): Holder<'_>) -> bool {
        self.parties.contains(&name) && !(by_wait.is_some() && self.has_namesake && self.holder == name)
    }

    /// Whether a resource is reserved for another wait, before which it cannot have that.
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

    /// Whether it is served before those who stand before it in the line.
    fn passes_line(&self, resource: usize, waits: &[Wait<'_>]) -> bool {
        waits.iter().any(|other| other.reserves(resource) && self.passes(other))
    }

    /// How much of a resource it wants.
    fn weight_of(&self, resource: usize) -> u64 {
        self.wants.iter().filter(|(wanted, _)| *wanted == resource).map(|(_, weight)| weight).sum()
    }

    fn wants(&self, resource: usize) -> bool {
        self.wants.iter().any(|(wanted, _)| *wanted == resource)
    }
}

/// The cycle that the wait with `ticket` is part of or stands behind, if it would wait for ever.
pub fn find(resources: &[Held<'_>], claims: &[ClaimWait<'_>], ticket: Ticket) -> Option<Vec<Link>> {
    let stuck = stuck(resources, claims);
    stuck.waits.iter().any(|wait| wait.ticket == ticket).then(|| cycle(resources, &stuck, ticket))
}

/// Who holds something: a name, and the wait by which it got a lock that it does not hold now.
type Holder<'a> = (&'a HolderId, Option<Ticket>);

/// Who holds how many slots of one resource.
type Holding<'a> = BTreeMap<Holder<'a>, u64>;

/// What is left when everybody has finished who can.
struct Stuck<'a> {
    /// The waits that are never satisfied.
    waits: Vec<Wait<'a>>,
    /// What is held by then, by the index of the resource.
    holdings: Vec<Holding<'a>>,
    /// Who got what of the waits that were satisfied: the index of the resource, the name, and the process.
    gains: Vec<(usize, &'a HolderId, &'a ProcessId)>,
}

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

/// Finds the waits of one name for the same lock, of which one at least is a claim.
fn mark_namesakes<'a>(resources: &[Held<'a>], waits: &mut [Wait<'a>]) {
    // How many want a lock under a name, and whether a claim is among them.
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

/// Lets everybody finish who can.
fn stuck<'a>(resources: &'a [Held<'a>], claims: &'a [ClaimWait<'a>]) -> Stuck<'a> {
    let mut waits = all_waits(resources, claims);
    let held_now = |held: &Held<'a>| held.holders.iter().map(|(name, weight)| ((*name, None), *weight)).collect();
    let mut holdings: Vec<Holding<'a>> = resources.iter().map(held_now).collect();
    let mut gains = Vec::new();
    loop {
        // Who keeps what it holds now, and who what it got by a wait.
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
                // For how much of it others come first.
                let kept = |resource: usize| -> u64 {
                    waits.iter().filter(|other| wait.yields_to(other, resource)).map(|other| other.weight_of(resource)).sum()
                };
                let fits = |(resource, weight): &(usize, u64)| {
                    let holding = &holdings[*resource];
                    let used: u64 = holding.values().sum();
                    let has: u64 = holding.iter().filter(|((name, _), _)| *name == wait.holder).map(|(_, weight)| weight).sum();
                    let own_lock = resources[*resource].strangers && has > 0;
                    // One who has enough fits also when the capacity is smaller by now than what is held.
                    let fits = *weight <= has || used - has + weight + kept(*resource) <= resources[*resource].capacity;
                    fits && !own_lock
                };
                let line = wait.wants.first().map(|(resource, _)| *resource).filter(|_| wait.claim.is_none());
                let is_first = line.is_none_or(|line| !fronts_blocked.contains(&line) || wait.passes_line(line, &waits));
                if is_first && wait.wants.iter().all(fits) {
                    for (resource, weight) in wait.wants.iter().filter(|_| wait.claim.is_none_or(|claim| claim.takes)) {
                        let holder = (wait.holder, resources[*resource].strangers.then_some(wait.ticket));
                        let has = holdings[*resource].get(&holder).copied().unwrap_or(0);
                        holdings[*resource].insert(holder, (*weight).max(has));
                        gains.push((*resource, wait.holder, wait.process));
                    }
                    return true;
                }
                fronts_blocked.extend(line);
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

/// Follows the arrows from a stuck waiter until a party comes up for the second time.
fn cycle(resources: &[Held<'_>], stuck: &Stuck<'_>, ticket: Ticket) -> Vec<Link> {
    let waits = &stuck.waits;
    let mut path: Vec<(&Wait<'_>, &HolderId, usize)> = Vec::new();
    let mut wait = waits.iter().find(|wait| wait.ticket == ticket).expect("the caller found it among the stuck");
    let mut party = wait.holder;
    loop {
        if let Some(start) = path.iter().position(|(earlier, ..)| earlier.ticket == wait.ticket) {
            // The name under which the circle closes: of a descendant that waits, the ancestor that holds.
            path[start].1 = party;
            return links(resources, stuck, &path[start..]);
        }
        // Somebody who blocks this wait is stuck too: one who holds the resource in the end, perhaps because it
        // stands in line now and will get it, one before this wait in the line, or one for whom it is reserved.
        let blocker = |resource: usize| {
            // What it holds of a semaphore itself is in the way of no increase.
            let increases = |(name, _): Holder<'_>| !resources[resource].strangers && name == wait.holder;
            let holders = || stuck.holdings[resource].keys().copied().filter(|holder| !increases(*holder));
            let waits_of =
                |holder, own: bool| waits.iter().find(|next| next.blocks(holder) && (next.ticket == wait.ticket) == own);
            let by_holder = |own: bool| holders().find_map(|holder| waits_of(holder, own).map(|next| (next, holder.0)));
            let is_before = |next: &&Wait<'_>| next.wants(resource) && next.ticket < wait.ticket && next.claim.is_none();
            let stands_behind = wait.claim.is_none() && !wait.passes_line(resource, waits);
            let by_line = || waits.iter().find(is_before).filter(|_| stands_behind).map(|next| (next, next.holder));
            let by_claim = || waits.iter().find(|next| wait.yields_to(next, resource)).map(|next| (next, next.holder));
            by_holder(false).or_else(|| by_holder(true)).or_else(by_line).or_else(by_claim)
        };
        let found = wait.wants.iter().find_map(|(resource, _)| blocker(*resource).map(|next| (*resource, next)));
        let first = wait.wants.first().map_or(0, |(resource, _)| *resource);
        path.push((wait, party, found.as_ref().map_or(first, |(resource, _)| *resource)));
        let Some((_, (next, next_party))) = found else {
            // Stuck only because of what it holds itself, such as an increase that can never fit.
            return links(resources, stuck, &path);
        };
        (wait, party) = (next, next_party);
    }
}

/// The arrows of a path: who waits, under which name, and for what.
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
