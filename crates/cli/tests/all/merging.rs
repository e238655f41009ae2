//! Merges of a branch by the command that a session runs, with real git.

use std::path::Path;
use std::process::Command;

use banksman_core::pipeline::plan::MergeHow;
use banksman_core::task::{Spec, Work};
use banksman_core::{TaskId, Title};
use banksman_engine::{Request, TaskRequest};
use rustix::process::Signal;
use serde_json::Value;

use crate::world::{World, is_alive, until, write_program};

/// Runs git, which must succeed, and returns what it prints.
pub(crate) fn git(directory: &Path, args: &[&str]) -> String {
    let done = Command::new("git").current_dir(directory).args(args).output().unwrap();
    assert!(done.status.success(), "{args:?}: {done:?}");
    String::from_utf8(done.stdout).unwrap().trim_end().to_owned()
}

/// Makes the project a repository, with a branch `main` and one commit.
pub(crate) fn repository(world: &World) {
    git(world.path(), &["init", "-q", "-b", "main"]);
    git(world.path(), &["config", "user.name", "t"]);
    git(world.path(), &["config", "user.email", "t@example.invalid"]);
    std::fs::write(world.path().join(".gitignore"), "/state\n/config\n").unwrap();
    commit(world, "base", "base\n");
}

pub(crate) fn commit(world: &World, file: &str, text: &str) {
    std::fs::write(world.path().join(file), text).unwrap();
    git(world.path(), &["add", "-A"]);
    git(world.path(), &["commit", "-q", "-m", file]);
}

/// Makes a branch from `main` with one commit, and returns to `main`.
pub(crate) fn branch(world: &World, name: &str, file: &str, text: &str) {
    git(world.path(), &["switch", "-q", "-c", name, "main"]);
    commit(world, file, text);
    git(world.path(), &["switch", "-q", "main"]);
}

#[test]
fn the_last_line_of_a_merge_is_its_result() {
    let world = World::new();
    repository(&world);
    branch(&world, "topic", "a", "a\n");
    commit(&world, "m", "m\n");
    let said = world.run(&["merge-branch", "--how", "rebase", "--", "topic", "main"]);
    assert_eq!(said.code, 0, "{said:?}");
    let result: Value = serde_json::from_str(said.stdout.lines().last().unwrap()).unwrap();
    let commit = git(world.path(), &["rev-parse", "main"]);
    assert_eq!(result, serde_json::json!({ "merged": true, "how": "rebase", "commit": commit }));
    assert!(said.stdout.starts_with("merged topic into main (rebase): from "), "{said:?}");
    let again = world.ok(&["merge-branch", "--how", "merge_commit", "--", "main", "main"]);
    assert!(again.starts_with("all of main is in main already\n{"), "{again}");
}

#[test]
fn a_failed_merge_begins_with_a_matchable_reason() {
    let world = World::new();
    repository(&world);
    branch(&world, "topic", "a", "topic\n");
    commit(&world, "a", "main\n");
    let fails = |args: &[&str], begins: &str| {
        let said = world.run(&[&["merge-branch", "--how"], args].concat());
        assert_eq!((said.code, said.stdout.as_str()), (1, ""), "{said:?}");
        assert!(said.stderr.starts_with(begins), "{said:?}");
    };
    fails(&["fast_forward", "--", "topic", "main"], "not a fast-forward: ");
    fails(&["rebase", "--", "topic", "main"], "conflict in a\n");
    fails(&["merge_commit", "--", "topic", "main"], "conflict in a\n");
    fails(&["rebase", "--", "gone", "main"], "no such branch: gone\n");
    fails(&["rebase", "--", "-d", "main"], "\"-d\" is no name of a branch\n");
    std::fs::write(world.path().join("base"), "begun").unwrap();
    fails(&["rebase", "--", "topic", "main"], "the checkout at /");
    assert_eq!(world.run(&["merge-branch", "--how", "magic", "--", "a", "b"]).code, 2);
    assert!(!world.ok(&["--help"]).contains("merge-branch"));
    assert!(!world.ok(&["completions", "bash"]).contains("merge-branch"));
}

#[test]
fn a_git_version_that_is_too_old_is_refused() {
    let world = World::new();
    repository(&world);
    branch(&world, "topic", "a", "a\n");
    let (tools, path) = (world.path().join("state/tools"), std::env::var("PATH").unwrap());
    std::fs::create_dir_all(&tools).unwrap();
    let merge = |version: &str| {
        let script = format!(
            "#!/bin/sh\nPATH='{path}'\ncase \"$*\" in *' version') echo 'git version {version}';; *) git \"$@\";; esac\n"
        );
        write_program(&tools.join("git"), &script);
        let mut command = world.command(&["merge-branch", "--how", "rebase", "--", "topic", "main"]);
        let done = command.env("PATH", format!("{}:{path}", tools.display())).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    assert_eq!(merge("2.37.9"), (Some(1), "git 2.37.9 is too old: merging needs 2.38 or later\n".into()));
    assert_eq!(merge("1.99.rc0"), (Some(1), "git 1.99.rc0 is too old: merging needs 2.38 or later\n".into()));
    for new in ["2.38.1 (Apple Git-143)", "3.0", "from somewhere else"] {
        assert_eq!(merge(new), (Some(0), String::new()), "{new}");
    }
}

/// The number of directories in which merges work, or have worked.
fn worktrees_of_merges(world: &World) -> usize {
    let entries = std::fs::read_dir(world.path().join(".banksman/workspaces")).unwrap();
    entries.filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with(".merge-")).count()
}

