//! `banksman sessions`: live sessions, their output, and their end, with and without a runner.

use rustix::process::Signal;
use serde_json::Value;

use crate::world::{Running, World, is_alive, until};

const UNTIL_OPEN: &str = "while [ ! -e open ]; do sleep 0.01; done";

/// Starts a runner with one task, and waits until its command has begun. Returns the runner and the run.
fn live(world: &World, command: &str, more: &[&str]) -> (Running, String) {
    world.ok(&[&["tasks", "add", "Long", "--run", &format!("echo up; {command}")], more].concat());
    let runner = world.start(&["run", "--until-idle"]);
    let first = || world.data(&["sessions", "list"])["sessions"][0].clone();
    until("the command is up", || first()["outputBytes"] == 3);
    (runner, first()["run"].as_str().unwrap().to_owned())
}

fn task(world: &World) -> Value {
    world.data(&["tasks", "list"])["tasks"][0].clone()
}

fn pids(world: &World, run: &str) -> Vec<i32> {
    let shown = world.data(&["sessions", "show", run]);
    let pids = shown["processes"].as_array().unwrap().iter().map(|it| i32::try_from(it["pid"].as_i64().unwrap()).unwrap());
    pids.collect()
}

#[test]
fn a_session_is_listed_shown_and_read_while_it_lives_and_after() {
    let world = World::new();
    assert_eq!(world.data(&["sessions", "list", "--all"])["sessions"], Value::Array(Vec::new()));
    let (runner, run) = live(&world, UNTIL_OPEN, &[]);
    let listed = world.data(&["sessions", "list"])["sessions"][0].clone();
    assert_eq!((&listed["state"], &listed["runnerState"], &listed["title"]), (&"live".into(), &"alive".into(), &"Long".into()));
    assert!(listed["processes"].as_u64().unwrap() >= 1, "{listed}");
    until("the processes are known", || world.data(&["sessions", "list"])["sessions"][0]["childPid"].is_number());
    let shown = world.data(&["sessions", "show", &run]);
    assert!(shown["processes"][0]["command"].as_str().unwrap().contains("echo up"), "{shown}");
    assert_eq!((&shown["log"]["bytes"], &shown["ownerEpoch"]), (&3.into(), &shown["keeperOwnerEpoch"]));
    assert_eq!(world.ok(&["sessions", "logs", &run]), "up\n");
    let follower = world.start(&["sessions", "logs", &run, "--follow"]);
    world.touch("open");
    assert_eq!(runner.end().code, 0);
    assert_eq!(follower.end().stdout, "up\n");
    assert_eq!(world.data(&["sessions", "list"])["sessions"], Value::Array(Vec::new()));
    let ended = world.data(&["sessions", "list", "--all"])["sessions"][0].clone();
    assert_eq!((&ended["state"], &ended["exitCode"], &ended["run"]), (&"ended".into(), &0.into(), &run.as_str().into()));
    assert_eq!(world.data(&["sessions", "show", &run[..5]])["ending"], "exit status 0");
    world.assert_refused(&["sessions", "show", "r-nothing"], 4, "RUN_NOT_FOUND");
}

#[test]
fn kill_ends_all_processes_and_the_runner_continues() {
    let world = World::new();
    let (runner, run) = live(&world, &format!("setsid sh -c '{UNTIL_OPEN}' & {UNTIL_OPEN}"), &[]);
    until("both are up", || pids(&world, &run).len() >= 2);
    let pids = pids(&world, &run);
    let killed = world.data(&["sessions", "kill", &run]);
    assert_eq!((&killed["outcome"], &killed["ending"]), (&"killed".into(), &"killed by signal 15".into()), "{killed}");
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    let task = task(&world);
    assert_eq!((&task["status"], &task["error"]), (&"failed".into(), &"its session was killed".into()));
    assert_eq!(runner.end().code, 7);
    assert_eq!(world.data(&["sessions", "kill", &run])["outcome"], "already_ended");
}

