//! Claims that wait: stopped processes, one holder name twice, reservations, circles, and the cost of a wait.

use rustix::process::Signal;
use serde_json::Value;

use crate::claims::{UNTIL_GO, section, take, taking, until_waiting, waiting};
use crate::world::{BANKSMAN, World, until};

/// A holder name never blocks itself: a second wait under one name, or another one after a kill, waits.
#[test]
fn waits_under_one_holder_name_are_no_deadlock() {
    let world = World::new();
    world.add(&["T", "--lock", "dep"]);
    world.add(&["T2", "--lock", "dep"]);
    take(&world, "T", "ann");
    let killed = taking(&world, "T", "bob");
    until_waiting(&world, 1);
    killed.signal(Signal::KILL);
    killed.end();
    let one = taking(&world, "T", "bob");
    until_waiting(&world, 2);
    let two = taking(&world, "T2", "bob");
    until_waiting(&world, 3);
    let plain = world.start(&["locks", "acquire", "dep", "--holder", "bob"]);
    until("it waits", || world.snapshot().coordination.locks["dep"].waiters.len() == 1);
    let late = taking(&world, "T2", "bob");
    until_waiting(&world, 4);
    world.ok(&["tasks", "done", "T", "--holder", "ann"]);
    // Each wait ends: the first one because the task is over, the others get the lock one after the other.
    assert_ne!(one.end().code, 9);
    for _ in 0..2 {
        until("it is taken", || world.holder("dep").is_some());
        match world.status("T2").as_str() {
            "in_progress" => drop(world.ok(&["tasks", "done", "T2", "--holder", "bob"])),
            _ => drop(world.ok(&["locks", "release", "dep", "--force"])),
        }
    }
    for said in [two.end(), plain.end(), late.end()] {
        assert_ne!(said.code, 9, "{said:?}");
    }
}

/// A stopped process keeps its place, but does not keep others from the resource that it was woken for.
#[test]
fn a_stopped_waiter_of_a_section_is_passed_over() {
    // On a server, a waiter without heartbeats loses its place.
    let Some(world) = World::only_on_sqlite() else { return };
    section(&world, "db");
    world.add(&["one", "--section", "db", "--run", UNTIL_GO]);
    world.add(&["two", "--section", "db", "--run", "true"]);
    world.add(&["mine", "--section", "db"]);
    let _runner = world.start(&["run", "--quiet", "--max-runs", "1"]);
    until("it runs", || world.has("begun"));
    let alice = taking(&world, "mine", "alice");
    until_waiting(&world, 1);
    alice.stop_outside_transaction(&world);
    world.touch("go");
    world.until_status("one", "completed");
    let why = world.ok(&["why", "two"]);
    assert!(why.contains("its exclusive section db is reserved for alice") && why.contains("try: "), "{why}");
    world.until_status("two", "completed");
    let found = world.ok(&["doctor"]);
    assert!(found.contains("has not answered for") && found.contains(&format!("kill -CONT {}", alice.pid())), "{found}");
    let why = world.ok(&["why", "mine"]);
    assert!(why.contains("alice waits for the task") && why.contains(&format!("try: kill -CONT {}", alice.pid())), "{why}");
    let unanswered = world.data(&["why", "mine"])["unanswered"].clone();
    assert_eq!(unanswered.as_array().unwrap().len(), 1, "{unanswered}");
    assert_eq!((&unanswered[0]["holder"], &unanswered[0]["pid"]), (&"alice".into(), &alice.pid().into()));
    assert!(unanswered[0]["since"].as_str().unwrap().ends_with('Z'), "{unanswered}");
    assert_eq!(world.data(&["why", "two"])["unanswered"], Value::Array(Vec::new()), "the same keys for each");
    alice.signal(Signal::CONT);
    assert_eq!(alice.end().code, 0, "the claim has kept its place");
    assert_eq!(world.status("mine"), "in_progress");
}

