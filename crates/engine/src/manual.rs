//! Manual work: a person, or a run on behalf of one, claims a task with everything that it needs, renews the claim and ends it.
//!
//! A task is [`ByHand`](State::ByHand) exactly as long as its claim is held, and both change in one transaction. A claim that
//! lost a part, or whose time is up, is over: everything is given back, and its holder is told at its next call.

use banksman_core::backlog::LostClaim;
use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::Command;
use banksman_core::resource::grant::{Grant, Standing, Waiting};
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::resource::work_claim::{self, Input, Obstacle, Outcome, Part, Take, WorkClaim};
use banksman_core::task::dependencies;
use banksman_core::task::{self, Need, State, Verdict};
use banksman_core::{Epoch, HolderId, Name, Now, ProcessId, SectionId, Span, Stamp, Task, TaskId, Ticket, Title, Wall};
use banksman_store::{Key, Tables, Tx};

use crate::facts;
use crate::ledger::{Draft, grant_of, granted, step_task, wake_for, wake_runners, wake_watchers};
use crate::request::Seen;
use crate::tasks::{self, Edit, TaskOutcome};

/// Who takes a task, on which terms.
#[derive(Debug, Clone)]
pub struct Taking {
    /// Who.
    pub holder: HolderId,
    /// The holders on whose behalf.
    pub ancestors: Vec<HolderId>,
    /// The section of the task, as it was read and edited: the rows to load follow from it.
    pub section: Option<SectionId>,
    /// What the task needs, likewise.
    pub needs: Vec<Need>,
    /// How long the claim lives without a sign of life.
    pub ttl: Span,
    /// Whether it is taken though a dependency is not completed.
    pub anyway: bool,
    /// What is changed of the task in the same transaction.
    pub edit: Option<Box<Edit>>,
    /// The number of the claim, if it waits already.
    pub ticket: Option<Ticket>,
    /// Who waits, and how long others may overtake it.
    pub wait: Option<(Standing, Span)>,
    /// What was seen of those in the way.
    pub seen: Seen,
}

impl Taking {
    /// Somebody takes a task that has no section and needs nothing, and does not wait.
    pub fn new(holder: HolderId, ttl: Span) -> Taking {
        let (ancestors, needs, seen) = (Vec::new(), Vec::new(), Seen::default());
        let (section, anyway, edit, ticket, wait) = (None, false, None, None, None);
        Taking { holder, ancestors, section, needs, ttl, anyway, edit, ticket, wait, seen }
    }
}

/// What stands in the way of somebody who wants to work on a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedBy {
    /// The lock or the semaphore.
    pub lock: Name,
    /// Who has it, or for whom it is reserved.
    pub holder: HolderId,
    /// Since when it has it, or waits for it.
    pub since: Option<Wall>,
    /// When that ends by itself.
    pub until: Option<Wall>,
    /// Whether it is free, and reserved for one who waits.
    pub is_reserved: bool,
    /// Groups of processes: once a whole group is dead, asking again changes something.
    pub watch: Vec<Vec<ProcessId>>,
}

impl LockedBy {
    /// Somebody has a lock.
    pub fn new(lock: Name, holder: HolderId, until: Option<Wall>) -> LockedBy {
        LockedBy { lock, holder, since: None, until, is_reserved: false, watch: Vec::new() }
    }
}

/// A claim that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimWaiting {
    /// Its ticket, its place, and whom to watch.
    pub waiting: Waiting,
    /// What stands in the way.
    pub lockouts: Vec<LockedBy>,
    /// When this was so.
    pub at: Stamp,
}

/// A dependency that is not completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    /// The task.
    pub task: TaskId,
    /// What it is called, if it is there.
    pub title: Option<Title>,
}

/// The resources of a claim on a task.
pub(crate) fn parts(id: &TaskId, section: Option<&SectionId>, needs: &[Need]) -> Vec<Part> {
    let section = section.map(|section| Need::Lock(section.lock()));
    // What its pipeline keeps is not the claim's.
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
    keys.extend([Key::Dependencies(id.clone()), Key::ByHand(id.clone()), Key::Pipeline(id.clone())]);
    keys.extend(facts::resource_keys(taking.section.as_ref(), &taking.needs));
    keys.extend(taking.wait.as_ref().map(|_| Key::Waits));
    keys.extend(taking.edit.iter().flat_map(|edit| tasks::edit_keys(id, edit)));
    keys
}

