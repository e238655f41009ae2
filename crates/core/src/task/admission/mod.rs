//! Admission: whether a task may run now. One pure function that answers with every reason why not.

use std::collections::BTreeMap;

use crate::agent::limit::{self, AccountLimit};
use crate::backlog::Section;
use crate::event::{Kind, Resource};
use crate::ids::{DecisionId, HolderId, Name, RunId, RunnerId, TaskId, Title};
use crate::pause::Pause;
use crate::resource::grant::Grant;
use crate::resource::lock::{Lock, State as LockState};
use crate::resource::semaphore::{HOLDER_LIMIT, Semaphore};
use crate::resource::work_claim::Reservation;
use crate::step::Now;
use crate::task::dependencies;
use crate::task::roots::Roots;
use crate::task::{Need, State, Status, Task, Work};
use crate::time::{Lease, Stamp};

/// The facts that the answer depends on, beside the task itself.
#[derive(Debug, Clone, Default)]
pub struct Facts<'a> {
    /// The runner that would run it. Without one the question is whether a new runner could.
    pub runner: Option<&'a RunnerId>,
    /// The pause of the project.
    pub pause: Option<&'a Pause>,
    pub dependencies: Vec<Dependency<'a>>,
    /// Its section, if that is exclusive.
    pub section: Option<Exclusive<'a>>,
    /// Its own lock, if that was ever held.
    pub lock: Option<&'a Lock>,
    /// The state of its needs, in the order of the task's list.
    pub needs: Vec<Needed<'a>>,
    /// The run slots, if they are limited.
    pub slots: Option<&'a Semaphore>,
    /// The roots that are under way, if their number is limited.
    pub roots: Option<Roots<'a>>,
    /// The limits of accounts that were reached.
    pub account_limits: Vec<&'a AccountLimit>,
    /// The reservations of all these resources for waiting claims.
    pub reserved: BTreeMap<Resource, Reservation>,
}

/// A dependency of the task.
#[derive(Debug, Clone, Copy)]
pub struct Dependency<'a> {
    pub task: &'a TaskId,
    /// Its title; `None` if it is gone.
    pub title: Option<&'a Title>,
    /// Its status; `None` if it is gone.
    pub status: Option<Status>,
    pub since: Option<Stamp>,
    /// Whether any end of it is enough.
    pub allow_failed: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Exclusive<'a> {
    pub section: &'a Section,
    /// Its lock, if that is not held for runs of the section: those runs are checked themselves.
    pub lock: Option<&'a Lock>,
    /// A live run in it that belongs to another runner.
    pub foreign: Option<(&'a RunId, &'a RunnerId, Stamp)>,
}

/// A lock or a semaphore that is needed.
#[derive(Debug, Clone, Copy)]
pub enum Needed<'a> {
    /// A lock; `None` if it was never held.
    Lock(Option<&'a Lock>),
    /// A semaphore; `None` if it was never defined.
    Slots(Option<&'a Semaphore>),
}

impl Needed<'_> {
    /// Whether a pipeline holds slots of it.
    fn is_held_by(&self, pipeline: &TaskId, now: &Now) -> bool {
        let Needed::Slots(Some(semaphore)) = self else { return false };
        semaphore.holders.get(&pipeline.pipeline_holder()).is_some_and(|grant| !grant.is_lost(now))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    Run,
    /// It may not run. These are all reasons.
    Blocked(Vec<Reason>),
}

/// A reason why a task may not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    NotPending(Status),
    /// It has no work for a runner: it is manual.
    NoWork,
    /// It waits between two attempts.
    Backoff {
        until: Lease,
    },
    /// A person has paused it, or the project.
    Paused {
        pause: Pause,
        /// Whether the pause is for this task alone.
        is_task: bool,
    },
    /// It waits for a person to decide.
    Decision(DecisionId),
    /// As many roots as allowed are under way.
    NoRoot {
        limit: u32,
        /// The roots, and since when they have their status.
        roots: Vec<(TaskId, Title, Stamp)>,
    },
    /// A dependency is not completed.
    Dependency {
        task: TaskId,
        title: Option<Title>,
        /// Its status; `None` if it is gone.
        status: Option<Status>,
        since: Option<Stamp>,
    },
    /// Another runner works in its exclusive section.
    Section {
        name: Title,
        /// Its lock.
        resource: Resource,
        /// The present holder.
        holder: Holding,
    },
    /// A run of another runner still lives in its exclusive section.
    SectionBusy {
        name: Title,
        run: RunId,
        /// The runner that supervises it.
        owner: RunnerId,
        since: Stamp,
    },
    /// It is taken for manual work.
    TaskLock {
        /// Its lock.
        resource: Resource,
        holder: Holding,
    },
    /// A lock that it needs is held.
    Lock {
        resource: Resource,
        holder: Holding,
    },
    /// A semaphore that it needs has too few free slots, or others wait for them.
    Slots {
        resource: Resource,
        wanted: u32,
        available: u32,
        capacity: u32,
        /// The number of waiters.
        waiters: usize,
        /// The present holders.
        holders: Vec<Holding>,
    },
    /// A semaphore that it needs was never defined.
    Undefined {
        resource: Resource,
    },
    /// A resource that it needs is free, and reserved for a claim that has waited for it.
    Reserved {
        resource: Resource,
        /// The holder of the claim.
        holder: HolderId,
        /// The task of the claim.
        task: Option<TaskId>,
        since: Stamp,
        /// The name of the section, if it is the lock of one.
        section: Option<Title>,
    },
    /// The account of its agent is limited, or not logged in, or the budget of the day is spent.
    AccountLimit {
        agent: Name,
        limit: Box<AccountLimit>,
    },
    /// All run slots are taken, or others wait for them.
    NoSlot {
        capacity: u32,
        /// The number of waiters.
        waiters: usize,
        holders: Vec<Holding>,
    },
}

