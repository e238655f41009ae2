//! Untrusted commands are read but not started, actions for people are refused inside of a run, and the log names the author of changes.

use std::path::Path;
use std::process::Command;

use banksman_runtime::{Error, RunOptions, Runner, Sessions};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::merging::git;
use crate::postgres;
use crate::tasks::wait_for;
use crate::world::{BANKSMAN, Said, World, until};

/// Runs a command in another directory, with another state directory as another user would have.
fn elsewhere(world: &World, directory: &Path, state: &str, args: &[&str]) -> Said {
    let mut command = world.clean(Command::new(BANKSMAN), args);
    command.current_dir(directory).env("XDG_STATE_HOME", world.path().join(state)).output().unwrap().into()
}

fn is_refused(said: &Said) {
    assert_eq!(said.code, 5, "{said:?}");
    assert!(said.stderr.contains("is not trusted") && said.stderr.contains("banksman trust"), "{said:?}");
}

#[test]
fn a_committed_store_starts_nothing_before_it_is_trusted() {
    let Some(world) = World::only_on_sqlite() else { return };
    world.ok(&["tasks", "add", "Pwn", "--run", "touch ran"]);
    git(world.path(), &["init", "-q"]);
    // Checkpoint the write-ahead log, so that the committed file is complete.
    let store = world.path().join(".banksman/store.db");
    rusqlite::Connection::open(store).unwrap().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    git(world.path(), &["add", "-f", ".banksman/config.toml", ".banksman/store.db"]);
    git(world.path(), &["commit", "-qm", "innocent"]);
    let clone = world.path().join("clone");
    git(world.path(), &["clone", "-q", ".", "clone"]);
    let victim = |args: &[&str]| elsewhere(&world, &clone, "victim", args);

    is_refused(&victim(&["run", "--until-idle"]));
    let said: Value = serde_json::from_str(&victim(&["run", "--json"]).stdout).unwrap();
    assert_eq!((&said["error"]["code"], &said["error"]["details"]["hasId"]), (&json!("STORE_UNTRUSTED"), &json!(true)), "{said}");
    let listed = victim(&["tasks", "list"]);
    assert!(listed.code == 0 && listed.stdout.contains("Pwn"), "it can be read: {listed:?}");
    let shown = victim(&["trust", "--show"]).stdout;
    assert!(shown.starts_with("not trusted  store ") && shown.contains("1 unfinished task with a command"), "{shown}");
    assert!(shown.contains(" touch ran\n"), "{shown}");
    let doctor = victim(&["doctor"]);
    assert!(doctor.code == 0 && doctor.stdout.contains("fix: banksman trust"), "{doctor:?}");
    assert!(!clone.join("ran").exists());

    let said: Value = serde_json::from_str(&victim(&["trust", "--json"]).stdout).unwrap();
    let store = &said["data"]["store"];
    assert_eq!(
        (&store["trusted"], &store["tasks"], &store["commands"][0]["command"]),
        (&true.into(), &1.into(), &"touch ran".into())
    );
    assert_eq!(victim(&["run", "--until-idle"]).code, 0);
    assert!(clone.join("ran").exists());

    // Trust follows the id of the store, not its path, until it is revoked.
    let moved = world.path().join("moved");
    std::fs::rename(&clone, &moved).unwrap();
    assert_eq!(elsewhere(&world, &moved, "victim", &["run", "--until-idle"]).code, 0);
    assert_eq!(elsewhere(&world, &moved, "victim", &["trust", "--revoke"]).code, 0);
    is_refused(&elsewhere(&world, &moved, "victim", &["run", "--until-idle"]));
}

/// Adopting a live session needs no trust; starting one does.
#[test]
fn a_live_session_is_adopted_without_trust_and_no_other_begins() {
    let world = World::new();
    world.add(&["long", "--run", &format!("touch begun; {}", wait_for("go"))]);
    let runner = world.runner(&[]);
    until("it runs", || world.has("begun"));
    runner.signal(Signal::KILL);
    runner.end();
    world.add(&["next", "--run", "touch next"]);
    world.ok(&["trust", "--revoke"]);
    let adopter = world.start(&["run", "--until-idle"]);
    until("it is adopted", || world.events().iter().any(|event| event.kind == "task:adopted"));
    world.touch("go");
    let said = adopter.end();
    assert_eq!(said.code, 5, "one task was left: {said:?}");
    assert!(said.stderr.contains("is not trusted") && said.stderr.contains("1 live session is supervised"), "{said:?}");
    assert_eq!([world.status("long"), world.status("next")], ["completed", "pending"]);
    is_refused(&world.run(&["run", "--until-idle"]));
    assert!(!world.has("next"));
    world.ok(&["trust"]);
    assert_eq!(world.run(&["run", "--until-idle"]).code, 0);
}

