//! Escalation of runs that take too long or show no activity: each step, and how often it is taken.

use banksman_core::Name;
use banksman_core::task::State;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::loops::{add_loop, events_of, pid_in, row};
use crate::tasks::wait_for;
use crate::world::{BANKSMAN, World, is_alive, until};

/// A run that keeps printing.
const TALKS: &str = "while [ ! -e go ]; do echo hello; sleep 0.02; done";

/// The events of a run that stays silent, up to the last step.
const STEPS: [&str; 10] =
    ["added", "started", "stuck", "nudged 1", "stopping", "restarting 2", "started", "stuck", "nudged 3", "stopping"];

/// A world with this silence timeout.
fn world(timeout: &str, settings: &[(&str, &str)]) -> World {
    let world = World::new();
    for (key, value) in [("task.silence_timeout", timeout), ("task.kill_grace", "200ms")].iter().chain(settings) {
        world.ok(&["config", "set", key, value]);
    }
    world
}

/// The events of a task in order, with their counts of recoveries.
fn history(world: &World, id: &str) -> Vec<String> {
    history_without(world, id, &[])
}

/// Like `history`, without adoptions and without the events of these runs.
fn history_without(world: &World, id: &str, runs: &[&Value]) -> Vec<String> {
    let is_left_out = |event: &banksman_store::EventRow| event.kind == "task:adopted" || runs.contains(&&event.data["run"]);
    let of_it = |event: &banksman_store::EventRow| event.source.id.as_deref() == Some(id) && !is_left_out(event);
    let word = |event: banksman_store::EventRow| {
        let word = event.kind.strip_prefix("task:").unwrap_or(&event.kind).to_owned();
        match event.data["recoveries"].as_u64() {
            Some(recoveries) => format!("{word} {recoveries}"),
            None => word,
        }
    };
    world.events().into_iter().filter(of_it).map(word).collect()
}

fn count(world: &World, id: &str, word: &str) -> usize {
    events_of(world, id, word).len()
}

/// The times of a task's events of one kind, in milliseconds.
fn times(world: &World, id: &str, kind: &str) -> Vec<i64> {
    let of_it = |event: &banksman_store::EventRow| event.source.id.as_deref() == Some(id) && event.kind == kind;
    world.events().into_iter().filter(of_it).map(|event| event.wall.0).collect()
}

/// Asserts that the task waits for a decision and that no process, slot or lock of its run is left. Returns the decision.
fn check_parked(world: &World, id: &str, pids: &[i32]) -> String {
    let State::AwaitingDecision { decision } = row(world, id).state else { panic!("{:?}", row(world, id)) };
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    let rows = world.everything();
    assert!(rows.coordination.semaphores[&Name::runs()].holders.is_empty());
    assert!(rows.coordination.locks.values().all(|lock| lock.state == banksman_core::resource::lock::State::Free));
    assert!(rows.backlog.outbox.is_empty(), "{:?}", rows.backlog.outbox);
    let raised = world.events().into_iter().filter(|event| event.kind == "decision:raised").count();
    assert_eq!((raised, rows.backlog.decisions.len()), (1, 1));
    assert_eq!(world.status(id), "blocked");
    let why = world.data(&["why", id]);
    assert_eq!((&why["answer"], &why["decision"]), (&"parked".into(), &decision.as_str().into()), "{why}");
    decision.to_string()
}

#[test]
fn an_active_run_is_stopped_after_max_duration() {
    let world = world("10m", &[("task.max_duration", "400ms")]);
    let plain = world.add(&["plain", "--run", TALKS]);
    let again = world.add(&["again", "--run", TALKS, "--retries", "1"]);
    let looped = add_loop(&world, "looped", TALKS, &["--max-attempts", "2"]);
    assert_eq!(world.run_all(), 7);
    let error = |id: &str| world.task(id)["error"].as_str().unwrap().to_owned();
    assert_eq!((error(&plain), error(&again)), ("it took longer than 400ms".into(), "it took longer than 400ms".into()));
    assert_eq!(error(&looped), "not done after 2 attempts, and max_attempts is 2; the last one: it took too long");
    assert_eq!(history(&world, &plain), ["added", "started", "stopping", "failed"]);
    for id in [&again, &looped] {
        let expected = ["added", "started", "stopping", "restarting 0", "started", "stopping", "failed"];
        assert_eq!(history(&world, id), expected, "no run that talks is ever stuck");
        assert_eq!((&events_of(&world, id, "restarting")[0]["why"], row(&world, id).recoveries), (&"overtime".into(), 0));
    }
    for id in [&plain, &again, &looped] {
        let (started, stopping) = (times(&world, id, "task:started"), times(&world, id, "task:stopping"));
        // Two clocks, each truncated to milliseconds.
        assert!(started.iter().zip(&stopping).all(|(started, stopping)| stopping - started >= 398), "{started:?} {stopping:?}");
    }
}

