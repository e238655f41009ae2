//! What an agent program tells, in the words of no program.

use std::borrow::Cow;

use banksman_core::agent::{Limit, Usage};

use crate::resets::Reset;
use crate::trouble::Trouble;

/// One thing that a line of output tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'a> {
    /// The session is known.
    Session {
        id: Cow<'a, str>,
        model: Option<Cow<'a, str>>,
        /// What pays for it, in the program's word, such as `ANTHROPIC_API_KEY` or `none`.
        key_source: Option<Cow<'a, str>>,
    },
    Answer {
        id: Option<Cow<'a, str>>,
    },
    /// The model says something.
    Text(Cow<'a, str>),
    CallStarted {
        id: Cow<'a, str>,
        tool: Cow<'a, str>,
        detail: Cow<'a, str>,
    },
    CallEnded {
        id: Cow<'a, str>,
        failed: bool,
        output: Cow<'a, str>,
    },
    /// A step of the model begins. The program does not tell what it calls before that is over.
    StepStarted,
    /// A step of the model is over; `is_last` if the model has nothing more to do.
    StepEnded {
        is_last: bool,
    },
    /// What the whole session, or only what was not told before, has used.
    Used {
        usage: Usage,
        is_total: bool,
    },
    /// What the process, or the last step, has cost, in millionths of a dollar.
    Cost {
        micros: u64,
        is_total: bool,
    },
    /// The account is limited.
    Limited(Limit),
    /// When the limit ends that the program tells of, in its words.
    LimitEnds(Reset),
    /// The account is not limited.
    NotLimited,
    /// The program tries something again by itself.
    Retrying {
        trouble: Trouble,
        text: Cow<'a, str>,
    },
    /// Tools that the program did not allow.
    Denied(Vec<Cow<'a, str>>),
    /// The program is done.
    Result {
        is_error: bool,
        trouble: Option<Trouble>,
        text: Cow<'a, str>,
        turns: Option<u32>,
    },
    /// Plain text: not a line of the program's format.
    Plain(Cow<'a, str>),
    /// A line of the format that nothing here depends on.
    Opaque(Cow<'a, str>),
}
