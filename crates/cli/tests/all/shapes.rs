//! `--json` of every verb: the envelope, exactly these keys, of these types.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::reference::commands;
use crate::world::World;

/// What is wrong with a value, if it does not have this shape. A shape is a type such as `"string"` or `"number?"`
/// (which may be null), an object of shapes, or an array with the shape of its items; an empty array may hold any.
fn mismatch(shape: &Value, value: &Value, at: &str) -> Option<String> {
    match (shape, value) {
        (Value::Object(shapes), Value::Object(fields)) => {
            let names = |keys: serde_json::map::Keys| keys.cloned().collect::<BTreeSet<_>>();
            if names(shapes.keys()) != names(fields.keys()) {
                return Some(format!("{at} has {:?}, not {:?}", names(fields.keys()), names(shapes.keys())));
            }
            shapes.iter().find_map(|(name, shape)| mismatch(shape, &fields[name], &format!("{at}.{name}")))
        }
        (Value::Array(shapes), Value::Array(items)) => {
            let shape = shapes.first()?;
            items.iter().enumerate().find_map(|(index, item)| mismatch(shape, item, &format!("{at}[{index}]")))
        }
        (Value::String(kind), value) => {
            let fits = match (kind.trim_end_matches('?'), value) {
                ("any", _) => true,
                ("string", Value::String(_)) | ("number", Value::Number(_)) | ("bool", Value::Bool(_)) => true,
                ("time", Value::String(text)) => text.ends_with('Z') && text.contains('T'),
                (_, Value::Null) => kind.ends_with('?'),
                _ => false,
            };
            (!fits).then(|| format!("{at} is {value}, not {kind}"))
        }
        (shape, value) => Some(format!("{at} is {value}, not {shape}")),
    }
}

fn check(shape: &Value, value: &Value, what: &str) {
    assert_eq!(mismatch(shape, value, "data"), None, "{what}");
}

fn event() -> Value {
    json!({ "id": "number", "kind": "string", "timestamp": "time", "source": "any", "data": "any" })
}

fn waiter() -> Value {
    json!({ "place": "number", "holder": "string", "weight": "number", "since": "time", "pid": "number" })
}

fn grant() -> Value {
    json!({
        "holder": "string", "state": "string", "epoch": "number", "weight": "number", "ancestors": ["string"],
        "acquiredAt": "time", "heartbeatAt": "time", "expiresAt": "time?", "ttl": "string?", "maxHold": "string?",
        "pids": ["number"], "metadata": "any",
    })
}

fn with(mut shape: Value, more: Value) -> Value {
    shape.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    shape
}

fn lock() -> Value {
    with(grant(), json!({ "name": "string", "fence": "number", "waiters": "number" }))
}

fn lock_details() -> Value {
    json!({ "defaults": { "ttl": "string?", "maxHold": "string?" }, "line": [waiter()], "recentEvents": [event()] })
}

fn semaphore() -> Value {
    json!({
        "name": "string", "capacity": "number", "available": "number", "ttl": "string?", "holders": "number", "waiters": "number",
    })
}

fn acquired() -> Value {
    json!({
        "name": "string", "outcome": "string", "holder": "string", "epoch": "number", "acquiredAt": "time", "expiresAt": "time?",
    })
}

fn extended() -> Value {
    json!({ "name": "string", "outcome": "string", "holder": "string", "epoch": "number", "expiresAt": "time?" })
}

fn setting() -> Value {
    json!({
        "key": "string", "value": "string?", "default": "string?", "source": "string", "place": "string?", "description": "string",
    })
}

fn section() -> Value {
    json!({ "id": "string", "name": "string", "exclusive": "bool" })
}

fn section_page() -> Value {
    with(
        section(),
        json!({ "tasks": "number", "byStatus": "any", "holder": "string?", "since": "time?", "holderState": "string?" }),
    )
}

fn task() -> Value {
    json!({
        "id": "string", "title": "string", "status": "string", "stopping": "bool", "section": "string?", "sectionId": "string?",
        "priority": "number", "labels": ["string"], "parent": "string?", "attempts": "number", "unmet": "number",
        "loop": "bool", "restarts": "number", "recoveries": "number", "byHand": "any", "createdAt": "time", "changedAt": "time", "run": "string?", "error": "string?",
    })
}

