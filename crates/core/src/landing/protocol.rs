//! What can be asked of a merge queue, what it answers, and what it wants done.

use super::entry::{CommitId, Entry, EntrySpec, Obstacle, Terms};
use crate::ids::{LandingId, TaskId};
use crate::time::Lease;

/// What can happen to a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A commit is to land.
    Add(Box<EntrySpec>),
    /// The worker has done something for an entry.
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
    /// An entry that waits is tried now.
    TryNow(LandingId),
    /// A person has answered the question about an entry.
    Answer {
        entry: LandingId,
        /// Whether it is tried again as it is; otherwise it goes back to its author.
        again: bool,
    },
    /// A task whose work came back to its author will not be queued again by itself.
    AuthorLeft(TaskId),
}

/// What a worker has done for an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The worktree of the task was looked at.
    Collected {
        found: Found,
        /// How often it may come back.
        terms: Terms,
    },
    /// The commit was made on this tip.
    Built { tip: CommitId, commit: CommitId },
    /// The tip has all of it already.
    NoChange { tip: CommitId },
    /// The two have changed the same lines.
    Conflict { tip: CommitId, files: Vec<Box<str>> },
    /// The check has ended on this commit.
    Checked { commit: CommitId, passed: bool, log: Box<str> },
    /// The check has ended on the bare tip.
    TipChecked { tip: CommitId, passed: bool, log: Box<str> },
    /// The target is, or was, at the commit.
    Moved { commit: CommitId },
    /// The target is not at the tip any more that the commit was made on.
    TipMoved,
    /// Something is in the way.
    Obstructed(Obstacle),
}

/// What a task has left in its worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// This commit has all of it.
    Commit {
        source: CommitId,
        /// The branch that it is on.
        branch: Option<Box<str>>,
    },
    /// Nothing that the target has not.
    Nothing,
    /// Something that cannot be committed as it is. The author repairs it.
    Unfinished { reason: Box<str> },
    /// Something that only a person lets land.
    ForReview { reason: Box<str> },
}

/// What a queue can answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the queue.
    Added(LandingId),
    /// The same commit is in the queue already.
    Duplicate(LandingId),
    Full,
    /// The entry stands so now.
    Stands(Box<Entry>),
    /// The entry is not where the report found it: somebody else has acted meanwhile.
    Late,
    /// There is no such entry in the queue.
    Unknown,
    Paused,
    Resumed,
    /// Nobody waits for that author any more.
    Noted,
    Unchanged,
}

/// What a worker is to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Look at the worktree of an entry's task.
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
    /// Nothing until then.
    Sleep(Lease),
    Nothing,
}