#[test]
fn a_nudge_recovers_a_silent_run_and_resets_the_count() {
    let world = world("1s", &[("task.max_duration", "10m")]);
    // Sleeps until it is nudged, prints until a file exists, and does both twice.
    let script = "trap 'touch woken' USR1
        for round in 1 2; do
            sleep 1000 & until [ -e woken ]; do wait; done
            kill $!; rm woken
            until [ -e go-$round ]; do echo $round; sleep 0.02; done
        done";
    let id = world.add(&["sleeper", "--run", script]);
    let runner = world.runner(&["--until-idle"]);
    for round in 1..=2 {
        until("it has recovered", || count(&world, &id, "recovered") == round);
        let task = row(&world, &id);
        assert_eq!((world.status(&id), task.recoveries), ("in_progress".into(), 0), "it puts something out");
        world.touch(&format!("go-{round}"));
    }
    assert_eq!(runner.end().code, 0);
    let expected = ["added", "started", "stuck", "nudged 1", "recovered 0", "stuck", "nudged 1", "recovered 0", "complete"];
    assert_eq!(history(&world, &id), expected);
    assert!(world.ok(&["tasks", "logs", &id]).contains("banksman: nudged\n"));
}

#[test]
fn a_nudge_continues_a_stopped_run_and_does_not_end_it() {
    let world = world("1s", &[]);
    let id = world.add(&["stopped", "--run", &format!("echo $$ > pid; {TALKS}")]);
    let runner = world.runner(&["--until-idle"]);
    let child = Pid::from_raw(pid_in(&world, "pid")).unwrap();
    kill_process(child, Signal::STOP).unwrap();
    until("it has recovered", || count(&world, &id, "recovered") == 1);
    world.touch("go");
    assert_eq!(runner.end().code, 0);
    assert_eq!(history(&world, &id), ["added", "started", "stuck", "nudged 1", "recovered 0", "complete"]);
}

#[test]
fn a_heartbeat_counts_as_activity() {
    let world = world("2s", &[]);
    let script = format!("while [ ! -e go ]; do {BANKSMAN} tasks heartbeat > /dev/null; sleep 0.1; done");
    let id = world.add(&["beats", "--run", &script]);
    let other = world.add(&["silent", "--run", &wait_for("go")]);
    let runner = world.runner(&["--until-idle"]);
    until("the silent one is stuck", || count(&world, &other, "stuck") == 1);
    world.touch("go");
    assert_eq!(runner.end().code, 0);
    assert_eq!(history(&world, &id), ["added", "started", "complete"]);
}

#[test]
fn a_silent_run_is_escalated_until_a_person_decides() {
    let world = world("1s", &[("task.max_recovery_attempts", "3"), ("task.max_duration", "10m")]);
    let script = "echo $$ >> pids; trap '' TERM USR1; setsid sh -c 'echo $$ >> pids; exec sleep 600' & wait; sleep 600";
    let id = world.add(&["silent", "--run", script, "--lock", "deploy"]);
    let said = world.runner(&["--until-idle"]).end();
    assert_eq!(said.code, 7, "what waits for a person is not well: {said:?}");
    assert_eq!(history(&world, &id), [&STEPS[..], &["escalate"]].concat());
    assert_eq!(events_of(&world, &id, "restarting")[0]["why"], "stuck");
    let pids: Vec<i32> = world.read("pids").lines().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 4);
    let decision = check_parked(&world, &id, &pids);
    let escalate = world.events().into_iter().find(|event| event.kind == "escalate").unwrap().data;
    assert_eq!(escalate["decision"], decision.as_str());
    let error = "no activity for 1s; recovered 3 times";
    assert_eq!(escalate["error"], error);
    let shown = world.data(&["decisions", "show", &decision]);
    assert!(shown["question"].as_str().unwrap().contains(error), "{shown}");
    // Each step comes one timeout after the one before: never earlier, and not always two timeouts later.
    let (started, stuck) = (times(&world, &id, "task:started"), times(&world, &id, "task:stuck"));
    let stopping = times(&world, &id, "task:stopping");
    let gaps = || started.iter().zip(&stuck).chain(stuck.iter().zip(&stopping)).map(|(before, after)| after - before);
    assert!(gaps().all(|gap| gap >= 998) && gaps().any(|gap| gap < 1_900), "{started:?} {stuck:?} {stopping:?}");
}

