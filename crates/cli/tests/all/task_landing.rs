//! Tasks in worktrees land through the merge queue, with real git and real runners.

use std::fs;

use serde_json::Value;

use crate::agents::{INIT, RESULT, trusted};
use crate::landing::Yard;
use crate::world::BANKSMAN;

impl Yard {
    /// Adds a landing task in a worktree, and returns its id.
    pub(crate) fn task(&self, title: &str, run: &str, more: &[&str]) -> String {
        let args = [&["tasks", "add", title, "--worktree", "--run", run], more].concat();
        self.0.data(&args)["id"].as_str().unwrap().to_owned()
    }

    /// Runs until nothing is left to do. Returns whether everything is completed.
    pub(crate) fn work(&self) -> bool {
        let said = self.0.run(&["run", "--until-idle"]);
        assert!([0, 7].contains(&said.code), "{said:?}");
        said.code == 0
    }

    /// `why`, events and logs, for the message of a failed test.
    pub(crate) fn account(&self, task: &str) -> String {
        [&["why", task][..], &["events", "--limit", "200"], &["logs", "--all"]].map(|args| self.0.ok(args)).join("\n")
    }

    pub(crate) fn show(&self, task: &str) -> Value {
        self.0.data(&["tasks", "show", task])
    }

    pub(crate) fn status(&self, task: &str) -> String {
        self.show(task)["status"].as_str().unwrap().to_owned()
    }

    fn why(&self, task: &str) -> String {
        self.0.ok(&["why", task])
    }
}

const COMMIT: &str = "git add -A && git commit -q -m work";

#[test]
fn a_task_is_completed_when_its_work_has_landed() {
    let yard = Yard::new();
    yard.check("test -e login");
    let id = yard.task("Add login", &format!("echo x > login; {COMMIT}"), &[]);
    let after = yard.task("Use login", "cat login > used; git add -A; git commit -qm used", &["--depends-on", &id]);
    assert!(yard.work());
    assert_eq!(yard.log(2), ["Use login", "Add login"], "a dependent begins with what it depends on");
    assert_eq!((yard.file("used").as_str(), yard.is_clean()), ("x\n", true));
    let text = yard.git(&["log", "-1", "--format=%B%an", "main~1"]);
    assert_eq!(text, format!("Add login\n\n* work\n\nBanksman-Task: {id}\nt"), "{text}");
    let page = yard.show(&id);
    assert_eq!((page["status"].as_str(), page["landing"]["state"].as_str()), (Some("completed"), Some("landed")), "{page}");
    assert_eq!(yard.0.data(&["landing", "show", "Add login"])["id"], page["landing"]["id"], "an entry is known by its task");
    let said = yard.0.ok(&["tasks", "show", &id]);
    assert!(said.contains(&format!("removed; its content is saved: banksman recover list {id}")), "{said}");
    // The worktree and the branch are gone, and their work is saved.
    assert_eq!(yard.0.data(&["workspaces", "list"])["workspaces"], serde_json::json!([]));
    assert_eq!(yard.git(&["branch", "--list", "banksman/*"]), "");
    assert!(yard.0.ok(&["recover", "list", &after]).contains("before it was removed"));
}

#[test]
fn landing_leftovers_commits_returns_or_asks() {
    let yard = Yard::new();
    yard.check("true");
    yard.task("Leave files", "echo new > left; echo more >> base; mkdir inner; git init -q inner", &[]);
    assert!(yard.work());
    assert_eq!(yard.git(&["show", "--stat=80", "--format=%s", "main"]).lines().next(), Some("Leave files"));
    assert_eq!(yard.file("left"), "new\n");
    assert!(!yard.git(&["ls-tree", "-r", "--name-only", "main"]).contains("inner"), "a repository inside is not committed");
    yard.0.ok(&["config", "set", "landing.leftovers", "return"]);
    let script =
        "cat $BANKSMAN_LAST_RESULT; if [ $BANKSMAN_ATTEMPT = 0 ]; then echo 1 > b; else git add -A; git commit -qm b; fi";
    let id = yard.task("Come back", script, &[]);
    assert!(yard.work());
    let log = yard.0.ok(&["tasks", "logs", &id]);
    assert!(log.contains("\"verdict\": \"unfinished\"") && log.contains("not everything was committed: b"), "{log}");
    yard.0.ok(&["config", "set", "landing.leftovers", "ask"]);
    let id = yard.task("Ask", "echo 1 > c", &[]);
    assert!(!yard.work());
    assert_eq!(yard.status(&id), "review");
    assert!(yard.why(&id).contains("not everything was committed: c"), "{}", yard.why(&id));
    yard.0.ok(&["config", "set", "landing.leftovers", "commit"]);
    assert_eq!(yard.land(&[&id])["state"], "landed");
    assert_eq!((yard.status(&id).as_str(), yard.file("c").as_str()), ("completed", "1\n"));
}