/// Takes a task with all that it needs, or waits for it, or is refused. An edit counts only if the task is taken.
pub(crate) fn take(id: &TaskId, taking: &Taking, tables: &mut Tables, tx: &mut Tx) -> TaskOutcome {
    let now = taking.seen.now(tx);
    for rival in rivals(id, taking, tables) {
        end_if_over(&rival, &now, tables, tx);
    }
    let (mut draft, mut next) = (tables.clone(), tx.clone());
    let outcome = match attempt(id, taking, &now, &mut draft, &mut next) {
        Ok(outcome) => {
            (*tables, *tx) = (draft, next);
            return outcome;
        }
        Err(Refused::Busy(busy)) if taking.wait.is_none() => *busy,
        Err(Refused::Busy(_)) => return wait(id, taking, tables, tx),
        Err(Refused::ForGood(outcome)) => *outcome,
    };
    // Who is refused waits no longer.
    taking.ticket.into_iter().for_each(|ticket| drop(leave(ticket, &now, tables, tx)));
    outcome
}

/// Why a task cannot be taken.
enum Refused {
    /// Others have something that it needs.
    Busy(Box<TaskOutcome>),
    /// Waiting would not help.
    ForGood(Box<TaskOutcome>),
}

fn for_good(outcome: TaskOutcome) -> Refused {
    Refused::ForGood(Box::new(outcome))
}

/// The tasks whose claims may be in the way: that on the task itself, and those in its section, which has no lease.
fn rivals(id: &TaskId, taking: &Taking, tables: &Tables) -> Vec<TaskId> {
    let section = taking.section.as_ref().map(|section| Resource { kind: Kind::Lock, name: section.lock() });
    let claims = tables.coordination.claims.values().filter(|claim| claim.waits().is_none());
    let shared = claims.filter(|claim| section.as_ref().is_some_and(|section| claim.wants(section)));
    let mut rivals: Vec<TaskId> = shared.filter_map(|claim| claim.task.clone()).collect();
    rivals.push(id.clone());
    rivals
}

fn attempt(id: &TaskId, taking: &Taking, now: &Now, tables: &mut Tables, tx: &mut Tx) -> Result<TaskOutcome, Refused> {
    if let Some(edit) = &taking.edit {
        match tasks::update(id, edit, tables, tx) {
            TaskOutcome::Kept(_) => {}
            refused => return Err(for_good(refused)),
        }
    }
    let Some(task) = tables.backlog.tasks.get(id) else { return Err(for_good(TaskOutcome::Unknown)) };
    if (&task.spec.section, &task.spec.needs) != (&taking.section, &taking.needs) {
        return Err(for_good(TaskOutcome::Changed));
    }
    let refusal = match &task.state {
        _ if task.has_phases() => Some(task::Outcome::HasPhases),
        State::Done(done) => Some(task::Outcome::Over(done.status())),
        State::Awaiting { .. } => Some(task::Outcome::NotPending(task.status())),
        _ => None,
    };
    if let Some(refusal) = refusal {
        return Err(for_good(TaskOutcome::Stepped(refusal, Box::new(task.clone()))));
    }
    if let State::ByHand { holder, .. } = &task.state
        && *holder == taking.holder
    {
        return renew(id, Some(&taking.holder), None, tables, tx).map_already();
    }
    let unmet = unmet(task, tables);
    if !unmet.is_empty() && !taking.anyway {
        return Err(for_good(TaskOutcome::DependsOn(unmet)));
    }
    if let Some(section) = &taking.section
        && let Some(busy) = unlocked_run(section, tables)
    {
        return Err(Refused::Busy(Box::new(TaskOutcome::Locked(busy))));
    }
    if let Some(busy) = keep_for_pipeline(taking, now, tables, tx) {
        return Err(Refused::Busy(Box::new(TaskOutcome::Locked(busy))));
    }
    match work(Input::Take(Box::new(wanted(id, taking, tables, None))), now, tables, tx) {
        Outcome::Held(claim) => Ok(begin(id, taking, &claim, tables, tx)),
        Outcome::Busy(obstacles) => {
            let lockout = lockouts(&obstacles, taking, tables).into_iter().next();
            let lockout = lockout.unwrap_or_else(|| LockedBy::new(id.lock(), taking.holder.clone(), None));
            Err(Refused::Busy(Box::new(TaskOutcome::Locked(lockout))))
        }
        Outcome::Never { name, capacity } => Err(for_good(TaskOutcome::NeverFits { name, capacity })),
        other => unreachable!("who does not wait is granted or refused: {other:?}"),
    }
}

