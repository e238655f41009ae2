//! Loops: tasks with attempts until they are done, with real runs.

use std::io::Read as _;
use std::path::PathBuf;

use banksman_core::task::State;
use banksman_core::{Lease, Task, TaskId};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::tasks::wait_for;
use crate::world::{BANKSMAN, World, is_alive, until};

/// Makes the file with which a run reports that its task is done.
const TOUCH: &str = "touch \"$BANKSMAN_TASK_DIR/DONE\"";

/// Adds a loop with a short restart delay, and returns its id.
pub(crate) fn add_loop(world: &World, title: &str, command: &str, more: &[&str]) -> String {
    let delay = if more.contains(&"--restart-delay") { &[][..] } else { &["--restart-delay", "10ms"] };
    world.add(&[&[title, "--loop", "--run", command], delay, more].concat())
}

/// The data of a task's events of this kind, oldest first.
pub(crate) fn events_of(world: &World, id: &str, word: &str) -> Vec<Value> {
    let kind = format!("task:{word}");
    let of_it = |event: &banksman_store::EventRow| event.kind == kind && event.source.id.as_deref() == Some(id);
    world.events().into_iter().filter(of_it).map(|event| event.data).collect()
}

pub(crate) fn row(world: &World, id: &str) -> Task {
    world.everything().backlog.tasks.remove(&TaskId::new(id).unwrap()).unwrap()
}

/// The path of the file that reports that a task is done.
fn done(world: &World, id: &str) -> PathBuf {
    let folder = world.path().join(".banksman/tasks").join(id);
    std::fs::create_dir_all(&folder).unwrap();
    folder.join("DONE")
}

fn resting(world: &World, id: &str) -> Option<Lease> {
    match row(world, id).state {
        State::Backoff { until } => Some(until),
        _ => None,
    }
}

pub(crate) fn pid_in(world: &World, file: &str) -> i32 {
    until(file, || world.read(file).ends_with('\n'));
    world.read(file).trim().parse().unwrap()
}

#[test]
fn a_loop_that_is_done_beforehand_has_no_run() {
    let world = World::new();
    let id = add_loop(&world, "done", "touch ran", &[]);
    std::fs::write(done(&world, &id), "").unwrap();
    assert_eq!(world.run_all(), 0);
    let task = world.task("done");
    assert_eq!((&task["status"], &task["attempts"], &task["loop"]), (&"completed".into(), &0.into(), &true.into()));
    assert!(!world.has("ran"));
    let complete = events_of(&world, &id, "complete");
    assert!(complete.len() == 1 && complete[0]["run"].is_null(), "{complete:?}");
}

#[test]
fn done_is_checked_after_an_attempt_whatever_its_exit_status() {
    let world = World::new();
    for status in [0, 3] {
        let id = add_loop(&world, &format!("exits with {status}"), &format!("{TOUCH}; exit {status}"), &[]);
        assert_eq!(world.run_all(), 0);
        let task = world.task(&id);
        assert_eq!((&task["status"], &task["attempts"]), (&"completed".into(), &1.into()), "{task}");
        assert!(events_of(&world, &id, "complete")[0]["run"].is_string());
    }
}

