//! What verbs about runbooks print, and about what these define: queues, guards, workers and pipelines.

use super::backlog::{status, why};
use super::*;

fn queue() -> Value {
    json!({
        "name": "string", "paused": "bool", "visibilityTimeout": "string", "maxAttempts": "number", "deadLetter": "string?",
        "maxLength": "number", "length": "number", "ready": "number", "resting": "number", "processing": "number",
        "dead": "number", "waiters": "number",
    })
}

fn item() -> Value {
    let attempt = json!({
        "holder": "string", "epoch": "number", "startedAt": "time", "endedAt": "time", "error": "string", "timedOut": "bool",
    });
    json!({
        "id": "string", "queue": "string", "state": "string", "data": "any", "priority": "number", "attempts": "number",
        "dedupe": "string?", "createdAt": "time", "dueAt": "time?", "holder": "string?", "task": "string?", "epoch": "number?", "diedIn": "string?",
        "reason": "string?", "diedAt": "time?", "history": [attempt],
    })
}

/// A queue from its definition to its end, in a project of its own: items and epochs are numbered by the events.
pub(super) fn queue_story() -> Vec<(&'static str, Vec<&'static str>, Value)> {
    let defined = json!({
        "queue": "string", "visibilityTimeout": "string", "maxAttempts": "number", "deadLetter": "string?", "maxLength": "number",
    });
    let pushed = json!({ "queue": "string", "id": "string?", "outcome": "string", "pushed": "number", "duplicates": "number" });
    let taken = json!({
        "queue": "string", "holder": "string", "takenAt": "time", "visibleUntil": "time",
        "item": { "id": "string", "data": "any", "priority": "number", "attempts": "number", "epoch": "number" },
    });
    let page = with(queue(), json!({ "items": [item()], "workers": [], "recentEvents": [event()] }));
    let own = |verb, epoch, more: &[&'static str]| {
        [&["queues", verb, "triage", "q-2", "--holder", "a", "--epoch", epoch][..], more].concat()
    };
    let outcome = |more: Value| with(json!({ "queue": "string", "id": "string", "outcome": "string" }), more);
    let failed = || outcome(json!({ "retryAt": "time?", "movedTo": "string?" }));
    let requeued =
        || json!({ "queue": "string", "id": "string?", "movedTo": "string?", "requeued": "number", "stuck": "number" });
    let paused = || json!({ "queue": "string", "paused": "bool" });
    let take = || vec!["queues", "take", "triage", "--holder", "a"];
    vec![
        ("queues list", vec!["queues", "list"], json!({ "queues": [] })),
        ("queues define", vec!["queues", "define", "triage", "--max-attempts", "2"], defined),
        ("queues push", vec!["queues", "push", "triage", "{}", "--dedupe", "k"], pushed.clone()),
        ("queues push", vec!["queues", "push", "triage", "{}", "--dedupe", "k"], pushed),
        ("queues list", vec!["queues", "list"], json!({ "queues": [queue()] })),
        ("queues take", take(), taken.clone()),
        ("queues extend", own("extend", "3", &[]), outcome(json!({ "visibleUntil": "time" }))),
        ("queues show", vec!["queues", "show", "triage"], page),
        ("queues fail", own("fail", "3", &["--error", "no"]), failed()),
        ("queues take", take(), taken.clone()),
        ("queues fail", own("fail", "5", &["--error", "no"]), failed()),
        ("queues show", vec!["queues", "show", "triage", "q-2"], item()),
        ("queues list", vec!["queues", "list", "--dead"], json!({ "items": [item()] })),
        ("queues requeue", vec!["queues", "requeue", "triage", "q-2"], requeued()),
        ("queues requeue", vec!["queues", "requeue", "triage", "--all"], requeued()),
        ("queues take", take(), taken),
        ("queues complete", own("complete", "9", &[]), outcome(json!({}))),
        ("queues pause", vec!["queues", "pause", "triage"], paused()),
        ("queues resume", vec!["queues", "resume", "triage"], paused()),
        ("queues purge", vec!["queues", "purge", "triage", "--all"], json!({ "queue": "string", "purged": "number" })),
    ]
}

