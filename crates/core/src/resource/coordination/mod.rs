//! All locks and semaphores together: one entry point, and the refusal of waits that would never end.
//!
//! The same code serves as the model of everything that a project holds and, filled with the rows that one call needs,
//! as the decision of that call. For the refusal of deadlocks it must hold every resource that has waiters.

use std::collections::BTreeMap;

use crate::event::{Kind, Resource};
use crate::ids::{Epoch, HolderId, Name, Ticket};
use crate::resource::deadlock::{self, ClaimWait, Held, Link};
use crate::resource::grant::{Ask, Grant, Waiters};
use crate::resource::lock::{self, Lock};
use crate::resource::semaphore::{self, Semaphore};
use crate::resource::work_claim::WorkClaim;
use crate::step::{Effect, Now, Step};
use crate::time::Lease;

/// Locks and semaphores by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coordination {
    /// The locks. A lock that is not here is free and was never defined.
    pub locks: BTreeMap<Name, Lock>,
    /// The semaphores. A semaphore that is not here does not exist.
    pub semaphores: BTreeMap<Name, Semaphore>,
    /// The claims on tasks, held or waiting.
    pub claims: BTreeMap<Ticket, WorkClaim>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Lock(Name, lock::Input),
    Semaphore(Name, semaphore::Input),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Lock(lock::Outcome),
    Semaphore(semaphore::Outcome),
    /// The wait would never end. The caller was not added to the waiters.
    Deadlock(Vec<Link>),
    /// There is no such semaphore.
    Undefined,
}

impl Command {
    /// Asks for a lock or slots.
    pub fn acquire(resource: Resource, ask: Box<Ask>) -> Command {
        match resource.kind {
            Kind::Lock => Command::Lock(resource.name, lock::Input::Acquire(ask)),
            Kind::Semaphore => Command::Semaphore(resource.name, semaphore::Input::Acquire(ask)),
        }
    }

    /// Polls as a waiter.
    pub fn poll(resource: Resource, ticket: Ticket) -> Command {
        match resource.kind {
            Kind::Lock => Command::Lock(resource.name, lock::Input::Poll { ticket }),
            Kind::Semaphore => Command::Semaphore(resource.name, semaphore::Input::Poll { ticket }),
        }
    }

    /// Stops waiting.
    pub fn leave(resource: Resource, ticket: Ticket) -> Command {
        match resource.kind {
            Kind::Lock => Command::Lock(resource.name, lock::Input::Leave { ticket }),
            Kind::Semaphore => Command::Semaphore(resource.name, semaphore::Input::Leave { ticket }),
        }
    }

    /// Renews a grant.
    pub fn heartbeat(resource: Resource, holder: HolderId, epoch: Epoch) -> Command {
        match resource.kind {
            Kind::Lock => Command::Lock(resource.name, lock::Input::Heartbeat { holder, epoch }),
            Kind::Semaphore => Command::Semaphore(resource.name, semaphore::Input::Heartbeat { holder, epoch: Some(epoch) }),
        }
    }

    pub fn release(resource: Resource, holder: HolderId, epoch: Epoch) -> Command {
        match resource.kind {
            Kind::Lock => Command::Lock(resource.name, lock::Input::Release { holder, epoch }),
            Kind::Semaphore => Command::Semaphore(resource.name, semaphore::Input::Release { holder, epoch: Some(epoch) }),
        }
    }

    /// Ends the grants that are over.
    pub fn reap(resource: Resource) -> Command {
        match resource.kind {
            Kind::Lock => Command::Lock(resource.name, lock::Input::Reap),
            Kind::Semaphore => Command::Semaphore(resource.name, semaphore::Input::Reap),
        }
    }

    /// Whether it may add a waiter.
    fn may_wait(&self) -> bool {
        match self {
            Command::Lock(_, lock::Input::Acquire(ask)) | Command::Semaphore(_, semaphore::Input::Acquire(ask)) => {
                ask.wait.is_some()
            }
            Command::Lock(..) | Command::Semaphore(..) => false,
        }
    }

