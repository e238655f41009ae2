//! The limit of root tasks under way, in the order of their arrival.

use std::collections::BTreeSet;

use banksman_core::task::roots;
use banksman_store::EventRow;
use serde_json::Value;

use crate::loops::{add_loop, events_of, row};
use crate::tasks::wait_for;
use crate::world::{BANKSMAN, World, until};

fn world(limit: &str) -> World {
    let world = World::new();
    world.ok(&["config", "set", "limits.max_concurrent_root_tasks", limit]);
    world
}

/// The tasks in the order in which their runs began.
fn order(world: &World) -> Vec<String> {
    let started = world.events().into_iter().filter(|event| event.kind == "task:started");
    started.map(|event| world.task(event.source.id.as_deref().unwrap())["title"].as_str().unwrap().to_owned()).collect()
}

/// The maximum number of roots under way at a time, from the log: a root counts from its start to the end of its last run, also while it
/// rests or waits for its children.
fn max_under_way(events: &[EventRow]) -> usize {
    let mut children = BTreeSet::new();
    let mut under_way = BTreeSet::new();
    let mut most = 0;
    for event in events {
        let Some(id) = event.source.id.as_deref() else { continue };
        match event.kind.as_str() {
            "task:added" if !event.data["spec"]["parent"].is_null() => drop(children.insert(id)),
            "task:started" if !children.contains(id) => drop(under_way.insert(id)),
            "task:complete" | "task:failed" | "task:cancelled" | "escalate" => drop(under_way.remove(id)),
            _ => {}
        }
        most = most.max(under_way.len());
    }
    most
}

/// The number of roots that hold a place now.
fn under_way(world: &World) -> usize {
    world.everything().backlog.tasks.values().filter(|task| roots::is_under_way(task)).count()
}

#[test]
fn roots_start_in_order_of_arrival_up_to_the_limit_despite_priorities() {
    let world = world("2");
    let titles: Vec<String> = (0..crate::postgres::sized(40)).map(|number| format!("n{number:02}")).collect();
    for (number, title) in titles.iter().enumerate() {
        world.add(&[title, "--run", "sleep 0.01", "--priority", &(number % 5).to_string()]);
    }
    let runners = [0; 3].map(|_| world.runner(&["--until-idle"]));
    for runner in runners {
        assert_eq!(runner.end().code, 0);
    }
    assert_eq!(max_under_way(&world.events()), 2);
    assert_eq!(order(&world), titles);
}

#[test]
fn add_reports_the_position_of_a_root_and_why_names_the_limit() {
    let world = world("1");
    let added = world.data(&["tasks", "add", "early", "--run", &wait_for("go")]);
    assert_eq!(
        (&added["admission"], &added["queuePosition"], &added["runnerAlive"]),
        (&"queued".into(), &1.into(), &false.into())
    );
    let said = world.run(&["tasks", "add", "told", "--run", "true"]);
    assert!(said.stdout.contains("queued; no runner is running"), "{said:?}");
    assert_eq!(world.data(&["why", "told"])["reasons"][0]["place"], 2);
    let runner = world.runner(&["--until-idle"]);
    world.until_status("early", "in_progress");
    let added = world.data(&["tasks", "add", "urgent", "--run", "true", "--priority", "9"]);
    assert_eq!((&added["admission"], &added["runnerAlive"]), (&"queued".into(), &true.into()), "{added}");
    assert_eq!(added["queuePosition"], 2, "the one that came before it goes first: {added}");
    let why = world.data(&["why", "urgent"]);
    let reason = &why["reasons"][0];
    assert_eq!((&reason["kind"], &reason["holders"][0]["title"]), (&"no_root_slot".into(), &"early".into()), "{why}");
    assert!(reason["message"].as_str().unwrap().starts_with("1 of 1 roots are in progress: early (t-"), "{why}");
    assert_eq!(reason["place"], 2);
    world.touch("go");
    assert_eq!(runner.end().code, 0);
    assert_eq!(order(&world), ["early", "told", "urgent"]);
    let runner = world.runner(&[]);
    until("the runner is known", || world.data(&["status"])["runners"].as_array().unwrap().len() == 1);
    let added = world.data(&["tasks", "add", "free", "--run", "true"]);
    assert_eq!((&added["admission"], &added["queuePosition"]), (&"started".into(), &Value::Null), "{added}");
    world.until_status("free", "completed");
    drop(runner);
}

