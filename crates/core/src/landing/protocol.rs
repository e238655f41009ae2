//! The inputs and outcomes of a merge queue, and the work that it gives out.

use super::entry::{CommitId, Entry, EntrySpec, Obstacle, Terms};
use crate::ids::{LandingId, TaskId};
use crate::time::Lease;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A commit is to land.
    Add(Box<EntrySpec>),
    /// The worker reports progress on an entry.
    Report(LandingId, Report),
    /// Nothing lands until it is resumed.
    Pause {
        by: Box<str>,
    },
    Resume {
        by: Box<str>,
    },
    /// An entry leaves the queue.
    Remove {
        entry: LandingId,
        by: Box<str>,
    },
    /// A waiting entry is tried now.
    TryNow(LandingId),
    /// A person has answered the question about an entry.
    Answer {
        entry: LandingId,
        /// Whether the entry is queued again as it is; otherwise it goes back to its author.
        again: bool,
    },
    /// A task whose work came back to its author will not be queued again by itself.
    AuthorLeft(TaskId),
}

/// The result of a worker's work on an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The worktree of the task was collected.
    Collected {
        found: Found,
        /// How often it may come back.
        terms: Terms,
    },
    /// The commit was made on this tip.
    Built { tip: CommitId, commit: CommitId },
    /// The tip has all changes already.
    NoChange { tip: CommitId },
    /// The tip and the entry have changed the same lines.
    Conflict { tip: CommitId, files: Vec<Box<str>> },
    /// The check has ended on this commit.
    Checked { commit: CommitId, passed: bool, log: Box<str> },
    /// The check has ended on the bare tip.
    TipChecked { tip: CommitId, passed: bool, log: Box<str> },
    /// The target is, or was, at the commit.
    Moved { commit: CommitId },
    /// The target is not at the tip any more that the commit was made on.
    TipMoved,
    /// An obstacle stops it.
    Obstructed(Obstacle),
}

/// The contents of a task's worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// This commit has all of it.
    Commit {
        source: CommitId,
        /// The branch that it is on.
        branch: Option<Box<str>>,
    },
    /// Nothing that the target does not have.
    Nothing,
    /// Changes that cannot be committed as they are. The author repairs them.
    Unfinished { reason: Box<str> },
    /// Changes that land only after a review by a person.
    ForReview { reason: Box<str> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Added(LandingId),
    /// The same commit is in the queue already.
    Duplicate(LandingId),
    Full,
    /// The entry is now in this state.
    Stands(Box<Entry>),
    /// The entry is not in the state that the report assumes: another process has acted meanwhile.
    Late,
    /// There is no such entry in the queue.
    Unknown,
    Paused,
    Resumed,
    /// Other entries do not wait for that author any more.
    Noted,
    Unchanged,
}

/// The next work of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Collect the worktree of an entry's task.
    Collect(Box<Entry>),
    /// Make the commit of an entry.
    Build(Box<Entry>),
    /// Check the commit of an entry.
    Check {
        entry: Box<Entry>,
        commit: CommitId,
    },
    /// Check the bare tip, because the check fails on an entry's commit.
    CheckTip {
        entry: Box<Entry>,
        tip: CommitId,
    },
    Move {
        entry: Box<Entry>,
        tip: CommitId,
        commit: CommitId,
    },
    /// Nothing before this time.
    Sleep(Lease),
    Nothing,
}
