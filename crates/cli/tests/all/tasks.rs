//! The verbs of tasks, and backlogs with a runner.

use std::io::Read;

use rustix::process::Signal;
use serde_json::Value;

use crate::world::{BANKSMAN, World, is_alive, until};

/// A command that waits for a file. A named pipe would hang if the test fails before it opens it.
pub(crate) fn wait_for(file: &str) -> String {
    format!("until test -e {file}; do sleep 0.02; done")
}

#[test]
fn a_task_is_added_run_listed_and_shown() {
    let world = World::new();
    let added = world.data(&["tasks", "add", "Say hello", "--run", "echo hello", "--label", "a", "--priority", "-3"]);
    assert_eq!((&added["status"], &added["admission"]), (&"pending".into(), &"queued".into()));
    assert_eq!((&added["queuePosition"], &added["runnerAlive"]), (&1.into(), &false.into()));
    assert!(world.run(&["tasks", "add", "x"]).stderr.is_empty(), "a task for people needs no runner");
    assert!(world.run(&["tasks", "add", "y", "--run", "true"]).stdout.contains("banksman run"));
    world.ok(&["tasks", "delete", "x", "y"]);
    assert_eq!(world.run_all(), 0);
    let task = world.task("Say hello");
    assert_eq!((&task["id"], &task["status"], &task["attempts"]), (&added["id"], &"completed".into(), &1.into()));
    assert_eq!((&task["labels"][0], &task["priority"]), (&"a".into(), &(-3).into()));
    assert_eq!((&task["runs"][0]["exitCode"], &task["lastLines"][0]), (&0.into(), &"hello".into()));
    assert_eq!(world.data(&["tasks", "list"])["tasks"][0]["id"], added["id"]);
    assert_eq!(world.ok(&["tasks", "logs", "Say hello"]), "hello\n");
}

#[test]
fn add_reports_whether_a_task_starts_and_its_position() {
    let world = World::new();
    world.ok(&["config", "set", "limits.max_concurrent_runs", "1"]);
    let runner = world.runner(&[]);
    until("the runner is known", || world.data(&["tasks", "add", "probe", "--run", "true"])["runnerAlive"] == true);
    until("all is quiet", || {
        world.data(&["tasks", "list", "--status", "completed"])["tasks"] == world.data(&["tasks", "list"])["tasks"]
    });
    let first = world.data(&["tasks", "add", "first", "--run", &wait_for("go")]);
    assert_eq!((&first["admission"], &first["queuePosition"]), (&"started".into(), &Value::Null));
    world.until_status("first", "in_progress");
    let place = |title: &str, priority: &str| {
        let added = world.data(&["tasks", "add", title, "--run", "true", "--priority", priority]);
        assert_eq!(added["admission"], "queued");
        added["queuePosition"].as_i64().unwrap()
    };
    assert_eq!([place("second", "0"), place("third", "0"), place("urgent", "5"), place("last", "-1")], [1, 2, 1, 4]);
    let blocked = world.data(&["tasks", "add", "blocked", "--run", "true", "--depends-on", "first,last"]);
    assert_eq!((&blocked["status"], &blocked["queuePosition"], &blocked["unmet"]), (&"blocked".into(), &Value::Null, &2.into()));
    world.touch("go");
    world.until_status("blocked", "completed");
    let started = world.events().into_iter().filter(|event| event.kind == "task:started").filter_map(|event| event.source.id);
    let titles: Vec<String> = started.map(|id| world.task(&id)["title"].as_str().unwrap().to_owned()).collect();
    assert_eq!(titles[titles.len() - 6..], ["first", "urgent", "second", "third", "last", "blocked"]);
    drop(runner);
}

