//! For whom what is free of a resource is kept: the claim that was overtaken for long enough.

use std::collections::BTreeSet;

use super::WorkClaim;
use crate::event::Resource;
use crate::ids::{HolderId, TaskId, Ticket};
use crate::process::ProcessId;
use crate::resource::coordination::Coordination;
use crate::resource::grant::GrantRequest;
use crate::step::Now;
use crate::time::{Lease, Span, Stamp};

/// For whom something that is free is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    pub ticket: Ticket,
    pub holder: HolderId,
    /// To work on this task.
    pub task: Option<TaskId>,
    /// How many slots are kept; one of a lock.
    pub weight: u32,
    pub since: Stamp,
    /// The process that waits: if it is dead, nothing is reserved.
    pub process: ProcessId,
    /// Who may pass: the holder itself, and whoever holds something that it waits for.
    pub passes: BTreeSet<HolderId>,
}

impl Reservation {
    /// Whether somebody who asks may have what is reserved.
    pub fn lets(&self, claim: &GrantRequest) -> bool {
        self.passes.contains(&claim.holder) || claim.ancestors.iter().any(|ancestor| self.passes.contains(ancestor))
    }
}

impl WorkClaim {
    /// Since when what is free of a resource is reserved for it.
    fn reserves_from(&self, resource: &Resource) -> Option<Lease> {
        let terms = self.waits()?;
        let overtake = terms.overtake?;
        // Nobody but those who want to work there asks for these: the first who came is next.
        Some(terms.since.lease + if resource.name.is_work() { Span::ZERO } else { overtake })
    }
}

impl Coordination {
    /// The claims that wait for a resource and were overtaken for long enough, in the order in which they get it.
    pub fn reserving<'a>(&'a self, resource: &'a Resource, now: &'a Now) -> impl Iterator<Item = &'a WorkClaim> {
        let is_due = move |claim: &&WorkClaim| claim.reserves_from(resource).is_some_and(|from| now.lease >= from);
        self.waiting_for(resource).filter(is_due).filter(|claim| !claim.is_over(now))
    }

    /// For whom what is free of a resource is kept: the first claim that waits for it and was overtaken for long enough.
    pub fn reservation(&self, resource: &Resource, now: &Now) -> Option<Reservation> {
        let claim = self.reserving(resource, now).next()?;
        let terms = claim.waits().expect("only one that waits reserves");
        let part = claim.parts.iter().find(|part| part.resource == *resource).expect("it wants the resource");
        Some(Reservation {
            ticket: claim.ticket,
            holder: claim.holder.clone(),
            task: claim.task.clone(),
            weight: part.weight,
            since: terms.since,
            process: terms.standing.process.clone(),
            passes: self.passes(claim, now),
        })
    }

    /// Who must not wait for a claim: itself, and whoever holds something that it waits for, also by way of the
    /// reservations before it.
    fn passes(&self, claim: &WorkClaim, now: &Now) -> BTreeSet<HolderId> {
        let mut passes = claim.in_the_way.clone();
        passes.insert(claim.holder.clone());
        for part in &claim.parts {
            passes.insert(claim.holder_of(part));
            passes.extend(self.holders_of(&part.resource).into_iter().map(|grant| grant.claim.holder.clone()));
            if let Some(before) = self.reserving(&part.resource, now).next().filter(|other| other.ticket < claim.ticket) {
                passes.extend(self.passes(before, now).into_iter().filter(|holder| *holder != before.holder));
            }
        }
        passes
    }
}
