//! Manual work: a person, or a run on behalf of one, claims a task with everything that it needs, renews the claim and ends it.
//!
//! A task is [`Manual`](State::Manual) exactly as long as its claim is held, and both change in one transaction. A claim that
//! has lost a part or has expired is over: everything is released, and the next call of its holder reports it.

mod end;
mod take;

pub(crate) use end::{conclude, end_broken, end_claims, end_if_over, follow_lock, let_go, refusal, release};
use end::{lose, not_the_holder, unheld};
pub(crate) use take::take;

use banksman_core::event::Resource;
use banksman_core::resource::grant::{Grant, Waiting, WaitingProcess};
use banksman_core::resource::lock;
use banksman_core::resource::work_claim::{self, Input, Outcome, Part, WorkClaim};
use banksman_core::task::{self, Need, State, dependencies};
use banksman_core::{Epoch, HolderId, Name, Now, ProcessId, SectionId, Span, Stamp, Task, TaskId, Ticket, Title, Wall};
use banksman_store::{Key, Tables, Tx};

use crate::calls::steps::{step_task, wake_for, wake_watchers};
use crate::calls::tasks::{self, Edit, TaskOutcome};
use crate::facts;
use crate::request::Seen;

/// The terms on which a holder takes a task.
#[derive(Debug, Clone)]
pub struct Taking {
    pub holder: HolderId,
    /// The holders on whose behalf it acts.
    pub ancestors: Vec<HolderId>,
    /// The section of the task, as it was read and edited: the rows to load follow from it.
    pub section: Option<SectionId>,
    /// The needs of the task, likewise.
    pub needs: Vec<Need>,
    /// How long the claim lives without a heartbeat.
    pub ttl: Span,
    /// Take the task although a dependency is not completed.
    pub anyway: bool,
    /// Changes to the task in the same transaction.
    pub edit: Option<Box<Edit>>,
    /// The ticket of the claim, if it waits already.
    pub ticket: Option<Ticket>,
    /// The waiting process, and how long others may overtake it.
    pub wait: Option<(WaitingProcess, Span)>,
    /// The observed state of the holders in the way.
    pub seen: Seen,
}

impl Taking {
    /// Takes a task that has no section and no needs, without waiting.
    pub fn new(holder: HolderId, ttl: Span) -> Taking {
        let (ancestors, needs, seen) = (Vec::new(), Vec::new(), Seen::default());
        let (section, anyway, edit, ticket, wait) = (None, false, None, None, None);
        Taking { holder, ancestors, section, needs, ttl, anyway, edit, ticket, wait, seen }
    }
}

/// A holder that blocks a claim on a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedBy {
    /// The lock or the semaphore.
    pub lock: Name,
    /// The holder, or the waiter for whom it is reserved.
    pub holder: HolderId,
    /// Since when the holder has it, or the waiter waits for it.
    pub since: Option<Wall>,
    /// When the grant expires.
    pub until: Option<Wall>,
    /// Whether it is free, and reserved for a waiter.
    pub is_reserved: bool,
    /// Groups of processes: once all processes of a group are dead, another attempt may succeed.
    pub watch: Vec<Vec<ProcessId>>,
}

