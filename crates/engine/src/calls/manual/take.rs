//! Taking a task: all its resources in one transaction, or a wait that holds nothing.

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::grant::{Grant, WaitingProcess};
use banksman_core::resource::lock;
use banksman_core::resource::work_claim::{Input, Obstacle, Outcome, Take, WorkClaim};
use banksman_core::task::{self, Need, State};
use banksman_core::{HolderId, Now, SectionId, Span, TaskId};
use banksman_store::{Tables, Tx};

use super::{ClaimWaiting, LockedBy, Taking, deadline, end_if_over, grant, leave, part, parts, pass_absent, renew, unmet, work};
use crate::calls::steps::{Draft, step_task, wake_runners};
use crate::calls::tasks::{self, TaskOutcome};

/// Takes a task with all its resources, or waits for them, or is refused. An edit is kept only if the task is taken.
pub(crate) fn take(id: &TaskId, taking: &Taking, tx: &mut Tx) -> TaskOutcome {
    let now = taking.seen.now(tx);
    for rival in rivals(id, taking, &tx.tables) {
        end_if_over(&rival, &now, tx);
    }
    pass_absent(taking.ticket, &taking.seen, tx);
    let mut draft = tx.clone();
    let outcome = match attempt(id, taking, &now, &mut draft) {
        Ok(outcome) => {
            *tx = draft;
            return outcome;
        }
        Err(Refused::Busy(busy)) if taking.wait.is_none() => *busy,
        Err(Refused::Busy(_)) => return wait(id, taking, tx),
        Err(Refused::ForGood(outcome)) => *outcome,
    };
    // A refused claim waits no longer.
    taking.ticket.into_iter().for_each(|ticket| drop(leave(ticket, &now, tx)));
    outcome
}

/// Why a task cannot be taken.
enum Refused {
    /// Other holders have some of its resources.
    Busy(Box<TaskOutcome>),
    /// Waiting would not help.
    ForGood(Box<TaskOutcome>),
}

fn for_good(outcome: TaskOutcome) -> Refused {
    Refused::ForGood(Box::new(outcome))
}

/// The tasks whose claims may be in the way: the task itself, and the claimed tasks of its section, whose lock has no lease.
fn rivals(id: &TaskId, taking: &Taking, tables: &Tables) -> Vec<TaskId> {
    let section = taking.section.as_ref().map(|section| Resource { kind: Kind::Lock, name: section.lock() });
    let claims = tables.coordination.claims.values().filter(|claim| claim.waits().is_none());
    let shared = claims.filter(|claim| section.as_ref().is_some_and(|section| claim.wants(section)));
    let mut rivals: Vec<TaskId> = shared.filter_map(|claim| claim.task.clone()).collect();
    rivals.push(id.clone());
    rivals
}

fn attempt(id: &TaskId, taking: &Taking, now: &Now, tx: &mut Tx) -> Result<TaskOutcome, Refused> {
    if let Some(edit) = &taking.edit {
        match tasks::update(id, edit, tx) {
            TaskOutcome::Kept(_) => {}
            refused => return Err(for_good(refused)),
        }
    }
    let Some(task) = tx.tables.backlog.tasks.get(id) else { return Err(for_good(TaskOutcome::Unknown)) };
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
    if let State::Manual { holder, .. } = &task.state
        && *holder == taking.holder
    {
        return Ok(match renew(id, Some(&taking.holder), None, tx) {
            TaskOutcome::Renewed(task) => TaskOutcome::AlreadyYours(task),
            refused => refused,
        });
    }
    let unmet = unmet(task, &tx.tables);
    if !unmet.is_empty() && !taking.anyway {
        return Err(for_good(TaskOutcome::DependsOn(unmet)));
    }
    if let Some(section) = &taking.section
        && let Some(busy) = unlocked_run(section, &tx.tables)
    {
        return Err(Refused::Busy(Box::new(TaskOutcome::Locked(busy))));
    }
    if let Some(busy) = keep_for_pipeline(taking, now, tx) {
        return Err(Refused::Busy(Box::new(TaskOutcome::Locked(busy))));
    }
    match work(Input::Take(Box::new(wanted(id, taking, &tx.tables, None))), now, tx) {
        Outcome::Held(claim) => Ok(begin(id, taking, &claim, tx)),
        Outcome::Busy(obstacles) => {
            let locked_by = locked_by(&obstacles, taking, &tx.tables).into_iter().next();
            let locked_by = locked_by.unwrap_or_else(|| LockedBy::new(id.lock(), taking.holder.clone(), None));
            Err(Refused::Busy(Box::new(TaskOutcome::Locked(locked_by))))
        }
        Outcome::Never { name, capacity } => Err(for_good(TaskOutcome::NeverFits { name, capacity })),
        other => unreachable!("a claim that does not wait is granted or refused: {other:?}"),
    }
}

