//! The bus: messages of people and runs, numbered together with the events of the log.
//!
//! A message never changes. Its id comes from its sender, so that posting it again after a lost reply does nothing. The
//! dependencies and the ends of tasks are read from the bus, too, but not stored there: [`derived`] makes these
//! messages from the event log.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ids::{MessageId, NameError, RunId, Seq, TaskId};
use crate::time::{Span, Wall};

pub mod derived;

/// The largest body, in bytes.
pub const BODY_LIMIT: usize = 1024 * 1024;

/// How many files may be attached.
pub const ATTACHMENTS_LIMIT: usize = 64;

/// The longest path of an attachment, in bytes.
pub const PATH_LIMIT: usize = 4_096;

/// The longest type, in bytes.
pub const TYPE_LIMIT: usize = 32;

/// The sort of a message: one of [`MessageType::KNOWN`], or a word of the user's own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct MessageType(Box<str>);

impl MessageType {
    /// The words that Banksman itself uses.
    pub const KNOWN: [&'static str; 7] = ["FACT", "PROGRESS", "QUESTION", "ANSWER", "DECISION", "ERROR", "INFO"];

    /// Checks a word from outside. Letters are made upper case.
    pub fn new(word: &str) -> Result<MessageType, TypeError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if word.is_empty() || word.len() > TYPE_LIMIT || !word.bytes().all(is_plain) {
            return Err(TypeError { word: word.into() });
        }
        Ok(MessageType(word.to_ascii_uppercase().into()))
    }

    /// A statement that is known to be true, such as a result.
    pub fn fact() -> MessageType {
        MessageType("FACT".into())
    }

    pub fn progress() -> MessageType {
        MessageType("PROGRESS".into())
    }

    pub fn question() -> MessageType {
        MessageType("QUESTION".into())
    }

    pub fn answer() -> MessageType {
        MessageType("ANSWER".into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for MessageType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

impl std::str::FromStr for MessageType {
    type Err = TypeError;
    fn from_str(word: &str) -> Result<MessageType, TypeError> {
        MessageType::new(word)
    }
}

/// A word that cannot be the type of a message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a message type has 1 to {TYPE_LIMIT} letters, digits, - and _, not {word:?}")]
pub struct TypeError {
    word: Box<str>,
}

/// A message before it is posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// The sender's name for it.
    pub id: MessageId,
    pub kind: MessageType,
    /// The task that it is about.
    pub task: Option<TaskId>,
    /// The run that posts it.
    pub run: Option<RunId>,
    pub author: Box<str>,
    /// The message that it answers.
    pub parent: Option<MessageId>,
    pub body: Box<str>,
    /// Paths of files that belong to it.
    pub attachments: Vec<Box<str>>,
}

/// How long a sender waited for the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Contention {
    /// How many attempts it took.
    pub attempts: u32,
    /// How long the attempts before the last one took, with the pauses between them.
    pub waited: Span,
}

/// A message on the bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its number. It shares the numbers of the events.
    pub seq: Seq,
    /// When it was posted.
    pub wall: Wall,
    pub draft: Draft,
    pub contention: Contention,
}

/// Why a draft is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DraftError {
    #[error("a message needs a body or an attachment")]
    Empty,
    #[error("the body of a message may have at most {BODY_LIMIT} bytes, this one has {bytes}")]
    Body { bytes: usize },
    #[error("a message may have at most {ATTACHMENTS_LIMIT} attachments, this one has {number}")]
    Attachments { number: usize },
    #[error("an attachment is a path of 1 to {PATH_LIMIT} bytes without NUL, not one of {bytes}")]
    Path { bytes: usize },
    #[error(transparent)]
    Author(#[from] NameError),
    /// No database that we support can store NUL.
    #[error("the body of a message must not contain NUL (found at byte {at})")]
    Nul { at: usize },
}

impl Draft {
    /// Checks it against the limits.
    pub fn check(&self) -> Result<(), DraftError> {
        if self.body.is_empty() && self.attachments.is_empty() {
            return Err(DraftError::Empty);
        }
        if self.body.len() > BODY_LIMIT {
            return Err(DraftError::Body { bytes: self.body.len() });
        }
        if let Some(at) = self.body.find('\0') {
            return Err(DraftError::Nul { at });
        }
        if self.attachments.len() > ATTACHMENTS_LIMIT {
            return Err(DraftError::Attachments { number: self.attachments.len() });
        }
        let is_path = |path: &str| (1..=PATH_LIMIT).contains(&path.len()) && !path.contains('\0');
        if let Some(path) = self.attachments.iter().find(|path| !is_path(path)) {
            return Err(DraftError::Path { bytes: path.len() });
        }
        crate::ids::HolderId::new(&self.author)?;
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(transparent)]
struct StoredType(Box<str>);

impl<'de> Deserialize<'de> for MessageType {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<MessageType, D::Error> {
        let StoredType(word) = StoredType::deserialize(deserializer)?;
        MessageType::new(&word).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(body: &str) -> Draft {
        Draft {
            id: MessageId::new("m-1").unwrap(),
            kind: MessageType::fact(),
            task: None,
            run: None,
            author: "ada".into(),
            parent: None,
            body: body.into(),
            attachments: Vec::new(),
        }
    }

    #[test]
    fn a_type_is_a_short_word() {
        assert_eq!(MessageType::new("fact"), Ok(MessageType::fact()));
        assert_eq!(MessageType::new("MY-own_2").unwrap().as_str(), "MY-OWN_2");
        for wrong in ["", "two words", "ünicode", "a:b", &"x".repeat(33)] {
            assert!(MessageType::new(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_draft_has_limits() {
        assert_eq!(draft("a\nb\u{1b}[31m---\u{2028}").check(), Ok(()), "any text is fine");
        assert_eq!(draft("").check(), Err(DraftError::Empty));
        assert_eq!(draft(&"x".repeat(BODY_LIMIT)).check(), Ok(()));
        assert_eq!(draft(&"x".repeat(BODY_LIMIT + 1)).check(), Err(DraftError::Body { bytes: BODY_LIMIT + 1 }));
        assert_eq!(draft("a\0").check(), Err(DraftError::Nul { at: 1 }));
        let with = |paths: Vec<Box<str>>| Draft { attachments: paths, ..draft("") }.check();
        assert_eq!(with(vec!["/a".into()]), Ok(()));
        assert_eq!(with(vec!["/a".into(); 65]), Err(DraftError::Attachments { number: 65 }));
        assert_eq!(with(vec!["".into()]), Err(DraftError::Path { bytes: 0 }));
    }
}
