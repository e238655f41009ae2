//! The runners to wake after a batch, and the parked tasks that return to their lanes.
//!
//! A runner that found nothing more to take is marked idle in its row (`claims.rs`). A batch that may have made tasks ready wakes as many
//! idle runners as there are such tasks, the longest waiting ones first, and no others. A wake-up assigns nothing: the first runner to
//! claim takes the first task. One runner of a project has duty: it is woken for everything that is no task to take, such as guards,
//! decisions and deadlines.

use std::collections::BTreeSet;

use banksman_core::backlog::{Backlog, Runner};
use banksman_core::event::{Kind, Resource};
use banksman_core::resource::lock;
use banksman_core::task::{Need, State};
use banksman_core::{Effect, Grant, Lease, Name, RunnerId, SectionId, Task, TaskId};
use banksman_store::{Tx, parked_page};

use crate::calls::accounts::{self, Room};
use crate::calls::steps::{any_runner, inherit};
use crate::facts;

/// The most runners that one batch wakes for tasks to take.
const WAKE_LIMIT: usize = 16;

/// Carries out the consequences of a complete batch.
pub(crate) fn settle(tx: &mut Tx) {
    unpark(tx);
    accounts::remove_open(tx);
    let changed = std::mem::take(&mut tx.changed);
    // Tasks of an exclusive section are not parked: an idle runner takes them once the section is free.
    let is_free_section = |resource: &&Resource| resource.name.is_section() && has_room(resource, 1, tx);
    let free_sections = changed.freed.iter().filter(is_free_section).count();
    let is_parked = |id: &TaskId| changed.parked.get(id).is_some_and(Option::is_some);
    let is_ready =
        |id: &&TaskId| !is_parked(id) && tx.tables.backlog.tasks.get(*id).is_some_and(|task| task.state == State::Pending);
    // No runner takes tasks while the project is paused: the resumption wakes them.
    let is_paused = tx.tables.backlog.pause.is_some();
    let ready: Vec<&TaskId> = changed.ready.iter().filter(|_| !is_paused).filter(is_ready).collect();
    let sections: Vec<Option<SectionId>> = ready.into_iter().map(|id| tx.tables.backlog.tasks[id].spec.section.clone()).collect();
    let mut woken = 0;
    for section in sections {
        woken += usize::from(wake_one(tx, |runner| may_take(runner, section.as_ref())).is_some());
        if woken >= WAKE_LIMIT {
            break;
        }
    }
    for owner in changed.section_owners.iter().filter(|_| !is_paused) {
        wake_one(tx, |runner| runner.id == *owner);
    }
    let anywhere = changed.ready_anywhere.max(free_sections).max(usize::from(changed.frees_dependents));
    for _ in 0..if is_paused { 0 } else { anywhere.min(WAKE_LIMIT) } {
        if wake_one(tx, |runner| runner.sections.is_empty()).is_none() {
            wake_one_of_each_kind(tx);
        }
    }
    let slots = Resource { kind: Kind::Semaphore, name: Name::runs() };
    if changed.limits && !is_paused && has_room(&slots, 1, tx) {
        wake_one(tx, |runner| runner.idle.is_some_and(|idle| idle.is_limited));
    }
    if changed.duty {
        wake_duty(tx);
    }
    // The last run has ended: the runners that end when nothing is left check whether nothing is. The reporting runner checks anyway.
    if changed.has_ended_run && tx.tables.live_runs == 0 {
        while wake_one(tx, |runner| runner.until_idle && Some(&runner.id) != changed.claimant.as_ref()).is_some() {}
    } else if changed.duty && tx.tables.live_runs == 0 {
        // One is enough: each such runner wakes the next one when it leaves.
        wake_one(tx, |runner| runner.until_idle && !runner.has_duty);
    }
    (tx.changed.parked, tx.changed.fan_out) = (changed.parked, changed.fan_out);
}

