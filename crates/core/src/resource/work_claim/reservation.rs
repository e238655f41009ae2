//! For whom what is free of a resource is kept: the claim that was overtaken for long enough.

use std::collections::BTreeSet;

use super::{Part, State, WorkClaim};
use crate::event::{Kind, Resource};
use crate::ids::{HolderId, TaskId, Ticket};
use crate::process::ProcessId;
use crate::resource::coordination::Coordination;
use crate::resource::grant::GrantRequest;
use crate::step::{Effect, Now};
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
    /// When nothing is reserved for it any more unless it tries, because it is its turn.
    pub until: Option<Lease>,
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

    /// Whether it waits to take something and answers, as far as is known.
    fn is_present(&self, now: &Now) -> bool {
        let takes = self.waits().is_some_and(|terms| terms.overtake.is_some());
        takes && !self.is_over(now) && self.unanswered(now).is_none()
    }

    /// Whether it was overtaken for long enough.
    pub(crate) fn is_due(&self, resource: &Resource, now: &Now) -> bool {
        self.reserves_from(resource).is_some_and(|from| now.lease >= from)
    }
}

impl Coordination {
    /// The claims that wait for a resource and were overtaken for long enough, in the order in which they get it.
    pub fn reserving<'a>(&'a self, resource: &'a Resource, now: &'a Now) -> impl Iterator<Item = &'a WorkClaim> {
        let is_absent = move |claim: &WorkClaim| claim.is_over(now) || claim.unanswered(now).is_some();
        self.waiting_for(resource).filter(move |claim| claim.is_due(resource, now) && !is_absent(claim))
    }

    /// These were freed: notes for each whose turn it is, the first who may take everything now as far as is known here. Whether that is so it
    /// finds out itself, when it tries.
    pub fn give_turns(&mut self, freed: &[Resource], now: &Now) {
        for resource in freed {
            let first = self.present(resource, now).find(|claim| self.may_take(claim, now));
            let first = first.map(|claim| claim.ticket);
            // All who wait for it are woken.
            first.into_iter().for_each(|ticket| self.begin_turn(ticket, now, &mut Vec::new()));
        }
    }

    /// A claim has tried in its turn and waits on, as it lacks something that was not known when it got the turn: it is that of the next one.
    pub(super) fn pass_turn(&mut self, from: Ticket, now: &Now, effects: &mut Vec<Effect>) {
        for part in &self.claims[&from].parts.clone() {
            let after = |claim: &&WorkClaim| claim.ticket > from && self.may_take(claim, now);
            let next = self.present(&part.resource, now).find(after).map(|claim| claim.ticket);
            next.into_iter().for_each(|ticket| self.begin_turn(ticket, now, effects));
        }
    }

    pub(super) fn has_turn(&self, ticket: Ticket) -> bool {
        self.claims.get(&ticket).and_then(WorkClaim::waits).is_some_and(|terms| terms.turn.is_some())
    }

    /// One does not answer: notes that it is the turn of all others for whom everything is free, and wakes them. Those that live try at once; those
    /// that are stopped as well yield together, not one after the other. Also those who want something else: they may wait for one who waits for
    /// this one.
    pub(super) fn give_all_turns(&mut self, now: &Now, effects: &mut Vec<Effect>) {
        let free =
            self.claims.values().filter(|claim| claim.is_present(now) && self.is_all_free(claim)).map(|claim| claim.ticket);
        for ticket in free.collect::<Vec<_>>() {
            self.begin_turn(ticket, now, effects);
        }
    }

    /// The claims that wait to take a resource and answer, as far as is known.
    fn present<'a>(&'a self, resource: &'a Resource, now: &'a Now) -> impl Iterator<Item = &'a WorkClaim> {
        self.waiting_for(resource).filter(move |claim| claim.is_present(now))
    }

    fn begin_turn(&mut self, ticket: Ticket, now: &Now, effects: &mut Vec<Effect>) {
        if let Some(State::Waiting(terms)) = self.claims.get_mut(&ticket).map(|claim| &mut claim.state)
            && terms.turn.is_none()
        {
            terms.turn = Some(now.lease);
            effects.extend(terms.standing.address.clone().map(Effect::Wake));
        }
    }

    /// Whether a claim would get everything if it tried now, as far as is known here.
    fn may_take(&self, claim: &WorkClaim, now: &Now) -> bool {
        let lets = |kept: &Reservation| {
            let may_pass = |holder: &HolderId| kept.passes.contains(holder);
            may_pass(&claim.holder) || claim.waits().is_some_and(|terms| terms.ancestors.iter().any(may_pass))
        };
        let is_left = |part: &Part| {
            let kept = self.reservation(&part.resource, now).filter(|kept| kept.ticket != claim.ticket && !lets(kept));
            let semaphore = self.semaphores.get(&part.resource.name).filter(|_| part.resource.kind == Kind::Semaphore);
            match (kept, semaphore) {
                (None, _) => true,
                (Some(kept), Some(semaphore)) => part.weight + kept.weight <= semaphore.available(),
                (Some(_), None) => part.resource.kind == Kind::Semaphore,
            }
        };
        self.is_all_free(claim) && claim.parts.iter().all(is_left)
    }

    /// Whether nobody has what a claim needs, as far as the rows tell that are here. What was not read counts as free, whoever had it before: he
    /// may have given it back in this very transaction, and one that is stopped would have no turn again.
    fn is_all_free(&self, claim: &WorkClaim) -> bool {
        claim.parts.iter().all(|part| match part.resource.kind {
            // A section is shared by the claims of one holder.
            Kind::Lock => {
                let is_own = |holder: &HolderId| part.resource.name.is_section() && *holder == claim.holder;
                self.holders_of(&part.resource).iter().all(|grant| is_own(&grant.claim.holder))
            }
            Kind::Semaphore => self.semaphores.get(&part.resource.name).is_none_or(|one| part.weight <= one.available()),
        })
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
            until: claim.turn_ends(),
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
