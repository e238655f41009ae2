//! A model on loopback for the real agent programs: they run unchanged, and their model follows the script in its prompt.
//!
//! It implements the streaming APIs of Anthropic (claude), OpenAI Responses (codex), OpenAI Chat (opencode) and Gemini
//! (gemini). A request carries the entire conversation, so the progress of the script is counted from it. The model
//! stores only the steps that leave no trace in a conversation.

mod anthropic;
mod chat;
mod gemini;
mod http;
mod responses;
mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use http::{Request, Response};
use script::{Step, steps};

/// A model that runs until it is dropped; its threads end with the process.
pub struct Model {
    pub url: String,
    memory: Arc<Mutex<Memory>>,
}

/// State that the conversation does not contain.
#[derive(Default)]
struct Memory {
    /// The completed steps without a trace, by script.
    done: BTreeSet<(String, usize)>,
    /// When each limit was first reached.
    limits: BTreeMap<(String, usize), Instant>,
    /// The number of overload responses to each step.
    overloads: BTreeMap<(String, usize), u32>,
    /// The requests, for assertions of tests.
    asked: Vec<Asked>,
}

/// A request whose prompt contains a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub script: String,
    /// The step that answered it.
    pub answer: String,
    /// The full prompt.
    pub said: String,
}

/// The parts of a conversation that a script depends on.
struct Conversation {
    /// The texts sent to the model.
    said: Vec<String>,
    /// The number of tool results.
    results: usize,
    /// Whether the request offers a shell: requests without one are for titles and the like.
    has_shell: bool,
}

/// The next response of the model.
enum Turn {
    Say(String),
    Call(String),
    Fail {
        status: u16,
        kind: &'static str,
        message: &'static str,
    },
    /// The account is limited for this many seconds.
    Limited(u64),
    /// The connection is cut in the middle of the response.
    Cut,
    /// The request is never answered.
    Hang,
}

impl Model {
    pub fn start() -> Model {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let memory = Arc::new(Mutex::new(Memory::default()));
        let shared = memory.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let memory = shared.clone();
                std::thread::spawn(move || serve(stream, &memory));
            }
        });
        Model { url, memory }
    }

    /// The steps that answered the requests of a script.
    pub fn asked(&self, script: &str) -> Vec<String> {
        let memory = self.memory.lock().expect("no thread panics with it");
        memory.asked.iter().filter(|asked| asked.script == script).map(|asked| asked.answer.clone()).collect()
    }

    /// The prompts of the requests of a script.
    pub fn prompts(&self, script: &str) -> Vec<String> {
        let memory = self.memory.lock().expect("no thread panics with it");
        memory.asked.iter().filter(|asked| asked.script == script).map(|asked| asked.said.clone()).collect()
    }
}

fn serve(mut stream: TcpStream, memory: &Mutex<Memory>) {
    while let Some(request) = http::read(&mut stream) {
        match answer(&request, memory) {
            Some(response) => {
                let is_cut = matches!(response, Response::Cut);
                if http::write(&mut stream, &response).is_err() || is_cut {
                    return;
                }
            }
            // The client waits until it gives up.
            None => std::thread::sleep(Duration::from_secs(3_600)),
        }
    }
}

fn answer(request: &Request, memory: &Mutex<Memory>) -> Option<Response> {
    let path = request.path.split('?').next().unwrap_or_default();
    if request.method != "POST" {
        return Some(Response::Json(json!({"object": "list", "data": [{"id": "scripted", "object": "model"}], "models": []})));
    }
    if path.ends_with("/count_tokens") || path.ends_with(":countTokens") {
        return Some(Response::Json(json!({"input_tokens": 10, "totalTokens": 10})));
    }
    let body = &request.body;
    let (conversation, form): (Conversation, &dyn Fn(&Turn) -> Response) = match path {
        path if path.ends_with("/messages") => (anthropic::read(body), &|turn| anthropic::write(body, turn)),
        path if path.ends_with("/responses") => (responses::read(body), &|turn| responses::write(body, turn)),
        path if path.ends_with("/chat/completions") => (chat::read(body), &|turn| chat::write(body, turn)),
        path if path.contains("enerateContent") => (gemini::read(body), &|turn| gemini::write(body, path, turn)),
        _ => return Some(Response::Json(json!({}))),
    };
    if !conversation.has_shell {
        return Some(form(&Turn::Say("a title".into())));
    }
    let turn = next(&conversation, memory);
    match &turn {
        Turn::Hang => None,
        Turn::Cut => Some(Response::Cut),
        Turn::Limited(seconds) => Some(limited(path, *seconds)),
        Turn::Fail { status, kind, message } => {
            let body = json!({"type": "error", "error": {"type": kind, "message": message, "code": status, "status": kind}});
            Some(Response::Error { status: *status, headers: Vec::new(), body })
        }
        Turn::Say(_) | Turn::Call(_) => Some(form(&turn)),
    }
}

