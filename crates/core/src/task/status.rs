//! The status of a task, and how it ended.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::IntoStaticStr;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskEnd {
    Success {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warning: Option<Box<str>>,
    },
    Failed {
        error: Box<str>,
    },
    Cancelled,
    Skipped,
}

/// The status of a task. These are the only words for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It could be started.
    Pending,
    /// It is pending and a dependency is not met, which is derived and never stored; or it waits for a decision.
    Blocked,
    /// A run works on it, or is being stopped; a person works on it; or it is done and waits for its children.
    InProgress,
    /// A run works on it and shows no activity.
    Stuck,
    /// Its work is done and in the merge queue.
    Landing,
    /// A person reviews it.
    Review,
    /// It is done. If its work lands, it has landed.
    Completed,
    Failed,
    Cancelled,
    Skipped,
}

impl TaskEnd {
    pub fn status(&self) -> Status {
        match self {
            TaskEnd::Success { .. } => Status::Completed,
            TaskEnd::Failed { .. } => Status::Failed,
            TaskEnd::Cancelled => Status::Cancelled,
            TaskEnd::Skipped => Status::Skipped,
        }
    }
}

impl Status {
    pub const ALL: [Status; 10] = [
        Status::Pending,
        Status::Blocked,
        Status::InProgress,
        Status::Stuck,
        Status::Landing,
        Status::Review,
        Status::Completed,
        Status::Failed,
        Status::Cancelled,
        Status::Skipped,
    ];

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The status that a word stands for.
    pub fn parse(word: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether it is over, so that only a retry changes it.
    pub fn is_over(self) -> bool {
        match self {
            Status::Completed | Status::Failed | Status::Cancelled | Status::Skipped => true,
            Status::Pending | Status::Blocked | Status::InProgress | Status::Stuck | Status::Landing | Status::Review => false,
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
