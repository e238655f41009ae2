//! What people are told without having asked, by the runners of a project: once, and only what they want.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use banksman_adapters::digest;
use serde_json::Value;

use crate::loops::row;
use crate::tasks::wait_for;
use crate::world::{World, until};

/// Keeps each notice in a file of its own.
const KEEP: &str = "cat > notice-$$.new && mv notice-$$.new notice-$$.json";

/// A world whose user wants to be told by this command.
fn world(command: &str) -> World {
    let world = World::new();
    world.ok(&["config", "set", "--user", "notify.command", command]);
    for (key, value) in [("task.silence_timeout", "1s"), ("task.max_recovery_attempts", "0"), ("task.kill_grace", "200ms")] {
        world.ok(&["config", "set", key, value]);
    }
    world
}

/// `kind subject: text` of all that was told, in no particular order.
fn notices(world: &World) -> Vec<String> {
    let files = std::fs::read_dir(world.path()).unwrap().flatten().map(|file| file.file_name().into_string().unwrap());
    let mut told: Vec<String> = files
        .filter(|name| name.starts_with("notice-") && name.ends_with(".json"))
        .map(|name| {
            let notice: Value = serde_json::from_str(&world.read(&name)).unwrap();
            assert_eq!(notice["project"], world.path().canonicalize().unwrap().to_str().unwrap());
            let word = |key: &str| notice[key].as_str().unwrap().to_owned();
            format!("{} {}: {}", word("kind"), word("subject"), word("text"))
        })
        .collect();
    told.sort();
    told
}

fn open(world: &World) -> Vec<Value> {
    world.data(&["decisions", "list"])["decisions"].as_array().unwrap().clone()
}

#[test]
fn each_thing_is_told_once() {
    let world = world(KEEP);
    world.add(&["breaks", "--run", "exit 3", "--retries", "2"]);
    let silent = world.add(&["silent", "--run", "sleep 600"]);
    world.add(&["works", "--run", "true"]);
    assert_eq!(world.run_all(), 7);
    let told = notices(&world);
    let banksman_core::task::State::AwaitingDecision { decision } = row(&world, &silent).state else { panic!("{told:?}") };
    let question = world.data(&["decisions", "show", decision.as_str()])["question"].as_str().unwrap().to_owned();
    let expected = [
        "backlog_finished nothing is left to do: Tasks: 1 blocked, 1 completed, 1 failed.".to_owned(),
        format!("escalate decision {decision} waits for you: {question}"),
        "task_failed failed: breaks: exit status 3".into(),
    ];
    assert_eq!(told, expected);
    assert!(world.everything().backlog.outbox.is_empty());
    // A person who decides knows what came of it, but that it has failed is told all who listen.
    world.ok(&["decisions", "resolve", decision.as_str(), "2"]);
    assert_eq!(world.run_all(), 7);
    let told = notices(&world);
    let failed = format!("task_failed failed: silent: marked as failed by decision {decision}");
    assert_eq!(told.iter().filter(|notice| **notice == failed).count(), 1, "{told:?}");
}

#[test]
fn that_nothing_is_left_is_told_once_by_all_runners_together() {
    let world = world(KEEP);
    let finished = || notices(&world).iter().filter(|notice| notice.starts_with("backlog_finished ")).count();
    // Without anything that was done there is nothing to tell.
    assert_eq!((world.run_all(), finished()), (0, 0));
    for number in 0..6 {
        world.add(&[&format!("n{number}"), "--run", "sleep 0.05"]);
    }
    let runners = [world.runner(&[]), world.runner(&[])];
    until("it is told", || finished() == 1);
    until("nothing is left to tell", || world.everything().backlog.outbox.is_empty());
    drop(runners);
    for _ in 0..2 {
        assert_eq!(world.run_all(), 0);
    }
    assert_eq!(finished(), 1, "not again for the same");
    assert_eq!(world.count("backlog:finished"), 1);
    // What waits for a person is no reason to wait with it, and more work is a reason to tell again.
    world.add(&["for people"]);
    world.add(&["more", "--run", "true"]);
    assert_eq!(world.run_all(), 7, "one is not over");
    assert_eq!(finished(), 2);
}

