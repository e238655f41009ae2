//! The statements on the way of every claim, and those that go through the log, must find their rows by an index, however many rows there are.

use rusqlite::{Connection, StatementStatus};

use crate::dialect;
use crate::schema::MIGRATIONS;
use crate::sql::Statement;

fn plan(connection: &Connection, statement: Statement) -> Vec<String> {
    let text = format!("EXPLAIN QUERY PLAN {}", dialect::sqlite(statement.text()));
    let mut prepared = connection.prepare(&text).unwrap();
    let rows = prepared.raw_query().mapped(|row| row.get::<_, String>(3)).collect::<Result<Vec<_>, _>>();
    rows.unwrap()
}

#[test]
fn a_compaction_touches_what_it_is_about() {
    let connection = store();
    for (statement, wanted) in [
        (Statement::Kept, "(project=? AND component=? AND id=?)"),
        (Statement::DeleteKept, "(project=? AND component=? AND id=?)"),
        (Statement::DeleteEvents, "PRIMARY KEY (project=? AND seq<?)"),
        (Statement::Events, "PRIMARY KEY (project=? AND seq>?)"),
    ] {
        let plan = plan(&connection, statement);
        assert!(plan.len() == 1 && plan[0].contains(wanted), "{statement:?}: {plan:?}");
    }
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
        (Statement::TaskByTitle, "tasks_title (project=? AND title=?)"),
        (Statement::Imported, "tasks_position (project=? AND position>?)"),
    ];
    for (statement, wanted) in by_key {
        let plan = plan(&connection, statement);
        assert!(plan.iter().any(|step| step.contains(wanted)), "{statement:?}: {plan:?}");
        let scans = plan.iter().find(|step| ["SCAN t", "SCAN r", "SCAN e", "SCAN d"].iter().any(|scan| step == scan));
        assert_eq!(scans, None, "{statement:?}: {plan:?}");
    }
}

/// How much work a look for something to do is, counted in steps of SQLite's machine; and what it finds.
fn look(connection: &Connection) -> (i32, Vec<String>) {
    let mut prepared = connection.prepare(&dialect::sqlite(Statement::Ready.text())).unwrap();
    prepared.raw_bind_parameter(1, 1).unwrap();
    prepared.raw_bind_parameter(2, 3).unwrap();
    let found = prepared.raw_query().mapped(|row| row.get(0)).collect::<Result<Vec<String>, _>>().unwrap();
    (prepared.get_status(StatementStatus::VmStep), found)
}

