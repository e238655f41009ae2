//! Acquiring from a program: a builder, and what it holds afterwards.

use std::time::Duration;

use banksman_adapters::ids;
use banksman_core::event::{Kind, Resource};
use banksman_core::ids::{HolderId, Name, NameError, RequestId};
use banksman_core::resource::coordination::{Command, Outcome};
use banksman_core::resource::grant::{Ask, Grant, GrantRequest};
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::{Epoch, Span};
use thiserror::Error;

use crate::client::Client;
use crate::error::Error;
use crate::waiting::{Acquisition, WaitOptions, span};

/// A request for a lock or for slots. It is bound to this process, and lives without a heartbeat unless it is
/// given a time to live.
///
/// Every handle has a grant of its own. A holder without a name gets a fresh one; a holder that is named and has slots of the semaphore already,
/// or waits for some, is refused with [`AcquireError::AlreadyHeld`]: dropping one handle would give back what the other relies on.
pub struct Acquire<'c> {
    client: &'c Client,
    resource: Resource,
    claim: GrantRequest,
    wait: Option<Duration>,
}

/// Why something is not ours.
#[derive(Debug, Error)]
pub enum AcquireError {
    /// Others have it, and the time to wait was up.
    #[error("{0} is held by others")]
    Busy(Resource),
    /// Waiting would never end.
    #[error("waiting for {0} would be a deadlock")]
    Deadlock(Resource),
    /// It cannot be had, whoever waits how long.
    #[error("{resource} cannot be acquired: {why}")]
    Refused {
        /// What was asked for.
        resource: Resource,
        /// Why not.
        why: String,
    },
    /// What was asked for cannot be asked for.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// The holder that was named has it already, or waits for it.
    #[error("{holder} has slots of {resource} already, or waits for some")]
    AlreadyHeld {
        /// What was asked for.
        resource: Resource,
        /// Who has it.
        holder: HolderId,
    },
    /// What was held is no longer ours: somebody else may have it.
    #[error("{0} is not ours any more")]
    Fenced(Resource),
    /// The call failed.
    #[error(transparent)]
    Failed(#[from] Error),
}

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ArgumentError {
    /// A lock has one slot.
    #[error("a lock has one slot, and {0} were asked for")]
    LockWeight(u32),
    /// No slots were asked for.
    #[error("at least one slot must be asked for")]
    NoWeight,
    /// The grant would be over before it begins.
    #[error("the time to live must be at least one millisecond")]
    Ttl,
    /// The grant would be over before it begins.
    #[error("the longest hold must be at least one millisecond")]
    MaxHold,
    /// Only a lock has a longest hold.
    #[error("slots of a semaphore have no longest hold")]
    SlotsMaxHold,
}

/// A lock, or slots, that this process holds. Dropping it gives it back.
pub struct Held<'c> {
    client: &'c Client,
    resource: Resource,
    grant: Grant,
    over: bool,
}

impl<'c> Acquire<'c> {
    pub(crate) fn lock(client: &'c Client, name: &str) -> Result<Self, NameError> {
        Self::new(client, Kind::Lock, name)
    }

    pub(crate) fn semaphore(client: &'c Client, name: &str) -> Result<Self, NameError> {
        Self::new(client, Kind::Semaphore, name)
    }

    fn new(client: &'c Client, kind: Kind, name: &str) -> Result<Self, NameError> {
        let claim = GrantRequest {
            processes: vec![client.this_process().clone()],
            ..GrantRequest::new(HolderId::new(&ids::short("h"))?)
        };
        Ok(Acquire { client, resource: Resource { kind, name: Name::unreserved(name)? }, claim, wait: None })
    }

    /// Holds it under this name instead of a fresh one.
    pub fn holder(mut self, holder: &str) -> Result<Self, NameError> {
        self.claim.holder = HolderId::new(holder)?;
        Ok(self)
    }

    /// Marks the request, so that it can be repeated after a lost answer.
    pub fn request_id(mut self, request: &str) -> Result<Self, NameError> {
        self.claim.request = Some(RequestId::new(request)?);
        Ok(self)
    }

    /// Asks for so many slots. A lock has one.
    pub fn weight(mut self, weight: u32) -> Self {
        self.claim.weight = weight;
        self
    }