    /// The resource that it is about.
    pub fn resource(&self) -> Resource {
        match self {
            Command::Lock(name, _) => Resource { kind: Kind::Lock, name: name.clone() },
            Command::Semaphore(name, _) => Resource { kind: Kind::Semaphore, name: name.clone() },
        }
    }
}

impl Outcome {
    /// The grant, if it was just given.
    pub fn granted(&self) -> Option<&Grant> {
        match self {
            Outcome::Lock(lock::Outcome::Acquired(grant) | lock::Outcome::Reclaimed { grant, .. })
            | Outcome::Semaphore(semaphore::Outcome::Acquired(grant)) => Some(grant),
            _ => None,
        }
    }

    /// The grant, if it was just renewed.
    pub fn extended(&self) -> Option<&Grant> {
        match self {
            Outcome::Lock(lock::Outcome::Extended(grant)) | Outcome::Semaphore(semaphore::Outcome::Extended(grant)) => {
                Some(grant)
            }
            _ => None,
        }
    }

    /// Whether the resource is given back, by this command or an earlier one.
    pub fn is_released(&self) -> bool {
        matches!(
            self,
            Outcome::Lock(lock::Outcome::Released | lock::Outcome::AlreadyFree)
                | Outcome::Semaphore(semaphore::Outcome::Released)
        )
    }
}

impl Coordination {
    /// The grant of a lock, or of slots, that a holder has.
    pub fn grant_of(&self, resource: &Resource, holder: &HolderId) -> Option<&Grant> {
        match resource.kind {
            Kind::Lock => match &self.locks.get(&resource.name)?.state {
                lock::State::Held(grant) if grant.claim.holder == *holder => Some(grant),
                lock::State::Held(_) | lock::State::Free => None,
            },
            Kind::Semaphore => self.semaphores.get(&resource.name)?.holders.get(holder),
        }
    }

    /// Decides one command. Parties that the caller has proven dead are removed first: from the resource of the
    /// command, and from every resource with waiters. If the command may add a waiter, grants that are over by time are
    /// ended first, too: a wait for what others may take is not refused as a deadlock.
    pub fn handle(mut self, command: Command, now: &Now) -> Step<Coordination, Outcome> {
        let resource = command.resource();
        let mut effects = Vec::new();
        if !now.dead.is_empty() || command.may_wait() {
            // A holder that loses the lock of a task loses the task, which only the commands on that lock can handle.
            let is_task = |other: &Resource| other.kind == Kind::Lock && other.name.task().is_some();
            self.locks.values_mut().filter(|lock| lock.name.task().is_some()).for_each(|lock| lock.waiters.drop_over(now));
            // A command ends a grant on its own resource that is over by time itself, and its outcome has the former
            // holder.
            let step = self.reap(now, |other, waiters| match *other == resource {
                true => !now.dead.is_empty(),
                false => !waiters.is_empty() && !is_task(other),
            });
            (self, effects) = (step.state, step.effects);
        }
        let now = &after(now, &effects);
        let outcome = match command {
            Command::Lock(name, input) => {
                let reservation = self.kept(&resource, now);
                let mut lock = self.locks.remove(&name).unwrap_or_else(|| Lock::new(name.clone()));
                lock.reservation = reservation;
                let step = lock.step(input, now);
                self.locks.insert(name, step.state);
                effects.extend(step.effects);
                Outcome::Lock(step.outcome)
            }
            Command::Semaphore(name, semaphore::Input::Define(config)) if !self.semaphores.contains_key(&name) => {
                let step = Semaphore::new(name.clone(), config).step(semaphore::Input::Define(config), now);
                self.semaphores.insert(name, step.state);
                effects.extend(step.effects);
                Outcome::Semaphore(step.outcome)
            }
            Command::Semaphore(name, input) => match (self.kept(&resource, now), self.semaphores.remove(&name)) {
                (_, None) => Outcome::Undefined,
                (reservation, Some(mut semaphore)) => {
                    semaphore.reservation = reservation;
                    let step = semaphore.step(input, now);
                    self.semaphores.insert(name, step.state);
                    effects.extend(step.effects);
                    Outcome::Semaphore(step.outcome)
                }
            },
        };
        let outcome = self.refuse_deadlock(&resource, outcome, now);
        Step { state: self, outcome, effects }
    }

