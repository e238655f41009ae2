//! What verbs about the backlog print: sections, tasks, sessions, decisions, and how all stands.

use super::runbooks::pipeline;
use super::*;

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
        "verdict": "string?", "setback": "string?", "error": "string?",
    });
    let more = json!({
        "command": "string?", "workspace": "string", "workspacePath": "string?", "branch": "string?", "maxDuration": "string?", "silenceTimeout": "string?", "retries": "number", "epoch": "number?", "output": "any",
        "needs": [{ "kind": "string", "name": "string", "weight": "number?" }],
        "dependsOn": [{ "id": "string", "title": "string?", "status": "string?", "allowFailed": "bool", "output": "any" }],
        "dependents": [other], "children": [other], "runs": [run], "spend": [], "lastLines": ["string"], "recentEvents": [event()],
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
fn delivery() -> Value {
    json!({
        "seq": "number", "id": "string", "task": "string", "author": "string", "mode": "string", "receipt": "string", "run": "string?",
        "redelivered": "bool", "lock": "string?",
    })
}

pub(super) fn backlog_story() -> Vec<(&'static str, Vec<&'static str>, Value)> {
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
        (
            "send",
            vec!["send", "first", "hello", "--author", "ada", "--id", "m-1"],
            json!({
                "seq": "number", "id": "string", "isNew": "bool", "task": "string", "plan": "string", "receipt": "string", "reply": "any",
            }),
        ),
        ("mailbox list", vec!["mailbox", "list"], json!({ "messages": [delivery()] })),
        ("mailbox show", vec!["mailbox", "show", "m-1"], delivery()),
        ("tasks done", vec!["tasks", "done", "second", "--anyway", "--output", "[1]"], concluded()),
        (
            "tasks take",
            vec!["tasks", "take", "third", "--holder", "ann"],
            json!({
                "id": "string", "title": "string", "status": "string", "holder": "string", "epoch": "number", "since": "time",
                "outcome": "string",
            }),
        ),
        (
            "tasks release",
            vec!["tasks", "release", "third", "--holder", "ann"],
            json!({ "id": "string", "title": "string", "status": "string" }),
        ),
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
            json!({ "runner": "string", "completed": "number", "tasks": "number", "byStatus": "any", "items": items(), "blocked": "any" }),
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
        ("pause", vec!["pause"], paused()),
        ("stop", vec!["stop", "second"], stopped()),
        ("stop", vec!["stop"], stopped()),
        ("resume", vec!["resume", "second"], stopped()),
        ("resume", vec!["resume"], paused()),
    ]
}

fn paused() -> Value {
    json!({ "paused": "any", "outcome": "string", "sessions": "number" })
}

fn stopped() -> Value {
    json!({
        "paused": "any", "tasks": [{ "id": "string", "title": "string", "outcome": "string" }],
        "sessions": [{ "run": "string", "task": "string", "title": "string", "status": "string", "outcome": "string" }],
    })
}

pub(super) fn why() -> Value {
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

pub(super) fn status() -> Value {
    json!({
        "tasks": "number", "byHand": "number", "queuedRuns": "number", "heldByFailed": "number", "next": "string",
        "decisions": "number", "paused": "any", "stopped": ["string"], "accountLimits": [], "spendToday": [], "budgetMicros": "number?",
        "roots": { "used": "number", "limit": "number?" },
        "byStatus": {
            "pending": "number", "blocked": "number", "in_progress": "number", "stuck": "number", "landing": "number", "review": "number",
            "completed": "number", "failed": "number", "cancelled": "number", "skipped": "number",
        },
        "slots": { "used": "number", "limit": "number?" },
        "runs": [{
            "id": "string", "task": "string", "title": "string", "attempt": "number", "startedAt": "time", "runner": "string",
            "runnerState": "string", "decision": "string?", "keeperSilence": "string?", "sessionEnded": "string?",
        }],
        "runners": [{
            "id": "string", "state": "string", "pid": "number", "host": "string", "runs": "number", "maxRuns": "number?",
            "sections": ["string"], "startedAt": "time", "shortage": "any",
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
        "runnerState": "string?", "here": "bool", "keeperPid": "number?", "keeperSilence": "string?", "childPid": "number?", "processes": "number?",
        "outputBytes": "number?", "startedAt": "time", "endedAt": "time?", "ending": "string?", "exitCode": "number?",
        "signal": "number?", "note": "string?",
    })
}

/// Questions about the backlog that [`backlog_story`] leaves, which has had one run.
pub(super) fn insight_story() -> Vec<(&'static str, Vec<&'static str>, Value)> {
    let log = json!({ "path": "string", "bytes": "number?", "dropped": "number?", "error": "string?", "lastOutputAt": "time?" });
    let run = json!({
        "id": "string", "attempt": "number", "runner": "string", "runnerState": "string?", "heir": "string?", "decision": "string?", "keeperSilence": "string?", "sessionEnded": "string?", "startedAt": "time",
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
