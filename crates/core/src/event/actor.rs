//! The cause of an event.

use serde::{Deserialize, Serialize};

/// The person or run whose command caused an event. It helps to trace accidents and proves nothing: a run is started by
/// the same user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// Whether the command was given inside of a run.
    pub kind: ActorKind,
    /// The name of the user, or the number if it has none.
    pub user: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Box<str>>,
    /// How many routes led to that run, one after the other. Its commands have the same depth, which is stored beside
    /// their events.
    #[serde(skip)]
    pub depth: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActorKind {
    /// A command that was given outside of every run.
    Person,
    /// A command that was given inside of a run.
    Run,
}

impl Actor {
    /// A command that the user gave outside of every run.
    pub fn person(user: impl Into<Box<str>>) -> Actor {
        Actor { kind: ActorKind::Person, user: user.into(), run: None, depth: 0 }
    }

    /// A command that was given inside of this run, which the user's runner started.
    pub fn run(user: impl Into<Box<str>>, run: impl Into<Box<str>>) -> Actor {
        Actor { kind: ActorKind::Run, user: user.into(), run: Some(run.into()), depth: 0 }
    }

    #[must_use]
    pub fn at_depth(self, depth: u32) -> Actor {
        Actor { depth, ..self }
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data always becomes JSON")
    }

    pub fn from_json(text: &str) -> Result<Actor, serde_json::Error> {
        serde_json::from_str(text)
    }
}

impl std::fmt::Display for Actor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.run {
            Some(run) => write!(f, "{run} ({})", self.user),
            None => f.write_str(&self.user),
        }
    }
}
