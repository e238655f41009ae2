//! Changes that a person makes in the checkout at a given step of a merge, with real git. Every byte must survive.

use std::process::Stdio;
use std::time::Instant;

use crate::merging::git;
use crate::merging_killed::{COMPARES, REFRESHES, Steps, VERIFIES, WAIT};
use crate::world::{DEADLINE, Running, until};

#[test]
fn an_edit_of_an_affected_file_survives_at_every_step() {
    // Before the files move: the edit stops the merge.
    let steps = Steps::at(VERIFIES);
    let said = steps.merge_with(VERIFIES, "echo mine > changed");
    assert!(said.code == 1 && said.stderr.contains(" has changes\n"), "{said:?}");
    assert_eq!((steps.status(), std::fs::read_to_string(steps.path("changed")).unwrap()), (" M changed".into(), "mine\n".into()));
    assert_eq!(git(steps.world.path(), &["rev-parse", "main"]), steps.before);
    steps.assert_tidy();
    // After the files have moved: the edit is a change of the merged file.
    for step in [COMPARES, REFRESHES] {
        let steps = Steps::at(step);
        let said = steps.merge_with(step, "echo mine >> changed; echo mine > gone");
        assert_eq!(said.code, 0, "{said:?}");
        assert_eq!(std::fs::read_to_string(steps.path("changed")).unwrap(), "after\nmine\n");
        assert_eq!(steps.status(), " M changed\n?? gone");
        steps.assert_tidy();
    }
}

#[test]
fn a_new_file_at_the_path_of_an_added_one_survives() {
    let steps = Steps::at(VERIFIES);
    let said = steps.merge_with(VERIFIES, "mkdir dir; echo mine > dir/new");
    assert!(said.code == 1 && said.stderr.contains("new files are in the way"), "{said:?}");
    assert_eq!((steps.status(), std::fs::read_to_string(steps.path("dir/new")).unwrap()), ("?? dir/".into(), "mine\n".into()));
    steps.assert_tidy();
}

/// Runs a script once, after the ref is locked and before the index is.
fn when_the_ref_is_locked(steps: &Steps, script: &str) {
    let root = steps.world.path().display();
    let hook = format!(
        "#!/bin/sh\n[ $1 = prepared ] && grep -q refs/heads/main && [ ! -e '{root}/state/once' ] || exit 0\n\
         : > '{root}/state/once'\nunset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_PREFIX\ncd '{root}'\n({script}) > state/said 2>&1\nexit 0\n"
    );
    steps.script(".git/hooks/reference-transaction", &hook);
}

#[test]
fn a_commit_after_the_ref_is_locked_fails_visibly_or_survives() {
    let steps = Steps::new();
    when_the_ref_is_locked(&steps, "echo precious > precious; git add precious; git commit -q -m precious; echo $?");
    let said = steps.world.run(&Steps::MERGE);
    let person = std::fs::read_to_string(steps.path("state/said")).unwrap();
    assert!(person.contains("main.lock") || person.contains("HEAD.lock"), "git tells the person: {person}");
    // The staged file is a change, so the merge waits for the person.
    assert!(said.code == 1 && said.stderr.contains(" has changes\n"), "{said:?}");
    assert_eq!(steps.status(), "A  precious");
    git(steps.world.path(), &["commit", "-q", "-m", "precious"]);
    steps.world.ok(&["merge-branch", "--how", "rebase", "--", "topic", "main"]);
    assert_eq!((steps.status(), git(steps.world.path(), &["show", "main:precious"])), (String::new(), "precious".into()));
    steps.assert_tidy();
}

#[test]
fn staged_and_stashed_changes_after_the_ref_is_locked_survive() {
    let steps = Steps::new();
    when_the_ref_is_locked(&steps, "echo staged > changed; git add changed; echo again > changed");
    let said = steps.world.run(&Steps::MERGE);
    assert!(said.code == 1 && said.stderr.contains(" has changes\n"), "{said:?}");
    let staged = git(steps.world.path(), &["show", ":changed"]);
    assert_eq!((staged.as_str(), std::fs::read_to_string(steps.path("changed")).unwrap().as_str()), ("staged", "again\n"));
    steps.assert_tidy();

    let steps = Steps::new();
    when_the_ref_is_locked(&steps, "echo stashed > zz; git stash -q");
    steps.world.ok(&Steps::MERGE);
    steps.assert_merged();
    assert_eq!(git(steps.world.path(), &["show", "stash@{0}:zz"]), "stashed");
}

