//! Work by hand: whoever works on a task holds its lock, and nobody else does.

use banksman_core::resource::coordination::Command;
use banksman_core::resource::lock;
use banksman_core::{HolderId, TaskId};
use serde_json::Value;

use crate::claims::until_waiting;
use crate::world::{World, until};

fn add(world: &World, title: &str, more: &[&str]) -> String {
    world.add(&[&[title, "--run", "true"], more].concat())
}

fn set(world: &World, task: &str, status: &str, holder: &str) -> Value {
    world.data(&["tasks", "update", task, "--status", status, "--holder", holder])
}

#[test]
fn who_works_on_a_task_holds_its_lock_and_that_of_its_section_until_it_says_how_it_ended() {
    for status in ["review", "completed", "failed", "skipped", "pending", "cancelled"] {
        let world = World::new();
        let section = world.data(&["sections", "add", "backend", "--exclusive"])["id"].as_str().unwrap().to_owned();
        let task = add(&world, "fix", &["--section", "backend"]);
        let (lock, section) = (format!("task:{task}"), format!("section:{section}"));
        assert_eq!(set(&world, "fix", "in_progress", "ann")["status"], "in_progress");
        assert_eq!([world.holder(&lock), world.holder(&section)].map(|holder| holder.unwrap().to_string()), ["ann", "ann"]);
        let ttl = |lock: &str| world.grant(lock).unwrap().claim.ttl.map(|ttl| ttl.as_ms() / 60_000);
        assert_eq!((ttl(&lock), ttl(&section)), (Some(60), None), "a section is kept as long as somebody works in it");
        assert_eq!(set(&world, "fix", status, "ann")["status"], status);
        assert_eq!((world.holder(&lock), world.holder(&section)), (None, None), "{status}");
    }
}

#[test]
fn others_are_told_who_has_it_and_until_when() {
    let world = World::new();
    let task = add(&world, "fix", &[]);
    set(&world, "fix", "in_progress", "ann");
    let error = world.assert_refused(
        &["tasks", "update", "fix", "--status", "in_progress", "--holder", "bob", "--no-wait"],
        6,
        "TASK_LOCKED",
    );
    let details = &error["details"];
    assert_eq!((&details["taskId"], &details["lockedBy"]), (&task.as_str().into(), &"ann".into()));
    assert!(details["expiresAt"].is_string(), "{details}");
    for status in ["completed", "failed", "review", "skipped"] {
        world.assert_refused(&["tasks", "update", "fix", "--status", status, "--holder", "bob"], 6, "TASK_LOCKED");
    }
    world.assert_refused(&["tasks", "done", "fix", "--holder", "bob"], 6, "TASK_LOCKED");
    assert_eq!(world.data(&["why", "fix"])["holder"], "ann");
    world.ok(&["tasks", "done", "fix", "--holder", "ann"]);
    world.assert_refused(&["tasks", "update", "fix", "--status", "in_progress", "--holder", "bob"], 2, "TASK_OVER");
}

#[test]
fn no_runner_starts_what_somebody_works_on_and_those_behind_it_are_not_held_up() {
    let world = World::new();
    add(&world, "by hand", &["--priority", "9"]);
    add(&world, "other", &[]);
    set(&world, "by hand", "in_progress", "ann");
    let runner = world.start(&["run", "--max-runs", "1"]);
    until("the other", || world.data(&["tasks", "show", "other"])["status"] == "completed");
    assert_eq!(world.data(&["tasks", "show", "by hand"])["status"], "in_progress");
    // Given back, it is the runner's.
    set(&world, "by hand", "pending", "ann");
    until("the first", || world.data(&["tasks", "show", "by hand"])["status"] == "completed");
    assert_eq!(runner.stop().code, 0);
}

#[test]
fn who_waits_gets_it_in_turn_after_a_person_and_after_a_run() {
    let world = World::new();
    let lock = format!("task:{}", add(&world, "fix", &[]));
    set(&world, "fix", "in_progress", "ann");
    let take = |holder: &str| world.start(&["tasks", "update", "fix", "--status", "in_progress", "--holder", holder]);
    let bob = take("bob");
    until_waiting(&world, 1);
    let eve = take("eve");
    until_waiting(&world, 2);
    set(&world, "fix", "pending", "ann");
    let said = bob.end();
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(world.holder(&lock).unwrap().as_str(), "bob");
    set(&world, "fix", "review", "bob");
    assert_eq!(eve.end().code, 0);
    assert_eq!(world.data(&["why", "fix"])["holder"], "eve");
    // Who waits for a run finds the task done when it has ended, and does not keep its lock.
    let command = "while [ ! -e go ]; do read -r line < /dev/null; sleep 0.02; done";
    let task = world.data(&["tasks", "add", "running", "--run", command])["id"].as_str().unwrap().to_owned();
    let runner = world.start(&["run", "--until-idle"]);
    until("the run", || world.data(&["tasks", "show", "running"])["status"] == "in_progress");
    let (lock, waiter) =
        (format!("task:{task}"), world.start(&["tasks", "update", "running", "--status", "in_progress", "--holder", "bob"]));
    until_waiting(&world, 1);
    std::fs::write(world.path().join("go"), "").unwrap();
    let said = waiter.end();
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.stderr.contains("completed already"), "{said:?}");
    assert_eq!(world.holder(&lock), None);
    // The other task is worked on by hand, and not finished by the runner.
    assert_eq!(runner.end().code, 7);
}

