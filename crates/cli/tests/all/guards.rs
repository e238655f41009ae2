//! Guards from the command line: every condition with real locks, tasks, git, files and commands.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::merging::{branch, commit, git, repository};
use crate::world::{BANKSMAN, World, is_alive, until};

/// Writes a runbook with guards of these conditions.
fn runbook(world: &World, name: &str, guards: &[(&str, &str)]) {
    let text: String = guards.iter().map(|(name, condition)| format!("[guard.{name}]\ncondition = {condition}\n")).collect();
    crate::runbooks::write(world, name, &text);
}

/// A world with a runbook with guards of these conditions.
fn guarded(guards: &[(&str, &str)]) -> World {
    let world = World::new();
    runbook(&world, "r", guards);
    world
}

/// The part of its condition at which a guard fails; `None` if it holds.
fn failing(world: &World, args: &[&str]) -> Option<String> {
    let said = world.run(&[&["guards", "check", "--json"], args].concat());
    let answer: serde_json::Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{args:?}: {said:?}"));
    match said.code {
        0 => {
            assert_eq!(answer["data"]["passed"], true, "{said:?}");
            None
        }
        6 => {
            assert_eq!(answer["error"]["code"], "GUARD_FAILED", "{said:?}");
            Some(answer["error"]["details"]["part"].as_str().unwrap().to_owned())
        }
        _ => panic!("{args:?}: {said:?}"),
    }
}

fn passes(world: &World, guard: &str) {
    assert_eq!(failing(world, &[guard]), None, "{guard}");
}

fn fails(world: &World, guard: &str, part: &str) {
    assert_eq!(failing(world, &[guard]).as_deref(), Some(part), "{guard}");
}

