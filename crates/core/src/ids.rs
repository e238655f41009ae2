//! Names and numbers that identify things. A value of one of these types has passed its checks.

use std::borrow::Borrow;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest name, in bytes: of a lock, a semaphore, a queue, a holder or a request.
pub const NAME_LIMIT: usize = 200;

/// The longest id that Banksman gives to a task, a section, a run or a runner, in bytes.
pub const ID_LIMIT: usize = 64;

/// The longest id of an import, in bytes: the ids of its tasks are longer by a few digits.
pub const IMPORT_ID_LIMIT: usize = 32;

/// The longest title, in bytes.
pub const TITLE_LIMIT: usize = 500;

/// Why a text cannot be a name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    #[error("a {what} must not be empty")]
    Empty { what: &'static str },
    #[error("a {what} may have at most {limit} bytes, this one has {bytes}")]
    TooLong { what: &'static str, limit: usize, bytes: usize },
    /// A control character would garble tables, logs and environment variables.
    #[error("a {what} must not contain control characters (found {found:?} at byte {at})")]
    Control { what: &'static str, found: char, at: usize },
    /// The name belongs to Banksman itself.
    #[error("{name:?} is reserved: banksman itself uses {prefix:?}")]
    Reserved {
        name: Box<str>,
        /// The prefix or name that is reserved.
        prefix: &'static str,
    },
    /// Spaces at the ends cannot be seen and lead to two names that look alike.
    #[error("a {what} must not begin or end with a space")]
    Edge { what: &'static str },
}

fn check(text: &str, what: &'static str, limit: usize) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { what });
    }
    if text.len() > limit {
        return Err(NameError::TooLong { what, limit, bytes: text.len() });
    }
    if let Some((at, found)) = text.char_indices().find(|(_, c)| c.is_control()) {
        return Err(NameError::Control { what, found, at });
    }
    if text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace) {
        return Err(NameError::Edge { what });
    }
    Ok(())
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $limit:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Box<str>);

        impl $name {
            /// Checks a text from outside.
            pub fn new(text: &str) -> Result<Self, NameError> {
                check(text, $what, $limit)?;
                Ok(Self(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }
    };
}

text_id!(
    /// The name of a lock, a semaphore or a queue.
    Name,
    "name",
    NAME_LIMIT
);
text_id!(
    /// A holder or waiter: `run:<id>`, `pipeline:<id>`, or any name that a user gives.
    HolderId,
    "holder",
    NAME_LIMIT
);
text_id!(
    /// Identifies one request, so that a repetition after a lost reply gets the same answer.
    RequestId,
    "request id",
    NAME_LIMIT
);

text_id!(TaskId, "task id", ID_LIMIT);
text_id!(SectionId, "section id", ID_LIMIT);
text_id!(
    /// One attempt at a task.
    RunId,
    "run id",
    ID_LIMIT
);
text_id!(
    /// A process that claims tasks.
    RunnerId,
    "runner id",
    ID_LIMIT
);
text_id!(
    /// A question for a person.
    DecisionId,
    "decision id",
    ID_LIMIT
);
text_id!(
    /// An entry of a merge queue.
    LandingId,
    "landing id",
    ID_LIMIT
);
text_id!(
    /// A message, named by its sender.
    MessageId,
    "message id",
    NAME_LIMIT
);
text_id!(
    /// Many tasks that are added together.
    ImportId,
    "import id",
    IMPORT_ID_LIMIT
);
text_id!(
    /// The title of a task or a section.
    Title,
    "title",
    TITLE_LIMIT
);
text_id!(
    /// Keeps an item out of a queue while another one with the same key is open.
    DedupeKey,
    "dedupe key",
    NAME_LIMIT
);
text_id!(
    /// A mark on tasks, to find them by.
    Label,
    "label",
    NAME_LIMIT
);

impl TaskId {
    /// The lock of the task, held while a run or a person works on it.
    pub fn lock(&self) -> Name {
        Name::new(&format!("task:{self}")).expect("an id is short and plain")
    }

    /// The lock of its workspace, held while it is worked in or removed.
    pub fn workspace_lock(&self) -> Name {
        Name::new(&format!("workspace:{self}")).expect("an id is short and plain")
    }

    /// The lock that a dispatch to it holds.
    pub fn dispatch_lock(&self) -> Name {
        Name::new(&format!("dispatch:{self}")).expect("an id is short and plain")
    }

    /// The pipeline of the task as a holder of locks that are held across its phases.
    pub fn pipeline_holder(&self) -> HolderId {
        HolderId::new(&format!("pipeline:{self}")).expect("an id is short and plain")
    }
}

impl HolderId {
    /// Whether it is a pipeline, which holds locks across its phases.
    pub fn is_pipeline(&self) -> bool {
        self.0.starts_with("pipeline:")
    }

    /// Whether it is a run, whose end frees what it holds.
    pub fn is_run(&self) -> bool {
        self.0.starts_with("run:")
    }

    /// The run that it is, if it is one.
    pub fn run(&self) -> Option<RunId> {
        RunId::new(self.0.strip_prefix("run:")?).ok()
    }
}

impl SectionId {
    /// The lock of an exclusive section, held by a run or a claim that works in it.
    pub fn lock(&self) -> Name {
        Name::new(&format!("section:{self}")).expect("an id is short and plain")
    }
}

impl RunId {
    /// The run as a holder of locks and slots.
    pub fn holder(&self) -> HolderId {
        HolderId::new(&format!("run:{self}")).expect("an id is short and plain")
    }
}

impl RunnerId {
    /// The runner as a holder of section locks.
    pub fn holder(&self) -> HolderId {
        HolderId::new(&format!("runner:{self}")).expect("an id is short and plain")
    }
}

impl Name {
    /// The semaphore whose slots are held by live sessions.
    pub fn runs() -> Name {
        Name::new("runs").expect("a plain word")
    }

    /// The task whose lock it names.
    pub fn task(&self) -> Option<TaskId> {
        TaskId::new(self.0.strip_prefix("task:")?).ok()
    }

    /// Whether it is the lock of a workspace.
    pub fn is_workspace(&self) -> bool {
        self.0.starts_with("workspace:")
    }

    /// Whether it is a limit of an account that tasks wait for.
    pub fn is_account_limit(&self) -> bool {
        self.0.starts_with("account:")
    }

    /// Whether it is the lock of a section.
    pub fn is_section(&self) -> bool {
        self.0.starts_with("section:")
    }

    /// Whether it is the lock of a task or a section: only a run or a claim on work holds it.
    pub fn is_work(&self) -> bool {
        self.is_section() || self.0.starts_with("task:")
    }

    /// A name for a user's lock or semaphore: none that Banksman itself uses.
    pub fn unreserved(text: &str) -> Result<Name, NameError> {
        let name = Name::new(text)?;
        match name.reserved() {
            Some(prefix) => Err(NameError::Reserved { name: text.into(), prefix }),
            None => Ok(name),
        }
    }

    /// Whether Banksman itself uses the name, so that no user can acquire it.
    pub fn is_reserved(&self) -> bool {
        self.reserved().is_some()
    }

    /// The prefix or name that is reserved, if it is. The names of holders are reserved, too, so that they are not
    /// mistaken for resources.
    fn reserved(&self) -> Option<&'static str> {
        let exact = ["runs", "roots"].into_iter().find(|name| self.as_str() == *name);
        let prefixes = ["task:", "section:", "workspace:", "dispatch:", "run:", "runner:", "landing:", "account:", "import:"];
        exact.or_else(|| prefixes.into_iter().find(|prefix| self.0.starts_with(prefix)))
    }
}

/// The number of an event. It rises by one with every event of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub i64);

/// The fencing number of one grant: the sequence number of the grant's event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub i64);

/// A place among waiters. Tickets rise, so their order is the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ticket(pub i64);

/// An id that is made of the number of the event that created the object.
macro_rules! numbered {
    ($name:ident, $prefix:literal) => {
        impl $name {
            /// The number of that event; 0 for an id of another form.
            pub fn seq(&self) -> Seq {
                Seq(self.0.strip_prefix($prefix).and_then(|number| number.parse().ok()).unwrap_or(0))
            }
        }

        impl From<Seq> for $name {
            fn from(seq: Seq) -> $name {
                $name(format!(concat!($prefix, "{}"), seq).into())
            }
        }
    };
}
numbered!(DecisionId, "d-");
numbered!(LandingId, "l-");

/// An item of a queue, identified by the number of the event that pushed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ItemId(pub Seq);

/// Why a text is not the id of an item.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("an item is written like q-17, not {0:?}")]
pub struct ItemIdError(Box<str>);

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("q-{}", self.0))
    }
}

