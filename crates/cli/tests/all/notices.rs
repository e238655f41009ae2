//! Notifications that runners send to people: once each, and only of the kinds that are enabled.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use banksman_adapters::digest;
use serde_json::Value;

use crate::loops::row;
use crate::tasks::wait_for;
use crate::world::{World, until};

/// A command that writes each notification to a file of its own.
const KEEP: &str = "cat > notice-$$.new && mv notice-$$.new notice-$$.json";

/// A world whose user is notified by this command.
fn world(command: &str) -> World {
    let world = World::new();
    world.ok(&["config", "set", "--user", "notify.command", command]);
    for (key, value) in [("task.silence_timeout", "1s"), ("task.max_recovery_attempts", "0"), ("task.kill_grace", "200ms")] {
        world.ok(&["config", "set", key, value]);
    }
    world
}

/// `kind subject: text` of all notifications, sorted.
fn notices(world: &World) -> Vec<String> {
    let files = std::fs::read_dir(world.path()).unwrap().flatten().map(|file| file.file_name().into_string().unwrap());
    let mut sent: Vec<String> = files
        .filter(|name| name.starts_with("notice-") && name.ends_with(".json"))
        .map(|name| {
            let notice: Value = serde_json::from_str(&world.read(&name)).unwrap();
            assert_eq!(notice["project"], world.path().canonicalize().unwrap().to_str().unwrap());
            let word = |key: &str| notice[key].as_str().unwrap().to_owned();
            format!("{} {}: {}", word("kind"), word("subject"), word("text"))
        })
        .collect();
    sent.sort();
    sent
}

fn open(world: &World) -> Vec<Value> {
    world.data(&["decisions", "list"])["decisions"].as_array().unwrap().clone()
}

#[test]
fn each_event_is_notified_once() {
    let world = world(KEEP);
    world.add(&["breaks", "--run", "exit 3", "--retries", "2"]);
    let silent = world.add(&["silent", "--run", "sleep 600"]);
    world.add(&["works", "--run", "true"]);
    assert_eq!(world.run_all(), 7);
    let sent = notices(&world);
    let banksman_core::task::State::AwaitingDecision { decision } = row(&world, &silent).state else { panic!("{sent:?}") };
    let question = world.data(&["decisions", "show", decision.as_str()])["question"].as_str().unwrap().to_owned();
    let expected = [
        "backlog_finished nothing is left to do: Tasks: 1 blocked, 1 completed, 1 failed.".to_owned(),
        format!("escalate decision {decision} waits for you: {question}"),
        "task_failed failed: breaks: exit status 3".into(),
    ];
    assert_eq!(sent, expected);
    assert!(world.everything().backlog.outbox.is_empty());
    // A decision that fails the task sends a notification of the failure, too.
    world.ok(&["decisions", "resolve", decision.as_str(), "2"]);
    assert_eq!(world.run_all(), 7);
    let sent = notices(&world);
    let failed = format!("task_failed failed: silent: marked as failed by decision {decision}");
    assert_eq!(sent.iter().filter(|notice| **notice == failed).count(), 1, "{sent:?}");
}

#[test]
fn the_finished_backlog_is_notified_once_by_several_runners() {
    let world = world(KEEP);
    let finished = || notices(&world).iter().filter(|notice| notice.starts_with("backlog_finished ")).count();
    // Without completed work there is no notification.
    assert_eq!((world.run_all(), finished()), (0, 0));
    for number in 0..6 {
        world.add(&[&format!("n{number}"), "--run", "sleep 0.05"]);
    }
    let runners = [world.runner(&[]), world.runner(&[])];
    until("it is sent", || finished() == 1);
    until("nothing is left to tell", || world.everything().backlog.outbox.is_empty());
    drop(runners);
    for _ in 0..2 {
        assert_eq!(world.run_all(), 0);
    }
    assert_eq!(finished(), 1, "not again for the same");
    assert_eq!(world.count("backlog:finished"), 1);
    // Manual tasks do not delay the notification, and more work leads to another one.
    world.add(&["for people"]);
    world.add(&["more", "--run", "true"]);
    assert_eq!(world.run_all(), 7, "one is not over");
    assert_eq!(finished(), 2);
}