/// A holder, and since when it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    pub holder: HolderId,
    pub since: Stamp,
    /// When time alone will end it.
    pub until: Option<Lease>,
}

impl Holding {
    fn of(grant: &Grant) -> Holding {
        Holding { holder: grant.claim.holder.clone(), since: grant.acquired, until: grant.deadline() }
    }
}

impl Reason {
    /// The holders of the missing resource.
    pub fn holders(&self) -> &[Holding] {
        match self {
            Reason::Section { holder, .. } | Reason::TaskLock { holder, .. } | Reason::Lock { holder, .. } => {
                std::slice::from_ref(holder)
            }
            Reason::Slots { holders, .. } | Reason::NoSlot { holders, .. } => holders,
            Reason::NotPending(_)
            | Reason::NoWork
            | Reason::Backoff { .. }
            | Reason::Paused { .. }
            | Reason::Decision(_)
            | Reason::NoRoot { .. }
            | Reason::Dependency { .. }
            | Reason::SectionBusy { .. }
            | Reason::Reserved { .. }
            | Reason::AccountLimit { .. }
            | Reason::Undefined { .. } => &[],
        }
    }

    /// Whether it is a limit of the project.
    pub fn is_limit(&self) -> bool {
        matches!(self, Reason::NoSlot { .. } | Reason::NoRoot { .. })
    }

    /// The resource whose release may change it.
    pub fn resource(&self) -> Option<Resource> {
        match self {
            Reason::Section { resource, .. }
            | Reason::TaskLock { resource, .. }
            | Reason::Lock { resource, .. }
            | Reason::Slots { resource, .. }
            | Reason::Reserved { resource, .. }
            | Reason::Undefined { resource } => Some(resource.clone()),
            Reason::AccountLimit { limit, .. } => Some(Resource { kind: Kind::Lock, name: limit.name.clone() }),
            Reason::NoSlot { .. } => Some(Resource { kind: Kind::Semaphore, name: Name::runs() }),
            // The call that ends one of these wakes all runners.
            Reason::NotPending(_)
            | Reason::NoWork
            | Reason::Backoff { .. }
            | Reason::Paused { .. }
            | Reason::Decision(_)
            | Reason::NoRoot { .. }
            | Reason::Dependency { .. }
            | Reason::SectionBusy { .. } => None,
        }
    }
}

