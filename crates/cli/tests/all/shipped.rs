//! The runbooks of docs/runbooks, end to end: real git, real processes, and a script in place of an agent.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::world::{BANKSMAN, Running, World, until, write_program};

/// A script in place of an agent. As a builder it replaces the only line of a shared file and commits; as a resolver of conflicts it keeps both
/// lines and does not commit.
const AGENT: &str = r#"#!/bin/sh
set -eu
prompt=$(cat)
case "$prompt" in
  *"Review what was done"*)
    # The first look at the window finds something.
    case "$VAR_TITLE" in
      *window*) test -e "$MARKS/reviewed" || { : > "$MARKS/reviewed"; banksman tasks fail --error "no glass in it"; exit 0; } ;;
    esac
    banksman tasks done ;;
  *"Issue"*) printf '%s\n' "$prompt" ;;
  *)
    if grep -qs '^<<<<<<<' house; then printf 'door\nwindow\n' > house; exit; fi
    echo "$VAR_BRANCH" > house
    date +%N > "built-$VAR_BRANCH"
    git add --all
    git commit --quiet --message "$VAR_TITLE" ;;
esac
"#;

/// An agent that resolves every conflict with garbage, and fails when it is started again.
const CARELESS: &str = r#"#!/bin/sh
set -eu
prompt=$(cat)
case "$prompt" in
  *"Review what was done"*) ;;
  *)
    test ! -e "$MARKS/careless-$VAR_BRANCH"
    if grep -qs '^<<<<<<<' house; then : > "$MARKS/careless-$VAR_BRANCH"; echo garbage > house; exit; fi
    echo "$VAR_BRANCH" > house
    git add --all
    git commit --quiet --message "$VAR_TITLE" ;;
esac
"#;

/// A project in a git repository with one file, and this runbook.
fn repository(runbook: &str) -> World {
    let world = World::new();
    let git = |args: &[&str]| drop(git(&world, args));
    git(&["init", "--quiet", "--initial-branch", "main"]);
    git(&["config", "user.name", "Test"]);
    git(&["config", "user.email", "test@example.org"]);
    std::fs::write(world.path().join("house"), "wall\n").unwrap();
    std::fs::write(world.path().join("Makefile"), "test:\n\tgrep -q . house && ! grep garbage house\n").unwrap();
    std::fs::write(world.path().join(".gitignore"), ".banksman\nstate\nconfig\nmarks\nagent\n").unwrap();
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "a wall"]);
    std::fs::create_dir(world.path().join("marks")).unwrap();
    let agent = world.path().join("agent");
    write_program(&agent, AGENT);
    world.ok(&["config", "set", "--user", "landing.check", "make test"]);
    world.ok(&["runbooks", "new", runbook]);
    // The file belongs to the project now.
    assert_eq!(world.error(&["runbooks", "new", runbook]).1["code"], "RUNBOOK_EXISTS");
    world
}

/// A runner that uses the script as its agent.
fn runner(world: &World, args: &[&str]) -> Running {
    runner_with(world, &world.path().join("agent").to_string_lossy(), args)
}