#[test]
fn a_switch_to_another_branch_during_a_merge_succeeds() {
    let steps = Steps::new();
    git(steps.world.path(), &["branch", "work"]);
    let said = steps.merge_with(("checkout-index", 1), "git switch -q work");
    assert_eq!(said.code, 0, "it has no checkout then: {said:?}");
    assert_eq!(git(steps.world.path(), &["symbolic-ref", "HEAD"]), "refs/heads/work");
    assert_eq!((steps.status(), std::fs::read_to_string(steps.path("changed")).unwrap()), (String::new(), "before\n".into()));
    assert_eq!(git(steps.world.path(), &["rev-parse", "main"]), git(steps.world.path(), &["rev-parse", "topic"]));
    steps.assert_tidy();
}

/// Starts a check of a guard that needs a clean checkout. Its git runs one script before its first status, and another one
/// between the status and its output.
fn start_check(steps: &Steps, before: &str, after: &str) -> Running {
    crate::runbooks::write(&steps.world, "ops", "[guard.clean]\ncondition = { branch_clean = \"main\" }\n");
    let (path, root) = (std::env::var("PATH").unwrap(), steps.world.path().display());
    std::fs::create_dir_all(steps.path("state/asking")).unwrap();
    let wrapper = format!(
        "#!/bin/sh\nPATH='{path}'\ncase \"$*\" in *' status '*)\nif mkdir '{root}/state/once' 2> /dev/null; then\n\
         (cd '{root}'; {before}) > /dev/null\ngit \"$@\" > '{root}/state/seen'\nend=$?\n(cd '{root}'; {after}) > /dev/null\n\
         cat '{root}/state/seen'\nexit $end\nfi;;\nesac\nexec git \"$@\"\n"
    );
    steps.script("state/asking/git", &wrapper);
    let mut command = steps.world.command(&["guards", "check", "clean"]);
    command.env("PATH", format!("{root}/state/asking:{path}"));
    Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

#[test]
fn a_checkout_that_a_merge_moves_is_clean_for_a_guard() {
    let is_there = |steps: &Steps, name: &str| until(name, || steps.path(name).exists());
    let touch = |steps: &Steps, name: &str| std::fs::write(steps.path(name), "").unwrap();
    // The merge moves the checkout while git looks, and goes on afterwards.
    let steps = Steps::at(REFRESHES);
    let merge = steps.start(REFRESHES, WAIT);
    is_there(&steps, "state/here");
    let check = start_check(&steps, "true", "touch state/dirty");
    is_there(&steps, "state/dirty");
    touch(&steps, "state/go");
    let said = check.end();
    assert!(said.code == 0 && !std::fs::read(steps.path("state/seen")).unwrap().is_empty(), "{said:?}");
    assert_eq!(merge.end().code, 0);
    // The merge begins after the check did, and ends before the check knows what git has seen.
    let steps = Steps::at(REFRESHES);
    let is_moved = "touch state/asked; while [ ! -e state/here ]; do sleep 0.01; done";
    let check = start_check(&steps, is_moved, "touch state/dirty; while [ ! -e state/over ]; do sleep 0.01; done");
    is_there(&steps, "state/asked");
    let merge = steps.start(REFRESHES, WAIT);
    is_there(&steps, "state/dirty");
    touch(&steps, "state/go");
    assert_eq!(merge.end().code, 0);
    touch(&steps, "state/over");
    let said = check.end();
    assert!(said.code == 0 && !std::fs::read(steps.path("state/seen")).unwrap().is_empty(), "{said:?}");
    // What a killed merge has left are changes, at once.
    let steps = Steps::at(REFRESHES);
    steps.kill(REFRESHES, true);
    let start = Instant::now();
    let said = start_check(&steps, "true", "true").end();
    assert!(said.code == 6 && said.stderr.contains("changed"), "{said:?}");
    assert!(start.elapsed() < DEADLINE / 3, "{:?}", start.elapsed());
    steps.world.ok(&Steps::MERGE);
}
