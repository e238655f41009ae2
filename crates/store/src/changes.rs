//! What a batch has changed, as statements.

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::grant::Line;
use banksman_core::resource::lock::{Lock, State};
use banksman_core::resource::semaphore::Semaphore;
use banksman_core::{HolderId, Name, Span, WorkClaim};

use crate::backlog;
use crate::crew;
use crate::queues;
use crate::rows::{push_claims, push_grant, push_waiter};
use crate::sql::Statement;
use crate::tables::Tables;
use crate::value::{Query, Value};

/// The statements that turn the rows of `before` into those of `after`.
pub(crate) fn between<'a>(project: i64, before: &'a Tables, after: &'a Tables) -> Vec<Query<'a>> {
    let mut queries = Vec::new();
    let (old, new) = (&before.coordination, &after.coordination);
    for (name, lock) in &new.locks {
        let was = old.locks.get(name);
        if was != Some(lock) {
            lock_row(project, was, lock, &mut queries);
            lines(project, Kind::Lock, name, was.map(|was| &was.line), &lock.line, &mut queries);
        }
    }
    for (name, semaphore) in &new.semaphores {
        let was = old.semaphores.get(name);
        if was != Some(semaphore) {
            semaphore_rows(project, was, semaphore, &mut queries);
            lines(project, Kind::Semaphore, name, was.map(|was| &was.line), &semaphore.line, &mut queries);
        }
    }
    for name in old.locks.keys().filter(|name| !new.locks.contains_key(*name)) {
        queries.push(Query::new(Statement::DeleteLock, [project.into(), name.as_str().into()]));
    }
    for (ticket, claim) in &old.claims {
        // Its parts may be others.
        let is_same = new.claims.get(ticket).is_some_and(|now| resources(now).eq(resources(claim)));
        if !is_same {
            queries.push(Query::new(Statement::DeleteClaim, [project.into(), ticket.0.into()]));
        }
    }
    for claim in new.claims.values().filter(|claim| old.claims.get(&claim.ticket) != Some(*claim)) {
        push_claims(project, claim, &mut queries);
    }
    backlog::between(project, &before.backlog, &after.backlog, &mut queries);
    queues::between(project, &before.queues, &after.queues, &mut queries);
    crew::between(project, &before.crew, &after.crew, &mut queries);
    queries
}

fn resources(claim: &WorkClaim) -> impl Iterator<Item = &Resource> {
    claim.parts.iter().map(|part| &part.resource)
}

fn lock_row<'a>(project: i64, was: Option<&Lock>, lock: &'a Lock, queries: &mut Vec<Query<'a>>) {
    let unchanged = was.is_some_and(|was| (was.config, was.fence, &was.state) == (lock.config, lock.fence, &lock.state));
    // A lock that was only asked about leaves no row behind.
    if unchanged || (was.is_none() && *lock == Lock::new(lock.name.clone())) {
        return;
    }
    let mut params = Vec::with_capacity(20);
    params.push(project.into());
    params.push(lock.name.as_str().into());
    params.push(lock.config.ttl.map(Span::as_ms).into());
    params.push(lock.config.max_hold.map(Span::as_ms).into());
    params.push(lock.fence.0.into());
    let grant = match &lock.state {
        State::Free => None,
        State::Held(grant) => Some(&**grant),
    };
    push_grant(grant, &mut params);
    queries.push(Query::new(Statement::UpsertLock, params));
}

fn semaphore_rows<'a>(project: i64, was: Option<&'a Semaphore>, semaphore: &'a Semaphore, queries: &mut Vec<Query<'a>>) {
    let name: Value<'a> = semaphore.name.as_str().into();
    if was.is_none_or(|was| was.config != semaphore.config) {
        let capacity = i64::from(semaphore.config.capacity).into();
        let ttl = semaphore.config.ttl.map(Span::as_ms).into();
        queries.push(Query::new(Statement::UpsertSemaphore, [project.into(), name.clone(), capacity, ttl]));
    }
    let old = |holder: &HolderId| was.and_then(|was| was.holders.get(holder));
    let gone = was.into_iter().flat_map(|was| was.holders.keys()).filter(|holder| !semaphore.holders.contains_key(*holder));
    for holder in gone {
        queries.push(Query::new(Statement::DeleteSlot, [project.into(), name.clone(), holder.as_str().into()]));
    }
    for (holder, grant) in semaphore.holders.iter().filter(|(holder, grant)| old(holder) != Some(*grant)) {
        debug_assert_eq!(holder, &grant.claim.holder);
        let mut params = Vec::with_capacity(17);
        params.push(project.into());
        params.push(name.clone());
        push_grant(Some(grant), &mut params);
        queries.push(Query::new(Statement::UpsertSlot, params));
    }
}

fn lines<'a>(project: i64, kind: Kind, name: &'a Name, was: Option<&'a Line>, line: &'a Line, queries: &mut Vec<Query<'a>>) {
    if was == Some(line) {
        return;
    }
    for waiter in was.into_iter().flat_map(Line::iter).filter(|waiter| line.position(waiter.ticket).is_none()) {
        queries.push(Query::new(Statement::DeleteWaiter, [project.into(), waiter.ticket.0.into()]));
    }
    for waiter in line.iter() {
        let before = was.and_then(|was| was.get(was.position(waiter.ticket)?));
        if before != Some(waiter) {
            let mut params = Vec::with_capacity(15);
            params.push(project.into());
            push_waiter(kind, name, waiter, &mut params);
            queries.push(Query::new(Statement::UpsertWaiter, params));
        }
    }
}
