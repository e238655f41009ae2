//! What can happen to a task, and what it answers.

use crate::ids::{DecisionId, Epoch, HolderId, RunId, RunnerId};
use crate::landing;
use crate::task::mirror::PipelineStatus;
use crate::task::retry::Marker;
use crate::task::run::{After, Pulse, RetryReason, RunEnd, Verdict, Watch};
use crate::task::spec::LandSpec;
use crate::task::status::Status;
use crate::time::{Lease, Span};

/// What can happen to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Before the next attempt of a loop, or while it is waited for: it was looked for the file DONE.
    Found {
        /// What was found.
        marker: Marker,
        /// How many of its children have not ended.
        children: u32,
    },
    /// A runner takes it. What stands in the way was looked at before.
    Start {
        /// The run that begins.
        run: RunId,
        /// Who starts it.
        runner: RunnerId,
        /// Whether its session checks the guards of the phase again before the command begins.
        recheck: bool,
    },
    /// Its run was looked at, or spoke up.
    Heartbeat {
        epoch: Epoch,
        /// What was seen.
        pulse: Pulse,
        watch: Watch,
    },
    /// Its run is at work; this was seen of it.
    Checkpoint {
        epoch: Epoch,
        /// How much output it has made, in bytes.
        output_bytes: u64,
        /// How long ago the last of it came.
        quiet: Span,
    },
    /// Its run may have taken too long.
    Overtime {
        run: RunId,
        /// How long it may take.
        max: Span,
    },
    /// The result is told: by its run, or by a person if no run works on it.
    Conclude {
        /// Which run says so.
        epoch: Option<Epoch>,
        /// What it says.
        verdict: Verdict,
    },
    /// Its run is to be stopped. One that has not started, or has no run, is over at once.
    Stop(After),
    /// The tree of a run was seen dead.
    End {
        run: RunId,
        ending: RunEnd,
        /// How long it ran, if it ended by itself and was not asked to.
        ran: Option<Span>,
        /// What was found in the place of the file DONE, right after.
        marker: Marker,
        /// How many of its children have not ended.
        children: u32,
        watch: Watch,
    },
    /// Its rest may be over.
    MakeReady,
    /// A guard of its phase does not hold: nobody may start it.
    Hold,
    /// The guards of its phase hold again.
    Release,
    /// It may be over with its children.
    Settle {
        /// How many of them have not ended.
        children: u32,
    },
    /// A person wants it tried again.
    Retry,
    /// A person has answered what its run has asked.
    Answer,
    /// A person skips it, or wants to look at it.
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
    /// Its pipeline goes on, or is over.
    MirrorStatus(PipelineStatus),
    /// A person wants its work to land as it is, there.
    Land(Box<LandSpec>),
    /// Its work has left the merge queue.
    LandingEnded(landing::LandingEnd),
}

/// What a person makes of a task that no run is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// It is passed over.
    Skipped,
    /// It is looked at.
    Review,
}

/// What a task can answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The run may begin, under this number.
    Started(Epoch),
    /// It cannot be started: it is not pending.
    NotPending(Status),
    /// The sign of life is noted.
    Seen,
    /// It is stuck from now on.
    Stuck,
    /// It is running again.
    Recovered,
    /// What was said of the result is noted; it counts when the run ends.
    Noted,
    /// It is over.
    Ended(Status),
    /// It is pending again, or will be after a rest.
    Again(RetryReason),
    /// It may be tried.
    Clear,
    /// It waits for a guard.
    Held,
    /// It waits for so many children.
    Awaiting(u32),
    /// Its children are to be cancelled.
    EndChildren,
    /// It waits for a decision.
    AwaitingDecision(DecisionId),
    /// A person works on it.
    Taken,
    /// Nobody works on it any more.
    Returned,
    /// Its run is being stopped.
    Stopping,
    /// It was over already.
    Over(Status),
    /// The run that is spoken of is not the one that is at the task.
    Late,
    /// The epoch is not that of the run that is at the task, if there is one.
    Fenced(Option<Epoch>),
    /// A run works on it, and only that run may say so.
    Busy(Epoch),
    Marked(Status),
    /// It stands as its pipeline says.
    Followed(Status),
    /// Only its pipeline says what becomes of it.
    HasPhases,
    /// Its work is in the merge queue.
    Landing,
    /// It is completed by landing, unless there is nothing that lands.
    MustLand,
}