fn task_page() -> Value {
    let other = json!({ "id": "string", "title": "string", "status": "string" });
    let run = json!({
        "id": "string", "attempt": "number", "epoch": "number", "live": "bool", "runner": "string", "startedAt": "time",
        "endedAt": "time?", "ending": "string?", "exitCode": "number?", "signal": "number?", "note": "string?", "log": "string",
        "setback": "string?", "error": "string?",
    });
    let more = json!({
        "command": "string?", "workspace": "string", "retries": "number", "epoch": "number?", "output": "any",
        "needs": [{ "kind": "string", "name": "string", "weight": "number?" }],
        "dependsOn": [{ "id": "string", "title": "string?", "status": "string?", "allowFailed": "bool", "output": "any" }],
        "dependents": [other], "children": [other], "runs": [run], "lastLines": ["string"], "recentEvents": [event()],
    });
    with(task(), more)
}

fn task_added() -> Value {
    json!({
        "id": "string", "title": "string", "status": "string", "section": "string?", "parent": "string?", "dependsOn": ["string"],
        "unmet": "number", "admission": "string", "queuePosition": "number?", "runnerAlive": "bool",
    })
}

/// A backlog from the first section to the last.
fn backlog_story() -> Vec<(&'static str, Vec<&'static str>, Value)> {
    let concluded = || json!({ "id": "string", "outcome": "string", "status": "string" });
    let outcome = || json!({ "id": "string", "title": "string", "status": "string", "outcome": "string" });
    let imported = json!({
        "import": "string?", "tasks": "number", "dependencies": "number", "sectionsCreated": ["string"], "skipped": "number",
    });
    vec![
        ("sections list", vec!["sections", "list"], json!({ "sections": [] })),
        ("tasks import", vec!["tasks", "import", "none.md"], imported),
        ("sections add", vec!["sections", "add", "alpha", "--exclusive"], section()),
        ("sections update", vec!["sections", "update", "alpha", "--exclusive", "false"], section()),
        ("tasks list", vec!["tasks", "list"], json!({ "tasks": [], "next": "number?" })),
        ("tasks add", vec!["tasks", "add", "first", "--section", "alpha", "--lock", "x", "--run", "echo hi"], task_added()),
        ("tasks add", vec!["tasks", "add", "second", "--depends-on", "first", "--label", "l"], task_added()),
        ("tasks add", vec!["tasks", "add", "third"], task_added()),
        ("tasks update", vec!["tasks", "update", "second", "--priority", "1"], task()),
        ("tasks list", vec!["tasks", "list"], json!({ "tasks": [task()], "next": "number?" })),
        ("tasks show", vec!["tasks", "show", "first"], task_page()),
        ("tasks done", vec!["tasks", "done", "second", "--output", "[1]"], concluded()),
        ("tasks fail", vec!["tasks", "fail", "third", "--error", "no"], concluded()),
        ("tasks retry", vec!["tasks", "retry", "third"], json!({ "tasks": [outcome()] })),
        (
            "tasks cancel",
            vec!["tasks", "cancel", "third"],
            json!({ "tasks": [with(outcome(), json!({ "children": "number" }))] }),
        ),
        (
            "tasks delete",
            vec!["tasks", "delete", "third"],
            json!({ "tasks": [{ "id": "string", "title": "string", "workspace": "string?" }] }),
        ),
        (
            "run",
            vec!["run", "--until-idle", "--quiet"],
            json!({ "runner": "string", "completed": "number", "tasks": "number", "byStatus": "any", "items": items() }),
        ),
        (
            "tasks wait",
            vec!["tasks", "wait", "first"],
            json!({ "completed": "bool", "tasks": [{ "id": "string", "title": "string?", "status": "string", "error": "string?" }] }),
        ),
        ("tasks show", vec!["tasks", "show", "second"], task_page()),
        ("tasks show", vec!["tasks", "show", "first"], task_page()),
        (
            "tasks logs",
            vec!["tasks", "logs", "first"],
            json!({
                "taskId": "string", "run": "string", "attempt": "number", "live": "bool", "path": "string", "text": "string",
            }),
        ),
        ("sections list", vec!["sections", "list"], json!({ "sections": [section_page()] })),
        ("sections show", vec!["sections", "show", "alpha"], with(section_page(), json!({ "recentEvents": [event()] }))),
        ("sections add", vec!["sections", "add", "beta"], section()),
        ("sections delete", vec!["sections", "delete", "beta"], json!({ "id": "string", "name": "string", "forced": "bool" })),
    ]
}

fn why() -> Value {
    let reason = json!({
        "kind": "string", "message": "string", "wakes": "string", "hint": "string?", "since": "time?", "resource": "string?",
        "waiters": "number", "cycle": ["string"], "because": ["any"], "place": "number?",
        "holders": [{
            "holder": "string", "since": "time", "expiresAt": "time?", "state": "string", "pids": ["number"], "run": "string?",
            "task": "string?", "title": "string?",
        }],
        "chain": [{ "id": "string", "title": "string?", "status": "string?", "since": "time?" }],
        "runners": [{ "runner": "string", "obstacles": ["string"] }],
    });
    json!({
        "task": "string", "title": "string", "status": "string", "answer": "string", "message": "string", "since": "time",
        "attempts": "number", "reasons": [reason], "runner": "string?", "run": "any", "then": "string?", "error": "string?",
        "output": "any", "decision": "string?", "holder": "string?", "pipeline": "any",
        "item": "any",
    })
}

