//! Who is woken after a batch, and which parked tasks return to their lanes.
//!
//! A runner that found nothing more to take is idle: a row says so (`claims.rs`). A batch that may have made tasks ready wakes as many idle
//! runners as there are such tasks, those who waited longest first, and no others; a wake-up assigns nothing, whoever claims first takes
//! the first task. One runner of a project has duty: it is woken for whatever is no task to take, such as guards, decisions, or
//! something that only time ends.

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

/// How many runners one batch wakes at most for tasks to take.
const WAKE_LIMIT: usize = 16;

/// Decides what follows from a batch as a whole.
pub(crate) fn settle(tx: &mut Tx) {
    unpark(tx);
    accounts::remove_open(tx);
    let changed = std::mem::take(&mut tx.changed);
    // Tasks of an exclusive section are not parked: a runner that is idle takes them once it is free.
    let is_free_section = |resource: &&Resource| resource.name.is_section() && has_room(resource, 1, tx);
    let free_sections = changed.freed.iter().filter(is_free_section).count();
    let is_parked = |id: &TaskId| changed.parked.get(id).is_some_and(Option::is_some);
    let is_ready =
        |id: &&TaskId| !is_parked(id) && tx.tables.backlog.tasks.get(*id).is_some_and(|task| task.state == State::Pending);
    // Nobody takes anything while the project is paused: whoever resumes it wakes them.
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
    // The last run has ended: whoever ends when nothing is left looks whether that is so. The runner that has reported it looks anyway.
    if changed.has_ended_run && tx.tables.live_runs == 0 {
        while wake_one(tx, |runner| runner.until_idle && Some(&runner.id) != changed.claimant.as_ref()).is_some() {}
    } else if changed.duty && tx.tables.live_runs == 0 {
        // The rest is for those after it: each wakes the next one when it leaves.
        wake_one(tx, |runner| runner.until_idle && !runner.has_duty);
    }
    (tx.changed.parked, tx.changed.fan_out) = (changed.parked, changed.fan_out);
}

