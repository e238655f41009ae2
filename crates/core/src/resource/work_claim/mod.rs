//! A claim: everything that a person or a runner takes to work on a task, all of it or nothing.
//!
//! ```text
//!              take: every part is free                       end, or a part was lost
//!   (none) ------------------------------------> Held -----------------------------------> (none)
//!      |  take: a part is not free                ^
//!      v                                          |  take: every part is free by now
//!   Waiting --------------------------------------'
//!      |  leave; a deadlock; its process is dead
//!      v
//!   (none)
//! ```
//!
//! When the last part is freed the claim gets its turn: it is woken, and has as long as an offer lasts to try again. A
//! claim that does not try, because its process is stopped, yields: it keeps its ticket, but nothing is reserved for it
//! until it tries. Then all claims for which everything is free get a turn, as their processes may be stopped, too.
//!
//! A waiting claim holds nothing and is no waiter of any single resource: it tries again when a part is freed. Others
//! may overtake it for a while; then the free parts are reserved for it, and only holders of something that it waits
//! for pass.
//!
//! Invariants: a held claim has the epoch of every part, a waiting one has none.

mod draft;
mod reservation;

pub use reservation::Reservation;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::event::{Kind, Resource};
use crate::ids::{Epoch, HolderId, Name, TaskId, Ticket};
use crate::resource::coordination::{self, Command, Coordination, after};
use crate::resource::deadlock::Link;
use crate::resource::grant::{Blocked, Grant, OFFER, Waiting, WaitingProcess};
use crate::resource::lock;
use crate::step::{Effect, Now, Step};
use crate::time::{Lease, Span, Stamp};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkClaim {
    /// Its number: a lower one came earlier.
    pub ticket: Ticket,
    /// The person or runner that works on the task, or wants to.
    pub holder: HolderId,
    /// The task. A run that waits for the end of tasks has none.
    pub task: Option<TaskId>,
    /// The resources that it needs.
    pub parts: Vec<Part>,
    pub state: State,
    /// While it waits: the holders of its parts when the rows were read, as not all locks and semaphores are read for
    /// each decision.
    pub in_the_way: BTreeSet<HolderId>,
}

/// One resource of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The lock or the semaphore.
    pub resource: Resource,
    /// The slots; one for a lock.
    pub weight: u32,
    /// The grant, while the claim is held.
    pub epoch: Option<Epoch>,
}

/// Whether a claim is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It waits, and holds nothing.
    Waiting(Box<Terms>),
    /// All its parts are held.
    Held,
}

/// The terms of a waiting claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Terms {
    /// The holders on whose behalf it waits: they wait for as long as it waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<HolderId>,
    pub standing: WaitingProcess,
    pub since: Stamp,
    /// When it last tried. Only maintained if its place has a lease.
    pub seen: Lease,
    /// How long others may overtake it; without it nothing is ever reserved for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overtake: Option<Span>,
    /// When it was woken because all its parts were free, if it has not tried since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Lease>,
    /// Whether its turn is over and its reservations were passed on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_yielded: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Take all parts, or wait for them.
    Take(Box<Take>),
    /// Wait until tasks are over, as a run. Nothing is taken.
    Await(Box<Take>),
    Leave {
        ticket: Ticket,
    },
    /// Its turn is over: its process was woken and has not tried again. It keeps waiting, but nothing is reserved for
    /// it before it tries.
    Yield {
        ticket: Ticket,
    },
    /// Renew all parts.
    Renew {
        ticket: Ticket,
    },
    /// Give all parts back.
    End {
        ticket: Ticket,
    },
}

/// A request to take a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Take {
    pub holder: HolderId,
    /// The holders on whose behalf it is taken.
    pub ancestors: Vec<HolderId>,
    pub task: Option<TaskId>,
    /// The parts, without epochs.
    pub parts: Vec<Part>,
    /// How long the grants live without a sign of life.
    pub ttl: Span,
    /// The ticket of the claim, if it waits already.
    pub ticket: Option<Ticket>,
    /// The waiting process, and how long others may overtake it; without it the answer is a refusal.
    pub wait: Option<(WaitingProcess, Option<Span>)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Held(Box<WorkClaim>),
    /// It was held already, and stays held for another time to live.
    Renewed(Option<Lease>),
    /// A part is not free, and the caller does not wait.
    Busy(Vec<Obstacle>),
    /// A part is not free, and the claim waits.
    Waiting(Waiting, Vec<Obstacle>),
    /// The wait would never end; the claim is removed.
    Deadlock(Vec<Link>),
    /// A part can never be granted: the semaphore was never defined, or has fewer slots.
    Never {
        name: Name,
        /// The capacity, if the semaphore is defined.
        capacity: Option<u32>,
    },
    /// A part was lost.
    Lost(Resource),
    /// It waits no longer, or is given back.
    Left,
    /// Nothing is reserved for it until it tries again.
    Yielded,
    /// There is no such claim.
    Gone,
}