/// The verbs of runbooks, with the shape of what they print.
pub(super) fn runbook_story() -> Vec<(&'static str, Vec<&'static str>, Value)> {
    let checked = json!({
        "name": "string", "file": "string", "pipelines": "number", "phases": "number", "guards": "number", "workers": "number",
        "routes": "number",
    });
    let listed = json!({
        "name": "string", "file": "string", "valid": "bool", "inForce": "string?", "description": "string?",
        "pipelines": ["string"], "workers": ["string"], "routes": "number",
    });
    let phase = json!({
        "name": "string", "action": "string", "pre": ["string"], "post": ["string"], "locks": ["string"], "hold": "string",
        "semaphores": [{ "name": "string", "weight": "number" }], "timeout": "string?", "retries": "number", "next": "string?",
        "onFail": "any",
    });
    let pipeline = json!({
        "name": "string", "description": "string?", "vars": [{ "name": "string", "required": "bool", "default": "any" }],
        "phases": [phase],
    });
    let guard =
        json!({ "name": "string", "condition": "string", "onFailure": "string", "freshFor": "string", "timeout": "string" });
    let queue = json!({
        "name": "string", "visibilityTimeout": "string?", "maxAttempts": "number?", "deadLetter": "string?", "maxLength": "number?",
    });
    let worker = json!({
        "name": "string", "queue": "string", "job": "string", "concurrency": "number", "wakeOn": ["string"],
        "retryDelay": "string",
    });
    let shown = json!({
        "name": "string", "description": "string?", "pipelines": [pipeline], "guards": [guard],
        "locks": [{ "name": "string", "ttl": "string?", "maxHold": "string?" }],
        "semaphores": [{ "name": "string", "capacity": "number", "ttl": "string?" }],
        "queues": [queue], "workers": [worker], "routes": [{ "on": "string", "then": ["string"] }],
    });
    vec![
        ("runbooks new", vec!["runbooks", "new", "feature"], json!({ "runbook": "string", "path": "string" })),
        ("runbooks check", vec!["runbooks", "check"], json!({ "runbooks": [checked] })),
        ("runbooks list", vec!["runbooks", "list"], json!({ "runbooks": [listed], "withoutFile": [] })),
        ("runbooks show", vec!["runbooks", "show", "good"], shown),
        ("runbooks schema", vec!["runbooks", "schema"], json!({ "schema": "any" })),
    ]
}

/// A guard that holds, and one that does not.
pub(super) const GUARDED: &str =
    "[guard.calm]\ncondition = { lock_free = \"x\" }\n[guard.never]\ncondition = { file_exists = \"nowhere\" }\n";

pub(super) fn guard_story() -> Vec<(&'static str, Vec<&'static str>, Value)> {
    let listed = json!({
        "name": "string", "runbook": "string", "condition": "string", "onFailure": "string", "freshFor": "string",
        "timeout": "string",
    });
    let passed = json!({ "guard": "string", "runbook": "string", "passed": "bool" });
    vec![
        ("guards list", vec!["guards", "list"], json!({ "guards": [listed], "wrong": "string?" })),
        ("guards check", vec!["guards", "check", "calm"], passed),
    ]
}

/// A worker from its runbook to its end.
pub(super) const CREW: &str =
    "[queue.work]\n[worker.hand]\nqueue = \"work\"\nrun = \"true\"\nwake_on = \"git:push\"\n[on.\"git:push\"]\nnotify = \"x\"\n";

