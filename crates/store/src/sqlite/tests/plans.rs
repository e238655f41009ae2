//! The statements of claims and those that read the log must find their rows by an index, whatever the number of rows.

use rusqlite::{Connection, StatementStatus};

use crate::dialect;
use crate::schema::MIGRATIONS;
use crate::tables::*;

fn plan(connection: &Connection, statement: Statement) -> Vec<String> {
    let text = format!("EXPLAIN QUERY PLAN {}", dialect::sqlite(statement.text()));
    let mut prepared = connection.prepare(&text).unwrap();
    let rows = prepared.raw_query().mapped(|row| row.get::<_, String>(3)).collect::<Result<Vec<_>, _>>();
    rows.unwrap()
}

/// The plan of a statement, one step of which must contain this text.
fn plan_with(connection: &Connection, statement: Statement, wanted: &str) -> Vec<String> {
    let plan = plan(connection, statement);
    assert!(plan.iter().any(|step| step.contains(wanted)), "{statement:?}: {plan:?}");
    plan
}

#[test]
fn every_statement_is_valid_and_has_its_own_index() {
    let connection = store();
    let numbers: Vec<usize> = Statement::all().map(Statement::index).collect();
    assert_eq!(numbers, (0..Statement::COUNT).collect::<Vec<_>>());
    let of_postgres = [projects::Statement::Notify, projects::Statement::Followed].map(projects::Statement::erased);
    let is_possible = |one: &Statement| !of_postgres.contains(one) && !one.text().contains(" SET  WHERE ");
    for statement in Statement::all().filter(is_possible) {
        let prepared = connection.prepare(&dialect::sqlite(statement.text()));
        assert!(prepared.is_ok(), "{statement:?}: {:?}", prepared.err());
    }
}

#[test]
fn compaction_reads_and_deletes_by_key() {
    let connection = store();
    for (statement, wanted) in [
        (baseline::Statement::One.erased(), "(project=? AND component=? AND id=?)"),
        (baseline::Statement::Delete.erased(), "(project=? AND component=? AND id=?)"),
        (events::Statement::DeleteThrough.erased(), "PRIMARY KEY (rowid<?)"),
        (events::Statement::After.erased(), "PRIMARY KEY (rowid>?)"),
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
        (tasks::Statement::Ready.erased(), "tasks_ready (project=? AND lane=?)"),
        (runs::Statement::Live.erased(), "runs_live (project=? AND live=?)"),
        (tasks::Statement::Live.erased(), "runs_live (project=? AND live=?)"),
        (tasks::Statement::ById.erased(), "(project=? AND id=?)"),
        (runs::Statement::ById.erased(), "runs_id (id=? AND project=?)"),
        (runs::Statement::OfTask.erased(), "runs_task (task=? AND project=?)"),
        (edges::Statement::OfTask.erased(), "PRIMARY KEY (task=?)"),
        (tasks::Statement::Dependencies.erased(), "PRIMARY KEY (task=?)"),
        (edges::Statement::OnTask.erased(), "edges_back (on_task=?)"),
        (tasks::Statement::CountUnmetOfDependents.erased(), "edges_back (on_task=?)"),
        (tasks::Statement::CountUnmet.erased(), "PRIMARY KEY (task=?)"),
        (locks::Statement::ByName.erased(), "(project=? AND name=?)"),
        (slots::Statement::OfSemaphore.erased(), "(project=? AND semaphore=?)"),
        (tasks::Statement::IdByTitle.erased(), "tasks_title (title=? AND project=?)"),
        (tasks::Statement::Imported.erased(), "tasks_position (project=? AND position>?)"),
    ];
    for (statement, wanted) in by_key {
        let plan = plan_with(&connection, statement, wanted);
        let scans = plan.iter().find(|step| ["SCAN t", "SCAN r", "SCAN e", "SCAN d"].iter().any(|scan| step == scan));
        assert_eq!(scans, None, "{statement:?}: {plan:?}");
    }
}

