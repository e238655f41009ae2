//! Projects that an earlier version has left midway: its binary wrote `fixtures/store-5.sql` and `fixtures/store-5-busy.sql`.

use std::fs;

use serde_json::json;

use crate::world::World;

/// Two locks held by people, a task and an exclusive section taken by a third person, a resting loop, a task that waits for one of the locks,
/// a pipeline that a guard blocks, a worker, and items.
const MANUAL: &str = include_str!("fixtures/store-5.sql");

/// Rows for the tables of [`MANUAL`]: a run and its runner, slots of a semaphore, a process that waits for a lock, routes and the pipeline that
/// one of them started, a paused worker, a paused queue, and items that are ready, delayed, taken and dead.
const BUSY: &str = include_str!("fixtures/store-5-busy.sql");

fn left_by_version_5(project: &str, rows: &str) -> World {
    let world = World::on_sqlite();
    let folder = world.path().join(".banksman");
    for name in ["store.db", "store.db-wal", "store.db-shm", "turn"] {
        fs::remove_file(folder.join(name)).ok();
    }
    fs::write(folder.join("config.toml"), format!("project = \"{project}\"\n")).unwrap();
    let connection = rusqlite::Connection::open(folder.join("store.db")).unwrap();
    connection.pragma_update(None, "application_id", 0x424b_534d).unwrap();
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
    let tables: Vec<&str> = MANUAL.lines().filter(|line| !line.starts_with("INSERT INTO")).collect();
    connection.execute_batch(&tables.join("\n")).unwrap();
    let rows: Vec<&str> = rows.lines().filter(|line| line.starts_with("INSERT INTO")).collect();
    connection.execute_batch(&format!("BEGIN; {} COMMIT;", rows.join("\n"))).unwrap();
    world
}

fn statuses(world: &World) -> Vec<String> {
    let tasks = world.data(&["tasks", "list", "--all"])["tasks"].as_array().unwrap().clone();
    tasks.iter().map(|task| format!("{}: {}", task["title"].as_str().unwrap(), task["status"].as_str().unwrap())).collect()
}

#[test]
fn a_project_of_an_earlier_version_continues() {
    let world = left_by_version_5("p-pd8edy04", MANUAL);
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
    // The claim of the person can be renewed and ended, together with its section.
    world.ok(&["tasks", "heartbeat", "Taken", "--holder", "cat"]);
    assert_eq!(world.error(&["tasks", "take", "Manual", "--holder", "dan", "--no-wait"]).0, 6);
    world.ok(&["tasks", "done", "Taken", "--holder", "cat"]);
    world.ok(&["tasks", "done", "Manual", "--holder", "dan"]);
    // The upgraded store has no id, so nothing starts before it is trusted.
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
    // The files have kept their names.
    let mut files: Vec<String> = fs::read_dir(world.path().join(".banksman"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.retain(|name| !name.starts_with("store.db-"));
    files.sort();
    assert_eq!(files, [".gitignore", "config.toml", "logs", "run", "runbooks", "runs", "store.db", "tasks", "turn", "turn.gate"]);
}

#[test]
fn a_busy_project_of_an_earlier_version_keeps_all_its_rows() {
    let world = left_by_version_5("p-mgne2d46", BUSY);
    let expected = [
        "Done: completed",
        "Fails: failed",
        "After fails: blocked",
        "Dropped: cancelled",
        "Manual: pending",
        "Endless: failed",
        "look: blocked",
        "Stuck: in_progress",
    ];
    assert_eq!(statuses(&world), expected);
    world.check();

    let lock = world.data(&["locks", "show", "deploy"]);
    assert_eq!([&lock["holder"], &lock["epoch"], &lock["metadata"]["why"]], [&json!("ann"), &json!(9), &json!("release")]);
    assert_eq!(lock["line"][0]["holder"], "dan");
    assert_eq!(world.data(&["locks", "show", "idle"])["defaults"]["ttl"], "2m");
    let holders = world.data(&["semaphores", "show", "gpu"])["holders"].clone();
    let slots = [0, 1].map(|index| (holders[index]["holder"].to_string(), holders[index]["weight"].to_string()));
    assert_eq!(slots, [("\"bob\"", "3"), ("\"eve\"", "1")].map(|(holder, weight)| (holder.to_owned(), weight.to_owned())));

    let stuck = world.data(&["tasks", "show", "Stuck"]);
    assert_eq!([&stuck["runs"][0]["id"], &stuck["runs"][0]["live"]], [&stuck["run"], &json!(true)]);
    let status = world.run(&["status"]).stdout;
    assert!(status.contains("1 of 4 run slots are taken"), "{status}");
    assert_eq!(world.data(&["tasks", "show", "Done"])["section"], "api");
    let pipeline = world.data(&["pipelines", "show", "look"]);
    assert_eq!([&pipeline["state"], &pipeline["vars"]["item"]], [&json!("blocked"), &json!("q-21")]);

    let workers = world.data(&["workers", "list"]);
    assert_eq!([&workers["workers"][0]["name"], &workers["workers"][0]["paused"]], [&json!("triage"), &json!(true)]);
    let routes = [0, 1].map(|index| workers["routes"][index]["on"].clone());
    assert_eq!(routes, ["queue:dead(issues)", "release:wanted"]);
    let queues = world.data(&["queues", "list"])["queues"].clone();
    let counts = [0, 1, 2].map(|index| ["ready", "resting", "processing"].map(|count| queues[index][count].clone()));
    assert_eq!(counts, [[1, 0, 0], [1, 0, 0], [0, 1, 1]], "builds, dead and issues");
    assert_eq!(queues[1]["paused"], true);
    let dead = world.data(&["queues", "show", "dead"])["items"][0].clone();
    assert_eq!([&dead["id"], &dead["diedIn"], &dead["reason"]], ["q-21", "issues", "no such issue"]);

    // Holders keep the epochs of their grants and takes.
    world.ok(&["semaphores", "release", "gpu", "--holder", "bob", "--epoch", "11"]);
    world.ok(&["queues", "complete", "issues", "q-20", "--holder", "cat", "--epoch", "26"]);
    assert_eq!(world.run(&["locks", "release", "deploy", "--holder", "ann", "--epoch", "8"]).code, 8);
    world.ok(&["locks", "release", "deploy", "--holder", "ann", "--epoch", "9"]);
    assert_eq!(world.data(&["queues", "take", "builds"])["item"]["data"]["kind"], "release:wanted");
}
