//! Workers and routes: each item becomes a task once, even when runners are killed; actions that follow from events; applied runbooks.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dice::Dice;
use crate::runbooks::write;
use crate::world::{Running, World, until, write_program};

/// Applies this text as the runbook `ops`.
pub(crate) fn apply(world: &World, text: &str) -> Value {
    write(world, "ops", text);
    world.data(&["runbooks", "apply", "ops"])
}

/// A runner whose poll interval is longer than the test, so that only wake-ups make it work.
pub(crate) fn runner(world: &World) -> Running {
    let mut command = world.command(&["run", "--quiet"]);
    command.env("BANKSMAN_CONFIG_LOCKING__POLL_INTERVAL", "1h");
    let running = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until_enlisted(world, &running);
    running
}

fn until_enlisted(world: &World, runner: &Running) {
    let pid = runner.pid();
    until("the runner is there", || {
        let mut reader = world.project().reader().unwrap();
        let keys = [banksman_store::Key::Runners].into();
        reader.view().load(&keys).unwrap().backlog.runners.values().any(|runner| runner.process.pid == pid)
    });
}

fn state(world: &World, worker: &str) -> String {
    world.data(&["workers", "show", worker])["state"].as_str().unwrap().to_owned()
}

fn until_state(world: &World, worker: &str, wanted: &str) {
    until(&format!("{worker} is {wanted}"), || state(world, worker) == wanted);
}

/// Asserts that a worker never had more than `limit` jobs at a time.
fn assert_at_most(world: &World, limit: usize) {
    let mut jobs = BTreeSet::new();
    for event in world.events() {
        match event.kind.as_str() {
            "worker:take" => assert!(jobs.insert(event.data["task"].to_string()), "twice the same task"),
            "worker:end" => assert!(jobs.remove(&event.data["task"].to_string())),
            _ => {}
        }
        assert!(jobs.len() <= limit, "{jobs:?}");
    }
    assert!(jobs.is_empty());
}

const DIGEST: &str = r#"
[queue.q]
[worker.w]
queue = "q"
concurrency = 3
run = 'echo "$VAR_NUMBER $BANKSMAN_ITEM_ID $BANKSMAN_ITEM" >> ran'
"#;

#[test]
fn items_become_tasks_once_while_runners_are_killed() {
    const ITEMS: usize = 200;
    let world = World::new();
    apply(&world, DIGEST);
    let lines: Vec<String> = (0..ITEMS).map(|number| json!({ "number": number }).to_string()).collect();
    std::fs::write(world.path().join("items"), lines.join("\n")).unwrap();
    let items = std::fs::File::open(world.path().join("items")).unwrap();
    assert!(world.command(&["queues", "push", "q", "-"]).stdin(items).output().unwrap().status.success());
    let mut dice = Dice(17);
    let mut runners: Vec<Running> = (0..3).map(|_| world.start(&["run"])).collect();
    let (start, mut reader) = (Instant::now(), world.project().reader().unwrap());
    let (mut kills, mut next) = (0, ITEMS as u64);
    loop {
        let counts = reader.view().queue_counts(banksman_core::Lease(i64::MIN)).unwrap();
        let left: u64 = counts.values().map(|counts| counts.ready + counts.processing).sum();
        if left == 0 {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "{kills} kills, and there is more");
        if left > next {
            std::thread::park_timeout(Duration::from_millis(2));
            continue;
        }
        // The kills are paced by completed items, not by time.
        next = left.saturating_sub(1 + dice.roll(20));
        std::thread::park_timeout(Duration::from_millis(dice.roll(30)));
        let victim = usize::try_from(dice.roll(3)).unwrap();
        runners[victim].signal(Signal::KILL);
        kills += 1;
        runners[victim] = world.start(&["run"]);
    }
    drop(runners);
    let ran = std::fs::read_to_string(world.path().join("ran")).unwrap();
    let numbers: Vec<&str> = ran.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!((numbers.len(), numbers.iter().collect::<BTreeSet<_>>().len()), (ITEMS, ITEMS), "each once");
    assert_eq!((world.count("queue:complete"), world.count("queue:fail")), (ITEMS, 0));
    assert!(kills > 5, "{kills} kills");
    assert_at_most(&world, 3);
}

