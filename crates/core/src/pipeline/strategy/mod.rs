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
use serde_json::Value;

use crate::ids::Name;
use crate::pattern;
use crate::pipeline::plan::RunCommand;
use crate::step::Step;
use crate::time::Span;

/// The most approaches of one strategy.
pub const APPROACH_LIMIT: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approach {
    pub name: Name,
    #[serde(rename = "deed")]
    pub run_command: RunCommand,
    /// The reasons to try the next approach instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback_on: Vec<Fallback>,
    /// How long it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

/// A reason to try the next approach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fallback {
    /// An error, or output before it, that this regular expression matches.
    Error(Box<str>),
    Any,
    Timeout,
}

/// A strategy in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Strategy {
    pub name: Name,
    /// The approaches, in order. There is at least one.
    pub approaches: Vec<Approach>,
    /// The index of the current approach.
    pub current: usize,
}

/// How the current approach ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    Success {
        output: Option<Value>,
    },
    Failed {
        /// The reason, with the last lines of the output.
        error: Box<str>,
        timed_out: bool,
    },
}

/// What follows. It has all fields of the events `strategy:fallback` and `strategy:exhausted`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Success {
        output: Option<Value>,
    },
    /// The next approach is to be tried.
    TryNext {
        index: usize,
        /// The approach that failed.
        from: Name,
        /// The approach that is tried instead.
        to: Name,
        error: Box<str>,
    },
    /// The strategy has failed: there is no other approach, or the error is no reason to try it.
    Exhausted {
        /// The approach that failed last.
        at: Name,
        error: Box<str>,
    },
}

impl Strategy {
    /// A strategy whose first approach is to be tried; `None` if it has no approaches.
    pub fn new(name: Name, approaches: Vec<Approach>) -> Option<Strategy> {
        (!approaches.is_empty()).then_some(Strategy { name, approaches, current: 0 })
    }

    /// The current approach.
    pub fn approach(&self) -> &Approach {
        &self.approaches[self.current]
    }

    /// Decides what follows from the end of the current approach. It does not depend on the time.
    pub fn step(self, input: Input) -> Step<Strategy, Outcome> {
        match input {
            Input::Success { output } => self.stay(Outcome::Success { output }),
            Input::Failed { error, timed_out } => {
                let falls_back = self.approach().falls_back(&error, timed_out);
                if falls_back && self.current + 1 < self.approaches.len() { self.advance(error) } else { self.exhaust(error) }
            }
        }
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        assert!(self.current < self.approaches.len(), "the current approach is not one of the approaches");
        assert!(self.approaches.len() <= APPROACH_LIMIT, "there are too many approaches");
    }

    fn advance(mut self, error: Box<str>) -> Step<Strategy, Outcome> {
        let from = self.approach().name.clone();
        self.current += 1;
        let to = self.approach().name.clone();
        let index = self.current;
        self.stay(Outcome::TryNext { index, from, to, error })
    }

    fn exhaust(self, error: Box<str>) -> Step<Strategy, Outcome> {
        let at = self.approach().name.clone();
        self.stay(Outcome::Exhausted { at, error })
    }

    fn stay(self, outcome: Outcome) -> Step<Strategy, Outcome> {
        Step { state: self, outcome, effects: Vec::new() }
    }
}

impl Approach {
    /// Whether this error is a reason to try the next approach.
    pub fn falls_back(&self, error: &str, timed_out: bool) -> bool {
        self.fallback_on.iter().any(|fallback| match fallback {
            Fallback::Any => true,
            Fallback::Timeout => timed_out,
            // `^` and `$` match at a line of the output. An invalid pattern does not pass the check of the runbook.
            Fallback::Error(pattern) => pattern::compile(pattern)
                .is_ok_and(|pattern| pattern.is_match(error) || error.lines().any(|line| pattern.is_match(line))),
        })
    }
}

#[cfg(test)]
mod tests;
