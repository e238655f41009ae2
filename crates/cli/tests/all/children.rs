//! Child tasks, and runs that wait for other tasks.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::tasks::wait_for;
use crate::world::{BANKSMAN, World, is_alive, until};

#[test]
fn cancelling_a_parent_ends_its_children_and_their_processes() {
    let world = World::new();
    let grandchild = format!("{BANKSMAN} tasks add grandchild --child --run 'echo $$ > grandchild.pid; sleep 600'");
    let child = format!(
        "{BANKSMAN} tasks add child --child --run 'echo $$ > child.pid; {}; sleep 600'",
        grandchild.replace('\'', r"'\''")
    );
    world.add(&[
        "parent",
        "--run",
        &format!("{child}; {BANKSMAN} tasks add root --run 'sleep 600'; echo $$ > parent.pid; sleep 600"),
    ]);
    let _runner = world.runner(&[]);
    let files = ["parent.pid", "child.pid", "grandchild.pid"];
    until("all of them run", || files.iter().all(|file| world.read(file).ends_with('\n')));
    let pids: Vec<i32> = files.iter().map(|file| world.read(file).trim().parse().unwrap()).collect();
    assert_eq!(world.task("child")["parent"], world.task("parent")["id"]);
    assert_eq!(world.task("parent")["children"][0]["title"], "child");
    assert_eq!(world.data(&["tasks", "list", "--parent", "child"])["tasks"][0]["title"], "grandchild");
    assert!(world.task("root")["parent"].is_null(), "a plain add makes a root, also inside of a run");
    let cancelled = &world.data(&["tasks", "cancel", "parent"])["tasks"][0];
    assert_eq!(
        (&cancelled["outcome"], &cancelled["status"], &cancelled["children"]),
        (&"cancelled".into(), &"cancelled".into(), &2.into())
    );
    for (title, pid) in ["parent", "child", "grandchild"].into_iter().zip(pids) {
        assert_eq!(world.status(title), "cancelled");
        assert!(!is_alive(pid), "{title}");
    }
    world.until_status("root", "in_progress");
    world.ok(&["tasks", "cancel", "root"]);
    assert_eq!(world.data(&["tasks", "cancel", "root"])["tasks"][0]["outcome"], "already_over");
}