/// Several stopped processes delay the waiters of a lock by two turns of claims at most, also without a runner.
#[test]
fn stopped_claimants_are_passed_over_by_waiters_of_a_lock() {
    let Some(world) = World::only_on_sqlite() else { return };
    world.ok(&["config", "set", "locking.overtake", "0s"]);
    let hold = |holder: &str| world.data(&["locks", "acquire", "dep", "--holder", holder, "--no-wait"])["epoch"].to_string();
    let epoch = hold("x");
    let mut stopped = Vec::new();
    for (index, task) in ["one", "two", "three"].into_iter().enumerate() {
        world.add(&[task, "--lock", "dep"]);
        stopped.push(taking(&world, task, &format!("{task}-taker")));
        until_waiting(&world, index + 1);
        stopped[index].stop_outside_transaction(&world);
    }
    let carl = world.start(&["locks", "acquire", "dep", "--holder", "carl", "--json"]);
    world.until_waiters("dep", 1);
    world.ok(&["locks", "release", "dep", "--holder", "x", "--epoch", &epoch]);
    until("carl has it", || world.holder("dep").is_some_and(|holder| holder.as_str() == "carl"));
    let said = carl.end();
    assert_eq!(said.code, 0, "{said:?}");
    let found = world.ok(&["doctor"]);
    assert!(stopped.iter().all(|process| found.contains(&format!("kill -CONT {}", process.pid()))), "{found}");
    // The stopped processes have kept their places.
    stopped.iter().for_each(|process| process.signal(Signal::CONT));
    world.ok(&["locks", "release", "dep", "--force"]);
    for (process, task) in stopped.into_iter().zip(["one", "two", "three"]) {
        assert_eq!(process.end().code, 0, "{task} comes before those after it");
        world.ok(&["tasks", "done", task, "--holder", &format!("{task}-taker")]);
    }
}

/// A9: a person who waits for a section gets it after the current task, however many more tasks are ready there.
#[test]
fn a_person_who_waits_for_a_section_gets_it_after_the_current_task() {
    let world = World::new();
    section(&world, "db");
    for title in ["one", "two", "three"] {
        world.add(&[title, "--section", "db", "--run", UNTIL_GO]);
    }
    world.add(&["mine", "--section", "db"]);
    let _runner = world.start(&["run", "--quiet", "--max-runs", "1"]);
    until("it runs", || world.has("begun"));
    let ann = taking(&world, "mine", "ann");
    until_waiting(&world, 1);
    let why = world.data(&["why", "two"]);
    let reserved = why["reasons"].as_array().unwrap().iter().find(|reason| reason["kind"] == "reserved");
    let message = reserved.and_then(|reason| reason["message"].as_str()).unwrap_or_default();
    assert!(message.starts_with("its exclusive section db is reserved for ann, waiting for "), "{why}");
    world.touch("go");
    assert_eq!(ann.end().code, 0);
    let completed = |world: &World| world.data(&["tasks", "list", "--status", "completed"])["tasks"].as_array().unwrap().len();
    assert_eq!(completed(&world), 1, "nothing further was started");
    world.ok(&["tasks", "done", "mine", "--holder", "ann"]);
    until("the others follow", || completed(&world) == 4);
}

/// E8: runs that wait for each other's tasks are refused, also in a circle of three.
#[test]
fn runs_that_wait_for_each_other_are_refused() {
    let world = World::new();
    let wait = |title: &str, on: &str| {
        let command = format!(
            "touch {title}; until test -e go; do sleep 0.02; done; {BANKSMAN} tasks wait {on} > {title}.out 2>&1; echo $? > {title}.code"
        );
        world.add(&[title, "--run", &command]);
    };
    wait("a", "b");
    wait("b", "c");
    wait("c", "a");
    let _runner = world.start(&["run", "--until-idle", "--quiet"]);
    until("all run", || ["a", "b", "c"].iter().all(|title| world.path().join(title).exists()));
    world.touch("go");
    let code = |title: &str| std::fs::read_to_string(world.path().join(format!("{title}.code"))).unwrap_or_default();
    until("all have ended", || ["a", "b", "c"].iter().all(|title| code(title).ends_with('\n')));
    let mut codes = ["a", "b", "c"].map(|title| code(title).trim().to_owned());
    codes.sort();
    assert_eq!(codes, ["0", "0", "9"], "one of them was refused, and the others went on");
}

/// A resource that is reserved for a waiting claim is granted only to that claim or to a holder of what the claim waits for.
#[test]
fn free_resources_are_reserved_for_a_claim_that_was_overtaken_too_long() {
    let world = World::new();
    world.ok(&["config", "set", "locking.overtake", "0s"]);
    world.add(&["T", "--lock", "one", "--lock", "two"]);
    let hold = |lock: &str, holder: &str| {
        world.data(&["locks", "acquire", lock, "--holder", holder, "--ttl", "60s", "--no-wait"])["epoch"].to_string()
    };
    let one = hold("one", "x");
    let ann = taking(&world, "T", "ann");
    until_waiting(&world, 1);
    // The lock is free but reserved; a holder of what the claim waits for may still take it, as it must not wait for the claim.
    let (code, error) = world.error(&["locks", "acquire", "two", "--holder", "y", "--no-wait"]);
    assert_eq!((code, error["message"].as_str().unwrap().contains("reserved for ann")), (6, true), "{error}");
    let waits = world.start(&["locks", "acquire", "two", "--holder", "z"]);
    world.until_waiters("two", 1);
    let two = hold("two", "x");
    world.add(&["needs", "--lock", "two", "--run", "true"]);
    world.ok(&["locks", "release", "two", "--holder", "x", "--epoch", &two]);
    let why = world.data(&["why", "needs"]).to_string();
    assert!(why.contains("reserved for ann"), "{why}");
    assert_eq!(world.waiters("two").len(), 1, "the lock is not offered to the waiter either");
    world.ok(&["locks", "release", "one", "--holder", "x", "--epoch", &one]);
    assert_eq!(ann.end().code, 0);
    assert_eq!(world.holder("two").unwrap().as_str(), "ann");
    world.ok(&["tasks", "done", "T", "--holder", "ann"]);
    assert_eq!(waits.end().code, 0, "then the waiter gets the lock");
}

