//! The Anthropic Messages API, as used by claude.

use serde_json::{Value, json};

use super::http::Response;
use super::{Conversation, Turn, fresh, items, text_of, word};

pub(super) fn read(body: &Value) -> Conversation {
    // A message that a person sends while the agent works has the role `system`.
    let spoken = || items(body, "messages").filter(|message| matches!(word(message, "role"), "user" | "system"));
    let is_result = |part: &&Value| word(part, "type") == "tool_result";
    let results = spoken().flat_map(|message| items(message, "content")).filter(is_result).count();
    let has_shell = items(body, "tools").any(|tool| word(tool, "name") == "Bash");
    Conversation { said: spoken().map(|message| text_of(&message["content"])).collect(), results, has_shell }
}

pub(super) fn write(body: &Value, turn: &Turn) -> Response {
    let (blocks, stop) = match turn {
        Turn::Call(command) => {
            let input = json!({"command": command, "description": "a step of the script"});
            (vec![json!({"type": "tool_use", "id": fresh("toolu"), "name": "Bash", "input": input})], "tool_use")
        }
        Turn::Say(text) => (vec![json!({"type": "text", "text": text})], "end_turn"),
        Turn::Fail { .. } | Turn::Limited(_) | Turn::Cut | Turn::Hang => unreachable!("the caller answers these"),
    };
    let usage = json!({"input_tokens": 100, "output_tokens": 20, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0});
    let message = |content: &[Value], stop: Option<&str>| {
        json!({"id": fresh("msg"), "type": "message", "role": "assistant", "model": word(body, "model"), "content": content,
            "stop_reason": stop, "stop_sequence": null, "usage": usage})
    };
    if body.get("stream") != Some(&json!(true)) {
        return Response::Json(message(&blocks, Some(stop)));
    }
    let mut events = vec![(Some("message_start"), json!({"type": "message_start", "message": message(&[], None)}))];
    for (index, block) in blocks.iter().enumerate() {
        let (empty, delta) = match word(block, "type") {
            "text" => (json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": block["text"]})),
            _ => {
                let mut empty = block.clone();
                empty["input"] = json!({});
                (empty, json!({"type": "input_json_delta", "partial_json": block["input"].to_string()}))
            }
        };
        let start = json!({"type": "content_block_start", "index": index, "content_block": empty});
        events.push((Some("content_block_start"), start));
        events.push((Some("content_block_delta"), json!({"type": "content_block_delta", "index": index, "delta": delta})));
        events.push((Some("content_block_stop"), json!({"type": "content_block_stop", "index": index})));
    }
    let delta = json!({"stop_reason": stop, "stop_sequence": null});
    events.push((Some("message_delta"), json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 20}})));
    events.push((Some("message_stop"), json!({"type": "message_stop"})));
    Response::Events(events.into_iter().map(|(name, data)| (name, data.to_string())).collect())
}
