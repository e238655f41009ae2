//! Order of landings: one author at a time resolves conflicts in a file, and a task lands after its children.

use std::fs;

use crate::landing::Yard;
use crate::world::{BANKSMAN, until};

/// Appends a line to a shared file. After a conflict it keeps all lines, as soon as the file `go` exists.
const SHARED: &str = "if grep -qs '^<<<<<<<' shared; then \
    while [ ! -e $BANKSMAN_PROJECT/.banksman/go ]; do sleep 0.01; done; \
    grep -vE '^(<<<<<<<|=======|>>>>>>>)' shared > s; mv s shared; else echo $BANKSMAN_TITLE >> shared; fi";

/// Tasks that all conflict, with their work in the merge queue.
fn conflicting(count: usize) -> (Yard, Vec<String>) {
    let yard = Yard::new();
    yard.check("true");
    yard.0.ok(&["config", "set", "--user", "landing.retries", "2"]);
    yard.0.ok(&["landing", "pause", "main"]);
    let ids = (0..count).map(|n| yard.task(&format!("T{n}"), SHARED, &[])).collect();
    assert!(!yard.work());
    yard.0.ok(&["landing", "resume", "main"]);
    (yard, ids)
}

fn state(yard: &Yard, task: &str) -> String {
    yard.show(task)["landing"]["state"].as_str().unwrap_or_default().to_owned()
}

fn count(yard: &Yard, kind: &str) -> usize {
    let events = yard.0.data(&["events", "--kind", kind, "--limit", "1000"]);
    events["events"].as_array().unwrap().len()
}

#[test]
fn one_author_at_a_time_resolves_a_file() {
    let (yard, ids) = conflicting(6);
    let mut runner = yard.0.start(&["run", "--until-idle"]);
    let waiting = || ids.iter().filter(|id| state(&yard, id) == "waiting").collect::<Vec<_>>();
    until("the others wait", || waiting().len() == ids.len() - 2);
    let why = yard.0.ok(&["why", waiting()[0]]);
    let resolver = ids.iter().find(|id| state(&yard, id) == "returned").unwrap();
    assert!(why.contains("it conflicts in shared") && why.contains(&format!("until task {resolver}")), "{why}");
    assert_eq!(yard.0.data(&["landing", "list"])["queues"][0]["entries"][0]["waitsFor"], **resolver);
    // A task without a conflict passes the waiting ones.
    let clean = yard.task("Clean", "echo 1 > clean", &[]);
    until("it has landed", || yard.status(&clean) == "completed");
    fs::write(yard.0.path().join(".banksman/go"), "").unwrap();
    assert!(runner.0.wait().unwrap().success());
    assert_eq!(yard.file("shared").lines().count(), ids.len());
    assert_eq!(count(&yard, "task:sent_back"), ids.len() - 1, "each but the first came back once");
}

#[test]
fn a_cancelled_author_does_not_block_the_others() {
    let (yard, ids) = conflicting(3);
    let mut runner = yard.0.start(&["run", "--until-idle"]);
    until("one waits", || ids.iter().any(|id| state(&yard, id) == "waiting"));
    let resolver = ids.iter().find(|id| state(&yard, id) == "returned").unwrap();
    yard.0.ok(&["tasks", "cancel", resolver]);
    fs::write(yard.0.path().join(".banksman/go"), "").unwrap();
    assert_eq!(runner.0.wait().unwrap().code(), Some(7), "not everything is completed");
    assert_eq!(yard.file("shared").lines().count(), 2);
}

#[test]
fn a_task_lands_after_its_children() {
    let yard = Yard::new();
    yard.check("test -e own && test -e shared && test -e of_parent");
    // The children continue until the parent is in the merge queue; the parent's run does not wait for them.
    let landing = format!("while ! {BANKSMAN} tasks show Parent | grep -q 'is landing'; do sleep 0.01; done");
    let script = format!(
        "echo p > of_parent; {BANKSMAN} tasks add Own --child --worktree --run \"{landing}; echo c > own\"; \
         {BANKSMAN} tasks add Shares --child --run \"{landing}; echo c > shared\""
    );
    let id = yard.task("Parent", &script, &[]);
    assert!(yard.work(), "{}", yard.account(&id));
    assert_eq!((yard.log(1), yard.is_clean()), (vec!["Parent".to_owned()], true));
    assert_eq!(yard.git(&["ls-tree", "--name-only", "main", "own", "shared", "of_parent"]), "of_parent\nown\nshared");
    assert_eq!(yard.git(&["branch", "--list", "banksman/*"]), "");
    let saved = yard.git(&["log", "--format=%s", &format!("--glob=refs/banksman/saved/{id}/*")]);
    assert!(saved.lines().any(|subject| subject == "Own"), "the commits of its branch are saved, not only their record: {saved}");
}