fn pipeline() -> Value {
    json!({
        "id": "string", "title": "string", "runbook": "string", "pipeline": "string", "state": "string", "status": "string",
        "phase": "string?", "attempt": "number", "phaseStartedAt": "time", "task": "string?", "blockedBy": "any",
        "error": "string?", "recoverable": "bool?", "vars": "any", "createdAt": "time",
    })
}

fn status() -> Value {
    json!({
        "tasks": "number", "byHand": "number", "queuedRuns": "number", "heldByFailed": "number", "next": "string",
        "decisions": "number", "roots": { "used": "number", "limit": "number?" },
        "byStatus": {
            "pending": "number", "blocked": "number", "in_progress": "number", "stuck": "number", "review": "number",
            "completed": "number", "failed": "number", "cancelled": "number", "skipped": "number",
        },
        "slots": { "used": "number", "limit": "number?" },
        "runs": [{
            "id": "string", "task": "string", "title": "string", "attempt": "number", "startedAt": "time", "runner": "string",
            "runnerState": "string",
        }],
        "runners": [{
            "id": "string", "state": "string", "pid": "number", "host": "string", "runs": "number", "maxRuns": "number?",
            "sections": ["string"], "startedAt": "time",
        }],
        "failures": [{ "task": "string", "title": "string", "error": "string", "at": "time" }],
        "pipelines": { "byState": "any", "open": [pipeline()] },
        "items": items(),
    })
}

fn items() -> Value {
    let dead = json!({ "queue": "string", "count": "number", "first": "string" });
    json!({ "waiting": "number", "processing": "number", "dead": "number", "deadIn": [dead] })
}

fn session() -> Value {
    json!({
        "run": "string", "state": "string", "task": "string", "title": "string", "attempt": "number", "runner": "string",
        "runnerState": "string?", "here": "bool", "keeperPid": "number?", "childPid": "number?", "processes": "number?",
        "outputBytes": "number?", "startedAt": "time", "endedAt": "time?", "ending": "string?", "exitCode": "number?",
        "signal": "number?", "note": "string?",
    })
}

/// Questions about the backlog that [`backlog_story`] leaves, which has had one run.
fn insight_story() -> Vec<(&'static str, Vec<&'static str>, Value)> {
    let log = json!({ "path": "string", "bytes": "number?", "dropped": "number?", "error": "string?", "lastOutputAt": "time?" });
    let run = json!({
        "id": "string", "attempt": "number", "runner": "string", "runnerState": "string?", "heir": "string?", "startedAt": "time",
        "endedAt": "time?", "ending": "string?", "exitCode": "number?", "note": "string?", "keeperPid": "number?",
        "childPid": "number?",
    });
    let details = json!({
        "epoch": "number", "ownerEpoch": "number", "keeperOwnerEpoch": "number?", "record": "string", "log": log,
        "holds": [{ "name": "string", "epoch": "number" }], "processes": "any",
    });
    vec![
        ("tasks add", vec!["tasks", "add", "fourth", "--run", "true", "--semaphore", "tpu"], task_added()),
        ("tasks add", vec!["tasks", "add", "fifth", "--run", "true", "--lock", "other", "--depends-on", "fourth"], task_added()),
        ("locks acquire", vec!["locks", "acquire", "other", "--holder", "b"], acquired()),
        ("why", vec!["why", "fourth"], why()),
        ("why", vec!["why", "fifth"], why()),
        ("why", vec!["why", "first"], with(why(), json!({ "run": run }))),
        (
            "tasks fail",
            vec!["tasks", "fail", "fourth", "--error", "no"],
            json!({ "id": "string", "outcome": "string", "status": "string" }),
        ),
        ("status", vec!["status"], status()),
        ("decisions list", vec!["decisions", "list"], json!({ "decisions": [] })),
        ("decisions review", vec!["decisions", "review"], json!({ "resolved": [], "left": "number" })),
        ("sessions list", vec!["sessions", "list"], json!({ "sessions": [] })),
        ("sessions list", vec!["sessions", "list", "--all"], json!({ "sessions": [session()] })),
        ("sessions show", vec!["sessions", "show", "r-"], with(session(), details)),
        (
            "sessions logs",
            vec!["sessions", "logs", "r-"],
            json!({
                "taskId": "string", "run": "string", "attempt": "number", "live": "bool", "path": "string", "text": "string",
            }),
        ),
        (
            "sessions kill",
            vec!["sessions", "kill", "r-"],
            json!({ "run": "string", "task": "string", "outcome": "string", "ending": "string?", "note": "string?" }),
        ),
    ]
}

