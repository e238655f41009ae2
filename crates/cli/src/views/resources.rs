//! Locks and semaphores, their grants and waiters.

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::deadlock::Link;
use banksman_core::resource::grant::{Grant, Waiters};
use banksman_core::resource::lock::{self, Lock, State};
use banksman_core::resource::semaphore::Semaphore;
use banksman_core::{Epoch, HolderId, Name, Span};
use serde::Serialize;
use serde_json::Value;

use super::{Text, Time};

/// A grant. A free lock has the same keys, so that programs need not check for them.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GrantView<'a> {
    holder: Option<&'a HolderId>,
    state: &'a str,
    epoch: Option<Epoch>,
    weight: Option<u32>,
    ancestors: &'a [HolderId],
    acquired_at: Option<Time>,
    heartbeat_at: Option<Time>,
    expires_at: Option<Time>,
    ttl: Option<Text<Span>>,
    max_hold: Option<Text<Span>>,
    pids: Vec<i32>,
    metadata: Option<&'a Value>,
}

impl<'a> GrantView<'a> {
    pub(crate) fn new(grant: &'a Grant, state: &'a str) -> GrantView<'a> {
        let claim = &grant.claim;
        GrantView {
            holder: Some(&claim.holder),
            state,
            epoch: Some(grant.epoch),
            weight: Some(claim.weight),
            ancestors: &claim.ancestors,
            acquired_at: Some(Time(grant.acquired.wall)),
            heartbeat_at: Some(Time(grant.heartbeat.wall)),
            expires_at: grant.expires().map(Time),
            ttl: claim.ttl.map(Text),
            max_hold: claim.max_hold.map(Text),
            pids: claim.processes.iter().map(|process| process.pid).collect(),
            metadata: claim.metadata.as_ref(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct WaiterView<'a> {
    place: usize,
    holder: &'a HolderId,
    weight: u32,
    since: Time,
    pid: i32,
}

impl WaiterView<'_> {
    pub(crate) fn list(waiters: &Waiters) -> Vec<WaiterView<'_>> {
        let views = (1..).zip(waiters.iter()).map(|(place, waiter)| WaiterView {
            place,
            holder: &waiter.claim.holder,
            weight: waiter.claim.weight,
            since: waiter.since.into(),
            pid: waiter.standing.process.pid,
        });
        views.collect()
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct LockView<'a> {
    name: &'a Name,
    fence: Epoch,
    waiters: usize,
    #[serde(flatten)]
    grant: GrantView<'a>,
}

impl<'a> LockView<'a> {
    pub(crate) fn new(lock: &'a Lock, state: &'a str) -> LockView<'a> {
        let grant = match &lock.state {
            State::Free => GrantView { state, ..GrantView::default() },
            State::Held(grant) => GrantView::new(grant, state),
        };
        LockView { name: &lock.name, fence: lock.fence, waiters: lock.waiters.len(), grant }
    }
}

/// The default terms of a lock's grants.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LockTerms {
    ttl: Option<Text<Span>>,
    max_hold: Option<Text<Span>>,
}

impl From<lock::Config> for LockTerms {
    fn from(config: lock::Config) -> LockTerms {
        LockTerms { ttl: config.ttl.map(Text), max_hold: config.max_hold.map(Text) }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct LockDefinition<'a> {
    pub(crate) name: &'a Name,
    #[serde(flatten)]
    pub(crate) terms: LockTerms,
}

/// A lock with its terms and waiters.
#[derive(Debug, Serialize)]
pub(crate) struct LockPage<'a> {
    #[serde(flatten)]
    lock: LockView<'a>,
    defaults: LockTerms,
    line: Vec<WaiterView<'a>>,
}

impl<'a> LockPage<'a> {
    pub(crate) fn new(lock: &'a Lock, state: &'a str) -> LockPage<'a> {
        LockPage { lock: LockView::new(lock, state), defaults: lock.config.into(), line: WaiterView::list(&lock.waiters) }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct SemaphoreDefinition<'a> {
    pub(crate) name: &'a Name,
    /// `None` for the run slots of a project that does not limit its runs.
    pub(crate) capacity: Option<u32>,
    pub(crate) ttl: Option<Text<Span>>,
}

/// A semaphore and its holders: a number in a list, grants on a page.
#[derive(Debug, Serialize)]
pub(crate) struct SemaphoreView<'a, H> {
    #[serde(flatten)]
    pub(crate) definition: SemaphoreDefinition<'a>,
    pub(crate) available: Option<u32>,
    pub(crate) holders: H,
    pub(crate) expired: usize,
    pub(crate) waiters: usize,
}

/// A semaphore with its grants and waiters.
#[derive(Debug, Serialize)]
pub(crate) struct SemaphorePage<'a> {
    #[serde(flatten)]
    semaphore: SemaphoreView<'a, Vec<GrantView<'a>>>,
    line: Vec<WaiterView<'a>>,
}

impl<'a> SemaphorePage<'a> {
    pub(crate) fn new(view: SemaphoreView<'a, Vec<GrantView<'a>>>, semaphore: &'a Semaphore) -> SemaphorePage<'a> {
        SemaphorePage { semaphore: view, line: WaiterView::list(&semaphore.waiters) }
    }
}

/// The outcome of an acquire or a heartbeat.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Granted<'a> {
    name: &'a Name,
    outcome: &'a str,
    holder: &'a HolderId,
    epoch: Epoch,
    expires_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acquired_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u32>,
}

impl<'a> Granted<'a> {
    pub(crate) fn acquired(kind: Kind, name: &'a Name, outcome: &'a str, grant: &'a Grant) -> Granted<'a> {
        let weight = (kind == Kind::Semaphore).then_some(grant.claim.weight);
        Granted { acquired_at: Some(grant.acquired.into()), weight, outcome, ..Granted::extended(name, grant) }
    }

    pub(crate) fn extended(name: &'a Name, grant: &'a Grant) -> Granted<'a> {
        let (holder, expires_at) = (&grant.claim.holder, grant.expires().map(Time));
        Granted { name, outcome: "extended", holder, epoch: grant.epoch, expires_at, acquired_at: None, weight: None }
    }
}

/// The outcome of a release.
#[derive(Debug, Serialize)]
pub(crate) struct Released<'a> {
    pub(crate) name: &'a Name,
    pub(crate) outcome: &'a str,
    pub(crate) forced: bool,
}

/// A link of a circle of waits.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LinkView<'a> {
    holder: &'a HolderId,
    waits_for: &'a Resource,
}

impl LinkView<'_> {
    pub(crate) fn list(cycle: &[Link]) -> Vec<LinkView<'_>> {
        cycle.iter().map(|link| LinkView { holder: &link.party, waits_for: &link.resource }).collect()
    }
}
