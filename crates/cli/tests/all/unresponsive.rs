//! A process that does not answer, or does not read, blocks nothing else: stopped keepers and runners, pipes in place of files, output that
//! is not read. None of this depends on the store.

use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::postgres;
use crate::world::{Running, World, is_alive, until};

/// A command that stops its keeper, records the pids, and stays.
const STOPS: &str = "kill -STOP $PPID; echo $PPID $$ > stopped; exec sleep 600";

/// An upper bound, also on a busy machine: less than several waits for one keeper.
const SOON: Duration = Duration::from_secs(20);

fn world(settings: &[(&str, &str)]) -> World {
    let world = World::on_sqlite();
    settings.iter().for_each(|(name, value)| drop(world.ok(&["config", "set", name, value])));
    world
}

/// The pids of the stopped keeper and of the command that has stopped it.
fn stopped(world: &World) -> [i32; 2] {
    let read = || -> Option<[i32; 2]> {
        let text = std::fs::read_to_string(world.path().join("stopped")).ok()?;
        let pids: Vec<i32> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        pids.try_into().ok()
    };
    until("the keeper is stopped", || read().is_some_and(|[keeper, _]| state(keeper) == Some('T')));
    read().unwrap()
}

fn state(pid: i32) -> Option<char> {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?.rsplit_once(')')?.1.trim_start().chars().next()
}

fn task(world: &World, title: &str) -> Value {
    let tasks = world.data(&["tasks", "list"])["tasks"].clone();
    tasks.as_array().unwrap().iter().find(|task| task["title"] == title).unwrap().clone()
}

fn status(world: &World, title: &str) -> String {
    task(world, title)["status"].as_str().unwrap().to_owned()
}

fn ends_when_asked(runner: Running) {
    let asked = Instant::now();
    assert_eq!(runner.stop().code, 0);
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
}

#[test]
fn a_stopped_keeper_is_reported_and_blocks_no_other_run() {
    if postgres::wanted() {
        return;
    }
    // Checkpoints make the runner query the keeper constantly.
    let world = world(&[("task.checkpoint_interval", "50ms"), ("task.kill_grace", "1s")]);
    world.ok(&["tasks", "add", "Stops", "--run", STOPS]);
    let runner = world.start(&["run"]);
    let pids = stopped(&world);
    let began = Instant::now();
    world.ok(&["tasks", "add", "L0", "--run", "true"]);
    for n in 1..6 {
        world.ok(&["tasks", "add", &format!("L{n}"), "--run", "true", "--depends-on", &format!("L{}", n - 1)]);
    }
    until("the others are done", || status(&world, "L5") == "completed");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let why = world.data(&["why", "Stops"]);
    assert_eq!(why["run"]["keeperSilence"], "it is stopped", "{why}");
    // The keeper may have been stopped before the pid of its command was known.
    assert!(why["message"].as_str().unwrap().contains("does not answer: it is stopped"), "{why}");
    let shown = world.data(&["status"]);
    assert!(shown["next"].as_str().unwrap().contains("does not answer"), "{shown}");
    assert_eq!(world.data(&["sessions", "list"])["sessions"][0]["state"], "no_answer");
    let doctor = world.run(&["doctor"]);
    assert_eq!(doctor.code, 7, "{doctor:?}");
    assert!(doctor.stdout.contains("banksman sessions kill r-"), "{doctor:?}");
    // The cancellation kills the keeper with its process tree.
    let cancelled = world.data(&["tasks", "cancel", "Stops"]);
    assert_eq!(cancelled["tasks"][0]["outcome"], "cancelled", "{cancelled}");
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    world.check();
    ends_when_asked(runner);
}

#[test]
fn a_session_without_a_runner_and_with_a_stopped_keeper_can_be_killed() {
    if postgres::wanted() {
        return;
    }
    let world = world(&[("task.kill_grace", "1s")]);
    world.ok(&["tasks", "add", "Stops", "--run", STOPS]);
    let runner = world.start(&["run"]);
    let pids = stopped(&world);
    runner.kill();
    let run = world.data(&["sessions", "list"])["sessions"][0]["run"].as_str().unwrap().to_owned();
    assert_eq!(world.data(&["sessions", "kill", &run])["outcome"], "killed");
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    assert_eq!(status(&world, "Stops"), "failed");
}

#[test]
fn time_limits_follow_the_records_of_keepers() {
    if postgres::wanted() {
        return;
    }
    let world = world(&[("task.checkpoint_interval", "50ms"), ("task.kill_grace", "1s"), ("task.max_duration", "4s")]);
    world.ok(&["tasks", "add", "Stops", "--run", STOPS]);
    world.ok(&["tasks", "add", "Sleeps", "--run", "exec sleep 1"]);
    let runner = world.start(&["run", "--until-idle"]);
    let pids = stopped(&world);
    assert_eq!(runner.end().code, 7);
    assert_eq!(status(&world, "Sleeps"), "completed", "only the runner was late");
    assert_eq!((status(&world, "Stops"), &task(&world, "Stops")["error"]), ("failed".into(), &"it took longer than 4s".into()));
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
}

