//! The events in the output of an agent program, independent of the program.

use std::borrow::Cow;

use banksman_core::agent::{Limit, Usage};

use crate::resets::Reset;
use crate::trouble::Trouble;

/// One event in a line of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'a> {
    /// The program reports its session.
    Session {
        id: Cow<'a, str>,
        model: Option<Cow<'a, str>>,
        /// The source of the API key, as the program names it, such as `ANTHROPIC_API_KEY` or `none`.
        key_source: Option<Cow<'a, str>>,
    },
    Answer {
        id: Option<Cow<'a, str>>,
    },
    /// Text of the model.
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
    /// A step of the model begins. The program reports the tool calls of a step only after they have ended.
    StepStarted,
    /// A step of the model has ended; `is_last` if the model has nothing more to do.
    StepEnded {
        is_last: bool,
    },
    /// The usage of the entire session, or only since the last report.
    Used {
        usage: Usage,
        is_total: bool,
    },
    /// The cost of the process, or only of the last step, in millionths of a dollar.
    Cost {
        micros: u64,
        is_total: bool,
    },
    /// The account has reached a limit.
    Limited(Limit),
    /// The end of the limit, parsed from the program's text.
    LimitEnds(Reset),
    /// The account has reached no limit.
    NotLimited,
    /// The program retries by itself.
    Retrying {
        trouble: Trouble,
        text: Cow<'a, str>,
    },
    /// The tools that the program did not permit.
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
    /// A line of the format that is not used here.
    Opaque(Cow<'a, str>),
}