    /// Lets it expire without a heartbeat for so long.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.claim.ttl = Some(span(ttl));
        self
    }

    /// Lets it end after so long, whatever happens.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.claim.max_hold = Some(span(max_hold));
        self
    }

    /// Waits in line for at most so long.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Refuses what no lock and no semaphore could grant.
    fn check(&self) -> Result<(), ArgumentError> {
        let GrantRequest { weight, ttl, max_hold, .. } = &self.claim;
        match self.resource.kind {
            Kind::Lock if *weight != 1 => Err(ArgumentError::LockWeight(*weight)),
            Kind::Semaphore if *weight == 0 => Err(ArgumentError::NoWeight),
            Kind::Semaphore if max_hold.is_some() => Err(ArgumentError::SlotsMaxHold),
            _ if *ttl == Some(Span::ZERO) => Err(ArgumentError::Ttl),
            _ if *max_hold == Some(Span::ZERO) => Err(ArgumentError::MaxHold),
            Kind::Lock | Kind::Semaphore => Ok(()),
        }
    }

    /// Acquires it.
    pub fn acquire(self) -> Result<Held<'c>, AcquireError> {
        self.check()?;
        let Acquire { client, resource, claim, wait } = self;
        let holder = claim.holder.clone();
        let ask = Ask { anew: true, ..Ask::new(claim) };
        let patience = WaitOptions { wait, ..WaitOptions::default() };
        let acquisition = client.acquire(resource.clone(), ask, patience)?;
        let refused = |why: &str| AcquireError::Refused { resource: resource.clone(), why: why.into() };
        let outcome = match acquisition {
            Acquisition::Answered { outcome, .. } => outcome,
            Acquisition::RequestReused => return Err(refused("the request id was used for something else")),
            Acquisition::TimedOut(_) | Acquisition::Cancelled => return Err(AcquireError::Busy(resource)),
        };
        let grant = match outcome {
            Outcome::Lock(outcome) => match outcome {
                lock::Outcome::Acquired(grant) | lock::Outcome::Extended(grant) | lock::Outcome::Reclaimed { grant, .. } => grant,
                lock::Outcome::Busy(_) => return Err(AcquireError::Busy(resource)),
                lock::Outcome::TooManyWaiters => return Err(refused("too many wait for it already")),
                lock::Outcome::Spent { .. } => return Err(refused("this request was granted before, and that grant is over")),
                other => unreachable!("no lock answers a request without an epoch with {other:?}"),
            },
            Outcome::Semaphore(outcome) => match outcome {
                semaphore::Outcome::Acquired(grant)
                | semaphore::Outcome::AlreadyHeld(grant)
                | semaphore::Outcome::Increased(grant) => grant,
                semaphore::Outcome::Full { .. } => return Err(AcquireError::Busy(resource)),
                semaphore::Outcome::TooHeavy { capacity } => return Err(refused(&format!("it has only {capacity} slots"))),
                semaphore::Outcome::NoWeight => return Err(ArgumentError::NoWeight.into()),
                semaphore::Outcome::HeldAlready => return Err(AcquireError::AlreadyHeld { resource, holder }),
                semaphore::Outcome::TooManyWaiters => return Err(refused("too many wait for it already")),
                semaphore::Outcome::Spent { .. } => {
                    return Err(refused("this request was granted before, and that grant is over"));
                }
                other => unreachable!("no semaphore answers a request without an epoch with {other:?}"),
            },
            Outcome::Deadlock(_) => return Err(AcquireError::Deadlock(resource)),
            Outcome::Undefined => return Err(refused("there is no such semaphore")),
        };
        // A request that was repeated gets the grant of the first one, which another handle may have.
        if grant.claim.request.is_some() && !client.handles().insert(grant.epoch) {
            return Err(AcquireError::AlreadyHeld { resource, holder });
        }
        Ok(Held { client, resource, grant, over: false })
    }
}

impl Held<'_> {
    /// The fencing number. Give it to whatever is protected, so that it can refuse an older one.
    pub fn epoch(&self) -> Epoch {
        self.grant.epoch
    }

    /// Who holds it.
    pub fn holder(&self) -> &HolderId {
        &self.grant.claim.holder
    }

    /// Shows a sign of life, and learns whether it is still ours.
    pub fn heartbeat(&self) -> Result<(), AcquireError> {
        let (holder, epoch) = (self.holder().clone(), self.grant.epoch);
        let command = match self.resource.kind {
            Kind::Lock => Command::Lock(self.resource.name.clone(), lock::Input::Heartbeat { holder, epoch }),
            Kind::Semaphore => {
                Command::Semaphore(self.resource.name.clone(), semaphore::Input::Heartbeat { holder, epoch: Some(epoch) })
            }
        };
        match self.client.ask(command, Vec::new())?.0 {
            Outcome::Lock(lock::Outcome::Extended(_)) | Outcome::Semaphore(semaphore::Outcome::Extended(_)) => Ok(()),
            _ => Err(AcquireError::Fenced(self.resource.clone())),
        }
    }

    /// Gives it back.
    pub fn release(mut self) -> Result<(), AcquireError> {
        self.give_back()
    }

    fn give_back(&mut self) -> Result<(), AcquireError> {
        if std::mem::replace(&mut self.over, true) {
            return Ok(());
        }
        if self.grant.claim.request.is_some() {
            self.client.handles().remove(&self.grant.epoch);
        }
        let (holder, epoch) = (self.holder().clone(), self.grant.epoch);
        let command = match self.resource.kind {
            Kind::Lock => Command::Lock(self.resource.name.clone(), lock::Input::Release { holder, epoch }),
            Kind::Semaphore => {
                Command::Semaphore(self.resource.name.clone(), semaphore::Input::Release { holder, epoch: Some(epoch) })
            }
        };
        match self.client.ask(command, Vec::new())?.0 {
            Outcome::Lock(lock::Outcome::Released | lock::Outcome::AlreadyFree)
            | Outcome::Semaphore(semaphore::Outcome::Released) => Ok(()),
            _ => Err(AcquireError::Fenced(self.resource.clone())),
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Whoever wants to know whether it was still ours calls `release`.
        self.give_back().ok();
    }
}
