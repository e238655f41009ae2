//! Several runners of one project: which one is woken, which one replaces a stopped one, and when all of them leave.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use banksman_core::backlog::Runner;
use banksman_core::{Status, TaskId};
use banksman_engine::{Request, TaskRequest};
use banksman_store::Key;
use rustix::process::Signal;

use crate::crashes::add;
use crate::postgres;
use crate::world::{DEADLINE, Running, World, until};

fn runners(world: &World) -> Vec<Runner> {
    let rows = world.project().reader().unwrap().view().load(&[Key::Runners].into()).unwrap();
    rows.tables.backlog.runners.into_values().collect()
}

fn until_idle(world: &World, count: usize) {
    until("the runners are idle", || runners(world).iter().filter(|runner| runner.idle.is_some()).count() == count);
}

fn status(world: &World, task: &TaskId) -> Status {
    world.project().reader().unwrap().view().load(&[Key::Task(task.clone())].into()).unwrap().backlog.tasks[task].status()
}

/// Adds a task, waits for its end, and returns the process that has run it.
fn runner_of(world: &World, title: &str) -> i32 {
    let client = world.project().open().unwrap();
    let task = add(&client, title, "true", |_| {});
    until("the task is completed", || status(world, &task) == Status::Completed);
    let started = world.events().into_iter().rev().find(|event| event.kind == "task:started").unwrap();
    let id = started.data["runner"].as_str().unwrap().to_owned();
    runners(world).iter().find(|runner| runner.id.as_str() == id).unwrap().process.pid
}

/// The runner that has waited longest is woken. If it is stopped and does not answer, another one does the task.
#[test]
fn a_task_does_not_wait_for_a_stopped_runner() {
    let world = World::new();
    world.ok(&["config", "set", "locking.poll_interval", "1s"]);
    let mut all = Vec::new();
    for count in 1..=3 {
        all.push(world.start(&["run", "--max-runs", "1"]));
        until_idle(&world, count);
    }
    // The runner on duty passes on the tasks that a silent runner leaves, so another one is stopped.
    let on_duty = runners(&world).into_iter().find(|runner| runner.has_duty).unwrap().process.pid;
    while runners(&world).iter().min_by_key(|runner| runner.idle.map(|idle| idle.ticket)).unwrap().process.pid == on_duty {
        runner_of(&world, "becomes the last waiter");
        until_idle(&world, 3);
    }
    let first = runners(&world).into_iter().min_by_key(|runner| runner.idle.map(|idle| idle.ticket)).unwrap();
    let stopped = all.iter().find(|runner| runner.pid() == first.process.pid).unwrap();
    stopped.stop_outside_transaction(&world);
    let began = Instant::now();
    assert_ne!(runner_of(&world, "another runner does it"), first.process.pid);
    assert!(began.elapsed() < DEADLINE);
    assert!(runners(&world).iter().any(|runner| runner.id == first.id), "it is not taken for dead");
    stopped.signal(Signal::CONT);
    until_idle(&world, 3);
    drop(all);
}