    /// Ends every grant that is over.
    pub fn maintain(self, now: &Now) -> Step<Coordination, ()> {
        self.reap(now, |_, _| true)
    }

    /// Ends every grant that is over, of the selected resources.
    fn reap(mut self, now: &Now, selects: impl Fn(&Resource, &Waiters) -> bool) -> Step<Coordination, ()> {
        let mut effects = Vec::new();
        let is_selected = |kind, name: &Name, waiters: &Waiters| selects(&Resource { kind, name: name.clone() }, waiters);
        let locks = self.locks.values().filter(|lock| is_selected(Kind::Lock, &lock.name, &lock.waiters));
        for name in locks.map(|lock| lock.name.clone()).collect::<Vec<_>>() {
            // The holders that pass a reservation follow from all that is held.
            let reservation = self.kept(&Resource { kind: Kind::Lock, name: name.clone() }, now);
            let Some(mut lock) = self.locks.remove(&name) else { continue };
            lock.reservation = reservation;
            let step = lock.step(lock::Input::Reap, &after(now, &effects));
            effects.extend(step.effects);
            self.locks.insert(name, step.state);
        }
        let semaphores = self.semaphores.values().filter(|one| is_selected(Kind::Semaphore, &one.name, &one.waiters));
        for name in semaphores.map(|one| one.name.clone()).collect::<Vec<_>>() {
            let reservation = self.kept(&Resource { kind: Kind::Semaphore, name: name.clone() }, now);
            let Some(mut semaphore) = self.semaphores.remove(&name) else { continue };
            semaphore.reservation = reservation;
            let step = semaphore.step(semaphore::Input::Reap, &after(now, &effects));
            effects.extend(step.effects);
            self.semaphores.insert(name, step.state);
        }
        Step { state: self, outcome: (), effects }
    }

    pub fn next_deadline(&self) -> Option<Lease> {
        let locks = self.locks.values().filter_map(Lock::next_deadline);
        locks.chain(self.semaphores.values().filter_map(Semaphore::next_deadline)).min()
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        // A lock or a semaphore that a claim waits for may be reserved, or may have been.
        let is_wanted = |kind, name: &Name| self.waiting_for(&Resource { kind, name: name.clone() }).next().is_some();
        self.locks.values().filter(|lock| !is_wanted(Kind::Lock, &lock.name)).for_each(Lock::check);
        self.semaphores.values().filter(|one| !is_wanted(Kind::Semaphore, &one.name)).for_each(Semaphore::check);
        self.check_claims();
    }

    /// Removes a new waiter if it would wait for ever.
    fn refuse_deadlock(&mut self, resource: &Resource, outcome: Outcome, now: &Now) -> Outcome {
        let waiting = match &outcome {
            Outcome::Lock(lock::Outcome::Waiting(waiting)) => waiting,
            Outcome::Semaphore(semaphore::Outcome::Waiting(waiting)) => waiting,
            _ => return outcome,
        };
        let ticket = waiting.ticket;
        if ticket != now.ticket {
            return outcome;
        }
        match self.deadlock(ticket, now) {
            None => outcome,
            Some(cycle) => {
                match resource.kind {
                    Kind::Lock => self.locks.get_mut(&resource.name).map(|lock| lock.waiters.remove(ticket)),
                    Kind::Semaphore => self.semaphores.get_mut(&resource.name).map(|semaphore| semaphore.waiters.remove(ticket)),
                };
                Outcome::Deadlock(cycle)
            }
        }
    }

