//! What a failure says: its code, its details and its exit status.

use super::*;

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
    let waited = json!({
        "name": "string", "holder": "string", "place": "number", "waiters": "number",
        "lockedBy": "string", "taskId": "string?", "expiresAt": "time?",
    });
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
        (&["tasks", "take", "over"], 2, "USAGE", json!({})),
        (&["tasks", "release", "over", "--holder", "ann"], 5, "NOT_CLAIMED", json!({ "taskId": "string" })),
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
        (&["runbooks", "remove", "nothing"], 4, "RUNBOOK_NOT_FOUND", json!({ "name": "string" })),
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