#[test]
fn children_need_no_root_place_and_run_first() {
    let world = world("1");
    let script = format!(
        "set -e
        {BANKSMAN} tasks add child --child --run {BANKSMAN}' tasks add grandchild --child --run true'
        {BANKSMAN} tasks wait child
        {BANKSMAN} tasks wait grandchild"
    );
    world.add(&["parent", "--run", &script]);
    world.add(&["next", "--run", "true", "--priority", "9"]);
    assert_eq!(world.run_all(), 0);
    assert_eq!(order(&world), ["parent", "child", "grandchild", "next"]);
    assert_eq!(max_under_way(&world.events()), 1);
}

#[test]
fn a_root_that_waits_for_a_resource_takes_no_place() {
    let world = world("1");
    world.ok(&["locks", "acquire", "deploy", "--holder", "me", "--ttl", "10m"]);
    world.add(&["for people"]);
    world.add(&["waits for a lock", "--run", "true", "--lock", "deploy"]);
    world.add(&["waits for people", "--run", "true", "--depends-on", "for people"]);
    world.add(&["free", "--run", "true"]);
    let runner = world.runner(&["--until-idle"]);
    world.until_status("free", "completed");
    assert_eq!(order(&world), ["free"]);
    // Neither does a task whose dependency waits for a person.
    world.ok(&["tasks", "done", "for people"]);
    world.until_status("waits for people", "completed");
    world.ok(&["locks", "release", "deploy", "--force"]);
    assert_eq!(runner.end().code, 0);
    assert_eq!(order(&world), ["free", "waits for people", "waits for a lock"]);
}

#[test]
fn a_root_that_waits_for_a_decision_takes_no_place() {
    let world = world("1");
    for (key, value) in [("task.silence_timeout", "1s"), ("task.max_recovery_attempts", "0")] {
        world.ok(&["config", "set", key, value]);
    }
    let silent = world.add(&["silent", "--run", "sleep 600"]);
    world.add(&["next", "--run", "true"]);
    assert_eq!(world.run_all(), 7);
    assert_eq!((&*world.status(&silent), &*world.status("next")), ("blocked", "completed"));
    assert_eq!(max_under_way(&world.events()), 1);
}

#[test]
fn a_loop_keeps_its_place_while_it_rests_or_waits_for_children() {
    let world = world("1");
    let child = format!("{BANKSMAN} tasks add child --child --run '{}'", wait_for("go"));
    let script = format!("test $BANKSMAN_ATTEMPT = 2 && {child} && touch \"$BANKSMAN_TASK_DIR/DONE\"");
    let id = add_loop(&world, "loop", &script, &["--restart-delay", "300ms"]);
    let next = world.add(&["next", "--run", "true", "--priority", "9"]);
    let runner = world.runner(&["--until-idle"]);
    until("it waits for its child", || world.data(&["why", &id])["answer"] == "awaiting");
    world.until_status("child", "in_progress");
    assert_eq!((world.status(&next), under_way(&world)), ("pending".into(), 1));
    assert_eq!(world.data(&["status"])["queuedRuns"], 1);
    assert_eq!(world.data(&["why", &next])["reasons"][0]["holders"][0]["title"], "loop");
    world.touch("go");
    assert_eq!(runner.end().code, 0);
    assert_eq!(order(&world), ["loop", "loop", "loop", "child", "next"]);
    assert_eq!(max_under_way(&world.events()), 1);
}

