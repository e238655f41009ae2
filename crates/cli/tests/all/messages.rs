//! Messages about small mistakes: the right noun, the right number, a hint that works.

use std::fs::File;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::loops::add_loop;
use crate::pipelines::{begun, way};
use crate::runbooks;
use crate::world::{Said, World, until};

#[test]
fn an_unknown_lock_is_reported_as_not_found() {
    let world = World::new();
    world.ok(&["locks", "define", "deploy", "--ttl", "1h"]);
    for args in [
        &["locks", "release", "TYPO", "--force"][..],
        &["locks", "release", "TYPO", "--holder", "a", "--epoch", "1"],
        &["locks", "heartbeat", "TYPO", "--holder", "a", "--epoch", "1"],
        &["locks", "show", "TYPO"],
    ] {
        world.assert_refused(args, 4, "LOCK_NOT_FOUND");
    }
    assert_eq!(world.error(&["locks", "release", "deplyo", "--force"]).1["hint"], "did you mean deploy?");
    assert_eq!(world.data(&["locks", "release", "deploy", "--force"])["outcome"], "already_free", "this one is there");
    assert_eq!(world.ok(&["locks", "list", "--held"]), "no lock is held\n");
}

#[test]
fn the_locks_of_tasks_and_sections_are_found_by_name() {
    let world = World::new();
    let section = world.data(&["sections", "add", "db", "--exclusive"])["id"].as_str().unwrap().to_owned();
    let task = world.add(&["Fix the login"]);
    for (name, lock) in [("section:db", format!("section:{section}")), ("task:Fix the login", format!("task:{task}"))] {
        let shown = world.data(&["locks", "show", name]);
        assert_eq!((&shown["name"], &shown["state"]), (&json!(lock), &json!("free")));
    }
    assert_eq!(world.error(&["locks", "show", "section:web"]).1["code"], "SECTION_NOT_FOUND");
    assert_eq!(world.error(&["locks", "show", "task:Nothing"]).1["code"], "TASK_NOT_FOUND");
}

#[test]
fn a_wait_that_times_out_names_the_holder_and_the_expiry() {
    let world = World::new();
    let epoch = world.data(&["locks", "acquire", "deploy", "--holder", "ada", "--ttl", "1h"])["epoch"].to_string();
    let error = world.assert_refused(&["locks", "acquire", "deploy", "--holder", "bob", "--timeout", "30ms"], 6, "WAIT_TIMEOUT");
    let details = &error["details"];
    assert_eq!((&details["lockedBy"], &details["taskId"]), (&"ada".into(), &Value::Null));
    let expires = details["expiresAt"].clone();
    assert!(expires.is_string(), "{details}");
    // The two clocks are read one after the other; the result must not depend on the time between the reads.
    for _ in 0..20 {
        assert_eq!(world.data(&["locks", "show", "deploy"])["expiresAt"], expires);
    }
    let busy = world.error(&["locks", "acquire", "deploy", "--holder", "bob", "--no-wait"]).1;
    assert_eq!(busy["details"]["expiresAt"], expires);
    world.ok(&["locks", "heartbeat", "deploy", "--holder", "ada", "--epoch", &epoch]);
    assert!(world.data(&["locks", "show", "deploy"])["expiresAt"].as_str() > expires.as_str());
}

#[test]
fn expired_holders_do_not_count_as_taking_slots() {
    let world = World::new();
    world.ok(&["semaphores", "define", "gpu", "--capacity", "4"]);
    world.ok(&["semaphores", "acquire", "gpu", "--weight", "1", "--holder", "here", "--ttl", "1h"]);
    world.ok(&["semaphores", "acquire", "gpu", "--weight", "2", "--holder", "gone", "--ttl", "1ms"]);
    let expired = || world.data(&["semaphores", "list"])["semaphores"][0]["expired"] == 1;
    until("the first has expired", expired);
    let listed = &world.data(&["semaphores", "list"])["semaphores"][0];
    assert_eq!((&listed["available"], &listed["holders"]), (&3.into(), &1.into()), "{listed}");
    assert!(world.ok(&["semaphores", "list"]).contains("1 (1 expired)"));
    assert!(world.ok(&["semaphores", "show", "gpu"]).starts_with("gpu has 3 of 4 slots free"));
}