/// A part that is not free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    pub resource: Resource,
    pub blocked: Blocked,
}

impl WorkClaim {
    /// The terms, if it waits.
    pub fn waits(&self) -> Option<&Terms> {
        match &self.state {
            State::Waiting(terms) => Some(terms),
            State::Held => None,
        }
    }

    /// Whether it waits, and its process is dead or silent for too long.
    pub fn is_over(&self, now: &Now) -> bool {
        self.waits().is_some_and(|terms| {
            let standing = &terms.standing;
            now.dead.contains(&standing.process) || standing.lease.is_some_and(|lease| now.is_past(terms.seen + lease))
        })
    }

    /// The begin of its turn, if the turn is over without a try: its process may be stopped. Nothing is reserved for
    /// it.
    pub fn unanswered(&self, now: &Now) -> Option<Lease> {
        let terms = self.waits()?;
        terms.turn.filter(|_| terms.has_yielded || terms.is_late(now))
    }

    /// When its turn ends, if it has one.
    pub fn turn_ends(&self) -> Option<Lease> {
        let terms = self.waits().filter(|terms| !terms.has_yielded)?;
        terms.turn.map(|turn| turn + OFFER)
    }

    pub fn wants(&self, resource: &Resource) -> bool {
        self.parts.iter().any(|part| part.resource == *resource)
    }

    /// The name under which it holds a part: a semaphore knows its holders by name, and one holder may work on several
    /// tasks.
    fn holder_of(&self, part: &Part) -> HolderId {
        slot_holder(&self.holder, self.task.as_ref(), part)
    }
}

/// The name under which a part is held.
fn slot_holder(holder: &HolderId, task: Option<&TaskId>, part: &Part) -> HolderId {
    match (part.resource.kind, task) {
        (Kind::Semaphore, Some(task)) => {
            HolderId::new(&format!("{holder}/{task}")).unwrap_or_else(|_| HolderId::new(task.as_str()).expect("an id is a name"))
        }
        (Kind::Lock | Kind::Semaphore, _) => holder.clone(),
    }
}

impl Terms {
    /// Whether its turn is over without a try, and it has not yielded yet.
    fn is_late(&self, now: &Now) -> bool {
        !self.has_yielded && self.turn.is_some_and(|turn| now.is_past(turn + OFFER))
    }
}

impl Coordination {
    /// Decides one input about a claim.
    pub fn work(mut self, input: Input, now: &Now) -> Step<Coordination, Outcome> {
        let mut effects = Vec::new();
        let in_turn = match &input {
            Input::Take(take) | Input::Await(take) => take.ticket.filter(|ticket| self.has_turn(*ticket)),
            Input::Leave { .. } | Input::Yield { .. } | Input::Renew { .. } | Input::End { .. } => None,
        };
        let outcome = match input {
            Input::Take(take) => self.take(*take, now, &mut effects),
            Input::Await(take) => self.wait(&take, Vec::new(), now),
            Input::Leave { ticket } => self.leave(ticket, now, &mut effects),
            Input::Yield { ticket } => self.yield_turn(ticket, now, &mut effects),
            Input::Renew { ticket } => self.renew(ticket, now, &mut effects),
            Input::End { ticket } => self.end(ticket, now, &mut effects),
        };
        if let (Some(ticket), Outcome::Waiting(..)) = (in_turn, &outcome) {
            self.pass_turn(ticket, now, &mut effects);
        }
        Step { state: self, outcome, effects }
    }

    /// The claim that is held for a task.
    pub fn claim_of(&self, task: &TaskId) -> Option<&WorkClaim> {
        self.claims.values().find(|claim| claim.state == State::Held && claim.task.as_ref() == Some(task))
    }

