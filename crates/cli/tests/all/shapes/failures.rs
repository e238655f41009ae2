//! Failures: code, details and exit status.

use super::*;

#[test]
fn every_failure_has_the_same_form() {
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
    std::fs::write(world.path().join("wrong.csv"), "titel\n").unwrap();
    crate::runbooks::write(&world, "bad", crate::runbooks::BAD);
    crate::runbooks::write(&world, "guarded", stories::GUARDED);
    crate::runbooks::write(&world, "lost", "[worker.w]\nqueue = \"nowhere\"\nrun = \"true\"\n");
    crate::runbooks::write(&world, "ways", stories::WAYS);
    world.ok(&["runbooks", "new", "triage"]);
    for title in ["idle", "dropped"] {
        world.ok(&["pipelines", "start", "way", "--runbook", "ways", "--var", "a=1", "--title", title]);
    }
    world.ok(&["pipelines", "cancel", "dropped"]);
    let cases: &[(&[&str], i32, &str)] = &[
        (&["init"], 2, "PROJECT_EXISTS"),
        (&["-C", "/no/such/place", "doctor"], 4, "NO_SUCH_DIRECTORY"),
        (&["-C", "/", "doctor"], 4, "PROJECT_NOT_FOUND"),
        (&["--store", "sqlite:/no/such/store.db", "events"], 4, "STORE_MISSING"),
        (&["locks", "frob"], 2, "USAGE"),
        (&["locks", "acquire"], 2, "USAGE"),
        (&["locks", "acquire", "task:1"], 2, "RESERVED_NAME"),
        (&["locks", "acquire", "db", "--holder", "b", "--no-wait"], 6, "LOCKED"),
        (&["locks", "acquire", "db", "--holder", "b", "--timeout", "1ms"], 6, "WAIT_TIMEOUT"),
        (&["locks", "run", "db", "--no-wait", "--", "true"], 6, "LOCKED"),
        (&["locks", "acquire", "x", "--pid", "999999999"], 4, "NO_SUCH_PROCESS"),
        (&["locks", "release", "db", "--holder", "b", "--epoch", "1"], 5, "NOT_OWNER"),
        (&["locks", "heartbeat", "db", "--holder", "a", "--epoch", "99"], 8, "FENCED"),
        (&["locks", "show", "nothing"], 4, "LOCK_NOT_FOUND"),
        (&["semaphores", "acquire", "nothing"], 4, "SEMAPHORE_NOT_FOUND"),
        (&["semaphores", "acquire", "gpu", "--holder", "b", "--no-wait"], 6, "FULL"),
        (&["semaphores", "acquire", "gpu", "--holder", "b", "--timeout", "1ms"], 6, "WAIT_TIMEOUT"),
        (&["semaphores", "acquire", "gpu", "--weight", "9"], 2, "OVER_CAPACITY"),
        (&["semaphores", "release", "gpu", "--holder", "b"], 5, "NOT_HOLDER"),
        (&["events", "emit", "nonsense"], 2, "USAGE"),
        (&["why", "nothing"], 4, "TASK_NOT_FOUND"),
        (&["sessions", "kill", "r-nothing"], 4, "RUN_NOT_FOUND"),
        (&["config", "get", "nonsense"], 3, "CONFIG"),
        (&["config", "get", "store"], 4, "NOT_SET"),
        (&["completions", "tcsh"], 2, "USAGE"),
        (&["sections", "show", "nothing"], 4, "SECTION_NOT_FOUND"),
        (&["sections", "add", "s"], 2, "SECTION_EXISTS"),
        (&["sections", "delete", "s"], 2, "SECTION_NOT_EMPTY"),
        (&["tasks", "import", "nothing.csv"], 4, "NO_SUCH_FILE"),
        (&["tasks", "import", "wrong.csv"], 2, "IMPORT_INVALID"),
        (&["tasks", "show", "nothing"], 4, "TASK_NOT_FOUND"),
        (&["tasks", "show", "t-"], 2, "AMBIGUOUS_NAME"),
        (&["tasks", "update", "a", "--depends-on", "b"], 2, "DEPENDENCY_CYCLE"),
        (&["tasks", "delete", "a"], 2, "TASK_HAS_DEPENDENTS"),
        (&["tasks", "done", "a", "--epoch", "1"], 8, "FENCED"),
        (&["tasks", "take", "over"], 2, "USAGE"),
        (&["tasks", "release", "over", "--holder", "ann"], 5, "NOT_CLAIMED"),
        (&["tasks", "done", "over"], 2, "TASK_OVER"),
        (&["tasks", "wait", "a", "--timeout", "1ms"], 6, "WAIT_TIMEOUT"),
        (&["queues", "take", "nothing"], 4, "QUEUE_NOT_FOUND"),
        (&["queues", "take", "empty"], 4, "QUEUE_EMPTY"),
        (&["queues", "show", "empty", "q-1"], 4, "ITEM_NOT_FOUND"),
        (&["queues", "complete", "empty", "q-1", "--holder", "a", "--epoch", "1"], 4, "ITEM_NOT_FOUND"),
        (&["queues", "push", "empty", "nonsense"], 2, "USAGE"),
        (&["queues", "take", "empty", "--wait", "--timeout", "1ms"], 6, "WAIT_TIMEOUT"),
        (&["queues", "take", "halted"], 6, "QUEUE_PAUSED"),
        (&["queues", "push", "tiny", "2"], 6, "QUEUE_FULL"),
        (&["queues", "define", "q", "--dead-letter", "nothing"], 4, "QUEUE_NOT_FOUND"),
        (&["queues", "define", "q", "--dead-letter", "q"], 2, "USAGE"),
        (&["runbooks", "new", "triage"], 2, "RUNBOOK_EXISTS"),
        (&["runbooks", "check"], 3, "RUNBOOK_INVALID"),
        (&["runbooks", "check", "bad", "nothing"], 3, "RUNBOOK_INVALID"),
        (&["runbooks", "show", "bad"], 3, "RUNBOOK_INVALID"),
        (&["pipelines", "show", "nothing"], 4, "PIPELINE_NOT_FOUND"),
        (&["pipelines", "start", "way", "--runbook", "ways"], 2, "VARIABLES"),
        (&["pipelines", "start", "way", "--runbook", "ways", "--var", "b=1"], 2, "VARIABLES"),
        (&["pipelines", "unblock", "idle"], 2, "PIPELINE_NOT_BLOCKED"),
        (&["pipelines", "retry", "idle"], 2, "PIPELINE_NOT_FAILED"),
        (&["pipelines", "set", "--pipeline", "dropped", "a=2"], 2, "PIPELINE_OVER"),
        (&["pipelines", "checkpoint", "--pipeline", "dropped", "x"], 2, "PIPELINE_OVER"),
        (&["tasks", "retry", "idle"], 2, "TASK_IS_PIPELINE"),
        (&["runbooks", "show", "nothing"], 4, "RUNBOOK_NOT_FOUND"),
        (&["runbooks", "show", "nothing.toml"], 4, "NO_SUCH_FILE"),
        (&["guards", "check", "never"], 6, "GUARD_FAILED"),
        (&["guards", "check", "nothing", "--runbook", "guarded"], 4, "GUARD_NOT_FOUND"),
        (&["guards", "check", "never", "--var", "x=1"], 4, "VAR_NOT_FOUND"),
        (&["runbooks", "apply", "lost"], 3, "RUNBOOK_REFUSED"),
        (&["runbooks", "remove", "nothing"], 4, "RUNBOOK_NOT_FOUND"),
        (&["workers", "show", "nothing"], 4, "WORKER_NOT_FOUND"),
        (&["workers", "wake", "nothing"], 4, "WORKER_NOT_FOUND"),
        (&["tasks", "logs", "a"], 4, "RUN_NOT_FOUND"),
    ];
    let mut recorded = String::new();
    for (args, exit, code) in cases {
        let error = world.assert_refused(args, *exit, code);
        recorded::record(&mut recorded, args, &error);
    }
    insta::assert_snapshot!("failures", recorded);
}
