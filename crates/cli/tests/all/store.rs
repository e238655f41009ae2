//! The store under several processes: the writer lock, stalls, long reads.

use std::time::{Duration, Instant};

use banksman_core::Name;
use banksman_core::resource::coordination::Command;
use banksman_core::resource::lock;
use banksman_engine::Request;
use banksman_store::sqlite;
use rustix::process::Signal;

use crate::world::{World, until};

#[test]
fn a_writer_stopped_inside_a_transaction_is_named() {
    let world = World::on_sqlite();
    // `flock` stands in for a banksman that was stopped inside a transaction.
    let turn = world.path().join(".banksman/turn");
    let mut holder = std::process::Command::new("flock").arg("--no-fork").arg(&turn).args(["sleep", "600"]).spawn().unwrap();
    let pid = i32::try_from(holder.id()).unwrap();
    until("it has the writer lock", || sqlite::occupant(&turn).is_some_and(|occupant| occupant.pid == pid));
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
    let start = Instant::now();
    let said = world.run(&["locks", "acquire", "x"]);
    assert_eq!(said.code, 7, "{said:?}");
    assert!(said.stderr.contains(&format!("process {pid} (sleep 600)")) && said.stderr.contains("is stopped"), "{said:?}");
    assert!(said.stderr.contains("nothing was changed"), "{said:?}");
    assert!(start.elapsed() >= Duration::from_secs(9), "it waits for its deadline");
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn a_long_read_does_not_block_writers() {
    let world = World::on_sqlite();
    world.ok(&["locks", "acquire", "x", "--holder", "a"]);
    let reader = rusqlite::Connection::open(world.path().join(".banksman/store.db")).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let count = |sql: &str| reader.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM events"), 1);
    for _ in 0..5 {
        assert_eq!(world.run(&["locks", "run", "y", "--", "true"]).code, 0);
    }
    assert_eq!(count("SELECT count(*) FROM events"), 1, "it still sees its own moment");
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(count("SELECT count(*) FROM events"), 11);
}

#[test]
fn a_dropped_batch_has_no_effect() {
    let world = World::new();
    let project = world.project();
    let mut store = project.open_store().unwrap();
    let define =
        |name: &str| Request::plain(Command::Lock(Name::new(name).unwrap(), lock::Input::Define(lock::Config::default())));
    drop(store.begin(&[define("a"), define("b")]).unwrap());
    assert_eq!(world.events().len(), 0);
    let committed = store.begin(&[define("a"), define("b")]).unwrap().commit().unwrap();
    assert_eq!((committed.replies.len(), committed.events), (2, 2));
    assert_eq!(world.events().len(), 2);
    assert_eq!(project.occupant(), None, "the writer lock is free");
}

#[test]
fn an_older_program_stops_when_the_schema_is_upgraded() {
    let world = World::on_sqlite().unchecked();
    let client = world.library();
    client.lock("x").try_acquire().unwrap().release().unwrap();
    rusqlite::Connection::open(world.path().join(".banksman/store.db"))
        .unwrap()
        .execute_batch("UPDATE store SET version = version + 1")
        .unwrap();
    let error = client.lock("x").try_acquire().err().unwrap();
    assert!(error.to_string().contains("newer version"), "{error}");
}

#[test]
fn threads_of_one_process_share_a_client() {
    let world = World::new();
    let client = world.library();
    let mut inside = 0u32;
    let counter = std::sync::Mutex::new(&mut inside);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let held = client.lock("x").acquire_within(Duration::from_secs(60)).unwrap();
                    **counter.try_lock().expect("the lock is exclusive") += 1;
                    held.release().unwrap();
                }
            });
        }
    });
    assert_eq!(inside, 160);
}

#[test]
fn a_store_of_an_earlier_version_is_upgraded() {
    let world = World::on_sqlite();
    world.ok(&["locks", "acquire", "db", "--holder", "a", "--ttl", "1h"]);
    let connection = rusqlite::Connection::open(world.path().join(".banksman/store.db")).unwrap();
    let first = ["store", "projects", "boots", "locks", "semaphores", "slots", "waiters", "events"];
    let all: Vec<String> = {
        let mut query = connection.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").unwrap();
        query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let later = all.iter().filter(|table| !first.contains(&table.as_str()));
    let mut undo: String = later.map(|table| format!("DROP TABLE {table};")).collect();
    let columns = ["compacted", "compacted_wall", "store_id", "moved_to", "max_runs", "max_roots", "parks", "pause"];
    let counters = ["live_runs", "run_slots", "task_counts"];
    let columns = columns.into_iter().chain(counters);
    undo.extend(columns.map(|column: &str| format!("ALTER TABLE projects DROP COLUMN {column};")));
    undo.push_str(
        "ALTER TABLE events DROP COLUMN actor; ALTER TABLE events DROP COLUMN depth; DROP INDEX locks_of_pipelines; DROP INDEX locks_timed; DROP INDEX slots_timed; DROP INDEX slots_of_pipelines; DROP INDEX slots_mortal;",
    );
    connection.execute_batch(&format!("{undo} UPDATE store SET version = 1")).unwrap();
    drop(connection);
    // A read is enough to upgrade the store.
    assert_eq!(world.data(&["locks", "list"])["locks"][0]["holder"], "a");
    world.ok(&["tasks", "add", "t", "--run", "true"]);
    // The upgraded store has no id, so it cannot be trusted yet.
    assert_eq!(world.run(&["run", "--until-idle"]).code, 5);
    world.ok(&["trust"]);
    world.ok(&["run", "--until-idle"]);
}