/// Returns parked tasks to their lanes if their resource has room: the first task for a lock, all tasks that fit for a semaphore. Also
/// returns the tasks that no longer need the resource, because roots are not limited any more.
pub(crate) fn unpark(tx: &mut Tx) {
    let waiting = tx.tables.parked_on.clone();
    let is_limited = facts::root_limit(&tx.tables.backlog) > 0;
    for (resource, tasks) in waiting {
        let is_page_full = tasks.len() >= parked_page(&resource) as usize;
        // There are more tasks than were read, and no later release would return them.
        tx.changed.frees_dependents |=
            is_page_full && resource.name.is_account_limit() && accounts::room(&resource, tx) == Room::All;
        let (mut wanted, mut is_read_waiting) = (0, false);
        for id in tasks {
            let may_start = |task: &&Task| task.state == State::Pending && task.spec.paused.is_none();
            let Some(task) = tx.tables.backlog.tasks.get(&id).filter(may_start) else { continue };
            // This batch has parked the task on another resource: the next task is the first now.
            if tx.changed.parked.get(&id).is_some_and(|on| on.as_ref().is_some_and(|other| *other != resource)) {
                continue;
            }
            is_read_waiting = true;
            let is_needed = |need: &Need| need.resource() == resource;
            let needs = |is_limited| task.spec.needs_to_begin(is_limited).iter().any(is_needed);
            let waits_in_vain = needs(true) && !needs(is_limited);
            let weight = if waits_in_vain { 0 } else { task.spec.weight_of(&resource) };
            wanted += weight;
            if !waits_in_vain && !has_room(&resource, wanted, tx) {
                wanted -= weight;
                // The resource went to a holder whose death no runner would notice: the runner on duty watches it, or reaps the grant.
                tx.changed.duty |= tx.changed.freed.contains(&resource) && !is_left_to_runs(&resource, tx);
                // A later task that needs fewer slots of a semaphore may fit.
                continue;
            }
            if tx.changed.parked.get(&id) != Some(&None) {
                tx.changed.parked.insert(id.clone(), None);
                tx.changed.takeable.insert(id.clone());
                tx.changed.ready.insert(id);
            }
            let is_one = !resource.name.is_account_limit() || accounts::room(&resource, tx) == Room::One;
            if resource.kind == Kind::Lock && is_one && !waits_in_vain {
                break;
            }
        }
        // None of the tasks that were read waits for the resource any more: the runner on duty returns one of the others.
        tx.changed.duty |= is_page_full && !is_read_waiting && has_room(&resource, 1, tx);
    }
}

/// Parks a task on a resource, also for later calls of the batch, which may free the resource.
pub(crate) fn park(id: &TaskId, resource: Resource, tx: &mut Tx) {
    let waiting = tx.tables.parked_on.entry(resource.clone()).or_default();
    if !waiting.contains(id) {
        waiting.push(id.clone());
    }
    tx.changed.parked.insert(id.clone(), Some(resource));
}

/// Whether only runs hold a resource, and it has no waiters: the end of a run frees its resources.
fn is_left_to_runs(resource: &Resource, tx: &Tx) -> bool {
    let coordination = &tx.tables.coordination;
    let is_run = |grant: &Grant| grant.claim.holder.is_run();
    match resource.kind {
        Kind::Lock => coordination
            .locks
            .get(&resource.name)
            .is_some_and(|lock| lock.waiters.is_empty() && matches!(&lock.state, lock::State::Held(grant) if is_run(grant))),
        Kind::Semaphore => coordination.semaphores.get(&resource.name).is_some_and(|semaphore| {
            semaphore.waiters.is_empty() && !semaphore.holders.is_empty() && semaphore.holders.values().all(is_run)
        }),
    }
}

