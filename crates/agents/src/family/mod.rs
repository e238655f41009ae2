//! The families of output: one parser for each, which knows the fields of one program and nothing about runs.

mod claude;
mod codex;
mod fields;
mod gemini;
mod opencode;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::lines::without_ansi;

/// The output format of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    Claude,
    Codex,
    Gemini,
    Opencode,
    /// Plain text: the exit status decides.
    Text,
}

impl Family {
    pub fn as_str(self) -> &'static str {
        match self {
            Family::Claude => "claude",
            Family::Codex => "codex",
            Family::Gemini => "gemini",
            Family::Opencode => "opencode",
            Family::Text => "text",
        }
    }

    /// Parses a line of the program's standard output into events, in order.
    pub fn parse<'a>(self, line: &'a [u8], take: &mut dyn FnMut(Event<'a>)) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        let is_parsed = match self {
            _ if line[0] != b'{' => false,
            Family::Claude => claude::parse(line, take),
            Family::Codex => codex::parse(line, take),
            Family::Gemini => gemini::parse(line, take),
            Family::Opencode => opencode::parse(line, take),
            Family::Text => false,
        };
        if !is_parsed {
            take(plain(line));
        }
    }
}

/// A line that is not of the program's format, such as everything on standard error.
pub(crate) fn plain(line: &[u8]) -> Event<'_> {
    Event::Plain(match String::from_utf8_lossy(line) {
        Cow::Borrowed(text) => without_ansi(text),
        Cow::Owned(text) => without_ansi(&text).into_owned().into(),
    })
}