#[test]
fn attempts_are_numbered_from_1_in_the_log_and_from_0_in_the_events() {
    let world = World::new();
    let id = add_loop(&world, "third time", &format!("echo $BANKSMAN_ATTEMPT; test $BANKSMAN_ATTEMPT = 2 && {TOUCH}"), &[]);
    assert_eq!(world.run_all(), 0);
    let started = events_of(&world, &id, "started");
    for (number, started) in started.iter().enumerate() {
        assert_eq!((&started["restart"], &started["attempt"]), (&number.into(), &number.into()));
        let log = world.read(&format!(".banksman/logs/{}.log", started["run"].as_str().unwrap()));
        assert!(log.contains(&format!("attempt {}\n", number + 1)) && log.ends_with(&format!("{number}\n")), "{log}");
    }
    let task = world.task(&id);
    assert_eq!((started.len(), &task["restarts"]), (3, &2.into()), "two were followed by another");
    let restarting = events_of(&world, &id, "restarting");
    assert_eq!(restarting.iter().map(|event| event["failures"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
    // A task that is no loop gets no attempt numbers in its log.
    let plain = world.add(&["plain", "--run", "echo plain"]);
    assert_eq!(world.run_all(), 0);
    assert!(events_of(&world, &plain, "started")[0]["restart"].is_null());
    assert_eq!(world.ok(&["tasks", "logs", &plain]), "plain\n");
}

#[test]
fn logs_follow_prints_one_attempt_after_the_other() {
    let world = World::new();
    let script = format!("echo $BANKSMAN_ATTEMPT; {}; test $BANKSMAN_ATTEMPT = 1 && {TOUCH}", wait_for("on"));
    let id = add_loop(&world, "speaks", &script, &[]);
    let mut follow = world.start(&["tasks", "logs", &id, "--follow"]);
    let _runner = world.runner(&[]);
    let mut first = [0; 22];
    follow.0.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    world.touch("on");
    assert_eq!((&first, follow.end().stdout.as_str()), (b"banksman: attempt 1\n0\n", "banksman: attempt 2\n1\n"));
}

#[test]
fn tasks_done_inside_a_run_ends_the_loop_with_its_result() {
    let world = World::new();
    let script = format!("test $BANKSMAN_ATTEMPT = 1 && {BANKSMAN} tasks done --output '{{\"version\": 7}}'; exit 9");
    let id = add_loop(&world, "says so", &script, &[]);
    assert_eq!(world.run_all(), 0);
    let task = world.task(&id);
    assert_eq!((&task["status"], &task["attempts"], &task["output"]["version"]), (&"completed".into(), &2.into(), &7.into()));
}

#[test]
fn an_earlier_attempt_that_says_done_is_fenced() {
    let world = World::new();
    let script = format!(
        "if [ $BANKSMAN_ATTEMPT = 0 ]; then echo $BANKSMAN_RUN_EPOCH > epoch; exit 1; fi
        {BANKSMAN} tasks done --epoch $(cat epoch) --json > second; echo $? > code"
    );
    let id = add_loop(&world, "late", &script, &["--max-attempts", "3", "--restart-delay", "700ms"]);
    let runner = world.runner(&["--until-idle"]);
    until("it rests", || resting(&world, &id).is_some());
    // Between two attempts, too.
    let mut late = world.command(&["tasks", "done", "--json"]);
    late.env("BANKSMAN_TASK", &id).env("BANKSMAN_RUN_EPOCH", world.read("epoch").trim());
    let said: crate::world::Said = late.output().unwrap().into();
    let answer: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((said.code, &answer["error"]["code"]), (8, &"FENCED".into()), "{said:?}");
    assert_eq!(runner.end().code, 7);
    let answer: Value = serde_json::from_str(&world.read("second")).unwrap();
    assert_eq!((world.read("code").trim(), &answer["error"]["code"]), ("8", &"FENCED".into()));
    let task = world.task(&id);
    assert_eq!((&task["status"], &task["attempts"]), (&"failed".into(), &3.into()));
}

#[test]
fn a_loop_fails_after_max_attempts() {
    let world = World::new();
    for (key, default) in [
        ("loop.max_attempts", "100"),
        ("loop.restart_delay", "1s"),
        ("loop.child_wait", "300s"),
        ("loop.on_children_timeout", "warn"),
    ] {
        assert_eq!(world.data(&["config", "get", key])["value"], default);
    }
    for allowed in [1, 4] {
        let id =
            add_loop(&world, &format!("{allowed} times"), "echo x >> tries; exit 4", &["--max-attempts", &allowed.to_string()]);
        assert_eq!(world.run_all(), 7);
        let task = world.task(&id);
        let error = format!("not done after {allowed} attempts, and max_attempts is {allowed}; the last one: exit status 4");
        assert_eq!((&task["attempts"], &task["error"]), (&allowed.into(), &error.into()));
        let counts = ["started", "restarting", "failed"].map(|word| events_of(&world, &id, word).len());
        assert_eq!(counts, [allowed, allowed - 1, 1]);
    }
    assert_eq!(world.read("tries").lines().count(), 5);
    // Without --max-attempts the setting applies, and is stored with the task.
    world.ok(&["config", "set", "loop.max_restarts", "2"]);
    let id = add_loop(&world, "by settings", "exit 4", &[]);
    world.ok(&["config", "set", "loop.max_attempts", "9"]);
    assert_eq!(world.run_all(), 7);
    assert_eq!(world.task(&id)["attempts"], 2);
}

#[test]
fn the_restart_delay_between_two_attempts_is_kept() {
    let world = World::new();
    let id = add_loop(&world, "rests", "exit 1", &["--max-attempts", "2", "--restart-delay", "1500ms"]);
    let runner = world.runner(&["--until-idle"]);
    until("it rests", || resting(&world, &id).is_some());
    let due = resting(&world, &id).unwrap();
    let why = world.data(&["why", &id]);
    assert_eq!((&why["status"], &why["reasons"][0]["kind"]), (&"pending".into(), &"resting".into()), "{why}");
    assert_eq!(runner.end().code, 7);
    let mut runs: Vec<_> = world.everything().tables.backlog.runs.into_values().collect();
    runs.sort_by_key(|run| run.attempt);
    let late = runs[1].started.lease - due;
    assert!(late.as_ms() >= 0 && late.as_ms() < 5_000, "{late} after the due time");
    let events = world.events();
    let at = |kind: &str| events.iter().filter(|event| event.kind == kind).map(|event| event.wall.0).collect::<Vec<_>>();
    // Two clocks, each truncated to milliseconds.
    assert!(at("task:started")[1] - at("task:restarting")[0] >= 1_498, "{events:?}");
}

#[test]
fn a_directory_named_done_fails_the_loop() {
    let world = World::new();
    let before = add_loop(&world, "before", "touch ran", &[]);
    std::fs::create_dir(done(&world, &before)).unwrap();
    let after = add_loop(&world, "after", "mkdir \"$BANKSMAN_TASK_DIR/DONE\"", &[]);
    assert_eq!(world.run_all(), 7);
    for (id, attempts) in [(before, 0), (after, 1)] {
        let task = world.task(&id);
        assert_eq!((&task["status"], &task["attempts"]), (&"failed".into(), &attempts.into()));
        assert_eq!(task["error"], "DONE is not a file that can be read: it is a directory");
    }
    assert!(!world.has("ran"));
}

#[test]
fn exit_status_0_or_printing_done_is_no_verdict() {
    let world = World::new();
    let silent = add_loop(&world, "silent", "true", &["--max-attempts", "2"]);
    let liar = add_loop(&world, "liar", "echo DONE; echo 'the task is DONE' >&2; touch DONE", &["--max-attempts", "2"]);
    assert_eq!(world.run_all(), 7);
    for id in [silent, liar] {
        let restarting = events_of(&world, &id, "restarting");
        assert_eq!((restarting.len(), &restarting[0]["why"], &restarting[0]["failures"]), (1, &"no_verdict".into(), &1.into()));
        let task = world.task(&id);
        assert_eq!((&task["attempts"], &task["restarts"]), (&2.into(), &1.into()));
        assert!(task["error"].as_str().unwrap().ends_with("it exited 0 without `tasks done`"));
    }
}

#[test]
fn the_next_attempt_gets_the_result_of_the_last_one() {
    let world = World::new();
    let script = format!(
        "echo ${{BANKSMAN_LAST_RESULT-none}} > seen-$BANKSMAN_ATTEMPT
        test $BANKSMAN_ATTEMPT = 0 || cp $BANKSMAN_LAST_RESULT result-$BANKSMAN_ATTEMPT
        case $BANKSMAN_ATTEMPT in
            0) echo these were its last words; {BANKSMAN} tasks fail --error 'no key'; exit 3;;
            1) kill -KILL $$;;
            2) exit 0;;
            3) {TOUCH};;
        esac"
    );
    let id = add_loop(&world, "told", &script, &[]);
    assert_eq!(world.run_all(), 0);
    assert_eq!(world.read("seen-0"), "none\n");
    let result = |number: u32| -> Value { serde_json::from_str(&world.read(&format!("result-{number}"))).unwrap() };
    let runs = events_of(&world, &id, "started");
    let first = result(1);
    assert_eq!((&first["verdict"], &first["exitCode"], &first["error"]), (&"failed".into(), &3.into(), &"no key".into()));
    assert_eq!((&first["attempt"], &first["run"], &first["signal"]), (&0.into(), &runs[0]["run"], &Value::Null));
    assert!(first["tail"].as_str().unwrap().contains("these were its last words\n"), "{first}");
    assert!(std::path::Path::new(first["log"].as_str().unwrap()).exists());
    let second = result(2);
    assert_eq!((&second["verdict"], &second["exitCode"], &second["signal"]), (&"failed".into(), &Value::Null, &9.into()));
    assert_eq!((&second["ending"], &second["error"]), (&"killed by signal 9".into(), &Value::Null));
    assert_eq!((&result(3)["verdict"], &result(3)["exitCode"]), (&"no_verdict".into(), &0.into()));
    assert_eq!(events_of(&world, &id, "restarting")[0]["error"], "no key");
}

