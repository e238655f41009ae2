//! Random messages to agents whose sessions are killed: each is seen once, and no receipt claims more than is known.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::dice::Dice;
use crate::world::{BANKSMAN, World, until};

/// Reads its mailbox, then lines from stdin, and records them under the id of its run.
fn recorder() -> String {
    format!(
        r#"while :; do mail=$({BANKSMAN} mailbox read --json) || exit 1; printf '%s\n' "$mail" >> mail.$BANKSMAN_RUN
        case "$mail" in *'"messages":[]'*) break;; esac; done
        while read -r line; do
        if [ "$line" = end ]; then {BANKSMAN} tasks done $BANKSMAN_TASK; exit 0; fi; echo "$BANKSMAN_RUN $line" >> got; done; exit 1"#
    )
}

/// The answers that a run has read from its mailbox. An incomplete last line, of a killed run, counts as not seen.
fn answers(world: &World, run: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(world.path().join(format!("mail.{run}"))).unwrap_or_default();
    let bodies = |line: &str| {
        let value: Value = serde_json::from_str(line).ok()?;
        let messages = value["data"]["messages"].as_array().unwrap();
        Some(messages.iter().map(|message| message["body"].as_str().unwrap().to_owned()).collect())
    };
    text.lines().filter_map(bodies).collect()
}

/// The messages that each run has seen.
fn seen(world: &World) -> BTreeMap<String, Vec<String>> {
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in fs::read_to_string(world.path().join("got")).unwrap_or_default().lines() {
        let (run, text) = line.split_once(' ').unwrap();
        seen.entry(run.into()).or_default().push(text.into());
    }
    for file in fs::read_dir(world.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()) {
        if let Some(run) = file.strip_prefix("mail.") {
            seen.entry(run.into()).or_default().extend(answers(world, run).concat());
        }
    }
    seen
}

/// Kills the session of the task if it has read its mailbox. Returns whether it did.
fn kill_session(world: &World) -> bool {
    let sessions = world.data(&["sessions", "list"])["sessions"].clone();
    let (Some(run), Some(pid)) = (sessions[0]["run"].as_str(), sessions[0]["childPid"].as_i64()) else { return false };
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // The session may have ended since.
    answers(world, run).last().is_some_and(Vec::is_empty) && rustix::process::kill_process(pid, Signal::KILL).is_ok()
}

/// Senders, sessions and runners are killed at random moments: no run sees a message twice, every message that counts as read was seen, and
/// no message whose sender succeeded is lost.
#[expect(clippy::print_stderr, reason = "the figures of a long run are wanted")]
fn random_dispatches(count: u32, seed: u64) {
    let world = World::new();
    let task =
        ["tasks", "add", "Job", "--run", &recorder(), "--input", "--loop", "--restart-delay", "0s", "--max-attempts", "100000"];
    world.ok(&task);
    let mut runner = world.start(&["run", "--until-idle"]);
    let mut dice = Dice::new(seed);
    // The duration of one send, so that kills hit its start, its post, its dispatch and its end.
    let began = Instant::now();
    world.ok(&["send", "Job", "first"]);
    let usual = u64::try_from(began.elapsed().as_micros()).unwrap();
    let (mut senders, mut accepted, mut kills) = (Vec::new(), BTreeSet::new(), 0);
    for number in 0..count {
        let (text, id) = (format!("m{number}"), format!("m-{number}"));
        let sender = world.start(&["send", "Job", &text, "--id", &id]);
        match dice.roll(5) {
            0 => match sender.kill_after(Duration::from_micros(1 + dice.roll(2 * usual))) {
                Some(0) => drop(accepted.insert(number)),
                Some(code) => panic!("a sender has ended with {code}"),
                None => kills += 1,
            },
            _ => senders.push((number, sender)),
        }
        if senders.len() < 6 && number + 1 < count {
            continue;
        }
        for (number, sender) in senders.drain(..) {
            // A sender succeeds whatever happens to sessions and runners.
            let said = sender.end();
            assert_eq!(said.code, 0, "{said:?}");
            accepted.insert(number);
        }
        if dice.roll(4) == 0 {
            kills += usize::from(kill_session(&world));
        }
        if dice.roll(10) == 0 {
            runner.signal(Signal::KILL);
            runner = world.start(&["run", "--until-idle"]);
        }
    }
    // Messages that wait in the mailbox go to the next run.
    until("a run has fetched every message", || {
        let open = world.data(&["mailbox", "list", "--task", "Job"])["messages"].clone();
        let is_queued = open.as_array().unwrap().iter().any(|message| message["receipt"] == "queued");
        kills += usize::from(is_queued && kill_session(&world));
        !is_queued
    });
    until("it is done", || {
        world.run(&["send", "Job", "end"]);
        world.data(&["tasks", "show", "Job"])["status"] == "completed"
    });
    runner.end();
    let held = world.data(&["locks", "list", "--held"])["locks"].clone();
    assert_eq!(held, serde_json::json!([]), "locks are left over");
    let seen = seen(&world);
    for (run, texts) in &seen {
        let mut texts: Vec<&String> = texts.iter().filter(|text| *text != "end").collect();
        texts.sort();
        assert!(texts.windows(2).all(|pair| pair[0] != pair[1]), "run {run} has seen a message twice: {texts:?}");
    }
    let bus = world.data(&["bus", "read"])["messages"].clone();
    let sent: Vec<&str> = bus.as_array().unwrap().iter().filter_map(|m| m["id"].as_str().unwrap().strip_prefix("m-")).collect();
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for number in 0..count {
        let (text, name) = (format!("m{number}"), number.to_string());
        let said = world.run(&["mailbox", "show", &format!("m-{number}"), "--json"]);
        let value: Value = serde_json::from_str(&said.stdout).unwrap();
        let receipt = value["data"]["receipt"].as_str().unwrap_or("not posted");
        let is_seen = seen.values().flatten().any(|seen| *seen == text);
        let on_bus = sent.iter().filter(|sent| **sent == name).count();
        let is_posted = receipt != "not posted";
        assert_eq!(on_bus, usize::from(is_posted), "m-{number} is {receipt}");
        assert!(is_posted || !accepted.contains(&number), "the sender of m-{number} succeeded, and the message is lost");
        assert!(is_posted || !is_seen, "m-{number} was seen, and it is not on the bus");
        assert!(receipt != "read" || is_seen, "m-{number} counts as read, and no run has seen it");
        *ends.entry(receipt.into()).or_default() += 1;
    }
    let of = |receipt: &str| ends.get(receipt).copied().unwrap_or(0);
    eprintln!("{count} dispatches, {kills} senders and sessions killed: {ends:?}");
    assert_eq!(of("read") + of("unknown") + of("not posted"), count as usize, "{ends:?}");
    assert!(of("unknown") <= kills, "more than were killed: {ends:?}");
}

#[test]
fn random_dispatches_are_seen_once() {
    random_dispatches(36, 1);
}

#[test]
#[ignore = "long: 1,000 dispatches"]
fn random_dispatches_are_seen_once_at_length() {
    random_dispatches(1_000, 2);
}
