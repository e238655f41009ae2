//! What is said to a live session and heard from it: the second version of the protocol. A keeper of the first version refuses it, which
//! means that it cannot.

use serde::{Deserialize, Serialize};

use super::protocol::{InputKind, InputRefusal};
use crate::os_bytes;

/// The version of these lines.
pub(super) const TALK_VERSION: u32 = 2;

/// The longest line to a keeper: a message, as JSON.
pub(super) const TALK_LIMIT: usize = 8 * 1024 * 1024;

/// How much output one line carries.
pub(super) const OUTPUT_PIECE: usize = 8 * 1024;

/// What can be asked of a keeper by anybody who may connect to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TalkRequest {
    /// What does the session take?
    Ping,
    /// Write a message into the session, once for each id.
    Send { id: String, text: String },
    /// Write a message into the session when its agent has given the result of its turn: the next turn begins with it.
    FollowUp { id: String, text: String },
    /// The agent has asked something: at the end of its turn it waits for a message, and its input stays open.
    Expect,
    /// The input ends.
    Close,
    /// Wake the session up, as a runner does with one that is silent.
    Nudge,
    /// See the output from now on, and what came just before.
    Attach {
        /// Whether to type, too.
        typist: Typist,
        rows: u16,
        columns: u16,
    },
    Type {
        #[serde(with = "os_bytes")]
        bytes: std::ffi::OsString,
    },
    /// The window of the typist has another size.
    Resize { rows: u16, columns: u16 },
}

/// Whether one who attaches wants to type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Typist {
    /// Only to watch.
    Never,
    /// If nobody else types.
    IfFree,
    /// Also if somebody else types, who watches from then on.
    Take,
}

/// What a keeper answers, and tells those who are attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TalkReply {
    /// What the session takes.
    Pong {
        /// The way into it, if there is one that is open.
        input: Option<InputKind>,
        has_typist: bool,
        /// Whether it works in turns, so that a message can wait for the next one.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        has_turns: bool,
    },
    Taken {
        id: String,
        /// Whether it was taken before.
        again: bool,
    },
    /// The session has all of it in its input.
    Written {
        id: String,
    },
    /// The session ended, or closed its input, before it was written.
    Lost {
        id: String,
    },
    /// Output comes from now on.
    Attached {
        /// Whether the asker may type.
        is_typist: bool,
        input: Option<InputKind>,
    },
    Output {
        #[serde(with = "os_bytes")]
        bytes: std::ffi::OsString,
    },
    /// Somebody else types from now on.
    TypistMoved,
    /// Something was asked that is not done.
    Refused(InputRefusal),
    /// The session was woken up.
    Nudged,
    Ended,
}
