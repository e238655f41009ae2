//! `banksman why` from the command line. `causes.rs` tests with random situations that it is true.

use rustix::process::Signal;
use serde_json::Value;

use crate::world::{World, until};

/// A command that runs until the file `open` exists.
const UNTIL_OPEN: &str = "while [ ! -e open ]; do sleep 0.01; done";

fn why(world: &World, task: &str) -> Value {
    world.data(&["why", task])
}

pub(crate) fn kinds(why: &Value) -> Vec<&str> {
    why["reasons"].as_array().unwrap().iter().map(|reason| reason["kind"].as_str().unwrap()).collect()
}

fn until_answer(world: &World, task: &str, answer: &str) -> Value {
    until(&format!("{task} is {answer}"), || why(world, task)["answer"] == answer);
    why(world, task)
}

#[test]
fn why_follows_a_chain_of_dependencies_to_its_end() {
    let world = World::new();
    let compile = world.add(&["Compile", "--run", "exit 3"]);
    let build = world.add(&["Build", "--run", "true", "--depends-on", "Compile"]);
    let test = world.add(&["Test", "--run", "true", "--depends-on", "Build"]);
    assert_eq!(kinds(&why(&world, &test)), ["dependency", "no_runner"]);
    assert_eq!(world.run(&["run", "--until-idle"]).code, 7);
    let answer = why(&world, &test);
    assert_eq!((answer["status"].as_str(), kinds(&answer)), (Some("blocked"), vec!["dependency", "no_runner"]));
    let reason = &answer["reasons"][0];
    let ids: Vec<&str> = reason["chain"].as_array().unwrap().iter().map(|link| link["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [&build, &compile]);
    let message = reason["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("waits for Build ({build}), which waits for Compile ({compile}), which failed")));
    assert!(message.ends_with("ago: exit status 3"), "{message}");
    assert_eq!(reason["hint"], format!("banksman tasks retry {compile}"));
    let answer = why(&world, &compile);
    assert_eq!((&answer["answer"], &answer["error"]), (&"finished".into(), &"exit status 3".into()));
    assert_eq!((&answer["run"]["exitCode"], &answer["run"]["attempt"]), (&3.into(), &0.into()));
}

#[test]
fn why_names_the_duration_and_the_runner_of_a_run() {
    let world = World::new();
    let task = world.add(&["Long", "--run", UNTIL_OPEN]);
    let runner = world.start(&["run", "--until-idle"]);
    let answer = until_answer(&world, &task, "running");
    assert_eq!(answer["run"]["runnerState"], "alive");
    assert!(answer["message"].as_str().unwrap().starts_with("has been running for"), "{answer}");
    runner.signal(Signal::KILL);
    until("the runner is gone", || why(&world, &task)["run"]["runnerState"] == "gone");
    let message = why(&world, &task)["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with("its runner is gone; the next runner will adopt it"), "{message}");
    // A dependent reports it, too.
    let next = world.add(&["Next", "--run", "true", "--depends-on", &task]);
    let reason = why(&world, &next)["reasons"][0]["message"].as_str().unwrap().to_owned();
    assert!(reason.contains("which has been running for") && reason.contains("its runner is gone"), "{reason}");
    world.touch("open");
    assert_eq!(world.run(&["run", "--until-idle"]).code, 0);
    let answer = why(&world, &task);
    assert_eq!((&answer["answer"], &answer["run"]["exitCode"]), (&"finished".into(), &0.into()));
}

#[test]
fn why_names_the_outcome_of_a_stopping_task() {
    let world = World::new();
    let task = world.add(&["Stubborn", "--run", &format!("trap '' TERM; echo up; {UNTIL_OPEN}")]);
    let runner = world.start(&["run", "--until-idle"]);
    until("it is up", || world.run(&["tasks", "logs", &task]).stdout.contains("up"));
    world.ok(&["tasks", "cancel", &task, "--no-wait"]);
    let answer = until_answer(&world, &task, "stopping");
    assert_eq!(answer["then"], "it is cancelled");
    world.touch("open");
    assert_eq!(runner.end().code, 7);
    let answer = why(&world, &task);
    assert_eq!((&answer["answer"], &answer["status"]), (&"finished".into(), &"cancelled".into()));
}

#[test]
fn why_names_the_holders_of_slots_and_the_position() {
    let world = World::new();
    world.ok(&["config", "set", "limits.max_concurrent_runs", "1"]);
    let first = world.add(&["First", "--run", UNTIL_OPEN, "--priority", "9"]);
    let runner = world.start(&["run", "--until-idle"]);
    let run = until_answer(&world, &first, "running")["run"]["id"].clone();
    let low = world.add(&["Low", "--run", "true"]);
    world.add(&["High", "--run", "true", "--priority", "5"]);
    world.add(&["Same", "--run", "true"]);
    // A blocked task is not counted as ahead.
    world.add(&["Blocked", "--run", "true", "--priority", "5", "--depends-on", "First"]);
    let answer = why(&world, &low);
    let reason = &answer["reasons"][0];
    assert_eq!((kinds(&answer), &reason["place"]), (vec!["no_slot"], &2.into()), "{answer}");
    assert_eq!((&reason["holders"][0]["run"], &reason["holders"][0]["title"]), (&run, &"First".into()));
    let status = world.data(&["status"]);
    assert_eq!((&status["queuedRuns"], &status["slots"]["limit"]), (&3.into(), &1.into()), "{status}");
    world.touch("open");
    assert_eq!(runner.end().code, 0);
}

#[test]
fn why_names_full_runners_and_runners_of_other_sections() {
    let world = World::new();
    world.ok(&["sections", "add", "docs"]);
    let first = world.add(&["First", "--run", UNTIL_OPEN, "--section", "docs"]);
    let second = world.add(&["Second", "--run", "true", "--section", "docs"]);
    let third = world.add(&["Third", "--run", "true"]);
    let runner = world.start(&["run", "--max-runs", "1", "--section", "docs"]);
    until_answer(&world, &first, "running");
    let answer = why(&world, &second);
    assert_eq!((kinds(&answer), &answer["reasons"][0]["place"]), (vec!["no_free_runner"], &1.into()), "{answer}");
    let message = answer["reasons"][0]["message"].as_str().unwrap();
    assert!(message.ends_with("has reached its limit of 1 run"), "{message}");
    let answer = why(&world, &third);
    let message = answer["reasons"][0]["message"].as_str().unwrap();
    assert!(message.contains("works only in docs and has reached its limit of 1 run"), "{message}");
    world.touch("open");
    until_answer(&world, &second, "finished");
    assert_eq!(kinds(&why(&world, &third)), ["no_free_runner"]);
    assert_eq!(runner.stop().code, 0);
    assert_eq!(kinds(&why(&world, &third)), ["no_runner"]);
}

#[test]
fn an_exclusive_section_is_no_obstacle_for_the_runner_that_has_it() {
    let world = World::new();
    world.ok(&["sections", "add", "db", "--exclusive"]);
    let first = world.add(&["First", "--run", UNTIL_OPEN, "--section", "db"]);
    let holder = world.start(&["run", "--max-runs", "1"]);
    until_answer(&world, &first, "running");
    let waiter = world.start(&["run"]);
    until("two runners", || world.data(&["status"])["runners"].as_array().unwrap().len() == 2);
    let second = world.add(&["Second", "--run", "true", "--section", "db"]);
    // One of the runners is full, and the other is kept out.
    let answer = why(&world, &second);
    assert_eq!(kinds(&answer), ["no_free_runner"], "{answer}");
    let runners = answer["reasons"][0]["runners"].as_array().unwrap();
    let said: Vec<&str> =
        runners.iter().flat_map(|it| it["obstacles"].as_array().unwrap()).map(|it| it.as_str().unwrap()).collect();
    assert!(said.contains(&"has reached its limit of 1 run"), "{said:?}");
    assert!(said.iter().any(|it| it.starts_with("waits for section db, where run r-")), "{said:?}");
    // A killed runner leaves its run in the section until the other runner adopts it.
    holder.signal(Signal::KILL);
    until_answer(&world, &second, "finished");
    world.touch("open");
    until_answer(&world, &first, "finished");
    assert_eq!(waiter.stop().code, 0);
}

#[test]
fn why_names_actions_for_people() {
    let world = World::new();
    let by_hand = world.add(&["Call them"]);
    let answer = why(&world, &by_hand);
    assert_eq!(kinds(&answer), ["by_hand"], "no runner is missed for it: {answer}");
    assert_eq!(answer["reasons"][0]["hint"], format!("banksman tasks done {by_hand}"));
    let needs = world.add(&["Train", "--run", "true", "--semaphore", "gpu"]);
    assert_eq!(kinds(&why(&world, &needs)), ["undefined", "no_runner"]);
    world.ok(&["semaphores", "define", "gpu", "--capacity", "1"]);
    world.ok(&["semaphores", "acquire", "gpu", "--holder", "me", "--ttl", "1h"]);
    let answer = why(&world, &needs);
    assert_eq!((kinds(&answer), &answer["reasons"][0]["holders"][0]["holder"]), (vec!["slots", "no_runner"], &"me".into()));
    world.assert_refused(&["why", "nothing"], 4, "TASK_NOT_FOUND");
    world.add(&["Call them"]);
    assert_eq!(world.error(&["why", "Call them"]).0, 2);
}
