//! Stores of earlier versions.

use std::path::Path;

use banksman_core::ids::TaskId;
use banksman_core::{Lease, Seq};
use rusqlite::Connection;

use crate::dialect;
use crate::identity::{Identity, StoreId};
use crate::key::Key;
use crate::machine::Machine;
use crate::schema::MIGRATIONS;
use crate::sqlite::open;
use crate::tables::projects::Statement;
use crate::test_support::ManualMachine;

/// A backlog of version 2: three pending tasks, of which one is a child, one has no work and one failed once; and a run
/// that is to be ended.
const VERSION_2: &str = r#"
INSERT INTO tasks (project, id, title, section, parent, priority, position, lane, spec, created_wall, state, detail, changed_lease, changed_wall, attempts, failures, recoveries, unmet) VALUES
    (1, 't-1', 'build', NULL, NULL, 0, 1, '[null,[]]', '{"title":"build","priority":0,"work":{"run":"make"},"retries":2,"workspace":"none"}', 10, 'pending', NULL, 5, 10, 1, 1, 0, 0),
    (1, 't-2', 'test', NULL, 't-1', 0, 2, '[null,[{"lock":"db"}]]', '{"title":"test","parent":"t-1","priority":0,"work":{"run":"make test"},"needs":[{"lock":"db"}],"retries":0,"workspace":"none"}', 10, 'pending', NULL, 5, 10, 0, 0, 0, 0),
    (1, 't-3', 'think', NULL, NULL, 0, 3, NULL, '{"title":"think","priority":0,"retries":0,"workspace":"none"}', 10, 'pending', NULL, 5, 10, 0, 0, 0, 0);
INSERT INTO events (project, seq, wall, kind, component, id, request, data) VALUES
    (1, 1, 10, 'task:added', 'task', 't-1', NULL, '{"spec":{"priority":0,"retries":2,"title":"build","work":{"run":"make"},"workspace":"none"}}'),
    (1, 2, 10, 'task:added', 'task', 't-2', NULL, '{"spec":{"needs":[{"lock":"db"}],"parent":"t-1","priority":0,"retries":0,"title":"test","work":{"run":"make test"},"workspace":"none"}}'),
    (1, 3, 10, 'task:added', 'task', 't-3', NULL, '{"spec":{"priority":0,"retries":0,"title":"think","workspace":"none"}}'),
    (1, 4, 10, 'task:started', 'task', 't-1', NULL, '{"attempt":0,"run":"r-1","runner":"n-1"}'),
    (1, 5, 10, 'task:restarting', 'task', 't-1', NULL, '{"ending":{"exited":2},"run":"r-1"}');
INSERT INTO runs (project, id, task, attempt, epoch, owner, owner_epoch, holds, session, host, boot, started_lease, started_wall, lease, ended, live) VALUES
    (1, 'r-1', 't-1', 0, 4, 'n-1', 4, NULL, NULL, 'host', 'boot', 5, 10, NULL, '{"ending":{"exited":2},"at":10}', NULL);
INSERT INTO outbox (project, seq, subject, executor, errand) VALUES (1, 5, 'r-1', 'n-1', '{"kill":{"run":"r-1"}}');
UPDATE projects SET seq = 5;
"#;

/// A failed task and its failed child, in version 4.
const VERSION_4: &str = r#"
INSERT INTO tasks (project, id, title, parent, priority, position, spec, created_wall, state, changed_lease, changed_wall, attempts, failures, recoveries) VALUES
    (1, 't-1', 'build', NULL, 0, 1, '{"title":"build"}', 10, 'failed', 5, 10, 0, 0, 0),
    (1, 't-2', 'test', 't-1', 0, 2, '{"title":"test","parent":"t-1"}', 10, 'failed', 5, 10, 0, 0, 0);
"#;

fn make(path: &Path, version: usize, rows: &str) {
    let connection = Connection::open(path).unwrap();
    connection.pragma_update(None, "application_id", 0x424b_534d).unwrap();
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
    for migration in &MIGRATIONS[..version] {
        connection.execute_batch(&dialect::sqlite_schema(migration)).unwrap();
    }
    let insert = dialect::sqlite(Statement::Insert.erased().text());
    connection.execute(&insert, (1, "p", 1_000, ManualMachine::at(1_000).boot())).unwrap();
    connection.execute_batch(rows).unwrap();
}

#[test]
fn a_backlog_of_version_2_is_migrated() {
    let dir = tempfile::tempdir().unwrap();
    let (path, tx) = (dir.path().join("store.db"), dir.path().join("turn"));
    make(&path, 2, VERSION_2);
    let mut store = open(&path, &tx, Box::new(ManualMachine::at(1_000))).unwrap();
    let rows = store.view().everything().unwrap().tables.backlog;
    let first = &rows.tasks[&TaskId::new("t-1").unwrap()];
    assert_eq!((rows.tasks.len(), first.failures, &first.spec.restart), (3, 1, &None));
    let kill = &rows.outbox[&Seq(5)];
    assert_eq!((kill.attempts, kill.due, kill.executor.as_ref().map(|id| id.as_str())), (0, Lease(0), Some("n-1")));
    assert_eq!(store.view().compare_with_log().unwrap(), Vec::<String>::new());
    assert_eq!(store.view().check_integrity().unwrap(), Vec::<String>::new());
    assert_eq!(store.view().check_counts().unwrap(), Vec::<String>::new());

    // Their lanes equal those of new tasks.
    let connection = Connection::open(&path).unwrap();
    for task in rows.tasks.values() {
        let text = "SELECT lane FROM tasks WHERE id = ?1";
        let lane: Option<String> = connection.query_row(text, [task.id.as_str()], |row| row.get(0)).unwrap();
        assert_eq!(lane, crate::tables::tasks::lane(&task.spec, None), "{}", task.id);
    }
    let mut found = |key| store.view().load(&[key].into()).unwrap().tables.backlog.tasks.into_keys().map(|id| id.to_string());
    assert!(found(Key::Ready { of_each: 9, sections: Vec::new() }).eq(["t-1", "t-2"]));
    assert_eq!(found(Key::Due).count() + found(Key::Loops { after: Seq(0), limit: 9 }).count(), 0);
}

#[test]
fn tasks_of_version_4_count_as_top_level() {
    let dir = tempfile::tempdir().unwrap();
    let (path, tx) = (dir.path().join("store.db"), dir.path().join("turn"));
    make(&path, 4, VERSION_4);
    let counts = open(&path, &tx, Box::new(ManualMachine::at(1_000))).unwrap().view().counts().unwrap();
    let words: Vec<(&str, u64)> = counts.by_status.iter().map(|(status, number)| (status.as_str(), *number)).collect();
    assert_eq!(words, [("failed", 2)]);
}

#[test]
fn a_store_of_version_5_gets_its_id_once() {
    let dir = tempfile::tempdir().unwrap();
    let (path, tx) = (dir.path().join("store.db"), dir.path().join("turn"));
    make(&path, 5, "");
    let mut store = open(&path, &tx, Box::new(ManualMachine::at(1_000))).unwrap();
    assert_eq!(store.view().identity().unwrap(), Identity { store: None, moved_to: None });
    let id = store.identify(&StoreId::new("first")).unwrap();
    assert_eq!(store.identify(&StoreId::new("second")).unwrap(), id, "an id is never changed");
    let again = open(&path, &tx, Box::new(ManualMachine::at(1_000))).unwrap().view().identity().unwrap();
    assert_eq!(again.store.as_ref().map(StoreId::as_str), Some("first"));
}