impl std::str::FromStr for ItemId {
    type Err = ItemIdError;
    fn from_str(text: &str) -> Result<ItemId, ItemIdError> {
        let digits = text.strip_prefix("q-").filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        digits.and_then(|digits| digits.parse().ok()).map(|number| ItemId(Seq(number))).ok_or_else(|| ItemIdError(text.into()))
    }
}

impl Serialize for ItemId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ItemId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<ItemId, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl From<Seq> for Epoch {
    fn from(seq: Seq) -> Epoch {
        Epoch(seq.0)
    }
}

macro_rules! display_number {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
display_number!(Seq, Epoch, Ticket);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_validated() {
        assert_eq!(Name::new(""), Err(NameError::Empty { what: "name" }));
        assert_eq!(Name::new(&"x".repeat(201)), Err(NameError::TooLong { what: "name", limit: 200, bytes: 201 }));
        assert_eq!(Name::new("a\nb"), Err(NameError::Control { what: "name", found: '\n', at: 1 }));
        assert_eq!(Name::new(" a"), Err(NameError::Edge { what: "name" }));
        assert!(Name::new(&"x".repeat(200)).is_ok());
        assert!(Name::new("déploiement/prod").is_ok());
    }

    #[test]
    fn reserved_names_are_recognized() {
        for name in [
            "task:t-1",
            "section:x",
            "workspace:t-1",
            "dispatch:q",
            "run:r-1",
            "runner:n-1",
            "landing:main",
            "account:a",
            "import:sync",
            "runs",
            "roots",
        ] {
            assert!(Name::new(name).unwrap().is_reserved(), "{name}");
        }
        for name in ["tasks", "task", "runs-2", "a task:b"] {
            assert!(!Name::new(name).unwrap().is_reserved(), "{name}");
        }
        assert_eq!(Name::unreserved("runs"), Err(NameError::Reserved { name: "runs".into(), prefix: "runs" }));
    }
}
