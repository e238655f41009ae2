//! Acquiring a lock or slots of a semaphore.

use std::sync::Arc;
use std::time::Duration;

use banksman_core::event::{Kind, Resource as CoreResource};
use banksman_core::ids::{HolderId, Name, RequestId};
use banksman_core::resource::coordination::Outcome;
use banksman_core::resource::grant::{Ask, Blocked, Grant, GrantRequest, Term};
use banksman_core::resource::{lock, semaphore};
use banksman_core::{Span, Stamp};
use banksman_runtime::{Acquisition, EndedRuns, Sessions, WaitOptions, caller};

use crate::cancel::CancelToken;
use crate::client::Client;
use crate::error::{Error, OrPublic, Resource, Result, bad_name};
use crate::fresh_holder;
use crate::guard::Guard;

/// A request for a lock or for slots of a semaphore.
///
/// The grant is bound to this process: when the process dies, the first waiter gets the resource. Other machines that
/// share the store cannot see the death, so there the grant also has a time to live (`locking.heartbeat_timeout`),
/// which its [`Guard`] renews.
///
/// ```
/// use std::time::Duration;
/// use banksman::{Error, Project};
///
/// # let dir = tempfile::tempdir()?;
/// # let client = Project::init(dir.path())?.open()?;
/// let guard = client.lock("deploy").holder("release-robot").acquire()?;
/// println!("fencing number: {}", guard.epoch());
///
/// // A refusal names the holders.
/// match client.lock("deploy").acquire_within(Duration::from_millis(10)) {
///     Err(Error::Busy { holders, position, .. }) => {
///         assert_eq!(holders, ["release-robot"]);
///         assert_eq!(position, Some(1));
///     }
///     other => panic!("{other:?}"),
/// }
/// guard.release()?;
///
/// // Slots of a semaphore work in the same way, and a guard can move to another thread.
/// client.define_semaphore("gpu", 4)?;
/// let slots = client.semaphore("gpu").weight(3).try_acquire()?;
/// assert!(client.semaphore("gpu").weight(2).try_acquire().is_err());
/// std::thread::spawn(move || {
///     // Work that needs three slots; dropping the guard releases them.
///     drop(slots);
/// })
/// .join()
/// .unwrap();
/// client.semaphore("gpu").weight(4).try_acquire()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Holders and deadlocks
///
/// Every guard has a grant of its own. Without [`holder`](Acquire::holder), each request has a fresh holder name.
/// Banksman detects holders that wait for each other: give all requests of one thread, or of one unit of work, the same
/// holder name, and a wait that would never end is refused with [`Error::Deadlock`].
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until it is acquired"]
pub struct Acquire {
    client: Client,
    kind: Kind,
    name: String,
    holder: Option<String>,
    request_id: Option<String>,
    weight: u32,
    ttl: Option<Duration>,
    max_hold: Option<Duration>,
    cancel: Option<CancelToken>,
}

impl Acquire {
    pub(crate) fn new(client: &Client, kind: Kind, name: String) -> Acquire {
        let client = client.clone();
        Acquire { client, kind, name, holder: None, request_id: None, weight: 1, ttl: None, max_hold: None, cancel: None }
    }

    /// Sets the name of the holder, instead of a fresh one. Other processes that want the resource see the name.
    ///
    /// A lock is not reentrant: a request under a name that already holds the lock waits like any other. A semaphore answers such a request
    /// with [`Error::AlreadyHeld`].
    pub fn holder(mut self, holder: impl Into<String>) -> Acquire {
        self.holder = Some(holder.into());
        self
    }

    /// Identifies the request: after [`Error::OutcomeUnknown`], a request with the same id gets the same grant. The id
    /// is also the holder name, unless one is given.
    pub fn request_id(mut self, id: impl Into<String>) -> Acquire {
        self.request_id = Some(id.into());
        self
    }

    /// Requests this number of slots of a semaphore instead of one.
    pub fn weight(mut self, slots: u32) -> Acquire {
        self.weight = slots;
        self
    }