#[test]
fn a_claim_passes_over_an_import_that_is_not_finished_in_one_step() {
    let connection = store();
    let fill = |count: usize, prefix: &str, import: &str| {
        let lane = format!("{}[]", import.trim_matches(['\'', 'N', 'U', 'L']));
        connection
            .execute_batch(&format!(
                "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count})
                 INSERT INTO tasks (project, id, title, priority, position, lane, spec, created_wall, state, changed_lease,
                                    changed_wall, attempts, failures, recoveries, import)
                 SELECT 1, '{prefix}' || n, 'a', 0, n, '{lane}', '{{}}', 0, 'pending', 0, 0, 0, 0, 0, {import} FROM n"
            ))
            .unwrap();
    };
    fill(5, "shown", "NULL");
    let (without, found) = look(&connection);
    assert_eq!(found.len(), 3);
    fill(20_000, "hidden", "'i-1'");
    connection.execute_batch("INSERT INTO imports VALUES (1, 'i-1', '{}', 0, 0, 20000, 20000, NULL)").unwrap();
    let (with, still) = look(&connection);
    assert_eq!(still, found, "only what is shown is found");
    assert!(with < without + 200, "{without} steps without the import, {with} with it");

    connection.execute_batch("DELETE FROM imports").unwrap();
    let (_, finished) = look(&connection);
    assert_eq!(finished.len(), 6, "the first few of each lane");
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

#[test]
fn a_take_reads_by_the_indexes_of_its_queue() {
    let connection = store();
    for (statement, wanted) in [
        (Statement::ReadyItems, "items_ready (project=? AND queue=?)"),
        (Statement::MovedItems, "items_ready (project=? AND queue=?)"),
        (Statement::DueItems, "items_due (project=? AND queue=?"),
        (Statement::RestingItems, "items_due (project=? AND queue=?"),
        (Statement::ProcessingItems, "items_due (project=? AND queue=?"),
        (Statement::DeadItems, "items_dead (project=? AND queue=?"),
        (Statement::ItemByKey, "items_dedupe (project=? AND queue=? AND dedupe=?)"),
        (Statement::Item, "PRIMARY KEY (id=? AND project=?)"),
        (Statement::UpdateItem, "PRIMARY KEY (id=? AND project=?)"),
        (Statement::DeleteItem, "PRIMARY KEY (id=? AND project=?)"),
        (Statement::QueueRow, "PRIMARY KEY (project=? AND name=?)"),
        (Statement::FirstTaker, "PRIMARY KEY (project=? AND queue=?)"),
    ] {
        let plan = plan(&connection, statement);
        assert!(plan.iter().any(|step| step.contains(wanted)), "{statement:?}: {plan:?}");
        let is_slow = |step: &&String| step.contains("TEMP B-TREE FOR ORDER") || step.starts_with("SCAN items");
        assert_eq!(plan.iter().find(is_slow), None, "{statement:?}: {plan:?}");
    }
    let counts = plan(&connection, Statement::QueueCounts);
    for index in ["items_ready", "items_due", "items_dead"] {
        assert!(counts.iter().any(|step| step.contains(index)), "{counts:?}");
    }
}

/// A look of a runner and a push cost next to nothing where there are no workers and no routes.
#[test]
fn workers_and_routes_are_found_by_their_keys() {
    let connection = store();
    for (statement, wanted) in [
        (Statement::Hands, "workers_queue (project=? AND queue=?)"),
        (Statement::WorkerRows, "PRIMARY KEY (project=? AND worker=?)"),
        (Statement::Cursor, "PRIMARY KEY (project=? AND name=?)"),
        (Statement::DeleteJob, "PRIMARY KEY (project=? AND worker=? AND task=?)"),
        (Statement::Heard, "PRIMARY KEY (project=? AND seq>?)"),
    ] {
        let plan = plan(&connection, statement);
        assert!(plan.iter().any(|step| step.contains(wanted)), "{statement:?}: {plan:?}");
    }
    for statement in [Statement::Crew, Statement::WorkerRows, Statement::Hands, Statement::AllHands] {
        let plan = plan(&connection, statement);
        assert_eq!(plan.iter().find(|step| step.starts_with("SCAN ")), None, "{statement:?}: {plan:?}");
    }
}

/// How much work the first item of a queue is, counted in steps of SQLite's machine.
fn first_item(connection: &Connection, statement: Statement) -> i32 {
    let mut prepared = connection.prepare(&dialect::sqlite(statement.text())).unwrap();
    prepared.raw_bind_parameter(1, 1).unwrap();
    prepared.raw_bind_parameter(2, "q").unwrap();
    prepared.raw_bind_parameter(3, 2).unwrap();
    assert_eq!(prepared.raw_query().mapped(|row| row.get::<_, i64>(0)).count(), 2);
    prepared.get_status(StatementStatus::VmStep)
}

#[test]
fn a_take_is_the_same_work_however_many_items_wait() {
    let connection = store();
    let fill = |from: usize, to: usize| {
        connection
            .execute_batch(&format!(
                "WITH RECURSIVE n(n) AS (SELECT {from} UNION ALL SELECT n + 1 FROM n WHERE n < {to})
                 INSERT INTO items (project, id, queue, data, priority, rank, created_lease, created_wall, attempts, fence, state,
                                    ready, due)
                 SELECT 1, n, 'q', '1', 0, n, 0, 0, 0, 0, 'pending', CASE WHEN n % 2 = 0 THEN 1 END,
                        CASE WHEN n % 2 = 1 THEN n END FROM n"
            ))
            .unwrap();
    };
    fill(1, 1_000);
    let few = [Statement::ReadyItems, Statement::DueItems].map(|statement| first_item(&connection, statement));
    fill(1_001, 100_000);
    let many = [Statement::ReadyItems, Statement::DueItems].map(|statement| first_item(&connection, statement));
    assert_eq!(few, many);
}

#[test]
fn a_pipeline_goes_on_without_a_look_at_others() {
    let connection = store();
    let by_key = [
        (Statement::Pipeline, "SEARCH p USING INDEX"),
        (Statement::DuePipelines, "pipelines_due (project=? AND due<?)"),
        (Statement::Listening, "pipelines_due (project=? AND due>?)"),
        (Statement::Listening, "listeners_since (project=?)"),
        (Statement::HeardPipelines, "SEARCH l USING PRIMARY KEY (project=? AND component=? AND about=?)"),
        (Statement::AwaitedLocks, "SEARCH l USING PRIMARY KEY (project=? AND component=? AND about>?)"),
        (Statement::AwaitedSemaphores, "SEARCH l USING PRIMARY KEY (project=? AND component=? AND about>?)"),
        (Statement::AwaitedSlots, "SEARCH l USING PRIMARY KEY (project=? AND component=? AND about>?)"),
        (Statement::DeleteListener, "PRIMARY KEY (project=? AND component=? AND about=? AND pipeline=?)"),
        (Statement::OpenPipelines, "pipelines_open (project=?"),
        (Statement::FamilyPipelines, "tasks_parent (project=? AND parent=?)"),
        (Statement::Family, "tasks_parent (project=? AND parent=?)"),
    ];
    for (statement, wanted) in by_key {
        let plan = plan(&connection, statement);
        assert!(plan.iter().any(|step| step.contains(wanted)), "{statement:?}: {plan:?}");
        // A search by the project alone goes through all of them. The family, what has happened and what is waited for are few.
        let is_few = |step: &str| [" f", " e", " a", " awaited", "CONSTANT ROW"].iter().any(|few| step.contains(few));
        let is_slow = |step: &&String| {
            step.starts_with("SCAN") && !is_few(step)
                || step.ends_with("autoindex_pipelines_1 (project=?)")
                || step.ends_with("autoindex_tasks_1 (project=?)")
        };
        assert_eq!(plan.iter().find(is_slow), None, "{statement:?}: {plan:?}");
    }
}