#[test]
fn a_dependent_starts_at_once_when_the_last_blocker_clears() {
    let world = World::new();
    // No poll comes within the test, so the runner must be woken.
    world.ok(&["config", "set", "locking.poll_interval", "10m"]);
    let slow = world.add(&["slow", "--run", &wait_for("go")]);
    world.add(&["quick", "--run", "true"]);
    let last = world.add(&["last", "--run", "true", "--depends-on", " slow ,quick,, slow", "--depends-on", &slow]);
    assert_eq!(world.task(&last)["dependsOn"].as_array().unwrap().len(), 2, "named by title and by id, twice");
    let _runner = world.runner(&[]);
    world.until_status("quick", "completed");
    assert_eq!((world.status(&last), world.task(&last)["unmet"].as_i64()), ("blocked".into(), Some(1)));
    world.touch("go");
    world.until_status(&last, "completed");
    let events = world.events();
    let at = |kind: &str, id: &str| {
        events.iter().find(|event| event.kind == kind && event.source.id.as_deref() == Some(id)).unwrap().id
    };
    assert!(at("task:started", &last) > at("task:complete", &slow));
}

#[test]
fn failed_cancelled_and_skipped_tasks_block_their_dependents() {
    let world = World::new();
    world.add(&["fails", "--run", "test -e mended"]);
    world.add(&["cancelled"]);
    world.add(&["skipped"]);
    world.add(&["reviewed"]);
    for before in ["fails", "cancelled", "skipped", "reviewed"] {
        world.add(&[&format!("after {before}"), "--run", "true", "--depends-on", before]);
        world.add(&[&format!("despite {before}"), "--run", "true", "--depends-on", before, "--allow-failed"]);
    }
    world.ok(&["tasks", "cancel", "cancelled"]);
    world.ok(&["tasks", "update", "skipped", "--status", "skipped"]);
    world.ok(&["tasks", "update", "reviewed", "--status", "review"]);
    assert_eq!(world.run_all(), 7);
    for before in ["fails", "cancelled", "skipped", "reviewed"] {
        assert_eq!(world.status(&format!("after {before}")), "blocked", "{before}");
        let despite = if before == "reviewed" { "blocked" } else { "completed" };
        assert_eq!(world.status(&format!("despite {before}")), despite, "{before}");
    }
    world.touch("mended");
    world.ok(&["tasks", "retry", "fails", "cancelled", "skipped"]);
    world.ok(&["tasks", "done", "cancelled"]);
    world.ok(&["tasks", "update", "skipped", "--status", "completed"]);
    world.ok(&["tasks", "update", "reviewed", "--status", "completed"]);
    assert_eq!(world.run_all(), 0);
    assert_eq!(world.data(&["tasks", "list", "--status", "completed"])["tasks"].as_array().unwrap().len(), 12);
}

#[test]
fn a_failed_task_is_retried_until_its_retries_are_used_up() {
    let world = World::new();
    world.add(&["third time", "--run", "test $BANKSMAN_ATTEMPT = 2", "--retries", "2"]);
    world.add(&["never", "--run", "exit 3", "--retries", "1"]);
    world.add(&["said so", "--run", &format!("{BANKSMAN} tasks fail --error 'it does not merge'")]);
    assert_eq!(world.run_all(), 7);
    let task = world.task("third time");
    assert_eq!((&task["status"], &task["attempts"]), (&"completed".into(), &3.into()));
    assert_eq!((&task["runs"][0]["exitCode"], &task["runs"][2]["exitCode"]), (&1.into(), &0.into()));
    let task = world.task("never");
    assert_eq!((&task["status"], &task["attempts"], &task["error"]), (&"failed".into(), &2.into(), &"exit status 3".into()));
    assert_eq!(world.task("said so")["error"], "it does not merge");
    world.ok(&["tasks", "retry", "never"]);
    assert_eq!(world.run_all(), 7);
    assert_eq!(world.task("never")["attempts"], 4, "a person who retries gives it all its retries again");
}

