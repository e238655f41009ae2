//! The inputs and outcomes of a pipeline.

use serde_json::Value;

use super::{Recheck, When};
use crate::ids::{DecisionId, Name, RunnerId, Seq, TaskId};
use crate::pipeline::plan::{BindError, Context};
use crate::time::Lease;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    Start {
        /// Whether it waits for dependencies.
        unmet: bool,
    },
    /// Its first phase may begin now.
    Begin,
    /// A runner begins to check its guards.
    BeginCheck {
        by: RunnerId,
        /// Whether the runner that checked before is gone.
        is_free: bool,
        /// The last event that this runner has heard of which may change the result of a guard.
        heard: Seq,
    },
    /// A runner has reported the result, however the pipeline has changed meanwhile.
    EndCheck {
        by: RunnerId,
    },
    /// The guards of a phase were checked.
    Checked {
        phase: Name,
        when: When,
        verdict: GuardsResult,
        /// The last event that the result takes into account.
        at: Seq,
    },
    /// A guard no longer held when the task of its phase was claimed, or when its session began.
    Refuted {
        task: TaskId,
        /// The result of the guards, which do not pass.
        verdict: GuardsResult,
        /// The last event that the result takes into account.
        at: Seq,
    },
    /// The task of its phase has ended.
    Ended {
        task: TaskId,
        end: PhaseEnd,
        /// How many runs the task has had.
        runs: u32,
    },
    /// The task of its phase waits for a decision, or no longer does.
    AwaitingDecision {
        task: TaskId,
        decision: Option<DecisionId>,
    },
    /// The item of its phase is in the queue, or could not be put there.
    Pushed {
        phase: Name,
        error: Option<Box<str>>,
    },
    /// The prompt or command of its phase could not be rendered.
    Unclear {
        task: TaskId,
        error: Box<str>,
    },
    /// A guard no longer held when the item of its phase was to be put into a queue.
    CheckAgain {
        phase: Name,
    },
    /// An event may have changed the result of a guard.
    Poll,
    /// A person wants it to continue where it is blocked.
    Unblock {
        by: Option<Box<str>>,
    },
    /// A person wants it to wait for an overdue guard once more.
    Wait,
    /// A person gives up waiting for an overdue guard.
    GiveUp,
    /// A person retries the phase that failed.
    Retry,
    /// Its work came back from the merge queue.
    Returned,
    Cancel,
    Set(Context),
    /// A note is recorded on the way.
    Checkpoint(Box<str>),
}

/// The combined result of the guards of a phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardsResult {
    /// The pipeline may continue. Guards that did not hold and only warn are listed.
    Pass {
        /// Each guard with the part that does not hold.
        warnings: Vec<(Name, Box<str>)>,
        /// The conditions that must still hold when the phase begins.
        recheck: Option<Recheck>,
    },
    Block {
        guard: Name,
        /// The part that does not hold.
        part: Box<str>,
        /// When it is checked again, unless an event comes before.
        again: Lease,
        /// Whether it asks about the world outside, which sends no event when it changes.
        asks_outside: bool,
    },
    Fail {
        guard: Name,
        /// The message of the guard.
        message: Box<str>,
        /// The part that does not hold.
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
        /// Its last output.
        tail: Box<str>,
        /// Whether it took too long.
        timed_out: bool,
    },
    /// A guard of the phase failed it before it began.
    Refused { error: Box<str> },
    /// The task was cancelled or skipped.
    Dropped { how: Box<str> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The caller adds this task for the current phase.
    Begin(TaskId),
    /// The caller puts an item into a queue.
    Push,
    /// The caller checks guards.
    Check,
    Blocked,
    Over,
    /// It is recorded, and nothing else is to be done.
    Noted,
    /// The pipeline has moved on since.
    Late,
    Refused(Refusal),
}

/// Why something cannot be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    NotBlocked,
    /// It waits for this decision, which must be answered.
    Undecided(DecisionId),
    NotFailed,
    /// It has failed for good.
    NotRecoverable,
    Over,
    /// It cannot have these variables.
    Unbound(BindError),
}
