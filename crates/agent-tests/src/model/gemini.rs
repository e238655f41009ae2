//! The Gemini API, as used by gemini.

use serde_json::{Value, json};

use super::http::Response;
use super::{Conversation, Turn, items, word};

pub(super) fn read(body: &Value) -> Conversation {
    let (mut said, mut results) = (Vec::new(), 0);
    for content in items(body, "contents") {
        for part in items(content, "parts") {
            match part.get("functionResponse") {
                Some(_) => results += 1,
                None if word(content, "role") == "user" => said.push(word(part, "text").to_owned()),
                None => {}
            }
        }
    }
    let mut functions = items(body, "tools").flat_map(|tool| items(tool, "functionDeclarations"));
    Conversation { said, results, has_shell: functions.any(|function| word(function, "name") == "run_shell_command") }
}

pub(super) fn write(body: &Value, path: &str, turn: &Turn) -> Response {
    let wants_json = body["generationConfig"].get("responseJsonSchema").or(body["generationConfig"].get("responseSchema"));
    let part = match turn {
        Turn::Call(command) => {
            let arguments = json!({"command": command, "description": "a step of the script"});
            json!({"functionCall": {"name": "run_shell_command", "args": arguments}})
        }
        // Gemini also asks the model which model to use and who speaks next.
        Turn::Say(_) if wants_json.is_some() => {
            let choice = json!({"reasoning": "scripted", "model_choice": "flash", "next_speaker": "user", "complexity_reasoning": "x",
                "complexity_score": 1});
            json!({"text": choice.to_string()})
        }
        Turn::Say(text) => json!({"text": text}),
        Turn::Fail { .. } | Turn::Limited(_) | Turn::Cut | Turn::Hang => unreachable!("the caller answers these"),
    };
    let content = json!({"role": "model", "parts": [part]});
    let usage = json!({"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120});
    let candidate = json!({"content": content, "finishReason": "STOP", "index": 0});
    let answer = json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"});
    match path.contains("stream") {
        true => Response::Events(vec![(None, answer.to_string())]),
        false => Response::Json(answer),
    }
}