/// One story that uses every verb: the command as the envelope names it, its arguments, the shape of `data`.
fn story() -> Vec<(&'static str, Vec<&'static str>, Value)> {
    let released = json!({ "name": "string", "outcome": "string", "forced": "bool" });
    let cleaned = json!({
        "dryRun": "bool", "released": [{ "name": "string", "holder": "string", "epoch": "number", "reason": "string" }],
    });
    let mut free_lock = lock();
    for gone in ["holder", "epoch", "weight", "acquiredAt", "heartbeatAt"] {
        free_lock[gone] = format!("{}?", free_lock[gone].as_str().unwrap()).into();
    }
    let weighted = with(acquired(), json!({ "weight": "number" }));
    let script = json!({ "shell": "string", "script": "string" });
    vec![
        ("init", vec!["init"], json!({ "project": "string", "store": "string" })),
        ("locks list", vec!["locks", "list"], json!({ "locks": [] })),
        (
            "locks define",
            vec!["locks", "define", "db", "--ttl", "1h"],
            json!({ "name": "string", "ttl": "string?", "maxHold": "string?" }),
        ),
        ("locks list", vec!["locks", "list"], json!({ "locks": [free_lock] })),
        ("locks show", vec!["locks", "show", "db"], with(free_lock.clone(), lock_details())),
        ("locks acquire", vec!["locks", "acquire", "db", "--holder", "a"], acquired()),
        ("locks acquire", vec!["locks", "acquire", "bound", "--holder", "a", "--pid", "1", "--metadata", "[1]"], acquired()),
        ("locks list", vec!["locks", "list", "--held"], json!({ "locks": [lock()] })),
        ("locks show", vec!["locks", "show", "db"], with(lock(), lock_details())),
        ("locks heartbeat", vec!["locks", "heartbeat", "db", "--holder", "a", "--epoch", "2"], extended()),
        ("locks release", vec!["locks", "release", "db", "--holder", "a", "--epoch", "2"], released.clone()),
        ("locks release", vec!["locks", "release", "db", "--force"], released.clone()),
        ("locks acquire", vec!["locks", "acquire", "short", "--ttl", "1ms"], acquired()),
        ("locks cleanup", vec!["locks", "cleanup", "--dry-run"], cleaned.clone()),
        ("locks cleanup", vec!["locks", "cleanup"], cleaned.clone()),
        (
            "semaphores define",
            vec!["semaphores", "define", "gpu", "--capacity", "4"],
            json!({ "name": "string", "capacity": "number", "ttl": "string?" }),
        ),
        ("semaphores list", vec!["semaphores", "list"], json!({ "semaphores": [semaphore()] })),
        ("semaphores acquire", vec!["semaphores", "acquire", "gpu", "--weight", "2", "--holder", "a"], weighted),
        (
            "semaphores show",
            vec!["semaphores", "show", "gpu"],
            with(semaphore(), json!({ "holders": [grant()], "line": [waiter()] })),
        ),
        ("semaphores heartbeat", vec!["semaphores", "heartbeat", "gpu", "--holder", "a"], extended()),
        ("semaphores release", vec!["semaphores", "release", "gpu", "--holder", "a"], released),
        ("semaphores cleanup", vec!["semaphores", "cleanup"], cleaned),
        ("events emit", vec!["events", "emit", "deploy:done"], json!({ "id": "number", "kind": "string" })),
        ("events", vec!["events"], json!({ "events": [event()], "compactedThrough": "number?" })),
        (
            "events compact",
            vec!["events", "compact", "--keep-events", "2"],
            json!({
                "dryRun": "bool", "removed": "number", "compactedThrough": "number?", "kept": "number", "unheard": "number?", "keptSince": "time?",
                "size": { "before": "number", "after": "number", "free": "number?" },
            }),
        ),
        (
            "doctor",
            vec!["doctor"],
            json!({ "healthy": "bool", "checks": [{ "check": "string", "verdict": "string", "findings": ["string"] }] }),
        ),
        (
            "config list",
            vec!["config", "list"],
            json!({ "settings": [setting()], "userFile": "string?", "projectFile": "string?" }),
        ),
        ("config get", vec!["config", "get", "locking.wait_timeout"], setting()),
        (
            "config set",
            vec!["config", "set", "locking.wait_timeout", "5m"],
            json!({ "key": "string", "value": "string", "file": "string" }),
        ),
        (
            "trust",
            vec!["trust", "--show"],
            json!({ "project": "string", "keys": [{ "key": "string", "value": "string", "trusted": "bool" }] }),
        ),
        (
            "config set",
            vec!["config", "set", "--user", "notify.command", "true"],
            json!({ "key": "string", "value": "string", "file": "string" }),
        ),
        (
            "notify test",
            vec!["notify", "test"],
            json!({
                "kind": "string", "delivery": "string", "delivered": "bool",
                "channels": [{ "channel": "string", "outcome": "string", "error": "string?", "hint": "string?" }],
            }),
        ),
        ("completions", vec!["completions", "bash"], script),
        ("man", vec!["man"], json!({ "page": "string" })),
        ("man", vec!["man", "pages"], json!({ "directory": "string", "pages": ["string"] })),
        (
            "demo",
            vec!["demo"],
            json!({
                "holds": "bool",
                "checks": [{ "check": "string", "holds": "bool", "text": "string", "problems": ["string"] }],
                "timeline": {
                    "lengthMs": "number",
                    "killedAtMs": "number",
                    "runners": [{ "name": "string", "fromMs": "number", "toMs": "number" }],
                    "sections": [{ "name": "string", "exclusive": "bool", "tasks": [{
                        "id": "string", "title": "string", "child": "bool", "completed": "bool",
                        "segments": [{ "state": "string", "fromMs": "number", "toMs": "number" }],
                        "crashedAtMs": ["number"], "adoptedAtMs": ["number"], "restartedAtMs": ["number"],
                    }] }],
                    "slots": [{ "fromMs": "number", "used": "number" }],
                    "capacity": "number",
                },
            }),
        ),
    ]
}

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
fn queue_story() -> Vec<(&'static str, Vec<&'static str>, Value)> {
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
fn runbook_story() -> Vec<(&'static str, Vec<&'static str>, Value)> {
    let checked = json!({
        "name": "string", "file": "string", "pipelines": "number", "phases": "number", "guards": "number", "workers": "number",
        "routes": "number",
    });
    let listed = json!({
        "name": "string", "file": "string", "valid": "bool", "inForce": "string?", "description": "string?",
        "pipelines": ["string"], "workers": ["string"], "routes": "number",
    });
    let phase = json!({
        "name": "string", "action": "string", "pre": ["string"], "post": ["string"], "locks": ["string"],
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
const GUARDED: &str = "[guard.calm]\ncondition = { lock_free = \"x\" }\n[guard.never]\ncondition = { any = [] }\n";

fn guard_story() -> Vec<(&'static str, Vec<&'static str>, Value)> {
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
const CREW: &str =
    "[queue.work]\n[worker.hand]\nqueue = \"work\"\nrun = \"true\"\nwake_on = \"git:push\"\n[on.\"git:push\"]\nnotify = \"x\"\n";

fn worker_story() -> Vec<(&'static str, Vec<&'static str>, Value)> {
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
        ("runbooks drop", vec!["runbooks", "drop", "crew"], applied()),
    ]
}

/// Two pipelines whose phases end by hand.
const WAYS: &str = "[pipeline.way]\nvars = [\"a\"]\n[[pipeline.way.phase]]\nname = \"only\"\nrun = \"true\"\n";

fn pipeline_story() -> Vec<(&'static str, Vec<&'static str>, Value)> {
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
    ]
}

/// These leave stdout to the command that they run.
const PASS_THROUGH: [&str; 2] = ["locks run", "semaphores run"];

/// These are only there for their verbs.
const NOUNS: [&str; 14] = [
    "locks",
    "semaphores",
    "queues",
    "guards",
    "runbooks",
    "sections",
    "tasks",
    "sessions",
    "decisions",
    "config",
    "notify",
    "store",
    "workers",
    "pipelines",
];

/// They need two stores, a live run, or a decision: their shapes are checked in `copy.rs`, `tasks.rs` and `decisions.rs`.
const ELSEWHERE: [&str; 4] = ["store copy", "tasks heartbeat", "decisions show", "decisions resolve"];

#[test]
fn every_verb_prints_exactly_what_it_promises() {
    let (world, queues) = (World::empty(), World::new());
    std::fs::write(world.path().join("none.md"), "- [x] This is done already.\n").unwrap();
    crate::runbooks::write(&queues, "good", crate::runbooks::GOOD);
    crate::runbooks::write(&queues, "guarded", GUARDED);
    let crew = World::new();
    crate::runbooks::write(&crew, "crew", CREW);
    let ways = World::new();
    crate::runbooks::write(&ways, "ways", WAYS);
    let main = [story(), backlog_story(), insight_story()].concat();
    let beside = [queue_story(), runbook_story(), guard_story()].concat();
    let all = main.iter().map(|line| (&world, line.clone())).chain(beside.into_iter().map(|line| (&queues, line)));
    let all = all.chain(worker_story().into_iter().map(|line| (&crew, line)));
    let all = all.chain(pipeline_story().into_iter().map(|line| (&ways, line)));
    let mut story = Vec::new();
    for (world, line @ (command, ..)) in all {
        story.push(line);
        let (_, args, shape) = story.last().unwrap();
        let said = world.run(&[&args[..], &["--json"]].concat());
        let envelope: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{args:?}: {said:?}"));
        assert_eq!((said.code, said.stdout.lines().count(), said.stderr.as_str()), (0, 1, ""), "{args:?}: {said:?}");
        check(&json!({ "success": "bool", "command": "string", "data": "any" }), &envelope, command);
        assert_eq!((&envelope["success"], &envelope["command"]), (&true.into(), &command.into()));
        check(shape, &envelope["data"], &args.join(" "));
    }
    let told: BTreeSet<&str> =
        story.iter().map(|(command, ..)| *command).chain(PASS_THROUGH).chain(NOUNS).chain(ELSEWHERE).collect();
    let all = commands();
    assert_eq!(told, all.iter().map(String::as_str).collect(), "a verb without a shape, or a shape without a verb");
    world.check();
    queues.check();
    crew.check();
    ways.check();
}

#[test]
fn a_command_that_is_run_has_stdout_for_itself() {
    let world = World::new();
    world.ok(&["semaphores", "define", "gpu", "--capacity", "1"]);
    for noun in ["locks", "semaphores"] {
        assert_eq!(world.ok(&[noun, "run", "gpu", "--json", "--", "echo", "mine"]), "mine\n");
    }
}

#[test]
fn every_failure_says_what_in_the_same_form() {
    let world = World::on_sqlite();
    world.ok(&["locks", "acquire", "db", "--holder", "a"]);
    world.ok(&["locks", "acquire", "other", "--holder", "b"]);
    world.ok(&["semaphores", "define", "gpu", "--capacity", "1"]);
    world.ok(&["semaphores", "acquire", "gpu", "--holder", "a"]);
    world.ok(&["sections", "add", "s"]);
    world.ok(&["tasks", "add", "a", "--section", "s"]);
    world.ok(&["tasks", "add", "b", "--depends-on", "a"]);
    world.ok(&["tasks", "add", "over"]);
    world.ok(&["tasks", "cancel", "over"]);
    for queue in ["empty", "halted", "tiny"] {
        world.ok(&["queues", "define", queue, "--max-length", "1"]);
    }
    world.ok(&["queues", "pause", "halted"]);
    world.ok(&["queues", "push", "tiny", "1"]);
    let name = || json!({ "name": "string" });
    let busy = json!({ "name": "string", "holder": "string", "since": "time?", "expiresAt": "time?", "waiters": "number" });
    let waited = json!({ "name": "string", "holder": "string", "place": "number", "waiters": "number" });
    std::fs::write(world.path().join("wrong.csv"), "titel\n").unwrap();
    let mistake = json!({ "line": "number", "column": "number?", "field": "string?", "what": "string", "hint": "string?" });
    let invalid = json!({ "file": "string", "problems": [mistake], "more": "bool" });
    crate::runbooks::write(&world, "bad", crate::runbooks::BAD);
    crate::runbooks::write(&world, "guarded", GUARDED);
    let failed = json!({ "guard": "string", "runbook": "string", "part": "string", "action": "string" });
    crate::runbooks::write(&world, "lost", "[worker.w]\nqueue = \"nowhere\"\nrun = \"true\"\n");
    let refused = json!({ "runbook": "string", "problems": ["string"], "applied": ["string"] });
    crate::runbooks::write(&world, "ways", WAYS);
    world.ok(&["runbooks", "new", "triage"]);
    for title in ["idle", "dropped"] {
        world.ok(&["pipelines", "start", "way", "--runbook", "ways", "--var", "a=1", "--title", title]);
    }
    world.ok(&["pipelines", "cancel", "dropped"]);
    let stepped = || json!({ "pipeline": "string", "state": "string", "phase": "string?" });
    let place = json!({
        "file": "string", "line": "number?", "column": "number?", "code": "string?", "message": "string", "hint": "string?",
    });
    let wrong = json!({ "problems": [place] });
    let problems = json!({ "problems": [{ "place": "string?", "line": "number?", "key": "string?", "what": "string" }] });
    let cases: &[(&[&str], i32, &str, Value)] = &[
        (&["init"], 2, "PROJECT_EXISTS", json!({})),
        (&["-C", "/no/such/place", "doctor"], 4, "NO_SUCH_DIRECTORY", json!({})),
        (&["-C", "/", "doctor"], 4, "PROJECT_NOT_FOUND", json!({})),
        (&["--store", "sqlite:/no/such/store.db", "events"], 4, "STORE_MISSING", json!({})),
        (&["locks", "frob"], 2, "USAGE", json!({})),
        (&["locks", "acquire"], 2, "USAGE", json!({})),
        (&["locks", "acquire", "task:1"], 2, "RESERVED_NAME", json!({})),
        (&["locks", "acquire", "db", "--holder", "b", "--no-wait"], 6, "LOCKED", busy.clone()),
        (&["locks", "acquire", "db", "--holder", "b", "--timeout", "1ms"], 6, "WAIT_TIMEOUT", waited.clone()),
        (&["locks", "run", "db", "--no-wait", "--", "true"], 6, "LOCKED", busy.clone()),
        (&["locks", "acquire", "x", "--pid", "999999999"], 4, "NO_SUCH_PROCESS", json!({})),
        (
            &["locks", "release", "db", "--holder", "b", "--epoch", "1"],
            5,
            "NOT_OWNER",
            json!({ "name": "string", "holder": "string" }),
        ),
        (
            &["locks", "heartbeat", "db", "--holder", "a", "--epoch", "99"],
            8,
            "FENCED",
            json!({ "name": "string", "fence": "number" }),
        ),
        (&["locks", "show", "nothing"], 4, "LOCK_NOT_FOUND", name()),
        (&["semaphores", "acquire", "nothing"], 4, "SEMAPHORE_NOT_FOUND", name()),
        (
            &["semaphores", "acquire", "gpu", "--holder", "b", "--no-wait"],
            6,
            "FULL",
            with(busy, json!({ "available": "number" })),
        ),
        (&["semaphores", "acquire", "gpu", "--holder", "b", "--timeout", "1ms"], 6, "WAIT_TIMEOUT", waited),
        (
            &["semaphores", "acquire", "gpu", "--weight", "9"],
            2,
            "OVER_CAPACITY",
            json!({ "name": "string", "capacity": "number" }),
        ),
        (&["semaphores", "release", "gpu", "--holder", "b"], 5, "NOT_HOLDER", json!({})),
        (&["events", "emit", "nonsense"], 2, "USAGE", json!({})),
        (&["why", "nothing"], 4, "TASK_NOT_FOUND", json!({ "task": "string" })),
        (&["sessions", "kill", "r-nothing"], 4, "RUN_NOT_FOUND", json!({ "run": "string" })),
        (&["config", "get", "nonsense"], 3, "CONFIG", problems),
        (&["config", "get", "store"], 4, "NOT_SET", json!({ "key": "string" })),
        (&["completions", "tcsh"], 2, "USAGE", json!({})),
        (&["sections", "show", "nothing"], 4, "SECTION_NOT_FOUND", json!({ "section": "string" })),
        (&["sections", "add", "s"], 2, "SECTION_EXISTS", json!({ "section": "string", "id": "string" })),
        (&["sections", "delete", "s"], 2, "SECTION_NOT_EMPTY", json!({ "section": "string", "tasks": "number" })),
        (&["tasks", "import", "nothing.csv"], 4, "NO_SUCH_FILE", json!({})),
        (&["tasks", "import", "wrong.csv"], 2, "IMPORT_INVALID", invalid),
        (&["tasks", "show", "nothing"], 4, "TASK_NOT_FOUND", json!({ "task": "string" })),
        (&["tasks", "show", "t-"], 2, "AMBIGUOUS_NAME", json!({ "name": "string", "ids": ["string"] })),
        (&["tasks", "update", "a", "--depends-on", "b"], 2, "DEPENDENCY_CYCLE", json!({ "cycle": ["string"] })),
        (&["tasks", "delete", "a"], 2, "TASK_HAS_DEPENDENTS", json!({ "taskId": "string", "dependents": ["string"] })),
        (&["tasks", "done", "a", "--epoch", "1"], 8, "FENCED", json!({ "taskId": "string" })),
        (&["tasks", "done", "over"], 2, "TASK_OVER", json!({ "taskId": "string", "status": "string" })),
        (&["tasks", "wait", "a", "--timeout", "1ms"], 6, "WAIT_TIMEOUT", json!({ "tasks": ["any"] })),
        (&["queues", "take", "nothing"], 4, "QUEUE_NOT_FOUND", json!({ "queue": "string" })),
        (&["queues", "take", "empty"], 4, "QUEUE_EMPTY", json!({ "queue": "string", "nextAt": "time?" })),
        (&["queues", "show", "empty", "q-1"], 4, "ITEM_NOT_FOUND", json!({ "queue": "string", "item": "string" })),
        (
            &["queues", "complete", "empty", "q-1", "--holder", "a", "--epoch", "1"],
            4,
            "ITEM_NOT_FOUND",
            json!({ "queue": "string", "item": "string" }),
        ),
        (&["queues", "push", "empty", "nonsense"], 2, "USAGE", json!({})),
        (
            &["queues", "take", "empty", "--wait", "--timeout", "1ms"],
            6,
            "WAIT_TIMEOUT",
            json!({ "queue": "string", "place": "number", "paused": "bool" }),
        ),
        (&["queues", "take", "halted"], 6, "QUEUE_PAUSED", json!({ "queue": "string" })),
        (&["queues", "push", "tiny", "2"], 6, "QUEUE_FULL", json!({ "queue": "string", "pushed": "number" })),
        (&["queues", "define", "q", "--dead-letter", "nothing"], 4, "QUEUE_NOT_FOUND", json!({ "queue": "string" })),
        (&["queues", "define", "q", "--dead-letter", "q"], 2, "USAGE", json!({})),
        (&["runbooks", "new", "triage"], 2, "RUNBOOK_EXISTS", json!({ "runbook": "string", "path": "string" })),
        (&["runbooks", "check"], 3, "RUNBOOK_INVALID", wrong.clone()),
        (&["runbooks", "check", "bad", "nothing"], 3, "RUNBOOK_INVALID", wrong.clone()),
        (&["runbooks", "show", "bad"], 3, "RUNBOOK_INVALID", wrong),
        (&["pipelines", "show", "nothing"], 4, "PIPELINE_NOT_FOUND", json!({ "pipeline": "string" })),
        (&["pipelines", "start", "way", "--runbook", "ways"], 2, "VARIABLES", json!({ "pipeline": "string" })),
        (&["pipelines", "start", "way", "--runbook", "ways", "--var", "b=1"], 2, "VARIABLES", json!({ "pipeline": "string" })),
        (&["pipelines", "unblock", "idle"], 2, "PIPELINE_NOT_BLOCKED", stepped()),
        (&["pipelines", "retry", "idle"], 2, "PIPELINE_NOT_FAILED", stepped()),
        (&["pipelines", "set", "--pipeline", "dropped", "a=2"], 2, "PIPELINE_OVER", stepped()),
        (&["pipelines", "checkpoint", "--pipeline", "dropped", "x"], 2, "PIPELINE_OVER", stepped()),
        (&["tasks", "retry", "idle"], 2, "TASK_IS_PIPELINE", json!({ "taskId": "string", "pipeline": "string" })),
        (&["runbooks", "show", "nothing"], 4, "RUNBOOK_NOT_FOUND", json!({ "name": "string" })),
        (&["runbooks", "show", "nothing.toml"], 4, "NO_SUCH_FILE", json!({})),
        (&["guards", "check", "never"], 6, "GUARD_FAILED", failed),
        (&["guards", "check", "nothing", "--runbook", "guarded"], 4, "GUARD_NOT_FOUND", json!({ "guard": "string" })),
        (&["guards", "check", "never", "--var", "x=1"], 4, "VAR_NOT_FOUND", json!({ "guard": "string", "var": "string" })),
        (&["runbooks", "apply", "lost"], 3, "RUNBOOK_REFUSED", refused),
        (&["runbooks", "drop", "nothing"], 4, "RUNBOOK_NOT_FOUND", json!({ "name": "string" })),
        (&["workers", "show", "nothing"], 4, "WORKER_NOT_FOUND", json!({ "worker": "string" })),
        (&["workers", "wake", "nothing"], 4, "WORKER_NOT_FOUND", json!({ "worker": "string" })),
        (&["tasks", "logs", "a"], 4, "RUN_NOT_FOUND", json!({ "taskId": "string", "run": "string?" })),
    ];
    for (args, exit, code, details) in cases {
        let (status, error) = world.error(args);
        assert_eq!((status, &error["code"]), (*exit, &(*code).into()), "{args:?}: {error}");
        let mut shape = json!({ "code": "string", "message": "string", "details": details });
        if error.get("hint").is_some() {
            shape["hint"] = "string".into();
        }
        check(&shape, &error, &args.join(" "));
    }
}

#[test]
fn hints_can_be_pasted_into_a_shell() {
    let world = World::new();
    let said = world.ok(&["locks", "acquire", "my lock", "--holder", "it's me"]);
    let hint = said.lines().find_map(|line| line.strip_prefix("release it with: banksman ")).unwrap();
    assert_eq!(hint, r"locks release 'my lock' --holder 'it'\''s me' --epoch 1");
    let script = format!("{} {hint}", crate::world::BANKSMAN);
    let done = world.clean(std::process::Command::new("sh"), &["-c", &script]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let (_, error) = world.error(&["semaphores", "acquire", "a b"]);
    assert_eq!(error["hint"], "define it with: banksman semaphores define 'a b' --capacity N");
}