    /// The reservation of a resource, if there is one.
    fn kept(&self, resource: &Resource, now: &Now) -> Option<Box<crate::resource::work_claim::Reservation>> {
        if self.claims.is_empty() { None } else { self.reservation(resource, now).map(Box::new) }
    }

    /// The cycle that the wait with this ticket is part of, or is blocked by.
    pub(crate) fn deadlock(&self, ticket: Ticket, now: &Now) -> Option<Vec<Link>> {
        let is_wanted = |kind, name: &Name| self.waiting_for(&Resource { kind, name: name.clone() }).next().is_some();
        let locks =
            self.locks.values().filter(|lock| !lock.waiters.is_empty() || is_wanted(Kind::Lock, &lock.name)).map(|lock| Held {
                resource: Resource { kind: Kind::Lock, name: lock.name.clone() },
                capacity: 1,
                holders: match &lock.state {
                    lock::State::Free => Vec::new(),
                    lock::State::Held(grant) => vec![(&grant.claim.holder, 1)],
                },
                waiters: &lock.waiters,
                strangers: true,
            });
        let semaphores =
            self.semaphores.values().filter(|one| !one.waiters.is_empty() || is_wanted(Kind::Semaphore, &one.name)).map(
                |semaphore| Held {
                    resource: Resource { kind: Kind::Semaphore, name: semaphore.name.clone() },
                    capacity: u64::from(semaphore.config.capacity),
                    holders: semaphore.holders.iter().map(|(holder, grant)| (holder, u64::from(grant.claim.weight))).collect(),
                    waiters: &semaphore.waiters,
                    strangers: false,
                },
            );
        let resources: Vec<Held<'_>> = locks.chain(semaphores).collect();
        let claims: Vec<ClaimWait<'_>> =
            self.claims.values().filter_map(|claim| self.claim_wait(claim, &resources, now)).collect();
        deadlock::find(&resources, &claims, ticket)
    }

    /// A waiting claim in the form for the search for deadlocks. A lock that is free and never was held is no resource
    /// there.
    fn claim_wait<'a>(&'a self, claim: &'a WorkClaim, resources: &[Held<'a>], now: &Now) -> Option<ClaimWait<'a>> {
        let terms = claim.waits().filter(|_| !claim.is_over(now))?;
        let index = |part: &crate::resource::work_claim::Part| resources.iter().position(|held| held.resource == part.resource);
        let wants = claim.parts.iter().filter_map(|part| Some((index(part)?, u64::from(part.weight)))).collect();
        let reserves = |resource: &Resource| self.reservation(resource, now).filter(|kept| kept.ticket == claim.ticket);
        let reserved: Vec<usize> =
            claim.parts.iter().filter(|part| reserves(&part.resource).is_some()).filter_map(index).collect();
        let due = claim.parts.iter().filter(|part| claim.is_due(&part.resource, now)).filter_map(index).collect();
        let kept = claim.parts.iter().find_map(|part| reserves(&part.resource));
        // The slots that its holder has for other tasks are its own.
        let alias = format!("{}/", claim.holder);
        let holders = resources.iter().flat_map(|held| held.holders.iter().map(|(holder, _)| *holder));
        let own = holders.filter(|holder| holder.as_str().starts_with(&alias));
        let parties = std::iter::once(&claim.holder).chain(own).chain(&terms.ancestors).collect();
        Some(ClaimWait {
            ticket: claim.ticket,
            holder: &claim.holder,
            parties,
            process: &terms.standing.process,
            wants,
            takes: claim.task.is_some(),
            reserved,
            due,
            passes: kept.map(|kept| kept.passes).unwrap_or_default(),
        })
    }
}

/// The moment for a step that follows others of the same decision, whose events have taken numbers.
pub(crate) fn after(now: &Now, effects: &[Effect]) -> Now {
    let events = effects.iter().filter(|effect| matches!(effect, Effect::Emit(_))).count();
    let mut now = now.clone();
    now.seq.0 += i64::try_from(events).expect("a step has few events");
    now
}

#[cfg(test)]
mod tests;