/// The last end wakes all runners at once: their next poll would come a minute later.
#[test]
fn runners_leave_together_when_the_last_task_has_ended() {
    let world = World::new();
    world.ok(&["config", "set", "locking.poll_interval", "60s"]);
    let client = world.project().open().unwrap();
    add(&client, "gate", "until [ -e open ]; do sleep 0.02; done", |_| {});
    let all: Vec<Running> = (0..4).map(|_| world.start(&["run", "--until-idle", "--max-runs", "1"])).collect();
    until_idle(&world, 3);
    world.touch("open");
    let began = Instant::now();
    for runner in all {
        let said = runner.end();
        assert_eq!(said.code, 0, "{said:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(runners(&world).is_empty());
}

/// Measures from the end of the last command to the exit of all runners. Beside other tests it may take longer now and then.
#[test]
fn runners_exit_within_100_ms_of_the_last_task() {
    let world = World::on_sqlite();
    world.ok(&["config", "set", "locking.poll_interval", "60s"]);
    let client = world.project().open().unwrap();
    let took = || {
        add(&client, "last", "until [ -e open ]; do sleep 0.01; done; rm open; date +%s%N > ended", |_| {});
        let all: Vec<Running> = (0..3).map(|_| world.start(&["run", "--until-idle", "--max-runs", "1"])).collect();
        until_idle(&world, 2);
        world.touch("open");
        all.into_iter().for_each(|runner| assert_eq!(runner.end().code, 0));
        let ended = Duration::from_nanos(world.lines("ended")[0].parse().unwrap());
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().saturating_sub(ended)
    };
    let times: Vec<Duration> = std::iter::repeat_with(took).take(10).take_while(|took| took.as_millis() > 100).collect();
    assert!(times.len() < 10, "{times:?}");
}

#[test]
fn a_backup_can_be_made_while_runners_claim() {
    let world = World::on_sqlite();
    world.ok(&["config", "set", "limits.max_concurrent_runs", "8"]);
    let client = world.project().open().unwrap();
    let tasks: Vec<TaskId> = (0..60).map(|n| add(&client, &format!("n {n}"), "echo $BANKSMAN_TASK >> done", |_| {})).collect();
    let all: Vec<Running> = (0..4).map(|_| world.start(&["run", "--until-idle", "--max-runs", "2"])).collect();
    until("something was done", || !world.lines("done").is_empty());
    for number in 0..3 {
        world.ok(&["store", "backup", &format!("{number}.db")]);
    }
    all.into_iter().for_each(|runner| assert_eq!(runner.end().code, 0));
    let done = world.lines("done");
    assert_eq!(done.len(), tasks.len());
    assert_eq!(done.iter().collect::<BTreeSet<_>>().len(), tasks.len(), "none twice");
}

/// Kills one of eight runners again and again, and starts another one in its place: every task runs exactly once.
pub(crate) fn kill_runners(tasks: usize, kills: usize) {
    let world = World::new();
    world.ok(&["config", "set", "limits.max_concurrent_runs", "16"]);
    let client = world.project().open().unwrap();
    let work = "echo $BANKSMAN_TASK >> done; sleep 0.1";
    let tasks: Vec<TaskId> = (0..tasks).map(|n| add(&client, &format!("n {n}"), work, |_| {})).collect();
    let start = || world.start(&["run", "--until-idle", "--max-runs", "2"]);
    let mut all: Vec<Running> = (0..8).map(|_| start()).collect();
    for number in 0..kills {
        let so_far = world.lines("done").len();
        // Waits for progress before the next kill, unless all is done.
        until("something was done", || world.lines("done").len() > so_far.min(tasks.len() - 1));
        let victim = number * 5 % 8;
        all[victim].signal(Signal::KILL);
        all[victim] = start();
    }
    all.into_iter().for_each(|runner| {
        let said = runner.end();
        assert_eq!(said.code, 0, "{said:?}");
    });
    let mut times: BTreeMap<String, usize> = tasks.iter().map(|task| (task.to_string(), 0)).collect();
    world.lines("done").into_iter().for_each(|task| *times.entry(task).or_default() += 1);
    let wrong: Vec<_> = times.into_iter().filter(|(_, times)| *times != 1).collect();
    assert_eq!(wrong, Vec::new(), "every task runs once");
    assert!(tasks.iter().all(|task| status(&world, task) == Status::Completed));
}

#[test]
fn eight_killed_runners_lose_and_double_no_task() {
    kill_runners(postgres::sized(60), 6);
}

/// A claim reads the rows of the tasks that it starts and few others, with and without table statistics.
pub(crate) fn check_rows_read_by_claims(waiting: usize) {
    if !postgres::wanted() {
        // On SQLite a test of the store counts the work of each statement.
        return;
    }
    let server = postgres::Server::start();
    server.sql("postgres", "CREATE DATABASE plans");
    let world = World::at(server.url("plans")).initialized();
    server.sql("plans", "ALTER TABLE banksman.tasks SET (autovacuum_enabled = off)");
    let spec = || banksman_core::task::Spec {
        work: Some(banksman_core::task::Work::Run("true".into())),
        ..banksman_core::task::Spec::new("some work".parse().unwrap())
    };
    let add = |number: usize| {
        let id = TaskId::new(&format!("t-{number}")).unwrap();
        Request::Task(TaskRequest::Add { id, spec: Box::new(spec()), depends_on: Vec::new(), by: None })
    };
    for first in (0..waiting).step_by(500) {
        let batch: Vec<Request> = (first..first + 500).map(add).collect();
        // A connection keeps the plans that it made while the table was empty, and those read all tasks to find one.
        let mut store = world.project().open_store().unwrap();
        store.batch(&batch).into_iter().for_each(|committed| drop(committed.unwrap()));
    }
    for counted in [false, true] {
        if counted {
            server.sql("plans", "ANALYZE");
        }
        let (before, done) = (rows_read(&server), completed(&server));
        let runner = world.start(&["run", "--max-runs", "1"]);
        until("tasks were done", || completed(&server) >= done + 20);
        runner.stop();
        let tasks = completed(&server) - done;
        // Includes the rows that this test reads.
        let each = (rows_read(&server) - before) / tasks as u64;
        let tables =
            "SELECT relname, seq_tup_read, idx_tup_fetch FROM pg_stat_user_tables WHERE idx_tup_fetch > 0 ORDER BY 3 DESC";
        let indexes = "SELECT indexrelname, idx_scan, idx_tup_read FROM pg_stat_user_indexes WHERE idx_scan > 0 ORDER BY 3 DESC";
        let read = || [tables, indexes].map(|sql| server.sql("plans", sql)).join("\n");
        assert!(each < 60, "{each} rows for each of {tasks} tasks, statistics: {counted}\n{}", read());
    }
}

/// The number of completed tasks by the counters in the row of the project: any other way reads the tasks.
fn completed(server: &postgres::Server) -> usize {
    let count = "SELECT coalesce((task_counts::json ->> 'completed')::bigint, 0) FROM banksman.projects";
    server.sql("plans", count).trim().parse().unwrap()
}

/// The number of rows read from all tables of Banksman, once all other connections are closed.
fn rows_read(server: &postgres::Server) -> u64 {
    until("all other connections are closed", || {
        server.sql("plans", "SELECT count(*) FROM pg_stat_activity WHERE datname = 'plans'").trim() == "1"
    });
    let sum = "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables WHERE schemaname = 'banksman'";
    server.sql("plans", sum).trim().parse().unwrap()
}

/// On a server every announcement is a transaction of its own.
#[test]
fn events_are_announced_only_while_a_follower_exists() {
    let world = World::new();
    let project = world.project();
    let mut store = project.open_store().unwrap();
    let mut is_followed = |number: usize| {
        let spec = banksman_core::task::Spec::new("some work".parse().unwrap());
        let id = TaskId::new(&format!("t-{number}")).unwrap();
        let add = Request::Task(TaskRequest::Add { id, spec: Box::new(spec), depends_on: Vec::new(), by: None });
        store.batch(&[add]).pop().unwrap().unwrap().is_followed
    };
    // On SQLite an announcement costs nothing.
    assert_eq!(is_followed(0), !postgres::wanted());
    let follower = project.follow(banksman_core::Seq(0)).unwrap();
    assert!(is_followed(1));
    drop(follower);
    let runner = world.start(&["run"]);
    until_idle(&world, 1);
    let mut number = 1;
    // The connection of a dropped follower closes a moment later.
    until("the follower is gone", || {
        number += 1;
        is_followed(number) != postgres::wanted()
    });
    runner.stop();
}

#[test]
fn a_claim_on_postgres_reads_few_rows_beside_many_waiting_tasks() {
    check_rows_read_by_claims(5_000);
}
