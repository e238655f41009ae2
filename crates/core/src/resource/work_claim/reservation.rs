//! Reservations: free resources are kept for a claim that was overtaken for long enough.

use std::collections::BTreeSet;

use super::{Part, State, WorkClaim};
use crate::event::{Kind, Resource};
use crate::ids::{HolderId, TaskId, Ticket};
use crate::process::ProcessId;
use crate::resource::coordination::Coordination;
use crate::resource::grant::GrantRequest;
use crate::step::{Effect, Now};
use crate::time::{Lease, Span, Stamp};

/// A claim that a free resource is kept for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    pub ticket: Ticket,
    pub holder: HolderId,
    pub task: Option<TaskId>,
    /// The slots that are kept; one for a lock.
    pub weight: u32,
    pub since: Stamp,
    /// The waiting process: if it is dead, nothing is reserved.
    pub process: ProcessId,
    /// When its turn ends and nothing is reserved for it any more, unless it tries before.
    pub until: Option<Lease>,
    /// The holders that pass: its own, and the holders of something that it waits for.
    pub passes: BTreeSet<HolderId>,
}

impl Reservation {
    /// Whether a request may have the reserved resource.
    pub fn lets(&self, claim: &GrantRequest) -> bool {
        self.passes.contains(&claim.holder) || claim.ancestors.iter().any(|ancestor| self.passes.contains(ancestor))
    }

    /// Whether a claim may have the reserved resource.
    fn lets_claim(&self, claim: &WorkClaim) -> bool {
        let mut ancestors = claim.waits().into_iter().flat_map(|terms| &terms.ancestors);
        self.ticket == claim.ticket || self.passes.contains(&claim.holder) || ancestors.any(|one| self.passes.contains(one))
    }
}

impl Part {
    /// Whether two holders may have it at the same time: a section is shared by the claims of one holder.
    fn is_shared(&self, one: &HolderId, other: &HolderId) -> bool {
        self.resource.name.is_section() && one == other
    }
}

impl WorkClaim {
    fn weight_of(&self, resource: &Resource) -> u32 {
        self.parts.iter().find(|part| part.resource == *resource).map_or(0, |part| part.weight)
    }

    /// From when on the resource is reserved for it while it is free.
    fn reserves_from(&self, resource: &Resource) -> Option<Lease> {
        let terms = self.waits()?;
        let overtake = terms.overtake?;
        // Only holders that want to work there ask for these locks, so the first claim comes next at once.
        Some(terms.since.lease + if resource.name.is_work() { Span::ZERO } else { overtake })
    }

    /// Whether it waits to take something and its process answers, as far as is known.
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

    /// Begins the turns of the claims that may take everything, now that these resources were freed. The claim finds
    /// out when it tries whether that is so: some rows are not loaded here.
    pub fn give_turns(&mut self, freed: &[Resource], now: &Now) {
        // The caller wakes all claims that wait for the freed resources.
        self.give_turns_to(|claim| freed.iter().any(|resource| claim.wants(resource)), now, &mut Vec::new());
    }

    /// A claim has tried in its turn and keeps waiting, as it lacks something that was not known when its turn began:
    /// the next claims get a turn.
    pub(super) fn pass_turn(&mut self, from: Ticket, now: &Now, effects: &mut Vec<Effect>) {
        let parts = self.claims[&from].parts.clone();
        let is_next = |claim: &WorkClaim| claim.ticket > from && parts.iter().any(|part| claim.wants(&part.resource));
        self.give_turns_to(is_next, now, effects);
    }

    /// Begins a turn of each selected claim that may take everything, one after the other and after the claims that
    /// have a turn.
    fn give_turns_to(&mut self, is_selected: impl Fn(&WorkClaim) -> bool, now: &Now, effects: &mut Vec<Effect>) {
        let (mut before, mut next): (Vec<&WorkClaim>, Vec<Ticket>) = Default::default();
        for claim in self.claims.values().filter(|claim| claim.is_present(now)) {
            let has_turn = self.has_turn(claim.ticket);
            if has_turn || is_selected(claim) && self.may_take(claim, &before, now) {
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

    /// A claim does not answer: begins the turns of all others for which everything is free, and wakes them. Live
    /// processes try at once; claims whose processes are stopped as well yield together, not one after the other.
    /// Claims on other resources are included: they may wait for one that waits for this one.
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

    /// Whether a claim would get everything if it tried after these, as far as the loaded rows show.
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

    /// Whether all parts of a claim are free, as far as the loaded rows show. A row that was not loaded counts as free,
    /// whatever it was before: its holder may have given it back in this very transaction, and a claim whose process is
    /// stopped would get no other turn.
    fn is_all_free(&self, claim: &WorkClaim) -> bool {
        claim.parts.iter().all(|part| match part.resource.kind {
            Kind::Lock => self.holders_of(&part.resource).iter().all(|grant| part.is_shared(&grant.claim.holder, &claim.holder)),
            Kind::Semaphore => self.semaphores.get(&part.resource.name).is_none_or(|one| part.weight <= one.available()),
        })
    }

    /// The reservation of a resource: for the first claim that waits for it and was overtaken for long enough.
    pub fn reservation(&self, resource: &Resource, now: &Now) -> Option<Reservation> {
        let claim = self.reserving(resource, now).next()?;
        let terms = claim.waits().expect("only a waiting claim reserves");
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

    /// The holders that must not wait for a claim: its own, and the holders of something that it waits for, including
    /// those that pass the reservations before it.
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
