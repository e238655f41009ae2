//! Limits of accounts, with real processes: who starts, who waits, and who is killed in between.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::agents::{INIT, RESULT, trusted};
use crate::world::{World, until};

const ANSWER: &str = r#"echo '{"type":"assistant","message":{"id":"m-1","content":[{"type":"text","text":"hello"}]}}'"#;

/// A claude that is limited for so many seconds as long as there is no file `open`; it then answers once there is a file `answer`, and ends
/// once there is a file `end`.
fn limited(world: &World, name: &str, seconds: u32) {
    let limit = format!(
        "T=$(($(date +%s)+{seconds})); echo '{{\"type\":\"rate_limit_event\",\"rate_limit_info\":{{\"status\":\"rejected\",\
         \"resetsAt\":'$T',\"rateLimitType\":\"five_hour\"}}}}'; \
         echo '{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":true,\"api_error_status\":429,\"result\":\"session limit\"}}'; exit 1"
    );
    let wait = |file: &str| format!("while [ ! -e {}/{file} ]; do sleep 0.02; done", world.path().display());
    let open = world.path().join("open");
    let script = format!(
        "{INIT}; if [ ! -e {} ]; then {limit}; fi; {}; {ANSWER}; {}; {RESULT}",
        open.display(),
        wait("answer"),
        wait("end")
    );
    trusted(world, name, &script);
}

fn touch(world: &World, file: &str) {
    fs::write(world.path().join(file), "").unwrap();
}

/// How often the program was started.
fn starts(world: &World, name: &str) -> usize {
    fs::read_to_string(world.path().join(format!("{name}.sh.args"))).unwrap_or_default().lines().count()
}

fn limit(world: &World) -> serde_json::Value {
    world.data(&["status"])["accountLimits"][0].clone()
}

#[test]
fn nobody_starts_while_an_account_is_limited_and_one_tries_it_first() {
    let world = World::new();
    limited(&world, "mine", 3);
    for title in ["a", "b", "c", "d", "e"] {
        world.ok(&["tasks", "add", title, "--agent", "mine"]);
    }
    world.ok(&["tasks", "add", "plain", "--run", "true"]);
    let runner = world.start(&["run", "--max-runs", "2"]);
    until("the limit is known", || limit(&world)["state"] == "waiting");
    until("the others go on", || world.data(&["tasks", "show", "plain"])["status"] == "completed");
    let known = starts(&world, "mine");
    assert!(known <= 2, "{known} have found out");
    let why = world.ok(&["why", "e"]);
    assert!(why.contains("mine: limit reached, resets ") && why.contains("one run tries it in "), "{why}");
    let status = world.data(&["status"]);
    assert_eq!((&status["slots"]["used"], &status["runs"]), (&0.into(), &serde_json::json!([])), "all slots are free");
    assert!(world.ok(&["status"]).contains("mine: limit reached, resets "));
    assert!(world.ok(&["agents", "list"]).contains("mine: limit reached, resets "));
    touch(&world, "open");
    until("its time has come", || limit(&world)["state"] == "probing");
    assert_eq!(starts(&world, "mine"), known + 1, "one tries it");
    assert!(world.ok(&["why", "e"]).contains("it may start when that run has its first answer"));
    touch(&world, "answer");
    until("the others follow its answer", || starts(&world, "mine") == known + 2);
    assert!(limit(&world).is_null(), "it is over before the run that has tried it");
    touch(&world, "end");
    let is_done = |title: &str| world.data(&["tasks", "show", title])["status"] == "completed";
    until("all are done", || ["a", "b", "c", "d", "e"].iter().all(|title| is_done(title)));
    let first = world.data(&["tasks", "show", "a"]);
    assert_eq!(first["attempts"], 1, "a limit is no attempt: {first}");
    let resumed = fs::read_to_string(world.path().join("mine.sh.args")).unwrap();
    assert!(resumed.lines().nth(known).unwrap().contains("--resume s-1"), "the same session goes on: {resumed}");
    drop(runner);
    world.check();
}

#[test]
fn a_probe_that_is_killed_with_its_runner_and_its_keeper_is_handed_on() {
    let world = World::new();
    limited(&world, "mine", 2);
    for title in ["a", "b"] {
        world.ok(&["tasks", "add", title, "--agent", "mine"]);
    }
    let mut runner = world.start(&["run", "--max-runs", "1"]);
    until("the limit is known", || limit(&world)["state"] == "waiting");
    touch(&world, "open");
    until("one tries it", || limit(&world)["state"] == "probing");
    let run = limit(&world)["run"].as_str().unwrap().to_owned();
    until("its session is known", || !world.data(&["status"])["runs"].as_array().unwrap().is_empty());
    let sessions = world.data(&["sessions", "list"]);
    let keeper = sessions["sessions"][0]["keeperPid"].as_i64().unwrap_or_else(|| panic!("{sessions}"));
    runner.0.kill().unwrap();
    runner.0.wait().unwrap();
    kill_process(Pid::from_raw(i32::try_from(keeper).unwrap()).unwrap(), Signal::KILL).unwrap();
    let _second = world.start(&["run", "--max-runs", "1"]);
    until("another run tries it", || limit(&world)["run"].as_str().is_some_and(|other| other != run));
    touch(&world, "answer");
    touch(&world, "end");
    until("both are done", || ["a", "b"].iter().all(|title| world.data(&["tasks", "show", title])["status"] == "completed"));
    world.check();
}

#[test]
fn a_login_waits_for_a_person_who_has_it_tried_at_once() {
    let world = World::new();
    let refused = format!(
        "{INIT}; if [ ! -e {}/open ]; then echo '{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":true,\
        \"result\":\"Not logged in · Please run /login\"}}'; exit 1; fi; {RESULT}",
        world.path().display()
    );
    trusted(&world, "mine", &refused);
    world.ok(&["tasks", "add", "a", "--agent", "mine"]);
    let _runner = world.start(&["run"]);
    until("it is known", || world.ok(&["why", "a"]).contains("mine: not logged in, tried again "));
    assert!(world.ok(&["why", "a"]).contains("banksman agents retry mine"));
    touch(&world, "open");
    let said = world.ok(&["agents", "retry", "mine"]);
    assert!(said.contains("the next run of mine tries whether it works again"), "{said}");
    until("it is done", || world.data(&["tasks", "show", "a"])["status"] == "completed");
    assert!(world.ok(&["agents", "retry", "mine"]).contains("mine is not limited"));
    assert_eq!(world.run(&["agents", "retry", "nobody"]).code, 4);
}
