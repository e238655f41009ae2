//! A lock, or slots of a semaphore, that this process holds.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use banksman_adapters::host;
use banksman_core::event::Resource as CoreResource;
use banksman_core::resource::coordination::Command;
use banksman_core::resource::grant::Grant;
use banksman_core::{Epoch, HolderId, Span, Stamp};

use crate::client::Client;
use crate::error::{Error, OrPublic, Resource, Result};

/// A lock, or slots of a semaphore, that this process holds. Dropping the guard releases them.
///
/// A guard can move to another thread, and keeps its [`Client`] open. If the grant has a time to live, a background
/// thread renews it for as long as the guard exists.
///
/// ```
/// use std::time::Duration;
/// use banksman::Project;
///
/// # let dir = tempfile::tempdir()?;
/// # let client = Project::init(dir.path())?.open()?;
/// let guard = client.lock("report").ttl(Duration::from_secs(30)).acquire()?;
/// for page in 1..=3 {
///     if guard.is_lost() {
///         break; // another holder may have it: stop
///     }
///     println!("page {page}, written with the fencing number {}", guard.epoch());
/// }
/// guard.renew()?; // asks the store: is it still held?
/// guard.release()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it gives it back at once"]
pub struct Guard {
    client: Client,
    grip: Arc<Grip>,
    is_over: bool,
}

/// The state that a guard shares with its renewal.
pub(crate) struct Grip {
    resource: CoreResource,
    holder: HolderId,
    epoch: Epoch,
    /// How long the grant lives without a renewal.
    ttl: Option<Duration>,
    is_lost: AtomicBool,
    /// When the grant expires unless it is renewed, in milliseconds since boot.
    expires: AtomicI64,
    /// When the grant ends by its longest hold, which nothing extends.
    ends: i64,
    is_repeatable: bool,
}

impl Guard {
    /// Creates the guard of a grant that was read at this moment of the store. That moment was not before `asked` on
    /// this machine.
    pub(crate) fn new(client: &Client, resource: CoreResource, grant: &Grant, at: Stamp, asked: i64) -> Result<Guard> {
        let until = |from: Stamp, limit: Option<Span>| until(asked, at, from, limit);
        let grip = Arc::new(Grip {
            resource,
            holder: grant.claim.holder.clone(),
            epoch: grant.epoch,
            ttl: grant.claim.ttl.map(|ttl| Duration::from_millis(ttl.as_ms().unsigned_abs())),
            is_lost: AtomicBool::new(false),
            expires: AtomicI64::new(until(grant.heartbeat, grant.claim.ttl)),
            ends: until(grant.acquired, grant.claim.max_hold),
            is_repeatable: grant.claim.request.is_some(),
        });
        let guard = Guard { client: client.clone(), grip, is_over: false };
        if let Some(ttl) = guard.grip.ttl {
            client.renewals().add(client, &guard.grip, ttl)?;
        }
        Ok(guard)
    }

    /// The fencing number: it rises with every grant in the project. Pass it to whatever the lock protects, so that a
    /// late write of an earlier holder can be refused.
    pub fn epoch(&self) -> u64 {
        self.grip.epoch.0.unsigned_abs()
    }

    /// The name of the holder.
    pub fn holder(&self) -> &str {
        self.grip.holder.as_str()
    }

    /// The held resource.
    pub fn resource(&self) -> Resource {
        Resource::of(&self.grip.resource)
    }

    /// Whether the grant must be assumed to be lost: the store has reported so, or the grant has expired without a
    /// confirmed renewal. Does not ask the store; [`renew`](Guard::renew) does.
    pub fn is_lost(&self) -> bool {
        self.grip.is_lost()
    }

    /// Renews the grant now, and checks that it is still held. Only needed before a step that must not happen without
    /// it.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if it is no longer held.
    pub fn renew(&self) -> Result<()> {
        self.grip.renew(&self.client)
    }

    /// Releases the grant. Dropping the guard does the same, but cannot report an error.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if it was no longer held.
    pub fn release(mut self) -> Result<()> {
        self.release_once()
    }

    fn release_once(&mut self) -> Result<()> {
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
        let command = Command::release(grip.resource.clone(), grip.holder.clone(), grip.epoch);
        let outcome = self.client.inner().ask(command, Vec::new()).or_public()?.0;
        // Without an answer the grant is still held; dropping the guard asks again.
        self.is_over = true;
        if outcome.is_released() { Ok(()) } else { Err(self.grip.lost()) }
    }
}

/// When a limit that began at a moment of the store ends, in milliseconds since boot. An answer may take any time to
/// arrive, and the guard must not believe longer than the store that it holds the grant, so the time counts from before
/// the question.
fn until(asked: i64, at: Stamp, from: Stamp, limit: Option<Span>) -> i64 {
    limit.map_or(i64::MAX, |limit| asked.saturating_add(limit.as_ms().saturating_sub((at.lease - from.lease).as_ms())))
}

impl Drop for Guard {
    fn drop(&mut self) {
        // To learn whether the grant was still held, callers use `release`.
        self.release_once().ok();
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

    pub(crate) fn renew(&self, client: &Client) -> Result<()> {
        let sent = host::boot_ms();
        let command = Command::heartbeat(self.resource.clone(), self.holder.clone(), self.epoch);
        match client.inner().ask(command, Vec::new()).or_public()?.0.extended() {
            Some(_) => {
                let ttl = self.ttl.map_or(i64::MAX, |ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
                self.expires.fetch_max(sent.saturating_add(ttl), Ordering::AcqRel);
                Ok(())
            }
            None => {
                self.is_lost.store(true, Ordering::Release);
                Err(self.lost())
            }
        }
    }

    fn lost(&self) -> Error {
        Error::Lost { what: self.resource.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use banksman_core::{Lease, Wall};

    use super::*;

    #[test]
    fn a_limit_counts_from_the_question_and_not_from_the_answer() {
        let moment = |lease| Stamp { lease: Lease(lease), wall: Wall(0) };
        // Asked at 500 here, answered at 9,000 there, whenever the answer has come.
        assert_eq!(until(500, moment(9_000), moment(9_000), Some(Span::from_ms(30))), 530);
        assert_eq!(until(500, moment(9_000), moment(8_990), Some(Span::from_ms(30))), 520, "it was granted before");
        assert_eq!(until(500, moment(9_000), moment(9_000), None), i64::MAX);
    }
}
