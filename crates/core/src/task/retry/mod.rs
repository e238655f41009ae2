//! The loop of a task that is retried until it reports that it is done.
//!
//! ```text
//!        +--> is there DONE? -- yes ----------------------> children ended? -- yes ------------> done
//!        |        | no                                        | no
//!        |        v                                           `- wait; too long: warn, fail or end them
//!        |    attempt #n, the run ends
//!        |        |
//!        |        v
//!        |    DONE, or the run said so? -- yes ------------------^
//!        |        | no
//!     backoff ----+-- the limit is reached --> failed
//! ```
//!
//! It is a reducer: the facts of one moment go in, a decision comes out. The [task](crate::task) keeps the count and
//! the state. Invariants: never more attempts than `max_attempts`, and none once DONE was seen.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::task::run::{RetryReason, RunEnd, Verdict};
use crate::time::{Lease, Span};

/// The terms of a loop. They are fixed when the task is added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// How many attempts there are at most.
    #[serde(rename = "maxRestarts")]
    pub max_attempts: NonZeroU32,
    /// The backoff between two attempts.
    pub delay: Span,
    /// How long the children may take after it is done.
    pub child_wait: Span,
    pub on_children_timeout: OnTimeout,
}

/// What happens to a task whose children take too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// It is done, with a warning.
    Warn,
    Fail,
    /// The children are cancelled; when they have ended, the task is done.
    Kill,
}

/// The state of the file DONE.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Marker {
    #[default]
    Absent,
    Done,
    /// Something that is not a file, or cannot be read.
    Broken(Box<str>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// The next attempt could begin.
    Due(Marker),
    Ended {
        /// The state of the file DONE right after it.
        marker: Marker,
        verdict: Option<Verdict>,
        /// How it ended. If the task is not done, the retry reason follows from that.
        ending: RunEnd,
        /// The retry reason, if the run was ended from outside.
        setback: Option<RetryReason>,
    },
    /// The task is done, and some of its children are not over.
    Waiting {
        children: u32,
        /// The deadline of the children; none once they were cancelled.
        until: Option<Lease>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetryDecision {
    /// The attempt may begin.
    Attempt,
    /// Another attempt follows after a backoff.
    Restart(RetryReason),
    /// Its own work is done.
    Done {
        output: Option<Value>,
    },
    /// It waits for the children.
    Wait,
    /// The task and its children are over.
    Settled {
        warning: Option<Box<str>>,
    },
    /// The children are to be cancelled, and waited for.
    KillChildren,
    Failed(Box<str>),
}

impl Policy {
    /// Decides, after `made` attempts were begun.
    pub fn next(&self, made: u32, fact: Fact, now: Lease) -> RetryDecision {
        match fact {
            Fact::Due(Marker::Done) => RetryDecision::Done { output: None },
            Fact::Due(Marker::Broken(error)) => RetryDecision::Failed(broken(&error)),
            Fact::Due(Marker::Absent) if made >= self.max_attempts.get() => self.exhausted(made, None),
            Fact::Due(Marker::Absent) => RetryDecision::Attempt,
            // The verdict of the run takes precedence over the file: it has the result.
            Fact::Ended { verdict: Some(Verdict::Done { output } | Verdict::NoChange { output }), .. } => {
                RetryDecision::Done { output }
            }
            Fact::Ended { marker: Marker::Done, .. } => RetryDecision::Done { output: None },
            Fact::Ended { marker: Marker::Broken(error), .. } => RetryDecision::Failed(broken(&error)),
            Fact::Ended { marker: Marker::Absent, verdict, ending, setback } => {
                let setback = setback.unwrap_or(match (&verdict, &ending) {
                    (Some(_), _) => RetryReason::Failed,
                    (None, RunEnd::Exited(0)) => RetryReason::NoVerdict,
                    (None, RunEnd::Lost) => RetryReason::Lost,
                    (None, RunEnd::NotBegun { is_shortage: true, .. }) => RetryReason::Shortage,
                    (None, RunEnd::Never | RunEnd::NotBegun { .. }) => RetryReason::Never,
                    (None, RunEnd::Exited(_) | RunEnd::Signalled(_) | RunEnd::NotStarted { .. }) => RetryReason::Failed,
                });
                // A run that never began is not an attempt.
                let is_attempt = !matches!(setback, RetryReason::Never | RetryReason::Shortage);
                if is_attempt && made >= self.max_attempts.get() {
                    let said = verdict.and_then(Verdict::failure);
                    return self.exhausted(made, Some(said.unwrap_or_else(|| setback.describe(&ending))));
                }
                RetryDecision::Restart(setback)
            }
            Fact::Waiting { children: 0, .. } => RetryDecision::Settled { warning: None },
            Fact::Waiting { until: None, .. } => RetryDecision::Wait,
            Fact::Waiting { until: Some(until), .. } if now < until => RetryDecision::Wait,
            Fact::Waiting { children, .. } => {
                let late = format!("{children} of its children had not ended after {}", self.child_wait);
                match self.on_children_timeout {
                    OnTimeout::Warn => RetryDecision::Settled { warning: Some(late.into()) },
                    OnTimeout::Fail => RetryDecision::Failed(late.into()),
                    OnTimeout::Kill => RetryDecision::KillChildren,
                }
            }
        }
    }

    fn exhausted(&self, made: u32, last: Option<Box<str>>) -> RetryDecision {
        let last = last.map(|last| format!("; the last one: {last}")).unwrap_or_default();
        RetryDecision::Failed(format!("not done after {made} attempts, and max_attempts is {}{last}", self.max_attempts).into())
    }
}

fn broken(error: &str) -> Box<str> {
    format!("DONE is not a file that can be read: {error}").into()
}

#[cfg(test)]
mod tests;