#[test]
fn wait_reports_how_tasks_ended() {
    let world = World::new();
    world.add(&["good", "--run", "true"]);
    world.add(&["bad", "--run", "exit 1"]);
    world.add(&["open"]);
    let waits = world.start(&["tasks", "wait", "good"]);
    let error = world.assert_refused(&["tasks", "wait", "open", "good", "--timeout", "50ms"], 6, "WAIT_TIMEOUT");
    assert_eq!(error["details"]["tasks"].as_array().unwrap().len(), 2);
    world.run_all();
    assert_eq!(waits.end().code, 0);
    let said = world.run(&["tasks", "wait", "good", "bad", "--json"]);
    let said_json: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((said.code, &said_json["data"]["completed"]), (7, &false.into()));
    assert_eq!(said_json["data"]["tasks"][1]["error"], "exit status 1");
    let mut waits = world.start(&["tasks", "wait", "open"]);
    // The first output, a note that no runner is alive, proves that the command waits.
    waits.0.stderr.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    world.ok(&["tasks", "delete", "open"]);
    assert_eq!(waits.end().code, 7, "what was deleted is not completed");
}

#[test]
fn the_output_of_a_run_can_be_read_by_dependents() {
    let world = World::new();
    let b = BANKSMAN;
    world.add(&["first", "--run", &format!("{b} tasks done --output '{{\"version\":[1,2]}}'; exit 9")]);
    let read =
        format!("{b} tasks show first --json | grep -o '\"version\":\\[1,2\\]' && echo '[\"big\"]' | {b} tasks done --output -");
    world.add(&["second", "--run", &read, "--depends-on", "first"]);
    world.add(&["by hand"]);
    assert_eq!(world.run_all(), 7);
    let first = world.task("first");
    assert_eq!(
        (&first["status"], &first["output"]["version"][1], &first["runs"][0]["exitCode"]),
        (&"completed".into(), &2.into(), &9.into())
    );
    let second = world.task("second");
    assert_eq!((&second["status"], &second["output"][0]), (&"completed".into(), &"big".into()));
    assert_eq!(second["dependsOn"][0]["output"]["version"][0], 1);
    assert_eq!(world.data(&["tasks", "done", "by hand", "--output", "null"])["outcome"], "ended");
    world.assert_refused(&["tasks", "fail", "by hand", "--error", "no"], 2, "TASK_OVER");
}

#[test]
fn only_the_current_run_of_a_task_can_end_it() {
    let world = World::new();
    let say = |verb: &str| format!("{BANKSMAN} tasks {verb} >> said 2>&1; echo $? >> codes");
    let script = format!(
        "test $BANKSMAN_ATTEMPT = 0 && {{ echo $BANKSMAN_RUN_EPOCH > old; exit 1; }}
        {}; {}; export BANKSMAN_RUN_EPOCH=$(cat old); {}; {}; {}; {}",
        say("heartbeat"),
        wait_for("go"),
        say("heartbeat"),
        say("done"),
        say("fail --error x"),
        say("add late --child"),
    );
    let id = world.add(&["guarded", "--run", &script, "--retries", "1"]);
    let _runner = world.runner(&[]);
    until("the second run is at it", || !world.read("codes").is_empty());
    let code = |args: &[&str]| {
        let (code, error) = world.error(args);
        (code, error["code"].as_str().unwrap().to_owned())
    };
    assert_eq!(code(&["tasks", "done", &id]), (5, "TASK_IN_PROGRESS".into()));
    assert_eq!(code(&["tasks", "fail", &id, "--error", "x"]), (5, "TASK_IN_PROGRESS".into()));
    assert_eq!(code(&["tasks", "update", &id, "--status", "skipped"]), (5, "TASK_IN_PROGRESS".into()));
    assert_eq!(code(&["tasks", "retry", &id]), (6, "TASK_BUSY".into()));
    assert_eq!(code(&["tasks", "delete", &id]), (6, "TASK_LOCKED".into()));
    assert_eq!(code(&["tasks", "update", &id, "--depends-on", ""]), (6, "TASK_LOCKED".into()));
    assert_eq!(code(&["tasks", "heartbeat", &id]), (2, "USAGE".into()));
    assert_eq!(code(&["tasks", "heartbeat", &id, "--epoch", "1"]), (8, "FENCED".into()));
    let epoch = world.task(&id)["epoch"].to_string();
    let seen = world.data(&["tasks", "heartbeat", &id, "--epoch", &epoch]);
    assert_eq!((&seen["outcome"], seen["epoch"].to_string()), (&"seen".into(), epoch));
    assert_eq!(seen.as_object().unwrap().keys().collect::<Vec<_>>(), ["epoch", "expiresAt", "id", "outcome"]);
    world.ok(&["tasks", "update", &id, "--title", "Guarded", "--priority", "2", "--label", "a", "--label", "b"]);
    world.touch("go");
    world.until_status(&id, "completed");
    assert_eq!(world.read("codes").split_whitespace().collect::<Vec<_>>(), ["0", "8", "8", "8", "8"], "{}", world.read("said"));
}

