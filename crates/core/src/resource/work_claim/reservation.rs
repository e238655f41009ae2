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

    /// Whether a claim may have it.
    fn lets_claim(&self, claim: &WorkClaim) -> bool {
        let mut ancestors = claim.waits().into_iter().flat_map(|terms| &terms.ancestors);
        self.ticket == claim.ticket || self.passes.contains(&claim.holder) || ancestors.any(|one| self.passes.contains(one))
    }
}

impl Part {
    /// Whether two may have it at the same time: a section is shared by the claims of one holder.
    fn is_shared(&self, one: &HolderId, other: &HolderId) -> bool {
        self.resource.name.is_section() && one == other
    }
}

impl WorkClaim {
    fn weight_of(&self, resource: &Resource) -> u32 {
        self.parts.iter().find(|part| part.resource == *resource).map_or(0, |part| part.weight)
    }

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

    /// These were freed: notes whose turn it is, for each who may take everything now as far as is known here. Whether that is so it finds out
    /// itself, when it tries.
    pub fn give_turns(&mut self, freed: &[Resource], now: &Now) {
        // All who wait for it are woken.
        self.give_turns_to(|claim| freed.iter().any(|resource| claim.wants(resource)), now, &mut Vec::new());
    }

    /// A claim has tried in its turn and waits on, as it lacks something that was not known when it got the turn: it is that of the next ones.
    pub(super) fn pass_turn(&mut self, from: Ticket, now: &Now, effects: &mut Vec<Effect>) {
        let parts = self.claims[&from].parts.clone();
        let is_next = |claim: &WorkClaim| claim.ticket > from && parts.iter().any(|part| claim.wants(&part.resource));
        self.give_turns_to(is_next, now, effects);
    }

    /// Gives a turn to each of these who may take everything, one after the other and after those who have one.
    fn give_turns_to(&mut self, is_meant: impl Fn(&WorkClaim) -> bool, now: &Now, effects: &mut Vec<Effect>) {
        let (mut before, mut next): (Vec<&WorkClaim>, Vec<Ticket>) = Default::default();
        for claim in self.claims.values().filter(|claim| claim.is_present(now)) {
            let has_turn = self.has_turn(claim.ticket);
            if has_turn || is_meant(claim) && self.may_take(claim, &before, now) {
                before.push(claim);
                next.extend((!has_turn).then_some(claim.ticket));
            }
        }
        for ticket in next {
            self.begin_turn(ticket, now, effects);
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

    fn begin_turn(&mut self, ticket: Ticket, now: &Now, effects: &mut Vec<Effect>) {
        if let Some(State::Waiting(terms)) = self.claims.get_mut(&ticket).map(|claim| &mut claim.state)
            && terms.turn.is_none()
        {
            terms.turn = Some(now.lease);
            effects.extend(terms.standing.address.clone().map(Effect::Wake));
        }
    }

    /// Whether a claim would get everything if it tried after these, as far as is known here.
    fn may_take(&self, claim: &WorkClaim, before: &[&WorkClaim], now: &Now) -> bool {
        let is_left = |part: &Part| {
            let taken: u32 = before
                .iter()
                .filter(|other| !part.is_shared(&other.holder, &claim.holder))
                .map(|other| other.weight_of(&part.resource))
                .sum();
            let kept = self
                .reservation(&part.resource, now)
                .filter(|kept| !kept.lets_claim(claim) && before.iter().all(|other| other.ticket != kept.ticket));
            let taken = taken + kept.map_or(0, |kept| kept.weight);
            match part.resource.kind {
                Kind::Lock => taken == 0,
                Kind::Semaphore => {
                    self.semaphores.get(&part.resource.name).is_none_or(|one| taken + part.weight <= one.available())
                }
            }
        };
        self.is_all_free(claim) && claim.parts.iter().all(is_left)
    }

    /// Whether nobody has what a claim needs, as far as the rows tell that are here. What was not read counts as free, whoever had it before: he
    /// may have given it back in this very transaction, and one that is stopped would have no turn again.
    fn is_all_free(&self, claim: &WorkClaim) -> bool {
        claim.parts.iter().all(|part| match part.resource.kind {
            Kind::Lock => self.holders_of(&part.resource).iter().all(|grant| part.is_shared(&grant.claim.holder, &claim.holder)),
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
