//! Runners, keepers and children that are killed at any moment: no task is lost or run twice at a time, and each end is recorded
//! once.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use banksman_core::backlog::Run;
use banksman_core::task::{Spec, Work};
use banksman_core::{Status, TaskId, Title};
use banksman_engine::{Reply, Request, TaskOutcome, TaskRequest};
use banksman_runtime::Client;
use rustix::process::Signal;

use crate::world::{Running, World, is_alive, kill, until};

/// A task that records when it begins and ends, and whether another run of it is alive. It ends when the file `open` exists.
pub(crate) const WATCHED: &str = r#"
    mkdir -p running
    for other in running/*; do
        [ -e "$other" ] || continue
        case "$(cat /proc/${other#running/}/stat 2>/dev/null)" in ''|*') Z '*) ;; *) echo "$other" >> doubled ;; esac
    done
    : > running/$$
    echo "$BANKSMAN_RUN" >> begun
    while [ ! -e open ]; do sleep 0.02; done
    echo "$BANKSMAN_RUN" >> ended
"#;

pub(crate) fn add(client: &Client, title: &str, command: &str, change: impl FnOnce(&mut Spec)) -> TaskId {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let id = TaskId::new(&format!("t-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))).unwrap();
    let mut spec = Spec { work: Some(Work::Run(command.into())), ..Spec::new(Title::new(title).unwrap()) };
    change(&mut spec);
    let request = TaskRequest::Add { id: id.clone(), spec: Box::new(spec), depends_on: Vec::new(), by: None };
    match client.call(Request::Task(request)).unwrap() {
        Reply::Task(TaskOutcome::Kept(_)) => id,
        reply => panic!("{reply:?}"),
    }
}

/// The child processes of a process.
fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()).collect()
}

#[derive(Clone, Copy, PartialEq)]
enum Moment {
    Start,
    Run,
    Exit,
    Report,
}

/// Which of the three processes to kill, as bits.
const RUNNER: u8 = 1;
const KEEPER: u8 = 2;
const CHILD: u8 = 4;

fn kill_at(moment: Moment, whom: u8) {
    let world = World::new();
    let client = world.project().open().unwrap();
    let task = add(&client, "watched", WATCHED, |spec| spec.retries = 3);
    let mut runner = world.start(&["run", "--until-idle"]);
    let open = || world.touch("open");
    until("the claim", || world.everything().backlog.tasks[&task].attempts > 0);
    if moment != Moment::Start {
        until("the beginning", || !world.lines("begun").is_empty());
    }
    let keepers = children(runner.pid());
    let kept: Vec<i32> = keepers.iter().flat_map(|keeper| children(*keeper)).collect();
    match moment {
        Moment::Start | Moment::Run => {}
        Moment::Exit => open(),
        Moment::Report => {
            runner.signal(Signal::STOP);
            open();
            until("the end", || !world.lines("ended").is_empty());
            until("the record of the end", || keepers.iter().all(|keeper| !is_alive(*keeper)));
        }
    }
    if whom & RUNNER != 0 {
        kill(runner.pid());
    }
    if whom & KEEPER != 0 {
        keepers.iter().copied().for_each(kill);
    }
    if whom & CHILD != 0 {
        kept.iter().copied().for_each(kill);
    }
    open();
    if whom & RUNNER != 0 {
        drop(runner);
        runner = world.start(&["run", "--until-idle"]);
    } else if moment == Moment::Report {
        runner.signal(Signal::CONT);
    }
    let said = runner.end();
    let what = format!("{whom:03b}: {said:?}");
    assert_eq!(said.code, 0, "{what}");
    check_one(&world, &task, &what);
}

/// Asserts that the task is completed, every run has ended once, and nothing of them is left.
fn check_one(world: &World, task: &TaskId, what: &str) {
    let rows = world.everything().tables.backlog;
    assert_eq!(rows.tasks[task].status(), Status::Completed, "{what}");
    assert_eq!(world.lines("doubled"), Vec::<String>::new(), "two runs at a time: {what}");
    assert!(rows.outbox.is_empty(), "{what}");
    let runs: Vec<&Run> = rows.runs.values().filter(|run| run.task == *task).collect();
    let events = world.events();
    for run in &runs {
        assert!(run.ended.is_some(), "{what}");
        let ends = ["task:complete", "task:restarting", "task:failed", "task:cancelled"];
        let recorded = events.iter().filter(|event| ends.contains(&event.kind.as_str()) && event.data["run"] == run.id.as_str());
        assert_eq!(recorded.count(), 1, "the end of {} is recorded once: {what}", run.id);
    }
    let begun = world.lines("begun");
    assert!(begun.iter().all(|run| begun.iter().filter(|other| *other == run).count() == 1), "no run begins twice: {what}");
    let held = world.snapshot().tables.coordination.semaphores.into_values().find(|row| row.name.as_str() == "runs").unwrap();
    assert!(held.holders.is_empty(), "{what}");
    let left = std::fs::read_dir(world.path().join(".banksman/runs")).into_iter().flatten().flatten();
    let left: Vec<_> = left.filter(|file| !is_tombstone(&file.path())).map(|file| file.path()).collect();
    assert_eq!(left, Vec::<std::path::PathBuf>::new(), "records that are not needed: {what}");
}

fn is_tombstone(path: &Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.contains("buried"))
}

#[test]
fn a_kill_at_the_start_loses_and_doubles_no_task() {
    (1..8).for_each(|whom| kill_at(Moment::Start, whom));
}

#[test]
fn a_kill_during_the_run_loses_and_doubles_no_task() {
    (1..8).for_each(|whom| kill_at(Moment::Run, whom));
}

#[test]
fn a_kill_at_the_exit_loses_and_doubles_no_task() {
    (1..8).for_each(|whom| kill_at(Moment::Exit, whom));
}

#[test]
fn a_kill_before_the_end_is_reported_loses_and_doubles_no_task() {
    // By this time keeper and child have ended.
    kill_at(Moment::Report, RUNNER);
    kill_at(Moment::Report, 0);
}

#[test]
fn two_runners_run_each_of_500_tasks_once() {
    let world = World::new();
    let client = world.project().open().unwrap();
    let tasks: Vec<TaskId> = (0..crate::postgres::sized(500))
        .map(|n| add(&client, &format!("n {n}"), "echo $BANKSMAN_TASK >> done", |_| {}))
        .collect();
    let runners: Vec<Running> = (0..2).map(|_| world.start(&["run", "--until-idle", "--max-runs", "2"])).collect();
    for runner in runners {
        let said = runner.end();
        assert_eq!(said.code, 0, "{said:?}");
    }
    let mut done = world.lines("done");
    done.sort();
    let mut wanted: Vec<String> = tasks.iter().map(ToString::to_string).collect();
    wanted.sort();
    assert_eq!(done, wanted);
}

#[test]
fn a_live_session_is_adopted_by_one_of_two_runners() {
    let world = World::new();
    let client = world.project().open().unwrap();
    let task = add(&client, "watched", WATCHED, |_| {});
    let first = world.start(&["run"]);
    until("the beginning", || !world.lines("begun").is_empty());
    let others = [world.start(&["run", "--until-idle"]), world.start(&["run", "--until-idle"])];
    until("three runners", || world.everything().backlog.runners.len() == 3);
    first.signal(Signal::KILL);
    until("the adoption", || world.events().iter().any(|event| event.kind == "task:adopted"));
    world.touch("open");
    for other in others {
        let said = other.end();
        assert_eq!(said.code, 0, "{said:?}");
    }
    let adopted = world.events().into_iter().filter(|event| event.kind == "task:adopted").count();
    assert_eq!(adopted, 1);
    assert_eq!(world.lines("begun").len(), 1, "it went on, it was not started again");
    check_one(&world, &task, "adopted");
}

#[test]
fn cancel_ends_hidden_processes_before_the_slot_is_free() {
    let world = World::new();
    let client = world.project().open().unwrap();
    let hide = r#"
        note='echo $$ >> pids; exec sleep 600'
        setsid sh -c "$note" &
        setsid sh -c "setsid sh -c '$note' & exit" &
        (env -i PATH="$PATH" setsid sh -c "$note" &)
        env -i PATH="$PATH" sh -c "$note" &
        until [ "$(wc -l < pids)" = 4 ]; do sleep 0.02; done
        : > hidden
        trap '' TERM
        wait; sleep 600
    "#;
    let task = add(&client, "hider", hide, |_| {});
    world.ok(&["config", "set", "task.kill_grace", "300ms"]);
    let runner = world.start(&["run"]);
    until("four hidden processes", || world.has("hidden"));
    let pids: Vec<i32> = world.lines("pids").iter().map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.len() == 4 && pids.iter().all(|pid| is_alive(*pid)));
    client.call(Request::Task(TaskRequest::Cancel { id: task.clone() })).unwrap();
    until("the end", || world.everything().backlog.tasks[&task].status() == Status::Cancelled);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "freed while processes live");
    let events = world.events();
    let at = |kind: &str| events.iter().find(|event| event.kind == kind).map(|event| event.id).unwrap();
    assert!(at("task:stopping") < at("semaphore:released"));
    assert_eq!(runner.stop().code, 0);
}

#[test]
fn the_limit_of_the_project_holds_across_runners() {
    let world = World::new();
    world.ok(&["config", "set", "limits.max_concurrent_runs", "2"]);
    let client = world.project().open().unwrap();
    let count = "mkdir -p live; : > live/$$; ls live | wc -l >> counts; sleep 0.05; rm live/$$";
    (0..24).for_each(|n| drop(add(&client, &format!("n {n}"), count, |_| {})));
    let runners: Vec<Running> = (0..3).map(|_| world.start(&["run", "--until-idle"])).collect();
    for runner in runners {
        let said = runner.end();
        assert_eq!(said.code, 0, "{said:?}");
    }
    let counts: Vec<u32> = world.lines("counts").iter().map(|count| count.trim().parse().unwrap()).collect();
    assert_eq!(counts.len(), 24);
    assert!(counts.iter().all(|count| *count <= 2), "{counts:?}");
}

#[test]
fn a_silent_run_is_stuck_until_it_prints_again() {
    let world = World::new();
    world.ok(&["config", "set", "task.silence_timeout", "300ms"]);
    let client = world.project().open().unwrap();
    let silent = "until [ -e speak ]; do sleep 0.02; done; until [ -e open ]; do echo hello; sleep 0.02; done";
    let task = add(&client, "silent", silent, |_| {});
    let runner = world.start(&["run", "--until-idle"]);
    let status = || world.everything().backlog.tasks[&task].status();
    until("it is stuck", || status() == Status::Stuck);
    world.touch("speak");
    until("it is running again", || status() == Status::InProgress);
    world.touch("open");
    let said = runner.end();
    assert_eq!(said.code, 0, "{said:?}");
    let kinds: Vec<String> = world.events().into_iter().map(|event| event.kind).collect();
    assert!(["task:stuck", "task:recovered"].iter().all(|kind| kinds.iter().any(|other| other == kind)), "{kinds:?}");
    assert!(said.stderr.contains("stuck") && said.stderr.contains("recovered"), "{said:?}");
}

#[test]
fn a_runner_that_is_stopped_leaves_its_sessions_running() {
    let world = World::new();
    let client = world.project().open().unwrap();
    let task = add(&client, "watched", WATCHED, |_| {});
    let first = world.start(&["run"]);
    until("the beginning", || !world.lines("begun").is_empty());
    assert_eq!(first.stop().code, 0);
    assert!(world.everything().backlog.runners.is_empty());
    let second = world.start(&["run", "--until-idle"]);
    until("the adoption", || world.events().iter().any(|event| event.kind == "task:adopted"));
    world.touch("open");
    let said = second.end();
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(world.lines("begun").len(), 1);
    check_one(&world, &task, "left");
}
