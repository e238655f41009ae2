//! How claims, grants and waiters stand in columns.

use banksman_core::claim::{Address, Claim, Grant, Offer, Standing, Waiter};
use banksman_core::event::{Kind, Resource};
use banksman_core::ids::{HolderId, Name, NameError, RequestId};
use banksman_core::{Epoch, Lease, Span, Stamp, Ticket, Wall};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::StoreError;
use crate::tables::Watcher;
use crate::value::{Row, Value};

/// One who waits: in the line of a resource, or as a runner for whatever it watches.
pub(crate) enum Waits {
    InLine(Resource, Box<Waiter>),
    Watching(Watcher),
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