/// Tasks that wait for a lock are parked on it, and loading parked tasks loads the runners to wake, too.
#[test]
fn a_call_about_a_lock_reads_its_row_and_its_waiters() {
    let reads = |name: &str| {
        let keys = [crate::Key::Lock(banksman_core::Name::new(name).unwrap())].into();
        crate::load::plan(1, &keys).into_iter().map(|query| query.statement).collect::<Vec<_>>()
    };
    let (waiters, idle) = (waiters::Statement::All.erased(), runners::Statement::Idle.erased());
    let lock = locks::Statement::ByName.erased();
    assert_eq!(reads("build"), [waiters, lock]);
    assert_eq!(reads("section:s-1"), [waiters, idle, lock], "tasks that wait for a section are not parked");
}

/// A temporary table costs SQLite more than the rest of a short statement: it has its own page cache.
#[test]
fn frequent_statements_need_no_temporary_table() {
    let connection = store();
    for statement in [
        projects::Statement::One.erased(),
        waiters::Statement::All.erased(),
        locks::Statement::ByName.erased(),
        locks::Statement::OfPipeline.erased(),
        semaphores::Statement::OfPipeline.erased(),
        slots::Statement::OfPipeline.erased(),
        queues::Statement::ByName.erased(),
        takers::Statement::OfQueue.erased(),
        items::Statement::Ready.erased(),
    ] {
        let text = format!("EXPLAIN {}", dialect::sqlite(statement.text()));
        let mut prepared = connection.prepare(&text).unwrap();
        let steps = prepared.raw_query().mapped(|row| row.get::<_, String>(1)).collect::<Result<Vec<_>, _>>().unwrap();
        let made = steps.iter().filter(|step| ["OpenEphemeral", "SorterOpen"].contains(&step.as_str())).count();
        assert_eq!(made, 0, "{statement:?}");
    }
}

/// The cost of reading ready tasks in steps of SQLite's virtual machine, and the tasks.
fn ready_tasks(connection: &Connection) -> (i32, Vec<String>) {
    let mut prepared = connection.prepare(&dialect::sqlite(tasks::Statement::Ready.erased().text())).unwrap();
    prepared.raw_bind_parameter(1, 1).unwrap();
    prepared.raw_bind_parameter(2, 3).unwrap();
    let found = prepared.raw_query().mapped(|row| row.get(0)).collect::<Result<Vec<String>, _>>().unwrap();
    (prepared.get_status(StatementStatus::VmStep), found)
}

#[test]
fn a_claim_skips_an_unfinished_import_in_one_step() {
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
    let (without, found) = ready_tasks(&connection);
    assert_eq!(found.len(), 3);
    fill(20_000, "hidden", "'i-1'");
    connection.execute_batch("INSERT INTO imports VALUES (1, 'i-1', '{}', 0, 0, 20000, 20000, NULL)").unwrap();
    let (with, still) = ready_tasks(&connection);
    assert_eq!(still, found, "only visible tasks are found");
    assert!(with < without + 200, "{without} steps without the import, {with} with it");

    connection.execute_batch("DELETE FROM imports").unwrap();
    let (_, finished) = ready_tasks(&connection);
    assert_eq!(finished.len(), 6, "the first few of each lane");
}

/// The cost of a statement of a claim in steps of SQLite's virtual machine.
fn steps(connection: &Connection, statement: Statement) -> i32 {
    let mut prepared = connection.prepare(&dialect::sqlite(statement.text())).unwrap();
    let params: &[(usize, &dyn rusqlite::ToSql)] = match statement {
        Statement::Tasks(tasks::Statement::ParkedOn) => &[(1, &1), (2, &"lock:db"), (3, &16)],
        Statement::Edges(_) => &[(1, &1), (2, &"t-1"), (3, &500)],
        _ => &[(1, &1), (2, &8)],
    };
    let wanted = prepared.parameter_count();
    for (number, value) in params.iter().filter(|(number, _)| *number <= wanted) {
        prepared.raw_bind_parameter(*number, value).unwrap();
    }
    let mut rows = prepared.raw_query();
    while rows.next().unwrap().is_some() {}
    drop(rows);
    prepared.get_status(StatementStatus::VmStep)
}