/// Takes what the pipeline of a phase keeps, in the name of the pipeline. Says who has a part of it, if somebody else does.
fn keep_for_pipeline(taking: &Taking, now: &Now, tables: &mut Tables, tx: &mut Tx) -> Option<LockedBy> {
    // What is reserved for this very claim is not in its way.
    let own = taking.ticket.and_then(|ticket| tables.coordination.claims.remove_entry(&ticket));
    let mut draft = Draft::new(&tables.coordination, Now { seq: tx.seq, ticket: tx.ticket, ..now.clone() });
    let taken = pipeline_parts(taking, tables).into_iter().find_map(|(need, holder)| {
        let outcome = draft.handle(crate::ledger::take(&need, holder.clone(), Vec::new()));
        granted(&outcome).is_none().then(|| rival_of(&need, holder, tables))
    });
    if taken.is_none() {
        draft.keep(tables, tx);
    }
    tables.coordination.claims.extend(own);
    taken
}

/// What the pipeline of a phase keeps, with the name under which it does, as far as it does not hold it yet.
fn pipeline_parts(taking: &Taking, tables: &Tables) -> Vec<(Need, HolderId)> {
    let kept = taking.needs.iter().filter_map(|need| match need {
        Need::Kept { pipeline, .. } => Some((need.clone(), pipeline.pipeline_holder())),
        Need::Lock(_) | Need::Slots { .. } => None,
    });
    kept.filter(|(need, holder)| grant_of(&need.resource(), holder, &tables.coordination).is_none()).collect()
}

/// Who has what a pipeline is to keep; the pipeline itself if nobody does who could be named.
fn rival_of(need: &Need, pipeline: HolderId, tables: &Tables) -> LockedBy {
    let grant = tables.coordination.holders_of(&need.resource()).into_iter().next();
    let since = grant.map(|grant| grant.acquired.wall);
    let (holder, until) = grant.map_or((pipeline, None), |grant| (grant.claim.holder.clone(), grant.expires()));
    LockedBy { since, ..LockedBy::new(need.name().clone(), holder, until) }
}

/// What a claim on the task asks for. Only an exclusive section is part of it.
fn wanted(id: &TaskId, taking: &Taking, tables: &Tables, wait: Option<(Standing, Option<Span>)>) -> Take {
    let exclusive = |section: &&SectionId| tables.backlog.sections.get(*section).is_some_and(|section| section.exclusive);
    let section = taking.section.as_ref().filter(exclusive);
    Take {
        holder: taking.holder.clone(),
        ancestors: taking.ancestors.clone(),
        task: Some(id.clone()),
        parts: parts(id, section, &taking.needs),
        ttl: taking.ttl,
        ticket: taking.ticket,
        wait,
    }
}

/// The claim is held: the task is worked on from now on.
fn begin(id: &TaskId, taking: &Taking, claim: &WorkClaim, tables: &mut Tables, tx: &mut Tx) -> TaskOutcome {
    tables.backlog.lost_claims.remove(&(id.clone(), taking.holder.clone()));
    let own = claim.parts.iter().find(|part| part.resource.name == id.lock());
    let epoch = own.and_then(|part| part.epoch).expect("a claim has the lock of its task");
    let (holder, until) = (taking.holder.clone(), deadline(id, tables));
    let outcome = step_task(tables, tx, id, task::Input::Take { holder, epoch, until }, None).expect("it was just there");
    wake_runners(tables, tx, None);
    TaskOutcome::Stepped(outcome, Box::new(tables.backlog.tasks[id].clone()))
}

/// When time alone ends the claim on a task.
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