impl LockedBy {
    pub fn new(lock: Name, holder: HolderId, until: Option<Wall>) -> LockedBy {
        LockedBy { lock, holder, since: None, until, is_reserved: false, watch: Vec::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimWaiting {
    /// The ticket, the position, and the processes to watch.
    pub waiting: Waiting,
    pub locked_by: Vec<LockedBy>,
    pub at: Stamp,
}

/// A dependency that is not completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    pub task: TaskId,
    /// The title, if the task exists.
    pub title: Option<Title>,
}

/// The resources of a claim on a task.
pub(crate) fn parts(id: &TaskId, section: Option<&SectionId>, needs: &[Need]) -> Vec<Part> {
    let section = section.map(|section| Need::Lock(section.lock()));
    // Needs that the pipeline keeps are held by the pipeline.
    let own = needs.iter().filter(|need| !matches!(need, Need::Kept { .. }));
    let all = [Need::Lock(id.lock())].into_iter().chain(section).chain(own.cloned());
    let mut parts: Vec<Part> = all.map(|need| part(&need)).collect();
    parts.sort_by(|a, b| a.resource.cmp(&b.resource));
    parts.dedup_by(|a, b| a.resource == b.resource);
    parts
}

pub(crate) fn part(need: &Need) -> Part {
    Part { resource: need.resource(), weight: need.weight(), epoch: None }
}

pub(crate) fn keys(id: &TaskId, taking: &Taking) -> Vec<Key> {
    let mut keys = vec![Key::Lock(id.lock()), Key::Sections, Key::Live, Key::OpenDecisions];
    keys.extend([Key::Dependencies(id.clone()), Key::Manual(id.clone()), Key::Pipeline(id.clone())]);
    keys.extend(facts::resource_keys(taking.section.as_ref(), &taking.needs));
    keys.extend(taking.wait.as_ref().map(|_| Key::Waits));
    keys.extend(taking.edit.iter().flat_map(|edit| tasks::edit_keys(id, edit)));
    keys
}

/// When the claim on a task expires.
fn deadline(id: &TaskId, tables: &Tables) -> Option<banksman_core::Lease> {
    grant(id, tables).and_then(Grant::deadline)
}

/// The grant of the lock of a task.
fn grant<'a>(id: &TaskId, tables: &'a Tables) -> Option<&'a Grant> {
    match &tables.coordination.locks.get(&id.lock())?.state {
        lock::State::Held(grant) => Some(grant),
        lock::State::Free => None,
    }
}

/// The dependencies of a task that are not completed.
fn unmet(task: &Task, tables: &Tables) -> Vec<Unmet> {
    let edges = tables.backlog.edges.get(&task.id).map_or(&[][..], Vec::as_slice);
    let on = |task: &TaskId| tables.backlog.tasks.get(task);
    let is_met = |edge: &&banksman_core::backlog::Edge| {
        on(&edge.on).is_some_and(|on| dependencies::is_met(on.status(), edge.allow_failed))
    };
    let unmet = edges.iter().filter(|edge| !is_met(edge));
    unmet.map(|edge| Unmet { task: edge.on.clone(), title: on(&edge.on).map(|task| task.spec.title.clone()) }).collect()
}

/// Removes a waiting claim. Waiters for the same resources are woken: they may have been reserved for this claim.
pub(crate) fn leave(ticket: Ticket, now: &Now, tx: &mut Tx) -> TaskOutcome {
    let Some(claim) = tx.tables.coordination.claims.get(&ticket).cloned() else { return TaskOutcome::Left };
    if let Outcome::Left = work(Input::Leave { ticket }, now, tx) {
        let resources: Vec<Resource> = claim.parts.into_iter().map(|part| part.resource).collect();
        wake_for(&resources, tx);
    }
    TaskOutcome::Left
}

/// Removes the claim of a process that is dead or has been silent for too long. A claim that was woken and has not been tried again
/// moves behind the others.
pub(crate) fn drop_over(ticket: Ticket, seen: &Seen, tx: &mut Tx) -> TaskOutcome {
    let now = seen.now(tx);
    let Some(claim) = tx.tables.coordination.claims.get(&ticket).cloned() else { return TaskOutcome::Left };
    if claim.is_over(&now) {
        return leave(ticket, &now, tx);
    }
    if let Outcome::Yielded = work(Input::Yield { ticket }, &now, tx) {
        let resources: Vec<Resource> = claim.parts.into_iter().map(|part| part.resource).collect();
        wake_for(&resources, tx);
    }
    TaskOutcome::Left
}

/// Lets others pass the claims that were woken in their turn and have not been tried again, except the `own` one. The rows of
/// [`turn_keys`] must be loaded.
pub(crate) fn pass_absent(own: Option<Ticket>, seen: &Seen, tx: &mut Tx) {
    let now = seen.now(tx);
    let is_late = |claim: &&WorkClaim| claim.turn_ends().is_some_and(|end| now.is_past(end)) && Some(claim.ticket) != own;
    let late: Vec<Ticket> = tx.tables.coordination.claims.values().filter(is_late).map(|claim| claim.ticket).collect();
    for ticket in late {
        drop_over(ticket, seen, tx);
    }
}

