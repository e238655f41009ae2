//! The rows that a decision sees, how it names them, and how they are read.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::claim::Waiter;
use banksman_core::coordination::Coordination;
use banksman_core::event::{Event, Fact, Kind, Resource};
use banksman_core::lock::{self, Lock, State};
use banksman_core::semaphore::{self, Semaphore};
use banksman_core::{Epoch, HolderId, Name, RequestId};

use crate::error::StoreError;
use crate::sql::Statement;
use crate::value::{Query, Row, Rows, Value};

/// Names rows to load. A call's keys follow from its arguments alone, never from a loaded value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// One lock with its line.
    Lock(Name),
    /// One semaphore with its holders and its line.
    Semaphore(Name),
    /// Everything that anybody waits for.
    Waits,
    /// What a request was granted before.
    Request(RequestId),
}

/// A partial copy of the tables: what the calls of one batch asked for, with the changes of earlier calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tables {
    /// Locks and semaphores.
    pub coordination: Coordination,
    /// What requests were granted.
    pub requests: BTreeMap<RequestId, Granted>,
}

/// What a request was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// Of what.
    pub resource: Resource,
    /// To whom.
    pub holder: HolderId,
    /// The epoch of the grant.
    pub epoch: Epoch,
}

/// The queries that load these keys.
pub(crate) fn plan(project: i64, keys: &BTreeSet<Key>) -> Vec<Query<'_>> {
    let mut queries = Vec::with_capacity(keys.len() + 4);
    let mut add = |statement, name| {
        let params = match name {
            Some(name) => vec![project.into(), Value::from(name)],
            None => vec![project.into()],
        };
        queries.push(Query::new(statement, params));
    };
    // The line of every loaded resource is needed, so the usually empty table of waiters is read as a whole, once.
    if keys.iter().any(|key| !matches!(key, Key::Request(_))) {
        add(Statement::Waiters, None);
    }
    for key in keys {
        match key {
            Key::Lock(name) => add(Statement::Lock, Some(name.as_str())),
            Key::Semaphore(name) => {
                add(Statement::Semaphore, Some(name.as_str()));
                add(Statement::Slots, Some(name.as_str()));
            }
            Key::Waits => {
                add(Statement::WaitedLocks, None);
                add(Statement::WaitedSemaphores, None);
                add(Statement::WaitedSlots, None);
            }
            Key::Request(request) => add(Statement::Request, Some(request.as_str())),
        }
    }
    queries
}

/// Everything that is held and waited for.
pub(crate) fn plan_all(project: i64) -> Vec<Query<'static>> {
    let all = [Statement::Waiters, Statement::AllLocks, Statement::AllSemaphores, Statement::AllSlots];
    all.into_iter().map(|statement| Query::new(statement, [project.into()])).collect()
}

/// Puts the answers to a plan together. Rows that two queries both return are equal, as they come from one
/// transaction.
pub(crate) fn decode(queries: &[Query<'_>], answers: Vec<Rows>) -> Result<Tables, StoreError> {
    let mut tables = Tables::default();
    let mut waiters = Vec::new();
    for (query, rows) in queries.iter().zip(answers) {
        for mut row in rows {
            match query.statement {
                Statement::Lock | Statement::AllLocks | Statement::WaitedLocks => {
                    let lock = lock(&mut row)?;
                    tables.coordination.locks.insert(lock.name.clone(), lock);
                }
                Statement::Semaphore | Statement::AllSemaphores | Statement::WaitedSemaphores => {
                    let semaphore = semaphore(&mut row)?;
                    tables.coordination.semaphores.entry(semaphore.name.clone()).or_insert(semaphore);
                }
                Statement::Slots | Statement::AllSlots | Statement::WaitedSlots => slot(&mut row, &mut tables.coordination)?,
                Statement::Waiters => waiters.push(row.waiter()?),
                Statement::Request => {
                    let (request, granted) = request(&mut row)?;
                    tables.requests.insert(request, granted);
                }
                other => unreachable!("{other:?} loads no table"),
            }
        }
    }
    for (resource, waiter) in waiters {
        stand(resource, waiter, &mut tables.coordination);
    }
    Ok(tables)
}

fn lock(row: &mut Row) -> Result<Lock, StoreError> {
    let name = row.name()?;
    let config = lock::Config { ttl: row.span()?, max_hold: row.span()? };
    let fence = Epoch(row.int()?);
    let state = row.grant()?.map_or(State::Free, |grant| State::Held(Box::new(grant)));
    Ok(Lock { config, fence, state, ..Lock::new(name) })
}

fn semaphore(row: &mut Row) -> Result<Semaphore, StoreError> {
    let name = row.name()?;
    let capacity = row.int()?.try_into().map_err(StoreError::corrupt)?;
    Ok(Semaphore::new(name, semaphore::Config { capacity, ttl: row.span()? }))
}

fn slot(row: &mut Row, coordination: &mut Coordination) -> Result<(), StoreError> {
    let name = row.name()?;
    let grant = row.grant()?.ok_or_else(|| StoreError::corrupt("a slot without a holder"))?;
    let semaphore = coordination.semaphores.get_mut(&name);
    let semaphore = semaphore.ok_or_else(|| StoreError::corrupt(format_args!("slots of no semaphore: {name}")))?;
    semaphore.holders.insert(grant.claim.holder.clone(), grant);
    Ok(())
}

/// Puts a waiter in the line of its resource, if that was loaded.
fn stand(resource: Resource, waiter: Waiter, coordination: &mut Coordination) {
    let line = match resource.kind {
        Kind::Lock => coordination.locks.get_mut(&resource.name).map(|lock| &mut lock.line),
        Kind::Semaphore => coordination.semaphores.get_mut(&resource.name).map(|semaphore| &mut semaphore.line),
    };
    if let Some(line) = line {
        line.push(waiter);
    }
}

fn request(row: &mut Row) -> Result<(RequestId, Granted), StoreError> {
    let epoch = Epoch(row.int()?);
    let (kind, component, id, data) = (row.text()?, row.text()?, row.maybe_text()?, row.text()?);
    match Event::parse(&kind, &component, id.as_deref(), &data).map_err(StoreError::corrupt)? {
        Event::Resource { resource, fact: Fact::Acquired(claim) } if claim.request.is_some() => {
            let request = claim.request.expect("the guard has looked");
            Ok((request, Granted { resource, holder: claim.holder, epoch }))
        }
        _ => Err(StoreError::corrupt(format_args!("event {epoch} carries a request but grants nothing"))),
    }
}