#[test]
fn a_run_that_ended_in_time_is_not_late_under_a_stopped_runner() {
    if postgres::wanted() {
        return;
    }
    let world = world(&[("task.max_duration", "2s")]);
    world.ok(&["tasks", "add", "Sleeps", "--run", "touch up; exec sleep 0.5"]);
    let runner = world.start(&["run", "--until-idle"]);
    until("it is up", || world.has("up"));
    runner.signal(Signal::STOP);
    let record = || std::fs::read_dir(world.path().join(".banksman/runs")).unwrap().flatten().next().map(|entry| entry.path());
    until("its end is recorded", || record().is_some_and(|path| std::fs::read_to_string(path).unwrap().contains("ended")));
    // The runner is continued after the limit has passed.
    let from = Instant::now();
    until("the limit is over", || from.elapsed() > Duration::from_secs(2));
    runner.signal(Signal::CONT);
    assert_eq!(runner.end().code, 0);
}

#[test]
fn cancel_and_kill_return_although_the_runner_is_stopped() {
    let Some(world) = World::only_on_sqlite() else { return };
    world.ok(&["tasks", "add", "Long", "--run", "touch up; exec sleep 600"]);
    let runner = world.start(&["run"]);
    until("it is up", || world.has("up"));
    runner.signal(Signal::STOP);
    let error = world.assert_refused(&["tasks", "cancel", "Long", "--timeout", "300ms"], 6, "STILL_STOPPING");
    let run = error["details"]["run"].as_str().unwrap();
    assert_eq!(world.error(&["sessions", "kill", run, "--timeout", "300ms"]).0, 6);
    runner.signal(Signal::CONT);
    until("it is over", || status(&world, "Long") == "cancelled");
    world.check();
    ends_when_asked(runner);
}

#[test]
fn a_pipe_in_place_of_a_file_blocks_no_process() {
    let Some(world) = World::only_on_sqlite() else { return };
    let script = "test $BANKSMAN_ATTEMPT = 1 && exec grep -q \'exit status 3\' \"$BANKSMAN_LAST_RESULT\"; \
                  cd \"$BANKSMAN_TASK_DIR\"; mkfifo last-result.json.new last-result.json; exit 3";
    world.ok(&["tasks", "add", "Pipes", "--retries", "1", "--run", script]);
    world.ok(&["tasks", "add", "Other", "--run", "true"]);
    assert_eq!(world.start(&["run", "--until-idle"]).end().code, 0);
}

#[test]
fn a_runner_with_unread_output_continues_and_stops_on_request() {
    if postgres::wanted() {
        return;
    }
    unread_output(60, |mut runner, _pipe| {
        let asked = Instant::now();
        runner.signal(Signal::TERM);
        runner.0.wait().unwrap();
        assert!(asked.elapsed() < Duration::from_secs(40), "{:?}", asked.elapsed());
    });
}

/// Runs this many tasks with output to a pipe that has room for a few lines.
fn unread_output(tasks: u64, then: impl FnOnce(Running, PipeReader)) {
    let world = World::on_sqlite();
    let lines: String = (0..tasks).map(|n| format!("{{\"title\": \"T{n}\", \"run\": \"true\"}}\n")).collect();
    std::fs::write(world.path().join("tasks.jsonl"), lines).unwrap();
    world.ok(&["tasks", "import", "tasks.jsonl"]);
    let (read, write) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(write.as_fd(), 4_096).unwrap();
    let runner = world.command(&["run"]).stdout(Stdio::null()).stderr(write).spawn().unwrap();
    until("all are done", || world.data(&["status"])["byStatus"]["completed"].as_u64() == Some(tasks));
    then(Running(runner), read);
}

#[test]
#[ignore = "a thousand tasks"]
fn dropped_lines_of_unread_output_are_counted() {
    unread_output(1_000, |runner, mut pipe| {
        runner.signal(Signal::TERM);
        let mut said = String::new();
        pipe.read_to_string(&mut said).unwrap();
        assert!(said.contains(" lines of output were dropped"), "{said}");
    });
}

#[test]
fn a_guard_that_stops_its_supervisor_leaves_no_process() {
    let Some(world) = World::only_on_sqlite() else { return };
    let runbook = "[pipeline.p]\n[[pipeline.p.phase]]\nname = 'go'\nrun = 'true'\npre = ['stops']\n\
                   [guard.stops]\ncondition = { command = 'sleep 600 & echo $PPID $! > pids.new; mv pids.new stopped; kill -STOP $PPID; wait' }\n";
    crate::runbooks::write(&world, "p", runbook);
    world.ok(&["pipelines", "start", "p"]);
    world.ok(&["tasks", "add", "Other", "--run", "true"]);
    let runner = world.start(&["run"]);
    let pids = stopped(&world);
    until("the other is done", || status(&world, "Other") == "completed");
    ends_when_asked(runner);
    until("nothing of it is left", || pids.iter().all(|pid| !is_alive(*pid)));
}
