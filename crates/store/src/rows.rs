//! How claims, grants and waiters stand in columns.

use banksman_core::backlog::LostClaim;
use banksman_core::event::{Kind, Resource};
use banksman_core::ids::{HolderId, Name, NameError, RequestId};
use banksman_core::resource::grant::{Address, Claim, Grant, Offer, Standing, Waiter};
use banksman_core::resource::work_claim::{Part, State, WorkClaim};
use banksman_core::{Epoch, Lease, Span, Stamp, TaskId, Ticket, Wall};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::StoreError;
use crate::sql::Statement;
use crate::tables::Watcher;
use crate::value::{Query, Row, Value};

/// One who waits: in the line of a resource, or as a runner for whatever it watches.
pub(crate) enum Waits {
    InLine(Resource, Box<Waiter>),
    Watching(Watcher),
    /// One part of a claim.
    Claim(Box<WorkClaim>),
    /// Who holds a part of a claim that waits.
    InTheWay(Ticket, HolderId),
}

impl Row {
    pub(crate) fn name(&mut self) -> Result<Name, StoreError> {
        parsed(&self.text()?, Name::new)
    }

    pub(crate) fn json<T: DeserializeOwned>(&mut self) -> Result<Option<T>, StoreError> {
        self.maybe_text()?.map(|text| serde_json::from_str(&text).map_err(StoreError::corrupt)).transpose()
    }

    fn weight(&mut self) -> Result<u32, StoreError> {
        self.int()?.try_into().map_err(StoreError::corrupt)
    }

    pub(crate) fn span(&mut self) -> Result<Option<Span>, StoreError> {
        Ok(self.maybe_int()?.map(Span::from_ms))
    }

    pub(crate) fn stamp(&mut self) -> Result<Stamp, StoreError> {
        Ok(Stamp { lease: Lease(self.int()?), wall: Wall(self.int()?) })
    }

    /// A claim; `None` if the row says that nobody holds.
    fn claim(&mut self) -> Result<Option<Claim>, StoreError> {
        let Some(holder) = self.maybe_text()? else { return Ok(None) };
        Ok(Some(Claim {
            holder: parsed(&holder, HolderId::new)?,
            weight: self.weight()?,
            ttl: self.span()?,
            max_hold: self.span()?,
            ancestors: self.json()?.unwrap_or_default(),
            processes: self.json()?.unwrap_or_default(),
            metadata: self.json()?,
            request: self.maybe_text()?.map(|text| parsed(&text, RequestId::new)).transpose()?,
        }))
    }

    /// A grant; `None` if the row says that nobody holds.
    pub(crate) fn grant(&mut self) -> Result<Option<Grant>, StoreError> {
        let Some(claim) = self.claim()? else { return Ok(None) };
        Ok(Some(Grant {
            claim,
            epoch: Epoch(self.int()?),
            acquired: self.stamp()?,
            heartbeat: self.stamp()?,
            ticket: self.maybe_int()?.map(Ticket),
            offer: self.json::<Offer>()?,
        }))
    }

    /// One part of a claim, in the columns of a waiter.
    fn claim_part(&mut self, ticket: Ticket) -> Result<WorkClaim, StoreError> {
        let (name, holder, weight, epoch) = (self.name()?, self.text()?, self.weight()?, self.maybe_int()?.map(Epoch));
        self.next()?;
        let word = self.text()?;
        let kind = Kind::parse(&word).ok_or_else(|| StoreError::corrupt(format_args!("a claim of kind {word:?}")))?;
        let task = self.maybe_text()?.map(|id| parsed(&id, TaskId::new)).transpose()?;
        self.next()?;
        self.next()?;
        let state = self.json()?.map_or(State::Held, |terms| State::Waiting(Box::new(terms)));
        let parts = vec![Part { resource: Resource { kind, name }, weight, epoch }];
        let holder = parsed(&holder, HolderId::new)?;
        Ok(WorkClaim { ticket, holder, task, parts, state, in_the_way: Default::default() })
    }

    pub(crate) fn lost_claim(&mut self) -> Result<LostClaim, StoreError> {
        Ok(LostClaim {
            task: self.task_id()?,
            holder: parsed(&self.text()?, HolderId::new)?,
            epoch: Epoch(self.int()?),
            reason: self.text()?.into(),
            at: Wall(self.int()?),
        })
    }

