//! A claim: everything that somebody takes to work on a task, all of it or nothing.
//!
//! ```text
//!              take: every part is free                       end, or a part was lost
//!   (none) ------------------------------------> Held -----------------------------------> (none)
//!      |  take: something is in the way           ^
//!      v                                          |  take: every part is free by now
//!   Waiting --------------------------------------'
//!      |  leave; a deadlock; its process is dead
//!      v
//!   (none)
//! ```
//!
//! When the last part is freed it is its turn: it is woken, and has as long as an offer lasts to try again. One that does not, because its
//! process is stopped, yields: it keeps its ticket, but nothing is reserved for it until it tries. Then it is the turn of all for whom everything
//! is free, as they may be stopped too.
//!
//! A claim that waits holds nothing and stands in no line: it tries again when a part is freed. Others may overtake it for a
//! while; then the parts that are free are reserved for it, and only those pass who hold something that it waits for.
//!
//! Invariants: a claim that is held has the epoch of every part, one that waits has none.

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

/// A claim that is held, or waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkClaim {
    /// Its number: a lower one came earlier.
    pub ticket: Ticket,
    /// Who works on the task, or wants to.
    pub holder: HolderId,
    /// The task. A run that waits for the end of tasks wants none of them.
    pub task: Option<TaskId>,
    /// All that it needs.
    pub parts: Vec<Part>,
    pub state: State,
    /// Who held its parts when the rows were read, while it waits: not all locks and semaphores are read for each decision.
    pub in_the_way: BTreeSet<HolderId>,
}

/// One resource of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The lock or the semaphore.
    pub resource: Resource,
    /// How many slots; one of a lock.
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

/// How a claim waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Terms {
    /// The holders on whose behalf it asks: they wait for as long as it waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<HolderId>,
    pub standing: WaitingProcess,
    pub since: Stamp,
    /// When it last tried. Only kept up for one whose place has a lease.
    pub seen: Lease,
    /// How long others may overtake it; without it nothing is ever reserved for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overtake: Option<Span>,
    /// When it was woken because all that it waits for was free, if it has not tried since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Lease>,
    /// Whether that was so long ago that others were told that nothing is reserved for it any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_yielded: bool,
}

/// What can be asked of claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Take all parts, or wait for them.
    Take(Box<Take>),
    /// Wait until tasks are over, as a run. Nothing is taken.
    Await(Box<Take>),
    Leave {
        ticket: Ticket,
    },
    /// Its turn is over: its process was woken and has not tried again. It waits on, but nothing is reserved for it before it does.
    Yield {
        /// The claim.
        ticket: Ticket,
    },
    /// Show a sign of life for all parts.
    Renew {
        ticket: Ticket,
    },
    /// Give all parts back.
    End {
        ticket: Ticket,
    },
}

