//! Every figure has one computation: limits, positions, counts and ends are the same in every command, and for the runners.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::tasks::wait_for;
use crate::world::{Running, World, until};

/// The number of live runs.
fn live(world: &World) -> usize {
    world.data(&["sessions", "list"])["sessions"].as_array().unwrap().len()
}

/// Starts a runner without a limit of its own, and waits until the store knows it.
fn known_runner(world: &World, args: &[&str]) -> Running {
    let runner = world.runner(args);
    until("the runner is known", || world.data(&["status"])["runners"].as_array().unwrap().len() == 1);
    runner
}

/// Leaves a run whose session has exited with this status while no runner was there. Returns the run.
fn leave_ended_run(world: &World, exit: &str) -> String {
    world.add(&["left", "--run", &format!("{}; exit {exit}", wait_for("go"))]);
    let runner = world.runner(&[]);
    let first = || world.data(&["sessions", "list"])["sessions"][0].clone();
    until("its keeper is known", || first()["keeperPid"].is_number());
    let run = first()["run"].as_str().unwrap().to_owned();
    assert_eq!(runner.stop().code, 0);
    world.touch("go");
    let record = world.path().join(".banksman/runs").join(&run);
    let ended = || matches!(banksman_adapters::keeper::read_record(&record), Ok(banksman_adapters::keeper::Found::Ended(..)));
    until("its session has ended", ended);
    run
}

#[test]
fn a_new_run_limit_applies_to_live_runners_and_in_every_command() {
    let world = World::new();
    for number in 1..=6 {
        world.add(&[&format!("n{number}"), "--run", &wait_for(&format!("go-{number}"))]);
    }
    let runner = world.start(&["run"]);
    // The default limit is four at a time.
    until("four live", || live(&world) == 4);
    assert_eq!(world.data(&["status"])["slots"], serde_json::json!({ "used": 4, "limit": 4 }));
    let why = world.data(&["why", "n6"]);
    let reason = &why["reasons"][0];
    assert_eq!((&reason["kind"], &reason["place"]), (&"no_slot".into(), &2.into()), "{why}");
    // The hint works, also while the runner lives.
    assert_eq!(reason["hint"], "banksman config set limits.max_concurrent_runs N");
    world.ok(&["config", "set", "limits.max_concurrent_runs", "5"]);
    until("five live", || live(&world) == 5);
    let listed = world.data(&["semaphores", "list"])["semaphores"][0].clone();
    assert_eq!((&listed["name"], &listed["capacity"], &listed["available"]), (&"runs".into(), &5.into(), &0.into()));
    // With a lower limit live runs continue, and none begins beside them.
    world.ok(&["config", "set", "limits.max_concurrent_runs", "1"]);
    for number in 1..=4 {
        world.touch(&format!("go-{number}"));
        world.until_status(&format!("n{number}"), "completed");
        assert_eq!(world.status("n6"), "pending");
    }
    world.touch("go-5");
    world.until_status("n6", "in_progress");
    assert_eq!(live(&world), 1);
    world.ok(&["config", "set", "limits.max_concurrent_runs", "0"]);
    let unlimited = world.data(&["semaphores", "list"])["semaphores"][0].clone();
    assert_eq!((&unlimited["capacity"], &world.data(&["status"])["slots"]["limit"]), (&Value::Null, &Value::Null));
    world.touch("go-6");
    world.until_status("n6", "completed");
    let said = runner.stop();
    assert!(said.stderr.contains("at most 4 runs at a time in the project (limits.max_concurrent_runs)"), "{said:?}");
}

#[test]
fn raising_the_root_limit_lets_a_live_runner_begin_the_next_root() {
    let world = World::new();
    world.ok(&["config", "set", "limits.max_concurrent_root_tasks", "1"]);
    world.add(&["first", "--run", &wait_for("go")]);
    world.add(&["second", "--run", &wait_for("go")]);
    let _runner = known_runner(&world, &[]);
    world.until_status("first", "in_progress");
    let reason = world.data(&["why", "second"])["reasons"][0].clone();
    assert_eq!(reason["hint"], "banksman config set limits.max_concurrent_root_tasks N", "{reason}");
    world.ok(&["config", "set", "limits.max_concurrent_root_tasks", "2"]);
    world.until_status("second", "in_progress");
    assert_eq!(world.data(&["status"])["roots"], serde_json::json!({ "used": 2, "limit": 2 }));
    world.touch("go");
}