/// Decides. Readiness comes first in the list, slots last, so that the first reason is the one to act on.
pub fn admit(task: &Task, facts: &Facts<'_>, now: &Now) -> Admission {
    let mut reasons = Vec::new();
    match &task.state {
        State::Pending => {}
        State::Backoff { until } if now.lease < *until => reasons.push(Reason::Backoff { until: *until }),
        State::Backoff { .. } => {}
        State::AwaitingDecision { decision } => return Admission::Blocked(vec![Reason::Decision(decision.clone())]),
        // The person who works on it has its lock.
        State::Manual { .. } if held(facts.lock, None, now).is_some() => {}
        State::Manual { .. }
        | State::Held
        | State::Running(_)
        | State::Stuck { .. }
        | State::Stopping { .. }
        | State::Awaiting { .. }
        | State::InPhases { .. }
        | State::Landing { .. }
        | State::Review
        | State::Done(_) => {
            return Admission::Blocked(vec![Reason::NotPending(task.status())]);
        }
    }
    if task.spec.work.is_none() {
        reasons.push(Reason::NoWork);
    } else {
        let own = task.spec.paused.as_deref().map(|pause| (pause, true));
        let paused = facts.pause.map(|pause| (pause, false)).into_iter().chain(own);
        reasons.extend(paused.map(|(pause, is_task)| Reason::Paused { pause: pause.clone(), is_task }));
    }
    let unmet = facts.dependencies.iter().filter(|dependency| !dependency.is_met());
    reasons.extend(unmet.map(|dependency| Reason::Dependency {
        task: dependency.task.clone(),
        title: dependency.title.cloned(),
        status: dependency.status,
        since: dependency.since,
    }));
    let own = task.id.lock();
    if let Some(holder) = held(facts.lock, None, now) {
        reasons.push(Reason::TaskLock { resource: Resource { kind: Kind::Lock, name: own }, holder });
    } else {
        reasons.extend(facts.reserved(Kind::Lock, &own));
    }
    // A pipeline does nothing itself: its phases have the needs.
    if let Some(exclusive) = facts.section.as_ref().filter(|_| !task.has_phases()) {
        reasons.extend(exclusive.reason(facts.runner, now));
        // Once a person waits for the section, nothing starts in it, not even by the runner that works there now.
        reasons.extend(facts.reserved(Kind::Lock, &exclusive.section.id.lock()));
    }
    let needs = task.spec.needs_to_begin(facts.roots.is_some());
    assert_eq!(needs.len(), facts.needs.len(), "each need of {} has its fact", task.id);
    for (need, needed) in needs.iter().zip(&facts.needs) {
        let reserved = || facts.reserved_need(need, needed, now).or_else(|| first_waiter(need, needed, now));
        reasons.extend(unmet_need(need, needed, now).or_else(reserved));
    }
    if let Some(Work::Agent(work)) = &task.spec.work
        && let Err(limits) = limit::choose(work, facts.account_limits.iter().copied(), now)
    {
        let reason = |(choice, limit): (&crate::agent::AgentChoice, &AccountLimit)| Reason::AccountLimit {
            agent: choice.agent.clone(),
            limit: Box::new(limit.clone()),
        };
        reasons.extend(limits.into_iter().map(reason));
    }
    if let Some(roots) = facts.roots.as_ref().filter(|roots| !roots.admit(task)) {
        let begun = roots.begun.iter().map(|root| (root.id.clone(), root.spec.title.clone(), root.changed));
        reasons.push(Reason::NoRoot { limit: roots.limit, roots: begun.collect() });
    }
    if let Some(slots) = facts.slots.filter(|_| !task.has_phases()) {
        let blocked = unmet_slots(slots, 1, now);
        reasons.extend(blocked.map(|(_, holders)| Reason::NoSlot {
            capacity: slots.config.capacity,
            waiters: slots.waiters.present(now),
            holders,
        }));
    }
    if reasons.is_empty() { Admission::Run } else { Admission::Blocked(reasons) }
}

impl Facts<'_> {
    /// The reservation of a free resource, as a reason.
    fn reserved(&self, kind: Kind, name: &Name) -> Option<Reason> {
        let resource = Resource { kind, name: name.clone() };
        let kept = self.reserved.get(&resource)?;
        let (holder, task, since) = (kept.holder.clone(), kept.task.clone(), kept.since);
        let section = self.section.as_ref().filter(|one| one.section.id.lock() == *name).map(|one| one.section.name.clone());
        Some(Reason::Reserved { resource, holder, task, since, section })
    }

    /// As above, for a lock or slots that are needed: the reserved slots of a semaphore may leave enough.
    fn reserved_need(&self, need: &Need, needed: &Needed<'_>, now: &Now) -> Option<Reason> {
        match (need, needed) {
            (Need::Slots { name, weight }, Needed::Slots(Some(semaphore))) => {
                let kept = self.reserved.get(&Resource { kind: Kind::Semaphore, name: name.clone() })?.weight;
                unmet_slots(semaphore, weight.saturating_add(kept), now)?;
                self.reserved(Kind::Semaphore, name)
            }
            (Need::Slots { .. }, _) => None,
            // Its pipeline has the lock, so that it is not reserved.
            (Need::Kept { .. }, Needed::Lock(Some(lock))) if lock.state != LockState::Free => None,
            (Need::Kept { name, pipeline, slots: Some(weight) }, _) => {
                let slots = Need::Slots { name: name.clone(), weight: *weight };
                if needed.is_held_by(pipeline, now) { None } else { self.reserved_need(&slots, needed, now) }
            }
            (Need::Lock(name) | Need::Kept { name, slots: None, .. }, _) => self.reserved(Kind::Lock, name),
        }
    }
}

impl Dependency<'_> {
    fn is_met(&self) -> bool {
        self.status.is_some_and(|status| dependencies::is_met(status, self.allow_failed))
    }
}

