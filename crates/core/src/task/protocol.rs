//! The inputs and outcomes of a task.

use crate::ids::{DecisionId, Epoch, HolderId, RunId, RunnerId};
use crate::landing;
use crate::task::mirror::PipelineStatus;
use crate::task::retry::Marker;
use crate::task::run::{After, Pulse, RetryReason, RunEnd, Verdict, Watch};
use crate::task::spec::LandSpec;
use crate::task::status::Status;
use crate::time::{Lease, Span};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The state of the file DONE before the next attempt of a loop, or during the wait for it.
    Found {
        marker: Marker,
        /// How many of its children have not ended.
        children: u32,
    },
    /// A runner starts it. Admission was checked before.
    Start {
        run: RunId,
        runner: RunnerId,
        /// Whether its session checks the guards of the phase again before the command begins.
        recheck: bool,
    },
    /// A report on the activity of its run.
    Heartbeat { epoch: Epoch, pulse: Pulse, watch: Watch },
    /// Its run is active, as these observations show.
    Checkpoint {
        epoch: Epoch,
        /// Its output so far, in bytes.
        output_bytes: u64,
        /// The time since its last output.
        quiet: Span,
    },
    /// Its run may have taken too long.
    Overtime {
        run: RunId,
        /// The longest time it may take.
        max: Span,
    },
    /// A verdict: by its run, or by a person if no run works on it.
    Conclude {
        /// The run, by its epoch; none for a person.
        epoch: Option<Epoch>,
        verdict: Verdict,
    },
    /// Its run is to be stopped. If the run has not started, or there is none, that takes effect at once.
    Stop(After),
    /// The process tree of a run was seen dead.
    End {
        run: RunId,
        ending: RunEnd,
        /// How long it ran, if it ended by itself before it was asked to.
        ran: Option<Span>,
        /// The state of the file DONE right after it.
        marker: Marker,
        /// How many of its children have not ended.
        children: u32,
        watch: Watch,
    },
    /// Its backoff may be over.
    MakeReady,
    /// A guard of its phase does not hold: no runner may start it.
    Hold,
    /// The guards of its phase hold again.
    Release,
    /// It may be over together with its children.
    Settle {
        /// How many of them have not ended.
        children: u32,
    },
    /// A person retries it.
    Retry,
    /// A person has answered the question of its run.
    Answer,
    /// A person skips it, or reviews it.
    Set(Mark),
    /// A person works on it from now on.
    Take {
        holder: HolderId,
        /// The grant of its lock.
        epoch: Epoch,
        /// When that ends by itself.
        until: Option<Lease>,
    },
    /// The person has given its lock back, or lost it.
    Return,
    /// Its pipeline continues, or is over.
    MirrorStatus(PipelineStatus),
    /// A person lands its work as it is, on this target.
    Land(Box<LandSpec>),
    /// Its work has left the merge queue.
    LandingEnded(landing::LandingEnd),
}

/// A person's decision on a task without a live run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Skipped,
    Review,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The run may begin, under this number.
    Started(Epoch),
    /// It cannot be started: it is not pending.
    NotPending(Status),
    Seen,
    /// It is stuck from now on.
    Stuck,
    /// It is running again.
    Recovered,
    /// The verdict is recorded; it counts when the run ends.
    Noted,
    /// It is over.
    Ended(Status),
    /// It is pending again, perhaps after a backoff.
    Again(RetryReason),
    /// It may be started.
    Clear,
    /// It waits for a guard.
    Held,
    /// It waits for this many children.
    Awaiting(u32),
    /// Its children are to be cancelled.
    EndChildren,
    /// It waits for a decision.
    AwaitingDecision(DecisionId),
    /// A person works on it.
    Taken,
    /// The manual work on it has ended.
    Returned,
    /// Its run is being stopped.
    Stopping,
    /// It was over already.
    Over(Status),
    /// The input names another run than the live one.
    Late,
    /// The epoch is not that of the live run, if there is one.
    Fenced(Option<Epoch>),
    /// A run works on it, and only that run may report a verdict.
    Busy(Epoch),
    Marked(Status),
    /// It has the status of its pipeline.
    Followed(Status),
    /// Only its pipeline decides how it continues.
    HasPhases,
    /// Its work is in the merge queue.
    Landing,
    /// It is completed by landing, unless it has nothing to land.
    MustLand,
}