#[test]
fn a_parent_waits_for_its_children_with_a_single_slot() {
    let world = World::new();
    world.ok(&["config", "set", "limits.max_concurrent_runs", "1"]);
    let b = BANKSMAN;
    let script = format!(
        "set -e
        one=$({b} tasks add one --child --run '{b} tasks done --output 7' --json | sed 's/.*\"id\":\"\\([^\"]*\\)\".*/\\1/')
        {b} tasks add two --child --run true
        {b} tasks wait $one
        {b} tasks wait two
        {b} semaphores show runs --json > slots"
    );
    world.add(&["parent", "--run", &script]);
    let runner = world.runner(&["--max-runs", "1"]);
    world.until_status("parent", "completed");
    drop(runner);
    let slots: Value = serde_json::from_str(&world.read("slots")).unwrap();
    let run = world.task("parent")["runs"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(slots["data"]["holders"][0]["holder"], format!("run:{run}"), "the run has its slot again before it continues");
    assert_eq!(world.data(&["semaphores", "show", "runs"])["available"], 1);
    assert_eq!(world.task("one")["output"], 7);
    // At most one run held the slot at any time.
    let mut held = 0;
    for event in world.events().iter().filter(|event| event.source.id.as_deref() == Some("runs")) {
        match event.kind.as_str() {
            "semaphore:acquired" => held += 1,
            "semaphore:released" | "semaphore:offer_lapsed" => held -= 1,
            _ => {}
        }
        assert!((0..=1).contains(&held), "{event:?}");
    }
}

#[test]
fn the_first_of_two_waits_of_a_run_does_not_keep_the_slot() {
    let world = World::new();
    world.ok(&["config", "set", "limits.max_concurrent_runs", "1"]);
    let b = BANKSMAN;
    let script = format!(
        "{b} tasks add one --child --run '{}'
        {b} tasks add two --child --run true --depends-on gate
        {b} tasks wait two &
        {}
        ({b} tasks wait one; touch one.over) &
        wait",
        wait_for("one.go"),
        wait_for("go"),
    );
    world.add(&["gate"]);
    world.add(&["parent", "--run", &script]);
    let _runner = world.runner(&[]);
    until("the first child is at work", || {
        let tasks = world.data(&["tasks", "list", "--status", "in_progress"]);
        tasks["tasks"].as_array().unwrap().iter().any(|task| task["title"] == "one")
    });
    world.touch("go");
    // By then the second wait has begun on most machines; if it begins later, the test covers less.
    (0..5).for_each(|_| drop(world.task("one")));
    world.touch("one.go");
    until("the second wait is over", || world.has("one.over"));
    world.ok(&["tasks", "done", "gate"]);
    world.until_status("parent", "completed");
    assert_eq!(world.status("two"), "completed");
    assert_eq!(world.data(&["semaphores", "show", "runs"])["available"], 1);
}

#[test]
fn a_kill_while_a_parent_waits_leaves_no_slot_behind() {
    let world = World::new();
    world.ok(&["config", "set", "limits.max_concurrent_runs", "1"]);
    let parent = |child: &str| {
        format!(
            "{BANKSMAN} tasks add {child} --child --run '{}'
            {BANKSMAN} tasks wait {child} & echo $! > {child}.wait; wait; {}",
            wait_for(&format!("{child}.go")),
            wait_for(&format!("{child}.end")),
        )
    };
    let _runner = world.runner(&[]);
    let kill = |file: &str| kill_process(Pid::from_raw(world.read(file).trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    let until_waiters = |length: usize| {
        until("waiters for a slot", || world.data(&["semaphores", "show", "runs"])["line"].as_array().unwrap().len() == length);
    };
    // The waiting process is killed while the child is at work: the run continues without a slot.
    world.add(&["first parent", "--run", &parent("first")]);
    until("the child is at work", || {
        world.data(&["tasks", "list", "--status", "in_progress"])["tasks"].as_array().unwrap().len() == 2
    });
    kill("first.wait");
    world.touch("first.go");
    world.until_status("first", "completed");
    // The waiting process is killed while it waits for its slot: it leaves no waiter behind.
    world.add(&["second parent", "--run", &parent("second")]);
    until("the child is at work", || {
        world.data(&["tasks", "list", "--status", "in_progress"])["tasks"].as_array().unwrap().len() == 3
    });
    world.add(&["urgent", "--run", &wait_for("urgent.go"), "--priority", "9"]);
    // The runner has seen this task before the child releases its slot.
    world.touch("first.end");
    world.until_status("first parent", "completed");
    world.touch("second.go");
    world.until_status("urgent", "in_progress");
    until_waiters(1);
    kill("second.wait");
    world.add(&["next", "--run", "true"]);
    world.touch("urgent.go");
    world.until_status("next", "completed");
    // The run is ended while it waits.
    world.add(&["third parent", "--run", &parent("third")]);
    until("the child is at work", || {
        world.data(&["tasks", "list", "--status", "in_progress"])["tasks"].as_array().unwrap().len() == 3
    });
    world.ok(&["tasks", "cancel", "third parent"]);
    assert_eq!(world.status("third"), "cancelled");
    assert_eq!(world.data(&["semaphores", "show", "runs"])["available"], 1);
    world.touch("second.end");
    world.until_status("second parent", "completed");
    assert_eq!(world.data(&["semaphores", "show", "runs"])["available"], 1);
}

#[test]
fn a_run_cannot_wait_for_itself_or_its_dependents() {
    let world = World::new();
    let own = world.add(&[
        "own",
        "--run",
        &format!("{BANKSMAN} tasks wait own; echo $? > self; {BANKSMAN} tasks wait last; echo $? > last"),
    ]);
    world.add(&["middle", "--run", "true", "--depends-on", &own]);
    world.add(&["last", "--run", "true", "--depends-on", "middle"]);
    assert_eq!(world.run_all(), 0);
    assert_eq!((world.read("self").trim(), world.read("last").trim()), ("9", "9"));
}
