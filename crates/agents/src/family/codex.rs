//! Codex, `codex exec --json`.

use banksman_core::agent::{Limit, Usage};
use serde::Deserialize;

use super::fields::{Nested, Raw, any_text, object, read, text};
use crate::event::Event;
use crate::resets::Reset;
use crate::trouble::Trouble;

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    thread_id: Raw<'a>,
    #[serde(default)]
    item: Nested<Item<'a>>,
    usage: Raw<'a>,
    message: Raw<'a>,
    error: Raw<'a>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    id: Raw<'a>,
    #[serde(rename = "type")]
    kind: Raw<'a>,
    text: Raw<'a>,
    command: Raw<'a>,
    tool: Raw<'a>,
    status: Raw<'a>,
    aggregated_output: Raw<'a>,
    message: Raw<'a>,
}

#[derive(Deserialize)]
struct Tokens<'a> {
    #[serde(borrow)]
    input_tokens: Raw<'a>,
    cached_input_tokens: Raw<'a>,
    cache_write_input_tokens: Raw<'a>,
    output_tokens: Raw<'a>,
}

#[derive(Deserialize)]
struct Failure<'a> {
    #[serde(borrow)]
    message: Raw<'a>,
}

pub(super) fn parse<'a>(line: &'a [u8], take: &mut dyn FnMut(Event<'a>)) -> bool {
    let Ok(line) = serde_json::from_slice::<Line<'a>>(line) else { return false };
    let kind = text(line.kind).unwrap_or_default();
    match &*kind {
        "thread.started" => {
            if let Some(id) = text(line.thread_id) {
                take(Event::Session { id, model: None, key_source: None });
            }
        }
        "item.started" | "item.completed" | "item.updated" => item(&kind, line.item.0, take),
        "turn.completed" => {
            if let Some(tokens) = object::<Tokens<'_>>(line.usage) {
                let number = |raw| read::<u64>(raw).unwrap_or(0);
                let cached = number(tokens.cached_input_tokens);
                // Codex counts tokens from the cache as input.
                let usage = Usage {
                    input: number(tokens.input_tokens).saturating_sub(cached),
                    output: number(tokens.output_tokens),
                    cache_read: cached,
                    cache_write: number(tokens.cache_write_input_tokens),
                };
                take(Event::Used { usage, is_total: true });
            }
            take(Event::Result { is_error: false, trouble: None, text: "".into(), turns: None });
        }
        "turn.failed" => {
            let failure = object::<Failure<'_>>(line.error);
            let said = failure.map_or_else(|| any_text(line.error), |failure| any_text(failure.message));
            limited(&said, take);
            let trouble = Trouble::of_words(&said);
            take(Event::Result { is_error: true, trouble, text: said, turns: None });
        }
        "error" => {
            let said = any_text(line.message);
            limited(&said, take);
            let trouble = Trouble::of_words(&said).unwrap_or(Trouble::Network);
            take(Event::Retrying { trouble, text: said });
        }
        _ => take(Event::Opaque(kind)),
    }
    true
}

/// A limit of the plan is reported in text: "for" a single model, and with a local time for its end.
fn limited<'a>(said: &str, take: &mut dyn FnMut(Event<'a>)) {
    let Some((_, rest)) = said.split_once("usage limit") else { return };
    let only = rest.strip_prefix(" for ").and_then(|rest| rest.split_once(". ")).map(|(name, _)| name);
    let model = only.filter(|name| !name.contains(' ')).map(Into::into);
    take(Event::Limited(Limit { kind: "usage".into(), model, resets: None }));
    Reset::of_words(said).into_iter().for_each(|reset| take(Event::LimitEnds(reset)));
}

fn item<'a>(line: &str, item: Option<Item<'a>>, take: &mut dyn FnMut(Event<'a>)) {
    let Some(item) = item else { return };
    let kind = text(item.kind).unwrap_or_default();
    let id = text(item.id).unwrap_or_default();
    match (&*kind, line) {
        ("agent_message", "item.completed") => {
            take(Event::Answer { id: Some(id) });
            take(Event::Text(text(item.text).unwrap_or_default()));
        }
        ("reasoning", "item.completed") => take(Event::Answer { id: Some(id) }),
        // For example an unknown model: the run continues.
        ("error", _) => take(Event::Plain(text(item.message).unwrap_or_default())),
        ("command_execution" | "mcp_tool_call" | "file_change" | "web_search", "item.started") => {
            take(Event::Answer { id: Some(id.clone()) });
            let detail = text(item.command).or_else(|| text(item.tool)).unwrap_or_default();
            take(Event::CallStarted { id, tool: kind, detail });
        }
        ("command_execution" | "mcp_tool_call" | "file_change" | "web_search", "item.completed") => {
            let failed = text(item.status).as_deref() == Some("failed");
            take(Event::Answer { id: Some(id.clone()) });
            take(Event::CallEnded { id, failed, output: text(item.aggregated_output).unwrap_or_default() });
        }
        _ => take(Event::Opaque(kind)),
    }
}