/// Whether a request that does not wait would get this much of a resource. Reserved parts are not free.
fn has_room(resource: &Resource, weight: u32, tx: &Tx) -> bool {
    if resource.name.is_account_limit() {
        return accounts::room(resource, tx) != Room::None;
    }
    let coordination = &tx.tables.coordination;
    let now = tx.now(Vec::new(), Default::default());
    let reserved = coordination.reservation(resource, &now);
    match resource.kind {
        Kind::Lock => {
            let lock = coordination.locks.get(&resource.name);
            reserved.is_none() && lock.is_none_or(|lock| lock.state == lock::State::Free && lock.waiters.is_empty())
        }
        Kind::Semaphore => coordination.semaphores.get(&resource.name).is_some_and(|semaphore| {
            let reserved = reserved.map_or(0, |reserved| reserved.weight);
            semaphore.waiters.is_empty() && semaphore.available() >= weight.saturating_add(reserved)
        }),
    }
}

/// Whether a runner serves a section.
fn may_take(runner: &Runner, section: Option<&SectionId>) -> bool {
    runner.sections.is_empty() || section.is_some_and(|section| runner.sections.contains(section))
}

/// Wakes the first idle runner of each set of sections: any of them may be the right one.
fn wake_one_of_each_kind(tx: &mut Tx) {
    let idle = tx.tables.backlog.runners.values().filter(|runner| runner.idle.is_some());
    let kinds: BTreeSet<Vec<SectionId>> = idle.map(|runner| runner.sections.clone()).collect();
    for sections in kinds {
        wake_one(tx, |runner| runner.sections == sections);
    }
}

/// Wakes the first matching idle runner, and marks it as woken. `None` if there is none.
fn wake_one(tx: &mut Tx, matches: impl Fn(&Runner) -> bool) -> Option<()> {
    let idle = tx.tables.backlog.runners.values_mut().filter(|runner| runner.idle.is_some() && matches(runner));
    let runner = idle.min_by_key(|runner| runner.idle.map(|idle| idle.ticket))?;
    (runner.idle, runner.woken) = (None, Some(tx.lease));
    let address = runner.address.clone();
    tx.carry_out(vec![Effect::Wake(address)], false);
    Some(())
}

fn wake_duty(tx: &mut Tx) {
    let on_duty = tx.tables.backlog.runners.values().find(|runner| runner.has_duty);
    if let Some(address) = on_duty.map(|runner| runner.address.clone()) {
        tx.carry_out(vec![Effect::Wake(address)], false);
    }
}

/// Ensures that one runner has duty: a runner of all sections, if there is one. All runners must be loaded. Returns whether another runner
/// has it now.
pub(crate) fn assign_duty(tx: &mut Tx) -> bool {
    let serves = |runner: &Runner| runner.max_runs != Some(0) && runner.sections.is_empty();
    let runners = &mut tx.tables.backlog.runners;
    if runners.values().any(|runner| runner.has_duty && serves(runner)) {
        return false;
    }
    let has_any = runners.values().any(|runner| runner.has_duty);
    let takes_tasks = |runner: &&mut Runner| runner.max_runs != Some(0);
    let next = runners.values().find(|runner| serves(runner)).map(|runner| runner.id.clone());
    let next = next.or_else(|| runners.values_mut().find(takes_tasks).map(|runner| runner.id.clone()).filter(|_| !has_any));
    if let Some(next) = &next {
        runners.values_mut().for_each(|runner| runner.has_duty = runner.id == *next);
    }
    next.is_some()
}

/// Wakes the oldest neighbour of a new runner, which has to watch the new one from now on.
pub(crate) fn join_watch(id: &RunnerId, tx: &mut Tx) {
    let runners = &tx.tables.backlog.runners;
    let first = runners.get(id).and_then(|new| neighbours(new, &tx.tables.backlog).min_by_key(|runner| seniority(runner)));
    if let Some(address) = first.map(|first| first.address.clone()) {
        tx.carry_out(vec![Effect::Wake(address)], false);
    }
}