#[test]
fn hints_about_settings_work() {
    let world = World::new();
    let file = world.path().join(".banksman/config.toml");
    let before = std::fs::read_to_string(&file).unwrap();
    let hint = |line: &str| {
        std::fs::write(&file, format!("{before}{line}\n")).unwrap();
        let (code, error) = world.error(&["locks", "list"]);
        assert_eq!(code, 3, "{error}");
        error["hint"].as_str().unwrap().to_owned()
    };
    // A hint that contains a `config set` command works as printed.
    let named = hint("[locking]\nwait_timeout = \"soon\"");
    let command = named.split_once("banksman ").unwrap().1;
    world.ok(&command.split(' ').collect::<Vec<_>>());
    world.ok(&["locks", "list"]);
    for line in ["[task]\nhearbeat_timeout = \"5s\"", "nonsense", "[locking]\nwait = \"5s\""] {
        let hint = hint(line);
        assert!(!hint.contains("config set") && !hint.contains("config list"), "{line}: {hint} would be refused");
    }
    std::fs::write(&file, &before).unwrap();
    let (_, error) = world.error(&["config", "set", "task.hearbeat_timeout", "5s"]);
    assert!(error["message"].as_str().unwrap().ends_with("did you mean task.silence_timeout?"), "{error}");
}

#[test]
fn a_usage_error_names_its_command() {
    let world = World::new();
    let command = |args: &[&str]| {
        let said = world.run(args);
        assert_eq!(said.code, 2, "{said:?}");
        let answer: Value = serde_json::from_str(&said.stdout).unwrap();
        answer["command"].as_str().unwrap().to_owned()
    };
    assert_eq!(command(&["locks", "acquire", "--json"]), "locks acquire");
    assert_eq!(command(&["--json", "-C", "locks", "task", "add", "--nonsense"]), "tasks add");
    assert_eq!(command(&["queues", "bogus", "--json"]), "queues");
    assert_eq!(command(&["--json", "bogus"]), "banksman");
}

#[test]
fn errors_name_tasks_by_their_titles() {
    let world = World::new();
    let (tests, notes) = (world.add(&["Run the tests"]), world.add(&["Write notes"]));
    let message = |args: &[&str]| world.error(args).1["message"].as_str().unwrap().to_owned();
    world.ok(&["tasks", "update", "Write notes", "--depends-on", "Run the tests"]);
    let refused = message(&["tasks", "delete", "Run the tests"]);
    assert_eq!(refused, format!("other tasks depend on Run the tests ({tests}): Write notes ({notes})"));
    let (code, error) = world.error(&["tasks", "update", "Write notes", "--depends-on", "Write notes"]);
    assert_eq!((code, &error["details"]["cycle"]), (2, &json!([notes, notes])), "a circle of one");
}

#[test]
fn the_last_attempt_is_counted_and_its_verdict_has_one_name() {
    let world = World::new();
    let id = add_loop(&world, "stubborn", "exit 3", &["--max-attempts", "3", "--restart-delay", "0s"]);
    assert_eq!(world.run_all(), 7);
    let page = world.ok(&["tasks", "show", &id]);
    assert!(page.contains("3 of at most 3 attempts made"), "{page}");
    let runs = world.task(&id)["runs"].clone();
    assert_eq!((&runs[0]["verdict"], &runs[2]["verdict"]), (&"failed".into(), &Value::Null), "as in last-result.json");
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let world = World::new();
    let full = |args: &[&str]| -> Said {
        let full = File::options().write(true).open("/dev/full").unwrap();
        world.command(args).stdout(Stdio::from(full)).output().unwrap().into()
    };
    world.ok(&["queues", "define", "triage"]);
    world.ok(&["queues", "push", "triage", "1"]);
    for args in [&["events"][..], &["events", "--json"], &["queues", "list"]] {
        let said = full(args);
        assert!(said.code == 1 && said.stderr.contains("No space left"), "{args:?}: {said:?}");
    }
    // An item whose grant could not be printed is available again at once.
    let said = full(&["queues", "take", "triage", "--holder", "deaf"]);
    assert!(said.code == 1 && said.stderr.contains("was returned to the queue"), "{said:?}");
    assert_eq!(world.data(&["queues", "take", "triage", "--holder", "me"])["item"]["attempts"], 2);
}