#[test]
fn the_report_comes_with_the_notice_that_all_is_done_if_it_is_wanted() {
    let world = world(KEEP);
    world.add(&["works", "--run", "true"]);
    world.add(&["breaks, sometimes", "--run", "exit 3"]);
    let finished = || notices(&world).into_iter().filter(|notice| notice.starts_with("backlog_finished ")).collect::<Vec<_>>();
    world.run_all();
    assert_eq!(finished(), ["backlog_finished nothing is left to do: Tasks: 1 completed, 1 failed."]);
    world.ok(&["config", "set", "report.notify", "on"]);
    world.add(&["more", "--run", "true"]);
    world.run_all();
    let told = finished();
    let report = told.iter().find(|notice| notice.contains("Tasks: 2 completed, 1 failed.\n\n## Report, ")).unwrap();
    for line in ["### Completed (2)", "- works (", "- more (", "### Failed (1)", "- breaks, sometimes ("] {
        assert!(report.contains(line), "{report}");
    }
    assert!(report.ends_with("): exit status 3"), "{report}");
}

#[test]
fn what_was_told_and_what_is_to_be_told_moves_with_the_project() {
    let world = World::on_sqlite().unchecked();
    world.ok(&["config", "set", "--user", "notify.command", KEEP]);
    world.add(&["works", "--run", "true"]);
    assert_eq!(world.run_all(), 0);
    world.add(&["by hand"]);
    world.ok(&["tasks", "fail", "by hand", "--error", "nobody answers"]);
    let [from, to] = [".banksman/store.db", "copy/store.db"].map(|name| format!("sqlite:{}", world.path().join(name).display()));
    std::fs::create_dir(world.path().join("copy")).unwrap();
    world.ok(&["store", "copy", &from, &to]);
    assert_eq!(world.run(&["--store", &to, "run", "--until-idle"]).code, 7);
    let expected = ["backlog_finished nothing is left to do: Tasks: 1 completed.", "task_failed failed: by hand: nobody answers"];
    assert_eq!(notices(&world), expected);
}

#[test]
fn it_is_not_finished_while_something_goes_on() {
    let world = world(KEEP);
    world.ok(&["config", "set", "task.silence_timeout", "10m"]);
    world.add(&["long", "--run", &wait_for("go")]);
    world.add(&["rests", "--loop", "--max-attempts", "2", "--restart-delay", "500ms", "--run", "exit 1"]);
    world.add(&["short", "--run", "true"]);
    let runner = world.runner(&["--until-idle"]);
    world.until_status("rests", "failed");
    assert_eq!(notices(&world).iter().filter(|notice| notice.starts_with("backlog_finished ")).count(), 0);
    world.touch("go");
    assert_eq!(runner.end().code, 7);
    let told = notices(&world);
    let finished = "backlog_finished nothing is left to do: Tasks: 2 completed, 1 failed.".to_owned();
    assert_eq!((told.len(), told.contains(&finished)), (2, true), "{told:?}");
}

#[test]
fn what_happens_while_no_runner_is_there_is_told_by_the_next() {
    let world = world(KEEP);
    world.add(&["by hand"]);
    world.ok(&["tasks", "fail", "by hand", "--error", "nobody answers"]);
    assert_eq!((notices(&world).len(), world.everything().backlog.outbox.len()), (0, 1));
    assert_eq!(world.run_all(), 7);
    let told = notices(&world);
    assert_eq!(told.iter().filter(|notice| *notice == "task_failed failed: by hand: nobody answers").count(), 1, "{told:?}");
    assert!(world.everything().backlog.outbox.is_empty());
}

#[test]
fn only_what_is_wanted_is_told() {
    for (wanted, expected) in [("task_failed", vec!["task_failed"]), ("escalate, decision", vec!["escalate"]), ("", vec![])] {
        let world = world(KEEP);
        world.ok(&["config", "set", "--user", "notify.on", wanted]);
        world.add(&["breaks", "--run", "exit 3"]);
        world.add(&["silent", "--run", "sleep 600"]);
        assert_eq!(world.run_all(), 7);
        let told = notices(&world);
        let kinds: Vec<&str> = told.iter().map(|notice| notice.split(' ').next().unwrap()).collect();
        assert_eq!(kinds, expected);
        assert!(world.everything().backlog.outbox.is_empty());
    }
}

#[test]
fn what_the_project_wants_told_and_nobody_trusts_is_said_where_it_runs() {
    let world = World::new();
    world.committed("notify.command", "touch theirs");
    world.add(&["breaks", "--run", "exit 3"]);
    let said = world.start(&["run", "--until-idle"]).end();
    assert_eq!((said.code, world.has("theirs")), (7, false), "{said:?}");
    let words =
        "cannot send the notification \"failed: breaks\": command: notify.command comes with the project and is not trusted";
    assert!(said.stderr.contains(words), "{said:?}");
    assert!(world.everything().backlog.outbox.is_empty());
}

