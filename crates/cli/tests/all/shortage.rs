//! Shortages of the machine: tasks that cannot be started stay pending, use no attempt, and start when the shortage is over. None of this
//! depends on the store.

use std::process::Command;

use serde_json::Value;

use crate::postgres;
use crate::tasks::wait_for;
use crate::world::{BANKSMAN, Running, World, until};

const TASKS: usize = 20;

fn add_tasks(world: &World) {
    let line = |n| format!("{{\"title\": \"T{n}\", \"run\": \"echo $BANKSMAN_ATTEMPT >> attempts\"}}\n");
    std::fs::write(world.path().join("tasks.jsonl"), (0..TASKS).map(line).collect::<String>()).unwrap();
    world.ok(&["tasks", "import", "tasks.jsonl"]);
}

/// Limits the number of files that a process may open.
fn limit_files(runner: &Running, limit: usize) {
    let limit = format!("--nofile={limit}:4096");
    let status = Command::new("prlimit").args(["--pid", &runner.pid().to_string(), &limit]).status().unwrap();
    assert!(status.success());
}

#[test]
fn tasks_wait_for_a_shortage_to_pass_and_use_no_attempt() {
    let Some(world) = World::only_on_sqlite() else { return };
    world.ok(&["config", "set", "limits.max_concurrent_runs", "0"]);
    let runner = world.start(&["run"]);
    until("it is at work", || world.data(&["status"])["runners"].as_array().unwrap().len() == 1);
    // The keeper that the runner has started ahead is in use.
    world.add(&["long", "--run", &wait_for("go")]);
    world.until_status("long", "in_progress");
    // The runner can work, but cannot start another keeper.
    let open = || std::fs::read_dir(format!("/proc/{}/fd", runner.pid())).unwrap().count();
    limit_files(&runner, open() + 1);
    add_tasks(&world);
    until("the shortage is recorded", || world.data(&["status"])["runners"][0]["shortage"].is_object());
    // It is not known which task is tried next, or which one a keeper took that was started before the shortage.
    let mut why = Value::Null;
    until("a task that waits says so", || {
        let pending = world.data(&["tasks", "list", "--status", "pending"])["tasks"][0]["title"].as_str().unwrap().to_owned();
        why = world.data(&["why", &pending]);
        why["status"] == "pending"
    });
    assert_eq!((&why["attempts"], &why["reasons"][0]["kind"]), (&0.into(), &"shortage".into()), "{why}");
    assert!(why["reasons"][0]["message"].as_str().unwrap().contains("no more files can be opened"), "{why}");
    let doctor = world.run(&["doctor"]);
    assert!(doctor.code == 0 && doctor.stdout.contains("cannot start more runs"), "{doctor:?}");
    // The runner retries, but not constantly.
    let tries = || world.count("task:restarting");
    until("it has tried again", || tries() > 17);
    assert!(tries() < 30, "{}", tries());
    limit_files(&runner, 4_096);
    until("all are done", || world.data(&["status"])["byStatus"]["completed"] == TASKS);
    world.touch("go");
    world.until_status("long", "completed");
    until("there is enough", || world.data(&["status"])["runners"][0]["shortage"].is_null());
    let said = runner.stop();
    let lines = |word: &str| said.stderr.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!(
        (lines("waiting"), lines("resuming"), lines("started"), lines("completed")),
        (1, 1, TASKS + 1, TASKS + 1),
        "{said:?}"
    );
    let attempts = std::fs::read_to_string(world.path().join("attempts")).unwrap();
    assert_eq!(attempts, "0\n".repeat(TASKS));
}

/// Runs as a user without other processes, because root has no limit on them. That user must be able to run the binary.
#[test]
fn a_limit_on_processes_fails_no_task() {
    let is_root = rustix::process::getuid().is_root();
    let stranger = ["--reuid=54321", "--regid=54321", "--clear-groups", "--"];
    let may_run =
        || Command::new("setpriv").args(stranger).args([BANKSMAN, "--version"]).output().is_ok_and(|out| out.status.success());
    if postgres::wanted() || !is_root || !may_run() {
        return;
    }
    let world = World::on_sqlite();
    add_tasks(&world);
    let owned = Command::new("chown").args(["-R", "54321:54321"]).arg(world.path()).status().unwrap();
    assert!(owned.success());
    let args = [&stranger[..], &["prlimit", "--nproc=12:12", BANKSMAN, "run", "--until-idle"]].concat();
    let said: crate::world::Said = world.clean(Command::new("setpriv"), &args).output().unwrap().into();
    assert_eq!(said.code, 0, "{said:?}");
    let attempts = std::fs::read_to_string(world.path().join("attempts")).unwrap();
    assert_eq!(attempts, "0\n".repeat(TASKS));
}