#[test]
fn report_notify_adds_the_report_to_the_finished_notification() {
    let world = world(KEEP);
    world.add(&["works", "--run", "true"]);
    world.add(&["breaks, sometimes", "--run", "exit 3"]);
    let finished = || notices(&world).into_iter().filter(|notice| notice.starts_with("backlog_finished ")).collect::<Vec<_>>();
    world.run_all();
    assert_eq!(finished(), ["backlog_finished nothing is left to do: Tasks: 1 completed, 1 failed."]);
    world.ok(&["config", "set", "report.notify", "on"]);
    world.add(&["more", "--run", "true"]);
    world.run_all();
    let sent = finished();
    let report = sent.iter().find(|notice| notice.contains("Tasks: 2 completed, 1 failed.\n\n## Report, ")).unwrap();
    for line in ["### Completed (2)", "- works (", "- more (", "### Failed (1)", "- breaks, sometimes ("] {
        assert!(report.contains(line), "{report}");
    }
    assert!(report.ends_with("): exit status 3"), "{report}");
}

#[test]
fn sent_and_pending_notifications_move_with_the_project() {
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
fn a_backlog_is_not_finished_while_a_task_runs_or_rests() {
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
    let sent = notices(&world);
    let finished = "backlog_finished nothing is left to do: Tasks: 2 completed, 1 failed.".to_owned();
    assert_eq!((sent.len(), sent.contains(&finished)), (2, true), "{sent:?}");
}

#[test]
fn events_without_a_runner_are_notified_by_the_next_runner() {
    let world = world(KEEP);
    world.add(&["by hand"]);
    world.ok(&["tasks", "fail", "by hand", "--error", "nobody answers"]);
    assert_eq!((notices(&world).len(), world.everything().backlog.outbox.len()), (0, 1));
    assert_eq!(world.run_all(), 7);
    let sent = notices(&world);
    assert_eq!(sent.iter().filter(|notice| *notice == "task_failed failed: by hand: nobody answers").count(), 1, "{sent:?}");
    assert!(world.everything().backlog.outbox.is_empty());
}

#[test]
fn only_enabled_kinds_are_notified() {
    for (wanted, expected) in [("task_failed", vec!["task_failed"]), ("escalate, decision", vec!["escalate"]), ("", vec![])] {
        let world = world(KEEP);
        world.ok(&["config", "set", "--user", "notify.on", wanted]);
        world.add(&["breaks", "--run", "exit 3"]);
        world.add(&["silent", "--run", "sleep 600"]);
        assert_eq!(world.run_all(), 7);
        let sent = notices(&world);
        let kinds: Vec<&str> = sent.iter().map(|notice| notice.split(' ').next().unwrap()).collect();
        assert_eq!(kinds, expected);
        assert!(world.everything().backlog.outbox.is_empty());
    }
}

#[test]
fn an_untrusted_notify_command_is_reported_by_the_runner() {
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

/// Serves one request after the other, each with its answer. Returns the URL, and the requests when all are served.
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
fn a_busy_webhook_gets_the_same_delivery_again() {
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
    // The other channel succeeds at once, and is not repeated.
    world.ok(&["config", "set", "--user", "notify.command", KEEP]);
    world.add(&["breaks", "--run", "exit 3"]);
    assert_eq!(world.run_all(), 7, "it does not leave before people were notified");
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

/// A command that fails would fail again, so it is tried once; only failures that may pass are tried five times.
#[test]
fn a_failed_notification_raises_one_decision() {
    let world = world(&format!("echo x >> tries; test -e mended && {KEEP}"));
    world.ok(&["config", "set", "--user", "notify.on", "task_failed,decision"]);
    world.add(&["one", "--run", "exit 3"]);
    world.add(&["two", "--run", "exit 4"]);
    let _runner = world.runner(&[]);
    until("both are asked about", || world.everything().backlog.decisions.len() == 2);
    assert_eq!((world.read("tries").lines().count(), notices(&world).len()), (2, 0), "a failed notification is not notified");
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