/// Every other task is parked on one lock, and a tenth of the tasks depend on one task.
#[test]
fn the_cost_of_a_claim_does_not_depend_on_the_number_of_tasks() {
    let connection = store();
    let fill = |from: usize, to: usize| {
        connection
            .execute_batch(&format!(
                "WITH RECURSIVE n(n) AS (SELECT {from} UNION ALL SELECT n + 1 FROM n WHERE n < {to})
                 INSERT INTO tasks (project, id, title, priority, position, lane, spec, created_wall, state, changed_lease,
                                    changed_wall, attempts, failures, recoveries, parked)
                 SELECT 1, 't-' || n, 'a', 0, n, '//root', '{{}}', 0, 'pending', 0, 0, 0, 0, 0,
                        CASE WHEN n % 2 = 0 THEN 'lock:db' END FROM n;
                 INSERT INTO edges (project, task, on_task, allow_failed)
                 SELECT 1, id, 't-1', 0 FROM tasks WHERE position BETWEEN {from} AND {to} AND position % 10 = 9"
            ))
            .unwrap();
    };
    let of_claim = [
        tasks::Statement::Ready.erased(),
        tasks::Statement::ParkedOn.erased(),
        tasks::Statement::Parked.erased(),
        edges::Statement::CountOnTask.erased(),
    ];
    let measure = || of_claim.map(|statement| steps(&connection, statement));
    fill(1, 10_000);
    let few = measure();
    fill(10_001, 100_000);
    assert_eq!(measure(), few, "without statistics");
    connection.execute_batch("ANALYZE").unwrap();
    assert_eq!(measure(), few, "with statistics");
}

#[test]
fn due_tasks_and_open_decisions_are_read_in_index_order() {
    let connection = store();
    for (statement, wanted) in [
        (tasks::Statement::ReadyRoots.erased(), "tasks_queue (project=? AND lane=?)"),
        (tasks::Statement::Due.erased(), "tasks_due (project=?"),
        (tasks::Statement::DueRoots.erased(), "tasks_due (project=?"),
        (tasks::Statement::Loops.erased(), "tasks_loops (project=? AND position>?)"),
        (decisions::Statement::Open.erased(), "decisions_open (project=?"),
        (decisions::Statement::ById.erased(), "(project=? AND id=?)"),
        (outbox::Statement::All.erased(), "(project=?"),
    ] {
        let plan = plan_with(&connection, statement, wanted);
        let is_slow = |step: &&String| step.contains("TEMP B-TREE") || step.starts_with("SCAN t") || step.starts_with("SCAN d");
        assert_eq!(plan.iter().find(is_slow), None, "{statement:?}: {plan:?}");
    }
}

#[test]
fn a_take_reads_by_the_indexes_of_its_queue() {
    let connection = store();
    for (statement, wanted) in [
        (items::Statement::Ready.erased(), "items_ready (project=? AND queue=?)"),
        (items::Statement::Moved.erased(), "items_ready (project=? AND queue=?)"),
        (items::Statement::Due.erased(), "items_due (project=? AND queue=?"),
        (items::Statement::Backoff.erased(), "items_due (project=? AND queue=?"),
        (items::Statement::Processing.erased(), "items_due (project=? AND queue=?"),
        (items::Statement::Dead.erased(), "items_dead (project=? AND queue=?"),
        (items::Statement::ByKey.erased(), "items_dedupe (project=? AND queue=? AND dedupe=?)"),
        (items::Statement::ById.erased(), "PRIMARY KEY (id=? AND project=?)"),
        (items::Statement::Update.erased(), "PRIMARY KEY (id=? AND project=?)"),
        (items::Statement::Delete.erased(), "PRIMARY KEY (id=? AND project=?)"),
        (queues::Statement::ByName.erased(), "PRIMARY KEY (project=? AND name=?)"),
        (takers::Statement::First.erased(), "PRIMARY KEY (project=? AND queue=?)"),
    ] {
        let plan = plan_with(&connection, statement, wanted);
        let is_slow = |step: &&String| step.contains("TEMP B-TREE FOR ORDER") || step.starts_with("SCAN items");
        assert_eq!(plan.iter().find(is_slow), None, "{statement:?}: {plan:?}");
    }
    for statement in [items::Statement::Counts.erased(), items::Statement::OfWorkers.erased()] {
        let counts = plan(&connection, statement);
        for index in ["items_ready", "items_due", "items_dead"] {
            assert!(counts.iter().any(|step| step.contains(index)), "{statement:?}: {counts:?}");
        }
    }
}

