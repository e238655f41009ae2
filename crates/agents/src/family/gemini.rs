//! Gemini CLI, `--output-format stream-json`.

use banksman_core::agent::Usage;
use serde::Deserialize;

use super::fields::{Raw, any_text, call, object, read, text};
use crate::event::Event;
use crate::resets::Reset;
use crate::trouble::Trouble;

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    session_id: Raw<'a>,
    model: Raw<'a>,
    role: Raw<'a>,
    content: Raw<'a>,
    tool_name: Raw<'a>,
    tool_id: Raw<'a>,
    parameters: Raw<'a>,
    status: Raw<'a>,
    output: Raw<'a>,
    error: Raw<'a>,
    message: Raw<'a>,
    stats: Raw<'a>,
}

#[derive(Deserialize)]
struct Failure<'a> {
    #[serde(borrow)]
    message: Raw<'a>,
}

#[derive(Deserialize)]
struct Stats<'a> {
    #[serde(borrow)]
    input: Raw<'a>,
    cached: Raw<'a>,
    output_tokens: Raw<'a>,
}

pub(super) fn parse<'a>(line: &'a [u8], take: &mut dyn FnMut(Event<'a>)) -> bool {
    let Ok(line) = serde_json::from_slice::<Line<'a>>(line) else { return false };
    let kind = text(line.kind).unwrap_or_default();
    match &*kind {
        "init" => {
            if let Some(id) = text(line.session_id) {
                take(Event::Session { id, model: text(line.model), key_source: None });
            }
        }
        "message" if text(line.role).as_deref() == Some("assistant") => {
            take(Event::Answer { id: None });
            take(Event::Text(text(line.content).unwrap_or_default()));
        }
        "tool_use" => {
            if let (Some(id), Some(tool)) = (text(line.tool_id), text(line.tool_name)) {
                take(Event::Answer { id: Some(id.clone()) });
                take(Event::CallStarted { id, tool, detail: call(line.parameters) });
            }
        }
        "tool_result" => {
            if let Some(id) = text(line.tool_id) {
                let failed = text(line.status).as_deref() == Some("error");
                take(Event::CallEnded { id, failed, output: any_text(line.output) });
            }
        }
        "error" => {
            let said = text(line.message).unwrap_or_else(|| any_text(line.error));
            take(Event::Plain(said));
        }
        "result" => {
            if let Some(stats) = object::<Stats<'_>>(line.stats) {
                let number = |raw| read(raw).unwrap_or(0);
                let (input, cached) = (number(stats.input), number(stats.cached));
                let usage = Usage { input, output: number(stats.output_tokens), cache_read: cached, cache_write: 0 };
                take(Event::Used { usage, is_total: true });
            }
            let is_error = text(line.status).as_deref() != Some("success");
            let failure = object::<Failure<'_>>(line.error);
            let said = failure.and_then(|failure| text(failure.message)).unwrap_or_default();
            let trouble = if is_error { Trouble::of_words(&said) } else { None };
            if let (Some(Trouble::Quota), Some(reset)) = (trouble, Reset::of_words(&said)) {
                take(Event::LimitEnds(reset));
            }
            take(Event::Result { is_error, trouble, text: said, turns: None });
        }
        _ => take(Event::Opaque(kind)),
    }
    true
}
