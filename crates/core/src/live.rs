//! The run that is at a task: what it says, what is seen of it, and how it ends.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{Epoch, RunId};
use crate::time::{Span, Stamp};

/// The largest result, as JSON, in bytes.
pub const OUTPUT_LIMIT: usize = 1_000_000;

/// The longest error text that is kept, in bytes.
pub const ERROR_LIMIT: usize = 10_000;

/// The run that is at a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Live {
    /// Which one.
    pub run: RunId,
    /// Its fencing number.
    pub epoch: Epoch,
    /// Since when.
    pub started: Stamp,
    /// Its last sign of life.
    pub seen: Stamp,
    /// What it has said of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// What a run, or a person, says of the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// It is done.
    Done {
        /// The result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
    },
    /// It has failed.
    Failed {
        /// Why.
        error: Box<str>,
    },
}

/// Why a run looks stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Stuck {
    /// It used to show signs of life, and then stopped.
    NoHeartbeat {
        /// The last one.
        last_seen: Stamp,
    },
    /// It has done nothing that could be seen.
    NoProgress {
        /// For how long.
        duration: Span,
    },
    /// Its session is dead and left no exit behind.
    SessionDead,
}

/// What a look at a run has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulse {
    /// It does something.
    Active,
    /// Nothing was seen of it for so long.
    Idle(Span),
    /// Its session is dead and left no exit behind.
    SessionDead,
}

/// What comes after a run was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum After {
    /// The task is cancelled.
    Cancel,
    /// It has failed.
    Fail {
        /// Why.
        error: Box<str>,
    },
    /// It is tried again. That is a recovery: there are only so many.
    Restart,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ending {
    /// With this status.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// Its command could not be started.
    NotStarted {
        /// Why.
        error: Box<str>,
    },
    /// Its session died without leaving an exit behind. What it has done is not known.
    Lost,
    /// It is proven that it never began.
    Never,
}

impl After {
    /// How much it says: the heavier wish wins.
    pub(crate) fn weight(&self) -> u8 {
        match self {
            After::Restart => 0,
            After::Fail { .. } => 1,
            After::Cancel => 2,
        }
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // What a shell means by them.
            Ending::Exited(126) => f.write_str("exit status 126 (the command cannot be executed)"),
            Ending::Exited(127) => f.write_str("exit status 127 (no such command)"),
            Ending::Exited(code) => write!(f, "exit status {code}"),
            Ending::Signalled(signal) => write!(f, "killed by signal {signal}"),
            Ending::NotStarted { error } => f.write_str(error),
            Ending::Lost => f.write_str("its session was lost"),
            Ending::Never => f.write_str("it never began"),
        }
    }
}
