//! Which events make something happen: subscriptions, and what each of them does.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ids::Name;
use crate::plan::{Plan, Push};

/// A pattern for events: `pipeline:phase(merge)`, `queue:push`, `deploy:*`, `*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Box<str>", into = "Box<str>")]
pub struct Pattern {
    /// The category; any if there is none.
    pub category: Option<Box<str>>,
    /// The action; any if there is none.
    pub action: Option<Box<str>>,
    /// What it must be about: the name of the lock, queue or phase, the id of the task or pipeline.
    pub argument: Option<Box<str>>,
}

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a pattern is written category:action, category:action(argument), category:* or *, not {0:?}")]
pub struct PatternError(pub Box<str>);

/// What happens when an event comes that a pattern matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// The runbook that says so.
    pub runbook: Box<str>,
    /// For which events.
    pub on: Pattern,
    /// What happens.
    pub then: Vec<Then>,
}

/// One thing that happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Then {
    /// A pipeline starts. Those of its variables that the event has in its data get their values from there, and `event`, if it
    /// is one of them, the whole event.
    Start(Arc<Plan>),
    /// The event is put into a queue.
    Push(Push),
    /// A worker is woken.
    Wake(Name),
    /// People are told this.
    Notify(Box<str>),
}

impl Pattern {
    /// Reads a pattern.
    pub fn new(text: &str) -> Result<Pattern, PatternError> {
        let wrong = || PatternError(text.into());
        let (kind, argument) = match text.split_once('(') {
            Some((kind, rest)) => (kind, Some(rest.strip_suffix(')').filter(|argument| !argument.is_empty()).ok_or_else(wrong)?)),
            None => (text, None),
        };
        let word = |word: &str| match word {
            "*" => Ok(None),
            _ if !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)) => {
                Ok(Some(word.into()))
            }
            _ => Err(wrong()),
        };
        let (category, action) = match kind.split_once(':') {
            Some((category, action)) => (word(category)?, word(action)?),
            // The one kind of a single word, and everything.
            None if kind == "escalate" || kind == "*" => (word(kind)?, None),
            None => return Err(wrong()),
        };
        Ok(Pattern { category, action, argument: argument.map(Into::into) })
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.category, &self.action) {
            (None, None) => f.write_str("*")?,
            (Some(category), None) if &**category == "escalate" => f.write_str(category)?,
            (category, action) => {
                write!(f, "{}:{}", category.as_deref().unwrap_or("*"), action.as_deref().unwrap_or("*"))?;
            }
        }
        self.argument.as_ref().map_or(Ok(()), |argument| write!(f, "({argument})"))
    }
}

impl TryFrom<Box<str>> for Pattern {
    type Error = PatternError;
    fn try_from(text: Box<str>) -> Result<Pattern, PatternError> {
        Pattern::new(&text)
    }
}

impl From<Pattern> for Box<str> {
    fn from(pattern: Pattern) -> Box<str> {
        pattern.to_string().into()
    }
}
