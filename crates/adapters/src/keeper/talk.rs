//! Requests to a live session, and its replies: the second version of the protocol. A keeper of the first version
//! refuses these lines, so the client knows that it does not support them.

use serde::{Deserialize, Serialize};

use super::protocol::{InputKind, InputRefusal};
use crate::os_bytes;

/// The version of these lines.
pub(super) const TALK_VERSION: u32 = 2;

/// The longest line to a keeper: a message as JSON.
pub(super) const TALK_LIMIT: usize = 8 * 1024 * 1024;

/// The largest piece of output in one line.
pub(super) const OUTPUT_PIECE: usize = 8 * 1024;

/// A request that every process may send that may connect to the keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TalkRequest {
    /// Report what input the session accepts.
    Ping,
    /// Write a message into the session, once for each id.
    Send { id: String, text: String },
    /// Write a message into the session at the end of the agent's turn; the next turn begins with it.
    FollowUp { id: String, text: String },
    /// The agent has asked a question: keep its input open at the end of its turn, and wait for a message.
    Expect,
    /// Close the input.
    Close,
    /// Nudge the session, as a runner does with a silent one.
    Nudge,
    /// Show the output from now on, and the last output before.
    Attach { typist: Typist, rows: u16, columns: u16 },
    Type {
        #[serde(with = "os_bytes")]
        bytes: std::ffi::OsString,
    },
    /// The window of the typist has this size now.
    Resize { rows: u16, columns: u16 },
}

/// Whether a client that attaches wants to type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Typist {
    /// Only watch.
    Never,
    /// Type if no other client types.
    IfFree,
    /// Type in any case. A client that has typed so far only watches from then on.
    Take,
}

/// A reply of a keeper, or a notification for attached clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TalkReply {
    /// The input that the session accepts.
    Pong {
        /// The kind of the input, if it is open.
        input: Option<InputKind>,
        has_typist: bool,
        /// Whether the session works in turns, so that a message can wait for the next turn.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        has_turns: bool,
    },
    /// The keeper has accepted a message.
    Taken {
        id: String,
        /// Whether the message was accepted before.
        again: bool,
    },
    /// All of the message is in the input of the session.
    Written {
        id: String,
    },
    /// The session ended or closed its input before the message was written.
    Lost {
        id: String,
    },
    /// The client gets the output from now on.
    Attached {
        /// Whether the client may type.
        is_typist: bool,
        input: Option<InputKind>,
    },
    Output {
        #[serde(with = "os_bytes")]
        bytes: std::ffi::OsString,
    },
    /// Another client types from now on.
    TypistMoved,
    /// The request was refused.
    Refused(InputRefusal),
    Nudged,
    Ended,
}
