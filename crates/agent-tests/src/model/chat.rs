//! The OpenAI Chat API, as used by opencode.

use serde_json::{Value, json};

use super::http::Response;
use super::{Conversation, Turn, fresh, items, text_of, word};

pub(super) fn read(body: &Value) -> Conversation {
    let of = |role: &'static str| items(body, "messages").filter(move |message| word(message, "role") == role);
    let has_shell = items(body, "tools").any(|tool| word(&tool["function"], "name") == "bash");
    Conversation {
        said: of("user").map(|message| text_of(&message["content"])).collect(),
        results: of("tool").count(),
        has_shell,
    }
}

pub(super) fn write(body: &Value, turn: &Turn) -> Response {
    let (delta, finish) = match turn {
        Turn::Call(command) => {
            let arguments = json!({"command": command, "description": "a step of the script"}).to_string();
            let call = json!({"index": 0, "id": fresh("call"), "type": "function",
                "function": {"name": "bash", "arguments": arguments}});
            (json!({"role": "assistant", "tool_calls": [call]}), "tool_calls")
        }
        Turn::Say(text) => (json!({"role": "assistant", "content": text}), "stop"),
        Turn::Fail { .. } | Turn::Limited(_) | Turn::Cut | Turn::Hang => unreachable!("the caller answers these"),
    };
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120});
    let (id, model) = (fresh("chatcmpl"), word(body, "model"));
    if body.get("stream") != Some(&json!(true)) {
        let choice = json!({"index": 0, "message": delta, "finish_reason": finish});
        let answer =
            json!({"id": id, "object": "chat.completion", "created": 0, "model": model, "choices": [choice], "usage": usage});
        return Response::Json(answer);
    }
    let chunk = |delta: Value, finish: Option<&str>, usage: Option<&Value>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        json!({"id": id, "object": "chat.completion.chunk", "created": 0, "model": model, "choices": [choice], "usage": usage})
    };
    let events =
        [chunk(delta, None, None).to_string(), chunk(json!({}), Some(finish), Some(&usage)).to_string(), "[DONE]".into()];
    Response::Events(events.into_iter().map(|data| (None, data)).collect())
}