/// Takes the resources that the pipeline of a phase keeps, in the name of the pipeline. Returns the first rival, if there is one.
fn keep_for_pipeline(taking: &Taking, now: &Now, tx: &mut Tx) -> Option<LockedBy> {
    // A reservation of this very claim must not block it.
    let own = taking.ticket.and_then(|ticket| tx.tables.coordination.claims.remove_entry(&ticket));
    let mut draft = Draft::new(&tx.tables.coordination, Now { seq: tx.seq, ticket: tx.ticket, ..now.clone() });
    let taken = pipeline_parts(taking, &tx.tables).into_iter().find_map(|(need, holder)| {
        let outcome = draft.handle(crate::calls::steps::take(&need, holder.clone(), Vec::new()));
        outcome.granted().is_none().then(|| rival_of(&need, holder, &tx.tables))
    });
    if taken.is_none() {
        draft.keep(tx);
    }
    tx.tables.coordination.claims.extend(own);
    taken
}

/// The resources that the pipeline of a phase keeps and does not hold yet, with the pipeline's holder name.
fn pipeline_parts(taking: &Taking, tables: &Tables) -> Vec<(Need, HolderId)> {
    let kept = taking.needs.iter().filter_map(|need| match need {
        Need::Kept { pipeline, .. } => Some((need.clone(), pipeline.pipeline_holder())),
        Need::Lock(_) | Need::Slots { .. } => None,
    });
    kept.filter(|(need, holder)| tables.coordination.grant_of(&need.resource(), holder).is_none()).collect()
}

/// The holder of a resource that a pipeline is to keep; the pipeline itself if no grant names another holder.
fn rival_of(need: &Need, pipeline: HolderId, tables: &Tables) -> LockedBy {
    let grant = tables.coordination.holders_of(&need.resource()).into_iter().next();
    let since = grant.map(|grant| grant.acquired.wall);
    let (holder, until) = grant.map_or((pipeline, None), |grant| (grant.claim.holder.clone(), grant.expires()));
    LockedBy { since, ..LockedBy::new(need.name().clone(), holder, until) }
}