    /// The claims that wait for a resource, in the order of their tickets.
    pub fn waiting_for<'a>(&'a self, resource: &'a Resource) -> impl Iterator<Item = &'a WorkClaim> {
        self.claims.values().filter(|claim| claim.waits().is_some() && claim.wants(resource))
    }

    /// The grants of a lock or a semaphore.
    pub fn holders_of(&self, resource: &Resource) -> Vec<&Grant> {
        match resource.kind {
            Kind::Lock => match self.locks.get(&resource.name).map(|lock| &lock.state) {
                Some(lock::State::Held(grant)) => vec![grant],
                Some(lock::State::Free) | None => Vec::new(),
            },
            Kind::Semaphore => self.semaphores.get(&resource.name).into_iter().flat_map(|one| one.holders.values()).collect(),
        }
    }

    fn take(&mut self, take: Take, now: &Now, effects: &mut Vec<Effect>) -> Outcome {
        if let Some(name) = self.never(&take.parts) {
            return name;
        }
        // The try shows that its process is not stopped: free parts are reserved for it again.
        if let Some(State::Waiting(terms)) =
            take.ticket.and_then(|ticket| self.claims.get_mut(&ticket)).map(|claim| &mut claim.state)
        {
            (terms.turn, terms.has_yielded) = (None, false);
        }
        match self.draft(&take, now) {
            Ok((state, claim, more)) => {
                *self = state;
                effects.extend(more);
                Outcome::Held(Box::new(claim))
            }
            Err(obstacles) => self.wait(&take, obstacles, now),
        }
    }

    /// Adds the claim to the waiting ones, unless the caller does not wait or the wait would never end.
    fn wait(&mut self, take: &Take, obstacles: Vec<Obstacle>, now: &Now) -> Outcome {
        let Some((standing, overtake)) = take.wait.clone() else { return Outcome::Busy(obstacles) };
        let row = take.ticket.and_then(|ticket| self.claims.get(&ticket));
        let in_the_way = row.map(|claim| claim.in_the_way.clone()).unwrap_or_default();
        let before = row.and_then(WorkClaim::waits);
        let (ticket, since) = match (take.ticket, before) {
            (Some(ticket), Some(terms)) => (ticket, terms.since),
            _ => (now.ticket, now.stamp()),
        };
        // A precision of a third of the lease is enough, and saves the write of most tries.
        let seen = before.map_or(now.lease, |terms| match standing.lease {
            Some(lease) if (now.lease - terms.seen).as_ms().saturating_mul(3) >= lease.as_ms() => now.lease,
            _ => terms.seen,
        });
        let (turn, has_yielded) = (None, false);
        let terms = Terms { ancestors: take.ancestors.clone(), standing, since, seen, overtake, turn, has_yielded };
        let claim = WorkClaim {
            ticket,
            holder: take.holder.clone(),
            task: take.task.clone(),
            parts: take.parts.clone(),
            state: State::Waiting(Box::new(terms)),
            in_the_way,
        };
        self.claims.insert(ticket, claim);
        // Grants that are over stay in the rows until the next request.
        if let Some(cycle) = self.clone().maintain(now).state.deadlock(ticket, now) {
            self.claims.remove(&ticket);
            return Outcome::Deadlock(cycle);
        }
        let ahead = |obstacle: &Obstacle| self.waiting_for(&obstacle.resource).filter(|other| other.ticket < ticket).count();
        let place = 1 + obstacles.iter().map(ahead).max().unwrap_or(0);
        let blocked = Blocked {
            holders: obstacles.iter().flat_map(|one| one.blocked.holders.clone()).collect(),
            waiters: obstacles.iter().map(|one| one.blocked.waiters).max().unwrap_or(0),
            watch: obstacles.iter().flat_map(|one| one.blocked.watch.clone()).collect(),
            deadline: obstacles.iter().filter_map(|one| one.blocked.deadline).min(),
            reserved: obstacles.iter().find_map(|one| one.blocked.reserved.clone()),
        };
        Outcome::Waiting(Waiting { ticket, place, blocked }, obstacles)
    }

    /// Removes a waiting claim. The resources that were reserved for it go to their waiters.
    fn leave(&mut self, ticket: Ticket, now: &Now, effects: &mut Vec<Effect>) -> Outcome {
        if self.claims.get(&ticket).is_none_or(|claim| claim.waits().is_none()) {
            return Outcome::Gone;
        }
        let claim = self.claims.remove(&ticket).expect("it was just seen");
        self.serve_waiters(&claim, now, effects);
        Outcome::Left
    }