    /// Gives the grant a time to live. The guard renews the grant; after this time without a renewal another holder may
    /// get the resource.
    pub fn ttl(mut self, ttl: Duration) -> Acquire {
        self.ttl = Some(ttl);
        self
    }

    /// Ends the grant of a lock after this time, even if it is renewed.
    pub fn max_hold(mut self, max_hold: Duration) -> Acquire {
        self.max_hold = Some(max_hold);
        self
    }

    /// Ends the wait with [`Error::Cancelled`] when the token is cancelled.
    pub fn cancel_on(mut self, token: &CancelToken) -> Acquire {
        self.cancel = Some(token.clone());
        self
    }

    /// Acquires the resource without waiting.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if other holders have it.
    pub fn try_acquire(&self) -> Result<Guard> {
        self.ask(None)
    }

    /// Acquires the resource. Waits for at most `locking.wait_timeout` (30 minutes unless the settings say otherwise).
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if the time is up, [`Error::Deadlock`] if the wait would never end, [`Error::Cancelled`] if it was cancelled.
    pub fn acquire(&self) -> Result<Guard> {
        self.acquire_within(self.client.inner().config().wait_timeout)
    }

    /// The same, but waits for at most this time.
    pub fn acquire_within(&self, timeout: Duration) -> Result<Guard> {
        self.ask(Some(timeout))
    }

    fn ask(&self, wait: Option<Duration>) -> Result<Guard> {
        let resource = CoreResource { kind: self.kind, name: self.checked_name()? };
        let request = self.request()?;
        let holder = request.holder.clone();
        let client = self.client.inner();
        let lease = client.project().is_shared().then(|| Span::from(client.config().heartbeat_timeout));
        let ask = Ask { anew: true, term: Term::Usual(lease), ..Ask::new(request) };
        // If a run that ended without a runner blocks this request, the request records its end.
        let (files, open) = (Sessions::new(client.project()), || client.project().open().ok().map(Arc::new));
        let ended_runs = Some(EndedRuns { files: &files, open: &open, report: &|_| {} });
        let cancel = self.cancel.as_ref().map(CancelToken::fd);
        let options = WaitOptions { wait, cancel, ended_runs, ..WaitOptions::default() };
        let Granted { grant, at, asked } =
            granted(&resource, &holder, client.acquire(resource.clone(), ask, options).or_public()?)?;
        // A repeated request gets the grant of the first one, which another guard may hold.
        if grant.claim.request.is_some() && !self.client.guarded().insert(grant.epoch) {
            return Err(Error::AlreadyHeld { resource: Resource::of(&resource), holder: holder.to_string() });
        }
        Guard::new(&self.client, resource, &grant, at, asked)
    }

    fn checked_name(&self) -> Result<Name> {
        let what = match self.kind {
            Kind::Lock => "lock",
            Kind::Semaphore => "semaphore",
        };
        Name::unreserved(&self.name).map_err(|error| bad_name(what, error))
    }

    /// The validated request.
    fn request(&self) -> Result<GrantRequest> {
        let (ttl, max_hold) = (self.ttl.map(Span::from), self.max_hold.map(Span::from));
        match self.kind {
            Kind::Lock if self.weight != 1 => {
                return Err(Error::invalid(format!("weight applies to semaphores; lock {} has one slot", self.name)));
            }
            Kind::Semaphore if self.weight == 0 => return Err(Error::invalid("at least one slot must be asked for")),
            Kind::Semaphore if max_hold.is_some() => return Err(Error::invalid("slots of a semaphore have no longest hold")),
            Kind::Lock | Kind::Semaphore => {}
        }
        if [ttl, max_hold].contains(&Some(Span::ZERO)) {
            return Err(Error::invalid("a time to live and a longest hold must be at least one millisecond"));
        }
        let inherited = caller::holder().map_err(Error::invalid)?;
        // A repeated request must come from the same holder.
        let holder = match self.holder.as_deref().or(self.request_id.as_deref()) {
            Some(name) => HolderId::new(name).map_err(|error| bad_name("holder", error))?,
            None => fresh_holder(),
        };
        let own = inherited.into_iter().flat_map(|caller| std::iter::once(caller.holder).chain(caller.ancestors));
        Ok(GrantRequest {
            ancestors: own.filter(|ancestor| *ancestor != holder).collect(),
            weight: self.weight,
            ttl,
            max_hold,
            processes: vec![self.client.inner().this_process().clone()],
            request: self.request_id.as_deref().map(RequestId::new).transpose().or_public()?,
            ..GrantRequest::new(holder)
        })
    }
}