/// A loop that is done at once, with a child that lives until the file `go` exists.
fn parent(world: &World) -> String {
    let child = format!("echo $$ > child.pid; {}", wait_for("go"));
    let script = format!("{BANKSMAN} tasks add child --child --run '{child}'; {BANKSMAN} tasks done --output 5");
    add_loop(world, "parent", &script, &[])
}

#[test]
fn a_loop_that_is_done_waits_for_its_children() {
    let world = World::new();
    let id = parent(&world);
    let runner = world.start(&["run", "--until-idle"]);
    until("it waits", || world.data(&["why", &id])["answer"] == "awaiting");
    let child = pid_in(&world, "child.pid");
    let why = world.data(&["why", &id]);
    assert_eq!(why["status"], "in_progress");
    let message = why["message"].as_str().unwrap();
    assert!(message.starts_with("is done except for its children: child (t-") && message.contains("they have"), "{message}");
    assert!(world.task(&id)["run"].is_null(), "no run, no slot and no lock of it is left");
    assert_eq!(events_of(&world, &id, "awaiting")[0]["children"], 1);
    assert!(is_alive(child));
    world.touch("go");
    let said = runner.end();
    assert_eq!((said.code, said.stderr.contains("done, waiting for 1 child\n")), (0, true), "{said:?}");
    let task = world.task(&id);
    assert_eq!((&task["status"], &task["output"], &task["attempts"]), (&"completed".into(), &5.into(), &1.into()));
    let complete = events_of(&world, &id, "complete");
    assert!(complete.len() == 1 && complete[0]["warning"].is_null(), "{complete:?}");
}

