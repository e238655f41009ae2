//! When the lock of a dispatch is released: at most once, and only by what its policy waits for.
//!
//! ```text
//!   no lock:                 nothing is ever released
//!   after send-final:        Held -- the outcome of the send, whatever it is --> Released
//!   after spawn observation: Held -- the start has failed, the session answers, or it has exited --> Released
//! ```
//!
//! That a spawn was *started* proves nothing: a lock that is free before the session was observed lets the next dispatch start it a second
//! time. A start that has failed has nothing to observe.
//!
//! Invariants: a release returns the claim that was passed in, never one that was looked up; after it every event is a
//! no-op.

use serde::{Deserialize, Serialize};

use super::LockClaim;
use crate::step::Step;

/// The event that the release of a lock waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleasePolicy {
    NoLock,
    /// For the outcome of the send.
    AfterSendFinal,
    /// For the first sign of how the session fared.
    AfterSpawnObservation,
}

/// The lock of one dispatch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    policy: ReleasePolicy,
    /// The claim while it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claim: Option<LockClaim>,
}

/// The events while a message is on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseEvent {
    SendFinal(SendOutcome),
    /// The session's process was started. Whether it lives is not known yet.
    SpawnStarted {
        pid: i32,
    },
    SpawnStartFailed {
        error: Box<str>,
    },
    /// The session has answered.
    SocketAlive,
    /// The session's process has ended.
    ChildExited {
        /// Its exit code; none if a signal has ended it.
        code: Option<i32>,
    },
    /// The message is in the mailbox.
    MailboxEnqueued,
}

/// How a send ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SendOutcome {
    Sent,
    /// The message was left in the mailbox instead.
    FallbackSent,
    /// The session has refused it.
    Rejected,
    Failed,
    /// The dispatcher died before it knew. The process that has proven its death records this.
    Unknown,
}

/// The result of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The lock is to be released, with this claim.
    Release(LockClaim),
    /// Nothing: the lock stays held, was released before, or there is none.
    Nothing,
}

impl Release {
    /// The lock of a dispatch whose [policy](super::release_policy) was checked against its claim.
    pub fn new(policy: ReleasePolicy, claim: Option<LockClaim>) -> Release {
        Release { policy, claim: claim.filter(|_| policy != ReleasePolicy::NoLock) }
    }

    pub fn policy(&self) -> ReleasePolicy {
        self.policy
    }

    /// The claim, until it is released.
    pub fn claim(&self) -> Option<&LockClaim> {
        self.claim.as_ref()
    }

    /// Applies one event. It depends neither on the time nor on event numbers.
    pub fn step(mut self, event: &ReleaseEvent) -> Step<Release, Outcome> {
        let claim = if self.waits_for(event) { self.claim.take() } else { None };
        Step { state: self, outcome: claim.map_or(Outcome::Nothing, Outcome::Release), effects: Vec::new() }
    }

    fn waits_for(&self, event: &ReleaseEvent) -> bool {
        match (self.policy, event) {
            (ReleasePolicy::NoLock, _) => false,
            (ReleasePolicy::AfterSendFinal, ReleaseEvent::SendFinal(_)) => true,
            (
                ReleasePolicy::AfterSendFinal,
                ReleaseEvent::SpawnStarted { .. }
                | ReleaseEvent::SpawnStartFailed { .. }
                | ReleaseEvent::SocketAlive
                | ReleaseEvent::ChildExited { .. }
                | ReleaseEvent::MailboxEnqueued,
            ) => false,
            (
                ReleasePolicy::AfterSpawnObservation,
                ReleaseEvent::SpawnStartFailed { .. } | ReleaseEvent::SocketAlive | ReleaseEvent::ChildExited { .. },
            ) => true,
            (
                ReleasePolicy::AfterSpawnObservation,
                ReleaseEvent::SendFinal(_) | ReleaseEvent::SpawnStarted { .. } | ReleaseEvent::MailboxEnqueued,
            ) => false,
        }
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        assert!(self.policy != ReleasePolicy::NoLock || self.claim.is_none(), "a dispatch without a lock holds {:?}", self.claim);
    }
}

#[cfg(test)]
mod tests;
