//! A workspace: the directory in which the runs of one task, or of all phases of one pipeline, work.
//!
//! ```text
//!   begin --> Creating -- made --> Ready -- remove --> Removing -- removed --> no row
//!                `---------------- remove ----------------^
//! ```
//!
//! The row is written before anything is made and removed when everything is gone, so a directory of ours without a row
//! was made by something else, and a row whose directory is missing is a directory to be made again.
//!
//! Invariants: the place never changes while the row exists. Every change of the row needs the lock
//! `workspace:<owner>`, held by a run or by the process that removes the workspace; the engine compares its epoch.
//! Whether it is in use follows from that lock, whether it is only kept from the state of its owner: neither is stored
//! here, so neither can disagree.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use crate::event::Event;
use crate::ids::TaskId;
use crate::step::{EffectBuffer, Now, Step};
use crate::time::Wall;

/// A workspace. The baseline of the log keeps it in its serialized form: a new field needs a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    /// The task or pipeline that it belongs to.
    #[serde(skip_serializing)]
    pub owner: TaskId,
    /// The machine that it is on.
    pub host: Box<str>,
    pub place: Place,
    pub created: Wall,
    pub state: State,
}

/// Where a workspace is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Place {
    /// A worktree of the project's repository.
    Worktree {
        path: Box<str>,
        branch: Box<str>,
        /// The commit that the branch began with.
        base: Box<str>,
    },
    /// A plain directory.
    Dir { path: Box<str> },
}

impl Place {
    pub fn path(&self) -> &str {
        match self {
            Place::Worktree { path, .. } | Place::Dir { path } => path,
        }
    }

    /// The branch of a worktree.
    pub fn branch(&self) -> Option<&str> {
        match self {
            Place::Worktree { branch, .. } => Some(branch),
            Place::Dir { .. } => None,
        }
    }

    /// The commit that the branch of a worktree began with.
    pub fn base(&self) -> Option<&str> {
        match self {
            Place::Worktree { base, .. } => Some(base),
            Place::Dir { .. } => None,
        }
    }
}

/// The progress of creation or removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// It may be incomplete: no command has begun in it.
    Creating,
    Ready,
    /// It is being saved and removed; parts of it may be gone.
    Removing,
}

impl State {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A session is about to create it, or to work in it.
    Begin {
        /// The session's machine.
        host: Box<str>,
        /// Where to create it, if it does not exist.
        place: Place,
    },
    Made,
    /// It is about to be removed.
    Remove,
    /// It is not removed after all, and all of it is still there.
    Keep,
    Removed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The session is to create it, at its place.
    Create,
    /// Its creation was begun before, and may be incomplete.
    Resume,
    Use,
    /// It is on another machine.
    Elsewhere {
        host: Box<str>,
    },
    /// Its removal was begun before, and must be completed first.
    HalfRemoved,
    /// The input is recorded.
    Noted,
    /// It does not exist, or is in another state.
    Refused,
}

/// The events of a workspace in the log. The variants are the second words of their kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case", prefix = "workspace:")]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// It is about to be created.
    Begun {
        host: Box<str>,
        place: Place,
    },
    Made {},
    /// It is about to be removed.
    Removing {},
    /// It was not removed: parts of it could not be saved.
    Kept {},
    Removed {},
}

impl Fact {
    /// The kind of the event.
    pub fn kind(&self) -> &'static str {
        self.into()
    }
}

/// Decides one input about the workspace of `owner`, which may have none.
pub fn step(owner: &TaskId, workspace: Option<Workspace>, input: Input, now: &Now) -> Step<Option<Workspace>, Outcome> {
    let mut buffer = EffectBuffer::new(now);
    let state = workspace.as_ref().map(|workspace| workspace.state);
    let (fact, outcome) = match (state, input) {
        (None, Input::Begin { host, place }) => (Some(Fact::Begun { host, place }), Outcome::Create),
        (Some(state), Input::Begin { host, .. }) => (None, begun(state, workspace.as_ref(), &host)),
        (Some(State::Creating), Input::Made) => (Some(Fact::Made {}), Outcome::Noted),
        (Some(State::Ready), Input::Made) | (Some(State::Removing), Input::Remove) => (None, Outcome::Noted),
        (Some(State::Creating | State::Ready), Input::Remove) => (Some(Fact::Removing {}), Outcome::Noted),
        (Some(State::Removing), Input::Keep) => (Some(Fact::Kept {}), Outcome::Noted),
        (Some(State::Removing), Input::Removed) => (Some(Fact::Removed {}), Outcome::Noted),
        (None | Some(State::Removing), Input::Made)
        | (None, Input::Remove | Input::Keep | Input::Removed)
        | (Some(State::Creating | State::Ready), Input::Keep | Input::Removed) => (None, Outcome::Refused),
    };
    let workspace = match fact {
        None => workspace,
        Some(fact) => {
            let after = apply(owner, workspace, &fact, now.wall);
            buffer.emit(Event::Workspace { id: owner.clone(), fact });
            after
        }
    };
    Step { state: workspace, outcome, effects: buffer.effects }
}

fn begun(state: State, workspace: Option<&Workspace>, host: &str) -> Outcome {
    match (workspace.filter(|workspace| &*workspace.host != host), state) {
        (Some(workspace), _) => Outcome::Elsewhere { host: workspace.host.clone() },
        (None, State::Creating) => Outcome::Resume,
        (None, State::Ready) => Outcome::Use,
        (None, State::Removing) => Outcome::HalfRemoved,
    }
}

/// The row after an event.
pub fn apply(owner: &TaskId, workspace: Option<Workspace>, fact: &Fact, wall: Wall) -> Option<Workspace> {
    let at = |state: State| workspace.clone().map(|workspace| Workspace { state, ..workspace });
    match fact {
        Fact::Begun { host, place } => Some(Workspace {
            owner: owner.clone(),
            host: host.clone(),
            place: place.clone(),
            created: wall,
            state: State::Creating,
        }),
        Fact::Made {} | Fact::Kept {} => at(State::Ready),
        Fact::Removing {} => at(State::Removing),
        Fact::Removed {} => None,
    }
}

/// The default name of the branch of a task.
pub fn branch_name(owner: &TaskId, title: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let words: String = title.chars().map(plain).collect();
    let slug = words.split('-').filter(|word| !word.is_empty()).fold(String::new(), |slug, word| match slug.len() + word.len() {
        0..=SLUG_LIMIT if slug.is_empty() => word.to_owned(),
        0..SLUG_LIMIT => format!("{slug}-{word}"),
        _ => slug,
    });
    if slug.is_empty() { format!("banksman/{owner}") } else { format!("banksman/{owner}-{slug}") }
}

/// The longest part of a branch's name that comes from the title, in bytes.
const SLUG_LIMIT: usize = 40;

#[cfg(test)]
mod tests;
