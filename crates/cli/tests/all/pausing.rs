//! `stop`, `pause` and `resume`, with and without a live runner.

use rustix::process::Signal;
use serde_json::Value;

use crate::screen::Screen;
use crate::world::{BANKSMAN, Running, World, is_alive, until};

const UNTIL_OPEN: &str = "while [ ! -e open ]; do sleep 0.01; done";

/// Starts a runner, and waits until this many sessions have begun.
fn running(world: &World, sessions: usize) -> Running {
    let runner = world.start(&["run"]);
    until("the sessions have begun", || child_pids(world).len() == sessions);
    runner
}

/// The first processes of the live sessions.
fn child_pids(world: &World) -> Vec<i32> {
    let listed = world.data(&["sessions", "list"])["sessions"].clone();
    let pids = listed.as_array().unwrap().iter().filter_map(|it| it["childPid"].as_i64());
    pids.map(|pid| i32::try_from(pid).unwrap()).collect()
}

fn kinds(world: &World) -> Vec<String> {
    let events = world.data(&["events", "--limit", "1000"])["events"].clone();
    events.as_array().unwrap().iter().map(|it| it["kind"].as_str().unwrap().to_owned()).collect()
}

fn two_tasks(world: &World) {
    world.ok(&["tasks", "add", "Build", "--run", UNTIL_OPEN]);
    world.ok(&["tasks", "add", "Login", "--run", UNTIL_OPEN]);
}

#[test]
fn stop_returns_all_tasks_without_an_attempt_and_pauses_the_project() {
    let world = World::new();
    two_tasks(&world);
    let runner = running(&world, 2);
    let pids = child_pids(&world);
    let stopped = world.data(&["stop"]);
    assert_eq!(stopped["sessions"].as_array().unwrap().len(), 2, "{stopped}");
    assert!(stopped["sessions"].as_array().unwrap().iter().all(|it| it["outcome"] == "stopped" && it["status"] == "pending"));
    assert_eq!(stopped["paused"]["verb"], "stop");
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "the command returns after their death");
    let build = world.task("Build");
    assert_eq!((&build["status"], &build["attempts"]), (&"pending".into(), &0.into()), "{build}");
    let why = world.data(&["why", "Build"]);
    assert_eq!((&why["reasons"][0]["kind"], &why["reasons"][0]["hint"]), (&"paused".into(), &"banksman resume".into()), "{why}");
    assert_eq!(world.data(&["status"])["paused"]["verb"], "stop");
    assert!(world.ok(&["status"]).contains("stopped it"), "{}", world.ok(&["status"]));
    // A stopped task has not failed.
    let picture = world.ok(&["timeline"]);
    assert!(picture.contains('■') && !picture.contains('✗') && !picture.contains("adopted"), "{picture}");
    // The runner lives, and starts nothing before the project is resumed.
    world.ok(&["tasks", "add", "More", "--run", "true"]);
    assert_eq!(world.data(&["sessions", "list"])["sessions"], Value::Array(Vec::new()));
    world.touch("open");
    assert_eq!(world.data(&["resume"])["outcome"], "resumed");
    until("all is done", || world.data(&["status"])["byStatus"]["completed"] == 3);
    assert_eq!(world.task("Build")["attempts"], 1);
    assert_eq!(world.data(&["resume"])["outcome"], "not_paused");
    let said = runner.stop();
    assert!(said.stderr.contains("paused") && said.stderr.contains("resumed"), "{said:?}");
    let kinds = kinds(&world);
    let at = |kind: &str| kinds.iter().position(|it| it == kind).unwrap();
    assert!(!kinds[at("backlog:paused")..at("backlog:resumed")].iter().any(|kind| kind == "task:started"), "{kinds:?}");
}

#[test]
fn stop_works_without_a_runner_and_finishes_a_killed_stop() {
    let world = World::new();
    world.ok(&["config", "set", "task.kill_grace", "1h"]);
    world.ok(&["tasks", "add", "Build", "--run", &format!("trap '' TERM; {UNTIL_OPEN}")]);
    let runner = running(&world, 1);
    let pids = child_pids(&world);
    runner.kill();
    let stop = world.start(&["stop"]);
    until("it is being stopped", || world.data(&["sessions", "list"])["sessions"][0]["state"] == "stopping");
    stop.kill();
    assert!(is_alive(pids[0]));
    assert_eq!(world.data(&["status"])["paused"]["verb"], "stop", "both were one transaction");
    // With --now, processes are killed at once, whatever the grace period.
    let stopped = world.data(&["stop", "--now"]);
    assert_eq!(stopped["sessions"][0]["outcome"], "stopped", "{stopped}");
    assert!(!is_alive(pids[0]));
    assert_eq!(world.task("Build")["attempts"], 0);
}

#[test]
fn stop_now_does_not_wait_for_the_grace_of_a_live_runner() {
    let world = World::new();
    world.ok(&["config", "set", "task.kill_grace", "1h"]);
    world.ok(&["tasks", "add", "Build", "--run", &format!("trap '' TERM; {UNTIL_OPEN}")]);
    let _runner = running(&world, 1);
    assert_eq!(world.data(&["stop", "--no-wait"])["sessions"][0]["outcome"], "stopping");
    assert_eq!(world.data(&["stop", "--now"])["sessions"][0]["outcome"], "stopped");
}

