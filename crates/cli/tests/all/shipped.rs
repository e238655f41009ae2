//! The runbooks of docs/runbooks, end to end: real git, real processes, and a script where an agent would be.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::pipelines::Pipelines;
use crate::world::{BANKSMAN, Running, World, until};

/// What the script that stands for an agent does with its prompt. Whoever builds wants the first line of the same file.
const AGENT: &str = r#"#!/bin/sh
set -eu
prompt=$(cat)
case "$prompt" in
  *"Review the branch"*)
    # The first look at the window finds something.
    case "$VAR_TITLE" in *window*) test -e "$MARKS/reviewed" || { : > "$MARKS/reviewed"; echo "no glass in it"; exit 1; } ;; esac ;;
  *"has conflicts with"*)
    git rebase --quiet "$VAR_BASE" || {
      printf 'door\nwindow\n' > house
      git add house
      GIT_EDITOR=true git rebase --continue
    } ;;
  *"Issue"*) printf '%s\n' "$prompt" ;;
  *)
    echo "$VAR_BRANCH" > house
    date +%N > "built-$VAR_BRANCH"
    git add --all
    git commit --quiet --message "$VAR_TITLE" ;;
esac
"#;

/// An agent that solves every conflict by garbage, and has nothing to say when it is asked again.
const CARELESS: &str = r#"#!/bin/sh
set -eu
prompt=$(cat)
case "$prompt" in
  *"Review the branch"*) ;;
  *"has conflicts with"*)
    : > "$MARKS/careless-$VAR_BRANCH"
    git rebase --quiet "$VAR_BASE" || {
      printf 'garbage\n' > house
      git add house
      GIT_EDITOR=true git rebase --continue
    } ;;
  *)
    test ! -e "$MARKS/careless-$VAR_BRANCH"
    echo "$VAR_BRANCH" > house
    git add --all
    git commit --quiet --message "$VAR_TITLE" ;;
esac
"#;

/// A project in a git repository with one file, and the runbook of this name.
fn repository(runbook: &str) -> World {
    let world = World::new();
    let git = |args: &[&str]| {
        let done = Command::new("git").args(args).current_dir(world.path()).output().unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
    };
    git(&["init", "--quiet", "--initial-branch", "main"]);
    git(&["config", "user.name", "Test"]);
    git(&["config", "user.email", "test@example.org"]);
    std::fs::write(world.path().join("house"), "wall\n").unwrap();
    std::fs::write(world.path().join("Makefile"), "test:\n\tgrep -q . house && ! grep garbage house\n").unwrap();
    std::fs::write(world.path().join(".gitignore"), ".banksman\nstate\nconfig\nmarks\nagent\nanswers\n").unwrap();
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "a wall"]);
    std::fs::create_dir(world.path().join("marks")).unwrap();
    let agent = world.path().join("agent");
    std::fs::write(&agent, AGENT).unwrap();
    std::fs::set_permissions(&agent, PermissionsExt::from_mode(0o755)).unwrap();
    world.ok(&["runbooks", "new", runbook]);
    // It is the project's now.
    assert_eq!(world.error(&["runbooks", "new", runbook]).1["code"], "RUNBOOK_EXISTS");
    world
}

/// A runner whose agent is the script.
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
        world.ok(&["pipelines", "start", "feature", "--title", branch, "--var", &vars[0], "--var", &vars[1]]);
    }
    let said = runner(&world, &["--until-idle"]).end();
    assert_eq!(said.code, 0, "{said:?}\n{}", world.ok(&["pipelines", "list"]));

    assert_eq!(std::fs::read_to_string(world.path().join("house")).unwrap().lines().count(), 2, "no content is lost");
    let log = git(&world, &["log", "--format=%s", "main"]);
    for title in ["Add a door", "Add a window"] {
        assert!(log.lines().any(|line| line == title), "{log}");
    }
    assert_eq!(git(&world, &["status", "--porcelain"]), "", "the checkout is as the branch");
    assert_eq!(git(&world, &["worktree", "list"]).lines().count(), 1, "worktrees are tidied up");

    let kinds: Vec<String> = world.events().iter().map(|event| event.kind.clone()).collect();
    let count = |kind: &str| kinds.iter().filter(|other| *other == kind).count();
    assert_eq!(count("pipeline:complete"), 2);
    let failed = |phase: &str| {
        let events = world.events();
        events.iter().filter(|event| event.kind == "pipeline:phase_failed" && event.data["phase"] == phase).count()
    };
    assert!(failed("rebase") >= 1, "whoever comes second has a conflict");
    assert_eq!(failed("review"), 1, "the review sent one back");
    world.check();
}

