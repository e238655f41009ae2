//! The statements on the way of every claim must find their rows by an index, however many rows there are.

use rusqlite::Connection;

use crate::dialect;
use crate::schema::MIGRATIONS;
use crate::sql::Statement;

fn plan(connection: &Connection, statement: Statement) -> Vec<String> {
    let text = format!("EXPLAIN QUERY PLAN {}", dialect::sqlite(statement.text()));
    let mut prepared = connection.prepare(&text).unwrap();
    let rows = prepared.raw_query().mapped(|row| row.get::<_, String>(3)).collect::<Result<Vec<_>, _>>();
    rows.unwrap()
}

fn store() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    MIGRATIONS.iter().for_each(|migration| connection.execute_batch(&dialect::sqlite_schema(migration)).unwrap());
    connection
}

#[test]
fn a_claim_reads_by_indexes_only() {
    let connection = store();
    let by_key = [
        (Statement::Ready, "tasks_ready (project=? AND lane=?)"),
        (Statement::LiveRuns, "runs_live (project=? AND live=?)"),
        (Statement::LiveTasks, "runs_live (project=? AND live=?)"),
        (Statement::Task, "(project=? AND id=?)"),
        (Statement::Run, "runs_id (project=? AND id=?)"),
        (Statement::RunsOf, "runs_task (project=? AND task=?)"),
        (Statement::Edges, "PRIMARY KEY (task=?)"),
        (Statement::Dependencies, "PRIMARY KEY (task=?)"),
        (Statement::Dependents, "edges_back (on_task=?)"),
        (Statement::RefreshDependents, "edges_back (on_task=?)"),
        (Statement::RefreshUnmet, "PRIMARY KEY (task=?)"),
        (Statement::Lock, "(project=? AND name=?)"),
        (Statement::Slots, "(project=? AND semaphore=?)"),
    ];
    for (statement, wanted) in by_key {
        let plan = plan(&connection, statement);
        assert!(plan.iter().any(|step| step.contains(wanted)), "{statement:?}: {plan:?}");
        let scans = plan.iter().find(|step| ["SCAN t", "SCAN r", "SCAN e", "SCAN d"].iter().any(|scan| step == scan));
        assert_eq!(scans, None, "{statement:?}: {plan:?}");
    }
}

#[test]
fn what_waits_for_time_or_for_people_is_read_in_the_order_of_its_index() {
    let connection = store();
    for (statement, wanted) in [
        (Statement::Queue, "tasks_queue (project=? AND lane=?)"),
        (Statement::Due, "tasks_due (project=?"),
        (Statement::DueRoots, "tasks_due (project=?"),
        (Statement::Loops, "tasks_loops (project=? AND position>?)"),
        (Statement::OpenDecisions, "decisions_open (project=?"),
        (Statement::Decision, "(project=? AND id=?)"),
        (Statement::Outbox, "(project=?"),
    ] {
        let plan = plan(&connection, statement);
        assert!(plan.iter().any(|step| step.contains(wanted)), "{statement:?}: {plan:?}");
        let is_slow = |step: &&String| step.contains("TEMP B-TREE") || step.starts_with("SCAN t") || step.starts_with("SCAN d");
        assert_eq!(plan.iter().find(is_slow), None, "{statement:?}: {plan:?}");
    }
}
