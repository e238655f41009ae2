//! `--json` of every verb: the envelope, exactly these keys, of these types.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::reference::commands;
use crate::world::World;

mod backlog;
mod failures;
mod recorded;
mod runbooks;

use backlog::{backlog_story, insight_story};
use runbooks::{CREW, GUARDED, WAYS, guard_story, pipeline_story, queue_story, runbook_story, worker_story};

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

pub(crate) fn check(shape: &Value, value: &Value, what: &str) {
    assert_eq!(mismatch(shape, value, "data"), None, "{what}");
}

fn event() -> Value {
    json!({ "id": "number", "kind": "string", "timestamp": "time", "source": "any", "data": "any", "by": "any" })
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
        "name": "string", "capacity": "number", "available": "number", "ttl": "string?", "holders": "number", "expired": "number",
        "waiters": "number",
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

/// One story that uses every verb: the command as the envelope names it, its arguments, the shape of `data`.
fn story() -> Vec<(&'static str, Vec<&'static str>, Value)> {
    let released = json!({ "name": "string", "outcome": "string", "forced": "bool" });
    let cleaned = json!({
        "dryRun": "bool", "released": [{ "name": "string", "holder": "string", "epoch": "number", "reason": "string" }],
        "removedWaits": [{ "task": "string?", "holder": "string", "ticket": "number", "reason": "string" }],
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
        (
            "bus post",
            vec!["bus", "post", "INFO", "hello", "--author", "ada"],
            json!({ "seq": "number", "id": "string", "isNew": "bool" }),
        ),
        (
            "bus read",
            vec!["bus", "read"],
            json!({ "messages": [{
                "seq": "number", "id": "string", "timestamp": "time", "type": "string", "task": "string?", "run": "string?", "author": "string",
                "replyTo": "string?", "body": "string", "attachments": [], "attempts": "number", "waitedMs": "number",
            }] }),
        ),
        (
            "bus stats",
            vec!["bus", "stats"],
            json!({
                "messages": "number", "attempts": "number", "retries": "number", "waitedMs": "number", "longestWaitMs": "number", "bytes": "number",
                "lastSeq": "number?",
                "types": [{
                    "type": "string", "messages": "number", "attempts": "number", "waitedMs": "number", "longestWaitMs": "number", "bytes": "number",
                }],
            }),
        ),
        ("bus export", vec!["bus", "export", "bus.jsonl"], json!({ "file": "string", "messages": "number" })),
        ("events", vec!["events"], json!({ "events": [event()], "compactedThrough": "number?" })),
        (
            "events compact",
            vec!["events", "compact", "--keep-events", "2"],
            json!({
                "dryRun": "bool", "removed": "number", "removedMessages": "number", "compactedThrough": "number?", "kept": "number", "unheard": "number?", "keptSince": "time?",
                "size": { "before": "number", "after": "number", "free": "number?" },
            }),
        ),
        (
            "doctor",
            vec!["doctor"],
            json!({
                "healthy": "bool",
                "checks": [{
                    "check": "string", "verdict": "string", "findings": ["string"],
                    "entries": [{ "text": "string", "fix": "string?", "fixed": "string?" }],
                }],
            }),
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
            json!({
                "project": "string",
                "store": {
                    "place": "string", "id": "string?", "trusted": "bool", "tasks": "number", "workers": "number",
                    "routes": "number", "commands": [{ "task": "string", "title": "string", "command": "string" }],
                },
                "keys": [{ "key": "string", "value": "string", "trusted": "bool" }],
                "agents": [],
            }),
        ),
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
        (
            "agents list",
            vec!["agents", "list"],
            json!({ "agents": [{
                "account": "string", "agent": "string", "installed": "bool", "level": "string", "model": "string?",
                "limits": [], "output": "string", "program": "string",
            }] }),
        ),
        ("timeline", vec!["timeline"], json!({ "beganAt": "time", "svg": "string?", "timeline": "any" })),
        (
            "report",
            vec!["report"],
            json!({
                "from": "time", "to": "time", "completed": "any", "failed": "any", "cancelled": "any", "needsYou": "any",
                "blocked": "number", "pending": "number", "running": "number", "landing": "number", "review": "number", "runs": "number", "retries": "number",
                "mostAtOnce": "number", "workedMs": "number", "spendMicros": "number", "agents": [],
            }),
        ),
        ("man", vec!["man"], json!({ "page": "string" })),
        ("man", vec!["man", "pages"], json!({ "directory": "string", "pages": ["string"] })),
    ]
}

/// These leave stdout to the command that they run.
const PASS_THROUGH: [&str; 6] = ["top", "sessions attach", "locks run", "semaphores run", "workspaces open", "tasks open"];

/// These are only there for their verbs.
const NOUNS: [&str; 20] = [
    "agents",
    "bus",
    "mailbox",
    "workspaces",
    "recover",
    "landing",
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

/// They need two stores, a SQLite store, a live run, a decision, or a worktree: their shapes are checked in `relocation.rs`, `backup.rs`,
/// `tasks.rs`, `decisions.rs`, `landing.rs`, `worktrees.rs`, `agents.rs` and `config.rs`. Short forms print what the long ones do.
const ELSEWHERE: [&str; 32] = [
    "mailbox read",
    "sessions send",
    "agents check",
    "agents retry",
    "agents show",
    "do",
    "config unset",
    "logs",
    "ls",
    "ps",
    "sessions nudge",
    "store copy",
    "store backup",
    "tasks ask",
    "tasks heartbeat",
    "decisions show",
    "decisions resolve",
    "workspaces list",
    "workspaces show",
    "workspaces diff",
    "workspaces remove",
    "workspaces prune",
    "recover list",
    "recover show",
    "recover restore",
    "tasks diff",
    "land",
    "landing list",
    "landing show",
    "landing pause",
    "landing resume",
    "landing remove",
];

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
    let (mut story, mut recorded) = (Vec::new(), String::new());
    for (world, line @ (command, ..)) in all {
        story.push(line);
        let (_, args, shape) = story.last().unwrap();
        let said = world.run(&[&args[..], &["--json"]].concat());
        let envelope: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{args:?}: {said:?}"));
        assert_eq!((said.code, said.stdout.lines().count(), said.stderr.as_str()), (0, 1, ""), "{args:?}: {said:?}");
        check(&json!({ "success": "bool", "command": "string", "data": "any" }), &envelope, command);
        assert_eq!((&envelope["success"], &envelope["command"]), (&true.into(), &command.into()));
        check(shape, &envelope["data"], &args.join(" "));
        recorded::record(&mut recorded, args, &envelope["data"]);
    }
    // A store on PostgreSQL has other fields that are null.
    if !crate::postgres::wanted() {
        insta::assert_snapshot!(recorded);
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
