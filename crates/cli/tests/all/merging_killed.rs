//! Merges that are killed at a given step, with `git gc --prune=now` before the next command.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use banksman_adapters::tree::descendants;
use rustix::process::Signal;

use crate::merging::{commit, git, repository};
use crate::world::{Running, Said, World, kill, until, write_program};

/// A branch `topic` that changes, adds and removes files, and a git wrapper that runs a script at one step of a merge.
pub(crate) struct Steps {
    pub(crate) world: World,
    pub(crate) before: String,
}

/// A step of a merge: the git command that begins it, and which of its occurrences.
pub(crate) type Step = (&'static str, u32);

/// The new files are written.
const STAGES: Step = ("checkout-index", 1);
/// The refs are about to be locked.
const PREPARES: Step = ("update-ref -m", 1);
/// Refs and index are locked. This git command is only run where HEAD is a symbolic link.
pub(crate) const VERIFIES: Step = ("symbolic-ref --quiet HEAD", 1);
/// The files have moved, and are compared. This git command is only run for a file that git filters.
pub(crate) const COMPARES: Step = ("diff --no-ext-diff", 2);
/// The files have moved; the index has not.
pub(crate) const REFRESHES: Step = ("update-index -q --refresh", 1);
/// Only the removal of the replaced files is left.
const DISPOSES: Step = ("diff --no-ext-diff", 3);

impl Steps {
    pub(crate) const MERGE: [&str; 6] = ["merge-branch", "--how", "fast_forward", "--", "topic", "main"];

    pub(crate) fn new() -> Steps {
        Steps::with(&[])
    }

    /// A repository in which git reaches the step.
    pub(crate) fn at(step: Step) -> Steps {
        let filtered = [COMPARES, DISPOSES].contains(&step);
        let steps = Steps::with(if filtered { &["filtered"] } else { &[] });
        if step == VERIFIES {
            let head = steps.path(".git/HEAD");
            std::fs::remove_file(&head).unwrap();
            std::os::unix::fs::symlink("refs/heads/main", head).unwrap();
        }
        steps
    }

    /// A repository with more changed files, to which a git filter applies.
    fn with(filtered: &[&str]) -> Steps {
        let world = World::on_sqlite();
        repository(&world);
        for (key, command) in [("clean", "tr a-z A-Z"), ("smudge", "tr A-Z a-z")] {
            git(world.path(), &["config", &format!("filter.case.{key}"), command]);
        }
        let write = |name: &str, text: &str| std::fs::write(world.path().join(name), text).unwrap();
        let attributes: String = filtered.iter().map(|name| format!("{name} filter=case\n")).collect();
        write(".gitattributes", &attributes);
        for name in ["changed", "other", "gone"].iter().chain(filtered) {
            write(name, "before\n");
        }
        commit(&world, "zz", "before\n");
        git(world.path(), &["switch", "-q", "-c", "topic"]);
        for name in ["changed", "other"].iter().chain(filtered) {
            write(name, "after\n");
        }
        std::fs::create_dir(world.path().join("dir")).unwrap();
        write("dir/new", "new\n");
        git(world.path(), &["rm", "-q", "gone"]);
        commit(&world, "zz", "after\n");
        git(world.path(), &["switch", "-q", "main"]);
        std::fs::create_dir_all(world.path().join("state/tools")).unwrap();
        let before = git(world.path(), &["rev-parse", "main"]);
        Steps { world, before }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.world.path().join(name)
    }

    /// Starts a merge whose git wrapper runs a script in the checkout once, at a step.
    pub(crate) fn start(&self, step: Step, script: &str) -> Running {
        let (path, root) = (std::env::var("PATH").unwrap(), self.world.path().display());
        let (pattern, nth) = step;
        let wrapper = format!(
            "#!/bin/sh\nPATH='{path}'\ncase \"$*\" in *'{pattern}'*)\necho x >> '{root}/state/count'\n\
             if [ $(wc -l < '{root}/state/count') = {nth} ]; then (cd '{root}'; {script}) > '{root}/state/said' 2>&1; fi;;\nesac\n\
             exec git \"$@\"\n"
        );
        self.script("state/tools/git", &wrapper);
        std::fs::remove_file(self.path("state/count")).ok();
        let mut command = self.world.command(&Self::MERGE);
        command.env("PATH", format!("{root}/state/tools:{path}"));
        Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    pub(crate) fn script(&self, name: &str, text: &str) {
        let path = self.path(name);
        write_program(&path, text);
    }

    /// Runs a merge with a script at one step.
    pub(crate) fn merge_with(&self, step: Step, script: &str) -> Said {
        self.start(step, script).end()
    }

    /// Kills a merge at a step, with all its children if `with_children` is set.
    pub(crate) fn kill(&self, step: Step, with_children: bool) {
        let merge = self.start(step, WAIT);
        self.kill_here(merge, with_children);
        self.collect_garbage();
    }

    fn kill_here(&self, merge: Running, with_children: bool) {
        let here = self.path("state/here");
        until("the merge is there", || here.exists());
        let children = descendants(merge.pid());
        // Stopped first, so that no process reacts to the end of another.
        merge.signal(Signal::STOP);
        if with_children {
            children.iter().for_each(|pid| kill(*pid));
        }
        kill(merge.pid());
        merge.end();
        std::fs::remove_file(&here).unwrap();
        if !with_children {
            std::fs::write(self.path("state/go"), "").unwrap();
        }
        until("its children are gone", || children.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()));
        std::fs::remove_file(self.path("state/go")).ok();
    }

    /// Prunes all unreachable objects. `git gc` itself fails where refs are locked.
    fn collect_garbage(&self) {
        Command::new("git").args(["gc", "-q", "--prune=now"]).current_dir(self.world.path()).output().unwrap();
        git(self.world.path(), &["prune", "--expire=now"]);
    }

    pub(crate) fn status(&self) -> String {
        git(self.world.path(), &["status", "--porcelain"])
    }

    pub(crate) fn assert_merged(&self) {
        assert_eq!(git(self.world.path(), &["rev-parse", "main"]), git(self.world.path(), &["rev-parse", "topic"]));
        assert_eq!(self.status(), "");
        assert_eq!(std::fs::read_to_string(self.path("dir/new")).unwrap(), "new\n");
        self.assert_tidy();
    }

    /// Asserts that no lock and no file of a merge is left.
    pub(crate) fn assert_tidy(&self) {
        for name in ["index.lock", "HEAD.lock", "refs/heads/main.lock", "packed-refs.lock"] {
            assert!(!self.path(".git").join(name).exists(), "{name}");
        }
        let left: Vec<_> =
            std::fs::read_dir(self.path(".git/banksman/moves")).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, Vec::<PathBuf>::new());
        assert!(!self.path(".git/banksman/saved").exists());
    }
}