#[test]
fn a_live_runner_starts_nothing_after_trust_is_revoked() {
    let world = World::new();
    world.add(&["long", "--run", &wait_for("go")]);
    let runner = world.runner(&[]);
    world.until_status("long", "in_progress");
    world.ok(&["trust", "--revoke"]);
    world.add(&["next", "--run", "touch ran"]);
    let said = runner.end();
    assert_eq!(said.code, 5, "{said:?}");
    assert!(said.stderr.contains("is not trusted") || said.stderr.contains("trust it with"), "{said:?}");
    assert_eq!((world.status("next"), world.status("long")), ("pending".into(), "in_progress".into()));
    // The live run continues, and the next runner adopts it.
    world.ok(&["trust"]);
    world.touch("go");
    assert_eq!(world.run_all(), 0);
    assert!(world.has("ran"));
}

#[test]
fn every_user_of_a_store_has_to_trust_it() {
    let world = World::new();
    world.add(&["here", "--run", "true"]);
    let here = world.path();
    is_refused(&elsewhere(&world, here, "other", &["run", "--until-idle"]));
    assert_eq!(elsewhere(&world, here, "other", &["trust"]).code, 0);
    assert_eq!(elsewhere(&world, here, "other", &["run", "--until-idle"]).code, 0);
}

#[test]
fn a_project_in_a_database_is_trusted_in_one_clone() {
    let url = postgres::fresh_database();
    let Some(world) = World::only_on_sqlite() else { return };
    // The path of the old store is relative to the project's directory, as in the guide.
    world.ok(&["store", "copy", "sqlite:.banksman/store.db", &url]);
    let world = world.moved_to(Some(url));
    world.add(&["here", "--run", "true"]);
    world.ok(&["run", "--until-idle"]);
    let clone = world.path().join("clone");
    std::fs::create_dir_all(clone.join(".banksman")).unwrap();
    std::fs::copy(world.path().join(".banksman/config.toml"), clone.join(".banksman/config.toml")).unwrap();
    is_refused(&elsewhere(&world, &clone, "state", &["run", "--until-idle"]));
    assert_eq!(elsewhere(&world, &clone, "state", &["trust"]).code, 0);
    assert_eq!(elsewhere(&world, &clone, "state", &["run", "--until-idle"]).code, 0);
}

#[test]
fn trust_gives_a_store_of_an_earlier_version_an_id() {
    let Some(world) = World::only_on_sqlite() else { return };
    world.add(&["old", "--run", "true"]);
    let forget = "UPDATE projects SET store_id = NULL";
    rusqlite::Connection::open(world.path().join(".banksman/store.db")).unwrap().execute_batch(forget).unwrap();
    is_refused(&world.run(&["run", "--until-idle"]));
    assert!(world.ok(&["trust", "--show"]).contains("no id yet"));
    let id = world.data(&["trust"])["store"]["id"].clone();
    assert!(id.is_string());
    assert_eq!(world.data(&["trust"])["store"]["id"], id, "it keeps its id");
    world.ok(&["run", "--until-idle"]);
}

#[test]
fn a_copy_of_a_store_is_trusted_like_the_original() {
    let Some(world) = World::only_on_sqlite() else { return };
    world.add(&["here", "--run", "true"]);
    let copies = |state: &str| {
        let folder = world.path().join(format!("copy-{state}/.banksman"));
        std::fs::create_dir_all(&folder).unwrap();
        let (from, to) = (world.path().join(".banksman/store.db"), folder.join("store.db"));
        let url = |path: &Path| format!("sqlite:{}", path.display());
        let said = elsewhere(&world, world.path(), state, &["store", "copy", &url(&from), &url(&to)]);
        assert_eq!(said.code, 0, "{said:?}");
        let shown = elsewhere(&world, world.path(), state, &["--store", &url(&to), "trust", "--show"]);
        // Undone, so that the next user finds the store in use.
        world.ok(&["store", "copy", "--undo", &url(&from), &url(&to)]);
        shown
    };
    // A copy by a user who does not trust the store is not trusted.
    assert!(copies("other").stdout.starts_with("not trusted  store"));
    assert!(copies("state").stdout.starts_with("trusted      store"));
}

#[test]
fn only_command_conditions_of_guards_need_trust() {
    if postgres::wanted() {
        return;
    }
    let world = World::new();
    let text =
        "[guard.harmless]\ncondition = { file_exists = \"there\" }\n[guard.runs]\ncondition = { command = \"touch ran\" }\n";
    std::fs::write(world.path().join(".banksman/runbooks/r.toml"), text).unwrap();
    let check = |guard| elsewhere(&world, world.path(), "other", &["guards", "check", guard]);
    is_refused(&check("runs"));
    assert!(!world.has("ran"));
    assert_eq!(check("harmless").code, 6, "the file is not there");
    world.ok(&["guards", "check", "runs"]);
    assert!(world.has("ran"));
}

#[test]
fn the_library_refuses_a_runner_without_trust() {
    // The binary has made the store with another state directory, so this process does not trust it.
    let Some(world) = World::only_on_sqlite() else { return };
    let client = world.project().open().unwrap();
    let refused = Runner::new(&client, Sessions::new(client.project()), RunOptions::default());
    assert!(matches!(refused, Err(Error::Untrusted { has_id: true, .. })));
}