    pub(crate) fn waiter_or_watcher(&mut self) -> Result<Waits, StoreError> {
        let ticket = Ticket(self.int()?);
        let word = self.text()?;
        if word == "runner" {
            for _ in 0..7 {
                self.next()?;
            }
            let watching = self.json()?.unwrap_or_default();
            self.next()?;
            return Ok(Waits::Watching(Watcher { address: Address(self.text()?.into()), watching }));
        }
        if word == "claim" {
            return Ok(Waits::Claim(Box::new(self.claim_part(ticket)?)));
        }
        if word == "in the way" {
            self.next()?;
            return Ok(Waits::InTheWay(ticket, parsed(&self.text()?, HolderId::new)?));
        }
        let kind = Kind::parse(&word).ok_or_else(|| StoreError::corrupt(format_args!("a waiter of kind {word:?}")))?;
        let resource = Resource { kind, name: self.name()? };
        let claim = self.claim()?.ok_or_else(|| StoreError::corrupt("a waiter without a holder"))?;
        let standing: Standing = self.json()?.ok_or_else(|| StoreError::corrupt("a waiter without a process"))?;
        let waiter = Waiter { ticket, claim, standing, since: self.stamp()?, seen: Lease(self.int()?) };
        Ok(Waits::InLine(resource, Box::new(waiter)))
    }
}

pub(crate) fn parsed<T>(text: &str, parse: impl Fn(&str) -> Result<T, NameError>) -> Result<T, StoreError> {
    parse(text).map_err(StoreError::corrupt)
}

pub(crate) fn json<T: Serialize>(value: &T) -> Value<'static> {
    serde_json::to_string(value).expect("plain data always becomes JSON").into()
}

pub(crate) fn list<T: Serialize>(items: &[T]) -> Value<'static> {
    if items.is_empty() { Value::Null } else { json(&items) }
}

fn push_claim<'a>(claim: &'a Claim, params: &mut Vec<Value<'a>>) {
    params.push(claim.holder.as_str().into());
    params.push(i64::from(claim.weight).into());
    params.push(claim.ttl.map(Span::as_ms).into());
    params.push(claim.max_hold.map(Span::as_ms).into());
    params.push(list(&claim.ancestors));
    params.push(list(&claim.processes));
    params.push(claim.metadata.as_ref().map_or(Value::Null, json));
    params.push(claim.request.as_ref().map(|request| request.as_str()).into());
}

pub(crate) fn push_stamp(stamp: Stamp, params: &mut Vec<Value<'_>>) {
    params.push(stamp.lease.0.into());
    params.push(stamp.wall.0.into());
}

/// The columns of a grant; all NULL if nobody holds.
pub(crate) fn push_grant<'a>(grant: Option<&'a Grant>, params: &mut Vec<Value<'a>>) {
    const COLUMNS: usize = 15;
    let Some(grant) = grant else {
        params.extend(std::iter::repeat_n(Value::Null, COLUMNS));
        return;
    };
    push_claim(&grant.claim, params);
    params.push(grant.epoch.0.into());
    push_stamp(grant.acquired, params);
    push_stamp(grant.heartbeat, params);
    params.push(grant.ticket.map(|ticket| ticket.0).into());
    params.push(grant.offer.as_ref().map_or(Value::Null, json));
}

/// The rows of a claim that has changed.
pub(crate) fn push_claims<'a>(project: i64, claim: &'a WorkClaim, queries: &mut Vec<Query<'a>>) {
    for part in &claim.parts {
        let params: [Value<'a>; 9] = [
            project.into(),
            claim.ticket.0.into(),
            part.resource.kind.as_str().into(),
            part.resource.name.as_str().into(),
            i64::from(part.weight).into(),
            part.epoch.map(|epoch| epoch.0).into(),
            claim.holder.as_str().into(),
            claim.task.as_ref().map(TaskId::as_str).into(),
            claim.waits().map_or(Value::Null, json),
        ];
        queries.push(Query::new(Statement::UpsertClaim, params));
    }
}

/// The columns of a waiter, its ticket first.
pub(crate) fn push_waiter<'a>(resource: Kind, name: &'a Name, waiter: &'a Waiter, params: &mut Vec<Value<'a>>) {
    params.push(waiter.ticket.0.into());
    params.push(resource.as_str().into());
    params.push(name.as_str().into());
    push_claim(&waiter.claim, params);
    params.push(json(&waiter.standing));
    push_stamp(waiter.since, params);
    params.push(waiter.seen.0.into());
}