/// A git process whose merge was killed finds its worktree missing, and then removes a directory: it must not be that of the next merge.
#[test]
fn a_git_process_that_outlives_its_merge_does_not_harm_the_next() {
    let world = World::new();
    repository(&world);
    commit(&world, ".gitattributes", "*.slow filter=slow\n");
    commit(&world, "x.slow", "x\n");
    branch(&world, "topic", "y.slow", "y\n");
    commit(&world, "m", "m\n");
    // The checkout of the first merge blocks while `wait.1` exists, the second merge, with its worktree, while `wait.2` does.
    let state = world.path().join("state");
    std::fs::create_dir_all(&state).unwrap();
    let script = format!(
        "#!/bin/sh\ncd '{}'\nmkdir first 2> /dev/null && echo $PPID > first/pid\n\
         if [ \"$(cat first/pid)\" = $PPID ]; then n=1; elif [ \"$1\" = y.slow ]; then n=2; fi\ntouch here.$n\nwhile [ -e wait.$n ]; do sleep 0.01; done\ncat\n",
        state.display()
    );
    write_program(&state.join("filter"), &script);
    git(world.path(), &["config", "filter.slow.smudge", &format!("'{}' %f", state.join("filter").display())]);
    ["wait.1", "wait.2"].iter().for_each(|file| std::fs::write(state.join(file), "").unwrap());

    let merge = ["merge-branch", "--how", "merge_commit", "--", "topic", "main"];
    let killed = world.start(&merge);
    until("the first merge is in the middle", || state.join("here.1").exists());
    let checkout = std::fs::read_to_string(state.join("first/pid")).unwrap().trim().parse().unwrap();
    let ancestors = || std::iter::successors(Some(checkout), |pid| Some(parent_of(*pid)));
    let outlives = ancestors().find(|pid| parent_of(*pid) == killed.pid()).unwrap();
    killed.signal(Signal::KILL);
    killed.end();
    assert!(is_alive(outlives), "the git process that makes the worktree lives on");
    let second = world.start(&merge);
    until("the second merge is in the middle", || state.join("here.2").exists());
    std::fs::remove_file(state.join("wait.1")).unwrap();
    until("the git of the first merge has ended", || !is_alive(outlives));
    std::fs::remove_file(state.join("wait.2")).unwrap();
    let second = second.end();
    assert_eq!(second.code, 0, "{second:?}");
    assert_eq!(worktrees_of_merges(&world), 0);
    assert_eq!(git(world.path(), &["worktree", "list"]).lines().count(), 1);
}

fn parent_of(pid: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok()).unwrap()
}

#[test]
fn a_merge_that_was_killed_midway_is_repeated() {
    let world = World::new();
    repository(&world);
    commit(&world, ".gitattributes", "*.slow filter=slow\n");
    commit(&world, "x.slow", "x\n");
    branch(&world, "topic", "a", "a\n");
    commit(&world, "m", "m\n");
    // A checkout of the branch blocks while the file `wait` exists.
    let (filter, here, wait) =
        (world.path().join("state/filter"), world.path().join("state/here"), world.path().join("state/wait"));
    let script = format!("#!/bin/sh\ntouch '{}'\nwhile [ -e '{}' ]; do sleep 0.01; done\ncat\n", here.display(), wait.display());
    std::fs::create_dir_all(world.path().join("state")).unwrap();
    write_program(&filter, &script);
    git(world.path(), &["config", "filter.slow.smudge", filter.to_str().unwrap()]);
    std::fs::write(&wait, "").unwrap();
    let before = git(world.path(), &["rev-parse", "main"]);

    let merge = ["merge-branch", "--how", "rebase", "--", "topic", "main"];
    let killed = world.start(&merge);
    until("the merge is in the middle", || here.exists());
    killed.signal(Signal::KILL);
    killed.end();
    assert_eq!(git(world.path(), &["rev-parse", "main"]), before);
    assert_eq!(worktrees_of_merges(&world), 1, "the killed merge left its worktree");
    std::fs::remove_file(&wait).unwrap();

    world.ok(&merge);
    assert_eq!(git(world.path(), &["rev-parse", "main~1"]), before);
    assert_eq!(git(world.path(), &["worktree", "list"]).lines().count(), 1);
    assert_eq!(worktrees_of_merges(&world), 0);
    assert_eq!(git(world.path(), &["status", "--porcelain"]), "");
}

#[test]
fn a_merge_task_runs_in_a_session() {
    let world = World::new();
    repository(&world);
    branch(&world, "topic", "a", "a\n");
    commit(&world, "m", "m\n");
    let client = world.project().open().unwrap();
    let add = |id: &str, branch: &str| {
        let work = Work::Merge { branch: branch.into(), into: "main".into(), how: MergeHow::MergeCommit };
        let spec = Box::new(Spec { work: Some(work), ..Spec::new(Title::new("Merge it").unwrap()) });
        let id = TaskId::new(id).unwrap();
        client.call(Request::Task(TaskRequest::Add { id, spec, depends_on: Vec::new(), by: None })).unwrap();
    };
    add("t-good", "topic");
    add("t-bad", "gone");
    assert_eq!(world.run(&["run", "--until-idle"]).code, 7, "one of them failed");
    assert_eq!(world.data(&["tasks", "show", "t-good"])["status"], "completed");
    assert_eq!(git(world.path(), &["log", "-1", "--format=%s", "main"]), "Merge branch 'topic' into main");
    assert_eq!(world.data(&["tasks", "show", "t-bad"])["status"], "failed");
    assert!(world.ok(&["tasks", "logs", "t-bad"]).contains("no such branch: gone\n"));
    assert_eq!(git(world.path(), &["status", "--porcelain"]), "");
}
