//! A program that writes the output formats of the four agents, for cases that the real programs cannot be made to
//! produce.
//!
//! The first argument is the format. The script comes from standard input: `@result`, `@error TEXT`, `@flood MIB`,
//! `@garbage`, `@fork` (a child in a session of its own that outlives the program), `@sleep SECONDS`, `@exit CODE`.

use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

fn main() -> ExitCode {
    let family = std::env::args().nth(1).unwrap_or_default();
    let mut script = String::new();
    if std::io::stdin().read_to_string(&mut script).is_err() {
        return ExitCode::from(42);
    }
    begin(&family).iter().for_each(put);
    for line in script.lines().filter_map(|line| line.trim().strip_prefix('@')) {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "result" => end(&family, None).iter().for_each(put),
            "error" => end(&family, Some(rest)).iter().for_each(put),
            "flood" => flood(rest.parse().unwrap_or(1)),
            "garbage" => {
                raw(b"\xff\xfe not a line of any format\n{\"type\":\n[1,2,3]\n{\"type\":{\"a\":[]}}\n\x1b[31mred\x1b[0m\n")
            }
            "fork" => fork(),
            "sleep" => std::thread::sleep(Duration::from_secs(rest.parse().unwrap_or(1))),
            "exit" => return ExitCode::from(rest.parse().unwrap_or(1)),
            _ => {}
        }
    }
    ExitCode::SUCCESS
}

/// The first lines of each program.
fn begin(family: &str) -> Vec<Value> {
    match family {
        "claude" => vec![json!({"type": "system", "subtype": "init", "session_id": "s-1", "model": "m"}), says("claude")],
        "codex" => vec![json!({"type": "thread.started", "thread_id": "s-1"}), json!({"type": "turn.started"}), says("codex")],
        "gemini" => vec![json!({"type": "init", "session_id": "s-1", "model": "m"}), says("gemini")],
        _ => vec![says("opencode")],
    }
}

fn says(family: &str) -> Value {
    let text = "working";
    match family {
        "claude" => json!({"type": "assistant", "message": {"id": "m-1", "content": [{"type": "text", "text": text}]}}),
        "codex" => json!({"type": "item.completed", "item": {"id": "i-1", "type": "agent_message", "text": text}}),
        "gemini" => json!({"type": "message", "role": "assistant", "content": text}),
        _ => json!({"type": "step_start", "sessionID": "s-1", "part": {"type": "step-start"}}),
    }
}

/// The last lines of each program.
fn end(family: &str, error: Option<&str>) -> Vec<Value> {
    match (family, error) {
        ("claude", error) => vec![json!({"type": "result", "subtype": "success", "is_error": error.is_some(),
            "result": error.unwrap_or("done"), "num_turns": 1, "total_cost_usd": 0.5,
            "usage": {"input_tokens": 10, "output_tokens": 2}})],
        ("codex", None) => vec![json!({"type": "turn.completed", "usage": {"input_tokens": 10, "output_tokens": 2}})],
        ("codex", Some(error)) => vec![json!({"type": "turn.failed", "error": {"message": error}})],
        ("gemini", None) => vec![json!({"type": "result", "status": "success", "stats": {"input": 10, "output_tokens": 2}})],
        ("gemini", Some(error)) => vec![json!({"type": "result", "status": "error", "error": {"message": error}})],
        (_, None) => vec![json!({"type": "step_finish", "sessionID": "s-1", "part": {"reason": "stop",
            "tokens": {"input": 10, "output": 2}, "cost": 0.5}})],
        (_, Some(error)) => vec![json!({"type": "error", "sessionID": "s-1", "error": {"data": {"message": error}}})],
    }
}

fn put(line: &Value) {
    raw(format!("{line}\n").as_bytes());
}

fn raw(bytes: &[u8]) {
    // The reader may have gone.
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).ok();
}

/// More output than a reader accepts, partly in one line.
fn flood(mib: usize) {
    for _ in 0..mib {
        raw(format!("{}\n", "f".repeat((1 << 20) - 1)).as_bytes());
    }
}

/// A process that leaves the session, as the shells of agents do.
fn fork() {
    let child = Command::new("setsid").args(["sleep", "600"]).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    if child.is_err() {
        raw(b"cannot fork\n");
    }
}
