//! Paths are bytes: a project in a directory whose name is not UTF-8 works from end to end.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::merging::{branch, git, repository};
use crate::world::{World, until};

const RUNBOOK: &str = r#"
[guard.ready]
condition = { all = [ { file_exists = "ready" }, { command = "test -f \"$BANKSMAN_PROJECT/ready\"" } ] }

[pipeline.land]
vars = ["branch"]

[[pipeline.land.phase]]
name = "check"
run = "test -f ready && test -f \"$BANKSMAN_PROJECT/ready\""
pre = ["ready"]

[[pipeline.land.phase]]
name = "merge"
merge = { branch = { var = "branch" }, into = "main", how = "rebase" }
"#;

/// A project in such a directory. `World::run` asserts that all output is UTF-8.
fn world() -> World {
    World::empty_in(&OsString::from_vec(b"banksman-test-\xff\xfe-".to_vec())).initialized()
}

#[test]
fn tasks_run_and_get_the_path_of_the_project() {
    let world = world();
    let id =
        world.data(&["tasks", "add", "Where", "--run", "pwd; printf '%s' \"$BANKSMAN_PROJECT\" > here; exit $BANKSMAN_ATTEMPT"])
            ["id"]
            .clone();
    world.ok(&["tasks", "add", "Own place", "--workspace", "dir", "--run", "pwd"]);
    world.ok(&["tasks", "add", "Again", "--retries", "1", "--run", "test -s \"$BANKSMAN_LAST_RESULT\""]);
    world.ok(&["run", "--until-idle"]);
    let root = world.path().canonicalize().unwrap();
    assert_eq!(fs::read(world.path().join("here")).unwrap(), root.as_os_str().as_bytes());
    let log = world.command(&["tasks", "logs", "Where"]).output().unwrap();
    assert_eq!(log.stdout, [root.as_os_str().as_bytes(), b"\n"].concat());
    for verb in [vec!["tasks", "show", "Own place"], vec!["why", "Where"], vec!["status"], vec!["tasks", "list"]] {
        world.ok(&verb);
        world.data(&verb);
    }
    world.data(&["tasks", "logs", "Where"]);
    world.data(&["config", "list"]);
    let shown = world.data(&["tasks", "show", "Where"]);
    assert_eq!((&shown["id"], &shown["status"]), (&id, &"completed".into()), "{shown}");
    assert_eq!(world.data(&["tasks", "show", "Again"])["status"], "completed");
    world.ok(&["locks", "run", "l", "--", "sh", "-c", "cd \"$BANKSMAN_PROJECT\" && test -f here"]);
    world.ok(&["tasks", "delete", "Own place"]);
}

#[test]
fn a_backup_path_that_is_not_utf8_is_refused() {
    let world = world();
    if !world.is_on_sqlite() {
        return;
    }
    let odd = OsString::from_vec(b"../backup-\xfe.db".to_vec());
    let said = world.run(&["--json".into(), "store".into(), "backup".into(), odd]);
    assert!(said.code == 1 && said.stdout.contains("the path of a backup must be UTF-8"), "{said:?}");
}

#[test]
fn a_killed_runner_leaves_a_run_that_is_adopted() {
    let world = world();
    world.ok(&["tasks", "add", "Long", "--run", "touch begun; while ! test -e end; do sleep 0.02; done"]);
    let runner = world.start(&["run"]);
    until("it has begun", || world.has("begun"));
    runner.kill();
    let runner = world.start(&["run", "--until-idle"]);
    until("it is adopted", || world.events().iter().any(|event| &*event.kind == "task:adopted"));
    fs::write(world.path().join("end"), "").unwrap();
    assert_eq!(runner.end().code, 0);
    let task = world.data(&["tasks", "show", "Long"]);
    assert_eq!((&task["status"], task["runs"].as_array().map(Vec::len)), (&"completed".into(), Some(1)), "{task}");
}

#[test]
fn a_pipeline_with_guards_merges_files_of_any_name() {
    let world = world();
    repository(&world);
    fs::write(world.path().join(".banksman/runbooks/r.toml"), RUNBOOK).unwrap();
    fs::write(world.path().join("ready"), "").unwrap();
    git(world.path(), &["add", "-A"]);
    git(world.path(), &["commit", "-qm", "runbook"]);
    git(world.path(), &["switch", "-q", "-c", "topic", "main"]);
    let odd = OsString::from_vec(b"odd \xff\n name".to_vec());
    fs::write(world.path().join(&odd), "odd\n").unwrap();
    git(world.path(), &["add", "-A"]);
    git(world.path(), &["commit", "-qm", "odd"]);
    git(world.path(), &["switch", "-q", "main"]);
    branch(&world, "other", "plain", "plain\n");
    world.ok(&["pipelines", "start", "land", "--var", "branch=topic"]);
    world.ok(&["run", "--until-idle"]);
    assert_eq!(fs::read_to_string(world.path().join(&odd)).unwrap(), "odd\n", "{}", world.ok(&["pipelines", "list"]));
    world.ok(&["pipelines", "start", "land", "--var", "branch=other"]);
    world.ok(&["run", "--until-idle"]);
    assert_eq!(fs::read_to_string(world.path().join("plain")).unwrap(), "plain\n");
    assert_eq!(git(world.path(), &["status", "--porcelain"]), "");
    // A linked worktree finds the project.
    git(world.path(), &["worktree", "add", "-q", ".banksman/workspaces/linked"]);
    let linked = world.path().join(".banksman/workspaces/linked");
    let said = world.command(&["status"]).current_dir(&linked).output().unwrap();
    assert!(said.status.success(), "{said:?}");
}

#[test]
fn a_file_of_any_name_is_imported() {
    let world = world();
    let odd = OsString::from_vec(b"odd \xff.md".to_vec());
    fs::write(world.path().join(&odd), "- [ ] One\n- [ ] Two\n").unwrap();
    world.ok(&["tasks".into(), "import".into(), odd]);
    assert_eq!(world.data(&["tasks", "list"])["tasks"].as_array().map(Vec::len), Some(2));
}