#[test]
fn bad_input_is_refused_with_the_reason_and_changes_nothing() {
    let world = World::new();
    let a = world.add(&["a"]);
    let b = world.add(&["b", "--depends-on", "a"]);
    world.add(&["twin"]);
    world.add(&["twin"]);
    let before = world.events().len();
    let long = "x".repeat(501);
    let command = "x".repeat(100_001);
    let output = format!("\"{}\"", "x".repeat(100_000));
    let labels: Vec<String> = (0..21).map(|n| format!("--label=l{n}")).collect();
    let labels: Vec<&str> = ["tasks", "add", "x"].into_iter().chain(labels.iter().map(String::as_str)).collect();
    let needs: Vec<String> = (0..21).map(|n| format!("--lock=l{n}")).collect();
    let needs: Vec<&str> = ["tasks", "add", "x"].into_iter().chain(needs.iter().map(String::as_str)).collect();
    let many = ["a"; 3].join(",") + &(0..1_001).map(|n| format!(",t{n}")).collect::<String>();
    let cases: &[(&[&str], i32, &str, &str)] = &[
        (&["tasks", "add", ""], 2, "USAGE", "must not be empty"),
        (&["tasks", "add", &long], 2, "USAGE", "at most 500 bytes, this one has 501"),
        (&["tasks", "add", "a\nb"], 2, "USAGE", "control characters"),
        (&["tasks", "add", "x", "--run", &command], 2, "USAGE", "at most 100000 bytes, this one has 100001"),
        (&["tasks", "add", "x", "--run", " "], 2, "USAGE", "no command"),
        (&labels, 2, "USAGE", "at most 20 labels, not 21"),
        (&needs, 2, "USAGE", "at most 20 locks and semaphores, not 21"),
        (&["tasks", "add", "x", "--label", ""], 2, "USAGE", "must not be empty"),
        (&["tasks", "add", "x", "--section", "none"], 4, "SECTION_NOT_FOUND", "no section \"none\""),
        (&["tasks", "add", "x", "--depends-on", "none"], 4, "TASK_NOT_FOUND", "no task \"none\""),
        (&["tasks", "add", "x", "--depends-on", "twin"], 2, "AMBIGUOUS_NAME", "it matches several tasks: twin (t-"),
        (&["tasks", "add", "x", "--depends-on", &many], 2, "USAGE", "at most 1000 others, not 1002"),
        (&["tasks", "add", "x", "--allow-failed"], 2, "USAGE", "--depends-on"),
        (&["tasks", "add", "x", "--priority", "high"], 2, "USAGE", "--priority"),
        (&["tasks", "add", "x", "--retries", "-1"], 2, "USAGE", "--retries"),
        (&["tasks", "add", "x", "--child"], 2, "USAGE", "--child needs a run"),
        (&["tasks", "add", "x", "--workspace", "moon"], 2, "USAGE", "checkout, dir, worktree"),
        (&["tasks", "add", "x", "--lock", "task:1"], 2, "RESERVED_NAME", "reserved"),
        (&["tasks", "add", "x", "--semaphore", "runs"], 2, "RESERVED_NAME", "reserved"),
        (&["tasks", "add", "x", "--semaphore", "gpu=0"], 2, "USAGE", "at least one slot"),
        (&["tasks", "add", "x", "--semaphore", "gpu=two"], 2, "USAGE", "not a number of slots"),
        (&["tasks", "add", "x", "--semaphore", "gpu", "--semaphore", "gpu=2"], 2, "USAGE", "twice"),
        (
            &["tasks", "update", "a", "--depends-on", "b"],
            2,
            "DEPENDENCY_CYCLE",
            &format!("dependency cycle detected: a ({a}) -> b ({b}) -> a ({a})"),
        ),
        (&["tasks", "update", "a", "--depends-on", "a"], 2, "DEPENDENCY_CYCLE", "cannot depend on itself"),
        (&["tasks", "update", "a"], 2, "USAGE", "nothing to change"),
        (&["tasks", "update", "a", "--status", "blocked"], 2, "USAGE", "cannot be set"),
        (&["tasks", "update", "a", "--status", "landing"], 2, "USAGE", "the merge queue sets this status"),
        (&["tasks", "update", "a", "--status", "gone"], 2, "USAGE", "valid values: pending, blocked"),
        (&["tasks", "update", "a", "--section", "s", "--no-section"], 2, "USAGE", "cannot be used with"),
        (&["tasks", "update", "a", "--title", ""], 2, "USAGE", "must not be empty"),
        (&["tasks", "list", "--status", "open"], 2, "USAGE", "valid values: pending, blocked"),
        (&["tasks", "list", "--section", "none"], 4, "SECTION_NOT_FOUND", "none"),
        (&["tasks", "list", "--parent", "none"], 4, "TASK_NOT_FOUND", "none"),
        (&["tasks", "show", "none"], 4, "TASK_NOT_FOUND", "none"),
        (&["tasks", "show", ""], 4, "TASK_NOT_FOUND", ""),
        (&["tasks", "show", "t-"], 2, "AMBIGUOUS_NAME", "it matches several tasks"),
        (&["tasks", "wait", "a", "none"], 4, "TASK_NOT_FOUND", "none"),
        (&["tasks", "wait"], 2, "USAGE", "TASK"),
        (&["tasks", "wait", "a", "--timeout", "soon"], 2, "USAGE", "soon"),
        (&["tasks", "cancel", "a", "none"], 4, "TASK_NOT_FOUND", "none"),
        (&["tasks", "retry", "none"], 4, "TASK_NOT_FOUND", "none"),
        (&["tasks", "delete", "a"], 2, "TASK_HAS_DEPENDENTS", &b),
        (&["tasks", "logs", "a"], 4, "RUN_NOT_FOUND", "no run yet"),
        (&["tasks", "logs", "a", "--run", "r-1"], 4, "RUN_NOT_FOUND", "r-1"),
        (&["tasks", "done"], 2, "USAGE", "no task is given"),
        (&["tasks", "done", "a", "--output", "{"], 2, "USAGE", "not JSON"),
        (&["tasks", "done", "a", "--epoch", "3"], 8, "FENCED", "fenced"),
        (&["tasks", "fail", "a", "--error", ""], 2, "USAGE", "must not be empty"),
        (&["tasks", "fail", "a", "--error", &output], 2, "USAGE", "at most 10000 bytes"),
        (&["tasks", "heartbeat", "a"], 2, "USAGE", "has no run and no claim"),
        (&["run", "--section", "none"], 4, "SECTION_NOT_FOUND", "none"),
    ];
    for (args, exit, code, words) in cases {
        let (status, error) = world.error(args);
        let short = || format!("{:.200}", format!("{args:?}: {error}"));
        assert_eq!((status, error["code"].as_str().unwrap()), (*exit, *code), "{}", short());
        assert!(error["message"].as_str().unwrap().contains(words), "{words}: {}", short());
    }
    assert_eq!(world.events().len(), before, "nothing was changed");
}