#[test]
fn variables_are_parsed_as_for_pipelines_and_given_once() {
    let world = guarded(&[("there", r#"{ file_exists = { var = "file" } }"#)]);
    world.touch("5");
    assert_eq!(failing(&world, &["there", "--var", "file:=5"]), None);
    let refused = |args: &[&str], words: &str| {
        let said = world.run(&[&["guards", "check", "there"], args].concat());
        assert!(said.code == 2 && said.stderr.contains(words), "{said:?}");
    };
    refused(&["--var", "file=5", "--var", "file=6"], "the variable file is given more than once");
    refused(&["--var", "file:={a"], "is not JSON");
}

#[test]
fn a_failed_command_is_reported_with_its_status_and_last_line() {
    let world = guarded(&[
        ("said", r#"{ command = "echo out; echo first >&2; echo no such host >&2; exit 7" }"#),
        ("silent", r#"{ command = "false" }"#),
    ]);
    let part = failing(&world, &["said"]).unwrap();
    assert!(part.ends_with("` failed with status 7: no such host"), "{part}");
    fails(&world, "silent", "command `false` failed with status 1");
}

#[test]
fn guards_of_an_invalid_runbook_are_reported_as_unknown() {
    let world = guarded(&[("there", "{ nonsense = 1 }")]);
    assert!(world.ok(&["guards", "list"]).starts_with("runbook r is invalid, so no guards can be listed"));
}

#[test]
fn conditions_about_locks_and_semaphores() {
    let world = guarded(&[
        ("free", r#"{ lock_free = "deploy" }"#),
        ("held", r#"{ lock_held = "deploy" }"#),
        ("mine", r#"{ lock_held = { lock = "deploy", by = "me" } }"#),
        ("two", r#"{ semaphore_available = { semaphore = "builds", slots = 2 } }"#),
        ("three", r#"{ semaphore_available = { semaphore = "builds", slots = 3 } }"#),
        ("none", r#"{ semaphore_available = "nowhere" }"#),
        ("not-none", r#"{ not = { semaphore_available = "nowhere" } }"#),
    ]);
    passes(&world, "free");
    fails(&world, "held", "lock deploy is free");
    world.ok(&["locks", "acquire", "deploy", "--holder", "you"]);
    fails(&world, "free", "lock deploy is held by you");
    passes(&world, "held");
    fails(&world, "mine", "lock deploy is held by you");

    fails(&world, "none", "not known: semaphore nowhere is not there");
    fails(&world, "not-none", "not known: semaphore nowhere is not there");
    world.ok(&["semaphores", "define", "builds", "--capacity", "3"]);
    world.ok(&["semaphores", "acquire", "builds", "--holder", "x"]);
    passes(&world, "two");
    fails(&world, "three", "semaphore builds has 2 free slots (3 are asked for)");
    world.ok(&["semaphores", "acquire", "builds", "--holder", "y"]);
    fails(&world, "two", "semaphore builds has 1 free slot (2 are asked for)");
}

#[test]
fn a_lock_of_a_dead_holder_is_free() {
    let world = guarded(&[("free", r#"{ lock_free = "deploy" }"#)]);
    let holder = world.start(&["locks", "run", "deploy", "--holder", "h", "--ttl", "1h", "--", "sleep", "60"]);
    world.until_held_by("deploy", "h");
    fails(&world, "free", "lock deploy is held by h");
    holder.signal(rustix::process::Signal::KILL);
    until("the lock counts as free", || failing(&world, &["free"]).is_none());
    assert!(world.grant("deploy").is_some(), "the grant is still recorded");
}

#[test]
fn conditions_about_tasks() {
    let world = guarded(&[
        ("all", "{ tasks_complete = { } }"),
        ("must", r#"{ tasks_complete = { label = "must" } }"#),
        ("back", r#"{ tasks_complete = { section = "backend" } }"#),
        ("lost", r#"{ tasks_complete = { section = "nowhere" } }"#),
        ("these", r#"{ tasks_complete = { ids = [{ var = "id" }] } }"#),
        ("open", r#"{ no_blocked_tasks = { label = "must" } }"#),
        ("failed", r#"{ tasks_complete = { status = "failed" } }"#),
    ]);
    passes(&world, "all");
    fails(&world, "lost", "not known: tasks of section nowhere unknown: there is no such section");
    world.ok(&["sections", "add", "backend"]);
    let add = |args: &[&str]| world.data(&[&["tasks", "add"], args].concat())["id"].as_str().unwrap().to_owned();
    let first = add(&["First", "--label", "must", "--section", "backend"]);
    let second = add(&["Second", "--label", "must", "--depends-on", &first]);
    add(&["Third"]);
    fails(&world, "all", &format!("task {first} is pending (3 of 3 not completed)"));
    fails(&world, "must", &format!("task {first} is pending (2 of 2 not completed)"));
    fails(&world, "open", &format!("task {second} is blocked (1 of 2 are blocked)"));
    assert_eq!(
        failing(&world, &["these", "--var", &format!("id={second}")]).unwrap(),
        format!("task {second} is blocked (1 of 1 not completed)")
    );
    passes(&world, "failed");
    world.ok(&["tasks", "update", &first, "--status", "completed"]);
    passes(&world, "back");
    passes(&world, "open");
    fails(&world, "must", &format!("task {second} is pending (1 of 2 not completed)"));
    assert_eq!(failing(&world, &["these", "--var", &format!("id={first}")]), None);
    let nothing = failing(&world, &["these", "--var", "id=t-none"]).unwrap();
    assert_eq!(nothing, "not known: tasks t-none unknown: there is no task t-none");
    assert_eq!(failing(&world, &["these"]).unwrap(), "not known: the variable id has no value");
}

#[test]
fn issues_of_another_tracker_are_read_from_a_command() {
    let world = guarded(&[
        ("a", r#"{ issues_complete = { label = "a", command = "cat list.json" } }"#),
        ("b", r#"{ issues_complete = { command = { argv = ["cat", "list.json"] } } }"#),
        ("blocked", r#"{ no_blocked_issues = { command = "cat list.json" } }"#),
        ("one", r#"{ issues_complete = { ids = ["1"], command = "cat list.json" } }"#),
        ("nine", r#"{ issues_complete = { ids = ["9"], command = "cat list.json" } }"#),
        ("odd", r#"{ issues_complete = { command = "cat odd.json" } }"#),
        ("prose", r#"{ issues_complete = { command = "echo hello" } }"#),
        ("broken", r#"{ issues_complete = { command = "cat list.json; exit 3" } }"#),
    ]);
    let list = r#"[{"id":1,"status":"completed","labels":["a"]},{"id":"X-2","status":"blocked","labels":["b"]}]"#;
    std::fs::write(world.path().join("list.json"), list).unwrap();
    std::fs::write(world.path().join("odd.json"), r#"[{"id":1,"status":"wontfix"}]"#).unwrap();
    passes(&world, "a");
    fails(&world, "b", "issue X-2 is blocked (1 of 2 not completed)");
    fails(&world, "blocked", "issue X-2 is blocked (1 of 2 are blocked)");
    passes(&world, "one");
    for (guard, words) in [
        ("nine", "did not print all issues that were asked for"),
        ("odd", "printed the status \"wontfix\" for issue 1, which is none of ours"),
        ("prose", "printed no list of issues"),
        ("broken", "ended with status 3"),
    ] {
        let part = failing(&world, &[guard]).unwrap();
        assert!(part.starts_with("not known: issues") && part.contains(words), "{part}");
    }
}

#[test]
fn conditions_about_branches() {
    let world = guarded(&[
        ("exists", r#"{ branch_exists = { var = "b" } }"#),
        ("clean", r#"{ branch_clean = { var = "b" } }"#),
        ("merged", r#"{ branch_merged = { branch = { var = "b" }, into = "main" } }"#),
    ]);
    let ask = |guard: &str, branch: &str| failing(&world, &[guard, "--var", &format!("b={branch}")]);
    assert!(ask("exists", "main").unwrap().starts_with("not known: branch main cannot be checked (git for-each-ref failed: "));
    repository(&world);
    branch(&world, "topic", "a", "a\n");
    assert_eq!(ask("exists", "topic"), None);
    assert_eq!(ask("exists", "other").unwrap(), "branch other is not there");
    assert_eq!(ask("exists", "-d").unwrap(), "not known: branch -d cannot be there: \"-d\" is no name of a branch");
    assert_eq!(ask("clean", "other").unwrap(), "not known: branch other is not there");
    assert_eq!(ask("clean", "main"), None);
    assert_eq!(ask("merged", "topic").unwrap(), "branch topic is not merged into main");
    commit(&world, "m", "m\n");
    git(world.path(), &["cherry-pick", "topic"]);
    assert_eq!(ask("merged", "topic"), None, "an equal change");
    assert_eq!(ask("merged", "other").unwrap(), "not known: whether branch other is merged into main (no such branch: other)");
    std::fs::write(world.path().join("base"), "begun").unwrap();
    // The folder of the store is there, too, and is no change.
    let said = ask("clean", "main").unwrap();
    let place = world.path().canonicalize().unwrap();
    assert!(said.starts_with(&format!("branch main has changes in its checkout {}: base", place.display())), "{said}");
}

#[test]
fn conditions_about_files() {
    let world = guarded(&[
        ("there", r#"{ file_exists = { var = "f" } }"#),
        ("version", r#"{ file_contains = { path = { var = "f" }, pattern = '^1\.\d+$' } }"#),
    ]);
    let ask = |guard: &str, file: &str| failing(&world, &[guard, "--var", &format!("f={file}")]);
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "1.1\n").unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret"), world.path().join("link")).unwrap();
    std::os::unix::fs::symlink(world.path().join("VERSION"), world.path().join("own-link")).unwrap();
    std::fs::create_dir(world.path().join("dir")).unwrap();
    std::fs::write(world.path().join("VERSION"), "first\n1.42\n").unwrap();
    std::fs::write(world.path().join("bytes"), b"\xff\xfe\n1.5\n").unwrap();
    std::fs::File::create(world.path().join("large")).unwrap().set_len(10 * 1_024 * 1_024 + 1).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, world.path().join("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();

    for file in ["VERSION", "own-link", "dir", "dir/../VERSION", "large", "pipe"] {
        assert_eq!(ask("there", file), None, "{file}");
    }
    assert_eq!(ask("there", "nothing").unwrap(), "file nothing is not there");
    assert_eq!(ask("there", "nothing/../../x").unwrap(), "file nothing/../../x is not there");
    for file in ["link", "../x", "/etc/passwd", "/nowhere", "dir/../../x"] {
        assert_eq!(ask("there", file).unwrap(), format!("not known: file {file} lies outside the project"), "{file}");
        assert!(ask("version", file).unwrap().starts_with("not known: "), "{file}");
    }
    for file in ["VERSION", "own-link", "bytes"] {
        assert_eq!(ask("version", file), None, "{file}");
    }
    assert_eq!(ask("version", "nothing").unwrap(), "file nothing is not there");
    assert_eq!(ask("version", "large").unwrap(), "not known: file large has more than 10 MiB");
    assert_eq!(ask("version", "pipe").unwrap(), "not known: file pipe is no file that has lines");
    std::fs::write(world.path().join("VERSION"), "2.0\n").unwrap();
    assert_eq!(ask("version", "VERSION").unwrap(), r"file VERSION has no line that /^1\.\d+$/ matches");
}

#[test]
fn conditions_about_commands() {
    let world = guarded(&[
        ("good", r#"{ command = "true" }"#),
        ("bad", r#"{ command = "exit 7" }"#),
        ("wanted", r#"{ command = { run = "exit 7", expect_success = false } }"#),
        (
            "env",
            r#"{ all = [{ command = { argv = ["test", { var = "a-b" }, "=", "$(x); exit 1"] } }, { command = '[ "$VAR_A_B" = "\$(x); exit 1" ] && [ "$BANKSMAN_PROJECT" = "$PWD" ]' }] }"#,
        ),
        ("nobody", r#"{ command = '[ -z "$BANKSMAN_HOLDER$BANKSMAN_LOCK$BANKSMAN_LOCK_EPOCH" ]' }"#),
        ("shell", r#"{ command = '[ "$VAR_ONLY_HERE" = 1 ]' }"#),
        ("none", r#"{ command = { argv = ["./nowhere"] } }"#),
        ("not-none", r#"{ not = { command = { argv = ["./nowhere"] } } }"#),
        ("reads", r#"{ command = "cat" }"#),
        ("prints", r#"{ command = "head -c 30000000 /dev/zero" }"#),
    ]);
    passes(&world, "good");
    fails(&world, "bad", "command `exit 7` failed with status 7");
    passes(&world, "wanted");
    assert_eq!(failing(&world, &["env", "--var", "a-b=$(x); exit 1"]), None);
    assert_eq!(failing(&world, &["shell", "--var", "only-here=1"]), None);
    assert_eq!(world.error(&["guards", "check", "shell", "--var", "not-here=1"]).1["code"], "VAR_NOT_FOUND");
    // A guard started inside of `locks run` does not inherit the lock.
    let inside = ["locks", "run", "l", "--", BANKSMAN, "guards", "check", "nobody"];
    assert_eq!(world.run(&inside).code, 0);
    for guard in ["none", "not-none"] {
        let part = failing(&world, &[guard]).unwrap();
        assert!(part.starts_with("not known: command `./nowhere` could not be started: ./nowhere: No such file"), "{part}");
    }
    passes(&world, "reads");
    passes(&world, "prints");
}

#[test]
fn a_command_that_hangs_is_unknown_and_leaves_nothing_behind() {
    let world = World::new();
    // One process is in another session behind a parent that has exited, the other ignores SIGTERM.
    let hide = "trap '' TERM; setsid sh -c '(sh -c \"echo \\$\\$ >> pids; exec sleep 600\" &) ; exit 0'; echo $$ >> pids; while :; do sleep 1; done";
    let text = format!("[guard.hangs]\ncondition = {{ not = {{ command = '''{hide}''' }} }}\ntimeout = \"1s\"\n");
    crate::runbooks::write(&world, "r", &text);
    let begin = Instant::now();
    let part = failing(&world, &["hangs"]).unwrap();
    assert!(part.starts_with("not known: command `trap '' TERM;") && part.ends_with("took too long"), "{part}");
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    let pids = std::fs::read_to_string(world.path().join("pids")).unwrap();
    assert_eq!(pids.lines().count(), 2);
    assert!(pids.lines().all(|pid| !is_alive(pid.parse().unwrap())), "{pids}");
}

#[test]
fn commands_run_at_the_same_time() {
    let world = World::new();
    // Each command waits for the other one.
    let wait =
        |mine: &str, other: &str| format!(r#"{{ command = "touch {mine}; while [ ! -e {other} ]; do sleep 0.01; done" }}"#);
    runbook(&world, "r", &[("both", &format!("{{ all = [{}, {}] }}", wait("a", "b"), wait("b", "a")))]);
    passes(&world, "both");
}

#[test]
fn a_failed_guard_names_its_smallest_failed_parts() {
    let world = guarded(&[(
        "mixed",
        r#"{ all = [{ lock_free = "a" }, { any = [{ file_exists = "x" }, { command = "false" }] }, { not = { command = "true" } }] }"#,
    )]);
    fails(&world, "mixed", "file x is not there, and command `false` failed with status 1");
    world.touch("x");
    fails(&world, "mixed", "command `true` succeeded");
}

#[test]
fn a_guard_is_selected_by_name_and_runbook() {
    let world = World::new();
    assert_eq!(world.error(&["guards", "check", "may"]).1["code"], "GUARD_NOT_FOUND");
    runbook(&world, "one", &[("may", r#"{ file_exists = "x" }"#), ("both", "{ all = [] }")]);
    runbook(&world, "two", &[("both", r#"{ file_exists = "y" }"#)]);
    let (code, error) = world.error(&["guards", "check", "mya"]);
    assert_eq!((code, &error["code"], &error["hint"]), (4, &json!("GUARD_NOT_FOUND"), &json!("did you mean may?")));
    let (code, error) = world.error(&["guards", "check", "both"]);
    assert_eq!((code, &error["code"], &error["details"]["runbooks"]), (2, &json!("AMBIGUOUS_NAME"), &json!(["one", "two"])));
    assert_eq!(failing(&world, &["both", "--runbook", "one"]), None);
    assert_eq!(failing(&world, &["both", "--runbook", ".banksman/runbooks/two.toml"]).unwrap(), "file y is not there");
    assert_eq!(world.error(&["guards", "check", "both", "--runbook", "three"]).1["code"], "RUNBOOK_NOT_FOUND");
    world.assert_refused(&["guards", "check", "may", "--var", "branch=x"], 4, "VAR_NOT_FOUND");
    assert_eq!(world.run(&["guards", "check", "may", "--var", "branch"]).code, 2);

    std::fs::write(world.path().join(".banksman/runbooks/wrong.toml"), "[guard.mine]\ncondtion = 1\n").unwrap();
    // The guard may be defined in the invalid runbook.
    world.assert_refused(&["guards", "check", "mine"], 3, "RUNBOOK_INVALID");
    fails(&world, "may", "file x is not there");
    let said = world.run(&["guards", "check", "may"]);
    assert!(said.stderr.starts_with("runbook wrong is invalid, so its guards are not listed"), "{said:?}");
    assert_eq!(world.data(&["guards", "list"])["guards"].as_array().unwrap().len(), 3);
}

#[test]
fn variables_have_the_defaults_of_the_pipelines_that_use_the_guard() {
    let world = World::new();
    let pipeline = |name: &str, vars: &str| {
        format!("[pipeline.{name}]\nvars = {vars}\n[[pipeline.{name}.phase]]\nname = \"x\"\nrun = \"true\"\npre = [\"there\"]\n")
    };
    let guard = "[guard.there]\ncondition = { file_exists = { var = \"path\" } }\n";
    crate::runbooks::write(&world, "r", &format!("{guard}{}", pipeline("p", r#"{ path = "x", more = 1 }"#)));
    fails(&world, "there", "file x is not there");
    assert_eq!(failing(&world, &["there", "--var", "path=y"]).unwrap(), "file y is not there");
    fails(&world, "there", "file x is not there");
    let both = format!("{guard}{}{}", pipeline("p", r#"{ path = "x" }"#), pipeline("q", r#"{ path = "z" }"#));
    crate::runbooks::write(&world, "r", &both);
    fails(&world, "there", "not known: the variable path has no value");
}

#[test]
fn conditions_about_pipelines() {
    let world = World::new();
    let text = "[pipeline.demo]\n[[pipeline.demo.phase]]\nname = \"only\"\nrun = \"true\"\npre = [\"free\"]\n\
        [guard.free]\ncondition = { lock_free = \"l\" }\n\
        [guard.over]\ncondition = { pipeline_complete = { var = \"p\" } }\n\
        [guard.there]\ncondition = { pipeline_in_phase = { pipeline = { var = \"p\" }, phase = \"only\" } }\n";
    crate::runbooks::write(&world, "r", text);
    let epoch = world.data(&["locks", "acquire", "l", "--holder", "me", "--ttl", "1h"])["epoch"].to_string();
    let id = world.data(&["pipelines", "start", "demo"])["id"].as_str().unwrap().to_owned();
    let var = format!("p={id}");
    let (exit, error) = world.error(&["guards", "check", "over", "--var", &var]);
    assert_eq!((exit, error["code"].as_str()), (6, Some("GUARD_FAILED")), "{error}");
    let runner = world.start(&["run", "--until-idle"]);
    until("it is in its phase", || world.run(&["guards", "check", "there", "--var", &var]).code == 0);
    world.ok(&["locks", "release", "l", "--holder", "me", "--epoch", &epoch]);
    assert_eq!(runner.end().code, 0);
    world.ok(&["guards", "check", "over", "--var", &var]);
    assert_eq!(world.run(&["guards", "check", "there", "--var", &var]).code, 6, "it is in no phase any more");
    let (_, error) = world.error(&["guards", "check", "over", "--var", "p=p-nowhere"]);
    assert!(error["details"]["part"].as_str().unwrap().contains("not known"), "{error}");
}
