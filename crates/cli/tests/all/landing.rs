//! The merge queue, with real git: branches land by the command `land`, checked and unchecked.

use rustix::process::Signal;
use serde_json::Value;

use crate::merging::{branch, commit, git, repository};
use crate::world::{World, until, write_program};

/// The number of git processes that the landing of each branch with one changed file starts, and those shared by all branches of a batch.
const EACH_LANDS: usize = 13;
const ALL_TOGETHER: usize = 14;

/// A project in a repository. Its worktree directory is removed with it.
pub(crate) struct Yard(pub(crate) World);

impl Yard {
    pub(crate) fn new() -> Yard {
        let world = World::new();
        repository(&world);
        Yard(world)
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        git(self.0.path(), args)
    }

    pub(crate) fn branch(&self, name: &str, file: &str, text: &str) {
        branch(&self.0, name, file, text);
    }

    pub(crate) fn commit(&self, file: &str, text: &str) {
        commit(&self.0, file, text);
    }

    pub(crate) fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).unwrap()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    /// The subjects of the last commits of `main`.
    pub(crate) fn log(&self, count: usize) -> Vec<String> {
        self.git(&["log", "--format=%s", &format!("-{count}"), "main"]).lines().map(Into::into).collect()
    }

    pub(crate) fn check(&self, line: &str) {
        self.0.ok(&["config", "set", "--user", "landing.check", line]);
    }

    /// Lands one branch. Returns its entry.
    pub(crate) fn land(&self, args: &[&str]) -> Value {
        let data = self.0.data(&[&["land"], args].concat());
        data["landings"][0].clone()
    }

    /// The newest entry, whatever its state.
    pub(crate) fn last(&self) -> Value {
        self.0.data(&["landing", "list", "--all"])["landings"][0].clone()
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.git(&["status", "--porcelain"]).is_empty()
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        let own = self.0.path();
        if let (Some(parent), Some(name)) = (own.parent(), own.file_name()) {
            std::fs::remove_dir_all(parent.join(format!(".{}-banksman", name.to_string_lossy()))).ok();
        }
    }
}

#[test]
fn a_branch_lands_as_one_commit_and_the_checkout_follows() {
    let yard = Yard::new();
    yard.git(&["switch", "-q", "-c", "topic"]);
    yard.commit("a", "1\n");
    yard.git(&["-c", "user.name=Ann", "-c", "user.email=ann@example.invalid", "commit", "-q", "--allow-empty", "-m", "second"]);
    yard.git(&["switch", "-q", "main"]);
    yard.commit("m", "m\n");
    let before = yard.git(&["rev-parse", "main"]);
    let landed = yard.land(&["topic", "--unchecked", "--title", "Add a"]);
    assert_eq!((landed["state"].as_str(), landed["target"].as_str()), (Some("landed"), Some("main")), "{landed}");
    assert_eq!(yard.git(&["rev-parse", "main"]), landed["commit"].as_str().unwrap());
    assert_eq!(yard.git(&["rev-parse", "main^"]), before, "the tip is its only parent");
    assert_eq!(yard.git(&["log", "-1", "--format=%B%an", "main"]), "Add a\n\n* a\n* second\nAnn");
    assert_eq!((yard.file("a").as_str(), yard.is_clean()), ("1\n", true));
    assert_eq!(yard.git(&["for-each-ref", "refs/banksman/queued"]), "", "nothing is held any more");
    let again = yard.land(&["topic", "--unchecked"]);
    assert_eq!(again["state"], "no_change", "{again}");
}

