//! How the guards of pipelines are polled: how long a result is valid, and what happens during a check.

use std::fs;

use crate::held_up::state;
use crate::runbooks;
use crate::world::{World, is_alive, until, write_program};

/// Starts a pipeline of one phase with these lines and a guard with these.
fn begin(world: &World, phase: &str, guard: &str) {
    let text = format!("[pipeline.way]\n[[pipeline.way.phase]]\nname = \"one\"\n{phase}\n[guard.guard]\n{guard}\n");
    runbooks::write(world, "book", &text);
    world.ok(&["pipelines", "start", "way"]);
}

#[test]
fn a_guard_command_runs_again_after_the_phase_although_fresh() {
    let world = World::new();
    begin(
        &world,
        r#"run = "touch junk"
pre = "guard"
post = "guard""#,
        r#"condition = { command = "echo >> asked; test ! -e junk" }
on_failure = { fail = "it left junk" }
fresh_for = "1h""#,
    );
    assert_eq!(world.run_all(), 7);
    assert_eq!((state(&world).as_str(), world.lines("asked").len()), ("failed", 2));
}

#[test]
fn a_change_during_a_guard_check_is_not_lost() {
    let world = World::new();
    let issue = world.add(&["issue", "--label", "wanted"]);
    begin(
        &world,
        r#"run = "true"
pre = "guard""#,
        r#"condition = { any = [{ issues_complete = { label = "wanted" } }, { command = "echo >> asked; sleep 600" }] }
timeout = "3s"
fresh_for = "1h""#,
    );
    let _runner = world.runner(&[]);
    until("it is held up", || state(&world) == "blocked");
    world.add(&["another"]);
    // The issues are read long before the command times out.
    until("the guard is checked again", || world.lines("asked").len() == 2);
    world.ok(&["tasks", "done", &issue]);
    until("it is done", || state(&world) == "done");
}

#[test]
fn guard_commands_are_ended_when_their_result_is_not_needed() {
    let world = World::new();
    let runner = world.runner(&[]);
    let running = |pipelines: usize| {
        begin(
            &world,
            r#"run = "true"
pre = "guard""#,
            r#"condition = { command = "sleep 600 & echo $! >> pids; echo $$ >> pids; wait" }
timeout = "1h""#,
        );
        until("the guard is checked", || world.lines("pids").len() == 2 * pipelines);
        let id = world.data(&["pipelines", "list"])["pipelines"][pipelines - 1]["id"].as_str().unwrap().to_owned();
        let pids = world.read("pids").lines().skip(2 * (pipelines - 1)).map(|pid| pid.parse().unwrap()).collect();
        (id, pids)
    };
    let gone = |pids: &Vec<i32>| until("they are gone", || !pids.iter().copied().any(is_alive));
    let (id, pids) = running(1);
    world.ok(&["pipelines", "cancel", &id]);
    gone(&pids);
    let (id, pids) = running(2);
    world.ok(&["pipelines", "unblock", &id]);
    gone(&pids);
    until("the pipeline is done", || world.data(&["pipelines", "list"])["pipelines"][1]["state"] == "done");
    // A runner that is stopped ends the commands, too.
    let (_, pids) = running(3);
    assert_eq!(runner.stop().code, 0);
    gone(&pids);
}

#[test]
fn an_unknown_guard_result_blocks_and_does_not_fail() {
    let world = World::new();
    begin(
        &world,
        r#"run = "true"
pre = "guard""#,
        r#"condition = { command = { argv = ["./tool"] } }
on_failure = { fail = "the tool says no" }
fresh_for = "0s""#,
    );
    let runner = world.runner(&["--until-idle"]);
    until("it is held up", || state(&world) == "blocked");
    let id = world.data(&["pipelines", "list"])["pipelines"][0]["id"].as_str().unwrap().to_owned();
    for text in [world.ok(&["why", &id]), world.ok(&["pipelines", "show", &id])] {
        assert!(text.contains("not known: command `./tool` could not be started"), "{text}");
    }
    let (code, error) = world.error(&["guards", "check", "guard"]);
    assert_eq!((code, &error["details"]["action"]), (6, &"block".into()), "{error}");
    assert!(error["message"].as_str().unwrap().starts_with("guard guard does not pass: not known: command"), "{error}");
    // Renamed into place: a file that is still open for writing cannot be executed, and the result would be unknown again.
    write_program(&world.path().join("new"), "#!/bin/sh\nexit 1\n");
    fs::rename(world.path().join("new"), world.path().join("tool")).unwrap();
    assert_eq!((runner.end().code, state(&world).as_str()), (7, "failed"));
    assert_eq!(world.error(&["guards", "check", "guard"]).1["details"]["action"], "fail");
}

#[test]
fn a_guard_with_retry_runs_its_command_again() {
    let world = World::new();
    begin(
        &world,
        r#"run = "true"
pre = "guard""#,
        r#"condition = { command = "echo >> asked; test $(wc -l < asked) -ge 3" }
on_failure = { retry = "1s" }
fresh_for = "1h""#,
    );
    assert_eq!(world.run_all(), 0);
    assert_eq!((state(&world).as_str(), world.lines("asked").len()), ("done", 3));
}
