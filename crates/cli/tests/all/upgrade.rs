//! A project that an earlier version has left in the middle of its work: `fixtures/store-5.sql` is what its binary wrote.

use std::fs;

use crate::world::World;

/// The project in `fixtures/store-5.sql`: two locks of people, a task and an exclusive section in the hands of a third, a loop that rests, a task
/// that waits for one of the locks, a pipeline that a guard blocks, a worker, and items.
fn left_by_version_5() -> World {
    let world = World::on_sqlite();
    let folder = world.path().join(".banksman");
    for name in ["store.db", "store.db-wal", "store.db-shm", "turn"] {
        fs::remove_file(folder.join(name)).ok();
    }
    fs::write(folder.join("config.toml"), "project = \"p-pd8edy04\"\n").unwrap();
    let connection = rusqlite::Connection::open(folder.join("store.db")).unwrap();
    connection.pragma_update(None, "application_id", 0x424b_534d).unwrap();
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
    connection.execute_batch(include_str!("fixtures/store-5.sql")).unwrap();
    world
}

fn statuses(world: &World) -> Vec<String> {
    let tasks = world.data(&["tasks", "list", "--all"])["tasks"].as_array().unwrap().clone();
    tasks.iter().map(|task| format!("{}: {}", task["title"].as_str().unwrap(), task["status"].as_str().unwrap())).collect()
}

#[test]
fn a_project_of_an_earlier_version_goes_on_where_it_stood() {
    let world = left_by_version_5();
    let expected = [
        "Build: completed",
        "Test: failed",
        "Loop: pending",
        "Manual: pending",
        "Later: pending",
        "Taken: in_progress",
        "ship: blocked",
        "ship: build: completed",
        "doer q-16: completed",
    ];
    assert_eq!(statuses(&world), expected);
    world.check();
    assert_eq!(["held", "gate"].map(|lock| world.holder(lock).unwrap().to_string()), ["ann", "bob"]);
    let why = world.data(&["why", "ship"]).to_string();
    assert!(why.contains("lock gate is held by bob"), "{why}");
    // The claim of a person is one that can be renewed and ended, together with its section.
    world.ok(&["tasks", "heartbeat", "Taken", "--holder", "cat"]);
    assert_eq!(world.error(&["tasks", "take", "Manual", "--holder", "dan", "--no-wait"]).0, 6);
    world.ok(&["tasks", "done", "Taken", "--holder", "cat"]);
    world.ok(&["tasks", "done", "Manual", "--holder", "dan"]);
    // It has no id, so nothing of it starts before somebody trusts it.
    assert_eq!(world.run(&["run", "--until-idle"]).code, 5);
    world.ok(&["trust"]);
    world.ok(&["tasks", "cancel", "Loop"]);
    world.ok(&["locks", "release", "held", "--force"]);
    world.ok(&["locks", "release", "gate", "--force"]);
    world.ok(&["queues", "push", "jobs", "7"]);
    assert_eq!(world.run(&["run", "--until-idle", "--quiet"]).code, 7, "one had failed before");
    let open = statuses(&world).into_iter().filter(|task| !task.ends_with(": completed"));
    assert_eq!(open.collect::<Vec<_>>(), ["Test: failed", "Loop: cancelled"]);
    world.check();
    // Its files have kept their names.
    let mut files: Vec<String> = fs::read_dir(world.path().join(".banksman"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.retain(|name| !name.starts_with("store.db-"));
    files.sort();
    assert_eq!(files, [".gitignore", "config.toml", "logs", "run", "runbooks", "runs", "store.db", "tasks", "turn", "turn.gate"]);
}