pub(super) fn worker_story() -> Vec<(&'static str, Vec<&'static str>, Value)> {
    let worker = || {
        json!({
            "name": "string", "runbook": "string", "queue": "string", "does": "string", "state": "string", "paused": "bool",
            "awake": "bool", "busy": "number", "concurrency": "number", "waiting": "number", "wakeOn": ["string"],
            "retryDelay": "string",
        })
    };
    let job = json!({ "task": "string", "queue": "string", "item": "string", "epoch": "number", "status": "string?" });
    let page = with(worker(), json!({ "jobs": [job], "recentEvents": [event()] }));
    let change = json!({ "kind": "string", "name": "string", "outcome": "string", "jobs": "number?" });
    let applied = || json!({ "name": "string", "changes": [change] });
    let paused = || json!({ "worker": "string", "paused": "bool" });
    vec![
        ("workers list", vec!["workers", "list"], json!({ "workers": [], "routes": [] })),
        ("runbooks apply", vec!["runbooks", "apply", "crew"], json!({ "runbooks": [applied()] })),
        (
            "workers list",
            vec!["workers", "list"],
            json!({ "workers": [worker()], "routes": [{ "on": "string", "then": ["string"], "runbook": "string" }] }),
        ),
        ("workers wake", vec!["workers", "wake", "hand"], json!({ "worker": "string", "outcome": "string" })),
        ("workers pause", vec!["workers", "pause", "hand"], paused()),
        ("workers resume", vec!["workers", "resume", "hand"], paused()),
        ("workers show", vec!["workers", "show", "hand"], page),
        ("runbooks remove", vec!["runbooks", "remove", "crew"], applied()),
    ]
}

/// Two pipelines whose phases end by hand.
pub(super) const WAYS: &str = "[pipeline.way]\nvars = [\"a\"]\n[[pipeline.way.phase]]\nname = \"only\"\nrun = \"true\"\n";

pub(super) fn pipeline() -> Value {
    json!({
        "id": "string", "title": "string", "runbook": "string", "pipeline": "string", "state": "string", "status": "string",
        "phase": "string?", "attempt": "number", "phaseStartedAt": "time", "task": "string?", "blockedBy": "any",
        "error": "string?", "recoverable": "bool?", "vars": "any", "createdAt": "time",
    })
}

pub(super) fn pipeline_story() -> Vec<(&'static str, Vec<&'static str>, Value)> {
    let start = |title, more: &[&'static str]| [&["pipelines", "start", "way", "--var", "a=1", "--title", title], more].concat();
    let task = json!({ "id": "string", "status": "string", "startedAt": "time" });
    let phase = json!({ "name": "string", "does": "string", "tasks": [task] });
    let said = json!({ "phase": "string?", "message": "string", "at": "time" });
    let page = with(pipeline(), json!({ "phases": [phase], "checkpoints": [said], "recentEvents": [event()] }));
    let stepped = || json!({ "pipeline": "string", "state": "string", "phase": "string?", "attempt": "number" });
    let concluded = json!({ "id": "string", "outcome": "string", "status": "string" });
    vec![
        ("pipelines list", vec!["pipelines", "list"], json!({ "pipelines": [] })),
        ("pipelines start", start("walk", &[]), pipeline()),
        ("pipelines start", start("next", &["--depends-on", "walk"]), pipeline()),
        ("pipelines list", vec!["pipelines", "list"], json!({ "pipelines": [pipeline()] })),
        ("pipelines unblock", vec!["pipelines", "unblock", "next"], stepped()),
        ("why", vec!["why", "next"], with(why(), json!({ "pipeline": pipeline() }))),
        ("status", vec!["status"], status()),
        (
            "pipelines set",
            vec!["pipelines", "set", "--pipeline", "next", "b:=[2]"],
            json!({ "pipeline": "string", "vars": "any" }),
        ),
        (
            "pipelines checkpoint",
            vec!["pipelines", "checkpoint", "--pipeline", "next", "half"],
            json!({ "pipeline": "string", "phase": "string?", "message": "string" }),
        ),
        ("pipelines show", vec!["pipelines", "show", "next"], page),
        ("tasks fail", vec!["tasks", "fail", "next: only", "--error", "no"], concluded),
        ("pipelines retry", vec!["pipelines", "retry", "next"], stepped()),
        (
            "pipelines cancel",
            vec!["pipelines", "cancel", "next"],
            json!({ "tasks": [{ "id": "string", "title": "string", "status": "string", "outcome": "string", "children": "number" }] }),
        ),
        (
            "pipelines delete",
            vec!["pipelines", "delete", "next"],
            json!({ "tasks": [{ "id": "string", "title": "string", "workspace": "string?" }] }),
        ),
    ]
}