/// Reports that the step is reached, and waits until it is killed or may continue.
pub(crate) const WAIT: &str = "touch state/here; while [ ! -e state/go ]; do sleep 0.01; done";

#[test]
fn a_merge_killed_at_any_step_is_settled_by_the_next() {
    let all = [STAGES, PREPARES, VERIFIES, COMPARES, REFRESHES, DISPOSES].map(|step| (step, true));
    // A git process that lives on unlocks the refs by itself.
    for (step, with_children) in all.into_iter().chain([(REFRESHES, false)]) {
        let steps = Steps::at(step);
        steps.kill(step, with_children);
        let has_moved = git(steps.world.path(), &["rev-parse", "main"]) != steps.before;
        assert_eq!(has_moved, step == DISPOSES, "{step:?}");
        assert_eq!(steps.path(".git/index.lock").exists(), [VERIFIES, COMPARES, REFRESHES].contains(&step), "{step:?}");
        let is_locked = with_children && [VERIFIES, COMPARES, REFRESHES].contains(&step);
        assert_eq!(steps.path(".git/refs/heads/main.lock").exists(), is_locked, "{step:?}");
        steps.world.ok(&Steps::MERGE);
        steps.assert_merged();
    }
}

#[test]
fn a_merge_killed_around_the_move_of_the_branch_is_settled() {
    for moment in ["prepared", "committed"] {
        let steps = Steps::new();
        let root = steps.world.path().display();
        let hook = format!("#!/bin/sh\n[ $1 = {moment} ] && grep -q refs/heads/main || exit 0\ncd '{root}'\n{WAIT}\n");
        steps.script(".git/hooks/reference-transaction", &hook);
        let merge = steps.start(("no such step", 1), "");
        steps.kill_here(merge, true);
        let has_moved = git(steps.world.path(), &["rev-parse", "main"]) != steps.before;
        assert_eq!(has_moved, moment == "committed");
        std::fs::remove_file(steps.path(".git/hooks/reference-transaction")).unwrap();
        steps.collect_garbage();
        steps.world.ok(&Steps::MERGE);
        steps.assert_merged();
    }
}

