//! Claude Code, `--output-format stream-json`.

use banksman_core::Wall;
use banksman_core::agent::{Limit, Usage};
use serde::Deserialize;

use super::fields::{Raw, any_text, call, list, micros, moment, object, read, text};
use crate::event::Event;
use crate::trouble::Trouble;

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    subtype: Raw<'a>,
    session_id: Raw<'a>,
    model: Raw<'a>,
    #[serde(rename = "apiKeySource")]
    key_source: Raw<'a>,
    message: Raw<'a>,
    rate_limit_info: Raw<'a>,
    is_error: Raw<'a>,
    api_error_status: Raw<'a>,
    error_status: Raw<'a>,
    error: Raw<'a>,
    result: Raw<'a>,
    errors: Raw<'a>,
    num_turns: Raw<'a>,
    total_cost_usd: Raw<'a>,
    usage: Raw<'a>,
    permission_denials: Raw<'a>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Raw<'a>,
    model: Raw<'a>,
    content: Raw<'a>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    text: Raw<'a>,
    id: Raw<'a>,
    name: Raw<'a>,
    input: Raw<'a>,
    tool_use_id: Raw<'a>,
    is_error: Raw<'a>,
    content: Raw<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RateLimit<'a> {
    #[serde(borrow)]
    status: Raw<'a>,
    resets_at: Raw<'a>,
    rate_limit_type: Raw<'a>,
}

#[derive(Deserialize)]
struct Tokens<'a> {
    #[serde(borrow)]
    input_tokens: Raw<'a>,
    output_tokens: Raw<'a>,
    cache_read_input_tokens: Raw<'a>,
    cache_creation_input_tokens: Raw<'a>,
}

pub(super) fn parse<'a>(line: &'a [u8], take: &mut dyn FnMut(Event<'a>)) -> bool {
    let Ok(line) = serde_json::from_slice::<Line<'a>>(line) else { return false };
    let kind = text(line.kind).unwrap_or_default();
    let subtype = text(line.subtype).unwrap_or_default();
    match (&*kind, &*subtype) {
        ("system", "init") => {
            if let Some(id) = text(line.session_id) {
                take(Event::Session { id, model: text(line.model), key_source: text(line.key_source) });
            }
        }
        ("system", "api_retry") => {
            let trouble = Trouble::of_status(read(line.error_status));
            take(Event::Retrying { trouble, text: any_text(line.error) });
        }
        ("assistant", _) => message(line.message, take),
        ("user", _) => {
            for block in blocks(line.message).into_iter().flat_map(|(_, blocks)| blocks) {
                if let Some(id) = text(block.tool_use_id) {
                    let failed = read(block.is_error).unwrap_or(false);
                    take(Event::CallEnded { id, failed, output: any_text(block.content) });
                }
            }
        }
        ("rate_limit_event", _) => rate_limit(line.rate_limit_info, take),
        ("result", _) => result(&line, take),
        _ => take(Event::Opaque(kind)),
    }
    true
}

fn blocks(message: Raw<'_>) -> Option<(Message<'_>, Vec<Block<'_>>)> {
    let message: Message<'_> = object(message)?;
    let blocks = list(message.content).into_iter().filter_map(|block| object(Some(block))).collect();
    Some((message, blocks))
}

fn message<'a>(raw: Raw<'a>, take: &mut dyn FnMut(Event<'a>)) {
    let Some((message, blocks)) = blocks(raw) else { return };
    // The program reports its own errors in this way; the model has not answered.
    if text(message.model).is_some_and(|model| model == "<synthetic>") {
        return;
    }
    take(Event::Answer { id: text(message.id) });
    for block in blocks {
        match text(block.kind).as_deref() {
            Some("text") => take(Event::Text(text(block.text).unwrap_or_default())),
            Some("tool_use") => {
                if let (Some(id), Some(tool)) = (text(block.id), text(block.name)) {
                    take(Event::CallStarted { id, tool, detail: call(block.input) });
                }
            }
            _ => {}
        }
    }
}

fn rate_limit<'a>(raw: Raw<'a>, take: &mut dyn FnMut(Event<'a>)) {
    let Some(info) = object::<RateLimit<'_>>(raw) else { return };
    if text(info.status).as_deref() != Some("rejected") {
        return take(Event::NotLimited);
    }
    let kind = text(info.rate_limit_type).unwrap_or_default();
    let resets = moment(info.resets_at);
    take(Event::Limited(limit(&kind, resets)));
}

/// A kind such as `seven_day_opus` limits one model only.
fn limit(kind: &str, resets: Option<Wall>) -> Limit {
    let model = ["opus", "sonnet", "haiku", "fable"].into_iter().find(|model| kind.ends_with(model));
    Limit { kind: if kind.is_empty() { "limit".into() } else { kind.into() }, model: model.map(Into::into), resets }
}

fn result<'a>(line: &Line<'a>, take: &mut dyn FnMut(Event<'a>)) {
    if let Some(tokens) = object::<Tokens<'_>>(line.usage) {
        let number = |raw| read(raw).unwrap_or(0);
        let usage = Usage {
            input: number(tokens.input_tokens),
            output: number(tokens.output_tokens),
            cache_read: number(tokens.cache_read_input_tokens),
            cache_write: number(tokens.cache_creation_input_tokens),
        };
        take(Event::Used { usage, is_total: true });
    }
    if let Some(micros) = micros(line.total_cost_usd) {
        take(Event::Cost { micros, is_total: true });
    }
    let denied = list(line.permission_denials).into_iter().filter_map(|denial| {
        #[derive(Deserialize)]
        struct Denial<'a> {
            #[serde(borrow)]
            tool_name: Raw<'a>,
        }
        text(object::<Denial<'_>>(Some(denial))?.tool_name)
    });
    let denied: Vec<_> = denied.collect();
    if !denied.is_empty() {
        take(Event::Denied(denied));
    }
    // `subtype` is `success` even if the program has given up: only `is_error` decides.
    let is_error = read(line.is_error).unwrap_or(false);
    let said = text(line.result).or_else(|| list(line.errors).first().map(|error| any_text(Some(error))));
    let said = said.or_else(|| text(line.subtype)).unwrap_or_default();
    let trouble = if is_error { Trouble::of_error(read(line.api_error_status), &said) } else { None };
    take(Event::Result { is_error, trouble, text: said, turns: read(line.num_turns) });
}
