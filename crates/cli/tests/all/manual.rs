//! Manual work: the person who works on a task holds its lock.

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
fn manual_work_holds_the_task_and_section_locks_until_it_ends() {
    for status in ["review", "completed", "failed", "skipped", "pending", "cancelled"] {
        let world = World::new();
        let section = world.data(&["sections", "add", "backend", "--exclusive"])["id"].as_str().unwrap().to_owned();
        let task = add(&world, "fix", &["--section", "backend"]);
        let (lock, section) = (format!("task:{task}"), format!("section:{section}"));
        assert_eq!(set(&world, "fix", "in_progress", "ann")["status"], "in_progress");
        assert_eq!([world.holder(&lock), world.holder(&section)].map(|holder| holder.unwrap().to_string()), ["ann", "ann"]);
        let ttl = |lock: &str| world.grant(lock).unwrap().claim.ttl.map(|ttl| ttl.as_ms() / 60_000);
        assert_eq!((ttl(&lock), ttl(&section)), (Some(60), None), "the lock of a section has no lease");
        assert_eq!(set(&world, "fix", status, "ann")["status"], status);
        assert_eq!((world.holder(&lock), world.holder(&section)), (None, None), "{status}");
    }
}

#[test]
fn a_refused_take_names_the_holder_and_the_expiry() {
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
fn runners_skip_manually_taken_tasks_and_start_later_ones() {
    let world = World::new();
    add(&world, "by hand", &["--priority", "9"]);
    add(&world, "other", &[]);
    set(&world, "by hand", "in_progress", "ann");
    let runner = world.start(&["run", "--max-runs", "1"]);
    until("the other", || world.data(&["tasks", "show", "other"])["status"] == "completed");
    assert_eq!(world.data(&["tasks", "show", "by hand"])["status"], "in_progress");
    // A released task is run by the runner.
    set(&world, "by hand", "pending", "ann");
    until("the first", || world.data(&["tasks", "show", "by hand"])["status"] == "completed");
    assert_eq!(runner.stop().code, 0);
}

#[test]
fn waiters_get_a_task_in_order_after_a_person_or_a_run() {
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
    // A waiter finds the task completed when its run has ended, and does not keep the lock.
    let command = "while [ ! -e go ]; do read -r line < /dev/null; sleep 0.02; done";
    let task = world.data(&["tasks", "add", "running", "--run", command])["id"].as_str().unwrap().to_owned();
    let runner = world.start(&["run", "--until-idle"]);
    until("the run", || world.data(&["tasks", "show", "running"])["status"] == "in_progress");
    let (lock, waiter) =
        (format!("task:{task}"), world.start(&["tasks", "update", "running", "--status", "in_progress", "--holder", "bob"]));
    until_waiting(&world, 1);
    world.touch("go");
    let said = waiter.end();
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.stderr.contains("completed already"), "{said:?}");
    assert_eq!(world.holder(&lock), None);
    // A person still works on the other task, so the runner does not complete everything.
    assert_eq!(runner.end().code, 7);
}

#[test]
fn an_expired_task_lock_can_be_taken_by_a_person_or_a_runner() {
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
    // The former holder cannot end the task.
    world.assert_refused(&["tasks", "done", "first", "--holder", "ann"], 8, "CLAIM_LOST");
    world.ok(&["tasks", "done", "first", "--holder", "bob"]);
    let runner = world.start(&["run"]);
    until("the runner has it", || world.data(&["tasks", "show", "second"])["status"] == "completed");
    assert_eq!(runner.stop().code, 0);
    let kinds: Vec<String> = world.events().into_iter().map(|event| event.kind).collect();
    assert!(kinds.contains(&"task:returned".into()), "{kinds:?}");
}

#[test]
fn heartbeats_keep_a_manually_taken_task() {
    let world = World::new();
    world.ok(&["config", "set", "locking.task_timeout", "1s"]);
    world.ok(&["config", "set", "locking.poll_interval", "100ms"]);
    // A shorter time of the section has no effect (A3).
    world.ok(&["config", "set", "locking.section_timeout", "500ms"]);
    let section = crate::claims::section(&world, "backend");
    let task = add(&world, "fix", &["--section", "backend"]);
    add(&world, "beside", &["--section", "backend"]);
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
    let holder = world.holder(&section).map(|holder| holder.to_string());
    assert_eq!((holder.as_deref(), &world.task("beside")["attempts"]), (Some("ann"), &0.into()));
    // Without heartbeats the runner takes both tasks.
    world.until_status("fix", "completed");
    world.until_status("beside", "completed");
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
fn an_exclusive_section_belongs_to_one_person() {
    let world = World::new();
    world.ok(&["sections", "add", "backend", "--exclusive"]);
    for title in ["one", "two", "three"] {
        add(&world, title, &["--section", "backend"]);
    }
    set(&world, "one", "in_progress", "ann");
    set(&world, "two", "in_progress", "ann");
    // A change of section would release the lock of the wrong section.
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

/// The state that a waiter leaves that is killed between taking the lock and claiming the task.
#[test]
fn a_task_lock_alone_blocks_its_task_and_no_later_ones() {
    let world = World::new();
    let locked = add(&world, "locked", &["--priority", "9"]);
    for title in ["one", "two", "three"] {
        add(&world, title, &[]);
    }
    let client = world.project().open().unwrap();
    // Users of the library cannot acquire this lock: the name is reserved.
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