#[test]
fn a_run_cannot_answer_trust_configure_or_unblock() {
    if postgres::wanted() {
        return;
    }
    let world = World::new();
    for (key, value) in [("task.silence_timeout", "200ms"), ("task.max_recovery_attempts", "0"), ("task.kill_grace", "200ms")] {
        world.ok(&["config", "set", key, value]);
    }
    let asked = world.add(&["asks", "--run", "sleep 600"]);
    assert_eq!(world.run_all(), 7);
    world.ok(&["config", "set", "task.silence_timeout", "10m"]);
    let decision = world.data(&["decisions", "list"])["decisions"][0]["id"].as_str().unwrap().to_owned();
    let commands = [
        format!("decisions resolve {decision} 1"),
        "decisions review".into(),
        "trust".into(),
        "config set task.kill_grace 9s".into(),
        "config set --user task.kill_grace 9s".into(),
        "pipelines unblock p-nosuch".into(),
    ];
    let script: String =
        commands.iter().map(|words| format!("{BANKSMAN} {words} </dev/null 2>> said; echo $? >> codes\n")).collect();
    let script = format!("{script}{BANKSMAN} decisions list >/dev/null || exit 1; env | grep ^BANKSMAN_ > environment");
    let clever = world.add(&["clever", "--run", &script]);
    assert_eq!(world.run_all(), 7, "one waits for its decision");
    assert_eq!(world.status(&clever), "completed", "what a run may do, it may do: {}", world.read("said"));
    assert_eq!(world.read("codes"), "5\n".repeat(commands.len()), "{}", world.read("said"));
    assert!(world.read("said").contains("banksman decisions resolve cannot be used inside of run"), "{}", world.read("said"));
    assert_eq!(world.status(&asked), "blocked");
    assert!(!world.has("config"));

    // A terminal that was opened inside of a run and outlives it counts as a person.
    let left: Vec<(String, String)> = world
        .read("environment")
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    let mut late = world.command(&["decisions", "resolve", &decision, "2"]);
    let said: Said = late.envs(left).output().unwrap().into();
    assert_eq!(said.code, 0, "{said:?}");
}

#[test]
fn the_log_names_the_author_of_every_command() {
    let world = World::new().unchecked();
    let task = world.add(&["works", "--run", &format!("{BANKSMAN} events emit deploy:done; {BANKSMAN} tasks done")]);
    assert_eq!(world.run_all(), 0);
    let listed = world.data(&["events"]);
    let by = |kind: &str| {
        let found = listed["events"].as_array().unwrap().iter().find(|event| event["kind"] == kind);
        found.unwrap_or_else(|| panic!("{kind}: {listed}"))["by"].clone()
    };
    let user = banksman_adapters::user::User::current().name;
    assert_eq!(by("task:added"), json!({ "kind": "person", "user": user }));
    let run = world.data(&["tasks", "show", &task])["runs"][0]["id"].clone();
    assert_eq!(by("deploy:done"), json!({ "kind": "run", "user": user, "run": run }));
    assert_eq!(by("task:started"), Value::Null, "a runner acts on its own");
    let text = world.ok(&["events", "--kind", "deploy:done"]);
    assert!(text.trim_end().ends_with(&format!("by {} ({user})", run.as_str().unwrap())), "{text}");

    // The authors survive compaction and a copy.
    world.ok(&["events", "compact", "--keep-events", "1"]);
    // The user name is that of the system, not that of the environment.
    let emitted = world.command(&["events", "emit", "after:compaction"]).env("USER", "mallory").output().unwrap();
    assert!(emitted.status.success(), "{emitted:?}");
    let copy = world.path().join("copy/.banksman");
    std::fs::create_dir_all(&copy).unwrap();
    let to = format!("sqlite:{}", copy.join("store.db").display());
    let from = world.url();
    world.ok(&["store", "copy", &from, &to]);
    let listed = world.data(&["--store", &to, "events"]);
    let last = listed["events"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["kind"], &last["by"]["user"]), (&json!("after:compaction"), &json!(&*user)));
    assert_eq!(world.data(&["--store", &to, "doctor"])["healthy"], true);
}

#[test]
fn the_log_names_the_person_who_unblocks_a_pipeline() {
    let world = World::new();
    let text = "[guard.never]\ncondition = { file_exists = \"nosuch\" }\n[pipeline.p]\n[[pipeline.p.phase]]\nname = \"go\"\nrun = \"true\"\npre = [\"never\"]\n";
    std::fs::write(world.path().join(".banksman/runbooks/p.toml"), text).unwrap();
    let id = world.data(&["pipelines", "start", "p"])["pipeline"].as_str().unwrap().to_owned();
    let runner = world.start(&["run", "--until-idle"]);
    crate::world::until("it is blocked", || world.data(&["pipelines", "show", &id])["state"] == "blocked");
    world.ok(&["pipelines", "unblock", &id]);
    assert_eq!(runner.end().code, 0);
    let events = world.data(&["events", "--kind", "pipeline:unblocked"]);
    let unblocked = &events["events"][0];
    assert_eq!((&unblocked["by"]["kind"], &unblocked["data"]["phase"]), (&json!("person"), &json!("go")), "{events}");
}