/// A grant, and the time when it was read: `at` by the clock of the store; `asked` is not later, by the clock of this machine.
struct Granted {
    grant: Grant,
    at: Stamp,
    asked: i64,
}

/// Maps the answer to a grant or an error.
fn granted(resource: &CoreResource, holder: &HolderId, acquisition: Acquisition) -> Result<Granted> {
    let (outcome, at, asked) = match acquisition {
        Acquisition::Answered { outcome, at, asked } => (outcome, at, asked),
        Acquisition::RequestReused => return Err(Error::invalid("the request id was used before, for something else")),
        Acquisition::TimedOut(waiting) => return Err(busy(resource, Some(waiting.place), &waiting.blocked)),
        Acquisition::Cancelled => return Err(Error::Cancelled),
    };
    let grant = match outcome {
        Outcome::Lock(outcome) => of_lock(resource, outcome)?,
        Outcome::Semaphore(outcome) => of_semaphore(resource, holder, outcome)?,
        Outcome::Deadlock(cycle) => return Err(Error::deadlock(Resource::of(resource), &cycle)),
        Outcome::Undefined => return Err(Error::NotFound { kind: "semaphore", name: resource.name.to_string() }),
    };
    Ok(Granted { grant, at, asked })
}

fn of_lock(resource: &CoreResource, outcome: lock::Outcome) -> Result<Grant> {
    match outcome {
        lock::Outcome::Acquired(grant) | lock::Outcome::Extended(grant) | lock::Outcome::Reclaimed { grant, .. } => Ok(grant),
        lock::Outcome::Busy(blocked) => Err(busy(resource, None, &blocked)),
        lock::Outcome::TooManyWaiters => Err(crowded(resource)),
        lock::Outcome::Spent { .. } => Err(spent()),
        other => unreachable!("no lock answers a request without an epoch with {other:?}"),
    }
}

fn of_semaphore(resource: &CoreResource, holder: &HolderId, outcome: semaphore::Outcome) -> Result<Grant> {
    match outcome {
        semaphore::Outcome::Acquired(grant) | semaphore::Outcome::AlreadyHeld(grant) | semaphore::Outcome::Increased(grant) => {
            Ok(grant)
        }
        semaphore::Outcome::Full { blocked, .. } => Err(busy(resource, None, &blocked)),
        semaphore::Outcome::TooHeavy { capacity } => Err(Error::refused(format!("{resource} has only {capacity} slots"))),
        semaphore::Outcome::NoWeight => Err(Error::invalid("at least one slot must be asked for")),
        semaphore::Outcome::HeldAlready => {
            Err(Error::AlreadyHeld { resource: Resource::of(resource), holder: holder.to_string() })
        }
        semaphore::Outcome::TooManyWaiters => Err(crowded(resource)),
        semaphore::Outcome::Spent { .. } => Err(spent()),
        other => unreachable!("no semaphore answers a request without an epoch with {other:?}"),
    }
}

fn busy(resource: &CoreResource, position: Option<usize>, blocked: &Blocked) -> Error {
    let holders = blocked.holders.iter().map(|grant| grant.claim.holder.to_string()).collect();
    Error::Busy { resource: Resource::of(resource), holders, position, waiters: blocked.waiters }
}

fn crowded(resource: &CoreResource) -> Error {
    Error::refused(format!("too many are waiting for {resource} already"))
}

fn spent() -> Error {
    Error::refused("this request was granted before, and that grant is over")
}