/// The resources of the claims whose turn it is: if others pass such a claim, its resources go to their next waiters.
pub(crate) fn turn_keys(loaded: &Tables) -> impl Iterator<Item = Key> {
    let in_turn = loaded.coordination.claims.values().filter(|claim| claim.turn_ends().is_some());
    in_turn.flat_map(|claim| &claim.parts).map(|part| Key::resource(&part.resource))
}

/// Renews all parts of a claim. A claim that has lost a part is over.
pub(crate) fn renew(id: &TaskId, by: Option<&HolderId>, epoch: Option<Epoch>, tx: &mut Tx) -> TaskOutcome {
    let Some(task) = tx.tables.backlog.tasks.get(id) else { return TaskOutcome::Unknown };
    let State::Manual { holder, epoch: current, .. } = task.state.clone() else {
        return unheld(id, by, epoch, &mut tx.tables).unwrap_or(TaskOutcome::NotClaimed);
    };
    if let Some(refusal) = not_the_holder(task, by, epoch, tx) {
        return refusal;
    }
    let now = tx.now(Vec::new(), Span::ZERO);
    let input = match tx.tables.coordination.claim_of(id) {
        Some(claim) => Input::Renew { ticket: claim.ticket },
        None => Input::Renew { ticket: adopt_claim(id, &holder, current, tx) },
    };
    match work(input, &now, tx) {
        Outcome::Renewed(_) => {
            let until = deadline(id, &tx.tables);
            step_task(tx, id, task::Input::Take { holder, epoch: current, until }, None);
            TaskOutcome::Renewed(Box::new(tx.tables.backlog.tasks[id].clone()))
        }
        Outcome::Lost(resource) => {
            let reason = format!("{resource} was lost");
            let lost = lose(id, &reason, tx);
            tx.tables.backlog.lost_claims.remove(&(id.clone(), holder));
            lost.map_or(TaskOutcome::NotClaimed, TaskOutcome::Lost)
        }
        other => unreachable!("a claim that is held is renewed or lost: {other:?}"),
    }
}

/// Adds the row of a claim that an earlier version has made without one.
fn adopt_claim(id: &TaskId, holder: &HolderId, epoch: Epoch, tx: &mut Tx) -> Ticket {
    let ticket = tx.ticket;
    tx.carry_out(Vec::new(), true);
    let section = tx.tables.backlog.tasks.get(id).and_then(|task| task.spec.section.as_ref()).map(SectionId::lock);
    let section = section.and_then(|name| match tx.tables.coordination.locks.get(&name).map(|lock| &lock.state) {
        Some(lock::State::Held(grant)) if grant.claim.holder == *holder => Some((name, grant.epoch)),
        Some(_) | None => None,
    });
    let held = |(name, epoch): (Name, Epoch)| Part { epoch: Some(epoch), ..part(&Need::Lock(name)) };
    let parts = section.into_iter().chain([(id.lock(), epoch)]).map(held).collect();
    let state = work_claim::State::Held;
    let (task, in_the_way) = (Some(id.clone()), Default::default());
    let claim = WorkClaim { ticket, holder: holder.clone(), task, parts, state, in_the_way };
    tx.tables.coordination.claims.insert(ticket, claim);
    ticket
}

/// The holder that has taken a task for manual work, unless it is the caller.
pub(crate) fn locked_by(task: &Task, by: Option<&HolderId>, tx: &Tx) -> Option<LockedBy> {
    match &task.state {
        State::Manual { holder, until, .. } if by != Some(holder) => {
            let until = until.map(|until| Wall(tx.wall.0 + (until - tx.lease).as_ms()));
            Some(LockedBy { since: Some(task.changed.wall), ..LockedBy::new(task.id.lock(), holder.clone(), until) })
        }
        _ => None,
    }
}

/// Steps the claims, and carries out the effects.
pub(crate) fn work(input: Input, now: &Now, tx: &mut Tx) -> Outcome {
    let now = Now { seq: tx.seq, ticket: tx.ticket, ..now.clone() };
    let step = std::mem::take(&mut tx.tables.coordination).work(input, &now);
    tx.tables.coordination = step.state;
    let took_ticket = match &step.outcome {
        Outcome::Held(claim) => claim.ticket == now.ticket,
        Outcome::Waiting(waiting, _) => waiting.ticket == now.ticket,
        _ => false,
    };
    wake_watchers(&step.effects, tx);
    tx.carry_out(step.effects, took_ticket);
    step.outcome
}
