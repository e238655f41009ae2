//! What is told.

use serde::Serialize;
use serde_json::Value;

/// One thing that somebody should know.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Notice {
    /// What kind of thing.
    pub kind: Kind,
    /// A short title.
    pub subject: String,
    /// One or two plain sentences.
    pub text: String,
    /// The project: its directory, or its name.
    pub project: String,
    /// What programs want to know beside that, such as the id of a task.
    pub data: Value,
}

/// What kind of thing a notice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Something needs a person now.
    Escalate,
    /// A decision is waiting for a person.
    Decision,
    /// A task has failed for good.
    TaskFailed,
    /// Nothing is left to do.
    BacklogFinished,
    /// A runbook wants people to know of an event.
    Route,
    /// Somebody tries whether notices arrive.
    Test,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 6] = [Kind::Escalate, Kind::Decision, Kind::TaskFailed, Kind::BacklogFinished, Kind::Route, Kind::Test];

    /// One word for it, as settings and receivers know it.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Escalate => "escalate",
            Kind::Decision => "decision",
            Kind::TaskFailed => "task_failed",
            Kind::BacklogFinished => "backlog_finished",
            Kind::Route => "route",
            Kind::Test => "test",
        }
    }

    /// The kind with this name.
    pub fn find(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Whether somebody is waited for.
    pub(super) fn is_urgent(self) -> bool {
        match self {
            Kind::Escalate | Kind::Decision => true,
            Kind::TaskFailed | Kind::BacklogFinished | Kind::Route | Kind::Test => false,
        }
    }
}

impl Notice {
    /// The notice as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a notice has nothing that JSON cannot say")
    }
}

/// Text that fits into an argument or a variable: without NUL, and not longer than the system takes.
pub(super) fn fitting(text: &str) -> String {
    const LONGEST: usize = 4_000;
    text.chars().take(LONGEST).map(|letter| if letter == '\0' { '\u{fffd}' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_kinds_are_those_of_the_json() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
            assert_eq!(Kind::find(kind.as_str()), Some(kind));
        }
    }
}
