//! The verbs of sections.

use rustix::process::Signal;

use crate::world::{World, until};

#[test]
fn sections_are_added_changed_shown_and_deleted() {
    let world = World::new();
    let added = world.data(&["sections", "add", "backend"]);
    let id = added["id"].as_str().unwrap();
    assert_eq!((&added["name"], &added["exclusive"]), (&"backend".into(), &false.into()));
    world.ok(&["sections", "add", "database", "--exclusive"]);
    world.ok(&["tasks", "add", "one", "--section", "backend"]);
    world.ok(&["tasks", "add", "two", "--section", id, "--depends-on", "one"]);
    world.ok(&["tasks", "add", "elsewhere"]);
    let list = world.data(&["sections", "list"]);
    assert_eq!((&list["sections"][0]["name"], &list["sections"][0]["tasks"]), (&"backend".into(), &2.into()));
    assert_eq!(
        (&list["sections"][0]["byStatus"]["pending"], &list["sections"][0]["byStatus"]["blocked"]),
        (&1.into(), &1.into())
    );
    assert_eq!((&list["sections"][1]["exclusive"], &list["sections"][1]["tasks"]), (&true.into(), &0.into()));
    assert_eq!(world.data(&["sections", "update", &id[..6], "--name", "server"])["name"], "server");
    assert_eq!(world.data(&["sections", "update", "server", "--exclusive"])["exclusive"], true);
    assert_eq!(world.data(&["sections", "update", "server", "--exclusive", "false"])["exclusive"], false);
    assert_eq!(world.data(&["sections", "show", "server"])["recentEvents"].as_array().unwrap().len(), 4);
    world.assert_refused(&["sections", "delete", "server"], 2, "SECTION_NOT_EMPTY");
    world.ok(&["tasks", "update", "one", "--section", "database"]);
    world.ok(&["tasks", "update", "two", "--no-section"]);
    world.ok(&["sections", "delete", "server"]);
    assert_eq!(world.data(&["sections", "list"])["sections"].as_array().unwrap().len(), 1);
}

#[test]
fn wrong_use_is_refused_with_a_code() {
    let world = World::new();
    world.ok(&["sections", "add", "a"]);
    world.ok(&["sections", "add", "b"]);
    world.assert_refused(&["sections", "add", "a"], 2, "SECTION_EXISTS");
    world.assert_refused(&["sections", "add", ""], 2, "USAGE");
    world.assert_refused(&["sections", "add", &"x".repeat(501)], 2, "USAGE");
    world.assert_refused(&["sections", "update", "a", "--name", "b"], 2, "SECTION_EXISTS");
    world.assert_refused(&["sections", "update", "a"], 2, "USAGE");
    world.assert_refused(&["sections", "update", "a", "--exclusive", "maybe"], 2, "USAGE");
    world.assert_refused(&["sections", "show", "c"], 4, "SECTION_NOT_FOUND");
    world.assert_refused(&["sections", "show", ""], 4, "SECTION_NOT_FOUND");
    world.assert_refused(&["sections", "show", "s-"], 2, "AMBIGUOUS_NAME");
    world.assert_refused(&["sections", "delete", "c"], 4, "SECTION_NOT_FOUND");
}

#[test]
fn one_runner_at_a_time_works_in_an_exclusive_section() {
    let world = World::new();
    world.ok(&["sections", "add", "db", "--exclusive"]);
    for title in ["one", "two"] {
        world.ok(&["tasks", "add", title, "--section", "db", "--run", "until test -e go; do sleep 0.02; done"]);
    }
    let holder = || world.data(&["sections", "show", "db"])["holder"].as_str().map(str::to_owned);
    let running = |world: &World| world.data(&["tasks", "list", "--status", "in_progress"])["tasks"].as_array().unwrap().len();
    let first = world.start(&["run", "--quiet", "--max-runs", "1"]);
    until("one runs", || running(&world) == 1);
    let owner = holder().unwrap();
    let second = world.start(&["run", "--quiet"]);
    world.ok(&["tasks", "add", "free", "--run", "true"]);
    until("the second runner works elsewhere", || world.data(&["tasks", "show", "free"])["status"] == "completed");
    assert_eq!((running(&world), holder()), (1, Some(owner.clone())), "but not in the section");
    // A section with tasks cannot be deleted.
    world.assert_refused(&["sections", "delete", "db"], 2, "SECTION_NOT_EMPTY");
    world.touch("go");
    until("both are done", || world.data(&["tasks", "list", "--status", "completed"])["tasks"].as_array().unwrap().len() == 3);
    until("the section is free", || holder().is_none());
    drop((first, second));
}

#[test]
fn a_locked_section_is_deleted_only_by_force() {
    let world = World::new();
    let id = world.data(&["sections", "add", "db", "--exclusive"])["id"].as_str().unwrap().to_owned();
    let client = world.project().open().unwrap();
    world.hold_reserved(&client, &format!("section:{id}"), "runner:n-1");
    assert_eq!(world.data(&["sections", "show", "db"])["holder"], "runner:n-1");
    let error = world.assert_refused(&["sections", "delete", "db"], 6, "SECTION_LOCKED");
    assert_eq!(error["details"]["lockedBy"], "runner:n-1");
    world.ok(&["sections", "delete", "db", "--force"]);
}

#[test]
fn the_section_of_a_killed_runner_stays_with_its_run() {
    let world = World::new();
    world.ok(&["sections", "add", "db", "--exclusive"]);
    for title in ["first", "second"] {
        world.ok(&["tasks", "add", title, "--section", "db", "--run", "touch begun; until test -e go; do sleep 0.02; done"]);
    }
    let runner = world.start(&["run", "--quiet", "--max-runs", "1"]);
    // Waits for the command, not for the status, which changes a moment earlier: a runner killed in between leaves no run.
    until("it runs", || world.has("begun"));
    runner.signal(Signal::KILL);
    runner.end();
    let held = world.data(&["sections", "show", "db"]);
    assert!(held["holder"].as_str().unwrap().starts_with("run:"), "the section is its run's: {held}");
    let heir = world.start(&["run", "--quiet", "--until-idle"]);
    until("the other one is started", || world.data(&["tasks", "show", "second"])["status"] == "in_progress");
    assert_eq!(world.data(&["tasks", "show", "first"])["attempts"], 1, "the run that lives is looked after, not repeated");
    world.touch("go");
    assert_eq!(heir.end().code, 0);
}