#[test]
fn a_task_without_a_change_gets_one_more_attempt_then_a_review() {
    let yard = Yard::new();
    yard.check("true");
    let id = yard.task("Do nothing", "cat $BANKSMAN_LAST_RESULT 2> /dev/null; true", &[]);
    assert!(!yard.work());
    assert_eq!(yard.status(&id), "review");
    assert_eq!(yard.show(&id)["runs"].as_array().unwrap().len(), 2);
    assert!(yard.0.ok(&["tasks", "logs", &id]).contains("\"verdict\": \"no_change\""));
    let refused = yard.0.run(&["tasks", "done", &id]);
    assert!(refused.code == 2 && refused.stderr.contains("--no-change"), "{refused:?}");
    yard.0.ok(&["tasks", "done", &id, "--no-change"]);
    assert_eq!(yard.status(&id), "completed");
    let said = yard.task("Nothing to do", &format!("{BANKSMAN} tasks done --no-change"), &[]);
    assert!(yard.work());
    assert_eq!((yard.status(&said).as_str(), yard.show(&said)["landing"].clone()), ("completed", Value::Null));
}

#[test]
fn a_conflict_is_returned_to_its_author_in_the_worktree() {
    let yard = Yard::new();
    yard.check("true");
    // The second attempt gets the conflict, and resolves it without a commit.
    let script = "if [ $BANKSMAN_ATTEMPT = 0 ]; then echo mine > a; git add -A; git commit -qm mine; \
                  touch $BANKSMAN_PROJECT/.banksman/ready; while [ ! -e $BANKSMAN_PROJECT/.banksman/go ]; do sleep 0.01; done; \
                  else git status --porcelain; cat $BANKSMAN_LAST_RESULT; echo both > a; fi";
    let id = yard.task("Mine", script, &[]);
    let mut runner = yard.0.start(&["run", "--until-idle"]);
    crate::world::until("it has begun", || yard.0.path().join(".banksman/ready").exists());
    yard.commit("a", "theirs\n");
    fs::write(yard.0.path().join(".banksman/go"), "").unwrap();
    assert!(runner.0.wait().unwrap().success());
    let log = yard.0.ok(&["tasks", "logs", &id]);
    assert!(log.contains("AA a") && log.contains("\"reason\": \"conflict\"") && log.contains("\"files\": [\n"), "{log}");
    assert_eq!((yard.file("a").as_str(), yard.log(1)), ("both\n", vec!["Mine".to_owned()]));
}

/// Runs an agent whose work conflicts with a commit made meanwhile. Returns the arguments and the prompt of its second start.
fn after_a_conflict(on_conflict: &str) -> (String, String) {
    let yard = Yard::new();
    yard.check("true");
    yard.0.ok(&["config", "set", "landing.on_conflict", on_conflict]);
    let work = "if [ $BANKSMAN_ATTEMPT = 0 ]; then echo mine > a; git add -A; git commit -qm mine; \
                touch $BANKSMAN_PROJECT/.banksman/ready; while [ ! -e $BANKSMAN_PROJECT/.banksman/go ]; do sleep 0.01; done; \
                else echo both > a; fi";
    trusted(&yard.0, "mine", &format!("{INIT}; {work}; {RESULT}"));
    yard.0.ok(&["tasks", "add", "Mine", "--agent", "mine", "--prompt", "write a"]);
    let mut runner = yard.0.start(&["run", "--until-idle"]);
    crate::world::until("it has begun", || yard.0.path().join(".banksman/ready").exists());
    yard.commit("a", "theirs\n");
    fs::write(yard.0.path().join(".banksman/go"), "").unwrap();
    assert!(runner.0.wait().unwrap().success());
    assert_eq!(yard.file("a"), "both\n");
    let read = |suffix: &str| fs::read_to_string(yard.0.path().join(format!("mine.sh.{suffix}"))).unwrap();
    let args = read("args").lines().nth(1).unwrap().to_owned();
    (args, read("prompt"))
}

#[test]
fn the_author_of_a_conflict_resumes_its_session() {
    let (args, prompt) = after_a_conflict("author");
    assert!(args.contains("--resume s-1"), "{args}");
    assert!(
        prompt.starts_with("Go on with your task: Mine\n\nThe work did not land: conflict in a. main has changed"),
        "{prompt}"
    );
    assert!(!prompt.contains("interrupted") && !prompt.contains("write a"), "{prompt}");
}

