//! Queues from the command line: the states of items, wake-ups without polling, limits, many processes, and kills.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::world::{Running, World, until};

/// Takes an item as `holder`. Returns its id and epoch as command line arguments.
fn take(world: &World, queue: &str, holder: &str) -> (String, String) {
    let taken = world.data(&["queues", "take", queue, "--holder", holder]);
    (taken["item"]["id"].as_str().unwrap().into(), taken["item"]["epoch"].to_string())
}

fn own(world: &World, verb: &str, queue: &str, holder: &str, (item, epoch): &(String, String), more: &[&str]) -> (i32, Value) {
    let args = [&["queues", verb, queue, item, "--holder", holder, "--epoch", epoch], more, &["--json"]].concat();
    let said = world.run(&args);
    (said.code, serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{args:?}: {said:?}")))
}

/// A waiting take whose poll interval is longer than the test, so that only a wake-up can end the wait.
fn waiter(world: &World, queue: &str, holder: &str) -> Running {
    let mut command = world.command(&["queues", "take", queue, "--wait", "--holder", holder, "--json"]);
    command.env("BANKSMAN_CONFIG_LOCKING__POLL_INTERVAL", "1h");
    Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

fn until_waiting(world: &World, queue: &str, number: u64) {
    until(&format!("{number} wait for {queue}"), || world.data(&["queues", "show", queue])["waiters"] == number);
}

fn got(waiter: Running) -> Value {
    let said = waiter.end();
    assert_eq!(said.code, 0, "{said:?}");
    serde_json::from_str::<Value>(&said.stdout).unwrap()["data"].take()
}

/// A world with the queue `q`, defined with these options.
fn with_queue(terms: &[&str]) -> World {
    let world = World::new();
    world.ok(&[&["queues", "define", "q"], terms].concat());
    world
}

#[test]
fn an_item_is_pushed_taken_and_completed() {
    let world = World::new();
    world.ok(&["queues", "define", "triage"]);
    let pushed = world.data(&["queues", "push", "triage", r#"{"issue": 17}"#, "--priority", "2"]);
    let taken = world.data(&["queues", "take", "triage", "--holder", "me"]);
    assert_eq!(taken["item"], json!({ "id": pushed["id"], "data": { "issue": 17 }, "priority": 2, "attempts": 1, "epoch": 3 }));
    let (_, error) = world.error(&["queues", "take", "triaeg"]);
    assert_eq!((&error["code"], &error["hint"]), (&json!("QUEUE_NOT_FOUND"), &json!("did you mean triage?")));
    world.assert_refused(&["queues", "take", "triage"], 4, "QUEUE_EMPTY");
    let id = taken["item"]["id"].as_str().unwrap();
    world.ok(&["queues", "complete", "triage", id, "--holder", "me", "--epoch", "3"]);
    assert_eq!(world.error(&["queues", "complete", "triage", id, "--holder", "you", "--epoch", "3"]).0, 4, "it is gone");
    let kinds: Vec<String> = world.events().into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["queue:defined", "queue:push", "queue:take", "queue:complete"]);
}

#[test]
fn items_are_taken_by_priority_then_age_and_after_their_delay() {
    let world = with_queue(&[]);
    for (data, priority) in [("1", "0"), ("2", "5"), ("3", "0"), ("4", "-3")] {
        world.ok(&["queues", "push", "q", data, "--priority", priority]);
    }
    world.ok(&["queues", "push", "q", "5", "--priority", "9", "--delay", "1h"]);
    let order: Vec<Value> = (0..4).map(|_| world.data(&["queues", "take", "q"])["item"]["data"].take()).collect();
    assert_eq!(order, [json!(2), json!(1), json!(3), json!(4)]);
    let (_, error) = world.error(&["queues", "take", "q"]);
    assert!(error["details"]["nextAt"].is_string(), "{error}");
}

#[test]
fn a_former_holder_of_an_item_is_fenced_in_every_verb() {
    let world = with_queue(&["--visibility-timeout", "50ms"]);
    world.ok(&["queues", "push", "q", "1"]);
    let late = take(&world, "q", "late");
    let heir = got(waiter(&world, "q", "heir"));
    assert_eq!((&heir["item"]["id"], &heir["item"]["attempts"]), (&json!(late.0), &json!(2)));
    for (verb, more) in [("extend", &[][..]), ("complete", &[]), ("fail", &["--error", "no"])] {
        let (code, answer) = own(&world, verb, "q", "late", &late, more);
        assert_eq!((code, &answer["error"]["code"]), (8, &json!("FENCED")), "{verb}");
    }
    let mine = (late.0.clone(), heir["item"]["epoch"].to_string());
    assert_eq!(own(&world, "complete", "q", "stranger", &mine, &[]).0, 5);
    assert_eq!(own(&world, "complete", "q", "heir", &mine, &[]).0, 0);
}

#[test]
fn the_last_attempt_ends_in_the_dead_letter_queue_and_can_be_requeued() {
    let world = World::new();
    world.ok(&["queues", "define", "broken"]);
    world.ok(&["queues", "define", "q", "--max-attempts", "2", "--dead-letter", "broken"]);
    world.ok(&["queues", "push", "q", "{}"]);
    for outcome in ["failed", "dead"] {
        let held = take(&world, "q", "a");
        let (code, answer) = own(&world, "fail", "q", "a", &held, &["--error", "no such thing"]);
        assert_eq!((code, &answer["data"]["outcome"]), (0, &json!(outcome)));
        assert_eq!(own(&world, "fail", "q", "a", &held, &["--error", "again"]).0, if outcome == "dead" { 4 } else { 5 });
    }
    let dead = &world.data(&["queues", "list", "--dead"])["items"][0];
    assert_eq!((&dead["queue"], &dead["diedIn"], &dead["reason"]), (&json!("broken"), &json!("q"), &json!("no such thing")));
    assert_eq!(dead["history"].as_array().unwrap().len(), 2);
    assert_eq!(world.data(&["queues", "requeue", "broken", "--all"])["requeued"], 1);
    assert_eq!(world.data(&["queues", "take", "q"])["item"]["attempts"], 1, "with all its attempts");
}

#[test]
fn an_expired_last_attempt_is_shown_as_dead_without_a_write() {
    let world = World::new();
    world.ok(&["queues", "define", "broken"]);
    world.ok(&["queues", "define", "q", "--max-attempts", "1", "--visibility-timeout", "50ms"]);
    world.ok(&["queues", "define", "r", "--max-attempts", "1", "--visibility-timeout", "50ms", "--dead-letter", "broken"]);
    world.ok(&["queues", "define", "s", "--max-attempts", "2", "--visibility-timeout", "50ms"]);
    for queue in ["q", "r", "s"] {
        world.ok(&["queues", "push", queue, "1"]);
        take(&world, queue, "a");
    }
    let counts = |queue: &str| {
        let shown = world.data(&["queues", "show", queue]);
        ["ready", "processing", "dead"].map(|kind| shown[kind].as_u64().unwrap())
    };
    until("its time is over", || counts("s") == [1, 0, 0]);
    assert_eq!((counts("q"), counts("r"), counts("broken")), ([0, 0, 1], [0, 0, 0], [1, 0, 0]));
    let listed = world.data(&["queues", "list"]);
    let of = |name: &str| listed["queues"].as_array().unwrap().iter().find(|queue| queue["name"] == name).unwrap().clone();
    assert_eq!((&of("q")["dead"], &of("broken")["ready"]), (&json!(1), &json!(1)));
    let dead = world.data(&["queues", "list", "--dead"]);
    let died: BTreeSet<String> = dead["items"].as_array().unwrap().iter().map(|item| item["diedIn"].to_string()).collect();
    assert_eq!(died, BTreeSet::from([r#""q""#.to_owned(), r#""r""#.to_owned()]));
    let here = &world.data(&["queues", "show", "broken"])["items"][0];
    assert_eq!((&here["queue"], &here["diedIn"]), (&json!("broken"), &json!("r")));
    assert!(world.events().iter().all(|event| event.kind != "queue:dead"), "queries write no event");
    let id = dead["items"][0]["id"].as_str().unwrap();
    world.ok(&["queues", "requeue", "q", id]);
    assert_eq!(counts("q"), [1, 0, 0]);
}

#[test]
fn an_expired_dead_letter_can_be_taken_and_requeued_without_a_runner() {
    let world = World::new();
    world.ok(&["queues", "define", "broken"]);
    world.ok(&["queues", "define", "q", "--max-attempts", "1", "--visibility-timeout", "1ms", "--dead-letter", "broken"]);
    world.ok(&["queues", "push", "q", "1"]);
    let (item, _) = take(&world, "q", "a");
    until("its time is over", || world.data(&["queues", "show", "broken"])["ready"] == 1);
    world.ok(&["queues", "requeue", "broken", &item]);
    assert_eq!(take(&world, "q", "a").0, item);
    until("its time is over", || world.data(&["queues", "show", "broken"])["ready"] == 1);
    assert_eq!(take(&world, "broken", "b").0, item);
}

#[test]
fn a_queue_shows_its_items_in_the_order_of_takes() {
    let world = with_queue(&[]);
    for (data, priority, delay) in [("1", "9", "0s"), ("2", "0", "1h"), ("3", "1", "0s"), ("4", "2", "0s")] {
        world.ok(&["queues", "push", "q", data, "--priority", priority, "--delay", delay]);
    }
    take(&world, "q", "a");
    let shown = world.data(&["queues", "show", "q"]);
    let order: Vec<&Value> = shown["items"].as_array().unwrap().iter().map(|item| &item["data"]).collect();
    assert_eq!(order, [1, 4, 3, 2]);
}

#[test]
fn a_runner_records_dead_items_without_takers() {
    let world = World::new();
    let text = r#"
[queue.told]
[queue.broken]
[queue.jobs]
max_attempts = 1
visibility_timeout = "300ms"
dead_letter = "broken"
[on."queue:dead(jobs)"]
push = { queue = "told" }
"#;
    crate::runbooks::write(&world, "ops", text);
    world.ok(&["runbooks", "apply", "ops"]);
    let runner = world.start(&["run", "--quiet"]);
    world.ok(&["queues", "push", "jobs", "1"]);
    take(&world, "jobs", "a");
    let kinds = || world.events().into_iter().map(|event| event.kind).collect::<Vec<_>>();
    until("the route has pushed an item", || kinds().iter().filter(|kind| *kind == "queue:push").count() == 2);
    assert!(kinds().contains(&"queue:dead".to_owned()));
    assert_eq!(world.data(&["queues", "show", "told"])["ready"], 1);
    assert_eq!(world.data(&["queues", "show", "broken"])["ready"], 1);
    runner.interrupt();
}

#[test]
fn a_requeued_item_keeps_its_dedupe_key() {
    let world = with_queue(&["--max-attempts", "1"]);
    let push = || world.data(&["queues", "push", "q", "1", "--dedupe", "k"]);
    let first = push();
    own(&world, "fail", "q", "a", &take(&world, "q", "a"), &["--error", "no"]);
    world.ok(&["queues", "requeue", "q", first["id"].as_str().unwrap()]);
    assert_eq!((&push()["outcome"], &push()["id"]), (&json!("duplicate"), &first["id"]));
}

#[test]
fn define_leaves_the_other_terms_of_a_queue_unchanged() {
    let world = World::new();
    world.ok(&["queues", "define", "broken"]);
    world.ok(&["queues", "define", "q", "--visibility-timeout", "7m", "--dead-letter", "broken", "--max-length", "9"]);
    world.ok(&["queues", "define", "q", "--max-attempts", "4"]);
    let terms = || {
        let shown = world.data(&["queues", "show", "q"]);
        json!([shown["visibilityTimeout"], shown["maxAttempts"], shown["deadLetter"], shown["maxLength"]])
    };
    assert_eq!(terms(), json!(["7m", 4, "broken", 9]));
    world.ok(&["queues", "define", "q", "--no-dead-letter"]);
    assert_eq!(terms(), json!(["7m", 4, null, 9]));
}

#[test]
fn a_take_that_times_out_describes_the_items_of_the_queue() {
    let world = with_queue(&[]);
    let error = || world.error(&["queues", "take", "q", "--wait", "--timeout", "20ms"]).1["message"].as_str().unwrap().to_owned();
    assert_eq!(error(), "waited too long for an item of q: the queue is empty");
    world.ok(&["queues", "push", "q", "1"]);
    world.ok(&["queues", "push", "q", "2", "--delay", "1h"]);
    take(&world, "q", "a");
    assert_eq!(error(), "waited too long for an item of q: 1 in progress, 1 not due yet");
}

#[test]
fn the_commands_of_hints_work() {
    let world = World::new();
    let said = world.run(&["queues", "show", "--", "-nope"]);
    assert!(said.stderr.ends_with("define it with: banksman queues define -- -nope\n"), "{said:?}");
    world.ok(&["queues", "define", "--", "-nope"]);
    world.ok(&["queues", "define", "q", "--max-length", "1"]);
    world.ok(&["queues", "push", "q", "1"]);
    let (_, error) = world.error(&["queues", "push", "q", "2"]);
    assert_eq!(error["hint"], "list its items: banksman queues show q", "it was one");
    let (_, error) = world.error(&["queues", "complete", "q", "q-3", "--epoch", "1"]);
    assert!(error["hint"].as_str().unwrap().contains("that `take` printed"), "{error}");
    let large = format!("1\n\"{}\"", "x".repeat(70_000));
    world.ok(&["queues", "define", "many"]);
    let (_, said) = piped(&world, &["queues", "push", "many", "-"], &large);
    let hint = said["error"]["hint"].as_str().unwrap_or_default();
    assert!(hint.starts_with("1 item pushed before; put it into a file"), "{said}");
    assert_eq!(world.data(&["events", "--kind", "queue:*"]), world.data(&["events", "--kind", "queue:"]));
}

#[test]
fn a_killed_taker_is_not_counted_as_a_waiter() {
    let world = with_queue(&[]);
    let waiting = waiter(&world, "q", "w");
    until_waiting(&world, "q", 1);
    waiting.signal(Signal::KILL);
    waiting.end();
    assert_eq!(world.data(&["queues", "list"])["queues"][0]["waiters"], 0);
}

#[test]
fn line_breaks_are_escaped_for_people() {
    let world = with_queue(&["--max-attempts", "1"]);
    world.ok(&["queues", "push", "q", r#""a\nb""#]);
    let held = take(&world, "q", "a");
    own(&world, "fail", "q", "a", &held, &["--error", "first\r\nsecond\rthird"]);
    let shown = world.ok(&["queues", "show", "q", &held.0]);
    assert!(shown.contains(r"first\r\nsecond\rthird") && !shown.contains('\r'), "{shown}");
    for args in [vec!["events", "--raw"], vec!["events"], vec!["queues", "show", "q"]] {
        let text = world.ok(&args);
        assert!(text.contains(r"first\r\nsecond\rthird") && !text.contains('\r'), "{text}");
    }
    assert_eq!(world.ok(&["events", "--raw"]).lines().count(), world.events().len());
}

#[test]
fn every_way_to_make_an_item_ready_wakes_a_waiting_taker() {
    let world = with_queue(&["--max-attempts", "1"]);
    world.ok(&["queues", "define", "again", "--visibility-timeout", "2s"]);
    let held = |world: &World, queue: &str| {
        world.ok(&["queues", "push", queue, "1"]);
        take(world, queue, "a")
    };
    let woken = |queue: &str, bring: &dyn Fn()| {
        let waiting = waiter(&world, queue, "w");
        until_waiting(&world, queue, 1);
        bring();
        let taken = got(waiting);
        let mine = (taken["item"]["id"].as_str().unwrap().to_owned(), taken["item"]["epoch"].to_string());
        assert_eq!(own(&world, "complete", queue, "w", &mine, &[]).0, 0);
    };
    woken("q", &|| drop(world.ok(&["queues", "push", "q", "1"])));
    woken("q", &|| drop(world.ok(&["queues", "push", "q", "1", "--delay", "200ms"])));
    let dead = held(&world, "q");
    own(&world, "fail", "q", "a", &dead, &["--error", "no"]);
    woken("q", &|| drop(world.ok(&["queues", "requeue", "q", &dead.0])));
    let failing = held(&world, "again");
    woken("again", &|| {
        assert_eq!(own(&world, "fail", "again", "a", &failing, &["--error", "no", "--retry-after", "200ms"]).0, 0);
    });
    held(&world, "again");
    woken("again", &|| {});
    world.ok(&["queues", "pause", "q"]);
    world.ok(&["queues", "push", "q", "1"]);
    woken("q", &|| drop(world.ok(&["queues", "resume", "q"])));
    assert_eq!(world.data(&["queues", "show", "q"])["waiters"], 0);
}

#[test]
fn a_push_of_many_wakes_all_waiters_despite_dead_ones() {
    let world = with_queue(&[]);
    let mut waiting: Vec<Running> = Vec::new();
    for number in 0..4 {
        waiting.push(waiter(&world, "q", &format!("w{number}")));
        until_waiting(&world, "q", number + 1);
    }
    // The first and the third waiter die; the ones behind them do not wait for them.
    for dead in [2, 0] {
        waiting.remove(dead).signal(Signal::KILL);
    }
    until_waiting(&world, "q", 2);
    let mut push = Running(
        world
            .command(&["queues", "push", "q", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    push.0.stdin.take().unwrap().write_all(b"1\n2\n").unwrap();
    assert_eq!(push.end().code, 0);
    let items: BTreeSet<String> = waiting.into_iter().map(|one| got(one)["item"]["id"].to_string()).collect();
    assert_eq!(items.len(), 2);
}

#[test]
fn a_take_that_times_out_leaves_the_waiters() {
    let world = with_queue(&[]);
    world.assert_refused(&["queues", "take", "q", "--wait", "--timeout", "20ms"], 6, "WAIT_TIMEOUT");
    let waiting = waiter(&world, "q", "w");
    until_waiting(&world, "q", 1);
    assert_eq!(waiting.interrupt().code, 130);
    assert_eq!(world.data(&["queues", "show", "q"])["waiters"], 0);
}

pub(crate) fn piped(world: &World, args: &[&str], text: &str) -> (i32, Value) {
    let mut command = world.command(&[args, &["--json"]].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // The command may stop reading before the end.
    stdin.write_all(text.as_bytes()).ok();
    drop(stdin);
    let said = Running(child).end();
    (said.code, serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}")))
}

#[test]
fn limits_of_queues_are_enforced_and_reported() {
    let world = with_queue(&["--max-length", "3"]);
    let large = format!("{:?}", "x".repeat(65_536));
    world.assert_refused(&["queues", "push", "q", &large], 2, "ITEM_TOO_LARGE");
    assert_eq!(world.error(&["queues", "define", &"n".repeat(201)]).0, 2);
    assert_eq!(world.error(&["queues", "define", "q", "--max-attempts", "0"]).0, 2);
    assert_eq!(world.error(&["queues", "define", "q", "--visibility-timeout", "0s"]).0, 2);
    assert_eq!(world.error(&["queues", "push", "q", "1", "--dedupe", &"k".repeat(201)]).0, 2);

    let (code, answer) = piped(&world, &["queues", "push", "q", "-"], "1\n\n{\"a\":\n3\n");
    assert_eq!((code, &answer["error"]["details"]), (2, &json!({ "line": 3, "pushed": 1 })), "{answer}");
    let (code, answer) = piped(&world, &["queues", "push", "q", "-"], "2\n3\n4\n5\n");
    assert_eq!((code, &answer["error"]["code"], &answer["error"]["details"]["pushed"]), (6, &json!("QUEUE_FULL"), &json!(2)));
    let (code, answer) = piped(&world, &["queues", "push", "q", "-"], &"x".repeat(300_000));
    assert_eq!((code, &answer["error"]["code"]), (2, &json!("ITEM_TOO_LARGE")));
    assert_eq!(world.data(&["queues", "show", "q"])["length"], 3);
    assert_eq!(world.data(&["queues", "purge", "q"])["purged"], 3);
}

#[test]
fn many_items_are_pushed_in_chunks_and_survive_compaction_and_copy() {
    let world = World::on_sqlite().unchecked();
    world.ok(&["queues", "define", "q", "--max-attempts", "1"]);
    let lines: String = (0..1_200).map(|number| format!("{{\"n\":{number}}}\n")).collect();
    assert_eq!(piped(&world, &["queues", "push", "q", "-"], &lines).1["data"]["pushed"], 1_200);
    let held = take(&world, "q", "a");
    own(&world, "fail", "q", "a", &held, &["--error", "no"]);
    take(&world, "q", "b");
    world.ok(&["events", "compact", "--keep-events", "10"]);
    world.check();
    let copy = tempfile::tempdir().unwrap();
    let to = format!("sqlite:{}", copy.path().join("store.db").display());
    let from = format!("sqlite:{}", world.path().join(".banksman/store.db").display());
    let copied = world.data(&["store", "copy", &from, &to]);
    assert_eq!(copied["items"], 1_200);
    let there = |args: &[&str]| world.data(&[&["--store", &to], args].concat());
    let show = there(&["queues", "show", "q"]);
    assert_eq!((&show["ready"], &show["processing"], &show["dead"]), (&json!(1_198), &json!(1), &json!(1)));
    assert_eq!(there(&["doctor"])["healthy"], true);
    assert_eq!(there(&["queues", "take", "q"])["item"]["data"], json!({ "n": 2 }), "in the same order");
    assert_eq!(there(&["queues", "purge", "q", "--all"])["purged"], 1_200);
    assert_eq!(there(&["doctor"])["healthy"], true);
}

#[test]
fn the_terms_of_a_new_queue_come_from_the_settings() {
    let world = World::new();
    world.ok(&["config", "set", "queue.visibility_timeout", "90s"]);
    world.ok(&["config", "set", "queue.max_attempts", "7"]);
    let defined = world.data(&["queues", "define", "q"]);
    assert_eq!((&defined["visibilityTimeout"], &defined["maxAttempts"]), (&json!("1m30s"), &json!(7)));
    // The settings apply to queues of runbooks, too; the runbook overrides them.
    let runbook = "[queue.r]\n[queue.s]\nmax_attempts = 2\n[pipeline.p]\n[[pipeline.p.phase]]\nname = 'x'\nrun = 'true'\n";
    crate::runbooks::write(&world, "a", runbook);
    std::fs::write(world.path().join("b.toml"), runbook.replace("queue.", "queue.b-")).unwrap();
    world.ok(&["runbooks", "apply"]);
    world.ok(&["pipelines", "start", "p", "--runbook", "b.toml"]);
    for (queue, attempts) in [("r", 7), ("s", 2), ("b-r", 7), ("b-s", 2)] {
        let terms = world.data(&["queues", "show", queue]);
        assert_eq!((&terms["visibilityTimeout"], &terms["maxAttempts"]), (&json!("1m30s"), &json!(attempts)), "{queue}");
    }
}