    /// Makes a claim that has not tried in its turn the last one, until it tries again.
    fn yield_turn(&mut self, ticket: Ticket, now: &Now, effects: &mut Vec<Effect>) -> Outcome {
        let Some(claim) = self.claims.get_mut(&ticket) else { return Outcome::Gone };
        let State::Waiting(terms) = &mut claim.state else { return Outcome::Gone };
        if !terms.is_late(now) {
            return Outcome::Gone;
        }
        terms.has_yielded = true;
        let claim = claim.clone();
        self.serve_waiters(&claim, now, effects);
        self.give_all_turns(now, effects);
        Outcome::Yielded
    }

    /// Gives the resources that were reserved for a claim to their waiters.
    fn serve_waiters(&mut self, claim: &WorkClaim, now: &Now, effects: &mut Vec<Effect>) {
        for part in &claim.parts {
            let name = &part.resource.name;
            // The locks of tasks and sections are handled by the calls that ask for them.
            let is_served = match part.resource.kind {
                Kind::Lock => !name.is_work() && self.locks.contains_key(name),
                Kind::Semaphore => self.semaphores.contains_key(name),
            };
            if is_served {
                self.act(Command::reap(part.resource.clone()), now, effects);
            }
        }
    }

    fn renew(&mut self, ticket: Ticket, now: &Now, effects: &mut Vec<Effect>) -> Outcome {
        let Some(claim) = self.claims.get(&ticket).filter(|claim| claim.state == State::Held).cloned() else {
            return Outcome::Gone;
        };
        let mut deadline = None;
        for part in &claim.parts {
            let (holder, epoch) = (claim.holder_of(part), part.epoch.unwrap_or_default());
            match self.act(Command::heartbeat(part.resource.clone(), holder, epoch), now, effects).extended() {
                Some(grant) => deadline = [deadline, grant.deadline()].into_iter().flatten().min(),
                None => return Outcome::Lost(part.resource.clone()),
            }
        }
        Outcome::Renewed(deadline)
    }

    /// Gives back all parts that are still held, except a section in which the holder works on another task.
    fn end(&mut self, ticket: Ticket, now: &Now, effects: &mut Vec<Effect>) -> Outcome {
        if self.claims.get(&ticket).is_none_or(|claim| claim.state != State::Held) {
            return Outcome::Gone;
        }
        let claim = self.claims.remove(&ticket).expect("it was just seen");
        for part in &claim.parts {
            let Some(epoch) = part.epoch else { continue };
            let is_shared = |other: &WorkClaim| {
                other.parts.iter().any(|other| (&other.resource, other.epoch) == (&part.resource, part.epoch))
            };
            if self.claims.values().any(is_shared) {
                continue;
            }
            // The release of a part that was lost or taken away is refused, which does no harm.
            self.act(Command::release(part.resource.clone(), claim.holder_of(part), epoch), now, effects);
        }
        Outcome::Left
    }

    /// The first part that a claim does not hold any more.
    pub fn lost_part(&self, claim: &WorkClaim) -> Option<Resource> {
        let is_held = |part: &&Part| {
            let grant = self.grant_of(&part.resource, &claim.holder_of(part));
            grant.is_some_and(|grant| Some(grant.epoch) == part.epoch)
        };
        claim.parts.iter().find(|part| !is_held(part)).map(|part| part.resource.clone())
    }

    fn act(&mut self, command: Command, now: &Now, effects: &mut Vec<Effect>) -> coordination::Outcome {
        let step = std::mem::take(self).handle(command, &after(now, effects));
        *self = step.state;
        effects.extend(step.effects);
        step.outcome
    }

    /// Panics if an invariant of a claim is broken.
    pub(crate) fn check_claims(&self) {
        for (ticket, claim) in &self.claims {
            assert_eq!(*ticket, claim.ticket);
            let is_held = claim.state == State::Held;
            assert!(
                claim.parts.iter().all(|part| part.epoch.is_some() == is_held),
                "parts of a claim are held together: {claim:?}"
            );
            assert!(!is_held || claim.task.is_some(), "a claim that is held has a task: {claim:?}");
        }
    }
}

#[cfg(test)]
mod tests;