#[test]
fn doctor_finds_and_fixes_the_remains_of_a_killed_merge() {
    let steps = Steps::new();
    assert_eq!(check(&steps, &["doctor"])["verdict"], "ok");
    steps.kill(REFRESHES, true);
    let found = check(&steps, &["doctor"]);
    assert_eq!((&found["verdict"], &found["entries"][0]["fix"]), (&"wrong".into(), &"banksman doctor --fix".into()), "{found}");
    let text = found["entries"][0]["text"].as_str().unwrap();
    for word in ["a merge was killed", "index.lock", "main.lock"] {
        assert!(text.contains(word), "{text}");
    }
    assert_ne!(steps.status(), "", "without --fix nothing is changed");
    let fixed = check(&steps, &["doctor", "--fix"]);
    assert_eq!(fixed["verdict"], "fixed", "{fixed}");
    assert_eq!((steps.status(), git(steps.world.path(), &["rev-parse", "main"])), (String::new(), steps.before.clone()));
    steps.assert_tidy();
    assert_eq!(check(&steps, &["doctor"])["verdict"], "ok");
    // The person can commit again.
    commit(&steps.world, "mine", "mine\n");
}

fn check(steps: &Steps, args: &[&str]) -> serde_json::Value {
    let said = steps.world.run(&[args, &["--json"]].concat());
    let said: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    let checks = said["data"]["checks"].as_array().unwrap().clone();
    checks.into_iter().find(|check| check["check"] == "merges").unwrap()
}

#[test]
fn git_locks_of_other_processes_are_left_alone() {
    let steps = Steps::at(VERIFIES);
    let lock = steps.path(".git/index.lock");
    for text in ["", "DIRC", "somebody else"] {
        std::fs::write(&lock, text).unwrap();
        let said = steps.world.run(&Steps::MERGE);
        assert!(said.code == 1 && said.stderr.contains(" is locked: another git "), "{said:?}");
        assert_eq!(check(&steps, &["doctor", "--fix"])["verdict"], "ok");
        assert_eq!(std::fs::read_to_string(&lock).unwrap(), text);
        assert_eq!(steps.status(), "");
    }
    std::fs::remove_file(&lock).unwrap();
    // Also while a merge of Banksman has to be settled.
    steps.kill(VERIFIES, true);
    let lock = steps.path(".git/refs/heads/main.lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::write(&lock, "0123456789012345678901234567890123456789\n").unwrap();
    let said = steps.world.run(&Steps::MERGE);
    assert!(said.code == 1 && said.stderr.contains("main.lock"), "{said:?}");
    assert!(lock.exists() && !steps.path(".git/index.lock").exists());
    std::fs::remove_file(&lock).unwrap();
    steps.world.ok(&Steps::MERGE);
    steps.assert_merged();
}

#[test]
fn an_index_lock_of_an_earlier_version_is_removed() {
    let steps = Steps::new();
    let text = format!("banksman moves this checkout\nfrom {0}\nto {0}\n", steps.before);
    std::fs::write(steps.path(".git/index.lock"), text).unwrap();
    assert_eq!(check(&steps, &["doctor"])["verdict"], "wrong");
    steps.world.ok(&Steps::MERGE);
    steps.assert_merged();
}

#[test]
fn edits_in_a_partially_moved_checkout_survive() {
    let steps = Steps::new();
    steps.kill(REFRESHES, true);
    for name in ["changed", "dir/new", "gone"] {
        std::fs::write(steps.path(name), "mine\n").unwrap();
    }
    std::fs::remove_file(steps.path("zz")).unwrap();
    let said = steps.world.run(&Steps::MERGE);
    assert!(said.code == 1 && said.stderr.contains(" has changes\n"), "{said:?}");
    for name in ["changed", "dir/new", "gone"] {
        assert_eq!(std::fs::read_to_string(steps.path(name)).unwrap(), "mine\n", "{name}");
    }
    assert_eq!(steps.status(), " M changed\n M gone\n D zz\n?? dir/", "what is exactly ours went back: other");
    steps.assert_tidy();
}