/// The next step of the script.
fn next(conversation: &Conversation, memory: &Mutex<Memory>) -> Turn {
    let (name, steps) = steps(&conversation.said);
    let said = conversation.said.join("\n");
    let mut memory = memory.lock().expect("no thread panics with it");
    let mut results = conversation.results;
    for (index, step) in steps.iter().enumerate() {
        let key = (name.clone(), index);
        if let Step::Run(_) = step
            && results > 0
        {
            results -= 1;
            continue;
        }
        if memory.done.contains(&key) {
            continue;
        }
        if let Some(turn) = memory.act(step, key) {
            let answer = format!("{step:?}");
            memory.asked.push(Asked { script: name, answer, said });
            return turn;
        }
    }
    memory.asked.push(Asked { script: name, answer: "End".into(), said });
    Turn::Say("Everything in the script is done.".into())
}

impl Memory {
    /// Executes a step; `None` if it is finished and the next one follows.
    fn act(&mut self, step: &Step, key: (String, usize)) -> Option<Turn> {
        let failed = |status, kind, message| Some(Turn::Fail { status, kind, message });
        match step {
            Step::Run(command) => Some(Turn::Call(command.clone())),
            Step::Say(text) => {
                self.done.insert(key);
                Some(Turn::Say(text.clone()))
            }
            Step::Huge(length) => {
                self.done.insert(key);
                Some(Turn::Say("x".repeat(*length)))
            }
            Step::Cut => {
                self.done.insert(key);
                Some(Turn::Cut)
            }
            Step::Hang => Some(Turn::Hang),
            Step::Unauthorized => failed(401, "authentication_error", "invalid x-api-key"),
            Step::Overload(times) => {
                let before = self.overloads.entry(key.clone()).or_default();
                *before += 1;
                if *before <= *times { failed(529, "overloaded_error", "Overloaded") } else { self.over(key) }
            }
            Step::Limit(seconds) => {
                let left = self.left(&key, *seconds);
                if left.is_zero() { self.over(key) } else { Some(Turn::Limited(left.as_secs() + 1)) }
            }
            Step::Quota { said, lasts } => {
                if self.left(&key, *lasts).is_zero() {
                    self.over(key)
                } else {
                    Some(Turn::Limited(*said))
                }
            }
        }
    }

    /// The remaining time of a limit that this step reached first.
    fn left(&mut self, key: &(String, usize), seconds: u64) -> Duration {
        let since = *self.limits.entry(key.clone()).or_insert_with(Instant::now);
        Duration::from_secs(seconds).saturating_sub(since.elapsed())
    }

    fn over(&mut self, key: (String, usize)) -> Option<Turn> {
        self.done.insert(key);
        None
    }
}

/// How each provider reports that a limit is reached and when it ends.
fn limited(path: &str, seconds: u64) -> Response {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    // Both parts are truncated to seconds: one more second, so that no request comes too early.
    let resets = now.as_secs() + seconds + 1;
    let unified = |name: &str, value: &str| (format!("anthropic-ratelimit-unified-{name}"), value.to_owned());
    let headers = vec![
        ("retry-after".to_owned(), seconds.to_string()),
        unified("status", "rejected"),
        unified("reset", &resets.to_string()),
        unified("5h-status", "rejected"),
        unified("5h-reset", &resets.to_string()),
        unified("representative-claim", "five_hour"),
    ];
    let body = match path {
        path if path.ends_with("/responses") => json!({"error": {
            "type": "usage_limit_reached", "message": "The usage limit has been reached", "plan_type": "pro",
            "resets_at": resets, "resets_in_seconds": seconds,
        }}),
        path if path.contains("enerateContent") => json!({"error": {
            "code": 429, "status": "RESOURCE_EXHAUSTED",
            "message": format!("You exceeded your current quota. Please retry in {seconds}.5s."),
            "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": format!("{seconds}s")}],
        }}),
        _ => {
            let message = "the rate limit of the account is exceeded";
            json!({"type": "error", "error": {"type": "rate_limit_error", "message": message, "code": 429}})
        }
    };
    Response::Error { status: 429, headers, body }
}

/// All text of a message, in any of the forms in use.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(text_of).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n"),
        Value::Object(part) => part.get("text").and_then(Value::as_str).unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

fn items<'a>(body: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    body.get(field).and_then(Value::as_array).into_iter().flatten()
}

fn word<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A process-wide unique id.
fn fresh(prefix: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{prefix}_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