/// Puts the claim among those that wait. Nothing else changes.
fn wait(id: &TaskId, taking: &Taking, tables: &mut Tables, tx: &mut Tx) -> TaskOutcome {
    let now = taking.seen.now(tx);
    let wait = taking.wait.clone().map(|(standing, overtake)| (standing, Some(overtake)));
    let mut take = wanted(id, taking, tables, wait);
    // What its pipeline is to keep is no part of the claim, but waited for like one: whoever frees it wakes the claim.
    take.parts.extend(pipeline_parts(taking, tables).iter().map(|(need, _)| part(need)));
    let step = tables.coordination.clone().work(Input::Take(Box::new(take.clone())), &now);
    // What is in the way is no part of the claim: a run that began before the section was exclusive.
    let step = match step.outcome {
        Outcome::Held(_) => tables.coordination.clone().work(Input::Await(Box::new(take)), &now),
        _ => step,
    };
    match step.outcome {
        Outcome::Waiting(mut waiting, obstacles) => {
            let is_new = waiting.ticket == now.ticket;
            tables.coordination.claims = step.state.claims;
            tx.carry_out(Vec::new(), is_new);
            let rivals = rivals(id, taking, tables);
            let ends = rivals.iter().filter(|rival| *rival != id).filter_map(|rival| deadline(rival, tables));
            waiting.blocked.deadline = ends.chain(waiting.blocked.deadline).min();
            let lockouts = lockouts(&obstacles, taking, tables);
            TaskOutcome::Waiting(Box::new(ClaimWaiting { waiting, lockouts, at: now.stamp() }))
        }
        Outcome::Deadlock(cycle) => {
            taking.ticket.into_iter().for_each(|ticket| drop(leave(ticket, &now, tables, tx)));
            TaskOutcome::Deadlock(cycle)
        }
        other => unreachable!("who waits is told so: {other:?}"),
    }
}

/// A live run in an exclusive section whose lock nobody has: it began before the section was exclusive.
fn unlocked_run(section: &SectionId, tables: &Tables) -> Option<LockedBy> {
    let is_exclusive = tables.backlog.sections.get(section).is_some_and(|section| section.exclusive);
    let lock = tables.coordination.locks.get(&section.lock());
    let is_free = lock.is_none_or(|lock| lock.state == lock::State::Free);
    let run = tables.backlog.live_in(section).next().filter(|_| is_exclusive && is_free)?;
    Some(LockedBy { since: Some(run.started.wall), ..LockedBy::new(section.lock(), run.id.holder(), None) })
}

