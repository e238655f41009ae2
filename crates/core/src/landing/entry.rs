//! One entry of a merge queue: a commit that is to land on a branch, and its progress.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;
use thiserror::Error;

use super::fact::EntryFact;
use crate::ids::{DecisionId, LandingId, Name, TaskId};
use crate::time::{Lease, Wall};

/// The full id of a commit: 40 or 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct CommitId(Box<str>);

/// Why a text is not the full id of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not the full id of a commit")]
pub struct CommitIdError(Box<str>);

/// An entry of a merge queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub id: LandingId,
    /// The branch that the commit is to land on.
    pub target: Name,
    pub spec: EntrySpec,
    pub added: Wall,
    pub state: State,
    /// How often it was built in vain because the target had moved.
    pub rebuilds: u32,
    /// How often an obstacle outside of the queue stopped it.
    #[serde(default)]
    pub tries: u32,
    /// When a waiting entry is tried again. It is not part of the log.
    #[serde(skip)]
    pub again: Option<Lease>,
}

/// The work that is to land, and its terms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EntrySpec {
    /// The commit whose changes land. For a task it is unknown until its worktree was collected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<CommitId>,
    /// The title of the commit that is made.
    pub title: Box<str>,
    /// The branch that the commit comes from, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<Box<str>>,
    /// The task whose work it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// Entries with a higher priority land first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Whether it lands without a check. Only a person sets it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unchecked: bool,
    /// The machine that has the commit, or the worktree. Without a name it is for any machine.
    pub host: Box<str>,
    /// How often the work came back to its author before.
    #[serde(default, skip_serializing_if = "is_zero_count")]
    pub round: u32,
    /// How often it may come back before a person is asked.
    #[serde(default, skip_serializing_if = "is_zero_count")]
    pub rounds: u32,
    /// Whether a person is asked about every conflict.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ask_on_conflict: bool,
    /// Whether the target is the branch of the task's parent: changes in the way of its checkout are a conflict with the parent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_child: bool,
}

/// How often work may come back, as the settings of its machine say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Terms {
    /// How often it may come back before a person is asked.
    pub rounds: u32,
    /// Whether a person is asked about every conflict.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ask_on_conflict: bool,
}

/// The state of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum State {
    /// It waits until it is the first in the queue.
    Queued,
    /// Its commit was made, and is to be checked.
    Candidate {
        /// The target's tip that it was made on.
        tip: CommitId,
        commit: CommitId,
        /// How often the check has failed on this commit.
        failures: u32,
    },
    /// The check failed twice: the bare tip is to be checked.
    Suspect {
        /// The target's tip that it was made on.
        tip: CommitId,
        commit: CommitId,
        /// The path of the output of the check.
        log: Box<str>,
    },
    /// The target may move to the commit.
    Passed {
        /// The target's tip that it was made on.
        tip: CommitId,
        commit: CommitId,
        /// Whether the check failed before it passed.
        flaky: bool,
    },
    /// An obstacle outside of the queue stops it; later entries pass.
    Waiting { obstacle: Obstacle },
    /// It waits for a person.
    Asking { decision: DecisionId, because: Return },
    /// It has left the queue.
    Over(LandingEnd),
}

/// An obstacle to an entry, outside of the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Obstacle {
    /// The checkout of the target cannot be updated.
    Checkout {
        path: Box<str>,
        reason: Box<str>,
        /// The files that are in the way.
        files: Vec<Box<str>>,
    },
    /// Git, or something that it needs, has failed.
    Failure { error: Box<str> },
    /// Children of the task are not over: their changes are part of its work.
    Children { tasks: Vec<TaskId> },
    /// The author of another task resolves a conflict in one of these files. Two authors that resolve at the same time
    /// would only conflict with each other next.
    Author {
        /// The files in which the entry conflicts with the target.
        files: Vec<Box<str>>,
    },
}

/// Why an entry goes back to its author.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "camelCase")]
pub enum Return {
    /// The target has changed the same lines.
    Conflict {
        /// The target's tip.
        tip: CommitId,
        files: Vec<Box<str>>,
    },
    /// The check fails on the commit and passes on the bare tip.
    CheckFailed {
        commit: CommitId,
        /// The path of the output of the check.
        log: Box<str>,
    },
    /// The task has changed nothing.
    NoChange,
    /// The worktree of the task is in a state that cannot be committed.
    Unfinished { reason: Box<str> },
    /// Others moved the target, every time.
    TargetMoves,
    /// Git, or something that it needs, has failed, every time.
    Failure { error: Box<str> },
}

/// How an entry has left the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LandingEnd {
    /// The target has moved to its commit.
    Landed {
        from: CommitId,
        commit: CommitId,
        /// Whether the check has passed on it.
        checked: bool,
        /// Whether the check failed before it passed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        flaky: bool,
    },
    /// The target had all of it already.
    NoChange { tip: CommitId },
    /// It went back to its author.
    Returned(Return),
    /// It cannot land without a review by a person.
    Shelved { reason: Box<str> },
    /// A person has removed it.
    Removed { by: Box<str> },
}