#[test]
fn an_edited_limit_is_not_applied_and_reported_by_doctor_and_runner() {
    let world = World::new();
    world.ok(&["config", "set", "limits.max_concurrent_runs", "2"]);
    let file = world.path().join(".banksman/config.toml");
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("max_concurrent_runs = \"2\"", "max_concurrent_runs = \"8\""))
        .unwrap();
    assert_eq!(world.data(&["config", "get", "limits.max_concurrent_runs"])["value"], "8");
    assert_eq!(world.data(&["status"])["slots"]["limit"], 2);
    let checks = world.data(&["doctor"])["checks"].clone();
    let limits = checks.as_array().unwrap().iter().find(|check| check["check"] == "limits").unwrap().clone();
    assert_eq!(
        (&limits["verdict"], &limits["entries"][0]["fix"]),
        (&"note".into(), &"banksman config set limits.max_concurrent_runs 8".into())
    );
    world.add(&["one", "--run", "true"]);
    let said = world.run(&["run", "--until-idle", "--max-runs", "1"]);
    assert!(said.stderr.contains("at most 1 run at a time (--max-runs; the project allows 2)"), "{said:?}");
    assert!(said.stderr.contains("limits.max_concurrent_runs is 8 in the settings, but the project uses 2"), "{said:?}");
    world.ok(&["config", "set", "limits.max_concurrent_runs", "8"]);
    assert_eq!(world.data(&["status"])["slots"]["limit"], 8);
}

#[test]
fn add_and_why_agree_on_the_position_in_the_queue() {
    let world = World::new();
    world.ok(&["config", "set", "limits.max_concurrent_runs", "1"]);
    let place =
        |task: &str| world.data(&["why", task])["reasons"].as_array().unwrap().iter().find_map(|reason| reason["place"].as_u64());
    // A task that waits for a lock takes no position among those that wait for a run slot.
    world.ok(&["locks", "acquire", "deploy", "--holder", "me", "--ttl", "10m"]);
    world.add(&["locked", "--run", "true", "--lock", "deploy"]);
    let first = world.data(&["tasks", "add", "first", "--run", &wait_for("go")]);
    assert_eq!((&first["admission"], &first["runnerAlive"]), (&"queued".into(), &false.into()), "there is no runner to start it");
    assert_eq!((first["queuePosition"].as_u64(), place("first")), (Some(1), Some(1)));
    let said = world.run(&["tasks", "add", "told", "--run", "true"]);
    assert!(said.stdout.contains("queued; no runner is running (start one: banksman run)"), "{said:?}");
    assert_eq!(place("told"), Some(2));
    let runner = known_runner(&world, &[]);
    world.until_status("first", "in_progress");
    let next = world.data(&["tasks", "add", "next", "--run", "true"]);
    assert_eq!((&next["admission"], next["queuePosition"].as_u64(), place("next")), (&"queued".into(), Some(2), Some(2)));
    assert_eq!(world.data(&["status"])["queuedRuns"], 2);
    world.touch("go");
    world.until_status("next", "completed");
    let at_once = world.data(&["tasks", "add", "at once", "--run", "true"]);
    assert_eq!((&at_once["admission"], &at_once["queuePosition"]), (&"started".into(), &Value::Null));
    drop(runner);
    world.ok(&["locks", "release", "deploy", "--force"]);
}

#[test]
fn queries_record_a_session_that_ended_without_a_runner() {
    for look in [&["status"][..], &["why", "left"], &["tasks", "show", "left"], &["sessions", "list"], &["tasks", "wait", "left"]]
    {
        let world = World::new();
        leave_ended_run(&world, "0");
        let before = world.data(&["tasks", "list"])["tasks"][0]["status"].clone();
        assert_eq!(before, "in_progress", "a list of tasks records nothing");
        let said = world.run(look);
        assert_eq!(said.code, 0, "{look:?}: {said:?}");
        assert_eq!(world.data(&["tasks", "list"])["tasks"][0]["status"], "completed", "{look:?}");
        let rows = world.everything().tables.backlog;
        assert!(rows.runners.is_empty() && rows.outbox.is_empty(), "{look:?} leaves nothing behind: {rows:?}");
    }
}