#[test]
fn a_missing_command_fails_its_run_with_the_reason() {
    let world = World::new();
    world.add(&["missing", "--run", "no-such-command --flag"]);
    world.add(&["directory", "--run", "/etc"]);
    world.add(&["fine", "--run", "true"]);
    assert_eq!(world.run_all(), 7);
    let missing = world.task("missing");
    assert_eq!((&missing["status"], &missing["error"]), (&"failed".into(), &"exit status 127 (no such command)".into()));
    assert!(missing["lastLines"][0].as_str().unwrap().contains("no-such-command"), "{missing}");
    assert_eq!(world.task("directory")["error"], "exit status 126 (the command cannot be executed)");
    assert_eq!(world.status("fine"), "completed");
    assert!(world.ok(&["tasks", "list", "--status", "failed"]).contains("no such command"));
}

#[test]
fn a_task_works_in_the_project_or_in_a_directory_of_its_own() {
    let world = World::new();
    world.add(&["here", "--run", "pwd -P > here"]);
    let id = world.add(&["there", "--run", "pwd -P; test -d \"$BANKSMAN_TASK_DIR\"; touch made", "--workspace", "dir"]);
    assert_eq!(world.run_all(), 0);
    let root = world.path().canonicalize().unwrap();
    assert_eq!(world.read("here").trim(), root.to_str().unwrap());
    let workspace = root.join(".banksman/workspaces").join(&id);
    assert_eq!(world.ok(&["tasks", "logs", "there"]).trim(), workspace.to_str().unwrap());
    let deleted = &world.data(&["tasks", "delete", "there"])["tasks"][0];
    assert_eq!(deleted["workspace"], workspace.to_str().unwrap(), "what was made there is not destroyed");
    assert!(workspace.join("made").exists());
}