/// The other runners that could adopt the runs of a runner.
fn neighbours<'a>(runner: &'a Runner, backlog: &'a Backlog) -> impl Iterator<Item = &'a Runner> {
    let is_near = |other: &&Runner| match (&runner.terms, &other.terms) {
        (None, None) => true,
        (Some(own), Some(terms)) => runner.process.host == other.process.host && own.folder == terms.folder,
        (None, Some(_)) | (Some(_), None) => false,
    };
    backlog.runners.values().filter(|other| other.id != runner.id).filter(is_near)
}

fn seniority(runner: &Runner) -> (Lease, &RunnerId) {
    (runner.started.lease, &runner.id)
}

/// The runner that this one watches: the one that started before it, and for the first runner the last. So one other runner notices each
/// death, and not all of them.
pub(crate) fn predecessor<'a>(id: &RunnerId, backlog: &'a Backlog) -> Option<&'a Runner> {
    let runner = backlog.runners.get(id)?;
    let before = neighbours(runner, backlog).filter(|other| seniority(other) < seniority(runner));
    before.max_by_key(|other| seniority(other)).or_else(|| neighbours(runner, backlog).max_by_key(|other| seniority(other)))
}

/// Passes the work of a runner whose row was removed to another one, to `heir` if there is one. All runners and the runs of the removed
/// one must be loaded.
pub(crate) fn hand_over(gone: &Runner, heir: Option<&RunnerId>, tx: &mut Tx) {
    let has_new_duty = assign_duty(tx);
    let other = any_runner(&tx.tables).filter(|_| heir.is_none());
    // An heir knows of its commands; any other runner must be woken for them.
    let has_heir = inherit(&mut tx.tables, Some(&gone.id), heir.or(other.as_ref())) && heir.is_none();
    let leaves_runs = tx.tables.backlog.runs.values().any(|run| run.is_live() && run.owner == gone.id);
    tx.changed.duty |= has_new_duty || has_heir || leaves_runs;
    // The tasks that it was woken for, or was about to claim, are left to another runner.
    if gone.woken.is_some() {
        tx.changed.ready_anywhere = tx.changed.ready_anywhere.max(1);
    }
    // It has found that nothing is left, so the next runner that ends then is woken to leave.
    if gone.until_idle {
        wake_one(tx, |runner| runner.until_idle);
    }
}

/// Records that a task was added: it may be ready, or wait for a resource. A resource that was not loaded may be free: the claim decides.
pub(crate) fn note_added(id: &TaskId, tx: &mut Tx) {
    let is_work = |task: &&Task| task.spec.work.is_some() && task.spec.paused.is_none();
    let Some(task) = tx.tables.backlog.tasks.get(id).filter(is_work) else { return };
    // A task with open dependencies is not parked: a release of the resource would start it.
    if tx.tables.backlog.unmet(id) > 0 {
        return;
    }
    let is_missing = |need: &&Need| {
        let is_known = !matches!(need, Need::Kept { .. }) && tx.loaded.contains(&facts::need_key(need));
        is_known && !has_room(&need.resource(), need.weight(), tx)
    };
    let is_limited = facts::root_limit(&tx.tables.backlog) > 0;
    let missing = task.spec.needs_to_begin(is_limited).iter().find(is_missing).map(Need::resource);
    match missing {
        Some(resource) => {
            park(id, resource, tx);
            tx.changed.duty = true;
        }
        None => note_ready(id, tx),
    }
}

/// Records that a task may be ready.
pub(crate) fn note_ready(id: &TaskId, tx: &mut Tx) {
    let backlog = &tx.tables.backlog;
    let is_ready = |task: &Task| {
        task.state == State::Pending && task.spec.work.is_some() && task.spec.paused.is_none() && backlog.unmet(id) == 0
    };
    if backlog.tasks.get(id).is_some_and(is_ready) {
        tx.changed.ready.insert(id.clone());
    }
}
