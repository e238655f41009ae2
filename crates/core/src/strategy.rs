//! A strategy: approaches that are tried one after the other, until one succeeds.
//!
//! ```text
//!   approach 0 --failed, and that is a reason to fall back--> approach 1 --> … --> Exhausted
//!        |                                                       |
//!        `---------------------- succeeded ----------------------'--> Success
//! ```
//!
//! Invariant: the current approach is one of the approaches. An error that an approach does not fall back on ends the chain.

use serde::{Deserialize, Serialize};

use crate::ids::Name;
use crate::plan::Deed;
use crate::time::Span;

/// The most approaches of one strategy.
pub const APPROACH_LIMIT: usize = 100;

/// One approach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approach {
    /// What people call it.
    pub name: Name,
    /// What is done.
    pub deed: Deed,
    /// When the next approach is tried instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback_on: Vec<Fallback>,
    /// How long it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

/// What makes a strategy try its next approach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fallback {
    /// An error, or output before it, that this regular expression matches.
    Error(Box<str>),
    /// Any error.
    Any,
    /// It took too long.
    Timeout,
}
