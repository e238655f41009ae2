//! Replays locks and semaphores.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Replay;
use crate::event::{Defined, Fact, Kind, Resource};
use crate::ids::{Epoch, HolderId, Seq};
use crate::resource::coordination::Coordination;
use crate::resource::grant::{Grant, GrantRequest};
use crate::resource::lock::State;
use crate::time::Wall;

/// A lock or a semaphore. The baseline keeps it in this form: a new field needs a default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceEntry {
    defined: Option<Defined>,
    fence: Epoch,
    holders: BTreeMap<HolderId, Holding>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Holding {
    claim: GrantRequest,
    epoch: Epoch,
    acquired: Wall,
}

impl Replay {
    pub(super) fn apply_to_resource(&mut self, seq: Seq, wall: Wall, resource: Resource, fact: Fact) {
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

    /// The view of the real tables.
    pub fn of(tables: &Coordination) -> Replay {
        let holding = |grant: &Grant| {
            (
                grant.claim.holder.clone(),
                Holding { claim: grant.claim.clone(), epoch: grant.epoch, acquired: grant.acquired.wall },
            )
        };
        let mut replay = Replay::default();
        for lock in tables.locks.values() {
            let (ttl, max_hold) = (lock.config.ttl, lock.config.max_hold);
            let defined = (ttl.is_some() || max_hold.is_some()).then_some(Defined { capacity: None, ttl, max_hold });
            let holders = match &lock.state {
                State::Free => BTreeMap::new(),
                State::Held(grant) => BTreeMap::from([holding(grant)]),
            };
            let resource = Resource { kind: Kind::Lock, name: lock.name.clone() };
            replay.resources.insert(resource, ResourceEntry { defined, fence: lock.fence, holders });
        }
        for semaphore in tables.semaphores.values() {
            let config = semaphore.config;
            let defined = Some(Defined { capacity: Some(config.capacity), ttl: config.ttl, max_hold: None });
            let holders = semaphore.holders.values().map(holding).collect();
            let resource = Resource { kind: Kind::Semaphore, name: semaphore.name.clone() };
            replay.resources.insert(resource, ResourceEntry { defined, fence: Epoch::default(), holders });
        }
        replay
    }
}

/// All resources except locks that were never used. A lock that was defined without any default is the same as one that
/// was never defined.
pub(super) fn known(resources: &BTreeMap<Resource, ResourceEntry>) -> BTreeMap<Resource, ResourceEntry> {
    let empty = Defined { capacity: None, ttl: None, max_hold: None };
    let normal = resources.iter().map(|(resource, entry)| {
        let defined = entry.defined.filter(|defined| *defined != empty);
        (resource.clone(), ResourceEntry { defined, ..entry.clone() })
    });
    normal.filter(|(_, entry)| *entry != ResourceEntry::default()).collect()
}