/// Claims and pushes cost next to nothing in a project without workers and routes.
#[test]
fn workers_and_routes_are_found_by_their_keys() {
    let connection = store();
    for (statement, wanted) in [
        (runners::Statement::OfQueue.erased(), "workers_queue (project=? AND queue=?)"),
        (jobs::Statement::OfWorker.erased(), "PRIMARY KEY (project=? AND worker=?)"),
        (marks::Statement::Routed.erased(), "PRIMARY KEY (project=? AND name=?)"),
        (jobs::Statement::Delete.erased(), "PRIMARY KEY (project=? AND worker=? AND task=?)"),
        (events::Statement::Heard.erased(), "PRIMARY KEY (rowid>?)"),
    ] {
        plan_with(&connection, statement, wanted);
    }
    for statement in [
        workers::Statement::Everything.erased(),
        jobs::Statement::OfWorker.erased(),
        runners::Statement::OfQueue.erased(),
        runners::Statement::OfQueues.erased(),
    ] {
        let plan = plan(&connection, statement);
        assert_eq!(plan.iter().find(|step| step.starts_with("SCAN ")), None, "{statement:?}: {plan:?}");
    }
}

/// The cost of reading the first items of a queue in steps of SQLite's virtual machine.
fn first_item(connection: &Connection, statement: Statement) -> i32 {
    let mut prepared = connection.prepare(&dialect::sqlite(statement.text())).unwrap();
    prepared.raw_bind_parameter(1, 1).unwrap();
    prepared.raw_bind_parameter(2, "q").unwrap();
    prepared.raw_bind_parameter(3, 2).unwrap();
    assert_eq!(prepared.raw_query().mapped(|row| row.get::<_, i64>(0)).count(), 2);
    prepared.get_status(StatementStatus::VmStep)
}

#[test]
fn the_cost_of_a_take_does_not_depend_on_the_number_of_items() {
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
    let measure = || [items::Statement::Ready.erased(), items::Statement::Due.erased()].map(|part| first_item(&connection, part));
    fill(1, 1_000);
    let few = measure();
    fill(1_001, 100_000);
    assert_eq!(measure(), few);
}

#[test]
fn a_pipeline_advances_without_reading_other_pipelines() {
    let connection = store();
    let by_key = [
        (pipelines::Statement::OfTask.erased(), "SEARCH p USING INDEX"),
        (pipelines::Statement::Due.erased(), "pipelines_due (project=? AND due<?)"),
        (listeners::Statement::Next.erased(), "pipelines_due (project=? AND due>?)"),
        (listeners::Statement::Next.erased(), "listeners_since (project=?)"),
        (pipelines::Statement::Heard.erased(), "SEARCH l USING PRIMARY KEY (project=? AND component=? AND about=?)"),
        (locks::Statement::Awaited.erased(), "SEARCH l USING PRIMARY KEY (project=? AND component=? AND about>?)"),
        (semaphores::Statement::Awaited.erased(), "SEARCH l USING PRIMARY KEY (project=? AND component=? AND about>?)"),
        (slots::Statement::Awaited.erased(), "SEARCH l USING PRIMARY KEY (project=? AND component=? AND about>?)"),
        (listeners::Statement::Delete.erased(), "PRIMARY KEY (project=? AND component=? AND about=? AND pipeline=?)"),
        (pipelines::Statement::Open.erased(), "pipelines_open (project=?"),
        (pipelines::Statement::OfFamily.erased(), "tasks_parent (project=? AND parent=?)"),
        (tasks::Statement::Family.erased(), "tasks_parent (project=? AND parent=?)"),
        (landings::Statement::Above.erased(), "landings_task (project=? AND task=?)"),
    ];
    for (statement, wanted) in by_key {
        let plan = plan_with(&connection, statement, wanted);
        // A search by the project alone reads all its rows. The family, the events and the awaited resources are few.
        let is_few = |step: &str| [" f", " e", " a", " awaited", "CONSTANT ROW"].iter().any(|few| step.contains(few));
        let is_slow = |step: &&String| {
            step.starts_with("SCAN") && !is_few(step)
                || step.ends_with("autoindex_pipelines_1 (project=?)")
                || step.ends_with("autoindex_tasks_1 (project=?)")
        };
        assert_eq!(plan.iter().find(is_slow), None, "{statement:?}: {plan:?}");
    }
}
