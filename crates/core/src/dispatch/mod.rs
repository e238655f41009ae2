//! Dispatch: which way a message takes to its target, and when the target's dispatch lock is released.
//!
//! ```text
//!  Presence --decide--> Plan --claim the lock, read the facts again--> confirm --> Release --step--> the lock is free, once
//! ```
//!
//! | the target | plan |
//! |---|---|
//! | is alive and takes input | over its control socket; a follow-up only to an agent that works in turns |
//! | is dormant and may start | by starting it, with the message in its prompt |
//! | is known, but neither | into its mailbox |
//! | is unknown, over, or a person types | refused |
//!
//! Plans over the socket and by starting hold the lock `dispatch:<target>`; a mailbox needs none. [`release`] decides when it is free again.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ids::{Epoch, HolderId, Name, RunId, TaskId};
use crate::time::Span;

pub mod release;

pub use release::{Release, ReleaseEvent, ReleasePolicy, SendOutcome};

/// How often the facts may change under the lock before the message goes into the mailbox.
pub const ROUNDS: u32 = 3;

/// How long a session that was started with a message may stay unobserved before a person is asked.
pub const OBSERVE_WITHIN: Span = Span::from_secs(600);

/// The known state of a target at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// There is no such task or run.
    Unknown,
    /// It has ended for good: no run will read a message.
    Over,
    /// It has a run. `input` is the answer of its keeper; nothing if the keeper was silent or is of a version without
    /// input.
    Live { run: RunId, input: Option<SessionInput> },
    /// It has no run.
    Dormant {
        /// Whether a message may start it.
        may_start: bool,
    },
}

/// The input that a live session takes, as its keeper reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionInput {
    /// Nothing: its stdin is a file or empty.
    Nothing,
    /// Text that is written into a pipe.
    Pipe,
    /// Text that is written into a pipe, at once or when its agent has ended a turn.
    Turns,
    /// Text that is typed into a terminal.
    Terminal {
        /// Whether a person has the right to type.
        has_typist: bool,
    },
}

/// When the target is to see a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// As soon as the target can take it.
    Steer,
    /// At its next turn.
    FollowUp,
}

/// How a message is to reach its target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Plan {
    /// Through the control socket of a live session.
    ControlSocket { run: RunId },
    /// By starting it.
    Spawn,
    /// It waits until the target reads it.
    Mailbox,
}

/// Why a message is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refused {
    /// There is no such target, and none is guessed.
    #[error("there is no such target")]
    UnknownTarget,
    /// The target has ended for good.
    #[error("the target is over")]
    Over,
    /// A person types into its terminal.
    #[error("a person types into its terminal")]
    Typing,
}

/// Chooses the plan from the facts alone.
pub fn decide(presence: &Presence, mode: Mode) -> Result<Plan, Refused> {
    match (presence, mode) {
        (Presence::Unknown, _) => Err(Refused::UnknownTarget),
        (Presence::Over, _) => Err(Refused::Over),
        (Presence::Live { input: Some(SessionInput::Terminal { has_typist: true }), .. }, Mode::Steer) => Err(Refused::Typing),
        (Presence::Live { run, input: Some(SessionInput::Pipe | SessionInput::Terminal { .. }) }, Mode::Steer)
        | (Presence::Live { run, input: Some(SessionInput::Turns) }, _) => Ok(Plan::ControlSocket { run: run.clone() }),
        (Presence::Live { input: None | Some(SessionInput::Nothing), .. }, Mode::Steer)
        | (Presence::Live { .. }, Mode::FollowUp)
        | (Presence::Dormant { may_start: false }, _) => Ok(Plan::Mailbox),
        (Presence::Dormant { may_start: true }, _) => Ok(Plan::Spawn),
    }
}

/// The result of reading the facts again under the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confirmation {
    /// They give the same plan.
    Proceed,
    /// They give another plan: release the lock and decide again.
    DecideAnew,
    /// They have changed too often: release the lock and put the message into the mailbox.
    GiveUp,
}

/// Compares a plan with the one that the facts give under the lock, in the `round`-th round, counted from 1.
pub fn confirm(plan: &Plan, again: &Result<Plan, Refused>, round: u32) -> Confirmation {
    match again {
        Ok(again) if again == plan => Confirmation::Proceed,
        _ if round >= ROUNDS => Confirmation::GiveUp,
        _ => Confirmation::DecideAnew,
    }
}

/// The claim of a dispatch lock, as it was granted to a dispatch. It is passed on and never looked up again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LockClaim {
    pub lock: Name,
    /// The dispatch that holds it.
    pub holder: HolderId,
    /// The grant.
    pub epoch: Epoch,
}

/// Why a plan and a lock do not belong together. It is detected before any effect.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// The plan needs the lock of its target.
    #[error("the dispatch to {target} has no lock")]
    WithoutLock { target: TaskId },
    /// A mailbox needs no lock, and no event would release it.
    #[error("the dispatch to the mailbox of {target} holds the lock {lock}")]
    UnwantedLock { target: TaskId, lock: Name },
    /// The lock is that of another target.
    #[error("the dispatch to {target} holds the lock {lock}")]
    LockOfAnother { target: TaskId, lock: Name },
}

/// When the lock of a plan is to be released; or why the two do not belong together.
pub fn release_policy(plan: &Plan, target: &TaskId, claim: Option<&LockClaim>) -> Result<ReleasePolicy, PlanError> {
    let policy = match plan {
        Plan::Mailbox => ReleasePolicy::NoLock,
        Plan::ControlSocket { .. } => ReleasePolicy::AfterSendFinal,
        Plan::Spawn => ReleasePolicy::AfterSpawnObservation,
    };
    match (policy, claim) {
        (ReleasePolicy::NoLock, None) => Ok(policy),
        (ReleasePolicy::NoLock, Some(claim)) => Err(PlanError::UnwantedLock { target: target.clone(), lock: claim.lock.clone() }),
        (_, None) => Err(PlanError::WithoutLock { target: target.clone() }),
        (_, Some(claim)) if claim.lock != target.dispatch_lock() => {
            Err(PlanError::LockOfAnother { target: target.clone(), lock: claim.lock.clone() })
        }
        (_, Some(_)) => Ok(policy),
    }
}

#[cfg(test)]
mod tests;