#[test]
fn a_conflict_can_go_to_a_fresh_agent() {
    let (args, prompt) = after_a_conflict("agent");
    assert!(args.contains("--session-id") && !args.contains("--resume"), "{args}");
    assert!(prompt.starts_with("Mine\n\nwrite a\n\nThe work did not land: conflict in a. main has changed"), "{prompt}");
    assert!(prompt.contains("How to finish"), "{prompt}");
}

#[test]
fn an_agent_gets_the_output_of_the_failed_check() {
    let yard = Yard::new();
    yard.check("echo no bad files; test ! -e bad");
    let work = "if [ $BANKSMAN_ATTEMPT = 0 ]; then touch bad good; git add -A; git commit -qm 1; else git rm -q bad; fi";
    trusted(&yard.0, "mine", &format!("{INIT}; {work}; {RESULT}"));
    yard.0.ok(&["tasks", "add", "Mine", "--agent", "mine", "--prompt", "write a"]);
    assert!(yard.work());
    let prompt = fs::read_to_string(yard.0.path().join("mine.sh.prompt")).unwrap();
    assert!(prompt.contains("The work did not land: the check fails on "), "{prompt}");
    assert!(prompt.contains("no bad files\n\nbanksman: failed with status 1\n```"), "{prompt}");
}

#[test]
fn a_failed_check_returns_the_task_at_the_failed_commit() {
    let yard = Yard::new();
    yard.check("echo checking; test ! -e bad");
    let script = "git log --format=%s -1; cat $BANKSMAN_LAST_RESULT 2> /dev/null; \
                  if [ $BANKSMAN_ATTEMPT = 0 ]; then touch bad good; else git rm -q bad; fi";
    let id = yard.task("Repair", script, &[]);
    assert!(yard.work());
    let log = yard.0.ok(&["tasks", "logs", &id]);
    assert!(log.contains("Repair\n") && log.contains("\"verdict\": \"check_failed\""), "{log}");
    assert!(log.contains("checking") && log.contains("put the worktree onto"), "{log}");
    assert_eq!(yard.git(&["ls-tree", "--name-only", "main", "bad", "good"]), "good");
    // A task that never passes the check needs a person.
    let id = yard.task("Never", "touch bad$BANKSMAN_ATTEMPT bad", &[]);
    assert!(!yard.work());
    assert_eq!((yard.status(&id).as_str(), yard.show(&id)["runs"].as_array().unwrap().len()), ("landing", 3));
    let why = yard.why(&id);
    assert!(why.contains("banksman decisions resolve"), "{why}");
    let decision = yard.0.data(&["why", &id])["decision"].as_str().unwrap().to_owned();
    yard.0.ok(&["decisions", "resolve", &decision, "3"]);
    assert_eq!(yard.status(&id), "review");
}

#[test]
fn a_landing_without_a_check_waits_for_a_person() {
    let yard = Yard::new();
    let id = yard.task("Unchecked", "echo 1 > a", &["--land"]);
    assert!(!yard.work());
    assert_eq!(yard.status(&id), "review");
    assert!(yard.why(&id).contains("landing.check is not set"));
    assert_eq!(yard.0.run(&["land", &id]).code, 3, "nothing lands unchecked by itself");
    assert_eq!(yard.land(&[&id, "--unchecked"])["state"], "landed");
    assert_eq!(yard.status(&id), "completed");
    // Without --land and without a check, the work stays on its branch.
    let plain = yard.task("Plain", "echo 1 > b", &[]);
    assert!(yard.work());
    assert_eq!(yard.status(&plain), "completed");
    assert_eq!(yard.land(&[&plain, "--unchecked"])["state"], "landed", "and a person may land it later");
    assert_eq!(yard.file("b"), "1\n");
}

#[test]
fn a_child_lands_in_its_parent_and_both_land_as_one() {
    let yard = Yard::new();
    yard.check("test -e of_child && test -e of_parent");
    let script = format!(
        "{BANKSMAN} tasks add Child --child --worktree --run 'echo c > of_child'; {BANKSMAN} tasks wait Child; \
         cat of_child; echo p > of_parent"
    );
    yard.task("Parent", &script, &[]);
    assert!(yard.work());
    assert_eq!(yard.log(1), ["Parent"]);
    assert_eq!((yard.file("of_child").as_str(), yard.file("of_parent").as_str()), ("c\n", "p\n"));
    assert_eq!(yard.git(&["branch", "--list", "banksman/*"]), "");
}