#[test]
fn a_limit_holds_across_runners_and_no_task_runs_twice() {
    let world = World::new();
    world.ok(&["config", "set", "limits.max_concurrent_runs", "3"]);
    world.ok(&["semaphores", "define", "gpu", "--capacity", "2"]);
    let script = "mkdir $BANKSMAN_TASK.ran && mkdir $BANKSMAN_TASK.held && ls -d *.held | wc -l >> counts && sleep 0.03 && rmdir $BANKSMAN_TASK.held";
    for n in 0..24 {
        let need: &[&str] = if n % 2 == 0 { &["--semaphore", "gpu"] } else { &[] };
        world.add(&[&[&format!("task {n}"), "--run", script], need].concat());
    }
    let runners = [world.runner(&["--until-idle"]), world.runner(&["--until-idle"])];
    assert!(runners.into_iter().all(|runner| runner.end().code == 0));
    let counts: Vec<u32> = world.read("counts").lines().map(|line| line.trim().parse().unwrap()).collect();
    assert_eq!(counts.len(), 24);
    assert!(counts.iter().all(|count| *count <= 3), "{counts:?}");
    let attempts: Vec<i64> = world.data(&["tasks", "list"])["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["attempts"].as_i64().unwrap())
        .collect();
    assert_eq!(attempts, [1; 24]);
}

#[test]
fn the_needs_of_a_run_are_held_while_it_lives() {
    let world = World::new();
    world.add(&["needs", "--run", &wait_for("go"), "--lock", "deploy", "--semaphore", "gpu=2"]);
    let _runner = world.runner(&[]);
    world.ok(&["semaphores", "define", "gpu", "--capacity", "3"]);
    world.until_status("needs", "in_progress");
    let run = world.task("needs")["run"].as_str().unwrap().to_owned();
    assert_eq!(world.holder("deploy").unwrap().as_str(), format!("run:{run}"));
    assert_eq!(world.data(&["semaphores", "show", "gpu"])["available"], 1);
    assert_eq!(world.error(&["locks", "acquire", "deploy", "--no-wait"]).0, 6);
    world.touch("go");
    world.until_status("needs", "completed");
    assert!(world.holder("deploy").is_none());
    // Another holder has the lock: the task waits, and starts when the lock is released.
    let epoch = world.data(&["locks", "acquire", "deploy", "--holder", "me"])["epoch"].to_string();
    world.ok(&["tasks", "retry", "needs"]);
    world.add(&["free", "--run", "true"]);
    world.until_status("free", "completed");
    assert_eq!(world.status("needs"), "pending");
    world.ok(&["locks", "release", "deploy", "--holder", "me", "--epoch", &epoch]);
    world.until_status("needs", "completed");
}

#[test]
fn a_log_is_printed_cut_and_followed() {
    let world = World::new();
    let script = format!(
        "test $BANKSMAN_ATTEMPT = 0 && echo zero && {} && exit 1; seq 5; {}; printf last",
        wait_for("on"),
        wait_for("go")
    );
    world.add(&["speaks", "--run", &script, "--retries", "1"]);
    let mut all = world.start(&["tasks", "logs", "speaks", "--follow"]);
    let _runner = world.runner(&[]);
    let mut so_far = [0; 5];
    all.0.stdout.as_mut().unwrap().read_exact(&mut so_far).unwrap();
    world.touch("on");
    assert_eq!(&so_far, b"zero\n", "it waits for a run");
    until("the second run speaks", || world.ok(&["tasks", "logs", "speaks"]) == "1\n2\n3\n4\n5\n");
    assert_eq!(world.ok(&["tasks", "logs", "speaks", "--tail", "2"]), "4\n5\n");
    let first = world.task("speaks")["runs"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(world.ok(&["tasks", "logs", "speaks", "--run", &first]), "zero\n");
    let mut follow = world.start(&["tasks", "logs", "speaks", "--follow"]);
    let lines = world.start(&["tasks", "logs", "speaks", "--follow", "--json"]);
    let mut so_far = [0; 10];
    follow.0.stdout.as_mut().unwrap().read_exact(&mut so_far).unwrap();
    world.touch("go");
    assert_eq!((&so_far, follow.end().stdout.as_str()), (b"1\n2\n3\n4\n5\n", "last"));
    assert_eq!(all.end().stdout, "1\n2\n3\n4\n5\nlast", "the output continues with the next attempt, and ends with the task");
    let lines: Vec<Value> = lines.end().stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!([&lines[4]["line"], &lines[5]["line"]], ["5", "last"]);
    assert_eq!(world.data(&["tasks", "logs", "speaks"])["text"], "1\n2\n3\n4\n5\nlast");
    world.add(&["silent", "--run", "true"]);
    world.until_status("silent", "completed");
    let said = world.run(&["tasks", "logs", "silent"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""));
    assert!(said.stderr.contains("printed nothing"), "{said:?}");
}

#[test]
fn tasks_are_found_by_id_title_or_prefix_and_filtered() {
    let world = World::new();
    world.ok(&["sections", "add", "backend"]);
    let id = world.add(&["one", "--section", "backend", "--label", "x", "--label", "y"]);
    // A title that is the id of another task does not hide that task.
    world.add(&[&id]);
    world.add(&["three", "--label", "x", "--run", "true"]);
    assert_eq!(world.task(&id)["title"], "one");
    assert_eq!(world.task(&id[..7])["title"], "one");
    assert_eq!(world.task("three")["title"], "three");
    let titles = |args: &[&str]| {
        let list = world.data(&[&["tasks", "list"], args].concat());
        list["tasks"].as_array().unwrap().iter().map(|task| task["title"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(titles(&[]), ["one", &id, "three"]);
    assert_eq!(titles(&["--limit", "2"]), ["one", &*id]);
    assert_eq!(titles(&["--section", "backend"]), ["one"]);
    assert_eq!(titles(&["--label", "x"]), ["one", "three"]);
    assert_eq!(titles(&["--label", "x", "--label", "y"]), ["one"]);
    assert_eq!(titles(&["--status", "completed"]), [""; 0]);
    world.ok(&["tasks", "update", "one", "--no-labels", "--no-section", "--depends-on", "three"]);
    assert_eq!(titles(&["--label", "y"]), [""; 0]);
    assert_eq!(
        (titles(&["--status", "blocked"]), titles(&["--status", "pending"])),
        (vec!["one".to_owned()], vec![id, "three".into()])
    );
}

#[test]
fn delete_removes_logs_and_needs_force_for_a_live_run() {
    let world = World::new();
    let id = world.add(&["old", "--run", "echo something"]);
    world.add(&["newer", "--depends-on", "old"]);
    world.add(&["busy", "--run", "echo $$ > pid; sleep 600"]);
    let _runner = world.runner(&[]);
    until("it runs", || world.has("pid") && world.read("pid").ends_with('\n') && world.status("old") == "completed");
    assert_eq!(world.error(&["tasks", "delete", "old"]).1["code"], "TASK_HAS_DEPENDENTS");
    let log = world.task("old")["runs"][0]["log"].as_str().unwrap().to_owned();
    assert!(std::path::Path::new(&log).exists());
    world.ok(&["tasks", "delete", "old", "newer"]);
    assert!(!std::path::Path::new(&log).exists());
    assert_eq!(world.error(&["tasks", "show", &id]).0, 4);
    assert_eq!(world.error(&["tasks", "delete", "busy"]).1["code"], "TASK_LOCKED");
    let pid = world.read("pid").trim().parse().unwrap();
    world.ok(&["tasks", "delete", "busy", "--force"]);
    // A person works on this task.
    let id = world.add(&["by hand"]);
    let client = world.project().open().unwrap();
    world.hold_reserved(&client, &format!("task:{id}"), "me");
    let (code, error) = world.error(&["tasks", "delete", "by hand"]);
    assert_eq!((code, &error["code"], &error["details"]["lockedBy"]), (6, &"TASK_LOCKED".into(), &"me".into()));
    world.ok(&["tasks", "delete", "by hand", "--force"]);
    assert!(!is_alive(pid));
    assert!(world.data(&["tasks", "list"])["tasks"].as_array().unwrap().is_empty());
}

#[test]
fn a_session_is_cancelled_without_a_runner() {
    let world = World::new();
    world.add(&["orphan", "--run", "echo $$ > pid; sleep 600"]);
    let runner = world.runner(&[]);
    until("it runs", || std::fs::read_to_string(world.path().join("pid")).is_ok_and(|pid| pid.ends_with('\n')));
    let pid: i32 = std::fs::read_to_string(world.path().join("pid")).unwrap().trim().parse().unwrap();
    runner.signal(Signal::KILL);
    runner.end();
    assert_eq!(world.data(&["tasks", "cancel", "orphan", "--no-wait"])["tasks"][0]["outcome"], "stopping");
    assert!(is_alive(pid), "there is no runner to end it");
    assert_eq!(world.data(&["tasks", "cancel", "orphan"])["tasks"][0]["outcome"], "cancelled");
    assert!(!is_alive(pid));
    assert_eq!(world.status("orphan"), "cancelled");
}

#[test]
fn a_log_that_cannot_be_written_fails_no_run_and_is_reported() {
    let world = World::new();
    world.touch(".banksman/logs");
    world.add(&["speaks", "--run", "echo something; touch ran"]);
    assert_eq!(world.run_all(), 0);
    assert!(world.has("ran"));
    let note = world.task("speaks")["runs"][0]["note"].as_str().unwrap().to_owned();
    assert!(note.contains("10 bytes of its output could not be kept"), "{note}");
    assert!(world.ok(&["tasks", "show", "speaks"]).contains("could not be kept"));
}

#[test]
fn grants_of_a_run_do_not_expire() {
    let world = World::new();
    world.ok(&["locks", "define", "gate", "--ttl", "100ms", "--max-hold", "100ms"]);
    world.ok(&["semaphores", "define", "desk", "--capacity", "1", "--ttl", "100ms"]);
    for (title, needs) in [("by lock", ["--lock", "gate"]), ("by slot", ["--semaphore", "desk"])] {
        let run = format!("touch '{title}'; {}", wait_for("go"));
        world.ok(&[&["tasks", "add", title, "--run", &run][..], &needs].concat());
        world.ok(&[&["tasks", "add", &format!("second {title}"), "--run", "test -e go"][..], &needs].concat());
    }
    let runner = world.start(&["run", "--until-idle"]);
    until("both run", || world.has("by lock") && world.has("by slot"));
    // A waiter times out although the definition's limits have passed: they do not apply to a run.
    for (kind, name) in [("locks", "gate"), ("semaphores", "desk")] {
        world.assert_refused(&[kind, "acquire", name, "--holder", "ann", "--timeout", "500ms"], 6, "WAIT_TIMEOUT");
    }
    world.touch("go");
    assert_eq!(runner.end().code, 0, "nothing began beside what held it");
}