#[test]
fn an_end_that_cannot_be_recorded_is_shown_as_unrecorded() {
    let world = World::on_sqlite();
    let run = leave_ended_run(&world, "3");
    // The command cannot open the store for writing: the folder of its sockets is gone, and cannot be made.
    let folder = world.path().join(".banksman/run");
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "").unwrap();
    let shown = world.data(&["status"])["runs"][0].clone();
    assert_eq!((&shown["id"], &shown["sessionEnded"]), (&run.as_str().into(), &"exit status 3".into()), "{shown}");
    assert!(world.ok(&["status"]).contains("(ended, not recorded yet)"));
    let why = world.ok(&["why", "left"]);
    assert!(why.contains("its session has ended (exit status 3), which is not recorded yet"), "{why}");
    assert_eq!(world.data(&["sessions", "list"])["sessions"][0]["state"], "not_recorded");
    let doctor = world.run(&["doctor"]).stdout;
    assert!(doctor.contains("1 run has ended and is not recorded yet") && doctor.contains("banksman status"), "{doctor}");
    assert!(!doctor.contains("the keeper of 1 run"), "{doctor}");
    fs::remove_file(&folder).unwrap();
    assert_eq!(world.run(&["tasks", "wait", "left"]).code, 7);
}

#[test]
fn a_kill_after_the_exit_does_not_change_a_success() {
    let world = World::new();
    let run = leave_ended_run(&world, "0");
    let killed = world.data(&["sessions", "kill", &run]);
    assert_eq!((&killed["outcome"], &killed["ending"]), (&"already_ended".into(), &"exit status 0".into()), "{killed}");
    assert_eq!(world.status("left"), "completed");
}

#[test]
fn a_live_runner_reclaims_expired_grants_and_they_take_no_slots() {
    let world = World::new();
    world.ok(&["semaphores", "define", "gpu", "--capacity", "2"]);
    world.ok(&["locks", "acquire", "deploy", "--holder", "gone", "--ttl", "1ms"]);
    world.ok(&["semaphores", "acquire", "gpu", "--holder", "gone", "--ttl", "1ms"]);
    world.ok(&["locks", "acquire", "kept", "--holder", "there", "--ttl", "10m"]);
    let gpu = || {
        let listed = world.data(&["semaphores", "list"])["semaphores"].clone();
        listed.as_array().unwrap().iter().find(|semaphore| semaphore["name"] == "gpu").unwrap().clone()
    };
    until("the lease is over", || gpu()["available"] == 2);
    assert_eq!(gpu()["holders"], 0);
    assert!(world.holder("deploy").is_some(), "no command has requested the lock");
    // A runner sweeps when it starts, and then at its poll interval.
    let runner = world.runner(&[]);
    let reclaimed = |kind: &str| world.events().iter().any(|event| event.kind == kind && event.data["reason"] == "expired");
    until("both are reclaimed", || reclaimed("lock:reclaimed") && reclaimed("semaphore:reclaimed"));
    assert_eq!((world.holder("deploy"), world.holder("kept").is_some()), (None, true));
    drop(runner);
}

#[test]
fn doctor_and_cleanup_name_what_they_checked() {
    let world = World::new();
    let line = |check: &str| {
        let checks = world.data(&["doctor"])["checks"].clone();
        let found = checks.as_array().unwrap().iter().find(|entry| entry["check"] == check).unwrap().clone();
        found["findings"][0].as_str().unwrap().to_owned()
    };
    assert_eq!(line("holders"), "no lock is held, no holder has slots");
    assert_eq!((line("runs"), line("shortages")), ("no live runs".into(), "no runner is running".into()));
    assert!(world.ok(&["locks", "cleanup"]).contains("nothing to clean up: no lock is held\n"));
    world.ok(&["locks", "acquire", "deploy", "--holder", "me", "--ttl", "10m"]);
    assert_eq!(line("holders"), "1 lock is held, no holder has slots; all holders are alive and within their leases");
    // A task lock whose holder does not work on the task is reported.
    world.add(&["by hand"]);
    let id = world.task("by hand")["id"].as_str().unwrap().to_owned();
    assert_eq!(line("claims"), "no task lock is held");
    let client = world.project().open().unwrap();
    world.hold_reserved(&client, &format!("task:{id}"), "somebody");
    assert_eq!(line("claims"), format!("lock task:{id} is held by somebody, which does not work on the task"));
    let free = world.data(&["locks", "cleanup"]);
    assert_eq!(free["released"], Value::Array(Vec::new()), "it is leaked, not stale");
    world.ok(&["locks", "release", &format!("task:{id}"), "--force"]);
    assert_eq!(line("claims"), "no task lock is held");
}

