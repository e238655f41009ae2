//! The events of locks and semaphores in the log.

use std::error::Error;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::ids::{Epoch, HolderId, Name};
use crate::resource::grant::{GrantRequest, Reason};
use crate::time::Span;

/// The two kinds of resource that can be held and waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One holder.
    Lock,
    /// Weighted slots.
    Semaphore,
}

impl Kind {
    /// The word in events, rows and messages.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The kind that a word stands for.
    pub fn parse(word: &str) -> Option<Kind> {
        [Kind::Lock, Kind::Semaphore].into_iter().find(|kind| kind.as_str() == word)
    }
}

/// One lock or semaphore.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resource {
    pub kind: Kind,
    pub name: Name,
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.name)
    }
}

/// The events of a lock or a semaphore in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// Its defaults, or its capacity, were set.
    Defined(Defined),
    /// It was granted. The event's number is the epoch.
    Acquired(GrantRequest),
    /// A holder of slots got more of them, under the same epoch.
    Increased(Increased),
    /// A grant ended because its holder died, fell silent or held it too long.
    Reclaimed(GrantEnd),
    /// A grant was given back, or taken by force.
    Released(GrantEnd),
    /// An offer was not taken up.
    OfferLapsed(GrantEnd),
}

impl Fact {
    /// The fact that the second word of a kind stands for.
    pub(super) fn read(action: &str, data: &str) -> Result<Fact, Box<dyn Error + Send + Sync>> {
        Ok(match action {
            "defined" => Fact::Defined(serde_json::from_str(data)?),
            "acquired" => Fact::Acquired(serde_json::from_str(data)?),
            "increased" => Fact::Increased(serde_json::from_str(data)?),
            "reclaimed" => Fact::Reclaimed(serde_json::from_str(data)?),
            "released" => Fact::Released(serde_json::from_str(data)?),
            "offer_lapsed" => Fact::OfferLapsed(serde_json::from_str(data)?),
            _ => return Err("nothing of this name happens to locks and semaphores".into()),
        })
    }
}

/// The definition of a lock or a semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Defined {
    /// The slots of a semaphore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
    /// The default time to live of a grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
    /// The default longest hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_hold: Option<Span>,
}

/// A holder's new weight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Increased {
    pub holder: HolderId,
    /// The weight from now on.
    pub weight: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantEnd {
    pub holder: HolderId,
    pub epoch: Epoch,
    /// The reason, unless the holder ended it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The user who took it away by force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced: Option<Forced>,
    /// The weight that the holder keeps, when only an increase lapsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeps: Option<u32>,
}

/// The person or program that used force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forced {
    /// The user's name or number.
    pub user: Box<str>,
    /// The machine's name.
    pub host: Box<str>,
    pub pid: i32,
}