#[test]
fn named_tasks_are_stopped_until_they_are_resumed() {
    let world = World::new();
    two_tasks(&world);
    let runner = running(&world, 2);
    let stopped = world.data(&["stop", "build"]);
    assert_eq!((&stopped["paused"], &stopped["tasks"][0]["outcome"]), (&Value::Null, &"stopped".into()), "{stopped}");
    let why = world.data(&["why", "Build"]);
    assert_eq!(why["reasons"][0]["kind"], "stopped", "{why}");
    assert_eq!((world.task("Build")["attempts"].clone(), child_pids(&world).len()), (0.into(), 1));
    assert!(
        world.data(&["status"])["next"].as_str().unwrap().contains("stopped")
            || world.data(&["status"])["stopped"][0].is_string()
    );
    // Neither a resume of the project nor a new runner resumes the task.
    world.ok(&["resume"]);
    world.touch("open");
    until("the other is done", || world.task("Login")["status"] == "completed");
    runner.signal(Signal::TERM);
    drop(runner);
    let idle = world.run(&["run", "--until-idle"]);
    assert!(idle.code == 7 && idle.stderr.contains("stopped    Build"), "{idle:?}");
    assert_eq!(world.data(&["resume", "Build"])["tasks"][0]["outcome"], "resumed");
    assert_eq!(world.run(&["run", "--until-idle"]).code, 0);
    assert_eq!(world.data(&["stop", "Build"])["tasks"][0]["outcome"], "already_over");
}

#[test]
fn stopped_pipelines_and_loops_resume_with_the_same_phase_and_attempt() {
    let world = World::new();
    let book = format!(
        "[pipeline.p]\n[[pipeline.p.phase]]\nname = \"a\"\nrun = \"{UNTIL_OPEN}\"\n[[pipeline.p.phase]]\nname = \"b\"\nrun = \"true\"\n"
    );
    std::fs::write(world.path().join(".banksman/runbooks/p.toml"), book).unwrap();
    world.ok(&["pipelines", "start", "p", "--title", "Release"]);
    let seen = format!("echo $BANKSMAN_ATTEMPT >> seen; {UNTIL_OPEN}; {BANKSMAN} tasks done");
    world.ok(&["tasks", "add", "Loop", "--run", &seen, "--loop"]);
    let runner = running(&world, 2);
    until("the loop has begun", || world.has("seen"));
    world.ok(&["stop", "Release", "Loop"]);
    assert_eq!(child_pids(&world).len(), 0);
    world.touch("open");
    assert_eq!(world.task("Release")["status"], "in_progress");
    world.ok(&["resume", "Release", "Loop"]);
    until("both are done", || world.data(&["status"])["byStatus"]["completed"] == 2);
    assert_eq!(std::fs::read_to_string(world.path().join("seen")).unwrap(), "0\n0\n");
    runner.signal(Signal::TERM);
    drop(runner);
}

#[test]
fn stop_keeps_the_result_of_a_run_that_has_ended() {
    let world = World::new();
    two_tasks(&world);
    let runner = running(&world, 2);
    runner.kill();
    world.touch("open");
    until("their commands have ended", || child_pids(&world).iter().all(|pid| !is_alive(*pid)));
    world.ok(&["stop"]);
    assert_eq!(world.data(&["status"])["byStatus"]["completed"], 2);
}

#[test]
fn run_resumes_a_project_after_stop_but_not_after_pause() {
    let world = World::new();
    world.ok(&["tasks", "add", "Build", "--run", "true"]);
    assert_eq!(world.data(&["pause"])["outcome"], "paused");
    assert_eq!(world.data(&["pause"])["outcome"], "already_paused");
    world.ok(&["stop"]);
    let said = world.run(&["run", "--until-idle"]);
    assert!(said.code == 7 && said.stderr.contains("banksman resume"), "{said:?}");
    assert_eq!(world.task("Build")["status"], "pending");
    world.ok(&["resume"]);
    world.ok(&["stop"]);
    let said = world.run(&["run", "--until-idle"]);
    assert!(said.code == 0 && said.stderr.contains("resumed"), "{said:?}");
}

#[test]
fn a_run_may_neither_stop_nor_pause_nor_resume() {
    let world = World::new();
    let commands = format!("for verb in stop pause resume; do {BANKSMAN} $verb; echo $? >> seen; done");
    world.ok(&["tasks", "add", "Build", "--run", &commands]);
    assert_eq!(world.run(&["run", "--until-idle"]).code, 0);
    assert_eq!(std::fs::read_to_string(world.path().join("seen")).unwrap(), "5\n5\n5\n");
    assert_eq!(world.data(&["status"])["paused"], Value::Null);
}

#[test]
fn ctrl_c_names_live_sessions_and_a_second_one_stops_them() {
    let world = World::new();
    two_tasks(&world);
    let mut screen = Screen::start(&world, &["run"], 20, 100);
    until("the sessions have begun", || child_pids(&world).len() == 2);
    until("the status line is complete", || screen.text().lines().last().unwrap().contains("2 running · now: Build, Login"));
    screen.press("\x03");
    until("the live sessions are named", || {
        screen.text().contains("2 sessions continue: Build, Login. Stop them: banksman stop.")
    });
    assert!(screen.text().contains("Press Ctrl-C again to stop them now."), "{}", screen.text());
    screen.press("\x03");
    let (_, left) = screen.end();
    assert!(left.contains("stopped Build"), "{left}");
    assert_eq!(world.data(&["status"])["paused"]["verb"], "interrupt");
    assert_eq!((world.task("Build")["status"].clone(), world.task("Build")["attempts"].clone()), ("pending".into(), 0.into()));
}