#[test]
fn doctor_checks_the_counters_of_tasks_runs_and_slots() {
    let world = World::on_sqlite().unchecked();
    world.ok(&["config", "set", "limits.max_concurrent_runs", "1"]);
    world.add(&["first", "--run", "true"]);
    world.add(&["second", "--run", "false", "--depends-on", "first"]);
    world.add(&["third", "--run", "true", "--depends-on", "second"]);
    world.add(&["manual"]);
    let counted = |word: &str| world.data(&["status"])["byStatus"][word].as_u64().unwrap();
    assert_eq!((counted("pending"), counted("blocked"), world.data(&["status"])["byHand"].as_u64()), (2, 2, Some(1)));
    fs::write(world.path().join("more.jsonl"), "{\"title\":\"a\"}\n{\"title\":\"b\",\"dependsOn\":[\"a\"]}\n").unwrap();
    world.ok(&["tasks", "import", "more.jsonl"]);
    assert_eq!((counted("pending"), counted("blocked")), (3, 3));
    assert_eq!(world.run_all(), 7);
    world.ok(&["tasks", "delete", "b", "a"]);
    assert_eq!((counted("completed"), counted("failed"), counted("pending"), counted("blocked")), (1, 1, 1, 1));
    world.check();
    let connection = rusqlite::Connection::open(world.path().join(".banksman/store.db")).unwrap();
    connection
        .execute_batch("UPDATE projects SET task_counts = json_set(task_counts, '$.failed', 2), live_runs = 3, run_slots = 4")
        .unwrap();
    let said = world.run(&["doctor"]);
    for wrong in [
        "the counter of failed tasks says 2, and there are 1",
        "the counter of live runs says 3, and there are 0",
        "the counter of slots for runs that are taken says 4, and there are 0",
    ] {
        assert!(said.stdout.contains(wrong) && said.code == 7, "{said:?}");
    }
}

/// A waiter for a task is woken by the end of its session, also without a runner; and a session that had ended is not cancelled.
#[test]
fn a_session_end_without_a_runner_wakes_waiters_and_precedes_a_cancel() {
    let world = World::new();
    // No poll comes within the test.
    world.ok(&["config", "set", "locking.poll_interval", "10m"]);
    let gate = |name: &str| format!("touch at-{name}; until test -e go-{name}; do sleep 0.02; done");
    for name in ["one", "two"] {
        world.ok(&["tasks", "add", name, "--run", &gate(name)]);
    }
    let runner = world.start(&["run", "--quiet"]);
    until("both run", || ["at-one", "at-two"].iter().all(|file| world.path().join(file).exists()));
    runner.signal(Signal::KILL);
    runner.end();
    let said = world.path().join("said");
    let mut wait = world.command(&["tasks", "wait", "one"]);
    let mut wait = wait.stderr(std::fs::File::create(&said).unwrap()).spawn().unwrap();
    until("it waits", || std::fs::read_to_string(&said).unwrap().contains("no runner"));
    world.touch("go-one");
    assert!(wait.wait().unwrap().success());
    let two = world.data(&["tasks", "show", "two"])["runs"][0]["id"].as_str().unwrap().to_owned();
    world.touch("go-two");
    until("it has ended", || {
        !world.path().join(".banksman/runs").join(&two).exists() || {
            let record = banksman_adapters::keeper::read_record(&world.path().join(".banksman/runs").join(&two));
            matches!(record, Ok(banksman_adapters::keeper::Found::Ended(..)))
        }
    });
    let cancelled = world.data(&["tasks", "cancel", "two"]);
    assert_eq!(
        (&cancelled["tasks"][0]["outcome"], &cancelled["tasks"][0]["status"]),
        (&"already_over".into(), &"completed".into())
    );
}