#[test]
fn unknown_event_kinds_are_refused() {
    let world = World::new();
    let (code, error) = world.error(&["events", "--kind", "task:completed"]);
    assert_eq!((code, &error["hint"]), (2, &"did you mean task:complete?".into()), "{error}");
    for kind in ["task:complete", "task:", "task:*", "deploy:done"] {
        assert_eq!(world.data(&["events", "--kind", kind])["events"], json!([]), "{kind}");
    }
    runbooks::write(&world, "book", "[on.\"task:completed\"]\nnotify = \"x\"\n");
    let (code, error) = world.error(&["runbooks", "check"]);
    assert_eq!((code, &error["details"]["problems"][0]["hint"]), (3, &"did you mean task:complete?".into()), "{error}");
}

#[test]
fn completing_an_item_twice_is_no_error_for_its_holder() {
    let world = World::new();
    world.ok(&["queues", "define", "triage"]);
    world.ok(&["queues", "push", "triage", "1"]);
    let taken = world.data(&["queues", "take", "triage", "--holder", "me"]);
    let (item, epoch) = (taken["item"]["id"].as_str().unwrap(), taken["item"]["epoch"].to_string());
    let complete = |holder| world.run(&["queues", "complete", "triage", item, "--holder", holder, "--epoch", &epoch, "--json"]);
    let outcome = |said: Said| serde_json::from_str::<Value>(&said.stdout).unwrap()["data"]["outcome"].clone();
    assert_eq!(outcome(complete("me")), "completed");
    assert_eq!(outcome(complete("me")), "already_completed");
    assert_eq!(complete("you").code, 4);
    let kinds = world.events().into_iter().filter(|event| event.kind == "queue:complete");
    assert_eq!(kinds.count(), 1);
}

#[test]
fn dead_items_are_reported_with_all_their_queues() {
    let world = World::new();
    let book = "[queue.a]\nmax_attempts = 1\n[queue.b]\nmax_attempts = 1\n\
                [worker.wa]\nqueue = \"a\"\nrun = \"false\"\n[worker.wb]\nqueue = \"b\"\nrun = \"false\"\n";
    runbooks::write(&world, "book", book);
    world.ok(&["runbooks", "apply"]);
    for queue in ["a", "b", "b"] {
        world.ok(&["queues", "push", queue, "1"]);
    }
    let said = world.run(&["run", "--until-idle"]);
    assert_eq!(said.code, 7, "{said:?}");
    for text in [said.stdout, world.ok(&["status"])] {
        assert!(text.contains("3 items are dead in 2 queues: banksman queues requeue a q-"), "{text}");
        assert!(text.contains("; banksman queues requeue b --all"), "{text}");
    }
}

#[test]
fn a_phase_reports_its_error_and_not_the_hints_after_it() {
    let script = "echo 'error: failed to push some refs' >&2; echo 'hint: Updates were rejected' >&2; echo 'hint: see git push --help' >&2; exit 1";
    let (world, id) = begun(&way(&[("push", &format!("run = \"{script}\""))]));
    for number in 1..=7 {
        world.ok(&["pipelines", "checkpoint", &format!("step {number}"), "--pipeline", &id]);
    }
    world.run_all();
    assert_eq!(world.pipeline(&id)["error"], "exit status 1: error: failed to push some refs");
    let page = world.ok(&["pipelines", "show", &id]);
    assert!(page.contains("CHECKPOINTS (the last 5 of 7; --json has all)"), "nothing is left out without a word: {page}");
}

#[test]
fn a_person_is_named_by_the_user_name_of_the_system() {
    let world = World::new();
    world.add(&["Review"]);
    let mut command = world.command(&["tasks", "update", "Review", "--status", "skipped", "--json"]);
    let said: Said = command.env_remove("USER").env_remove("LOGNAME").output().unwrap().into();
    assert_eq!(said.code, 0, "{said:?}");
    let id = std::process::Command::new("id").arg("-un").output().unwrap();
    let by = world.events().pop().unwrap().by.unwrap();
    assert_eq!(&*by.user, String::from_utf8(id.stdout).unwrap().trim());
}

#[test]
fn a_task_leaves_no_empty_folder() {
    let world = World::new();
    let (empty, full) = (
        world.add(&["empty", "--run", "test -d \"$BANKSMAN_TASK_DIR\""]),
        world.add(&["full", "--run", "touch \"$BANKSMAN_TASK_DIR/x\""]),
    );
    assert_eq!(world.run_all(), 0);
    let folder = |id: &str| world.path().join(".banksman/tasks").join(id);
    assert!(!folder(&empty).exists());
    assert!(folder(&full).join("x").exists());
}
