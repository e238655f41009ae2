//! The kinds of events that users emit.

use thiserror::Error;

/// `category:action` of an event that a user emits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomKind(Box<str>);

/// Why a text cannot be the kind of a custom event.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KindError {
    /// Not two words with a colon between them.
    #[error("an event kind is written category:action, with letters, digits, '_', '-' or '.', not {0:?}")]
    Malformed(Box<str>),
    /// The category belongs to Banksman; a forged event would break the replay of the log.
    #[error("events of the category {0:?} are written by banksman itself")]
    Reserved(Box<str>),
    #[error("an event kind may have at most {limit} bytes, this one has {bytes}", limit = crate::ids::NAME_LIMIT)]
    TooLong { bytes: usize },
}

/// The categories of events that only Banksman writes.
pub(super) const OWN: [&str; 18] = [
    "lock",
    "semaphore",
    "section",
    "task",
    "decision",
    "landing",
    "landing_target",
    "import",
    "backlog",
    "pipeline",
    "queue",
    "strategy",
    "escalate",
    "worker",
    "route",
    super::LIMITS,
    super::WORKSPACE,
    super::ACCOUNT_LIMIT,
];

impl CustomKind {
    /// Checks a kind from outside.
    pub fn new(text: &str) -> Result<CustomKind, KindError> {
        let word = |s: &str| !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
        if text.len() > crate::ids::NAME_LIMIT {
            return Err(KindError::TooLong { bytes: text.len() });
        }
        match text.split_once(':') {
            Some((category, _)) if OWN.contains(&category) => Err(KindError::Reserved(category.into())),
            Some((category, action)) if word(category) && word(action) => Ok(CustomKind(text.into())),
            _ => Err(KindError::Malformed(text.into())),
        }
    }

    /// The kind of an event that was stored.
    pub(super) fn stored(text: &str) -> CustomKind {
        CustomKind(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}