#[test]
fn on_children_timeout_warns_fails_or_kills() {
    for policy in ["warn", "fail", "kill"] {
        let world = World::new();
        world.ok(&["config", "set", "loop.child_wait", "1500ms"]);
        world.ok(&["config", "set", "loop.on_children_timeout", policy]);
        let id = parent(&world);
        let _runner = world.runner(&[]);
        let child = pid_in(&world, "child.pid");
        until("it is over", || ["completed", "failed"].contains(&&*world.status(&id)));
        let late = "1 of its children had not ended after 1s500ms";
        let (status, output) = (world.status(&id), world.task(&id)["output"].clone());
        let complete = events_of(&world, &id, "complete");
        match policy {
            "warn" => {
                assert_eq!((&*status, &output, &complete[0]["warning"]), ("completed", &5.into(), &late.into()));
                assert!(is_alive(child), "it is left alone");
            }
            "fail" => {
                assert_eq!((&*status, &world.task(&id)["error"]), ("failed", &late.into()));
                assert!(is_alive(child), "it is left alone");
            }
            _ => {
                assert_eq!((&*status, &output), ("completed", &5.into()));
                assert!(!is_alive(child) && world.status("child") == "cancelled", "first they end");
                assert_eq!(events_of(&world, &id, "ending_children").len(), 1);
                assert!(complete[0]["warning"].is_null());
            }
        }
        world.touch("go");
        until("all is over", || world.everything().backlog.tasks.values().all(|task| task.status().is_over()));
    }
}

#[test]
fn a_loop_that_waits_for_its_children_can_be_failed_or_cancelled() {
    let world = World::new();
    let id = parent(&world);
    let _runner = world.runner(&[]);
    until("it waits", || world.data(&["why", &id])["answer"] == "awaiting");
    let child = pid_in(&world, "child.pid");
    world.ok(&["tasks", "fail", &id, "--error", "the results do not fit"]);
    let task = world.task(&id);
    assert_eq!((&task["status"], &task["error"]), (&"failed".into(), &"the results do not fit".into()));
    assert!(is_alive(child));
    world.touch("go");
    world.until_status("child", "completed");

    let world = World::new();
    let id = parent(&world);
    let _runner = world.runner(&[]);
    until("it waits", || world.data(&["why", &id])["answer"] == "awaiting");
    let child = pid_in(&world, "child.pid");
    world.ok(&["tasks", "cancel", &id]);
    assert_eq!((&*world.status(&id), &*world.status("child"), is_alive(child)), ("cancelled", "cancelled", false));
}