#[test]
fn on_exhausted_fail_fails_the_task() {
    for (allowed, helped) in [("1", "; recovered once"), ("0", "")] {
        let world = world("300ms", &[("task.max_recovery_attempts", allowed), ("task.on_exhausted", "fail")]);
        let id = world.add(&["silent", "--run", "sleep 600", "--retries", "5"]);
        assert_eq!(world.run_all(), 7);
        let task = world.task(&id);
        let error = format!("no activity for 300ms{helped}");
        assert_eq!((&task["status"], &task["error"], &task["attempts"]), (&"failed".into(), &error.into(), &1.into()));
        assert_eq!(world.data(&["decisions", "list", "--all"])["decisions"], Value::Array(Vec::new()));
    }
}

#[test]
fn a_silent_attempt_of_a_loop_counts_as_attempt_and_recovery() {
    let world = world("300ms", &[("task.max_recovery_attempts", "10")]);
    let id = add_loop(&world, "silent", "sleep 600", &["--max-attempts", "2"]);
    assert_eq!(world.run_all(), 7);
    assert_eq!(history(&world, &id), [&STEPS[..], &["failed"]].concat());
    let restarting = &events_of(&world, &id, "restarting")[0];
    assert_eq!((&restarting["why"], &restarting["failures"]), (&"stuck".into(), &1.into()));
    let error = "not done after 2 attempts, and max_attempts is 2; the last one: no activity";
    assert_eq!(world.task(&id)["error"], error);
}

#[test]
fn no_step_is_repeated_when_the_runner_is_killed_after_each() {
    let world = world("500ms", &[("task.max_recovery_attempts", "3")]);
    let id = world.add(&["silent", "--run", "echo $$ >> pids; sleep 600"]);
    let steps =
        [("started", 1), ("stuck", 1), ("stopping", 1), ("restarting", 1), ("started", 2), ("nudged", 2), ("stopping", 2)];
    for (step, number) in steps {
        let runner = world.runner(&[]);
        until(&format!("{step} {number}"), || count(&world, &id, step) >= number);
        until("the run", || step == "restarting" || world.read("pids").lines().count() >= number);
        runner.kill();
    }
    assert_eq!(world.run_all(), 7);
    // A run that never began because its runner was killed is followed by another one, which is no step.
    let restarting = events_of(&world, &id, "restarting");
    let never: Vec<&Value> = restarting.iter().filter(|event| event["why"] == "never").map(|event| &event["run"]).collect();
    let words = history_without(&world, &id, &never);
    assert_eq!(words, [&STEPS[..], &["escalate"]].concat());
    let pids: Vec<i32> = world.read("pids").lines().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    check_parked(&world, &id, &pids);
}

#[test]
fn a_stuck_run_recovers_with_the_next_runner() {
    let world = world("1s", &[]);
    let script = format!("{}; {TALKS}", wait_for("speak"));
    let id = world.add(&["silent", "--run", &script]);
    let runner = world.runner(&[]);
    until("it is stuck", || count(&world, &id, "stuck") == 1);
    runner.kill();
    world.touch("speak");
    let runner = world.runner(&["--until-idle"]);
    until("it has recovered", || count(&world, &id, "recovered") == 1);
    assert_eq!(row(&world, &id).recoveries, 0);
    world.touch("go");
    assert_eq!(runner.end().code, 0);
}

#[test]
fn checkpoints_are_recorded_at_their_interval_if_set() {
    let quiet = world("10m", &[]);
    let id = quiet.add(&["talks", "--run", "echo hello; sleep 0.3"]);
    assert_eq!(quiet.run_all(), 0);
    assert_eq!(count(&quiet, &id, "checkpoint"), 0);

    let world = world("10m", &[("task.checkpoint_interval", "250ms")]);
    let id = world.add(&["talks", "--run", TALKS]);
    let runner = world.runner(&["--until-idle"]);
    until("four checkpoints", || count(&world, &id, "checkpoint") >= 4);
    world.touch("go");
    assert_eq!(runner.end().code, 0);
    let (run, checkpoints) = (events_of(&world, &id, "started")[0]["run"].clone(), events_of(&world, &id, "checkpoint"));
    let bytes: Vec<u64> = checkpoints.iter().map(|checkpoint| checkpoint["outputBytes"].as_u64().unwrap()).collect();
    assert!(bytes.is_sorted_by(|one, next| one < next) && bytes[0] > 0, "{bytes:?}");
    assert!(checkpoints.iter().all(|checkpoint| checkpoint["run"] == run && checkpoint["quiet"].as_i64().unwrap() < 10_000));
    let start = times(&world, &id, "task:started")[0];
    for (beat, at) in (1..).zip(times(&world, &id, "task:checkpoint")) {
        assert!(at - start >= 250 * beat - 2, "the beat {beat} comes after {} ms", at - start);
    }
}