/// The request of a claim on the task. The lock of the section is part of it only if the section is exclusive.
fn wanted(id: &TaskId, taking: &Taking, tables: &Tables, wait: Option<(WaitingProcess, Option<Span>)>) -> Take {
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

/// Starts manual work on a task whose claim is held now.
fn begin(id: &TaskId, taking: &Taking, claim: &WorkClaim, tx: &mut Tx) -> TaskOutcome {
    tx.tables.backlog.lost_claims.remove(&(id.clone(), taking.holder.clone()));
    let own = claim.parts.iter().find(|part| part.resource.name == id.lock());
    let epoch = own.and_then(|part| part.epoch).expect("a claim has the lock of its task");
    let (holder, until) = (taking.holder.clone(), deadline(id, &tx.tables));
    let outcome = step_task(tx, id, task::Input::Take { holder, epoch, until }, None).expect("it was just there");
    wake_runners(tx);
    TaskOutcome::Stepped(outcome, Box::new(tx.tables.backlog.tasks[id].clone()))
}

/// Adds the claim to the waiters. Nothing else changes.
fn wait(id: &TaskId, taking: &Taking, tx: &mut Tx) -> TaskOutcome {
    let now = taking.seen.now(tx);
    let wait = taking.wait.clone().map(|(standing, overtake)| (standing, Some(overtake)));
    let mut take = wanted(id, taking, &tx.tables, wait);
    // The resources that its pipeline is to keep are no part of the claim, but it waits for them: freeing them wakes the claim.
    take.parts.extend(pipeline_parts(taking, &tx.tables).iter().map(|(need, _)| part(need)));
    let step = tx.tables.coordination.clone().work(Input::Take(Box::new(take.clone())), &now);
    // The obstacle is no part of the claim: a run that began before the section was exclusive.
    let step = match step.outcome {
        Outcome::Held(_) => tx.tables.coordination.clone().work(Input::Await(Box::new(take)), &now),
        _ => step,
    };
    match step.outcome {
        Outcome::Waiting(mut waiting, obstacles) => {
            let is_new = waiting.ticket == now.ticket;
            tx.tables.coordination.claims = step.state.claims;
            tx.carry_out(step.effects, is_new);
            let rivals = rivals(id, taking, &tx.tables);
            let ends = rivals.iter().filter(|rival| *rival != id).filter_map(|rival| deadline(rival, &tx.tables));
            waiting.blocked.deadline = ends.chain(waiting.blocked.deadline).min();
            let locked_by = locked_by(&obstacles, taking, &tx.tables);
            TaskOutcome::Waiting(Box::new(ClaimWaiting { waiting, locked_by, at: now.stamp() }))
        }
        Outcome::Deadlock(cycle) => {
            taking.ticket.into_iter().for_each(|ticket| drop(leave(ticket, &now, tx)));
            TaskOutcome::Deadlock(cycle)
        }
        other => unreachable!("a waiting claim waits or is in a deadlock: {other:?}"),
    }
}

/// A live run in an exclusive section whose lock is free: the run began before the section was exclusive.
fn unlocked_run(section: &SectionId, tables: &Tables) -> Option<LockedBy> {
    let is_exclusive = tables.backlog.sections.get(section).is_some_and(|section| section.exclusive);
    let lock = tables.coordination.locks.get(&section.lock());
    let is_free = lock.is_none_or(|lock| lock.state == lock::State::Free);
    let run = tables.backlog.live_in(section).next().filter(|_| is_exclusive && is_free)?;
    Some(LockedBy { since: Some(run.started.wall), ..LockedBy::new(section.lock(), run.id.holder(), None) })
}

/// The blocking holders in the order for people: the lock of the task first, then the section.
fn locked_by(obstacles: &[Obstacle], taking: &Taking, tables: &Tables) -> Vec<LockedBy> {
    let locked_by = |obstacle: &Obstacle| {
        let (holder, since, is_reserved) = match (&obstacle.blocked.holders.first(), &obstacle.blocked.reserved) {
            (Some(grant), None) => (grant.claim.holder.clone(), Some(grant.acquired.wall), false),
            (_, Some(reserved)) => (reserved.holder.clone(), Some(reserved.since.wall), true),
            (None, None) => (taking.holder.clone(), None, false),
        };
        let lock = obstacle.resource.name.clone();
        // The lock of a section that is held for manual work is released with the last claim in the section.
        let claims =
            tables.coordination.claims.values().filter(|claim| claim.waits().is_none() && claim.wants(&obstacle.resource));
        let ends = claims.filter_map(|claim| grant(claim.task.as_ref()?, tables)?.expires()).max();
        let until = obstacle.blocked.holders.iter().filter_map(Grant::expires).min().or(ends.filter(|_| lock.is_section()));
        LockedBy { since, is_reserved, watch: obstacle.blocked.watch.clone(), ..LockedBy::new(lock, holder, until) }
    };
    let mut all: Vec<LockedBy> = obstacles.iter().map(locked_by).collect();
    all.sort_by_key(|locked_by| (locked_by.lock.task().is_none(), !locked_by.lock.is_section()));
    all
}
