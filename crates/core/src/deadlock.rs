//! Who waits for ever: a pure function over everything that is held and everything that is waited for.
//!
//! Parties that wait for nothing are let finish: they give back all they hold, the lines are served, and whoever
//! got all it waits for finishes too. Those who remain are deadlocked. This is right for weighted slots and for
//! strict lines, where looking for a cycle of arrows alone would be wrong.

use std::collections::{BTreeMap, BTreeSet};

use crate::claim::Line;
use crate::event::Resource;
use crate::ids::{HolderId, Ticket};
use crate::process::ProcessId;

/// A resource as this function sees it.
#[derive(Debug, Clone)]
pub struct Held<'a> {
    /// Which one.
    pub resource: Resource,
    /// How many slots it has; one for a lock.
    pub capacity: u64,
    /// Who holds how many of them.
    pub holders: Vec<(&'a HolderId, u64)>,
    /// Who waits for it.
    pub line: &'a Line,
    /// Whether one name may stand for several parties. Under a lock's name several programs may act, so a wait
    /// for what the own name holds is the wait of a stranger. A semaphore knows its holders by name.
    pub strangers: bool,
}

/// One arrow of a cycle: `party` waits for `resource`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Who waits.
    pub party: HolderId,
    /// The ticket it, or a descendant on its behalf, waits with.
    pub ticket: Ticket,
    /// For what.
    pub resource: Resource,
    /// The process that stands in line: if it is dead, there is no deadlock.
    pub process: ProcessId,
}

/// A wait that has not been satisfied yet.
struct Wait<'a> {
    ticket: Ticket,
    resource: usize,
    /// The waiter and its ancestors; only these if the waiter is a stranger to another of its own name.
    parties: Vec<&'a HolderId>,
    holder: &'a HolderId,
    process: &'a ProcessId,
    weight: u64,
}

impl Wait<'_> {
    fn link(&self, party: &HolderId, resources: &[Held<'_>]) -> Link {
        let resource = resources[self.resource].resource.clone();
        Link { party: party.clone(), ticket: self.ticket, resource, process: self.process.clone() }
    }
}

/// The cycle that the waiter with `ticket` is part of or stands behind, if it would wait for ever.
pub fn find(resources: &[Held<'_>], ticket: Ticket) -> Option<Vec<Link>> {
    let (waits, holdings) = stuck(resources);
    waits.iter().any(|wait| wait.ticket == ticket).then(|| cycle(resources, &waits, &holdings, ticket))
}

/// Who holds how many slots of one resource.
type Holding<'a> = BTreeMap<&'a HolderId, u64>;

/// Lets everybody finish who can, and returns the waits that are never satisfied, with what is held by then.
fn stuck<'a>(resources: &'a [Held<'a>]) -> (Vec<Wait<'a>>, Vec<Holding<'a>>) {
    let mut waits: Vec<Wait<'a>> = Vec::new();
    for (index, held) in resources.iter().enumerate() {
        let mut names: BTreeSet<&HolderId> = held.holders.iter().map(|(name, _)| *name).collect();
        for waiter in held.line.iter() {
            let holder = &waiter.claim.holder;
            // A namesake before it in the line counts like the holder, which it will be by the time.
            let stranger = !names.insert(holder) && held.strangers;
            let own = (!stranger).then_some(holder);
            let parties = own.into_iter().chain(&waiter.claim.ancestors).collect();
            let weight = u64::from(waiter.claim.weight);
            waits.push(Wait {
                ticket: waiter.ticket,
                resource: index,
                parties,
                holder,
                process: &waiter.standing.process,
                weight,
            });
        }
    }
    waits.sort_by_key(|wait| wait.ticket);
    let mut holdings: Vec<Holding<'a>> = resources.iter().map(|held| held.holders.iter().copied().collect()).collect();
    loop {
        let blocked: BTreeSet<&HolderId> = waits.iter().flat_map(|wait| wait.parties.iter().copied()).collect();
        for holding in &mut holdings {
            holding.retain(|party, _| blocked.contains(party));
        }
        let mut fronts_blocked = BTreeSet::new();
        let before = waits.len();
        waits.retain(|wait| {
            let holding = &mut holdings[wait.resource];
            let used: u64 = holding.values().sum();
            let has = holding.get(wait.holder).copied().unwrap_or(0);
            // One who has enough fits also when the capacity is smaller by now than what is held.
            let fits = wait.weight <= has || used - has + wait.weight <= resources[wait.resource].capacity;
            let own_lock = resources[wait.resource].strangers && has > 0;
            if fits && !own_lock && !fronts_blocked.contains(&wait.resource) {
                holding.insert(wait.holder, wait.weight.max(has));
                return false;
            }
            fronts_blocked.insert(wait.resource);
            true
        });
        if waits.len() == before {
            return (waits, holdings);
        }
    }
}

/// Follows the arrows from a stuck waiter until a party comes up for the second time.
fn cycle(resources: &[Held<'_>], waits: &[Wait<'_>], holdings: &[Holding<'_>], ticket: Ticket) -> Vec<Link> {
    let mut path: Vec<(&Wait<'_>, &HolderId)> = Vec::new();
    let mut wait = waits.iter().find(|wait| wait.ticket == ticket).expect("the caller found it among the stuck");
    let mut party = wait.holder;
    loop {
        if let Some(start) = path.iter().position(|(earlier, _)| earlier.ticket == wait.ticket) {
            // The name under which the circle closes: of a descendant that waits, the ancestor that holds.
            path[start].1 = party;
            return path[start..].iter().map(|(wait, party)| wait.link(party, resources)).collect();
        }
        path.push((wait, party));
        // Somebody who blocks this wait is stuck too: one who holds the resource in the end, perhaps because it
        // stands in line now and will get it, or one before this wait in the line.
        // What it holds of a semaphore itself is in the way of no increase.
        let increases = |holder: &HolderId| !resources[wait.resource].strangers && holder == wait.holder;
        let holders = || holdings[wait.resource].keys().copied().filter(|holder| !increases(holder));
        let waits_of = |holder: &HolderId, own: bool| {
            waits.iter().find(|next| next.parties.contains(&holder) && (next.ticket == wait.ticket) == own)
        };
        let blocker = |own: bool| holders().find_map(|holder| waits_of(holder, own).map(|next| (next, holder)));
        let by_holder = blocker(false).or_else(|| blocker(true));
        let by_line = || waits.iter().find(|next| next.resource == wait.resource && next.ticket < wait.ticket);
        let Some((next, next_party)) = by_holder.or_else(|| by_line().map(|next| (next, next.holder))) else {
            // Stuck only because of what it holds itself, such as an increase that can never fit.
            return path.iter().map(|(wait, party)| wait.link(party, resources)).collect();
        };
        (wait, party) = (next, next_party);
    }
}

#[cfg(test)]
#[path = "deadlock_tests.rs"]
mod tests;
