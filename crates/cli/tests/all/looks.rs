//! How the guards of pipelines are looked at: what an answer of the world outside is good for, and what happens meanwhile.

use std::fs;

use crate::runbooks;
use crate::tasks::Backlog;
use crate::world::{World, until};

fn state(world: &World) -> String {
    world.data(&["pipelines", "list"])["pipelines"][0]["state"].as_str().unwrap().to_owned()
}

fn lines(world: &World, file: &str) -> usize {
    fs::read_to_string(world.path().join(file)).unwrap_or_default().lines().count()
}

/// Starts a pipeline of one phase, with these lines, and a guard with those.
fn begin(world: &World, phase: &str, guard: &str) {
    let text = format!("[pipeline.way]\n[[pipeline.way.phase]]\nname = \"one\"\n{phase}\n[guard.guard]\n{guard}\n");
    runbooks::write(world, "book", &text);
    world.ok(&["pipelines", "start", "way"]);
}

#[test]
fn what_a_command_said_before_a_phase_says_nothing_about_what_comes_after_it() {
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
    assert_eq!((state(&world).as_str(), lines(&world, "asked")), ("failed", 2));
}

#[test]
fn what_happens_while_a_guard_is_looked_at_is_not_lost() {
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
    // The issues are read long before the command is given up.
    until("the guard is looked at again", || lines(&world, "asked") == 2);
    world.ok(&["tasks", "done", &issue]);
    until("it is done", || state(&world) == "done");
    world.check();
}

#[test]
fn a_command_that_is_to_be_tried_again_runs_again() {
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
    assert_eq!((state(&world).as_str(), lines(&world, "asked")), ("done", 3));
}