/// One request after the other, each with its answer.
pub(crate) fn serve(path: &str, answers: &'static [&'static str]) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}{path}", listener.local_addr().unwrap());
    let hear = move |answer: &&str| {
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = Vec::new();
        while !String::from_utf8_lossy(&heard).ends_with('}') {
            let mut piece = [0; 1_024];
            let length = stream.read(&mut piece).unwrap();
            assert_ne!(length, 0);
            heard.extend_from_slice(&piece[..length]);
        }
        write!(stream, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        String::from_utf8(heard).unwrap()
    };
    (url, std::thread::spawn(move || answers.iter().map(hear).collect()))
}

#[test]
fn a_webhook_that_is_busy_hears_the_same_again() {
    let world = World::new();
    let (url, server) = serve("/hook", &["500 Busy", "500 Busy", "200 Fine"]);
    let secret = world.path().join("secret");
    std::fs::write(&secret, "hunter2\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    for (key, value) in
        [("notify.webhook", &*url), ("notify.webhook_secret_file", secret.to_str().unwrap()), ("notify.on", "task_failed")]
    {
        world.ok(&["config", "set", "--user", key, value]);
    }
    // Another way, that works at once, is not taken again.
    world.ok(&["config", "set", "--user", "notify.command", KEEP]);
    world.add(&["breaks", "--run", "exit 3"]);
    assert_eq!(world.run_all(), 7, "it does not leave before people were told");
    let heard = server.join().unwrap();
    let header = |heard: &str, name: &str| {
        let head = heard.split("\r\n\r\n").next().unwrap().to_owned();
        let line = head.lines().find(|line| line.to_lowercase().starts_with(name)).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{heard}")).split_once(": ").unwrap().1.to_owned()
    };
    let deliveries: Vec<String> = heard.iter().map(|heard| header(heard, "x-banksman-delivery: ")).collect();
    assert!(deliveries.len() == 3 && deliveries.iter().all(|delivery| *delivery == deliveries[0]), "{deliveries:?}");
    for heard in &heard {
        let body = heard.split_once("\r\n\r\n").unwrap().1;
        let notice: Value = serde_json::from_str(body).unwrap();
        assert_eq!((&notice["kind"], &notice["subject"]), (&"task_failed".into(), &"failed: breaks".into()));
        let signature = format!("sha256={}", digest::hmac_sha256(b"hunter2", body.as_bytes()));
        assert_eq!(header(heard, "x-banksman-signature: "), signature);
    }
    assert_eq!(notices(&world).len(), 1);
    assert!(world.everything().backlog.outbox.is_empty() && open(&world).is_empty());
}

/// A command that fails would fail again; only what may be mended by itself is tried five times.
#[test]
fn what_cannot_be_told_is_asked_about_once() {
    let world = world(&format!("echo x >> tries; test -e mended && {KEEP}"));
    world.ok(&["config", "set", "--user", "notify.on", "task_failed,decision"]);
    world.add(&["one", "--run", "exit 3"]);
    world.add(&["two", "--run", "exit 4"]);
    let _runner = world.runner(&[]);
    until("both are asked about", || world.everything().backlog.decisions.len() == 2);
    assert_eq!((world.read("tries").lines().count(), notices(&world).len()), (2, 0), "nobody is told that nobody can be told");
    let decision = |title: &str| {
        let of_it = |it: &Value| it["question"].as_str().unwrap().contains(&format!("tell people: failed: {title} ("));
        open(&world).into_iter().find(of_it).unwrap_or_else(|| panic!("{:?}", open(&world)))
    };
    let (one, two) = (decision("one"), decision("two"));
    assert!(one["question"].as_str().unwrap().starts_with("It was tried once in vain to tell people"), "{one}");
    assert_eq!((&one["task"], one["errand"].is_number(), &one["recommended"]), (&Value::Null, true, &1.into()));
    world.touch("mended");
    world.ok(&["decisions", "resolve", one["id"].as_str().unwrap(), "1"]);
    world.ok(&["decisions", "resolve", two["id"].as_str().unwrap(), "2"]);
    until("nothing is left to tell", || world.everything().backlog.outbox.is_empty());
    assert_eq!(notices(&world), ["task_failed failed: one: exit status 3"]);
    assert!(open(&world).is_empty());
}