/// Returns tasks to their lanes that wait for something which has room: for a lock the first one, for a semaphore those that fit. Also those that need
/// it no longer, because roots are not limited any more.
pub(crate) fn unpark(tx: &mut Tx) {
    let waiting = tx.tables.parked_on.clone();
    let is_limited = facts::root_limit(&tx.tables.backlog) > 0;
    for (resource, tasks) in waiting {
        let is_page_full = tasks.len() >= parked_page(&resource) as usize;
        // There are more than were read, and nothing is freed again that would return them.
        tx.changed.frees_dependents |=
            is_page_full && resource.name.is_account_limit() && accounts::room(&resource, tx) == Room::All;
        let (mut wanted, mut is_read_waiting) = (0, false);
        for id in tasks {
            let may_start = |task: &&Task| task.state == State::Pending && task.spec.paused.is_none();
            let Some(task) = tx.tables.backlog.tasks.get(&id).filter(may_start) else { continue };
            // This batch has parked it on something else: the next one is the first now.
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
                // It went to somebody of whose death nobody would hear: the runner with duty watches him, or takes it away.
                tx.changed.duty |= tx.changed.freed.contains(&resource) && !is_left_to_runs(&resource, tx);
                // One that wants less of a semaphore may fit.
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
        // None of those that were read waits for it any more: the runner with duty returns one of the others.
        tx.changed.duty |= is_page_full && !is_read_waiting && has_room(&resource, 1, tx);
    }
}

/// Parks a task. A later call of the batch may free what it waits for.
pub(crate) fn park(id: &TaskId, resource: Resource, tx: &mut Tx) {
    let waiting = tx.tables.parked_on.entry(resource.clone()).or_default();
    if !waiting.contains(id) {
        waiting.push(id.clone());
    }
    tx.changed.parked.insert(id.clone(), Some(resource));
}

/// Whether only runs have a resource, and nobody waits for it: the end of each frees what it holds.
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

/// Whether somebody who does not wait would get so much of a resource. What is kept for others is not free.
fn has_room(resource: &Resource, weight: u32, tx: &Tx) -> bool {
    if resource.name.is_account_limit() {
        return accounts::room(resource, tx) != Room::None;
    }
    let coordination = &tx.tables.coordination;
    let now = tx.now(Vec::new(), Default::default());
    let kept = coordination.reservation(resource, &now);
    match resource.kind {
        Kind::Lock => {
            let lock = coordination.locks.get(&resource.name);
            kept.is_none() && lock.is_none_or(|lock| lock.state == lock::State::Free && lock.waiters.is_empty())
        }
        Kind::Semaphore => coordination.semaphores.get(&resource.name).is_some_and(|semaphore| {
            let kept = kept.map_or(0, |kept| kept.weight);
            semaphore.waiters.is_empty() && semaphore.available() >= weight.saturating_add(kept)
        }),
    }
}

/// Whether a runner works in a section.
fn may_take(runner: &Runner, section: Option<&SectionId>) -> bool {
    runner.sections.is_empty() || section.is_some_and(|section| runner.sections.contains(section))
}

/// Wakes the first idle runner of each choice of sections: any of them may be the right one.
fn wake_one_of_each_kind(tx: &mut Tx) {
    let idle = tx.tables.backlog.runners.values().filter(|runner| runner.idle.is_some());
    let kinds: BTreeSet<Vec<SectionId>> = idle.map(|runner| runner.sections.clone()).collect();
    for sections in kinds {
        wake_one(tx, |runner| runner.sections == sections);
    }
}

/// Wakes the first idle runner that is so, and forgets that it is idle. `None` if there is none.
fn wake_one(tx: &mut Tx, is_so: impl Fn(&Runner) -> bool) -> Option<()> {
    let idle = tx.tables.backlog.runners.values_mut().filter(|runner| runner.idle.is_some() && is_so(runner));
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

/// Makes sure that one runner has duty: one that works in all sections, if there is one. All runners must be loaded. Says whether another one
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

/// A runner has come. The first of those who watch each other has to watch it from now on.
pub(crate) fn join_watch(id: &RunnerId, tx: &mut Tx) {
    let runners = &tx.tables.backlog.runners;
    let first = runners.get(id).and_then(|new| neighbours(new, &tx.tables.backlog).min_by_key(|runner| seniority(runner)));
    if let Some(address) = first.map(|first| first.address.clone()) {
        tx.carry_out(vec![Effect::Wake(address)], false);
    }
}

/// The other runners that could adopt what a runner leaves behind.
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

/// The runner whose death this one hears of: the one that came before it, and for the first one the last. So every death is heard of by one
/// other runner, and not by all of them.
pub(crate) fn predecessor<'a>(id: &RunnerId, backlog: &'a Backlog) -> Option<&'a Runner> {
    let runner = backlog.runners.get(id)?;
    let before = neighbours(runner, backlog).filter(|other| seniority(other) < seniority(runner));
    before.max_by_key(|other| seniority(other)).or_else(|| neighbours(runner, backlog).max_by_key(|other| seniority(other)))
}

/// A runner is gone, and its row with it: what it was to do is for another one, for `heir` if there is one. All runners and its own runs must be
/// loaded.
pub(crate) fn hand_over(gone: &Runner, heir: Option<&RunnerId>, tx: &mut Tx) {
    let has_new_duty = assign_duty(tx);
    let other = any_runner(&tx.tables).filter(|_| heir.is_none());
    // Who has it knows of it.
    let has_heir = inherit(&mut tx.tables, Some(&gone.id), heir.or(other.as_ref())) && heir.is_none();
    let leaves_runs = tx.tables.backlog.runs.values().any(|run| run.is_live() && run.owner == gone.id);
    tx.changed.duty |= has_new_duty || has_heir || leaves_runs;
    // What it was woken for, or was about to look for.
    if gone.woken.is_some() {
        tx.changed.ready_anywhere = tx.changed.ready_anywhere.max(1);
    }
    // It has found that nothing is left, and tells the next one that may leave for it.
    if gone.until_idle {
        wake_one(tx, |runner| runner.until_idle);
    }
}

/// Notes that a task was added: it may be ready, or wait for something that it needs. What was not loaded may be free: whoever claims it sees.
pub(crate) fn note_added(id: &TaskId, tx: &mut Tx) {
    let is_work = |task: &&Task| task.spec.work.is_some() && task.spec.paused.is_none();
    let Some(task) = tx.tables.backlog.tasks.get(id).filter(is_work) else { return };
    // Who waits for other tasks first is not parked: whoever frees the resource would start it.
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

/// Notes that a task may be ready.
pub(crate) fn note_ready(id: &TaskId, tx: &mut Tx) {
    let backlog = &tx.tables.backlog;
    let is_ready = |task: &Task| {
        task.state == State::Pending && task.spec.work.is_some() && task.spec.paused.is_none() && backlog.unmet(id) == 0
    };
    if backlog.tasks.get(id).is_some_and(is_ready) {
        tx.changed.ready.insert(id.clone());
    }
}