/// Who is in the way, for people: the task itself first.
fn lockouts(obstacles: &[Obstacle], taking: &Taking, tables: &Tables) -> Vec<LockedBy> {
    let lockout = |obstacle: &Obstacle| {
        let (holder, since, is_reserved) = match (&obstacle.blocked.holders.first(), &obstacle.blocked.reserved) {
            (Some(grant), None) => (grant.claim.holder.clone(), Some(grant.acquired.wall), false),
            (_, Some(reserved)) => (reserved.holder.clone(), Some(reserved.since.wall), true),
            (None, None) => (taking.holder.clone(), None, false),
        };
        let lock = obstacle.resource.name.clone();
        // The section of somebody who works by hand ends with the last of its claims there.
        let claims =
            tables.coordination.claims.values().filter(|claim| claim.waits().is_none() && claim.wants(&obstacle.resource));
        let ends = claims.filter_map(|claim| grant(claim.task.as_ref()?, tables)?.expires()).max();
        let until = obstacle.blocked.holders.iter().filter_map(Grant::expires).min().or(ends.filter(|_| lock.is_section()));
        LockedBy { since, is_reserved, watch: obstacle.blocked.watch.clone(), ..LockedBy::new(lock, holder, until) }
    };
    let mut all: Vec<LockedBy> = obstacles.iter().map(lockout).collect();
    all.sort_by_key(|lockout| (lockout.lock.task().is_none(), !lockout.lock.is_section()));
    all
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

/// A claim that waits gives up. Those who wanted the same are woken: it may have been reserved.
pub(crate) fn leave(ticket: Ticket, now: &Now, tables: &mut Tables, tx: &mut Tx) -> TaskOutcome {
    let Some(claim) = tables.coordination.claims.get(&ticket).cloned() else { return TaskOutcome::Left };
    if let Outcome::Left = work(Input::Leave { ticket }, now, tables, tx) {
        let resources: Vec<Resource> = claim.parts.into_iter().map(|part| part.resource).collect();
        wake_for(tables, &resources, tx);
    }
    TaskOutcome::Left
}

/// Removes the claim of a process that is dead, or was not seen for too long.
pub(crate) fn drop_over(ticket: Ticket, seen: &Seen, tables: &mut Tables, tx: &mut Tx) -> TaskOutcome {
    let now = seen.now(tx);
    match tables.coordination.claims.get(&ticket).is_some_and(|claim| claim.is_over(&now)) {
        true => leave(ticket, &now, tables, tx),
        false => TaskOutcome::Left,
    }
}

/// Renews everything that was claimed together. A claim that lost a part is over.
pub(crate) fn renew(id: &TaskId, by: Option<&HolderId>, epoch: Option<Epoch>, tables: &mut Tables, tx: &mut Tx) -> Renewed {
    let Some(task) = tables.backlog.tasks.get(id) else { return Renewed(TaskOutcome::Unknown) };
    let State::ByHand { holder, epoch: current, .. } = task.state.clone() else {
        return Renewed(unheld(id, by, epoch, tables).unwrap_or(TaskOutcome::NotClaimed));
    };
    if let Some(refusal) = not_the_holder(task, by, epoch, tx) {
        return Renewed(refusal);
    }
    let now = tx.now(Vec::new(), Span::ZERO);
    let input = match tables.coordination.claim_of(id) {
        Some(claim) => Input::Renew { ticket: claim.ticket },
        None => Input::Renew { ticket: adopt_claim(id, &holder, current, tables, tx) },
    };
    match work(input, &now, tables, tx) {
        Outcome::Renewed(_) => {
            let until = deadline(id, tables);
            step_task(tables, tx, id, task::Input::Take { holder, epoch: current, until }, None);
            Renewed(TaskOutcome::Renewed(Box::new(tables.backlog.tasks[id].clone())))
        }
        Outcome::Lost(resource) => {
            let reason = format!("{resource} was lost");
            let lost = lose(id, &reason, tables, tx);
            tables.backlog.lost_claims.remove(&(id.clone(), holder));
            Renewed(lost.map_or(TaskOutcome::NotClaimed, TaskOutcome::Lost))
        }
        other => unreachable!("a claim that is held is renewed or lost: {other:?}"),
    }
}

/// What came of a renewal.
pub(crate) struct Renewed(pub(crate) TaskOutcome);

impl Renewed {
    /// The answer to one who takes what it has.
    fn map_already(self) -> Result<TaskOutcome, Refused> {
        match self.0 {
            TaskOutcome::Renewed(task) => Ok(TaskOutcome::AlreadyYours(task)),
            refused => Ok(refused),
        }
    }
}

/// A claim that an earlier version has made has no row of its own yet.
fn adopt_claim(id: &TaskId, holder: &HolderId, epoch: Epoch, tables: &mut Tables, tx: &mut Tx) -> Ticket {
    let ticket = tx.ticket;
    tx.carry_out(Vec::new(), true);
    let section = tables.backlog.tasks.get(id).and_then(|task| task.spec.section.as_ref()).map(SectionId::lock);
    let section = section.and_then(|name| match tables.coordination.locks.get(&name).map(|lock| &lock.state) {
        Some(lock::State::Held(grant)) if grant.claim.holder == *holder => Some((name, grant.epoch)),
        Some(_) | None => None,
    });
    let held = |(name, epoch): (Name, Epoch)| Part { epoch: Some(epoch), ..part(&Need::Lock(name)) };
    let parts = section.into_iter().chain([(id.lock(), epoch)]).map(held).collect();
    let state = work_claim::State::Held;
    let (task, in_the_way) = (Some(id.clone()), Default::default());
    let claim = WorkClaim { ticket, holder: holder.clone(), task, parts, state, in_the_way };
    tables.coordination.claims.insert(ticket, claim);
    ticket
}

/// Says how a task ended that no run is at, or tells the result of its run. Who has not taken it ends it at once.
pub(crate) fn conclude(
    id: &TaskId,
    by: Option<&HolderId>,
    epoch: Option<Epoch>,
    anyway: bool,
    verdict: &Verdict,
    tables: &mut Tables,
    tx: &mut Tx,
) -> TaskOutcome {
    let Some(task) = tables.backlog.tasks.get(id) else { return TaskOutcome::Unknown };
    if task.live().is_some() {
        return tasks::stepped(id, task::Input::Conclude { epoch, verdict: verdict.clone() }, tables, tx);
    }
    if let Some(refusal) = not_the_holder(task, by, epoch, tx) {
        return refusal;
    }
    let is_open = !matches!(task.state, State::ByHand { .. } | State::Done(_));
    let unmet = unmet(task, tables);
    if is_open && !anyway && !unmet.is_empty() && matches!(verdict, Verdict::Done { .. }) {
        return TaskOutcome::DependsOn(unmet);
    }
    if let Some(refusal) = unheld(id, by, epoch, tables).or_else(|| lost(id, by, tables, tx)) {
        return refusal;
    }
    tasks::stepped(id, task::Input::Conclude { epoch: None, verdict: verdict.clone() }, tables, tx)
}

/// Gives a claim back without saying how the task ended.
pub(crate) fn release(id: &TaskId, by: Option<&HolderId>, epoch: Option<Epoch>, tables: &mut Tables, tx: &mut Tx) -> TaskOutcome {
    let Some(task) = tables.backlog.tasks.get(id) else { return TaskOutcome::Unknown };
    let refusal = not_the_holder(task, by, epoch, tx).or_else(|| unheld(id, by, epoch, tables));
    match refusal.or_else(|| lost(id, by, tables, tx)) {
        Some(refusal) => refusal,
        None => tasks::stepped(id, task::Input::Return, tables, tx),
    }
}

/// Why one who speaks for a task that is claimed is not its holder: by the epoch if it is given, else by name.
pub(crate) fn not_the_holder(task: &Task, by: Option<&HolderId>, epoch: Option<Epoch>, tx: &Tx) -> Option<TaskOutcome> {
    let State::ByHand { epoch: current, .. } = &task.state else { return None };
    match epoch {
        Some(epoch) if epoch == *current => None,
        Some(_) => Some(TaskOutcome::Fenced),
        None => lockout(task, by, tx).map(TaskOutcome::Locked),
    }
}

/// Why one who speaks for a task that nobody has claimed is refused: its claim is over. It is told once.
pub(crate) fn unheld(id: &TaskId, by: Option<&HolderId>, epoch: Option<Epoch>, tables: &mut Tables) -> Option<TaskOutcome> {
    if matches!(tables.backlog.tasks.get(id)?.state, State::ByHand { .. }) {
        return None;
    }
    let lost = by.and_then(|by| tables.backlog.lost_claims.remove(&(id.clone(), by.clone())));
    let lost = lost.filter(|lost| epoch.is_none_or(|epoch| epoch == lost.epoch));
    lost.map(TaskOutcome::Lost).or_else(|| epoch.map(|_| TaskOutcome::Fenced))
}

/// A claim that has lost a part is over, also for its holder: that is told instead of an answer.
fn lost(id: &TaskId, by: Option<&HolderId>, tables: &mut Tables, tx: &mut Tx) -> Option<TaskOutcome> {
    let claim = tables.coordination.claim_of(id)?.clone();
    let resource = tables.coordination.lost_part(&claim)?;
    let lost = lose(id, &format!("{resource} was lost"), tables, tx)?;
    by.into_iter().for_each(|by| drop(tables.backlog.lost_claims.remove(&(id.clone(), by.clone()))));
    Some(TaskOutcome::Lost(lost))
}

/// Who works on a task by hand, if that is somebody else.
pub(crate) fn lockout(task: &Task, by: Option<&HolderId>, tx: &Tx) -> Option<LockedBy> {
    match &task.state {
        State::ByHand { holder, until, .. } if by != Some(holder) => {
            let until = until.map(|until| Wall(tx.wall.0 + (until - tx.lease).as_ms()));
            Some(LockedBy { since: Some(task.changed.wall), ..LockedBy::new(task.id.lock(), holder.clone(), until) })
        }
        _ => None,
    }
}

/// Gives back what somebody has claimed who does not work on the task any more. [`Key::ByHand`] must be loaded.
pub(crate) fn let_go(id: &TaskId, holder: &HolderId, epoch: Epoch, tables: &mut Tables, tx: &mut Tx) {
    let ticket = match tables.coordination.claim_of(id) {
        Some(claim) => claim.ticket,
        None => adopt_claim(id, holder, epoch, tables, tx),
    };
    work(Input::End { ticket }, &tx.now(Vec::new(), Span::ZERO), tables, tx);
}

/// Ends a claim against the will of its holder, who is told at the next call.
fn lose(id: &TaskId, reason: &str, tables: &mut Tables, tx: &mut Tx) -> Option<LostClaim> {
    let State::ByHand { holder, epoch, .. } = tables.backlog.tasks.get(id)?.state.clone() else { return None };
    let lost = LostClaim { task: id.clone(), holder: holder.clone(), epoch, reason: reason.into(), at: tx.wall };
    tables.backlog.lost_claims.insert((id.clone(), holder), lost.clone());
    step_task(tables, tx, id, task::Input::Return, None);
    wake_runners(tables, tx, None);
    Some(lost)
}

/// Ends the claim on a task if its time is up or its lock is another's.
pub(crate) fn end_if_over(id: &TaskId, now: &Now, tables: &mut Tables, tx: &mut Tx) {
    let Some(State::ByHand { epoch, .. }) = tables.backlog.tasks.get(id).map(|task| &task.state) else { return };
    let lock = tables.coordination.locks.get(&id.lock());
    let reason = match lock.map(|lock| &lock.state) {
        Some(lock::State::Held(grant)) if grant.epoch == *epoch => grant.over(now).map(|reason| format!("it is {reason}")),
        Some(lock::State::Held(_) | lock::State::Free) => Some("it was taken away".into()),
        // The lock of a claim has a row: it was not loaded.
        None => None,
    };
    let Some(reason) = reason else { return };
    let parts = tables.coordination.claim_of(id).map(|claim| claim.parts.clone()).unwrap_or_default();
    let mut draft = Draft::new(&tables.coordination, Now { seq: tx.seq, ticket: tx.ticket, ..now.clone() });
    for part in parts.into_iter().filter(|part| !part.resource.name.is_section()) {
        draft.handle(match part.resource.kind {
            Kind::Lock => Command::Lock(part.resource.name, lock::Input::Reap),
            Kind::Semaphore => Command::Semaphore(part.resource.name, semaphore::Input::Reap),
        });
    }
    draft.keep(tables, tx);
    lose(id, &reason, tables, tx);
}

/// The lock of a task was asked about: who has lost it does not work on the task any more, who has renewed it has renewed all.
pub(crate) fn follow_lock(name: &Name, is_own: bool, is_renewed: bool, tables: &mut Tables, tx: &mut Tx) {
    let Some(id) = name.task() else { return };
    let Some(State::ByHand { epoch, .. }) = tables.backlog.tasks.get(&id).map(|task| task.state.clone()) else { return };
    let is_held = match tables.coordination.locks.get(name).map(|lock| &lock.state) {
        Some(lock::State::Held(grant)) => grant.epoch == epoch,
        Some(lock::State::Free) | None => false,
    };
    if is_held && is_renewed {
        renew(&id, None, Some(epoch), tables, tx);
    } else if !is_held && is_own {
        step_task(tables, tx, &id, task::Input::Return, None);
        wake_runners(tables, tx, None);
    } else if !is_held {
        end_if_over(&id, &tx.now(Vec::new(), Span::ZERO), tables, tx);
    }
}

/// Ends the claims that a run has made: it has ended itself. [`Key::ClaimsBy`] must be loaded.
pub(crate) fn end_claims(holder: &HolderId, tables: &mut Tables, tx: &mut Tx) {
    let own = tables.coordination.claims.values().filter(|claim| claim.holder == *holder && claim.waits().is_none());
    let own: Vec<TaskId> = own.filter_map(|claim| claim.task.clone()).collect();
    for id in own {
        step_task(tables, tx, &id, task::Input::Return, None);
    }
}

/// Ends the claims that have lost this part of theirs. [`Key::ClaimsOn`] must be loaded.
pub(crate) fn end_broken(resource: &Resource, now: &Now, tables: &mut Tables, tx: &mut Tx) {
    let is_broken = |claim: &&WorkClaim| claim.waits().is_none() && tables.coordination.lost_part(claim).is_some();
    let broken = tables.coordination.claims.values().filter(|claim| claim.wants(resource)).filter(is_broken);
    let broken: Vec<TaskId> = broken.filter_map(|claim| claim.task.clone()).collect();
    for id in broken {
        // One whose time is up ends for that reason.
        end_if_over(&id, now, tables, tx);
        lose(&id, &format!("{resource} was taken away"), tables, tx);
    }
}

/// Steps the claims, and carries out what follows.
pub(crate) fn work(input: Input, now: &Now, tables: &mut Tables, tx: &mut Tx) -> Outcome {
    let now = Now { seq: tx.seq, ticket: tx.ticket, ..now.clone() };
    let step = std::mem::take(&mut tables.coordination).work(input, &now);
    tables.coordination = step.state;
    let took_ticket = match &step.outcome {
        Outcome::Held(claim) => claim.ticket == now.ticket,
        Outcome::Waiting(waiting, _) => waiting.ticket == now.ticket,
        _ => false,
    };
    wake_watchers(tables, &step.effects, tx);
    tx.carry_out(step.effects, took_ticket);
    step.outcome
}