/// A circle through claims is refused like one through waiters of locks.
#[test]
fn a_claim_that_closes_a_circle_is_refused() {
    let world = World::new();
    world.add(&["T", "--lock", "db"]);
    take(&world, "T", "ann");
    let mine = world.data(&["locks", "acquire", "mine", "--holder", "bob", "--ttl", "60s"])["epoch"].to_string();
    let bob = taking(&world, "T", "bob");
    until_waiting(&world, 1);
    world.assert_refused(&["locks", "acquire", "mine", "--holder", "ann"], 9, "DEADLOCK");
    // The other way round: the waiter of a lock is there first, and the claim closes the circle.
    let line = world.start(&["locks", "acquire", "mine", "--holder", "eve"]);
    world.until_waiters("mine", 1);
    world.add(&["U", "--lock", "other"]);
    let other = world.data(&["locks", "acquire", "other", "--holder", "eve", "--ttl", "60s"])["epoch"].to_string();
    world.assert_refused(&["tasks", "take", "U", "--holder", "bob"], 9, "DEADLOCK");
    assert_eq!(waiting(&world), 1);
    world.ok(&["locks", "release", "mine", "--holder", "bob", "--epoch", &mine]);
    world.ok(&["locks", "release", "other", "--holder", "eve", "--epoch", &other]);
    assert_eq!(line.end().code, 0);
    assert_eq!((bob.interrupt().code, waiting(&world)), (130, 0));
}

/// The cost of a wait: a person's claim of a task with a section, a lock and slots commits at most twice more than a plain lock.
#[test]
fn a_claim_that_waits_commits_at_most_twice_more_than_a_plain_lock() {
    let world = World::on_sqlite();
    // Waiters ask again only when they are woken.
    world.ok(&["config", "set", "locking.poll_interval", "10m"]);
    world.ok(&["semaphores", "define", "gpu", "--capacity", "2"]);
    section(&world, "db");
    world.add(&["T", "--section", "db", "--lock", "deploy", "--semaphore", "gpu=2"]);
    let hold = ["locks", "acquire", "plain", "--holder", "ann", "--ttl", "60s"];
    let epoch = world.data(&hold)["epoch"].to_string();
    take(&world, "T", "ann");
    // Closing the store for the last time would remove the counter.
    let open = world.project().reader().unwrap();
    let before = commits(&world);
    let bob = world.start(&["locks", "acquire", "plain", "--holder", "bob", "--ttl", "60s"]);
    world.until_waiters("plain", 1);
    world.ok(&["locks", "release", "plain", "--holder", "ann", "--epoch", &epoch]);
    assert_eq!(bob.end().code, 0);
    let of_lock = commits(&world) - before;
    let before = commits(&world);
    let bob = taking(&world, "T", "bob");
    until_waiting(&world, 1);
    world.ok(&["tasks", "release", "T", "--holder", "ann"]);
    assert_eq!(bob.end().code, 0);
    let of_claim = commits(&world) - before;
    assert_eq!(of_lock, 3, "to join the waiters, to release, to take up the offer");
    assert!((of_lock..=of_lock + 2).contains(&of_claim), "{of_claim} commits of the claim, {of_lock} of the lock");
    drop(open);
}

/// The number of commits: the third word of SQLite's WAL index is a counter. Another process reads it, because closing the file
/// here would drop the locks that the connections of this process hold on it.
fn commits(world: &World) -> u64 {
    let index = world.path().join(".banksman/store.db-shm");
    let read = std::process::Command::new("od").args(["-A", "n", "-t", "u4", "-j", "8", "-N", "4"]).arg(index).output().unwrap();
    String::from_utf8(read.stdout).unwrap().trim().parse().unwrap()
}
