//! Unusual repositories, settings and files: the work lands, or is refused with the reason.

use std::fs;
use std::process::Command;

use crate::landing::Yard;
use crate::merging::git;
use crate::world::{World, write_program};

/// How to set up a repository, and the script of its task.
struct Case {
    name: &'static str,
    make: fn(&Yard),
    script: &'static str,
    /// Checks the result after the task has landed.
    check: fn(&Yard),
}

fn hook(yard: &Yard, name: &str, text: &str) {
    let path = yard.0.path().join(".git/hooks").join(name);
    write_program(&path, &format!("#!/bin/sh\n{text}\n"));
}

fn commit_all(yard: &Yard) {
    yard.git(&["add", "-A"]);
    yard.git(&["commit", "-qm", "more"]);
}

/// The names of all files on the target branch.
fn names(yard: &Yard) -> Vec<String> {
    yard.git(&["ls-tree", "-r", "--name-only", "main"]).lines().map(Into::into).collect()
}

const LANDING: &[Case] = &[
    Case {
        name: "hooks that fail or rewrite are for the commits of people",
        make: |yard| {
            hook(yard, "pre-commit", "exit 1");
            hook(yard, "commit-msg", "echo rewritten > \"$1\"");
            hook(yard, "post-checkout", "exit 1");
            hook(yard, "post-merge", "exit 1");
        },
        script: "echo 1 > a",
        check: |yard| assert!(yard.git(&["log", "-1", "--format=%B", "main"]).starts_with("Work\n\nBanksman-Task: ")),
    },
    Case {
        name: "a rename that only changes the case of letters",
        make: |_| {},
        script: "git mv base Base",
        check: |yard| assert!(names(yard).contains(&"Base".into()) && !yard.0.path().join("base").exists()),
    },
    Case {
        name: "line ends that git converts",
        make: |yard| {
            yard.write(".gitattributes", "*.txt text eol=crlf\n");
            yard.write("t.txt", "a\r\n");
            commit_all(yard);
        },
        script: "printf 'a\\r\\nb\\r\\n' > t.txt; printf 'new\\n' > n.txt",
        check: |yard| assert_eq!((yard.file("t.txt").as_str(), yard.file("n.txt").as_str()), ("a\r\nb\r\n", "new\r\n")),
    },
    Case {
        name: "names with a line end, and with bytes that are no text",
        make: |_| {},
        script: "printf 1 > \"$(printf 'new\\nline')\"; printf 1 > \"$(printf 'b\\377d')\"",
        check: |yard| assert_eq!(names(yard).iter().filter(|name| name.starts_with('"')).count(), 2),
    },
    Case {
        name: "a submodule, which stays where it is",
        make: |yard| {
            let inner = yard.0.path().join("state/inner");
            fs::create_dir_all(&inner).unwrap();
            git(&inner, &["init", "-q"]);
            git(&inner, &["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "inner"]);
            let add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", inner.to_str().unwrap(), "sub"];
            yard.git(&add);
            commit_all(yard);
        },
        script: "echo 1 > a",
        check: |yard| assert!(yard.git(&["ls-tree", "main", "sub"]).starts_with("160000 commit")),
    },
    Case {
        name: "a sparse checkout, in which files outside of it are not written",
        make: |yard| {
            for file in ["in/a", "out/b"] {
                fs::create_dir_all(yard.0.path().join(file).parent().unwrap()).unwrap();
                yard.write(file, "1\n");
            }
            yard.git(&["add", "in", "out"]);
            yard.git(&["commit", "-qm", "more"]);
            yard.git(&["sparse-checkout", "set", "in", ".banksman"]);
        },
        script: "mkdir -p out; echo 2 > in/a; echo 2 > out/b; echo 3 > out/new",
        check: |yard| {
            assert_eq!(yard.git(&["show", "main:out/b"]), "2");
            assert_eq!(yard.git(&["show", "main:out/new"]), "3");
            assert_eq!(yard.file("in/a"), "2\n");
            assert!(!yard.0.path().join("out/new").exists());
        },
    },
    Case {
        name: "files that a filter stores elsewhere",
        make: |yard| {
            yard.git(&["config", "filter.store.clean", "sed s/large/pointer/"]);
            yard.git(&["config", "filter.store.smudge", "sed s/pointer/large/"]);
            yard.git(&["config", "filter.store.required", "true"]);
            yard.write(".gitattributes", "*.bin filter=store\n");
            commit_all(yard);
        },
        script: "echo large > x.bin",
        check: |yard| {
            assert_eq!((yard.git(&["show", "main:x.bin"]).as_str(), yard.file("x.bin").as_str()), ("pointer", "large\n"));
        },
    },
    Case {
        name: "objects that are cleared away meanwhile",
        make: |_| {},
        script: "for n in 1 2 3; do echo $n > a$n; git add -A; git commit -qm $n; git gc -q --prune=now; done; echo 4 > a4",
        check: |yard| assert!(yard.git(&["fsck", "--connectivity-only", "--no-dangling"]).is_empty() && yard.file("a4") == "4\n"),
    },
    Case {
        name: "a HEAD that the run has left on another branch",
        make: |_| {},
        script: "git switch -q -c of-its-own; echo 1 > a; git add -A; git commit -qm a; git switch -q --detach; echo 2 > b",
        check: |yard| assert_eq!((yard.file("a").as_str(), yard.file("b").as_str()), ("1\n", "2\n")),
    },
];

#[test]
fn unusual_repositories_land() {
    for case in LANDING {
        let yard = Yard::new();
        (case.make)(&yard);
        yard.check("true");
        let id = yard.task("Work", case.script, &[]);
        assert!(yard.work(), "{}: {}", case.name, yard.0.ok(&["why", &id]));
        (case.check)(&yard);
        assert_eq!(yard.git(&["status", "--porcelain"]), "", "{}", case.name);
    }
}

#[test]
fn a_detached_head_needs_a_target_and_an_empty_repository_a_commit() {
    let yard = Yard::new();
    yard.check("true");
    yard.git(&["switch", "-q", "--detach"]);
    let refused = yard.0.run(&["tasks", "add", "Work", "--worktree", "--run", "echo 1 > a"]);
    assert!(refused.code == 2 && refused.stderr.contains("HEAD is detached") && refused.stderr.contains("--into"), "{refused:?}");
    yard.task("Work", "echo 1 > a", &["--into", "main"]);
    assert!(yard.work());
    assert_eq!(yard.git(&["show", "main:a"]), "1");
    let yard = Yard(World::new());
    yard.git(&["init", "-q", "-b", "main"]);
    let refused = yard.0.run(&["tasks", "add", "Work", "--worktree", "--land", "--run", "echo 1 > a"]);
    assert!(refused.code == 2 && refused.stderr.contains("no commits yet"), "{refused:?}");
}

#[test]
fn a_bare_repository_and_a_shallow_clone_land() {
    let origin = Yard::new();
    origin.commit("second", "2\n");
    for kind in [&["--bare"][..], &["--depth", "1"]] {
        let yard = Yard(World::empty());
        // A bare repository contains a file `config`, which is the name of the default directory of settings of a world.
        let settings = origin.0.path().join("state").join(kind[0]);
        let ok = |args: &[&str]| {
            let said = yard.0.command(args).env("XDG_CONFIG_HOME", &settings).output().unwrap();
            assert!(said.status.success(), "{kind:?} {args:?}: {said:?}");
        };
        let url = format!("file://{}", origin.0.path().display());
        let clone = ["clone", "-q", "-b", "main"];
        let cloned = Command::new("git").args(clone).args(kind).args([&*url, "."]).current_dir(yard.0.path()).output().unwrap();
        assert!(cloned.status.success(), "{cloned:?}");
        yard.git(&["config", "user.name", "t"]);
        yard.git(&["config", "user.email", "t@example.invalid"]);
        ok(&["init"]);
        ok(&["config", "set", "--user", "landing.check", "true"]);
        ok(&["tasks", "add", "Work", "--worktree", "--run", "echo 1 > a", "--into", "main"]);
        ok(&["run", "--until-idle"]);
        assert_eq!((yard.git(&["show", "main:a"]).as_str(), yard.log(1)), ("1", vec!["Work".to_owned()]), "{kind:?}");
    }
}

#[test]
fn a_landing_that_git_refuses_waits_and_lands_after_the_repair() {
    type Act = fn(&Yard);
    let cases: [(&str, Act, &str, Act); 4] = [
        (
            "nobody who commits",
            |yard| {
                yard.git(&["config", "user.useConfigOnly", "true"]);
                yard.git(&["config", "--unset", "user.email"]);
            },
            "git config --global user.email EMAIL",
            |yard| drop(yard.git(&["config", "user.email", "t@example.invalid"])),
        ),
        (
            "a key that is not there",
            |yard| {
                yard.git(&["config", "commit.gpgSign", "true"]);
                yard.git(&["config", "gpg.program", "false"]);
            },
            "commit.gpgSign is on",
            |yard| drop(yard.git(&["config", "commit.gpgSign", "false"])),
        ),
        (
            "a hook that refuses the move",
            |yard| {
                let text = "[ \"$1\" = prepared ] || exit 0\ngrep -q refs/heads/main && { echo not today >&2; exit 1; }\nexit 0";
                hook(yard, "reference-transaction", text);
            },
            "not today",
            |yard| fs::remove_file(yard.0.path().join(".git/hooks/reference-transaction")).unwrap(),
        ),
        (
            "a filter that is missing",
            |yard| {
                yard.git(&["config", "filter.store.clean", "no-such-filter"]);
                yard.git(&["config", "filter.store.required", "true"]);
                yard.write(".git/info/attributes", "a filter=store\n");
            },
            "git add failed",
            |yard| fs::remove_file(yard.0.path().join(".git/info/attributes")).unwrap(),
        ),
    ];
    for (name, make, reason, repair) in cases {
        let yard = Yard::new();
        yard.check("true");
        fs::create_dir_all(yard.0.path().join(".git/info")).unwrap();
        let id = yard.task("Work", "echo 1 > a", &[]);
        make(&yard);
        // Without --until-idle: such a runner would stay until the landing is no longer refused.
        let mut runner = yard.0.command(&["run"]);
        let nothing = std::process::Stdio::null;
        // The global git settings may name an author.
        runner.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null").stdout(nothing()).stderr(nothing());
        let runner = crate::world::Running(runner.spawn().unwrap());
        let waits = || yard.show(&id)["landing"]["state"] == "waiting";
        crate::world::until("it waits", waits);
        drop(runner);
        let why = yard.0.ok(&["why", &id]);
        assert!(why.contains(reason), "{name}: {why}");
        assert_eq!(yard.status(&id), "landing", "{name}");
        repair(&yard);
        assert_eq!(yard.land(&[&id])["state"], "landed", "{name}");
        assert_eq!(yard.file("a"), "1\n", "{name}");
    }
}

#[test]
fn a_manually_deleted_worktree_lands_its_commits() {
    let yard = Yard::new();
    yard.check("true");
    yard.0.ok(&["landing", "pause", "main"]);
    let id = yard.task("Work", "echo 1 > a; git add a; git commit -qm a", &[]);
    assert!(!yard.work());
    fs::remove_dir_all(yard.show(&id)["workspacePath"].as_str().unwrap()).unwrap();
    yard.0.ok(&["landing", "resume", "main"]);
    assert!(yard.work());
    assert_eq!(yard.file("a"), "1\n");
}

/// Simulates `git gc --prune=now` beside a commit that is being made.
#[test]
fn a_pruned_commit_stops_only_its_own_task() {
    let yard = Yard::new();
    yard.check("true");
    let script = "echo 1 > a; git add a; git commit -qm a; c=$(git rev-parse HEAD); \
                  rm -f $(git rev-parse --git-common-dir)/objects/$(echo $c | cut -c1-2)/$(echo $c | cut -c3-)";
    let broken = yard.task("Broken", script, &[]);
    let nothing = std::process::Stdio::null;
    let runner = yard.0.command(&["run"]).stdout(nothing()).stderr(nothing()).spawn().unwrap();
    let runner = crate::world::Running(runner);
    crate::world::until("it waits", || yard.show(&broken)["landing"]["state"] == "waiting");
    let fine = yard.task("Fine", "echo 1 > b; git add b; git commit -qm b; git commit -q --amend -m c; echo 2 > d", &[]);
    crate::world::until("another one is completed", || yard.status(&fine) == "completed");
    // All of its work is saved, so its worktree is removed.
    let paths = || yard.0.data(&["workspaces", "list"])["workspaces"].as_array().unwrap().len();
    crate::world::until("its worktree is removed", || paths() == 1);
    assert!(yard.0.ok(&["recover", "list", &fine]).contains("before it was removed"));
    assert_eq!((yard.file("b").as_str(), yard.file("d").as_str()), ("1\n", "2\n"));
    let why = yard.0.ok(&["why", &broken]);
    assert!(why.contains("a commit is gone"), "{why}");
    drop(runner);
    let place = yard.show(&broken)["workspacePath"].as_str().unwrap().to_owned();
    git(place.as_ref(), &["reset", "-q", "--soft", "main"]);
    assert_eq!(yard.land(&[&broken])["state"], "landed");
    assert_eq!(yard.file("a"), "1\n");
}

#[test]
fn a_conflicting_rename_is_returned_with_all_its_names() {
    let yard = Yard::new();
    yard.check("true");
    yard.0.ok(&["landing", "pause", "main"]);
    let script = "if [ $BANKSMAN_ATTEMPT = 0 ]; then git mv base mine; git commit -qm mv; \
                  else git status --porcelain; git rm -q --cached base; git rm -qf theirs; git add mine; fi";
    let id = yard.task("Work", script, &[]);
    assert!(!yard.work());
    yard.git(&["mv", "base", "theirs"]);
    yard.git(&["commit", "-qm", "theirs"]);
    yard.0.ok(&["landing", "resume", "main"]);
    assert!(yard.work(), "{}", yard.0.ok(&["tasks", "logs", &id]));
    assert!(yard.0.ok(&["tasks", "logs", &id]).contains("conflicts: base, mine, theirs"));
    assert!(names(&yard).contains(&"mine".into()) && !names(&yard).contains(&"theirs".into()));
}

#[test]
fn a_branch_that_is_checked_out_elsewhere_is_refused() {
    let yard = Yard::new();
    let elsewhere = yard.0.path().join("state/elsewhere");
    yard.git(&["worktree", "add", "-q", elsewhere.to_str().unwrap(), "-b", "topic"]);
    let id = yard.task("Work", "echo 1 > a", &["--branch", "topic"]);
    assert!(!yard.work());
    let log = yard.0.ok(&["tasks", "logs", &id]);
    assert!(log.contains("the branch topic is checked out at"), "{log}");
}

/// Starts a runner with a small file system for the worktrees. `None` if this machine does not permit mounts.
fn run_with_little_space(yard: &Yard, mib: u32) -> Option<crate::world::Running> {
    let may = Command::new("unshare").args(["-rm", "true"]).output().is_ok_and(|said| said.status.success());
    let root = yard.0.path().join("state/worktrees");
    fs::create_dir_all(&root).unwrap();
    yard.0.ok(&["config", "set", "--user", "workspace.root", root.to_str().unwrap()]);
    let own = yard.0.command(&["run"]);
    let line = format!("mount -t tmpfs -o size={mib}m none {} && exec {} run", root.display(), crate::world::BANKSMAN);
    let mut runner = Command::new("unshare");
    runner.args(["-rm", "sh", "-c", &line]).current_dir(own.get_current_dir().unwrap());
    runner.envs(own.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let nothing = std::process::Stdio::null;
    runner.stdout(nothing()).stderr(nothing());
    may.then(|| crate::world::Running(runner.spawn().unwrap()))
}

#[test]
fn a_full_disk_is_reported_and_the_task_lands_later() {
    for (mib, script) in [(1, "echo 1 > a"), (6, "echo 1 > a; git add a; git commit -qm a")] {
        let yard = Yard::new();
        yard.check("true");
        yard.write("large", &"x".repeat(4 << 20));
        yard.git(&["add", "large"]);
        yard.git(&["commit", "-qm", "large"]);
        let id = yard.task("Work", script, &[]);
        let Some(runner) = run_with_little_space(&yard, mib) else { return };
        if mib == 1 {
            // Too small for the worktree of the task.
            crate::world::until("it fails", || yard.status(&id) == "failed");
            assert!(yard.0.ok(&["tasks", "logs", &id]).contains("No space left on device"));
            drop(runner);
            yard.0.ok(&["tasks", "retry", &id]);
            assert!(yard.work(), "{}", yard.0.ok(&["tasks", "logs", &id]));
        } else {
            // Too small for the worktree of the checks, which does not fail the task.
            crate::world::until("it waits", || yard.show(&id)["landing"]["state"] == "waiting");
            let why = yard.0.ok(&["why", &id]);
            assert!(why.contains("No space left on device") && why.contains("free some space"), "{why}");
            drop(runner);
            assert_eq!(yard.land(&[&id])["state"], "landed");
        }
        assert_eq!((yard.file("a").as_str(), yard.is_clean()), ("1\n", true));
        assert_eq!(yard.git(&["fsck", "--connectivity-only", "--no-dangling"]), "");
    }
}