#[test]
fn a_root_between_two_attempts_is_not_overtaken() {
    let world = world("1");
    world.add(&["retried", "--run", "test $BANKSMAN_ATTEMPT = 2", "--retries", "2"]);
    add_loop(&world, "loop", "test $BANKSMAN_ATTEMPT = 1 && touch \"$BANKSMAN_TASK_DIR/DONE\"", &["--restart-delay", "0s"]);
    world.add(&["next", "--run", "true", "--priority", "9"]);
    assert_eq!(world.run_all(), 0);
    assert_eq!(order(&world), ["retried", "retried", "retried", "loop", "loop", "next"]);
}

#[test]
fn a_new_root_limit_counts_roots_under_way() {
    let world = World::new();
    for number in 1..=3 {
        world.add(&[&format!("old {number}"), "--run", &wait_for(&format!("go-{number}"))]);
    }
    let first = world.runner(&[]);
    until("all three run", || under_way(&world) == 3);
    world.ok(&["config", "set", "limits.max_concurrent_root_tasks", "2"]);
    assert_eq!(first.stop().code, 0);
    let runner = world.runner(&["--until-idle"]);
    until("the runs are adopted", || world.count("task:adopted") == 3);
    let added = world.data(&["tasks", "add", "new", "--run", "true"]);
    assert_eq!((&added["admission"], &added["queuePosition"]), (&"queued".into(), &1.into()), "{added}");
    let why = world.data(&["why", "new"]);
    assert!(why["reasons"][0]["message"].as_str().unwrap().starts_with("3 of 2 roots are in progress: "), "{why}");
    world.touch("go-1");
    world.until_status("old 1", "completed");
    assert_eq!((world.status("new"), under_way(&world)), ("pending".into(), 2), "two of two are left");
    world.touch("go-2");
    world.until_status("new", "completed");
    assert_eq!(world.status("old 3"), "in_progress");
    world.touch("go-3");
    assert_eq!(runner.end().code, 0);
}

#[test]
fn a_queued_loop_that_is_done_leaves_the_queue() {
    let world = world("1");
    world.ok(&["config", "set", "locking.poll_interval", "100ms"]);
    world.add(&["first", "--run", &wait_for("go")]);
    let done = add_loop(&world, "done", "touch ran", &[]);
    world.add(&["last", "--run", "true"]);
    let runner = world.runner(&["--until-idle"]);
    world.until_status("first", "in_progress");
    let folder = world.path().join(".banksman/tasks").join(&done);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("DONE"), "").unwrap();
    world.until_status("done", "completed");
    assert_eq!(world.status("first"), "in_progress");
    let complete = events_of(&world, &done, "complete");
    assert!(complete.len() == 1 && complete[0]["run"].is_null(), "{complete:?}");
    assert_eq!(world.data(&["why", "last"])["reasons"][0]["place"], 1);
    world.touch("go");
    assert_eq!(runner.end().code, 0);
    assert_eq!((order(&world), world.has("ran")), (vec!["first".to_owned(), "last".into()], false));
}

#[test]
fn root_places_and_their_order_survive_killed_runners() {
    let world = world("2");
    for number in 0..6 {
        let run = format!("echo {number} >> begun; {}", wait_for(&format!("go-{number}")));
        world.add(&[&format!("n{number}"), "--run", &run, "--priority", &number.to_string()]);
    }
    for round in 0..3 {
        let runner = world.runner(&[]);
        until("two have begun", || world.read("begun").lines().count() == round * 2 + 2);
        runner.kill();
        assert_eq!(under_way(&world), 2);
        // The tasks end while there is no runner.
        world.touch(&format!("go-{}", round * 2));
        world.touch(&format!("go-{}", round * 2 + 1));
    }
    assert_eq!(world.run_all(), 0);
    assert_eq!(order(&world), ["n0", "n1", "n2", "n3", "n4", "n5"]);
    assert_eq!(max_under_way(&world.events()), 2);
    let id = world.task("n0")["id"].as_str().unwrap().to_owned();
    assert_eq!(row(&world, &id).attempts, 1);
}
