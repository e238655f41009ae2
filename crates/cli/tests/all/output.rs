//! The output of commands to people, to the letter, with the exit status.

use insta::{Settings, assert_snapshot};

use crate::world::World;

/// A session at a terminal: each command with its output and exit status.
fn session(world: &World, commands: &[&[&str]]) -> String {
    let mut text = String::new();
    for args in commands {
        let said = world.run(args);
        text.push_str(&format!("$ banksman {}\n{}{}", args.join(" "), said.stdout, said.stderr));
        text.push_str(&format!("[exit {}]\n\n", said.code));
    }
    text
}

/// Replaces everything that differs from run to run.
fn hidden(world: &World, check: impl FnOnce()) {
    let mut settings = Settings::clone_current();
    settings.add_filter(&world.path().canonicalize().unwrap().display().to_string(), "[DIR]");
    settings.add_filter(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "[TIME]");
    settings.add_filter(r"\b\d\d:\d\d:\d\d\b", "[CLOCK]");
    // With the blanks before them, because they shift the columns to the right.
    settings.add_filter(r" *(\(?)\b\d+ ?m?s\b", " $1[MS]");
    settings.add_filter(r" *\b(1 h|59 min)\b", " [HOUR]");
    settings.add_filter(r#""host":"[^"]+","pid":\d+,"user":"[^"]+""#, "[WHO]");
    settings.add_filter(r"  by [^ \n]+\n", "  by [USER]\n");
    settings.add_filter(r"  by (r-\S+) \(\S+\)\n", "  by $1 ([USER])\n");
    settings.add_filter(r#""pids":\[\d+\]"#, "[PIDS]");
    settings.add_filter(r"h-[0-9a-z]{8}", "[FRESH]");
    settings.add_filter(r" +(TOOK|AGO|FOR|STARTED|RAISED|WHEN|SINCE)\b", " $1");
    // The column of durations is empty where a phase has not begun.
    settings.add_filter(r"(·  \S+) +", "$1  ");
    settings.add_filter(r"\b(t|s|r|n|p)-[0-9a-hjkmnp-tv-z]{8}\b", "$1-[RANDOM]");
    settings.add_filter(r"\bat=\d{13}\b", "at=[WALL]");
    settings.bind(check);
}

#[test]
fn a_first_session() {
    let world = World::empty();
    let text = session(
        &world,
        &[
            &["locks", "list"],
            &["init"],
            &["locks", "list"],
            &["locks", "acquire", "deploy", "--holder", "alice", "--ttl", "1h"],
            &["locks", "acquire", "deploy", "--holder", "bob", "--no-wait"],
            &["locks", "acquire", "deploy", "--holder", "bob", "--timeout", "300ms"],
            &["locks", "release", "deploy", "--holder", "bob", "--epoch", "1"],
            &["locks", "show", "deploy"],
            &["locks", "release", "deploy", "--force"],
            &["locks", "heartbeat", "deploy", "--holder", "alice", "--epoch", "1"],
            &["locks", "cleanup"],
            &["events"],
            &["doctor"],
        ],
    );
    hidden(&world, || assert_snapshot!(text));
}

#[test]
fn a_session_with_slots() {
    let world = World::new();
    let text = session(
        &world,
        &[
            &["semaphores", "list"],
            &["semaphores", "define", "gpu", "--capacity", "4", "--ttl", "1h"],
            &["semaphores", "acquire", "gpu", "--holder", "train-7", "--weight", "3"],
            &["semaphores", "acquire", "gpu", "--holder", "eval-1", "--weight", "2", "--no-wait"],
            &["semaphores", "acquire", "gpu", "--holder", "eval-1", "--weight", "9"],
            &["semaphores", "acquire", "tpu"],
            &["semaphores", "list"],
            &["semaphores", "show", "gpu"],
            &["semaphores", "release", "gpu", "--holder", "eval-1"],
            &["semaphores", "release", "gpu", "--holder", "train-7"],
        ],
    );
    hidden(&world, || assert_snapshot!(text));
}

#[test]
fn the_table_of_locks() {
    let world = World::new();
    world.ok(&["locks", "acquire", "deploy/production", "--holder", "release-robot", "--ttl", "1h"]);
    world.ok(&["locks", "acquire", "db", "--holder", "migrate", "--pid", &std::process::id().to_string()]);
    world.ok(&["locks", "run", "build", "--", "true"]);
    let text = session(&world, &[&["locks", "list"]]);
    hidden(&world, || assert_snapshot!(text));
}

#[test]
fn the_envelope_of_json() {
    let world = World::new();
    let text = session(
        &world,
        &[
            &["locks", "acquire", "db", "--holder", "a", "--ttl", "1h", "--json"],
            &["locks", "acquire", "db", "--holder", "b", "--no-wait", "--json"],
            &["locks", "list", "--json"],
        ],
    );
    hidden(&world, || assert_snapshot!(text));
}

#[test]
fn the_help_pages() {
    let world = World::empty();
    let text =
        session(&world, &[&["--help"], &["locks", "--help"], &["locks", "run", "--help"], &["semaphores", "acquire", "--help"]]);
    assert_snapshot!(text);
}

#[test]
fn a_session_with_settings() {
    let world = World::on_sqlite().unchecked();
    std::fs::write(world.path().join(".banksman/config.toml"), "project = \"p-7h2k9x4m\"\n").unwrap();
    let text = session(
        &world,
        &[
            &["config", "set", "locking.heartbeat_timeout", "2h"],
            &["config", "set", "--user", "store", "postgres://me:secret@db.example/agents"],
            &["config", "list"],
            &["config", "get", "locking.heartbeat_timeout"],
            &["config", "get", "locking.heartbeat"],
            &["config", "set", "locking.heartbeat_timeout", "2"],
            &["config", "set", "store", "postgres://db.example/agents"],
        ],
    );
    // Durations are the subject of this test, so they are not hidden.
    let mut settings = Settings::clone_current();
    settings.add_filter(&world.path().canonicalize().unwrap().display().to_string(), "[DIR]");
    settings.bind(|| assert_snapshot!(text));
}

#[test]
fn a_session_with_a_backlog() {
    let world = World::new();
    let text = session(
        &world,
        &[
            &["tasks", "list"],
            &["sections", "list"],
            &["sections", "add", "database", "--exclusive"],
            &["tasks", "add", "Run the tests", "--run", "echo ok", "--section", "database"],
            &[
                "tasks",
                "add",
                "Release",
                "--run",
                "exit 3",
                "--depends-on",
                "Run the tests",
                "--priority",
                "2",
                "--lock",
                "deploy",
            ],
            &["tasks", "add", "Decide about the name"],
            &["tasks", "add", "Celebrate", "--run", "true", "--depends-on", "Release"],
            &["tasks", "list"],
            &["run", "--until-idle"],
            &["tasks", "list"],
            &["tasks", "show", "Release"],
            &["tasks", "logs", "Run the tests"],
            &["tasks", "wait", "Run the tests", "Release"],
            &["tasks", "wait", "Celebrate", "--timeout", "10ms"],
            &["tasks", "done", "Decide about the name", "--output", "{\"name\": \"banksman\"}"],
            &["tasks", "update", "Release", "--depends-on", "Celebrate"],
            &["tasks", "retry", "Release"],
            &["tasks", "cancel", "Release", "Celebrate"],
            &["tasks", "delete", "Release"],
            &["tasks", "delete", "Release", "Celebrate"],
            &["tasks", "show", "Release"],
            &["sections", "list"],
            &["sections", "delete", "database"],
        ],
    );
    hidden(&world, || assert_snapshot!(text));
}

#[test]
fn the_help_pages_of_tasks() {
    let world = World::empty();
    assert_snapshot!(session(&world, &[&["tasks", "--help"], &["tasks", "add", "--help"], &["tasks", "wait", "--help"]]));
}

#[test]
fn a_session_of_questions() {
    let world = World::new();
    world.ok(&["sections", "add", "database", "--exclusive"]);
    world.ok(&["semaphores", "define", "gpu", "--capacity", "2"]);
    world.ok(&["semaphores", "acquire", "gpu", "--holder", "train-7", "--ttl", "1h"]);
    world.ok(&["locks", "acquire", "deploy", "--holder", "alice", "--ttl", "1h"]);
    world.ok(&["tasks", "add", "Compile", "--run", "echo broken; exit 3"]);
    world.ok(&["tasks", "add", "Test", "--run", "true", "--depends-on", "Compile"]);
    let needs =
        ["--depends-on", "Test", "--lock", "deploy", "--semaphore", "gpu=2", "--semaphore", "tpu", "--section", "database"];
    world.ok(&[&["tasks", "add", "Release", "--run", "true"], &needs[..]].concat());
    world.ok(&["tasks", "add", "Write the announcement"]);
    let text = session(
        &world,
        &[
            &["status"],
            &["why", "Compile"],
            &["why", "Release"],
            &["why", "Write the announcement"],
            &["why", "Deploy"],
            &["run", "--until-idle"],
            &["why", "Compile"],
            &["why", "Release"],
            &["status"],
            &["sessions", "list"],
            &["sessions", "show", "r-"],
            &["sessions", "logs", "r-"],
            &["sessions", "kill", "r-"],
        ],
    );
    hidden(&world, || assert_snapshot!(text));
}

#[test]
fn the_help_pages_of_questions() {
    let world = World::empty();
    assert_snapshot!(session(
        &world,
        &[&["why", "--help"], &["status", "--help"], &["sessions", "--help"], &["sessions", "kill", "--help"]]
    ));
}

#[test]
fn a_session_with_queues() {
    let world = World::new();
    let text = session(
        &world,
        &[
            &["queues", "list"],
            &["queues", "take", "triage"],
            &["queues", "define", "broken"],
            &["queues", "define", "triage", "--max-attempts", "1", "--visibility-timeout", "1h", "--dead-letter", "broken"],
            &["queues", "push", "triage", r#"{"issue": 17}"#, "--dedupe", "issue-17"],
            &["queues", "push", "triage", r#"{"issue": 17}"#, "--dedupe", "issue-17"],
            &["queues", "push", "triage", r#""soon""#, "--priority", "5"],
            &["queues", "take", "triage", "--holder", "ann"],
            &["queues", "take", "triage", "--holder", "bob"],
            &["queues", "take", "triage", "--holder", "eve"],
            &["queues", "show", "triage"],
            &["queues", "complete", "triage", "q-4", "--holder", "ann", "--epoch", "5"],
            &["queues", "complete", "triage", "q-3", "--holder", "ann", "--epoch", "6"],
            &["queues", "complete", "triage", "q-3", "--holder", "bob", "--epoch", "4"],
            &["queues", "fail", "triage", "q-3", "--holder", "bob", "--epoch", "6", "--error", "no such issue"],
            &["queues", "list"],
            &["queues", "list", "--dead"],
            &["queues", "show", "broken", "q-3"],
            &["queues", "requeue", "broken", "q-3"],
            &["queues", "pause", "triage"],
            &["queues", "take", "triage"],
            &["queues", "purge", "triage"],
            &["doctor"],
        ],
    );
    hidden(&world, || assert_snapshot!(text));
}

#[test]
fn the_help_pages_of_queues() {
    let world = World::empty();
    assert_snapshot!(session(&world, &[&["queues", "--help"], &["queues", "push", "--help"], &["queues", "take", "--help"]]));
}

#[test]
fn a_session_with_runbooks() {
    let world = World::new();
    crate::runbooks::write(&world, "good", crate::runbooks::GOOD);
    let first = session(&world, &[&["runbooks", "list"], &["runbooks", "check"], &["runbooks", "show", "good"]]);
    crate::runbooks::write(&world, "bad", crate::runbooks::BAD);
    let rest = session(&world, &[&["runbooks", "check"], &["runbooks", "list"], &["runbooks", "show", "goood"]]);
    hidden(&world, || assert_snapshot!(first + &rest));
}

#[test]
fn the_help_pages_of_runbooks() {
    let world = World::empty();
    assert_snapshot!(session(&world, &[&["runbooks", "--help"], &["runbooks", "check", "--help"]]));
}

#[test]
fn a_session_with_workers() {
    let world = World::new();
    let text = "[queue.triage]\n[worker.triager]\nqueue = \"triage\"\nrun = './triage.sh \"$VAR_ISSUE\"'\nconcurrency = 2\n\
                wake_on = \"night:begin\"\n[on.\"queue:dead(triage)\"]\nnotify = \"look at it\"\n";
    crate::runbooks::write(&world, "nightly", text);
    crate::runbooks::write(&world, "wrong", "[worker.triager]\nqueue = \"nowhere\"\nrun = \"true\"\n");
    let text = session(
        &world,
        &[
            &["workers", "list"],
            &["runbooks", "apply", "nightly"],
            &["runbooks", "apply", "nightly"],
            &["runbooks", "apply", "wrong"],
            &["queues", "push", "triage", r#"{"issue": 17}"#],
            &["workers", "list"],
            &["workers", "wake", "triager"],
            &["workers", "wake", "triager"],
            &["workers", "pause", "triager"],
            &["workers", "show", "triager"],
            &["workers", "resume", "triager"],
            &["workers", "wake", "nobody"],
            &["runbooks", "remove", "nightly"],
            &["runbooks", "remove", "nightly"],
            &["doctor"],
        ],
    );
    hidden(&world, || assert_snapshot!(text));
}

#[test]
fn a_session_with_pipelines() {
    let world = World::new();
    let text = r#"[pipeline.release]
vars = ["version", { dry = true }]
[[pipeline.release.phase]]
name = "build"
run = "make"
[[pipeline.release.phase]]
name = "publish"
argv = ["publish", "{{ version }}"]
pre = "quiet"
[guard.quiet]
condition = { lock_free = "deploy" }
"#;
    crate::runbooks::write(&world, "release", text);
    let start = ["pipelines", "start", "release", "--title", "one", "--var", "version=1.2"];
    let second = ["pipelines", "start", "release", "--title", "two", "--var", "version=1.3", "--depends-on", "one"];
    let text = session(
        &world,
        &[
            &["pipelines", "list"],
            &["pipelines", "start", "release"],
            &["pipelines", "start", "realese"],
            &start,
            &second,
            &["why", "two"],
            &["pipelines", "unblock", "two"],
            &["tasks", "fail", "two: build", "--error", "exit 1"],
            &["why", "two"],
            &["pipelines", "retry", "two"],
            &["pipelines", "checkpoint", "--pipeline", "two", "built by hand"],
            &["pipelines", "set", "--pipeline", "two", "dry:=false"],
            &["pipelines", "list"],
            &["pipelines", "show", "two"],
            &["tasks", "retry", "one"],
            &["pipelines", "cancel", "one"],
            &["pipelines", "unblock", "one"],
        ],
    );
    hidden(&world, || assert_snapshot!(text));
}

#[test]
fn the_help_pages_of_pipelines() {
    let world = World::empty();
    let pages: [&[&str]; 3] = [&["pipelines", "--help"], &["pipelines", "start", "--help"], &["pipelines", "set", "--help"]];
    assert_snapshot!(session(&world, &pages));
}

#[test]
fn a_session_with_guards() {
    let world = World::new();
    let guards = r#"[guard.may-deploy]
condition = { all = [{ lock_free = "deploy" }, { file_contains = { path = "VERSION", pattern = '^1\.' } }, { not = { file_exists = { var = "stop" } } }] }

[guard.tested]
condition = { any = [{ command = "false" }, { branch_merged = { branch = "topic", into = "main" } }] }
on_failure = { retry = "30s" }
"#;
    let first = session(&world, &[&["guards", "list"]]);
    crate::runbooks::write(&world, "release", guards);
    std::fs::write(world.path().join("VERSION"), "1.0\n").unwrap();
    let rest = session(
        &world,
        &[
            &["guards", "list"],
            &["guards", "check", "may-deploy", "--var", "stop=STOP"],
            &["guards", "check", "may-deploy"],
            &["locks", "acquire", "deploy", "--holder", "ann"],
            &["guards", "check", "may-deploy", "--var", "stop=STOP"],
            &["guards", "check", "may-deploi"],
            &["guards", "check", "may-deploy", "--var", "stopp=STOP"],
            &["guards", "check", "--help"],
        ],
    );
    assert_snapshot!(format!("{first}{rest}"));
}