/// What somebody wants to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Take {
    pub holder: HolderId,
    /// The holders on whose behalf.
    pub ancestors: Vec<HolderId>,
    /// To work on this task.
    pub task: Option<TaskId>,
    /// All that is needed, without epochs.
    pub parts: Vec<Part>,
    /// How long the grants live without a sign of life.
    pub ttl: Span,
    /// The number of the claim, if it waits already.
    pub ticket: Option<Ticket>,
    /// Who waits, and how long others may overtake it; without it the answer is a refusal.
    pub wait: Option<(WaitingProcess, Option<Span>)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Held(Box<WorkClaim>),
    /// It was held already, and stays so for another time to live.
    Renewed(Option<Lease>),
    /// Something is in the way, and the caller does not wait.
    Busy(Vec<Obstacle>),
    /// Something is in the way, and the claim waits.
    Waiting(Waiting, Vec<Obstacle>),
    /// Waiting would never end; the claim is not there any more.
    Deadlock(Vec<Link>),
    /// A part can never be granted: the semaphore was never defined, or has fewer slots.
    Never {
        /// Which semaphore.
        name: Name,
        /// How many slots it has, if it is defined.
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
    /// How it waits, if it does.
    pub fn waits(&self) -> Option<&Terms> {
        match &self.state {
            State::Waiting(terms) => Some(terms),
            State::Held => None,
        }
    }

    /// Whether it waits, and its process is dead or was not seen for too long.
    pub fn is_over(&self, now: &Now) -> bool {
        self.waits().is_some_and(|terms| {
            let standing = &terms.standing;
            now.dead.contains(&standing.process) || standing.lease.is_some_and(|lease| now.is_past(terms.seen + lease))
        })
    }

    /// Since when its process owes a try, if it has owed it for too long: it may be stopped. Nothing is reserved for it.
    pub fn unanswered(&self, now: &Now) -> Option<Lease> {
        let terms = self.waits()?;
        terms.turn.filter(|_| terms.has_yielded || terms.is_late(now))
    }

    /// When its turn is over, if it has one.
    pub fn turn_ends(&self) -> Option<Lease> {
        let terms = self.waits().filter(|terms| !terms.has_yielded)?;
        terms.turn.map(|turn| turn + OFFER)
    }

    pub fn wants(&self, resource: &Resource) -> bool {
        self.parts.iter().any(|part| part.resource == *resource)
    }

    /// The name under which it holds a part: a semaphore knows its holders by name, and one may work on several tasks.
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
    /// Whether it has not tried for as long as an offer lasts though it was its turn, and others were not told so yet.
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
        // It tries, so that it is not absent: what others do not hold is reserved for it again.
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

    /// Puts the claim among those who wait, unless the caller does not wait or it would be for ever.
    fn wait(&mut self, take: &Take, obstacles: Vec<Obstacle>, now: &Now) -> Outcome {
        let Some((standing, overtake)) = take.wait.clone() else { return Outcome::Busy(obstacles) };
        let row = take.ticket.and_then(|ticket| self.claims.get(&ticket));
        let in_the_way = row.map(|claim| claim.in_the_way.clone()).unwrap_or_default();
        let before = row.and_then(WorkClaim::waits);
        let (ticket, since) = match (take.ticket, before) {
            (Some(ticket), Some(terms)) => (ticket, terms.since),
            _ => (now.ticket, now.stamp()),
        };
        // A third of the lease is near enough, and saves a write for most tries.
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
        // What is over stays in the rows until somebody takes it.
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

    /// Removes a claim that waits. What was reserved for it goes to those who stand in line.
    fn leave(&mut self, ticket: Ticket, now: &Now, effects: &mut Vec<Effect>) -> Outcome {
        if self.claims.get(&ticket).is_none_or(|claim| claim.waits().is_none()) {
            return Outcome::Gone;
        }
        let claim = self.claims.remove(&ticket).expect("it was just seen");
        self.serve_waiters(&claim, now, effects);
        Outcome::Left
    }

    /// Lets a claim that has not tried in its turn come last, until it tries again.
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

    /// What was reserved for a claim goes to those who stand in line.
    fn serve_waiters(&mut self, claim: &WorkClaim, now: &Now, effects: &mut Vec<Effect>) {
        for part in &claim.parts {
            let name = &part.resource.name;
            // Who works on a task, or in a section, is seen to by those who ask about it.
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

    /// Gives everything back that is still held, but for a section in which the holder works on another task.
    fn end(&mut self, ticket: Ticket, now: &Now, effects: &mut Vec<Effect>) -> Outcome {
        if self.claims.get(&ticket).is_none_or(|claim| claim.state != State::Held) {
            return Outcome::Gone;
        }
        let claim = self.claims.remove(&ticket).expect("it was just seen");
        for part in &claim.parts {
            let Some(epoch) = part.epoch else { continue };
            let is_shared = |other: &WorkClaim| {
                other.parts.iter().any(|theirs| (&theirs.resource, theirs.epoch) == (&part.resource, part.epoch))
            };
            if self.claims.values().any(is_shared) {
                continue;
            }
            // What was lost or taken away is refused, and that is as good.
            self.act(Command::release(part.resource.clone(), claim.holder_of(part), epoch), now, effects);
        }
        Outcome::Left
    }

    /// The first part of a claim that it does not hold any more.
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