#[test]
fn branches_named_together_land_in_that_order() {
    let yard = Yard::new();
    for name in ["one", "two", "three"] {
        yard.branch(name, name, "1\n");
    }
    yard.git(&["branch", "same", "two"]);
    let landed = yard.0.data(&["land", "three", "two", "same", "two", "one", "--unchecked"]);
    let states: Vec<&str> = landed["landings"].as_array().unwrap().iter().map(|entry| entry["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["landed"; 5], "a commit that is in the queue already is not added again: {landed}");
    assert_eq!(yard.log(3), ["one", "two", "three"]);
    assert!(yard.is_clean());
    let said = yard.0.run(&["land", "one", "no-such-branch", "--unchecked"]);
    assert!(said.code != 0 && said.stderr.contains("no-such-branch"), "{said:?}");
}

/// The git processes that a command starts, one per line.
fn gits_of(yard: &Yard, args: &[&str]) -> String {
    let (path, tools) = (std::env::var("PATH").unwrap(), yard.0.path().join(".git/tools"));
    std::fs::create_dir_all(&tools).unwrap();
    let (count, git) = (tools.join("count"), tools.join("git"));
    std::fs::write(&count, "").unwrap();
    let script = format!("#!/bin/sh\nPATH='{path}'\necho \"$*\" >> '{}'\nexec git \"$@\"\n", count.display());
    write_program(&git, &script);
    let done = yard.0.command(args).env("PATH", format!("{}:{path}", tools.display())).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    std::fs::read_to_string(&count).unwrap()
}

/// The git processes take nearly all of the time of a landing.
#[test]
fn the_number_of_git_processes_of_a_landing_is_bounded() {
    let yard = Yard::new();
    for number in 0..6 {
        yard.commit(&format!("f{number}"), "0\n");
    }
    for number in 0..6 {
        yard.branch(&format!("b{number}"), &format!("f{number}"), "1\n");
    }
    // A git version that reads hooks from its settings starts one more process for each.
    let count = |list: &str| list.lines().filter(|line| !line.contains(" hook run ")).count();
    let two = count(&gits_of(&yard, &["land", "--unchecked", "b0", "b1"]));
    let list = gits_of(&yard, &["land", "--unchecked", "b2", "b3", "b4", "b5"]);
    let four = count(&list);
    assert_eq!((four - two, four), (2 * EACH_LANDS, 4 * EACH_LANDS + ALL_TOGETHER), "{list}");
}

#[test]
fn nothing_lands_unchecked_unless_a_person_allows_it() {
    // This overwrites the settings, which name the project on PostgreSQL.
    if crate::postgres::wanted() {
        return;
    }
    let yard = Yard::new();
    yard.branch("topic", "a", "1\n");
    let before = yard.git(&["rev-parse", "main"]);
    let refused = yard.0.run(&["land", "topic"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains("landing.check is not set"), "{refused:?}");
    std::fs::write(yard.0.path().join(".banksman/config.toml"), "[landing]\ncheck = \"true\"\n").unwrap();
    let refused = yard.0.run(&["land", "topic"]);
    assert_eq!(refused.code, 5, "{refused:?}");
    assert!(refused.stderr.contains("landing.check comes with the project and is not trusted"), "{refused:?}");
    let mut inside = yard.0.command(&["land", "topic", "--unchecked"]);
    assert_eq!(inside.env("BANKSMAN_RUN", "r-1").output().unwrap().status.code(), Some(5), "a run does not land unchecked");
    assert_eq!(yard.git(&["rev-parse", "main"]), before);
}

#[test]
fn an_untrusted_check_is_named_and_a_manually_set_one_is_trusted() {
    if crate::postgres::wanted() {
        return;
    }
    let yard = Yard::new();
    std::fs::write(yard.0.path().join(".banksman/config.toml"), "[landing]\ncheck = \"true\"\n").unwrap();
    let id = yard.task("Add", "echo work > work", &["--land"]);
    let ended = yard.0.run(&["run", "--until-idle"]);
    assert_eq!(ended.code, 7, "{ended:?}");
    let cause = "landing.check comes with the project and is not trusted (trust it with: banksman trust)";
    assert!(ended.stderr.contains(cause), "{ended:?}");
    let why = yard.0.ok(&["why", &id]);
    assert!(why.contains(&format!("it cannot be checked, because {cause}")), "{why}");
    assert_eq!(yard.0.data(&["status"])["next"], format!("nothing lands: {cause}"));
    yard.0.ok(&["config", "set", "landing.check", "test -e work"]);
    assert_eq!(yard.0.run(&["run", "--until-idle"]).code, 0);
    assert_eq!(yard.file("work"), "work\n");
}

#[test]
fn the_check_runs_on_exactly_the_commit_that_lands() {
    let yard = Yard::new();
    yard.branch("topic", "a", "1\n");
    yard.commit("m", "m\n");
    yard.check("git rev-parse HEAD && test -e a && test -e m && touch built.tmp");
    let landed = yard.land(&["topic"]);
    assert_eq!((landed["state"].as_str(), landed["unchecked"].as_bool()), (Some("landed"), Some(false)), "{landed}");
    let logs: Vec<_> = std::fs::read_dir(yard.0.path().join(".banksman/landing")).unwrap().flatten().collect();
    let log = std::fs::read_to_string(logs[0].path()).unwrap();
    assert!(logs.len() == 1 && log.contains(landed["commit"].as_str().unwrap()), "{log}");
}

#[test]
fn a_branch_that_fails_the_check_twice_is_returned_and_a_flaky_check_passes() {
    let yard = Yard::new();
    yard.branch("bad", "bad", "1\n");
    yard.branch("good", "good", "1\n");
    yard.check("test ! -e bad");
    let before = yard.git(&["rev-parse", "main"]);
    let refused = yard.0.run(&["land", "bad", "--json"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    let last = yard.last();
    assert_eq!((last["state"].as_str(), last["target"].as_str()), (Some("returned"), Some("main")), "{last}");
    assert!(std::fs::read_to_string(last["log"].as_str().unwrap()).unwrap().contains("failed with status 1"));
    assert_eq!(yard.git(&["rev-parse", "main"]), before, "nothing has moved");
    let flaky = format!("test -e '{0}' || {{ touch '{0}'; exit 1; }}", yard.0.path().join("state/once").display());
    yard.check(&flaky);
    let landed = yard.land(&["good"]);
    assert_eq!((landed["state"].as_str(), landed["flaky"].as_bool()), (Some("landed"), Some(true)), "{landed}");
}

#[test]
fn a_target_that_fails_the_check_pauses_the_queue_with_one_decision() {
    let yard = Yard::new();
    yard.branch("one", "one", "1\n");
    yard.branch("two", "two", "1\n");
    yard.commit("broken", "1\n");
    yard.check("test ! -e broken");
    for name in ["one", "two"] {
        let refused = yard.0.run(&["land", name]);
        assert_eq!(refused.code, 6, "{refused:?}");
    }
    let decisions = yard.0.data(&["decisions", "list"])["decisions"].as_array().unwrap().clone();
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    assert!(decisions[0]["question"].as_str().unwrap().starts_with("The check fails on main itself"), "{decisions:?}");
    let queue = yard.0.data(&["landing", "list"])["queues"][0].clone();
    assert_eq!((queue["entries"].as_array().unwrap().len(), queue["paused"].is_object()), (2, true), "{queue}");
    yard.git(&["rm", "-q", "broken"]);
    yard.git(&["commit", "-q", "-m", "repair"]);
    yard.0.ok(&["decisions", "resolve", decisions[0]["id"].as_str().unwrap(), "1"]);
    let landed = yard.land(&["two"]);
    assert_eq!(landed["state"], "landed", "{landed}");
    assert_eq!(yard.log(2), ["two", "one"], "the first one lands first");
}

#[test]
fn a_conflict_leaves_the_queue_and_names_the_files() {
    let yard = Yard::new();
    yard.branch("topic", "a", "topic\n");
    yard.branch("clean", "c", "c\n");
    yard.commit("a", "main\n");
    let refused = yard.0.run(&["land", "topic", "--unchecked"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("conflict in a"), "{refused:?}");
    assert_eq!(yard.land(&["clean", "--unchecked"])["state"], "landed");
    // The author merges the target and resolves the conflict; then the branch lands.
    yard.git(&["switch", "-q", "topic"]);
    std::process::Command::new("git").current_dir(yard.0.path()).args(["merge", "-q", "main"]).output().unwrap();
    yard.commit("a", "both\n");
    yard.git(&["switch", "-q", "main"]);
    assert_eq!(yard.land(&["topic", "--unchecked"])["state"], "landed");
    assert_eq!(yard.file("a"), "both\n");
}

#[test]
fn a_landing_waits_for_local_changes_and_others_pass() {
    let yard = Yard::new();
    yard.branch("first", "base", "first\n");
    yard.branch("second", "other", "second\n");
    yard.write("base", "mine\n");
    yard.write("unrelated", "mine\n");
    let waits = yard.0.run(&["land", "first", "--unchecked"]);
    assert_eq!(waits.code, 6, "{waits:?}");
    assert!(waits.stderr.contains("it has changes in files that would change: base"), "{waits:?}");
    assert_eq!(yard.last()["state"], "waiting");
    assert_eq!(yard.land(&["second", "--unchecked"])["state"], "landed", "it passes, and what is not in the way does not matter");
    assert_eq!((yard.file("base").as_str(), yard.file("unrelated").as_str()), ("mine\n", "mine\n"));
    yard.git(&["checkout", "-q", "--", "base"]);
    assert_eq!(yard.land(&["first", "--unchecked"])["state"], "landed", "asked again, it is tried at once");
    assert_eq!((yard.file("base").as_str(), yard.file("unrelated").as_str()), ("first\n", "mine\n"));
}

#[test]
fn a_new_runner_retries_landings_that_wait_for_a_checkout() {
    let yard = Yard::new();
    yard.check("true");
    yard.git(&["config", "core.excludesFile", yard.0.path().join("state/excludes").to_str().unwrap()]);
    yard.write("state/excludes", "/secret\n/state\n/config\n");
    yard.write("base", "mine\n");
    yard.write("secret", "mine\n");
    let edit = yard.task("Edit", "echo theirs > base", &[]);
    let add = yard.task("Add", "echo theirs > secret; git add -f secret", &[]);
    assert!(!yard.work());
    // Files that git ignores are named, too.
    let why = |id: &str| yard.0.ok(&["why", id]);
    assert!(why(&edit).contains("files that would change: base;"), "{}", why(&edit));
    assert!(why(&add).contains(": secret;"), "{}", why(&add));
    let next = yard.0.data(&["status"])["next"].as_str().unwrap().to_owned();
    assert!(next.starts_with("a checkout blocks 2 landings: banksman why t-"), "{next}");
    assert!(yard.0.ok(&["report"]).contains("left: 2 landing"), "{}", yard.0.ok(&["report"]));
    yard.git(&["checkout", "-q", "--", "base"]);
    std::fs::remove_file(yard.0.path().join("secret")).unwrap();
    assert!(yard.work(), "{}{}", why(&edit), why(&add));
    assert_eq!((yard.file("base").as_str(), yard.file("secret").as_str()), ("theirs\n", "theirs\n"));
    assert_eq!(yard.0.data(&["status"])["next"], "nothing to do: all tasks are done");
}

#[test]
fn a_paused_queue_lands_nothing_and_an_entry_can_be_removed() {
    let yard = Yard::new();
    yard.branch("topic", "a", "1\n");
    yard.0.ok(&["landing", "pause"]);
    let refused = yard.0.run(&["land", "topic", "--unchecked"]);
    assert_eq!(refused.code, 6, "{refused:?}");
    let id = yard.last()["id"].as_str().unwrap().to_owned();
    assert_eq!(yard.0.data(&["landing", "show", "topic"])["id"], *id, "it is known by its branch");
    assert_eq!(yard.0.data(&["status"])["next"], "the merge queue of main is paused: banksman landing resume main");
    yard.0.ok(&["landing", "remove", &id]);
    assert_eq!(yard.last()["state"], "removed");
    assert_eq!(yard.0.run(&["landing", "remove", &id]).code, 2);
    yard.0.ok(&["landing", "resume"]);
    assert_eq!(yard.land(&["topic", "--unchecked"])["state"], "landed");
    assert_eq!(yard.0.data(&["landing", "list"])["queues"].as_array().unwrap().len(), 0);
}

#[test]
fn a_runner_lands_the_entries_of_the_queue() {
    let yard = Yard::new();
    for name in ["one", "two", "three"] {
        yard.branch(name, name, "1\n");
    }
    yard.branch("bad", "bad", "1\n");
    yard.check("test ! -e bad");
    for name in ["one", "bad", "two", "three"] {
        yard.0.ok(&["land", name, "--no-wait"]);
    }
    assert_eq!(yard.0.data(&["landing", "list"])["queues"][0]["entries"].as_array().unwrap().len(), 4);
    yard.0.ok(&["run", "--until-idle"]);
    assert_eq!(yard.log(3), ["three", "two", "one"]);
    let states: Vec<Value> = yard.0.data(&["landing", "list", "--all"])["landings"].as_array().unwrap().clone();
    let states: Vec<&str> = states.iter().map(|entry| entry["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["landed", "landed", "returned", "landed"]);
    assert!(yard.is_clean());
}

#[test]
fn a_runner_killed_during_a_check_leaves_no_partial_landing() {
    let yard = Yard::new();
    yard.branch("topic", "a", "1\n");
    let (here, wait) = (yard.0.path().join("state/here"), yard.0.path().join("state/wait"));
    std::fs::create_dir_all(yard.0.path().join("state")).unwrap();
    std::fs::write(&wait, "").unwrap();
    yard.check(&format!("touch '{}'; while [ -e '{}' ]; do sleep 0.01; done", here.display(), wait.display()));
    let before = yard.git(&["rev-parse", "main"]);
    yard.0.ok(&["land", "topic", "--no-wait"]);
    let runner = yard.0.start(&["run"]);
    until("the check runs", || here.exists());
    runner.signal(Signal::KILL);
    runner.end();
    assert_eq!(yard.git(&["rev-parse", "main"]), before);
    assert_eq!(yard.last()["state"], "checking");
    let shown = yard.0.ok(&["landing", "show", yard.last()["id"].as_str().unwrap()]);
    assert!(shown.contains("for main (lock landing:main)"), "{shown}");
    std::fs::remove_file(&wait).unwrap();
    yard.0.ok(&["run", "--until-idle"]);
    assert_eq!((yard.last()["state"].as_str(), yard.log(1)), (Some("landed"), vec!["a".to_owned()]));
    assert!(yard.is_clean());
}

#[test]
fn the_json_of_an_entry_has_these_fields() {
    let yard = Yard::new();
    yard.branch("topic", "a", "1\n");
    let fields = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    let entry = "addedAt branch commit decision files flaky id log priority reason source state target task tip title unchecked";
    yard.0.ok(&["land", "topic", "--unchecked", "--no-wait"]);
    let list = yard.0.data(&["landing", "list"]);
    let mut queued: Vec<&str> = entry.split(' ').chain(["ahead"]).collect();
    queued.sort_unstable();
    assert_eq!(fields(&list["queues"][0]), "entries paused target");
    assert_eq!(fields(&list["queues"][0]["entries"][0]), queued.join(" "));
    let landed = yard.land(&["topic", "--unchecked"]);
    assert_eq!(fields(&landed), entry);
    assert_eq!(fields(&yard.0.data(&["landing", "show", landed["id"].as_str().unwrap()])), entry);
    assert_eq!(fields(&yard.0.data(&["landing", "pause"])), "paused target");
}

#[test]
fn failures_of_git_are_reported_with_a_remedy() {
    let yard = Yard::new();
    yard.branch("topic", "a", "1\n");
    // Git has no author for the commit.
    for key in ["user.name", "user.email"] {
        yard.git(&["config", "--unset", key]);
    }
    yard.git(&["config", "user.useConfigOnly", "true"]);
    let mut land = yard.0.command(&["land", "topic", "--unchecked"]);
    let said = land.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null").output().unwrap();
    let words = String::from_utf8(said.stderr).unwrap();
    assert_eq!(said.status.code(), Some(6), "{words}");
    assert!(words.contains("git config --global user.name NAME"), "{words}");
    yard.git(&["config", "user.name", "t"]);
    yard.git(&["config", "user.email", "t@example.invalid"]);
    assert_eq!(yard.land(&["topic", "--unchecked"])["state"], "landed");
    // On a detached HEAD there is no target; a named one works, also if it is not checked out.
    yard.git(&["branch", "release"]);
    yard.branch("more", "b", "1\n");
    yard.git(&["switch", "-q", "--detach"]);
    let refused = yard.0.run(&["land", "more", "--unchecked"]);
    assert!(refused.code == 2 && refused.stderr.contains("HEAD is detached"), "{refused:?}");
    assert_eq!(yard.land(&["more", "--unchecked", "--into", "release"])["state"], "landed");
    assert_eq!(yard.git(&["log", "-1", "--format=%s", "release"]), "b");
    let unknown = yard.0.run(&["land", "gone", "--unchecked", "--into", "release"]);
    assert_eq!(unknown.code, 4, "{unknown:?}");
}

#[test]
fn odd_file_names_land_and_hooks_do_not_stop_a_landing() {
    let yard = Yard::new();
    let odd = "new\nline \u{1f600} \\ \"";
    yard.branch("topic", odd, "1\n");
    let hooks = yard.0.path().join(".git/hooks");
    for name in ["pre-commit", "commit-msg", "pre-merge-commit", "post-checkout"] {
        write_program(&hooks.join(name), "#!/bin/sh\nexit 1\n");
    }
    yard.check("true");
    assert_eq!(yard.land(&["topic", "--title", "Odd"])["state"], "landed");
    assert_eq!((yard.file(odd).as_str(), yard.is_clean()), ("1\n", true));
}
