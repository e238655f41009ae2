//! Questions that only a person can answer: how they are raised, answered once, and withdrawn.

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use banksman_core::task::State;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::loops::{events_of, row};
use crate::world::{BANKSMAN, Running, Said, World, is_alive, until};

/// A run that is silent unless the file `mended` is there.
const SILENT: &str = "test -e mended || sleep 600";

/// A world in which a run that is silent for a moment waits for a decision.
fn world() -> World {
    let world = World::new();
    let settings = [("task.silence_timeout", "200ms"), ("task.max_recovery_attempts", "0"), ("task.kill_grace", "200ms")];
    for (key, value) in settings {
        world.ok(&["config", "set", key, value]);
    }
    world
}

/// Adds tasks that wait for a decision each. Returns the ids of tasks and decisions.
fn parked<const N: usize>(world: &World, titles: [&str; N]) -> [(String, String); N] {
    let ids = titles.map(|title| world.add(&[title, "--run", SILENT]));
    assert_eq!(world.run_all(), 7);
    ids.map(|id| (id.clone(), decision(world, &id)))
}

fn decision(world: &World, id: &str) -> String {
    match row(world, id).state {
        State::AwaitingDecision { decision } => decision.to_string(),
        state => panic!("{state:?}"),
    }
}

fn open(world: &World) -> Vec<String> {
    let list = world.data(&["decisions", "list"]);
    list["decisions"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn a_question_has_numbered_options_and_a_recommended_one() {
    let world = world();
    let [(task, decision)] = parked(&world, ["Deploy"]);
    let all = world.data(&["decisions", "list"])["decisions"].clone();
    let shown = world.data(&["decisions", "show", &decision]);
    assert_eq!((all.as_array().unwrap().len(), &all[0]), (1, &shown));
    let expected = ["answer", "by", "endedAt", "errand", "id", "note", "options", "question", "raisedAt", "recommended"];
    assert_eq!(keys(&shown), [expected.as_slice(), &["route", "run", "state", "task"]].concat());
    assert_eq!((&shown["id"], &shown["state"], &shown["task"]), (&decision.as_str().into(), &"open".into(), &task.into()));
    let options: Vec<(u64, &str)> = shown["options"]
        .as_array()
        .unwrap()
        .iter()
        .map(|option| (option["number"].as_u64().unwrap(), option["act"].as_str().unwrap()))
        .collect();
    assert_eq!(options, [(1, "retry"), (2, "fail"), (3, "skip"), (4, "cancel")]);
    assert_eq!(shown["recommended"], 1);
    let question = shown["question"].as_str().unwrap();
    assert!(question.starts_with("\"Deploy\" cannot go on by itself: no activity for 200ms"), "{question}");
    assert!(["answer", "by", "endedAt", "errand", "note"].iter().all(|key| shown[key].is_null()), "{shown}");
    let page = world.ok(&["decisions", "show", &decision]);
    assert!(page.contains("1  try it again, as if for the first time (recommended)\n  2  mark it as failed"), "{page}");
    world.assert_refused(&["decisions", "show", "d-999999"], 4, "DECISION_NOT_FOUND");
}

#[test]
fn each_option_is_carried_out_once() {
    let world = world();
    let [retry, fail, skip, cancel] = parked(&world, ["retry", "fail", "skip", "cancel"]);
    assert_eq!(open(&world).len(), 4);
    world.touch("mended");
    let resolved = world.data(&["decisions", "resolve", &retry.1, "--recommended", "--note", "the server is back"]);
    assert_eq!((&resolved["state"], &resolved["answer"]), (&"resolved".into(), &1.into()));
    assert_eq!((&resolved["note"], resolved["by"].is_string()), (&"the server is back".into(), true), "{resolved}");
    assert!(resolved["endedAt"].as_str().unwrap() >= resolved["raisedAt"].as_str().unwrap());
    assert_eq!(world.data(&["decisions", "show", &retry.1]), resolved);
    for ((_, decision), option) in [(&fail, "2"), (&skip, "3"), (&cancel, "4")] {
        world.ok(&["decisions", "resolve", decision, option]);
    }
    let status = [&retry, &fail, &skip, &cancel].map(|(task, _)| world.status(task));
    assert_eq!(status, ["pending", "failed", "skipped", "cancelled"]);
    assert_eq!(world.task(&fail.0)["error"], format!("marked as failed by decision {}", fail.1));
    assert_eq!((open(&world).len(), world.count("decision:resolved")), (0, 4));
    // A late answer changes nothing.
    for (task, decision) in [&retry, &fail, &skip, &cancel] {
        let before = world.task(task);
        let (code, error) = world.error(&["decisions", "resolve", decision, "4"]);
        assert_eq!((code, &error["code"], &error["details"]["state"]), (2, &"DECISION_OVER".into(), &"resolved".into()));
        assert_eq!(world.task(task), before);
    }
    world.ok(&["config", "set", "task.silence_timeout", "10m"]);
    assert_eq!(world.run_all(), 7, "one has failed");
    assert_eq!(world.status(&retry.0), "completed");
    assert_eq!((world.count("decision:raised"), world.count("decision:withdrawn")), (4, 0));
    assert_eq!(world.data(&["decisions", "list", "--all"])["decisions"].as_array().unwrap().len(), 4);
}

#[test]
fn a_retry_by_decision_resets_the_recoveries_and_may_ask_again() {
    let world = world();
    world.ok(&["config", "set", "task.max_recovery_attempts", "2"]);
    let [(task, first)] = parked(&world, ["again"]);
    assert_eq!(row(&world, &task).recoveries, 2);
    let nudges = || events_of(&world, &task, "nudged").len();
    let before = nudges();
    world.ok(&["decisions", "resolve", &first, "1"]);
    assert_eq!(row(&world, &task).recoveries, 0);
    assert_eq!(world.run_all(), 7);
    let second = decision(&world, &task);
    assert_ne!(first, second);
    // On a busy machine a session may begin slowly, which looks like a recovery and adds a nudge.
    assert!(before >= 1 && nudges() > before, "{before} {}", nudges());
    assert_eq!(open(&world), [second]);
}

#[test]
fn one_of_many_concurrent_answers_wins() {
    let world = world();
    let [(task, decision)] = parked(&world, ["contested"]);
    let answer = |option: &'static str| (option, world.start(&["decisions", "resolve", &decision, option, "--json"]));
    let answers: Vec<(&str, Running)> = ["2", "3", "4", "2", "3", "4"].into_iter().map(answer).collect();
    let said: Vec<(&str, Said)> = answers.into_iter().map(|(option, running)| (option, running.end())).collect();
    let (won, lost): (Vec<_>, Vec<_>) = said.into_iter().partition(|(_, said)| said.code == 0);
    assert_eq!(won.len(), 1, "{won:?}");
    for (_, said) in &lost {
        let error = serde_json::from_str::<Value>(&said.stdout).unwrap()["error"].take();
        assert_eq!((said.code, &error["code"]), (2, &"DECISION_OVER".into()));
        assert!(error["message"].as_str().unwrap().ends_with(&format!("with option {}", won[0].0)), "{error}");
    }
    let expected = match won[0].0 {
        "2" => "failed",
        "3" => "skipped",
        _ => "cancelled",
    };
    assert_eq!((&*world.status(&task), world.count("decision:resolved")), (expected, 1));
}

#[test]
fn an_invalid_answer_changes_nothing() {
    let world = world();
    let [(task, decision)] = parked(&world, ["Deploy"]);
    for option in ["0", "5"] {
        let error = world.assert_refused(&["decisions", "resolve", &decision, option], 2, "USAGE");
        assert_eq!(error["message"], format!("decision {decision} has options 1 to 4, not {option}"));
    }
    assert_eq!(world.run(&["decisions", "resolve", &decision]).code, 2);
    for unknown in ["d-999999", "nonsense"] {
        world.assert_refused(&["decisions", "resolve", unknown, "1"], 4, "DECISION_NOT_FOUND");
    }
    assert_eq!((open(&world), world.status(&task)), (vec![decision], "blocked".into()));
}

#[test]
fn a_manual_change_of_the_task_withdraws_its_question() {
    let world = world();
    let tasks = parked(&world, ["retry", "cancel", "delete", "done", "fail", "skip"]);
    world.ok(&["tasks", "retry", "retry"]);
    world.ok(&["tasks", "cancel", "cancel"]);
    world.ok(&["tasks", "delete", "delete"]);
    world.ok(&["tasks", "done", "done"]);
    world.ok(&["tasks", "fail", "fail", "--error", "no"]);
    world.ok(&["tasks", "update", "skip", "--status", "skipped"]);
    assert_eq!((open(&world).len(), world.count("decision:withdrawn"), world.count("decision:resolved")), (0, 6, 0));
    for (_, decision) in &tasks {
        assert_eq!(world.data(&["decisions", "show", decision])["state"], "withdrawn");
        let error = world.assert_refused(&["decisions", "resolve", decision, "4"], 2, "DECISION_OVER");
        assert!(error["message"].as_str().unwrap().contains("was withdrawn"), "{error}");
    }
    let status = ["retry", "cancel", "done", "fail", "skip"].map(|title| world.status(title));
    assert_eq!(status, ["pending", "cancelled", "completed", "failed", "skipped"]);
}

#[test]
fn a_cancel_by_decision_covers_children_and_their_questions() {
    let world = world();
    world.ok(&["config", "set", "task.silence_timeout", "1s"]);
    // The parent prints until its child has been added.
    let add = format!("{BANKSMAN} tasks add child --child --run 'sleep 600' &");
    let script = format!("{add} while kill -0 $! 2>/dev/null; do echo .; sleep 0.02; done; sleep 600");
    let parent = world.add(&["parent", "--run", &script]);
    assert_eq!(world.run_all(), 7);
    let (own, childs) = (decision(&world, &parent), decision(&world, world.task("child")["id"].as_str().unwrap()));
    world.ok(&["decisions", "resolve", &own, "4"]);
    assert_eq!((&*world.status("parent"), &*world.status("child")), ("cancelled", "cancelled"));
    assert_eq!(world.data(&["decisions", "show", &childs])["state"], "withdrawn");
    assert!(open(&world).is_empty());
}

/// Runs a review with this input.
fn review(world: &World, args: &[&str], typed: &str) -> Said {
    let mut command = world.command(&[&["decisions", "review"], args].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    Running(child).end()
}

#[test]
fn a_review_goes_through_all_questions() {
    let world = world();
    let [first, second, third] = parked(&world, ["first", "second", "third"]);
    let said = review(&world, &[], "q\n");
    assert_eq!((said.code, said.stdout.trim()), (0, "0 answered, 3 left"), "{said:?}");
    // Oldest question first: invalid text, an invalid number, then an answer; `s` for later; Enter for the recommended option.
    let mut order = [&first, &second, &third];
    order.sort_by_key(|(_, decision)| decision[2..].parse::<u64>().unwrap());
    let said = review(&world, &["--json"], "maybe\n9\n2\ns\n\n");
    let data = serde_json::from_str::<Value>(&said.stdout).unwrap()["data"].take();
    assert_eq!((said.code, &data["left"]), (0, &1.into()), "{said:?}");
    let resolved: Vec<(&str, u64)> = data["resolved"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["id"].as_str().unwrap(), it["answer"].as_u64().unwrap()))
        .collect();
    assert_eq!(resolved, [(&*order[0].1, 2), (&*order[2].1, 1)]);
    assert_eq!(order.map(|(task, _)| world.status(task)), ["failed", "blocked", "pending"]);
    assert_eq!(open(&world), [order[1].1.clone()]);
    // Without input nothing is answered.
    let said = review(&world, &[], "");
    assert!(said.code == 2 && said.stderr.contains("stdin is closed"), "{said:?}");
}

/// Takes five attempts of ten seconds, with growing pauses between them.
#[test]
#[ignore = "takes long: make soak"]
fn a_background_job_that_fails_five_times_raises_one_decision() {
    let world = world();
    world.ok(&["config", "set", "task.silence_timeout", "10m"]);
    let id = world.add(&["stubborn", "--run", "echo up; sleep 600"]);
    let runner = world.runner(&[]);
    until("it is up", || world.run(&["tasks", "logs", &id]).stdout.contains("up"));
    until("its processes are known", || world.everything().backlog.runs.values().any(|run| run.session.is_some()));
    let session = world.everything().backlog.runs.values().find_map(|run| run.session.clone()).unwrap();
    let keeper = Pid::from_raw(session.keeper).unwrap();
    kill_process(keeper, Signal::STOP).unwrap();
    world.ok(&["tasks", "cancel", &id, "--no-wait"]);
    let start = Instant::now();
    while open(&world).is_empty() {
        assert!(start.elapsed() < Duration::from_secs(150), "waited in vain: a question");
        std::thread::park_timeout(Duration::from_millis(100));
    }
    let decision = open(&world).remove(0);
    let shown = world.data(&["decisions", "show", &decision]);
    assert!(shown["question"].as_str().unwrap().starts_with("It was tried 5 times in vain to end run r-"), "{shown}");
    assert_eq!((&shown["task"], shown["errand"].is_number()), (&Value::Null, true), "{shown}");
    let acts: Vec<&str> = shown["options"].as_array().unwrap().iter().map(|it| it["act"].as_str().unwrap()).collect();
    assert_eq!(acts, ["resend", "drop"]);
    assert_eq!(world.status(&id), "in_progress", "the run is live until its end is proven");
    // The keeper carries out the earlier requests, and the question is withdrawn.
    kill_process(keeper, Signal::CONT).unwrap();
    world.until_status(&id, "cancelled");
    assert_eq!(world.data(&["decisions", "show", &decision])["state"], "withdrawn");
    assert!(!is_alive(session.child) && world.count("decision:raised") == 1);
    drop(runner);
}