impl Entry {
    /// An entry that was just added.
    pub fn new(id: LandingId, target: Name, spec: EntrySpec, added: Wall) -> Entry {
        Entry { id, target, spec, added, state: State::Queued, rebuilds: 0, tries: 0, again: None }
    }

    /// Applies an event that followed its addition.
    pub fn apply(&mut self, fact: EntryFact) {
        self.again = None;
        self.state = match fact {
            EntryFact::Added { .. } => return,
            EntryFact::Collected { source, branch, terms } => {
                (self.spec.source, self.spec.branch) = (Some(source), branch);
                (self.spec.rounds, self.spec.ask_on_conflict) = (terms.rounds, terms.ask_on_conflict);
                State::Queued
            }
            EntryFact::Built { tip, commit } if self.spec.unchecked => State::Passed { tip, commit, flaky: false },
            EntryFact::Built { tip, commit } => State::Candidate { tip, commit, failures: 0 },
            EntryFact::CheckFailed { log, .. } => match self.state.clone() {
                State::Candidate { tip, commit, failures: 0 } => State::Candidate { tip, commit, failures: 1 },
                State::Candidate { tip, commit, .. } => State::Suspect { tip, commit, log },
                other => other,
            },
            EntryFact::CheckPassed { .. } => match self.state.clone() {
                State::Candidate { tip, commit, failures } => State::Passed { tip, commit, flaky: failures > 0 },
                other => other,
            },
            EntryFact::Requeued { rebuilds, tries, collect } => {
                (self.rebuilds, self.tries) = (rebuilds, tries);
                self.spec.source.take_if(|_| collect);
                State::Queued
            }
            EntryFact::Waiting { obstacle, tries } => {
                self.tries = tries;
                State::Waiting { obstacle }
            }
            EntryFact::Asked { decision, because } => State::Asking { decision, because },
            EntryFact::Landed { from, commit, checked, flaky } => {
                State::Over(LandingEnd::Landed { from, commit, checked, flaky })
            }
            EntryFact::NoChange { tip } => State::Over(LandingEnd::NoChange { tip }),
            EntryFact::Returned(why) => State::Over(LandingEnd::Returned(why)),
            EntryFact::Shelved { reason } => State::Over(LandingEnd::Shelved { reason }),
            EntryFact::Removed { by } => State::Over(LandingEnd::Removed { by }),
        };
    }

    /// Whether it is in the queue.
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Over(_))
    }

    /// Whether a worker on this machine can do something for it.
    pub fn is_for(&self, host: &str) -> bool {
        host.is_empty() || self.spec.host.is_empty() || &*self.spec.host == host
    }

    /// Whether the commit that lands is not known yet.
    pub fn is_uncollected(&self) -> bool {
        self.spec.source.is_none()
    }

    /// Whether it has a commit that may land next. A queue has at most one such entry for each machine.
    pub fn is_active(&self) -> bool {
        matches!(self.state, State::Candidate { .. } | State::Suspect { .. } | State::Passed { .. })
    }
}

impl State {
    /// Whether its commit is still to be checked, with no obstacle in the way.
    pub fn is_before_check(&self) -> bool {
        matches!(self, State::Queued | State::Candidate { .. } | State::Suspect { .. })
    }

    pub fn as_str(&self) -> &'static str {
        match self {
            State::Queued => "queued",
            State::Candidate { .. } => "checking",
            State::Suspect { .. } => "checking_target",
            State::Passed { .. } => "passed",
            State::Waiting { .. } => "waiting",
            State::Asking { .. } => "needs_you",
            State::Over(LandingEnd::Landed { .. }) => "landed",
            State::Over(LandingEnd::NoChange { .. }) => "no_change",
            State::Over(LandingEnd::Returned(_)) => "returned",
            State::Over(LandingEnd::Shelved { .. }) => "review",
            State::Over(LandingEnd::Removed { .. }) => "removed",
        }
    }
}

impl Return {
    pub fn as_str(&self) -> &'static str {
        self.into()
    }
}

impl CommitId {
    /// Checks a text from outside.
    pub fn new(text: &str) -> Result<CommitId, CommitIdError> {
        let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if is_hex && matches!(text.len(), 40 | 64) { Ok(CommitId(text.into())) } else { Err(CommitIdError(text.into())) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first twelve digits, for people.
    pub fn short(&self) -> &str {
        &self.0[..12]
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<'de> Deserialize<'de> for CommitId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<CommitId, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        CommitId::new(&text).map_err(serde::de::Error::custom)
    }
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

fn is_zero_count(number: &u32) -> bool {
    *number == 0
}
