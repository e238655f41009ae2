//! Takes all parts of a claim, or none of them.

use std::collections::BTreeSet;

use super::{Obstacle, Outcome, Part, State, Take, WorkClaim, slot_holder};
use crate::event::Kind;
use crate::ids::Epoch;
use crate::resource::coordination::{self, Command, Coordination, after};
use crate::resource::grant::{Ask, Blocked, GrantRequest, Term};
use crate::resource::{lock, semaphore};
use crate::step::{Effect, Now};

impl Coordination {
    /// The refusal, if a part can never be granted.
    pub(super) fn never(&self, parts: &[Part]) -> Option<Outcome> {
        parts.iter().filter(|part| part.resource.kind == Kind::Semaphore).find_map(|part| {
            let name = &part.resource.name;
            let capacity = self.semaphores.get(name).map(|semaphore| semaphore.config.capacity);
            let fits = capacity.is_some_and(|capacity| part.weight <= capacity);
            (!fits).then(|| Outcome::Never { name: name.clone(), capacity })
        })
    }

    /// The state with all parts taken; else the obstacles.
    pub(super) fn draft(&self, take: &Take, now: &Now) -> Result<(Coordination, WorkClaim, Vec<Effect>), Vec<Obstacle>> {
        let mut draft = self.clone();
        let ticket = take.ticket.filter(|ticket| self.claims.contains_key(ticket)).unwrap_or(now.ticket);
        let mut effects = Vec::new();
        let (mut parts, mut obstacles) = (Vec::new(), Vec::new());
        for part in &take.parts {
            if let Some(epoch) = self.shared(take, part) {
                parts.push(Part { epoch: Some(epoch), ..part.clone() });
                continue;
            }
            // The parts that it has taken in this very draft let it pass no reservation.
            let alone = self.clone().handle(acquire(take, part), now).outcome;
            if let Err(blocked) = granted(&alone) {
                obstacles.push(Obstacle { resource: part.resource.clone(), blocked });
                continue;
            }
            let step = std::mem::take(&mut draft).handle(acquire(take, part), &after(now, &effects));
            draft = step.state;
            effects.extend(step.effects);
            match granted(&step.outcome) {
                Ok(epoch) => parts.push(Part { epoch: Some(epoch), ..part.clone() }),
                Err(blocked) => obstacles.push(Obstacle { resource: part.resource.clone(), blocked }),
            }
        }
        if !obstacles.is_empty() {
            return Err(obstacles);
        }
        let (holder, task) = (take.holder.clone(), take.task.clone());
        let claim = WorkClaim { ticket, holder, task, parts, state: State::Held, in_the_way: BTreeSet::new() };
        draft.claims.insert(ticket, claim.clone());
        Ok((draft, claim, effects))
    }

    /// The grant of an exclusive section that the same holder has for another task of it.
    fn shared(&self, take: &Take, part: &Part) -> Option<Epoch> {
        let held = self.holders_of(&part.resource).into_iter().find(|grant| grant.claim.holder == take.holder)?;
        let by_claim = |claim: &WorkClaim| {
            let has = |other: &Part| other.resource == part.resource && other.epoch == Some(held.epoch);
            claim.state == State::Held && claim.holder == take.holder && claim.parts.iter().any(has)
        };
        (part.resource.name.is_section() && self.claims.values().any(by_claim)).then_some(held.epoch)
    }
}

/// The request for a part. A section is held until it is given back, without a time limit.
fn acquire(take: &Take, part: &Part) -> Command {
    let holder = slot_holder(&take.holder, take.task.as_ref(), part);
    let is_alias = holder != take.holder;
    let ancestors = is_alias.then(|| take.holder.clone()).into_iter().chain(take.ancestors.iter().cloned()).collect();
    let is_section = part.resource.name.is_section();
    let claim =
        GrantRequest { ancestors, weight: part.weight, ttl: (!is_section).then_some(take.ttl), ..GrantRequest::new(holder) };
    let term = if is_section { Term::Open } else { Term::Usual(None) };
    Command::acquire(part.resource.clone(), Box::new(Ask { term, anew: true, ..Ask::new(claim) }))
}

fn granted(outcome: &coordination::Outcome) -> Result<Epoch, Blocked> {
    if let Some(grant) = outcome.granted() {
        return Ok(grant.epoch);
    }
    match outcome {
        coordination::Outcome::Lock(lock::Outcome::Busy(blocked))
        | coordination::Outcome::Semaphore(semaphore::Outcome::Full { blocked, .. }) => Err(blocked.clone()),
        // Too many holders, or a namesake that has slots for the same task: the next release leads to another try.
        _ => Err(Blocked { holders: Vec::new(), waiters: 0, watch: Vec::new(), deadline: None, reserved: None }),
    }
}
