//! OpenCode, `opencode run --format json`.

use banksman_core::Span;
use banksman_core::agent::Usage;
use serde::Deserialize;

use super::fields::{Raw, any_text, call, micros, object, read, text};
use crate::event::Event;
use crate::resets::Reset;
use crate::trouble::Trouble;

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(rename = "sessionID")]
    session: Raw<'a>,
    part: Raw<'a>,
    error: Raw<'a>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    text: Raw<'a>,
    tool: Raw<'a>,
    #[serde(rename = "callID")]
    call: Raw<'a>,
    state: Raw<'a>,
    reason: Raw<'a>,
    tokens: Raw<'a>,
    cost: Raw<'a>,
}

#[derive(Deserialize)]
struct CallState<'a> {
    #[serde(borrow)]
    status: Raw<'a>,
    input: Raw<'a>,
    output: Raw<'a>,
}

#[derive(Deserialize)]
struct Tokens<'a> {
    #[serde(borrow)]
    input: Raw<'a>,
    output: Raw<'a>,
    cache: Raw<'a>,
}

#[derive(Deserialize)]
struct Cache<'a> {
    #[serde(borrow)]
    read: Raw<'a>,
    write: Raw<'a>,
}

#[derive(Deserialize)]
struct Failure<'a> {
    #[serde(borrow)]
    data: Raw<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FailureData<'a> {
    #[serde(borrow)]
    message: Raw<'a>,
    status_code: Raw<'a>,
    response_headers: Raw<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Headers<'a> {
    #[serde(borrow)]
    retry_after: Raw<'a>,
}

pub(super) fn parse<'a>(line: &'a [u8], take: &mut dyn FnMut(Event<'a>)) -> bool {
    let Ok(line) = serde_json::from_slice::<Line<'a>>(line) else { return false };
    let kind = text(line.kind).unwrap_or_default();
    if let Some(id) = text(line.session) {
        take(Event::Session { id, model: None, key_source: None });
    }
    let part = object::<Part<'a>>(line.part);
    match (&*kind, part) {
        ("step_start", _) => {
            take(Event::Answer { id: None });
            take(Event::StepStarted);
        }
        ("text", Some(part)) => take(Event::Text(text(part.text).unwrap_or_default())),
        ("tool_use", Some(part)) => {
            if let (Some(id), Some(tool), Some(state)) = (text(part.call), text(part.tool), object::<CallState<'a>>(part.state)) {
                let failed = text(state.status).as_deref() == Some("error");
                take(Event::CallStarted { id: id.clone(), tool, detail: call(state.input) });
                take(Event::CallEnded { id, failed, output: any_text(state.output) });
            }
        }
        ("step_finish", Some(part)) => {
            if let Some(tokens) = object::<Tokens<'_>>(part.tokens) {
                let cache = object::<Cache<'_>>(tokens.cache);
                let number = |raw| read(raw).unwrap_or(0);
                let usage = Usage {
                    input: number(tokens.input),
                    output: number(tokens.output),
                    cache_read: cache.as_ref().map_or(0, |cache| number(cache.read)),
                    cache_write: cache.as_ref().map_or(0, |cache| number(cache.write)),
                };
                take(Event::Used { usage, is_total: false });
            }
            if let Some(micros) = micros(part.cost) {
                take(Event::Cost { micros, is_total: false });
            }
            take(Event::StepEnded { is_last: text(part.reason).as_deref() == Some("stop") });
        }
        ("error", _) => {
            let data = object::<Failure<'a>>(line.error).and_then(|failure| object::<FailureData<'a>>(failure.data));
            let status: Option<u16> = data.as_ref().and_then(|data| read(data.status_code));
            let headers = data.as_ref().and_then(|data| object::<Headers<'_>>(data.response_headers));
            let seconds = headers.and_then(|headers| text(headers.retry_after)?.parse().ok());
            let said = data.and_then(|data| text(data.message)).unwrap_or_else(|| any_text(line.error));
            let trouble = Trouble::of_error(status, &said);
            let reset = seconds.map(|seconds| Reset::After(Span::from_secs(seconds))).or_else(|| Reset::of_words(&said));
            if let (Some(Trouble::Quota), Some(reset)) = (trouble, reset) {
                take(Event::LimitEnds(reset));
            }
            take(Event::Result { is_error: true, trouble, text: said, turns: None });
        }
        _ => take(Event::Opaque(kind)),
    }
    true
}
