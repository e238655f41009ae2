//! The statements that write the changes of a batch.

use banksman_core::event::Kind;
use banksman_core::resource::coordination::Coordination;
use banksman_core::resource::semaphore::Semaphore;

use crate::columns::to_json;
use crate::table;
use crate::tables::semaphores::Semaphores;
use crate::tables::slots::Slots;
use crate::tables::{
    Tables, account_limits, claims, decisions, deliveries, imports, items, landing_targets, landings, locks, lost_claims, marks,
    messages, outbox, pipelines, projects, queues, runners, runs, sections, spend, takers, task_counts, tasks, waiters, workers,
    workspaces,
};
use crate::value::Query;

/// The statements that turn the rows of `before` into those of `after`.
pub(crate) fn between<'a>(project: i64, before: &'a Tables, after: &'a Tables) -> Vec<Query<'a>> {
    let mut queries = Vec::new();
    coordination(project, &before.coordination, &after.coordination, &mut queries);
    let (old, new) = (&before.backlog, &after.backlog);
    table::changes::<_, sections::Sections>(project, &old.sections, &new.sections, &mut queries);
    tasks::changes(project, old, new, &after.dependents, &mut queries);
    task_counts::changes(project, old, new, &mut queries);
    // The runs of a task are removed with it.
    for (id, run) in &new.runs {
        queries.extend(table::change::<runs::Runs>(project, id, old.runs.get(id), run));
    }
    table::changes::<_, runners::Runners>(project, &old.runners, &new.runners, &mut queries);
    table::changes::<_, outbox::Outbox>(project, &old.outbox, &new.outbox, &mut queries);
    if old.totals.finished_at != new.totals.finished_at {
        queries.push(marks::finished(project, new.totals.finished_at));
    }
    table::changes::<_, decisions::Decisions>(project, &old.decisions, &new.decisions, &mut queries);
    table::changes::<_, lost_claims::LostClaims>(project, &old.lost_claims, &new.lost_claims, &mut queries);
    if let Some(limits) = new.limits.filter(|limits| old.limits != Some(*limits)) {
        let params = [project.into(), i64::from(limits.runs).into(), i64::from(limits.roots).into()];
        queries.push(Query::new(projects::Statement::SetLimits, params));
    }
    if old.pause != new.pause {
        let pause = new.pause.as_ref().map(to_json);
        queries.push(Query::new(projects::Statement::SetPause, [project.into(), pause.into()]));
    }
    table::changes::<_, imports::Imports>(project, &old.imports, &new.imports, &mut queries);
    table::changes::<_, landings::Landings>(project, &old.landings, &new.landings, &mut queries);
    table::changes::<_, landing_targets::LandingTargets>(project, &old.landing_targets, &new.landing_targets, &mut queries);
    table::changes::<_, account_limits::AccountLimits>(project, &old.account_limits, &new.account_limits, &mut queries);
    table::changes::<_, spend::Spend>(project, &old.spend, &new.spend, &mut queries);
    pipelines::changes(project, old, new, &mut queries);
    table::changes::<_, workspaces::Workspaces>(project, &old.workspaces, &new.workspaces, &mut queries);
    let (old, new) = (&before.queues, &after.queues);
    table::changes::<_, queues::Queues>(project, &old.queues, &new.queues, &mut queries);
    table::changes::<_, items::Items>(project, &old.items, &new.items, &mut queries);
    table::changes::<_, takers::Takers>(project, &old.takers, &new.takers, &mut queries);
    // A message is never changed, and removed by compaction alone.
    for (id, message) in after.messages.iter().filter(|(id, _)| !before.messages.contains_key(*id)) {
        queries.push(table::insert::<messages::Messages>(project, id, message));
    }
    table::changes::<_, deliveries::Deliveries>(project, &before.deliveries, &after.deliveries, &mut queries);
    workers::changes(project, &before.automation, &after.automation, &mut queries);
    queries
}

fn coordination<'a>(project: i64, before: &'a Coordination, after: &'a Coordination, queries: &mut Vec<Query<'a>>) {
    for (name, lock) in &after.locks {
        let was = before.locks.get(name);
        if was != Some(lock) {
            queries.extend(locks::change(project, was, lock));
            waiters::changes(project, (&Kind::Lock, name), was.map(|was| &was.waiters), &lock.waiters, queries);
        }
    }
    for (name, semaphore) in &after.semaphores {
        let was = before.semaphores.get(name);
        if was != Some(semaphore) {
            semaphore_rows(project, was, semaphore, queries);
            waiters::changes(project, (&Kind::Semaphore, name), was.map(|was| &was.waiters), &semaphore.waiters, queries);
        }
    }
    for (_, lock) in before.locks.iter().filter(|(name, _)| !after.locks.contains_key(*name)) {
        queries.push(locks::delete(project, lock));
    }
    claims::changes(project, before, after, queries);
}

fn semaphore_rows<'a>(project: i64, was: Option<&'a Semaphore>, semaphore: &'a Semaphore, queries: &mut Vec<Query<'a>>) {
    let name = &semaphore.name;
    if was.is_none_or(|was| was.config != semaphore.config) {
        queries.push(table::insert::<Semaphores>(project, name, semaphore));
    }
    let gone = was.into_iter().flat_map(|was| &was.holders).filter(|(holder, _)| !semaphore.holders.contains_key(*holder));
    queries.extend(gone.map(|(_, grant)| table::delete::<Slots>(project, name, grant)));
    for (holder, grant) in &semaphore.holders {
        debug_assert_eq!(holder, &grant.claim.holder);
        let before = was.and_then(|was| was.holders.get(holder));
        queries.extend(table::change::<Slots>(project, name, before, grant));
    }
}