fn runner_with(world: &World, agent: &str, args: &[&str]) -> Running {
    let mut command = world.command(&[&["run"], args].concat());
    let program = Path::new(BANKSMAN).parent().unwrap().display();
    command.env("PATH", format!("{program}:{}", std::env::var("PATH").unwrap()));
    command.env("AGENT", agent).env("MARKS", world.path().join("marks"));
    Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

fn git(world: &World, args: &[&str]) -> String {
    let done = Command::new("git").args(args).current_dir(world.path()).output().unwrap();
    assert!(done.status.success(), "{args:?}: {done:?}");
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn two_features_that_edit_the_same_line_both_land() {
    let world = repository("feature");
    for branch in ["door", "window"] {
        let vars = [format!("title=Add a {branch}"), format!("branch={branch}")];
        world.ok(&["pipelines", "start", "feature", "--var", &vars[0], "--var", &vars[1]]);
    }
    let said = runner(&world, &["--until-idle"]).end();
    assert_eq!(said.code, 0, "{said:?}\n{}", world.ok(&["pipelines", "list"]));

    assert_eq!(std::fs::read_to_string(world.path().join("house")).unwrap().lines().count(), 2, "no content is lost");
    let log = git(&world, &["log", "--format=%s", "main"]);
    for title in ["Add a door", "Add a window"] {
        assert!(log.lines().any(|line| line == title), "{log}");
    }
    assert_eq!(git(&world, &["status", "--porcelain"]), "", "the checkout is as the branch");
    let checks = |line: &&str| !line.contains("/checks/");
    assert_eq!(git(&world, &["worktree", "list"]).lines().filter(checks).count(), 1, "worktrees are tidied up");

    let events = world.events();
    let count = |kind: &str| events.iter().filter(|event| event.kind == kind).count();
    assert_eq!((count("landing:landed"), count("task:sent_back")), (2, 1), "the second one has a conflict");
    let failed = events.iter().filter(|event| event.kind == "pipeline:phase_failed" && event.data["phase"] == "review").count();
    assert_eq!(failed, 1, "the review sent one back");
}

#[test]
fn untested_work_does_not_land() {
    let world = repository("feature");
    std::fs::write(world.path().join("agent"), CARELESS).unwrap();
    let start = |branch: &str| {
        let vars = [format!("title=Add a {branch}"), format!("branch={branch}")];
        let page = world.data(&["pipelines", "start", "feature", "--var", &vars[0], "--var", &vars[1]]);
        page["id"].as_str().unwrap().to_owned()
    };
    let ids = [start("door"), start("window")];
    let said = runner(&world, &["--until-idle"]).end();
    let landed = git(&world, &["show", "main:house"]);
    assert!(["door\n", "window\n"].contains(&landed.as_str()), "{landed}");
    assert_eq!(git(&world, &["log", "--format=%s", "main"]).lines().count(), 2, "one of them, as it was tested");
    assert_eq!(said.code, 7, "{said:?}");
    let mut ends: Vec<String> = ids.iter().map(|id| world.pipeline_state(id)).collect();
    ends.sort();
    assert_eq!(ends, ["done", "failed build"]);
}

#[test]
fn lines_near_each_other_both_land() {
    let world = repository("feature");
    let lines = |changed: &[usize]| {
        (1..=12).map(|n| if changed.contains(&n) { format!("changed {n}\n") } else { format!("line {n}\n") }).collect::<String>()
    };
    std::fs::write(world.path().join("house"), lines(&[])).unwrap();
    git(&world, &["commit", "--quiet", "--all", "--message", "twelve lines"]);
    let edit = "case \"$(cat)\" in *'Review what was done'*) ;; *) sed -i \"s/^line $VAR_BRANCH\\$/changed $VAR_BRANCH/\" house; \
                git commit -qam \"$VAR_TITLE\" ;; esac\n";
    std::fs::write(world.path().join("agent"), format!("#!/bin/sh\nset -eu\n{edit}")).unwrap();
    for branch in ["3", "6"] {
        let vars = [format!("title=Change line {branch}"), format!("branch={branch}")];
        world.ok(&["pipelines", "start", "feature", "--var", &vars[0], "--var", &vars[1]]);
    }
    let said = runner(&world, &["--until-idle"]).end();
    assert_eq!(said.code, 0, "{said:?}\n{}", world.ok(&["pipelines", "list"]));
    assert_eq!(git(&world, &["show", "main:house"]), lines(&[3, 6]));
}

#[test]
fn a_feature_waits_for_local_changes_and_names_them() {
    let world = repository("feature");
    let page = world.data(&["pipelines", "start", "feature", "--var", "title=Add a door", "--var", "branch=door"]);
    let id = page["id"].as_str().unwrap();
    std::fs::write(world.path().join("house"), "roof\n").unwrap();
    let running = runner(&world, &[]);
    until("it waits", || world.data(&["tasks", "show", id])["landing"]["state"] == "waiting");
    let said = world.ok(&["why", id]);
    assert!(said.contains("it has changes in files that would change: house"), "{said}");
    git(&world, &["checkout", "--quiet", "house"]);
    drop(running);
    world.ok(&["land", id]);
    assert_eq!(git(&world, &["show", "main:house"]), "door\n");
    assert_eq!(world.data(&["tasks", "show", id])["status"], "completed");
}

#[test]
fn a_night_of_triage() {
    let world = repository("triage");
    world.ok(&["runbooks", "apply", "triage"]);
    for (issue, title) in [(1, "It crashes"), (2, "How does it work?"), (3, "$(touch hacked) `touch hacked`")] {
        world.ok(&["queues", "push", "triage", &format!(r#"{{"issue": {issue}, "title": "{title}"}}"#)]);
    }
    // Without a title no pipeline can start for this item.
    world.ok(&["queues", "push", "triage", r#"{"issue": 4}"#]);
    let running = runner(&world, &[]);
    until("the worker is there", || world.data(&["workers", "list"])["workers"][0]["name"] == "triage");
    assert_eq!(world.data(&["queues", "show", "triage"])["ready"], 4, "nothing is taken by day");

    world.ok(&["events", "emit", "night:begin"]);
    until("the queue is empty", || world.data(&["queues", "show", "triage"])["length"] == 0);
    until("all have landed", || world.path().join("answers").read_dir().is_ok_and(|answers| answers.count() == 3));
    drop(running);
    let dead = world.data(&["queues", "show", "triage-dead"]);
    assert_eq!((&dead["length"], &dead["items"][0]["data"]["issue"]), (&1.into(), &4.into()), "{dead}");
    assert!(dead["items"][0]["reason"].as_str().unwrap().contains("title"), "{dead}");
    let labels: Vec<String> = world.data(&["pipelines", "list"])["pipelines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pipeline| format!("{} {}", pipeline["vars"]["issue"], pipeline["vars"]["classify"]["label"].as_str().unwrap()))
        .collect();
    let mut sorted = labels.clone();
    sorted.sort();
    assert_eq!(sorted, ["1 bug", "2 question", "3 wish"]);
    assert_eq!(git(&world, &["ls-tree", "--name-only", "main", "answers/"]).lines().count(), 3);
    assert!(!world.has("hacked"), "what comes from outside is never a command");
}
