//! A lock, or slots of a semaphore, that this process holds.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use banksman_adapters::host;
use banksman_core::event::{Kind, Resource as CoreResource};
use banksman_core::resource::coordination::{Command, Outcome};
use banksman_core::resource::grant::Grant;
use banksman_core::resource::{lock, semaphore};
use banksman_core::{Epoch, HolderId, Stamp};

use crate::client::Client;
use crate::error::{Error, OrPublic, Resource, Result};

/// A lock, or slots of a semaphore, that this process holds. Dropping it gives it back.
///
/// It can move to another thread, and outlives the variable that the [`Client`] is in. If the grant has a time to live, a
/// background thread renews it for as long as the guard exists.
#[must_use = "dropping it gives it back at once"]
pub struct Guard {
    client: Client,
    grip: Arc<Grip>,
    is_over: bool,
}

/// What a guard and its renewal share.
pub(crate) struct Grip {
    resource: CoreResource,
    holder: HolderId,
    epoch: Epoch,
    /// How long the grant lives without a renewal.
    ttl: Option<Duration>,
    is_lost: AtomicBool,
    /// When the grant is over unless it is renewed, in milliseconds since boot.
    expires: AtomicI64,
    /// The same by its longest hold, which nothing extends.
    ends: i64,
    is_repeatable: bool,
}

impl Guard {
    pub(crate) fn new(client: &Client, resource: CoreResource, grant: &Grant, at: Stamp) -> Result<Guard> {
        let received = host::boot_ms();
        let ms = |duration: Option<banksman_core::Span>| duration.map_or(i64::MAX, |span| span.as_ms());
        let until = |from: Stamp, ms: i64| received.saturating_add(ms.saturating_sub((at.lease - from.lease).as_ms()));
        let grip = Arc::new(Grip {
            resource,
            holder: grant.claim.holder.clone(),
            epoch: grant.epoch,
            ttl: grant.claim.ttl.map(|ttl| Duration::from_millis(ttl.as_ms().unsigned_abs())),
            is_lost: AtomicBool::new(false),
            expires: AtomicI64::new(until(grant.heartbeat, ms(grant.claim.ttl))),
            ends: until(grant.acquired, ms(grant.claim.max_hold)),
            is_repeatable: grant.claim.request.is_some(),
        });
        let guard = Guard { client: client.clone(), grip, is_over: false };
        if let Some(ttl) = guard.grip.ttl {
            client.renewals().add(client, &guard.grip, ttl)?;
        }
        Ok(guard)
    }

    /// The fencing number: it rises with every grant in the project. Pass it to what the lock protects, so that a late write
    /// of an earlier holder can be refused.
    pub fn epoch(&self) -> u64 {
        self.grip.epoch.0.unsigned_abs()
    }

    /// The name it is held under.
    pub fn holder(&self) -> &str {
        self.grip.holder.as_str()
    }

    /// What is held.
    pub fn resource(&self) -> Resource {
        Resource::of(&self.grip.resource)
    }

    /// Whether it must be assumed to be lost: the store has said so, or its time is over and no renewal was confirmed. It asks nobody;
    /// [`renew`](Guard::renew) does.
    pub fn is_lost(&self) -> bool {
        self.grip.is_lost()
    }

    /// Renews it now, and learns whether it is still held. Only needed before a step that must not happen without it.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if it is not held any more.
    pub fn renew(&self) -> Result<()> {
        self.grip.renew(&self.client)
    }

    /// Gives it back. Dropping does the same, but cannot report an error.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if it was not held any more.
    pub fn release(mut self) -> Result<()> {
        self.give_back()
    }

    fn give_back(&mut self) -> Result<()> {
        if self.is_over {
            return Ok(());
        }
        let grip = &self.grip;
        if grip.ttl.is_some() {
            self.client.renewals().remove(grip.epoch);
        }
        if grip.is_repeatable {
            self.client.guarded().remove(&grip.epoch);
        }
        let (name, holder, epoch) = (grip.resource.name.clone(), grip.holder.clone(), grip.epoch);
        let command = match grip.resource.kind {
            Kind::Lock => Command::Lock(name, lock::Input::Release { holder, epoch }),
            Kind::Semaphore => Command::Semaphore(name, semaphore::Input::Release { holder, epoch: Some(epoch) }),
        };
        let outcome = self.client.inner().ask(command, Vec::new()).or_public()?.0;
        // Without an answer it is still held; dropping the guard asks once more.
        self.is_over = true;
        match outcome {
            Outcome::Lock(lock::Outcome::Released | lock::Outcome::AlreadyFree)
            | Outcome::Semaphore(semaphore::Outcome::Released) => Ok(()),
            _ => Err(self.grip.lost()),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Who wants to know whether it was still held calls `release`.
        self.give_back().ok();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Grip { holder, epoch, .. } = &*self.grip;
        let mut fields = f.debug_struct("Guard");
        fields.field("resource", &self.resource()).field("holder", &holder.as_str()).field("epoch", &epoch.0);
        fields.field("is_lost", &self.is_lost()).finish()
    }
}

impl Grip {
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn is_lost(&self) -> bool {
        let now = host::boot_ms();
        self.is_lost.load(Ordering::Acquire) || now >= self.expires.load(Ordering::Acquire) || now >= self.ends
    }

    /// Renews the grant.
    pub(crate) fn renew(&self, client: &Client) -> Result<()> {
        let sent = host::boot_ms();
        let (name, holder, epoch) = (self.resource.name.clone(), self.holder.clone(), self.epoch);
        let command = match self.resource.kind {
            Kind::Lock => Command::Lock(name, lock::Input::Heartbeat { holder, epoch }),
            Kind::Semaphore => Command::Semaphore(name, semaphore::Input::Heartbeat { holder, epoch: Some(epoch) }),
        };
        match client.inner().ask(command, Vec::new()).or_public()?.0 {
            Outcome::Lock(lock::Outcome::Extended(_)) | Outcome::Semaphore(semaphore::Outcome::Extended(_)) => {
                let ttl = self.ttl.map_or(i64::MAX, |ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
                self.expires.fetch_max(sent.saturating_add(ttl), Ordering::AcqRel);
                Ok(())
            }
            _ => {
                self.is_lost.store(true, Ordering::Release);
                Err(self.lost())
            }
        }
    }

    fn lost(&self) -> Error {
        Error::Lost { what: self.resource.to_string() }
    }
}
