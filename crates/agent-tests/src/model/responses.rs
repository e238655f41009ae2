//! The OpenAI Responses API, as used by codex.

use serde_json::{Value, json};

use super::http::Response;
use super::{Conversation, Turn, fresh, items, text_of, word};

/// The name of a shell tool, and the arguments for a command.
type Shell = (&'static str, fn(&str) -> Value);

/// The names of the shell tool in different versions of codex.
const SHELLS: [Shell; 3] = [
    ("exec_command", |command| json!({"cmd": command})),
    ("shell_command", |command| json!({"command": command})),
    ("shell", |command| json!({"command": ["bash", "-lc", command]})),
];

fn shell(body: &Value) -> Option<Shell> {
    let has = |name: &str| items(body, "tools").any(|tool| word(tool, "name") == name || word(tool, "type") == name);
    SHELLS.into_iter().find(|(name, _)| has(name))
}

pub(super) fn read(body: &Value) -> Conversation {
    let is_user = |item: &&Value| word(item, "role") == "user";
    let said = items(body, "input").filter(is_user).map(|item| text_of(&item["content"])).collect();
    let results = items(body, "input").filter(|item| word(item, "type").ends_with("call_output")).count();
    Conversation { said, results, has_shell: shell(body).is_some() }
}

pub(super) fn write(body: &Value, turn: &Turn) -> Response {
    let item = match (turn, shell(body)) {
        (Turn::Call(command), Some((name, arguments))) => {
            let arguments = arguments(command).to_string();
            json!({"type": "function_call", "id": fresh("fc"), "call_id": fresh("call"), "name": name, "arguments": arguments})
        }
        (Turn::Say(text), _) => {
            let content = json!([{"type": "output_text", "text": text}]);
            json!({"type": "message", "role": "assistant", "id": fresh("msg"), "content": content})
        }
        (Turn::Call(_) | Turn::Fail { .. } | Turn::Limited(_) | Turn::Cut | Turn::Hang, _) => {
            unreachable!("the caller answers these")
        }
    };
    let id = fresh("resp");
    let usage = json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 120});
    let events = [
        ("response.created", json!({"type": "response.created", "response": {"id": id}})),
        ("response.output_item.added", json!({"type": "response.output_item.added", "output_index": 0, "item": item})),
        ("response.output_item.done", json!({"type": "response.output_item.done", "output_index": 0, "item": item})),
        (
            "response.completed",
            json!({"type": "response.completed",
                "response": {"id": id, "status": "completed", "output": [item], "usage": usage}}),
        ),
    ];
    Response::Events(events.into_iter().map(|(name, data)| (Some(name), data.to_string())).collect())
}