impl Exclusive<'_> {
    fn reason(&self, runner: Option<&RunnerId>, now: &Now) -> Option<Reason> {
        let name = &self.section.name;
        if let Some(holder) = held(self.lock, runner.map(RunnerId::holder).as_ref(), now) {
            let resource = Resource { kind: Kind::Lock, name: self.section.id.lock() };
            return Some(Reason::Section { name: name.clone(), resource, holder });
        }
        // The lock of a runner that died is free, but its runs may live on until another runner adopts them.
        let foreign = self.foreign.filter(|(_, owner, _)| runner != Some(*owner));
        foreign.map(|(run, owner, since)| Reason::SectionBusy {
            name: name.clone(),
            run: run.clone(),
            owner: owner.clone(),
            since,
        })
    }
}

fn unmet_need(need: &Need, needed: &Needed<'_>, now: &Now) -> Option<Reason> {
    match (need, needed) {
        (Need::Lock(name), Needed::Lock(lock)) => {
            let holder = held(*lock, None, now)?;
            Some(Reason::Lock { resource: Resource { kind: Kind::Lock, name: name.clone() }, holder })
        }
        (Need::Kept { name, pipeline, slots: Some(weight) }, Needed::Slots(_)) => {
            let slots = Need::Slots { name: name.clone(), weight: *weight };
            if needed.is_held_by(pipeline, now) { None } else { unmet_need(&slots, needed, now) }
        }
        (Need::Kept { name, pipeline, slots: None }, Needed::Lock(lock)) => {
            let holder = held(*lock, Some(&pipeline.pipeline_holder()), now)?;
            Some(Reason::Lock { resource: Resource { kind: Kind::Lock, name: name.clone() }, holder })
        }
        (Need::Slots { name, weight }, Needed::Slots(semaphore)) => {
            let resource = Resource { kind: Kind::Semaphore, name: name.clone() };
            let Some(semaphore) = semaphore else { return Some(Reason::Undefined { resource }) };
            let (available, holders) = unmet_slots(semaphore, *weight, now)?;
            let (capacity, waiters) = (semaphore.config.capacity, semaphore.waiters.present(now));
            Some(Reason::Slots { resource, wanted: *weight, available, capacity, waiters, holders })
        }
        (Need::Lock(_) | Need::Kept { slots: None, .. }, Needed::Slots(_))
        | (Need::Slots { .. } | Need::Kept { slots: Some(_), .. }, Needed::Lock(_)) => {
            unreachable!("facts are collected in the order of the needs")
        }
    }
}

/// The waiter that gets a free lock: the lock was reserved for a claim that is gone, and goes to the first waiter at
/// the next call.
fn first_waiter(need: &Need, needed: &Needed<'_>, now: &Now) -> Option<Reason> {
    let (Need::Lock(name) | Need::Kept { name, .. }, Needed::Lock(Some(lock))) = (need, needed) else { return None };
    let first = lock.waiters.iter().find(|waiter| !waiter.is_over(now)).filter(|_| lock.state == LockState::Free)?;
    let resource = Resource { kind: Kind::Lock, name: name.clone() };
    Some(Reason::Reserved { resource, holder: first.claim.holder.clone(), task: None, since: first.since, section: None })
}

/// The holder of a lock, unless it is `own` or the grant is over.
fn held(lock: Option<&Lock>, own: Option<&HolderId>, now: &Now) -> Option<Holding> {
    let lock = lock?;
    let grant = match &lock.state {
        LockState::Free => return None,
        LockState::Held(grant) => grant,
    };
    let is_own = Some(&grant.claim.holder) == own;
    let is_over = if is_own { grant.is_lost(now) } else { grant.over(now).is_some() };
    // A grant that is over goes to the first waiter, if there is one.
    let is_free = if is_over { lock.waiters.present(now) == 0 } else { is_own };
    (!is_free).then(|| Holding::of(grant))
}

/// The number of free slots and the holders of the others, if the weight does not fit.
fn unmet_slots(semaphore: &Semaphore, weight: u32, now: &Now) -> Option<(u32, Vec<Holding>)> {
    let holders = || semaphore.holders.values().filter(|grant| weight_left(grant, now) > 0);
    let available = semaphore.free(now);
    let has_place = semaphore.waiters.present(now) == 0 && holders().count() < HOLDER_LIMIT;
    let fits = has_place && weight <= available;
    (!fits).then(|| (available, holders().map(Holding::of).collect()))
}

/// How many slots a grant keeps if everything that is over of it ends: an increase that was offered and not taken up
/// leaves the earlier slots.
pub(crate) fn weight_left(grant: &Grant, now: &Now) -> u32 {
    match (grant.over(now), grant.offer.as_ref().and_then(|offer| offer.from_weight)) {
        (None, _) => grant.claim.weight,
        (Some(_), Some(kept)) if (Grant { offer: None, ..grant.clone() }).over(now).is_none() => kept,
        (Some(_), _) => 0,
    }
}

#[cfg(test)]
mod tests;