#[test]
fn a_done_file_completes_a_blocked_or_resting_loop() {
    let world = World::new();
    world.ok(&["config", "set", "locking.poll_interval", "100ms"]);
    world.add(&["first", "--run", &wait_for("go")]);
    let id = add_loop(&world, "second", "touch ran", &["--depends-on", "first"]);
    let broken = add_loop(&world, "third", "touch ran", &["--depends-on", "first"]);
    let runner = world.runner(&["--until-idle"]);
    world.until_status("first", "in_progress");
    assert_eq!(world.status(&id), "blocked");
    std::fs::write(done(&world, &id), "").unwrap();
    std::fs::create_dir(done(&world, &broken)).unwrap();
    world.until_status(&id, "completed");
    world.until_status(&broken, "failed");
    assert_eq!(world.status("first"), "in_progress");
    assert!(events_of(&world, &id, "complete")[0]["run"].is_null());
    // The same during a restart delay.
    let rests = add_loop(&world, "rests", "exit 1", &["--restart-delay", "10m"]);
    until("it rests", || resting(&world, &rests).is_some());
    std::fs::write(done(&world, &rests), "").unwrap();
    world.until_status(&rests, "completed");
    world.touch("go");
    assert_eq!(runner.end().code, 7);
    assert!(!world.has("ran"));
}

#[test]
fn a_retry_removes_done_only_if_it_is_accepted() {
    let world = World::new();
    let id = add_loop(&world, "again", &format!("echo x >> tries; {TOUCH}; {}", wait_for("go")), &[]);
    world.touch("go");
    assert_eq!(world.run_all(), 0);
    world.ok(&["tasks", "retry", &id]);
    assert!(!done(&world, &id).exists());
    std::fs::remove_file(world.path().join("go")).unwrap();
    let runner = world.runner(&["--until-idle"]);
    until("it has run again", || done(&world, &id).exists());
    // A refused retry does not remove the file that a run has made.
    let (code, error) = world.error(&["tasks", "retry", &id]);
    assert_ne!(code, 0, "{error}");
    assert!(done(&world, &id).exists());
    world.touch("go");
    assert_eq!(runner.end().code, 0);
    assert_eq!((world.status(&id), world.read("tries").lines().count()), ("completed".into(), 2));
}

#[test]
fn the_restart_delay_survives_a_killed_runner() {
    let world = World::new();
    let id = add_loop(
        &world,
        "goes on",
        "echo $BANKSMAN_ATTEMPT >> tries; exit 1",
        &["--max-attempts", "3", "--restart-delay", "800ms"],
    );
    for number in 1..=2 {
        let runner = world.runner(&[]);
        until("it rests", || row(&world, &id).failures == number && resting(&world, &id).is_some());
        let due = resting(&world, &id);
        runner.kill();
        assert_eq!((resting(&world, &id), row(&world, &id).failures), (due, number));
    }
    assert_eq!(world.run_all(), 7);
    assert_eq!(world.read("tries"), "0\n1\n2\n");
    let numbers: Vec<u64> = events_of(&world, &id, "started").iter().map(|event| event["restart"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [0, 1, 2]);
    assert!(world.task(&id)["error"].as_str().unwrap().starts_with("not done after 3 attempts"));
}

#[test]
fn an_attempt_that_is_lost_with_its_runner_counts_once() {
    let world = World::new();
    let script = format!("echo $$ > pid; test $BANKSMAN_ATTEMPT = 1 && {TOUCH} && exit; {}", wait_for("never"));
    let id = add_loop(&world, "lost", &script, &["--max-attempts", "2"]);
    let runner = world.runner(&[]);
    let child = pid_in(&world, "pid");
    until("its processes are known", || world.everything().backlog.runs.values().any(|run| run.session.is_some()));
    let keeper = world.everything().backlog.runs.values().find_map(|run| run.session.clone()).unwrap().keeper;
    runner.signal(Signal::KILL);
    kill_process(Pid::from_raw(keeper).unwrap(), Signal::KILL).unwrap();
    drop(runner);
    assert_eq!(world.run_all(), 0);
    assert!(!is_alive(child), "nothing of it is left before the next one begins");
    let restarting = events_of(&world, &id, "restarting");
    assert_eq!((restarting.len(), &restarting[0]["why"], &restarting[0]["failures"]), (1, &"lost".into(), &1.into()));
    let task = world.task(&id);
    assert_eq!((&task["status"], &task["attempts"], &task["restarts"]), (&"completed".into(), &2.into(), &1.into()));
    assert_eq!(events_of(&world, &id, "started")[1]["restart"], 1);
}
