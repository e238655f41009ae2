//! Models that do not answer, and agents that are ended or killed in a turn.

use banksman_agent_tests::world::{AGENTS, World, until};
use serde_json::Value;

/// A script that waits in its first tool call until a file `go` exists, then commits a line.
const WAITS: &str = "@run touch $BANKSMAN_PROJECT/.banksman/begun; while [ ! -e $BANKSMAN_PROJECT/.banksman/go ]; do sleep 0.1; done\n\
                     @run echo line >> lines.txt && git add lines.txt && git commit -qm line\n";

fn has_begun(world: &World) -> bool {
    world.root().join(".banksman/begun").exists()
}

fn attempts(world: &World, title: &str) -> Value {
    world.task(title)["attempts"].clone()
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn a_run_whose_model_sends_nothing_is_ended_as_hung() {
    let world = World::new();
    world.ok(&["config", "set", "task.max_recovery_attempts", "1"]);
    world.ok(&["config", "set", "task.kill_grace", "1s"]);
    for agent in AGENTS {
        world.add_with(&format!("Hang {agent}"), agent, "@hang\n", &["--silence-timeout", "8s"]);
    }
    let mut runner = world.start(&["run"]);
    for agent in AGENTS {
        let title = format!("Hang {agent}");
        until("a person is asked", || world.ok(&["why", &title]).contains("banksman decisions resolve"));
        let verdicts = world.verdicts(&title);
        assert!(!verdicts.is_empty() && verdicts.iter().all(|verdict| verdict == "hung"), "{agent}: {verdicts:?}");
        let log = world.log(&title);
        assert!(log.contains("banksman: nudged"), "{log}");
        assert!(!log.contains("Debugger") && !log.contains("inspector"), "{log}");
    }
    runner.kill().and_then(|()| runner.wait()).unwrap();
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn a_cut_connection_is_retried() {
    let world = World::new();
    for agent in AGENTS {
        world.add(&format!("Cut {agent}"), agent, "@cut\n@run echo cut > cut.txt && git add . && git commit -qm cut\n");
    }
    world.run_until_idle();
    for agent in AGENTS {
        let title = format!("Cut {agent}");
        // Gemini does not retry itself.
        let verdicts: &[&str] = if agent == "gemini" { &["network", "ok"] } else { &["ok"] };
        let found = (world.verdicts(&title), world.status(&title), world.commits(&title), attempts(&world, &title));
        let wanted = (verdicts.iter().map(ToString::to_string).collect(), "completed".into(), vec!["cut".into()], 1.into());
        assert_eq!(found, wanted, "{}", world.log(&title));
    }
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn no_change_gets_one_more_attempt_and_leftovers_are_committed() {
    let world = World::new();
    world.ok(&["config", "set", "landing.check", "true"]);
    world.ok(&["trust"]);
    for agent in AGENTS {
        world.add_with(&format!("Nothing {agent}"), agent, "@say I have done everything.\n", &["--land"]);
        world.add_with(&format!("Leftover {agent}"), agent, &format!("@run echo left > {agent}.txt\n"), &["--land"]);
    }
    world.run_until_idle();
    for agent in AGENTS {
        let (nothing, leftover) = (format!("Nothing {agent}"), format!("Leftover {agent}"));
        assert_eq!((world.verdicts(&nothing), world.status(&nothing)), (vec!["ok".into(); 2], "review".into()), "{agent}");
        let prompts = world.model.prompts(&nothing);
        let reason = "did not land: nothing was changed";
        assert!(!prompts[0].contains(reason) && prompts.iter().any(|said| said.contains(reason)), "{prompts:?}");
        assert_eq!((world.verdicts(&leftover), world.status(&leftover)), (vec!["ok".into()], "completed".into()), "{agent}");
        assert_eq!(world.git(&["show", &format!("main:{agent}.txt")]), "left");
    }
    assert_eq!(world.git(&["log", "--format=%s", "main"]).lines().count(), 1 + AGENTS.len(), "nothing else landed");
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn an_agent_cancelled_in_a_tool_call_counts_as_hung_not_crashed() {
    for agent in ["claude", "gemini"] {
        let world = World::new();
        world.ok(&["config", "set", "task.kill_grace", "2s"]);
        world.add("Cancelled", agent, WAITS);
        let mut runner = world.start(&["run", "--until-idle"]);
        until("the tool is called", || has_begun(&world));
        world.ok(&["tasks", "cancel", "Cancelled", "--no-wait"]);
        // The tool succeeds, so the program could continue. Its exit status does not decide.
        world.write(".banksman/go", "");
        runner.wait().unwrap();
        assert_eq!(world.status("Cancelled"), "cancelled", "{agent}: {}", world.log("Cancelled"));
        assert_eq!(world.verdicts("Cancelled"), ["hung"], "{agent}: {}", world.log("Cancelled"));
    }
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn a_session_whose_runner_and_keeper_were_killed_is_resumed_and_lands_once() {
    for agent in AGENTS {
        let world = World::new();
        world.ok(&["config", "set", "landing.check", "true"]);
        world.ok(&["trust"]);
        world.add_with("Killed", agent, WAITS, &["--land"]);
        let mut runner = world.start(&["run"]);
        until("the tool is called", || has_begun(&world));
        let keeper = world.pid("keeperPid");
        runner.kill().and_then(|()| runner.wait()).unwrap();
        world.signal("-9", keeper);
        let mut runner = world.start(&["run", "--until-idle"]);
        // The new runner has ended what is left of the first run by then.
        until("it goes on", || world.task("Killed")["runs"].as_array().is_some_and(|runs| runs.len() == 2));
        world.write(".banksman/go", "");
        runner.wait().unwrap();
        assert_eq!(world.status("Killed"), "completed", "{agent}: {}", world.log("Killed"));
        assert_eq!(world.verdicts("Killed"), ["crashed", "ok"], "{agent}: {}", attempts(&world, "Killed"));
        let task = world.task("Killed");
        let session = |number: usize| task["runs"][number]["agent"]["session"].as_str().unwrap_or_default().to_owned();
        assert!(!session(0).is_empty() && session(0) == session(1), "the same session: {task}");
        assert_eq!(world.git(&["show", "main:lines.txt"]), "line", "{agent}");
        assert_eq!(world.git(&["log", "--format=%s", "main"]).lines().count(), 2, "{agent}: it landed once");
    }
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn an_agent_that_gets_sigterm_in_a_turn_counts_as_crashed() {
    for agent in ["claude", "codex", "opencode"] {
        let world = World::new();
        world.add_with("Ended", agent, WAITS, &["--retries", "0"]);
        let mut runner = world.start(&["run", "--until-idle"]);
        until("the tool is called", || has_begun(&world));
        world.signal("-TERM", world.pid("childPid"));
        runner.wait().unwrap();
        let found = (world.verdicts("Ended"), world.status("Ended"), world.commits("Ended"));
        assert_eq!(found, (vec!["crashed".into()], "failed".into(), vec![]), "{agent}: {}", world.log("Ended"));
        let task = world.task("Ended");
        let reason = task["runs"][0]["error"].as_str().unwrap_or_default();
        assert!(["exit status 143", "killed by signal 15"].contains(&reason), "{agent}: {reason}");
    }
}

/// Gemini may finish its turn: then its result counts, because the signal did not come from Banksman.
#[test]
#[ignore = "needs the real programs: make test-agents"]
fn gemini_after_sigterm_in_a_turn_either_completes_or_crashes() {
    let world = World::new();
    world.add_with("Ended", "gemini", WAITS, &["--retries", "0"]);
    let mut runner = world.start(&["run", "--until-idle"]);
    until("the tool is called", || has_begun(&world));
    world.signal("-TERM", world.pid("childPid"));
    world.write(".banksman/go", "");
    runner.wait().unwrap();
    let found = (world.verdicts("Ended").concat(), world.status("Ended"), world.commits("Ended").len());
    let consistent = [("ok".to_owned(), "completed".to_owned(), 1), ("crashed".to_owned(), "failed".to_owned(), found.2)];
    assert!(consistent.contains(&found), "{found:?}: {}", world.log("Ended"));
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn a_session_survives_sigterm_of_its_runner_and_lands_once() {
    let world = World::new();
    world.ok(&["config", "set", "landing.check", "true"]);
    world.ok(&["trust"]);
    world.add_with("Stopped", "claude", WAITS, &["--land"]);
    let mut runner = world.start(&["run"]);
    until("the tool is called", || has_begun(&world));
    world.signal("-TERM", runner.id().into());
    assert!(runner.wait().unwrap().success());
    assert_eq!(world.json(&["sessions", "list"])["data"]["sessions"][0]["state"], "live");
    world.write(".banksman/go", "");
    world.run_until_idle();
    let found = (world.verdicts("Stopped"), world.status("Stopped"), attempts(&world, "Stopped"));
    assert_eq!(found, (vec!["ok".into()], "completed".into(), 1.into()), "{}", world.log("Stopped"));
    assert_eq!(world.git(&["show", "main:lines.txt"]), "line");
    assert_eq!(world.git(&["log", "--format=%s", "main"]).lines().count(), 2, "it landed once");
}