#[test]
fn what_was_not_tested_does_not_land() {
    let world = repository("feature");
    std::fs::write(world.path().join("agent"), CARELESS).unwrap();
    let start = |branch: &str| {
        let vars = [format!("title=Add a {branch}"), format!("branch={branch}")];
        let page = world.data(&["pipelines", "start", "feature", "--title", branch, "--var", &vars[0], "--var", &vars[1]]);
        page["id"].as_str().unwrap().to_owned()
    };
    let ids = [start("door"), start("window")];
    let said = runner(&world, &["--until-idle"]).end();
    let landed = git(&world, &["show", "main:house"]);
    assert!(["door\n", "window\n"].contains(&landed.as_str()), "{landed}");
    assert_eq!(git(&world, &["log", "--format=%s", "main"]).lines().count(), 2, "one of them, as it was tested");
    assert_eq!(said.code, 7, "{said:?}");
    let mut ends: Vec<String> = ids.iter().map(|id| world.stands(id)).collect();
    ends.sort();
    assert_eq!(ends, ["done", "failed build"]);
    let tests =
        world.events().iter().filter(|event| event.kind == "pipeline:phase_failed" && event.data["phase"] == "retest").count();
    assert_eq!(tests, 1, "the garbage was tested");
}

/// Two branches change lines near each other: what a rebase makes of the second has another context.
#[test]
fn a_branch_that_was_rebased_counts_as_landed() {
    let world = repository("feature");
    let lines = |changed: &[usize]| {
        (1..=12).map(|n| if changed.contains(&n) { format!("changed {n}\n") } else { format!("line {n}\n") }).collect::<String>()
    };
    std::fs::write(world.path().join("house"), lines(&[])).unwrap();
    git(&world, &["commit", "--quiet", "--all", "--message", "twelve lines"]);
    let edit = "case \"$(cat)\" in *'Review the branch'*) ;; *) sed -i \"s/^line $VAR_BRANCH\\$/changed $VAR_BRANCH/\" house; \
                git commit -qam \"$VAR_TITLE\" ;; esac\n";
    std::fs::write(world.path().join("agent"), format!("#!/bin/sh\nset -eu\n{edit}")).unwrap();
    for branch in ["3", "6"] {
        let vars = [format!("title=Change line {branch}"), format!("branch={branch}")];
        world.ok(&["pipelines", "start", "feature", "--var", &vars[0], "--var", &vars[1]]);
    }
    let said = runner(&world, &["--until-idle"]).end();
    assert_eq!(said.code, 0, "{said:?}\n{}", world.ok(&["pipelines", "list"]));
    assert_eq!(git(&world, &["show", "main:house"]), lines(&[3, 6]));
    world.check();
}

#[test]
fn a_branch_has_one_feature_at_a_time_and_the_next_goes_on_with_what_is_there() {
    let world = repository("feature");
    let start = |title: &str| {
        let title = format!("title={title}");
        let page = world.data(&["pipelines", "start", "feature", "--var", &title, "--var", "branch=door"]);
        page["id"].as_str().unwrap().to_owned()
    };
    let first = start("Add a door");
    // An agent that commits nothing: it leaves a file with its prompt.
    let running = runner_with(&world, "tee left", &[]);
    world.until_stands(&first, "blocked build");
    let second = start("Mend the door");
    world.until_stands(&second, "failed prepare");
    let error = world.pipeline(&second)["error"].as_str().unwrap().to_owned();
    assert!(error.contains(&format!("{first} works on the branch door")), "{error}");
    drop(running);

    world.ok(&["pipelines", "cancel", &first]);
    world.ok(&["pipelines", "retry", &second]);
    // Somebody works where it is to be merged.
    std::fs::write(world.path().join("house"), "roof\n").unwrap();
    let running = runner(&world, &["--until-idle"]);
    world.until_stands(&second, "blocked merge");
    let said = world.ok(&["why", &second]);
    assert!(said.contains("guard base-is-untouched does not pass") && said.contains("commit or stash"), "{said}");
    git(&world, &["checkout", "--quiet", "house"]);
    // It looks again in a moment, and may just have done so.
    world.run(&["pipelines", "unblock", &second]);
    running.end();
    assert_eq!(world.stands(&second), "done");
    let landed = git(&world, &["show", "--name-only", "--format=%s", "main"]);
    assert_eq!(landed.lines().collect::<Vec<_>>(), ["Mend the door", "", "built-door", "house", "left"]);
    assert_eq!(git(&world, &["worktree", "list"]).lines().count(), 1, "it was moved, and tidied up");
}

#[test]
fn a_night_of_triage() {
    let world = repository("triage");
    world.ok(&["runbooks", "apply", "triage"]);
    for (issue, title) in [(1, "It crashes"), (2, "How does it work?"), (3, "$(touch hacked) `touch hacked`")] {
        world.ok(&["queues", "push", "triage", &format!(r#"{{"issue": {issue}, "title": "{title}"}}"#)]);
    }
    // It has no title, so no pipeline can begin with it.
    world.ok(&["queues", "push", "triage", r#"{"issue": 4}"#]);
    let running = runner(&world, &[]);
    until("the worker is there", || world.data(&["workers", "list"])["workers"][0]["name"] == "triage");
    assert_eq!(world.data(&["queues", "show", "triage"])["ready"], 4, "nothing is taken by day");

    world.ok(&["events", "emit", "night:begin"]);
    until("the queue is empty", || world.data(&["queues", "show", "triage"])["length"] == 0);
    until("all are over", || world.data(&["pipelines", "list", "--state", "done"])["pipelines"].as_array().unwrap().len() == 3);
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
    assert_eq!(std::fs::read_dir(world.path().join("answers")).unwrap().count(), 3);
    assert!(!world.path().join("hacked").exists(), "what comes from outside is never a command");
    world.check();
}
