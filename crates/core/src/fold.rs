//! What the event log says the tables must be. Heartbeats, deadlines, offers and lines are not part of it.

use std::collections::BTreeMap;

use crate::claim::{Claim, Grant};
use crate::coordination::Coordination;
use crate::event::{Defined, Event, Fact, Kind, Resource};
use crate::ids::{Epoch, HolderId, Seq};
use crate::lock::State;
use crate::time::Wall;

/// The tables as far as the log tells them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Folded {
    resources: BTreeMap<Resource, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Entry {
    defined: Option<Defined>,
    fence: Epoch,
    holders: BTreeMap<HolderId, Holding>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Holding {
    claim: Claim,
    epoch: Epoch,
    acquired: Wall,
}

impl Folded {
    /// Applies the next event of the log.
    pub fn apply(&mut self, seq: Seq, wall: Wall, event: Event) {
        let Event::Resource { resource, fact } = event else { return };
        let is_lock = resource.kind == Kind::Lock;
        let entry = self.resources.entry(resource).or_default();
        match fact {
            Fact::Defined(defined) => entry.defined = Some(defined),
            Fact::Acquired(claim) => {
                entry.fence = Epoch::from(seq);
                entry.holders.insert(claim.holder.clone(), Holding { claim, epoch: Epoch::from(seq), acquired: wall });
            }
            Fact::Increased(increased) => {
                if let Some(holding) = entry.holders.get_mut(&increased.holder) {
                    holding.claim.weight = increased.weight;
                }
            }
            Fact::Reclaimed(ended) | Fact::Released(ended) | Fact::OfferLapsed(ended) => {
                if ended.reason.is_some() || ended.forced.is_some() {
                    entry.fence = Epoch::from(seq);
                }
                match (ended.keeps, entry.holders.get_mut(&ended.holder)) {
                    (Some(weight), Some(holding)) => holding.claim.weight = weight,
                    _ => drop(entry.holders.remove(&ended.holder)),
                }
            }
        }
        if !is_lock {
            entry.fence = Epoch::default();
        }
    }

    /// The same view of the real tables.
    pub fn of(tables: &Coordination) -> Folded {
        let holding = |grant: &Grant| {
            (
                grant.claim.holder.clone(),
                Holding { claim: grant.claim.clone(), epoch: grant.epoch, acquired: grant.acquired.wall },
            )
        };
        let mut folded = Folded::default();
        for lock in tables.locks.values() {
            let (ttl, max_hold) = (lock.config.ttl, lock.config.max_hold);
            let defined = (ttl.is_some() || max_hold.is_some()).then_some(Defined { capacity: None, ttl, max_hold });
            let holders = match &lock.state {
                State::Free => BTreeMap::new(),
                State::Held(grant) => BTreeMap::from([holding(grant)]),
            };
            let resource = Resource { kind: Kind::Lock, name: lock.name.clone() };
            folded.resources.insert(resource, Entry { defined, fence: lock.fence, holders });
        }
        for semaphore in tables.semaphores.values() {
            let config = semaphore.config;
            let defined = Some(Defined { capacity: Some(config.capacity), ttl: config.ttl, max_hold: None });
            let holders = semaphore.holders.values().map(holding).collect();
            let resource = Resource { kind: Kind::Semaphore, name: semaphore.name.clone() };
            folded.resources.insert(resource, Entry { defined, fence: Epoch::default(), holders });
        }
        folded
    }

    /// The resources about which two views differ, with both sides in words.
    pub fn differences(&self, tables: &Folded) -> Vec<String> {
        let blank = Entry::default();
        let names: std::collections::BTreeSet<_> = self.resources.keys().chain(tables.resources.keys()).collect();
        let differs = names.into_iter().filter_map(|name| {
            let log = self.resources.get(name).unwrap_or(&blank).normal();
            let row = tables.resources.get(name).unwrap_or(&blank).normal();
            (log != row).then(|| format!("{name}: the log says {log:?}, the tables say {row:?}"))
        });
        differs.collect()
    }
}

impl Entry {
    /// A lock that was defined without any default is the same as one that was never defined.
    fn normal(&self) -> Entry {
        let empty = Defined { capacity: None, ttl: None, max_hold: None };
        Entry { defined: self.defined.filter(|defined| *defined != empty), ..self.clone() }
    }
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