#[test]
fn a_failed_item_becomes_a_dead_letter_with_the_error_of_its_task() {
    let world = World::new();
    apply(
        &world,
        r#"
        [queue.graves]
        [queue.q]
        max_attempts = 2
        dead_letter = "graves"
        [worker.w]
        queue = "q"
        argv = ["sh", "-c", "exit $0", "{{ item.code }}"]
        "#,
    );
    world.ok(&["queues", "push", "q", r#"{"code": 3}"#]);
    world.ok(&["queues", "push", "q", r#"{"other": 1}"#]);
    world.ok(&["queues", "push", "q", r#"{"code": 0}"#]);
    let said = world.run(&["run", "--until-idle"]);
    assert_eq!(said.code, 7, "not everything was completed: {said:?}");
    assert!(said.stdout.ends_with("2 items are dead: banksman queues requeue graves --all\n"), "{said:?}");
    let dead = world.data(&["queues", "list", "--dead"])["items"].take();
    let reasons: BTreeMap<&str, usize> = dead
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["reason"].as_str().unwrap(), item["history"].as_array().unwrap().len()))
        .collect();
    assert_eq!(reasons["exit status 3"], 2, "{reasons:?}");
    assert_eq!(reasons.len(), 2);
    assert!(
        reasons.keys().any(|reason| reason.contains("variable that it does not have")),
        "a template that cannot be filled says so: {reasons:?}"
    );
    assert_at_most(&world, 1);
}

/// The task of this attempt at the only item.
fn attempt(world: &World, number: u64) -> String {
    let of = |task: &Value| world.data(&["why", task["id"].as_str().unwrap()]);
    let tasks = world.data(&["tasks", "list", "--all"])["tasks"].take();
    let found = tasks.as_array().unwrap().iter().map(of).find(|why| why["item"]["attempt"] == number);
    found.unwrap()["task"].as_str().unwrap().to_owned()
}

#[test]
fn a_failed_attempt_is_no_failure_until_its_item_is_dead() {
    for job in ["run = './try'", "pipeline = \"p\""] {
        let world = World::new();
        write_program(&world.path().join("try"), "#!/bin/sh\ntest -e ok && exit; test -e once && touch ok; touch once; exit 1\n");
        let text = "[queue.q]\nmax_attempts = 2\n[worker.w]\nqueue = 'q'\n{job}\n[pipeline.p]\n[[pipeline.p.phase]]\nname = 'try'\nrun = './try'\n";
        apply(&world, &text.replace("{job}", job));
        world.ok(&["queues", "push", "q", "1"]);
        // Both attempts fail; the item counts as one failure.
        let said = world.run(&["run", "--until-idle"]);
        assert_eq!(said.code, 7, "{said:?}");
        assert!(said.stdout.contains("1 item is dead: banksman queues requeue q q-"), "{said:?}");
        let status = world.data(&["status"]);
        assert_eq!((&status["tasks"], &status["failures"]), (&json!(0), &json!([])), "{status}");
        assert_eq!((&status["items"]["dead"], &status["items"]["deadIn"][0]["queue"]), (&json!(1), &json!("q")));
        let next = status["next"].as_str().unwrap();
        let item = status["items"]["deadIn"][0]["first"].as_str().unwrap();
        assert_eq!(next, format!("1 item is dead: banksman queues requeue q {item}"));
        for number in [1, 2] {
            let why = world.data(&["why", &attempt(&world, number)])["item"].take();
            assert_eq!((&why["id"], &why["queue"], &why["worker"]), (&json!(item), &json!("q"), &json!("w")));
            assert_eq!((&why["standing"], &why["hint"]), (&json!("dead"), &json!(format!("banksman queues requeue q {item}"))));
        }
        // No retry of the attempt is suggested: it would do the work in addition to the item.
        let pages = [world.ok(&["why", &attempt(&world, 2)]), world.run(&["pipelines", "show", &attempt(&world, 2)]).stdout];
        assert!(pages.iter().all(|page| !page.contains("pipelines retry")), "{pages:?}");
        // The hint works.
        let words: Vec<&str> = next.split(": banksman ").nth(1).unwrap().split(' ').collect();
        world.ok(&words);
        let why = world.ok(&["why", &attempt(&world, 2)]);
        assert!(why.contains("the 2nd attempt of worker w: it waits for the next attempt"), "{why}");
        let said = world.run(&["run", "--until-idle"]);
        assert_eq!((said.code, said.stdout.trim()), (0, "nothing is left to do"), "{said:?}");
        let status = world.data(&["status"]);
        assert_eq!((&status["items"]["dead"], &status["next"]), (&json!(0), &json!("nothing to do: all tasks are done")));
        let why = world.data(&["why", &attempt(&world, 1)])["item"].take();
        assert_eq!(why["standing"], "gone", "{why}");
    }
}

#[test]
fn a_push_wakes_the_worker_and_a_pause_outlives_the_runner() {
    let world = World::new();
    apply(&world, DIGEST);
    let mut first = runner(&world);
    world.ok(&["queues", "push", "q", r#"{"number": 1}"#]);
    until("it is done", || world.count("queue:complete") == 1);
    world.ok(&["workers", "pause", "w"]);
    world.ok(&["queues", "push", "q", r#"{"number": 2}"#]);
    first.signal(Signal::TERM);
    first.0.wait().unwrap();
    let _second = runner(&world);
    assert_eq!(state(&world, "w"), "paused");
    let list = world.data(&["workers", "list"])["workers"][0].take();
    assert_eq!((&list["waiting"], &list["busy"]), (&json!(1), &json!(0)));
    world.ok(&["workers", "resume", "w"]);
    until("it is done", || world.count("queue:complete") == 2);
}

#[test]
fn an_event_or_a_command_wakes_a_worker_until_its_queue_is_empty() {
    let world = World::new();
    apply(
        &world,
        r#"
        [queue.q]
        [worker.w]
        queue = "q"
        run = "true"
        wake_on = "deploy:done(prod)"
        "#,
    );
    world.ok(&["queues", "push", "q", "1"]);
    let runner = runner(&world);
    until_state(&world, "w", "asleep");
    for stage in ["test", "prod"] {
        world.ok(&["events", "emit", "deploy:done", "--about", stage]);
    }
    until("it is done", || world.count("queue:complete") == 1);
    until_state(&world, "w", "asleep");
    world.ok(&["queues", "push", "q", "2"]);
    assert_eq!(state(&world, "w"), "asleep");
    assert_eq!(world.data(&["workers", "wake", "w"])["outcome"], "woken");
    until("it is done", || world.count("queue:complete") == 2);
    until_state(&world, "w", "asleep");
    assert_eq!((world.count("worker:woken"), world.count("worker:asleep")), (2, 2));
    drop(runner);
}

#[test]
fn a_runbook_is_applied_changed_and_removed() {
    let world = World::new();
    let outcomes = |data: &Value| -> Vec<String> {
        let changes = data["runbooks"][0]["changes"].as_array().unwrap().clone();
        let word = |change: &Value, key: &str| change[key].as_str().unwrap().to_owned();
        changes.iter().map(|change| ["outcome", "kind", "name"].map(|key| word(change, key)).join(" ")).collect()
    };
    let text = r#"
        [lock.deploy]
        ttl = "5m"
        [semaphore.gpu]
        capacity = 2
        [queue.q]
        [worker.w]
        queue = "q"
        run = "true"
        [on."task:failed"]
        notify = "look"
    "#;
    let applied = outcomes(&apply(&world, text));
    let wanted = ["lock deploy", "semaphore gpu", "queue q", "worker w", "route task:failed"];
    assert_eq!(applied, wanted.map(|what| format!("created {what}")));
    assert_eq!(outcomes(&apply(&world, text)), wanted.map(|what| format!("unchanged {what}")));
    let changed = text.replace("run = \"true\"", "run = \"false\"").replace("task:failed", "queue:dead");
    let changed = outcomes(&apply(&world, &changed));
    assert_eq!(changed[3..], ["changed worker w", "created route queue:dead", "removed route task:failed"].map(String::from));
    // A worker name belongs to one runbook; the refused runbook changes nothing.
    write(&world, "other", "[queue.new]\n[worker.w]\nqueue = \"new\"\nrun = \"true\"\n");
    world.assert_refused(&["runbooks", "apply", "other"], 3, "RUNBOOK_REFUSED");
    assert_eq!(world.error(&["queues", "show", "new"]).0, 4);
    let gone = world.data(&["runbooks", "remove", "ops"]);
    assert_eq!(gone["changes"].as_array().unwrap().len(), 2, "{gone}");
    assert_eq!(world.error(&["runbooks", "remove", "ops"]).0, 4);
    assert_eq!(world.data(&["workers", "list"])["workers"], json!([]));
    assert_eq!(world.data(&["locks", "show", "deploy"])["name"], "deploy", "others may use it");
    assert_eq!(world.error(&["workers", "wake", "w"]).0, 4);
}

#[test]
fn a_removed_worker_finishes_its_current_job() {
    let world = World::new();
    apply(&world, "[queue.q]\n[worker.w]\nqueue = \"q\"\nrun = 'while ! test -e go; do sleep 0.01; done'\n");
    world.ok(&["queues", "push", "q", "1"]);
    let runner = runner(&world);
    until_state(&world, "w", "busy");
    let dropped = world.data(&["runbooks", "drop", "ops"]);
    assert_eq!((&dropped["changes"][0]["outcome"], &dropped["changes"][0]["jobs"]), (&json!("finishing"), &json!(1)));
    assert_eq!(state(&world, "w"), "finishing");
    world.ok(&["queues", "push", "q", "2"]);
    world.touch("go");
    until("it is gone", || world.data(&["workers", "list"])["workers"] == json!([]));
    assert_eq!(world.count("queue:complete"), 1, "it has taken nothing more");
    drop(runner);
}

#[test]
fn compaction_and_copy_keep_applied_workers() {
    let world = World::on_sqlite().unchecked();
    apply(&world, &DIGEST.replace("[worker.w]", "[on.\"task:failed\"]\nnotify = \"x\"\n[worker.w]"));
    world.ok(&["queues", "push", "q", r#"{"number": 1}"#]);
    world.ok(&["run", "--until-idle"]);
    world.ok(&["workers", "pause", "w"]);
    world.ok(&["events", "compact", "--keep-events", "1"]);
    world.check();
    let here = world.data(&["workers", "list"]);
    let copy = format!("sqlite:{}", world.path().join("copy.db").display());
    world.ok(&["store", "copy", &format!("sqlite:{}", world.path().join(".banksman/store.db").display()), &copy]);
    let there = world.data(&["workers", "list", "--store", &copy]);
    assert_eq!(there, here);
    assert_eq!(there["workers"][0]["state"], "paused");
    assert_eq!(world.data(&["doctor", "--store", &copy])["healthy"], true);
}

#[test]
fn applied_runbooks_and_differences_from_their_files_are_shown() {
    let world = World::new();
    let shared = "[lock.plain]\n[lock.l]\nttl = \"5m\"\n[semaphore.s]\ncapacity = 2\n";
    let text = "[queue.q]\n[worker.w]\nqueue = \"q\"\nrun = \"true\"\n[on.\"x:y\"]\nnotify = \"one\"\n";
    let text = &format!("{shared}{text}");
    write(&world, "ops", text);
    // Using a lock applies nothing.
    world.ok(&["locks", "run", "plain", "--", "true"]);
    write(&world, "plain", "[pipeline.p]\n[[pipeline.p.phase]]\nname = \"a\"\nrun = \"true\"\n");
    let force = || {
        let listed = world.data(&["runbooks", "list"]);
        [0, 1].map(|index| listed["runbooks"][index]["inForce"].clone())
    };
    assert_eq!(force(), [json!("no"), Value::Null]);
    world.ok(&["runbooks", "apply", "ops"]);
    assert_eq!(force(), [json!("yes"), Value::Null]);
    let routes = || world.data(&["workers", "list"])["routes"].clone();
    assert_eq!(routes(), json!([{ "on": "x:y", "then": ["notify: one"], "runbook": "ops" }]));
    let others = ["ttl = \"6m\"", "capacity = 3", "notify = \"two\"", "run = \"false\""];
    let ours = ["ttl = \"5m\"", "capacity = 2", "notify = \"one\"", "run = \"true\""];
    let without = |words: &str| text.replace(words, "");
    let changed = ours.iter().zip(others).map(|(ours, others)| text.replace(ours, others));
    for changed in changed.chain([without("[on.\"x:y\"]\nnotify = \"one\"\n"), without("ttl = \"5m\"\n")]) {
        write(&world, "ops", &changed);
        assert_eq!(force(), [json!("differs"), Value::Null], "{changed}");
    }
    assert!(world.ok(&["runbooks", "list"]).ends_with("ops differs from the applied version: banksman runbooks apply ops\n"));
    assert_eq!(routes()[0]["then"], json!(["notify: one"]), "as it was applied");
    std::fs::remove_file(world.path().join(".banksman/runbooks/ops.toml")).unwrap();
    assert_eq!(world.data(&["runbooks", "list"])["withoutFile"], json!(["ops"]));
}

#[test]
fn every_reason_to_refuse_a_runbook_has_its_own_line() {
    let world = World::new();
    let phase = |pipeline: &str, name: &str, weight: u32| {
        format!(
            "[[pipeline.{pipeline}.phase]]\nname = \"{name}\"\nrun = \"true\"\nsemaphore = {{ name = \"gpu\", weight = {weight} }}\n"
        )
    };
    let pipelines =
        format!("[pipeline.p]\n{}{}[pipeline.large]\n{}", phase("p", "one", 1), phase("p", "two", 1), phase("large", "x", 3));
    let others = "[on.\"x:y\"]\npush = \"neither\"\n[on.\"x:z\"]\nstart = \"p\"\n[on.\"x:w\"]\nstart = \"large\"\n";
    write(&world, "ops", &format!("[worker.w]\nqueue = \"none\"\npipeline = \"p\"\n{pipelines}{others}"));
    let refused = |lines: &[&str]| {
        let said = world.run(&["runbooks", "apply", "ops"]);
        assert_eq!(said.code, 3);
        assert!(lines.iter().all(|line| said.stderr.contains(line)), "{said:?}");
        assert!(said.stderr.contains(&format!("for {} reasons\n", lines.len())), "{said:?}");
    };
    let queues = ["- worker w: there is no queue none\n", "- route x:y: there is no queue neither\n"];
    let slots = [
        "- worker w: phase one needs the semaphore gpu, which is not there\n",
        "- route x:z: phase one needs the semaphore gpu, which is not there\n",
        "- route x:w: phase x needs the semaphore gpu, which is not there\n",
    ];
    refused(&[&queues[..], &slots[..]].concat());
    world.ok(&["semaphores", "define", "gpu", "--capacity", "2"]);
    refused(&[&queues[..], &["- route x:w: phase x needs 3 slots of the semaphore gpu, which has 2\n"]].concat());
}

#[test]
fn runbooks_are_applied_after_those_whose_resources_they_use() {
    let world = World::new();
    write(&world, "a", "[on.\"x:y\"]\npush = \"q\"\n");
    write(&world, "b", "[queue.q]\ndead_letter = \"dead\"\n");
    write(&world, "c", "[queue.dead]\n");
    let applied = world.data(&["runbooks", "apply"])["runbooks"].take();
    let names: Vec<&str> = applied.as_array().unwrap().iter().map(|book| book["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["c", "b", "a"]);
    // An invalid runbook is reported and does not prevent the others from being applied.
    write(&world, "b", "[queue.q]\ndead_letter = \"nowhere\"\n");
    let (code, error) = world.error(&["runbooks", "apply"]);
    assert_eq!((code, &error["details"]["runbook"], &error["details"]["applied"]), (3, &json!("b"), &json!(["a", "c"])));
}

#[test]
fn an_item_of_a_worker_is_shown_with_its_task() {
    let world = World::new();
    apply(&world, "[queue.q]\n[worker.w]\nqueue = \"q\"\nrun = 'touch begun; read line < end'\n");
    assert!(std::process::Command::new("mkfifo").arg(world.path().join("end")).status().unwrap().success());
    let runner = runner(&world);
    let pushed = world.data(&["queues", "push", "q", "1"]);
    until("it has begun", || world.has("begun"));
    let item = world.data(&["queues", "show", "q", pushed["id"].as_str().unwrap()]);
    let job = world.data(&["workers", "show", "w"])["jobs"][0]["task"].clone();
    assert_eq!((&item["task"], &item["dueAt"]), (&job, &Value::Null));
    let page = world.ok(&["queues", "show", "q"]);
    assert!(page.contains(&format!(", as {}", job.as_str().unwrap())) && !page.contains("left"), "{page}");
    std::fs::write(world.path().join("end"), "\n").unwrap();
    until("it is done", || world.count("queue:complete") == 1);
    drop(runner);
}

#[test]
fn waiting_items_are_reported_with_the_state_of_their_worker() {
    let world = World::new();
    apply(&world, "[queue.q]\n[worker.w]\nqueue = \"q\"\nrun = \"true\"\nwake_on = \"night:begin\"");
    let says = |what: &str| {
        for args in [&["workers", "list"][..], &["workers", "show", "w"]] {
            let said = world.run(args).stdout;
            assert!(said.contains(what), "{what}: {said}");
        }
    };
    let item = world.data(&["queues", "push", "q", "1"])["id"].as_str().unwrap().to_owned();
    says("1 item waits while w is asleep: banksman workers wake w");
    let shown = world.data(&["queues", "show", "q"]);
    assert_eq!(shown["workers"], json!([{ "name": "w", "state": "asleep" }]));
    assert!(world.ok(&["queues", "show", "q"]).contains("w is asleep"));
    let (code, error) = world.error(&["why", &item]);
    let hint = format!("it is an item of queue q: banksman queues show q {item}");
    assert_eq!((code, &error["hint"]), (4, &json!(hint)));
    let idle = world.run(&["run", "--until-idle"]);
    assert!(idle.stdout.contains("1 item waits for its worker: banksman workers list"), "{idle:?}");
    world.ok(&["workers", "pause", "w"]);
    world.ok(&["queues", "push", "q", "2"]);
    says("2 items wait while w is paused: banksman workers resume w");
    world.ok(&["workers", "resume", "w"]);
    world.ok(&["workers", "wake", "w"]);
    world.ok(&["queues", "pause", "q"]);
    says("2 items wait while w is halted, because its queue is paused: banksman queues resume q");
    world.ok(&["queues", "resume", "q"]);
    let idle = world.run(&["run", "--until-idle"]);
    assert!(!idle.stdout.contains("wait"), "{idle:?}");
}

#[test]
fn an_interrupted_runner_does_not_report_that_the_work_is_done() {
    let world = World::new();
    apply(&world, "[queue.q]\n[worker.w]\nqueue = \"q\"\nrun = \"true\"");
    world.ok(&["queues", "push", "q", "1", "--delay", "1h"]);
    let runner = world.start(&["run", "--until-idle"]);
    until_enlisted(&world, &runner);
    let said = runner.stop();
    assert_eq!((said.code, said.stdout.as_str()), (130, ""), "{said:?}");
}

#[test]
fn an_item_that_does_not_fit_its_worker_is_dead_at_once() {
    let world = World::new();
    apply(
        &world,
        "[queue.q]\nmax_attempts = 5\n[worker.w]\nqueue = \"q\"\npipeline = \"way\"\n\
         [pipeline.way]\nvars = [\"title\"]\n[[pipeline.way.phase]]\nname = \"one\"\nrun = \"true\"\n",
    );
    world.ok(&["queues", "push", "q", "{\"name\":\"no title\"}"]);
    let said = world.run(&["run", "--until-idle", "--quiet"]);
    assert_eq!(said.code, 7, "{said:?}");
    let item = &world.data(&["queues", "list", "--dead"])["items"][0];
    assert_eq!((item["state"].as_str(), world.count("queue:take")), (Some("dead"), 1), "{item}");
    assert!(item.to_string().contains("title"), "{item}");
}