#[test]
fn a_lock_that_has_expired_can_be_had_by_hand_and_by_a_runner() {
    let world = World::new();
    world.ok(&["config", "set", "locking.task_timeout", "300ms"]);
    world.ok(&["sections", "add", "backend", "--exclusive"]);
    let first = add(&world, "first", &[]);
    add(&world, "second", &["--section", "backend"]);
    set(&world, "first", "in_progress", "ann");
    set(&world, "second", "in_progress", "ann");
    until("the end of the lease", || world.data(&["locks", "show", &first])["state"] == "expired");
    set(&world, "first", "in_progress", "bob");
    assert_eq!(world.data(&["why", "first"])["holder"], "bob");
    // Who has lost it cannot end it.
    world.assert_refused(&["tasks", "done", "first", "--holder", "ann"], 8, "CLAIM_LOST");
    world.ok(&["tasks", "done", "first", "--holder", "bob"]);
    let runner = world.start(&["run"]);
    until("the runner has it", || world.data(&["tasks", "show", "second"])["status"] == "completed");
    assert_eq!(runner.stop().code, 0);
    let kinds: Vec<String> = world.events().into_iter().map(|event| event.kind).collect();
    assert!(kinds.contains(&"task:returned".into()), "{kinds:?}");
}

#[test]
fn heartbeats_keep_it() {
    let world = World::new();
    world.ok(&["config", "set", "locking.task_timeout", "1s"]);
    world.ok(&["config", "set", "locking.poll_interval", "100ms"]);
    let task = add(&world, "fix", &[]);
    set(&world, "fix", "in_progress", "ann");
    let lock = format!("task:{task}");
    let grant = world.grant(&lock).unwrap();
    let runner = world.start(&["run"]);
    let epoch = grant.epoch.to_string();
    until("three leases", || {
        world.ok(&["locks", "heartbeat", &lock, "--holder", "ann", "--epoch", &epoch]);
        world.snapshot().lease - grant.acquired.lease > banksman_core::Span::from_secs(3)
    });
    assert_eq!(world.data(&["tasks", "show", "fix"])["status"], "in_progress");
    assert_eq!(world.grant(&lock).unwrap().epoch, grant.epoch);
    // Without them it is the runner's.
    until("the runner has it", || world.data(&["tasks", "show", "fix"])["status"] == "completed");
    assert_eq!(runner.stop().code, 0);
}

#[test]
fn the_lock_of_a_task_is_shown_and_released_by_its_id_or_title() {
    let world = World::new();
    let task = add(&world, "fix", &[]);
    assert_eq!(world.data(&["locks", "show", "fix"])["state"], "free");
    set(&world, "fix", "in_progress", "ann");
    for name in ["fix", &task, &format!("task:{task}")] {
        assert_eq!(world.data(&["locks", "show", name])["holder"], "ann");
    }
    let epoch = world.data(&["locks", "show", "fix"])["epoch"].to_string();
    let later = (epoch.parse::<i64>().unwrap() - 1).to_string();
    world.assert_refused(&["locks", "release", "fix", "--holder", "ann", "--epoch", &later], 8, "FENCED");
    world.assert_refused(&["locks", "release", "fix", "--holder", "bob", "--epoch", &epoch], 5, "NOT_OWNER");
    world.ok(&["locks", "release", "fix", "--holder", "ann", "--epoch", &epoch]);
    assert_eq!(world.data(&["tasks", "show", "fix"])["status"], "pending");
    set(&world, "fix", "in_progress", "ann");
    world.ok(&["locks", "release", "fix", "--force"]);
    assert_eq!(world.data(&["tasks", "show", "fix"])["status"], "pending");
    world.assert_refused(&["locks", "acquire", &format!("task:{task}")], 2, "RESERVED_NAME");
}

#[test]
fn an_exclusive_section_is_one_persons_and_no_runners() {
    let world = World::new();
    world.ok(&["sections", "add", "backend", "--exclusive"]);
    for title in ["one", "two", "three"] {
        add(&world, title, &["--section", "backend"]);
    }
    set(&world, "one", "in_progress", "ann");
    set(&world, "two", "in_progress", "ann");
    // She would give back the lock of another section.
    world.assert_refused(&["tasks", "update", "two", "--no-section", "--holder", "ann"], 6, "TASK_LOCKED");
    let args = ["tasks", "update", "three", "--status", "in_progress", "--holder", "bob", "--no-wait"];
    world.assert_refused(&args, 6, "SECTION_LOCKED");
    let runner = world.start(&["run"]);
    until("a runner", || !world.everything().backlog.runners.is_empty());
    set(&world, "one", "completed", "ann");
    assert_eq!(world.data(&["why", "three"])["status"], "pending", "she still works on the other");
    set(&world, "two", "completed", "ann");
    until("the third", || world.data(&["tasks", "show", "three"])["status"] == "completed");
    assert_eq!(runner.stop().code, 0);
}

/// As when somebody has waited for the lock, and was killed before it could take the task.
#[test]
fn a_lock_alone_keeps_runners_from_its_task_and_not_from_those_behind_it() {
    let world = World::new();
    let locked = add(&world, "locked", &["--priority", "9"]);
    for title in ["one", "two", "three"] {
        add(&world, title, &[]);
    }
    let client = world.project().open().unwrap();
    // No user of the library can: the name is reserved.
    let (own, holder) = (TaskId::new(&locked).unwrap().lock(), HolderId::new("ann").unwrap());
    let epoch = world.hold_reserved(&client, own.as_str(), "ann");
    let runner = world.start(&["run", "--max-runs", "1"]);
    for title in ["one", "two", "three"] {
        until(title, || world.data(&["tasks", "show", title])["status"] == "completed");
    }
    assert_eq!(world.data(&["tasks", "show", "locked"])["status"], "pending");
    client.ask(Command::Lock(own, lock::Input::Release { holder, epoch }), Vec::new()).unwrap();
    until("the one that was locked", || world.data(&["tasks", "show", "locked"])["status"] == "completed");
    assert_eq!(runner.stop().code, 0);
}