/// The runner that records the end wakes the waiting command, which does not depend on polling.
#[test]
fn kill_returns_when_the_runner_has_recorded_the_end() {
    let world = World::new();
    // No poll comes within the test.
    world.ok(&["config", "set", "locking.poll_interval", "10m"]);
    world.ok(&["config", "set", "task.kill_grace", "1h"]);
    let (runner, run) = live(&world, &format!("trap '' TERM; {UNTIL_OPEN}"), &[]);
    // The other task keeps the runner alive, so that its own end does not wake the command.
    world.ok(&["tasks", "add", "Other", "--run", "while [ ! -e close ]; do sleep 0.01; done"]);
    until("the other runs", || world.data(&["sessions", "list"])["sessions"].as_array().unwrap().len() == 2);
    let killer = world.start(&["sessions", "kill", &run]);
    let rows = || world.everything().tables.backlog;
    until("the killer waits", || rows().runners.values().any(|runner| runner.max_runs == Some(0)));
    until("it is being stopped", || world.data(&["sessions", "show", &run])["state"] == "stopping");
    world.touch("open");
    let said = killer.end();
    assert_eq!(said.code, 0, "{said:?}");
    world.touch("close");
    assert_eq!(runner.end().code, 7);
}

#[test]
fn kill_ends_the_session_itself_if_the_runner_is_gone() {
    let world = World::new();
    world.ok(&["sections", "add", "db", "--exclusive"]);
    let (runner, run) = live(&world, UNTIL_OPEN, &["--section", "db"]);
    let pids = pids(&world, &run);
    runner.kill();
    let waiting = world.data(&["sessions", "kill", &run, "--no-wait"]);
    assert_eq!(waiting["outcome"], "stopping");
    assert!(waiting["note"].as_str().unwrap().starts_with("its runner is gone"), "{waiting}");
    assert!(is_alive(pids[0]), "there is no runner to end it");
    let killed = world.data(&["sessions", "kill", &run]);
    assert_eq!(killed["outcome"], "killed", "{killed}");
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    assert_eq!(task(&world)["status"], "failed");
    assert_eq!(world.data(&["sections", "show", "db"])["holder"], Value::Null);
    // The command was a runner for that time and has left no row. The next runner removes that of the killed one.
    let rows = world.everything();
    assert!(rows.backlog.runners.values().all(|runner| runner.max_runs.is_none()), "{:?}", rows.backlog.runners);
    assert!(rows.backlog.outbox.is_empty(), "{:?}", rows.backlog.outbox);
    assert_eq!(world.run(&["run", "--until-idle"]).code, 7);
    assert_eq!(world.data(&["status"])["runners"], Value::Array(Vec::new()));
}

#[test]
fn kill_ends_the_session_itself_if_runner_and_keeper_are_gone() {
    let world = World::new();
    let (runner, run) = live(&world, &format!("sh -c '{UNTIL_OPEN}' & {UNTIL_OPEN}"), &[]);
    until("both are up", || pids(&world, &run).len() >= 2);
    let pids = pids(&world, &run);
    let keeper = world.data(&["sessions", "show", &run])["keeperPid"].as_i64().unwrap();
    runner.kill();
    rustix::process::kill_process(rustix::process::Pid::from_raw(i32::try_from(keeper).unwrap()).unwrap(), Signal::KILL).unwrap();
    let killed = world.data(&["sessions", "kill", &run]);
    assert_eq!((&killed["outcome"], &killed["ending"]), (&"killed".into(), &"its session was lost".into()), "{killed}");
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
}

#[test]
fn a_waiting_kill_takes_over_when_the_runner_dies() {
    let world = World::new();
    world.ok(&["config", "set", "task.kill_grace", "1h"]);
    let (runner, run) = live(&world, &format!("trap '' TERM; {UNTIL_OPEN}"), &[]);
    let killer = world.start(&["sessions", "kill", &run, "--json"]);
    let state = || world.data(&["sessions", "show", &run]);
    until("it is being stopped", || state()["state"] == "stopping");
    let owner = state()["ownerEpoch"].clone();
    runner.kill();
    until("it is looked after again", || state()["ownerEpoch"] != owner && state()["keeperOwnerEpoch"] == state()["ownerEpoch"]);
    world.touch("open");
    let said = killer.end();
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(task(&world)["status"], "failed");
}

#[test]
fn a_waiting_kill_can_be_interrupted_and_the_next_runner_finishes() {
    let world = World::new();
    world.ok(&["config", "set", "task.kill_grace", "1h"]);
    let (runner, run) = live(&world, &format!("trap '' TERM; {UNTIL_OPEN}"), &[]);
    runner.kill();
    let killer = world.start(&["sessions", "kill", &run]);
    let state = || world.data(&["sessions", "show", &run]);
    until("it is being stopped", || state()["state"] == "stopping");
    assert_eq!(killer.interrupt().code, 130);
    assert_eq!(state()["runnerState"], "gone");
    world.touch("open");
    assert_eq!(world.run(&["run", "--until-idle"]).code, 7);
    assert_eq!(task(&world)["error"], "its session was killed");
}