#[test]
fn file_changes_without_output_count_as_activity_for_a_while() {
    let world = world("300ms", &[("task.max_recovery_attempts", "0"), ("task.on_exhausted", "fail")]);
    // Writes files in its own directory, and prints nothing.
    let writes =
        "exec 3<> <(:); i=0; while [ ! -e go ]; do i=$((i + 1)); : > file$((i % 5)); read -t 0.05 -u 3 x; done; touch stayed";
    let quiet = world.add(&["Quiet", "--workspace", "dir", "--run", &format!("exec bash -c '{writes}'")]);
    let hung = world.add(&["Hung", "--run", "exec sleep 1000"]);
    let _runner = world.runner(&[]);
    world.until_status(&hung, "failed");
    assert_eq!(world.status(&quiet), "in_progress", "it works");
    world.until_status(&quiet, "failed");
    // The timeout, extended by at most four more.
    let took = times(&world, &quiet, "task:failed")[0] - times(&world, &quiet, "task:started")[0];
    assert!(took >= 1_500, "{took}");
    assert_eq!((count(&world, &quiet, "nudged"), world.has("stayed")), (0, false));
}

/// C8: the other two signs of work, in the checkout, where files prove nothing: others write there too.
#[test]
fn processor_use_and_new_children_count_as_activity_for_a_while() {
    let world = world("600ms", &[("task.max_recovery_attempts", "0"), ("task.on_exhausted", "fail")]);
    let add = |title: &str, script: &str| world.add(&[title, "--run", script]);
    let working = [add("Spins", "while :; do :; done"), add("Forks", "while :; do sleep 0.2 & sleep 0.1; done")];
    let writes = "exec 3<> <(:); while :; do : > file; read -t 0.1 -u 3 x; done";
    let idle = [add("Hung", "exec sleep 1000"), add("Writes", &format!("exec bash -c '{writes}'"))];
    let _runner = world.runner(&[]);
    idle.iter().for_each(|id| world.until_status(id, "failed"));
    assert_eq!(working.each_ref().map(|id| world.status(id)), ["in_progress"; 2]);
    for id in &working {
        world.until_status(id, "failed");
        // The timeout, extended by four more.
        let took = times(&world, id, "task:failed")[0] - times(&world, id, "task:started")[0];
        assert!(took >= 3_000, "{took}");
    }
}

#[test]
fn a_task_has_limits_of_its_own() {
    let world = world("10m", &[("task.max_recovery_attempts", "0"), ("task.on_exhausted", "fail")]);
    let silent = world.add(&["Silent", "--run", "exec sleep 1000", "--silence-timeout", "100ms"]);
    let long = world.add(&["Long", "--run", "exec sleep 1000", "--max-duration", "100ms"]);
    world.runner(&["--until-idle"]).end();
    let error = |id: &str| world.task(id)["error"].as_str().unwrap().to_owned();
    assert!(error(&silent).contains("100ms"), "{}", error(&silent));
    assert!(error(&long).contains("it took longer than 100ms"), "{}", error(&long));
    assert_eq!(world.task(&silent)["silenceTimeout"], "100ms");
    assert_eq!(world.error(&["tasks", "add", "x", "--run", "true", "--max-duration", "0s"]).0, 2);
    // The former name of the setting still works, with a note.
    let said = world.run(&["config", "set", "task.heartbeat_timeout", "7m"]);
    assert!(said.code == 0 && said.stderr.contains("task.silence_timeout"), "{said:?}");
    assert_eq!(world.data(&["config", "get", "task.silence_timeout"])["value"], "7m");
    let file = world.path().join(".banksman/config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("heartbeat_timeout"), "{text}");
    std::fs::write(&file, text.replace("silence_timeout", "heartbeat_timeout")).unwrap();
    assert_eq!(world.data(&["config", "get", "task.silence_timeout"])["value"], "7m");
}

#[test]
fn a_run_that_answers_every_nudge_is_never_failed() {
    let world = world("500ms", &[("task.max_recovery_attempts", "1"), ("task.on_exhausted", "fail")]);
    // Idle between two nudges, and answers each one.
    let idle = "trap \"echo here; sleep 0.2; echo still\" USR1; sleep 1000 & while [ ! -e go ]; do wait; done; kill %1";
    let id = world.add(&["Answers", "--run", &format!("exec bash -c '{idle}'")]);
    let _runner = world.runner(&[]);
    until("it was nudged more often than it is helped", || count(&world, &id, "nudged") >= 3);
    world.touch("go");
    world.until_status(&id, "completed");
}
