//! What can happen to a pipeline, and what it can answer.

use serde_json::Value;

use super::{Recheck, When};
use crate::ids::{DecisionId, Name, RunnerId, Seq, TaskId};
use crate::pipeline::plan::{BindError, Context};
use crate::time::Lease;

/// What can happen to a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    Start {
        /// Whether waiting for dependencies.
        unmet: bool,
    },
    /// Nothing stands in the way of its first phase any more.
    Begin,
    /// A runner begins to check its guards.
    BeginCheck {
        by: RunnerId,
        /// Whether the one that did so before is gone.
        is_free: bool,
        /// The last event that it has heard of, if one of them may change what a guard says.
        heard: Seq,
    },
    /// A runner has reported the result, whatever became of the pipeline meanwhile.
    EndCheck {
        by: RunnerId,
    },
    /// The guards of a phase were checked.
    Checked {
        phase: Name,
        /// On which side.
        when: When,
        verdict: GuardsResult,
        /// The last event that they know of.
        at: Seq,
    },
    /// A guard did not hold any more when the task of its phase was claimed, or when its session began.
    Refuted {
        task: TaskId,
        /// The result of the guards: they do not pass.
        verdict: GuardsResult,
        /// The last event that they know of.
        at: Seq,
    },
    /// The task of its phase has ended.
    Ended {
        task: TaskId,
        end: PhaseEnd,
        /// How many runs it has had.
        runs: u32,
    },
    /// The task of its phase waits for a decision, or does so no longer.
    AwaitingDecision {
        task: TaskId,
        decision: Option<DecisionId>,
    },
    /// The item of its phase is in the queue, or could not be put there.
    Pushed {
        phase: Name,
        error: Option<Box<str>>,
    },
    /// What is to be done in its phase could not be put into words.
    Unclear {
        task: TaskId,
        error: Box<str>,
    },
    /// A guard did not hold any more when the item of its phase was to be put into a queue.
    CheckAgain {
        /// Before which phase.
        phase: Name,
    },
    /// Something has happened that may change what a guard says.
    Poll,
    /// A person wants it to go on where it is blocked.
    Unblock {
        by: Option<Box<str>>,
    },
    /// A person wants it to wait for an overdue guard once more.
    Wait,
    /// A person gives up waiting for an overdue guard.
    GiveUp,
    /// A person wants the phase that failed tried again.
    Retry,
    /// Its work came back from the merge queue.
    Returned,
    Cancel,
    Set(Context),
    /// Something is said on the way.
    Checkpoint(Box<str>),
}

/// What the guards of a phase say, taken together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardsResult {
    /// It may go on. These did not hold, and only warn.
    Pass {
        /// Each with the part that fails.
        warnings: Vec<(Name, Box<str>)>,
        /// What must still hold when the phase begins.
        recheck: Option<Recheck>,
    },
    Block {
        guard: Name,
        /// The part that fails.
        part: Box<str>,
        /// When it is looked at again, if nothing is heard before.
        again: Lease,
        /// Whether it asks the world outside, which tells nobody when it changes.
        asks_outside: bool,
    },
    Fail {
        guard: Name,
        /// What the guard says then.
        message: Box<str>,
        /// The part that fails.
        part: Box<str>,
    },
}

/// How the task of a phase ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PhaseEnd {
    Success {
        /// Its result: the fields of an object become variables.
        output: Option<Value>,
    },
    Failed {
        error: Box<str>,
        /// The last that it has printed.
        tail: Box<str>,
        /// Whether it took too long.
        timed_out: bool,
    },
    /// A guard of the phase has failed it before it began.
    Refused { error: Box<str> },
    /// Somebody did not want it, or passed it over.
    Dropped { how: Box<str> },
}

/// What a pipeline can answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// This task is to be made for the phase that it is in.
    Begin(TaskId),
    /// An item is to be put into a queue.
    Push,
    /// Guards are to be looked at.
    Check,
    Blocked,
    Over,
    /// It is noted, and nothing else is to be done.
    Noted,
    /// It has gone on since.
    Late,
    Refused(Refusal),
}

/// Why something cannot be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    NotBlocked,
    /// It waits for this decision, which is to be answered.
    Undecided(DecisionId),
    NotFailed,
    /// It has failed for good.
    NotRecoverable,
    Over,
    /// It cannot have these variables.
    Unbound(BindError),
}