#[test]
fn a_landing_task_holds_no_lock_and_can_be_cancelled_or_removed() {
    let yard = Yard::new();
    yard.check("true");
    yard.0.ok(&["landing", "pause", "main"]);
    let one = yard.task("One", "echo 1 > a", &["--lock", "deploy"]);
    let two = yard.task("Two", "echo 2 > b", &[]);
    let after = yard.task("After", "true", &["--depends-on", &one]);
    assert!(!yard.work());
    assert_eq!((yard.status(&one), yard.status(&after)), ("landing".into(), "blocked".into()));
    assert!(yard.why(&one).contains("paused"), "{}", yard.why(&one));
    assert!(yard.why(&after).contains("landed"), "{}", yard.why(&after));
    assert!(yard.0.ok(&["status"]).contains("2 landing"), "{}", yard.0.ok(&["status"]));
    assert_eq!(yard.0.run(&["locks", "acquire", "deploy", "--holder", "me", "--no-wait"]).code, 0);
    let entry = yard.show(&two)["landing"]["id"].as_str().unwrap().to_owned();
    yard.0.ok(&["landing", "remove", &entry]);
    assert_eq!(yard.status(&two), "review");
    yard.0.ok(&["tasks", "cancel", &one]);
    assert_eq!(yard.status(&one), "cancelled");
    assert_eq!(yard.0.data(&["landing", "list"])["queues"][0]["entries"], serde_json::json!([]));
}

#[test]
fn a_copied_file_does_not_land() {
    let yard = Yard::new();
    yard.check("true");
    yard.write(".gitignore", ".env\n");
    yard.git(&["add", ".gitignore"]);
    yard.git(&["commit", "-qm", "ignore"]);
    yard.write(".env", "secret\n");
    yard.0.ok(&["config", "set", "workspace.copy", ".env"]);
    let script = "cat .env; if [ $BANKSMAN_ATTEMPT = 0 ]; then git add -f .env; else git rm -q --cached .env; fi; echo 1 > a";
    let id = yard.task("Leak", script, &[]);
    assert!(yard.work());
    assert!(yard.0.ok(&["tasks", "logs", &id]).contains("secret"));
    assert_eq!(yard.git(&["ls-tree", "-r", "--name-only", "main", ".env", "a"]), "a");
    assert_eq!(yard.show(&id)["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn the_worktree_of_checks_gets_copies_and_runs_the_setup() {
    let yard = Yard::new();
    yard.write(".gitignore", ".env\nready\n");
    yard.git(&["add", ".gitignore"]);
    yard.git(&["commit", "-qm", "ignore"]);
    yard.write(".env", "one\n");
    yard.0.ok(&["config", "set", "--user", "workspace.copy", ".env"]);
    yard.0.ok(&["config", "set", "--user", "workspace.setup", "if [ -e broken ]; then exit 3; fi; echo made >> ready"]);
    yard.0.ok(&["config", "set", "--user", "workspace.setup_inputs", "input"]);
    let seen = yard.0.path().join("seen");
    yard.check(&format!("cat .env ready >> {}", seen.display()));
    yard.task("First", "echo 1 > first", &[]);
    assert!(yard.work());
    yard.write(".env", "two\n");
    yard.task("Second", "echo 1 > second", &[]);
    assert!(yard.work());
    yard.task("Third", "echo 1 > input", &[]);
    assert!(yard.work());
    assert_eq!(
        yard.file("seen"),
        "one\nmade\ntwo\nmade\ntwo\nmade\nmade\n",
        "copies are refreshed, the setup runs for new inputs"
    );

    // A commit whose setup fails does not pass, and the log names the reason.
    let id = yard.task("Broken", "echo 1 > broken; echo 2 > input", &[]);
    yard.0.ok(&["config", "set", "--user", "landing.retries", "0"]);
    assert!(!yard.work());
    assert_eq!(yard.git(&["ls-tree", "-r", "--name-only", "main", "broken"]), "");
    let log = yard.last()["log"].as_str().map(|path| fs::read_to_string(path).unwrap());
    assert!(log.as_ref().is_some_and(|log| log.contains("workspace.setup failed")), "{log:?} {}", yard.why(&id));
}

/// Removing it would take the work out of the queue, and the task would be done again.
#[test]
fn the_worktree_of_a_landing_task_is_not_removed() {
    let yard = Yard::new();
    yard.check("true");
    yard.0.ok(&["landing", "pause", "main"]);
    let id = yard.task("Work", "echo x > new", &[]);
    yard.work();
    assert_eq!(yard.status(&id), "landing");
    for (args, code) in [(&["workspaces", "remove", &id][..], 2), (&["tasks", "retry", "--fresh", &id], 6)] {
        let said = yard.0.run(args);
        assert!(said.code == code && said.stderr.contains("is landing"), "{said:?}");
    }
    yard.0.ok(&["landing", "resume", "main"]);
    yard.work();
    assert_eq!((yard.status(&id), yard.file("new")), ("completed".into(), "x\n".into()));
}
