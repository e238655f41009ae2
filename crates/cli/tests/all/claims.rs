//! One claim of everything that a task needs: granted in one transaction or not at all, renewed and ended as a whole.

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::screen::Screen;
use crate::world::{BANKSMAN, Running, World, until};

pub(crate) const UNTIL_GO: &str = "touch begun; until test -e go; do sleep 0.02; done";

pub(crate) fn section(world: &World, name: &str) -> String {
    format!("section:{}", world.data(&["sections", "add", name, "--exclusive"])["id"].as_str().unwrap())
}

pub(crate) fn take(world: &World, task: &str, holder: &str) -> Value {
    world.data(&["tasks", "take", task, "--holder", holder, "--no-wait"])
}

/// Takes a task in the background.
pub(crate) fn taking(world: &World, task: &str, holder: &str) -> Running {
    world.start(&["tasks", "take", task, "--holder", holder])
}

/// The number of claims that wait.
pub(crate) fn waiting(world: &World) -> usize {
    world.snapshot().coordination.claims.values().filter(|claim| claim.waits().is_some()).count()
}

pub(crate) fn until_waiting(world: &World, number: usize) {
    until(&format!("{number} claims wait"), || waiting(world) == number);
}

/// Asserts that no lock or slot is held and no claim exists.
fn assert_nothing_is_held(world: &World) {
    let snapshot = world.snapshot();
    let held: Vec<_> =
        snapshot.coordination.locks.values().filter(|lock| lock.state != banksman_core::resource::lock::State::Free).collect();
    assert!(held.is_empty(), "{held:#?}");
    assert!(snapshot.coordination.claims.is_empty(), "{:#?}", snapshot.coordination.claims);
    assert!(snapshot.coordination.semaphores.values().all(|semaphore| semaphore.holders.is_empty()));
}

/// A1: a waiting person, a stopped runner and the next one: adoption goes before manual work, and a wait that times out leaves nothing.
#[test]
fn the_section_of_a_stopped_runner_goes_to_its_run_then_to_the_waiter() {
    let world = World::new();
    let db = section(&world, "db");
    world.add(&["Migrate", "--section", "db", "--run", UNTIL_GO]);
    let review = world.add(&["Review", "--section", "db"]);
    let runner = world.start(&["run", "--quiet"]);
    until("it runs", || world.has("begun"));
    let run = world.holder(&db).unwrap();
    assert!(run.as_str().starts_with("run:"), "{run}");
    // A wait that times out names the holder, and leaves nothing behind.
    for late in [&["tasks", "take", "Review"][..], &["tasks", "update", "Review", "--status", "in_progress"]] {
        let late = [late, &["--holder", "bob", "--timeout", "50ms"]].concat();
        let details = world.assert_refused(&late, 6, "WAIT_TIMEOUT")["details"].clone();
        assert_eq!((&details["taskId"], &details["lockedBy"]), (&review.as_str().into(), &run.as_str().into()), "{details}");
        assert_eq!((details["lock"].as_str(), waiting(&world)), (Some(db.as_str()), 0), "{details}");
    }
    let alice = taking(&world, "Review", "alice");
    until_waiting(&world, 1);
    runner.interrupt();
    let late = ["tasks", "take", "Review", "--holder", "bob", "--timeout", "50ms"];
    world.assert_refused(&late, 6, "WAIT_TIMEOUT");
    assert_eq!((world.holder(&db), waiting(&world)), (Some(run.clone()), 1), "the run lives, so the section is its own");
    let next = world.start(&["run", "--quiet"]);
    until("it is adopted", || world.events().iter().any(|event| event.kind == "task:adopted"));
    world.touch("go");
    let said = alice.end();
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(world.holder(&db).unwrap().as_str(), "alice");
    world.until_status("Migrate", "completed");
    world.ok(&["tasks", "done", "Review", "--holder", "alice"]);
    assert_eq!(next.stop().code, 0);
    assert_nothing_is_held(&world);
}

/// A2 and A8: a wait that ends by time-out, Ctrl-C, kill -9 or a deleted task leaves nothing behind; the timeout covers the entire wait.
#[test]
fn an_abandoned_wait_holds_nothing() {
    let world = World::new();
    section(&world, "db");
    let (first, second) = (world.add(&["T", "--section", "db"]), world.add(&["T2", "--section", "db"]));
    take(&world, "T", "ann");
    take(&world, "T2", "ann");
    let start = std::time::Instant::now();
    let waits = world.start(&["tasks", "take", "T", "--holder", "bob", "--timeout", "600ms"]);
    until_waiting(&world, 1);
    // The lock of the task is free now, the section is not.
    world.ok(&["tasks", "release", "T", "--holder", "ann"]);
    let said = waits.end();
    assert_eq!(said.code, 6, "{said:?}");
    assert!(start.elapsed() < std::time::Duration::from_millis(1_150), "{:?}", start.elapsed());
    let own = format!("task:{first}");
    assert_eq!((world.holder(&own), waiting(&world)), (None, 0));
    let interrupted = taking(&world, "T", "bob");
    until_waiting(&world, 1);
    assert_eq!((interrupted.interrupt().code, waiting(&world)), (130, 0));
    assert_eq!(world.holder(&own), None);
    let deleted = taking(&world, "T", "bob");
    until_waiting(&world, 1);
    world.ok(&["tasks", "delete", "T"]);
    assert_eq!((deleted.end().code, waiting(&world)), (4, 0));
    assert_eq!(world.holder(&own), None);
    let late = ["tasks", "take", "T2", "--holder", "bob", "--timeout", "50ms"];
    let details = world.assert_refused(&late, 6, "WAIT_TIMEOUT")["details"].clone();
    assert_eq!((&details["taskId"], &details["lockedBy"]), (&second.as_str().into(), &"ann".into()), "{details}");
    assert!(details["expiresAt"].as_str().is_some_and(|time| time.ends_with('Z')), "{details}");
    let killed = taking(&world, "T2", "bob");
    until_waiting(&world, 1);
    assert!(
        world
            .ok(&["locks", "cleanup"])
            .contains("1 claim waits; all holders are alive and within their leases, and all waiting processes are alive")
    );
    killed.signal(Signal::KILL);
    killed.end();
    // The doctor reports the wait of a dead process, and cleanup removes it.
    let found = world.ok(&["doctor"]);
    assert!(found.contains(&format!("wait for task {second} of bob: its process is dead")), "{found}");
    let would = world.data(&["locks", "cleanup", "--dry-run"]);
    assert_eq!((&would["removedWaits"][0]["holder"], waiting(&world)), (&"bob".into(), 1));
    assert_eq!(world.data(&["locks", "cleanup"])["removedWaits"][0]["task"], second.as_str());
    assert_eq!(waiting(&world), 0);
    let killed = taking(&world, "T2", "bob");
    until_waiting(&world, 1);
    killed.signal(Signal::KILL);
    killed.end();
    assert!(world.ok(&["doctor", "--fix"]).contains("removed"));
    assert_eq!(waiting(&world), 0);
    let killed = taking(&world, "T2", "bob");
    until_waiting(&world, 1);
    killed.signal(Signal::KILL);
    killed.end();
    world.ok(&["tasks", "done", "T2", "--holder", "ann"]);
    let other = world.add(&["T3", "--section", "db"]);
    take(&world, "T3", "eve");
    assert_eq!(world.holder(&format!("task:{other}")).unwrap().as_str(), "eve", "the dead wait for nothing");
    world.ok(&["tasks", "done", "T3", "--holder", "eve"]);
    assert_eq!(world.holder(&format!("task:{second}")), None);
    // A live runner removes the wait of a dead process.
    let _runner = world.start(&["run", "--quiet"]);
    until("the dead claim is gone", || waiting(&world) == 0);
}

/// A8: one timeout covers the entire wait, whatever is released or changed meanwhile.
#[test]
fn the_timeout_of_a_wait_starts_once() {
    let wait = std::time::Duration::from_secs(3);
    // What happens shortly before the end, and leaves the task locked for another reason.
    let changes = [&["tasks", "release", "T", "--holder", "ann"][..], &["tasks", "update", "T", "--section", "other"]];
    std::thread::scope(|scope| {
        for change in changes {
            scope.spawn(move || {
                let world = World::new();
                // A waiter notices a change of the section by itself.
                world.ok(&["config", "set", "locking.poll_interval", "50ms"]);
                section(&world, "db");
                section(&world, "other");
                for (title, section, holder) in [("T", "db", "ann"), ("T2", "db", "ann"), ("T3", "other", "eve")] {
                    world.add(&[title, "--section", section]);
                    take(&world, title, holder);
                }
                if change[1] == "update" {
                    world.ok(&["tasks", "release", "T", "--holder", "ann"]);
                }
                let start = std::time::Instant::now();
                let bob = world.start(&["tasks", "take", "T", "--holder", "bob", "--timeout", "3s"]);
                until_waiting(&world, 1);
                until("the wait is nearly over", || start.elapsed() > wait - wait / 5);
                world.ok(change);
                let said = bob.end();
                assert_eq!((said.code, waiting(&world)), (6, 0), "{said:?}");
                assert!(start.elapsed() < wait + wait / 2, "{change:?}: {:?}", start.elapsed());
            });
        }
    });
}

/// A3 and A7: people claim the needs too; one heartbeat renews every part; the loss of a part ends the claim, and the holder gets an error.
#[test]
fn needs_are_renewed_and_ended_with_their_claim() {
    let world = World::new();
    world.ok(&["semaphores", "define", "gpu", "--capacity", "2"]);
    let db = section(&world, "db");
    let needs = ["--section", "db", "--lock", "deploy", "--semaphore", "gpu=2"];
    let id = world.add(&[&["deploy"], &needs[..]].concat());
    world.add(&["again", "--lock", "deploy"]);
    take(&world, "deploy", "ann");
    assert_eq!([world.holder("deploy"), world.holder(&db)].map(|holder| holder.unwrap().to_string()), ["ann", "ann"]);
    let slots = |world: &World| {
        world.snapshot().coordination.semaphores["gpu"].holders.values().map(|grant| grant.claim.weight).sum::<u32>()
    };
    assert_eq!(slots(&world), 2);
    world.assert_refused(&["tasks", "take", "again", "--holder", "bob", "--no-wait"], 6, "NEED_LOCKED");
    // One heartbeat renews every part at the same moment.
    let beats = |world: &World| {
        let rows = world.snapshot().tables.coordination;
        let slots = rows.semaphores["gpu"].holders.values().map(|grant| grant.heartbeat.lease);
        let locks = ["deploy", &format!("task:{id}")].map(|lock| world.grant(lock).unwrap().heartbeat.lease);
        locks.into_iter().chain(slots).collect::<std::collections::BTreeSet<_>>()
    };
    let before = beats(&world);
    world.ok(&["tasks", "heartbeat", "deploy", "--holder", "ann"]);
    let after = beats(&world);
    assert_eq!((before.len(), after.len(), before < after), (1, 1, true), "{before:?} {after:?}");
    assert_eq!(world.grant(&db).unwrap().claim.ttl, None, "the section has no lease that could end before");
    // A part is taken away: the same transaction ends the claim and frees the other parts, and the next call of the holder fails.
    world.ok(&["locks", "release", "deploy", "--force"]);
    assert_eq!(world.status("deploy"), "pending");
    assert_nothing_is_held(&world);
    let (code, error) = world.error(&["tasks", "heartbeat", "deploy", "--holder", "ann"]);
    assert_eq!((code, &error["code"], &error["details"]["taskId"]), (8, &"CLAIM_LOST".into(), &id.as_str().into()));
    // The same holds for the loss of slots or of the section.
    take(&world, "deploy", "ann");
    world.ok(&["semaphores", "release", "gpu", "--holder", &format!("ann/{id}"), "--force"]);
    assert_eq!((world.status("deploy"), world.holder("deploy")), ("pending".into(), None));
    world.assert_refused(&["tasks", "done", "deploy", "--holder", "ann"], 8, "CLAIM_LOST");
    take(&world, "deploy", "ann");
    world.ok(&["locks", "release", &db, "--force"]);
    world.assert_refused(&["tasks", "release", "deploy", "--holder", "ann"], 8, "CLAIM_LOST");
    assert_nothing_is_held(&world);
}

/// A4: one command is one transaction.
#[test]
fn an_update_is_one_transaction() {
    let world = World::new();
    world.add(&["T"]);
    take(&world, "T", "ann");
    let both =
        ["tasks", "update", "T", "--status", "in_progress", "--priority", "7", "--title", "X", "--holder", "bob", "--no-wait"];
    world.assert_refused(&both, 6, "TASK_LOCKED");
    let done = ["tasks", "update", "T", "--status", "completed", "--priority", "7", "--title", "X", "--holder", "bob"];
    world.assert_refused(&done, 6, "TASK_LOCKED");
    assert_eq!(world.data(&["tasks", "show", "T"])["priority"], 0);
    world.ok(&["tasks", "release", "T", "--holder", "ann"]);
    let task = world.data(&both);
    assert_eq!((&task["title"], &task["priority"], &task["status"]), (&"X".into(), &7.into(), &"in_progress".into()));
}

/// A5 and A6: claimants are distinguished, a repeated take is recognized, and calls of a former holder are refused.
#[test]
fn a_claim_has_one_holder_and_only_its_epoch_ends_it() {
    let world = World::new();
    let id = world.add(&["T"]);
    // Outside of a run, a take needs a holder.
    world.assert_refused(&["tasks", "take", "T", "--no-wait"], 2, "USAGE");
    let update = ["tasks", "update", "T", "--status", "in_progress", "--no-wait"];
    for _ in 0..2 {
        world.assert_refused(&update, 2, "USAGE");
    }
    let first = take(&world, "T", "ann");
    let again = take(&world, "T", "ann");
    assert_eq!((&first["outcome"], &again["outcome"]), (&"taken".into(), &"already_yours".into()));
    assert_eq!((&first["epoch"], &first["since"]), (&again["epoch"], &again["since"]));
    world.ok(&["tasks", "release", "T", "--holder", "ann"]);
    let update = [&update[..], &["--holder", "ann"]].concat();
    let (first, again) = (world.data(&update), world.data(&update));
    assert_eq!((&first["outcome"], &again["outcome"]), (&"taken".into(), &"already_yours".into()));
    assert_eq!((&first["byHand"]["epoch"], &first["changedAt"]), (&again["byHand"]["epoch"], &again["changedAt"]));
    let said = world.ok(&update);
    assert!(said.contains(&format!("T {id} is already yours, taken ")) && !said.contains("updated"), "{said}");
    let said = world.ok(&[&update[..], &["--priority", "3"]].concat());
    assert!(said.contains(&format!("updated T {id}, which is already yours, taken ")), "{said}");
    world.ok(&["tasks", "release", "T", "--holder", "ann"]);
    world.ok(&["config", "set", "locking.task_timeout", "100ms"]);
    let epoch = take(&world, "T", "ann")["epoch"].to_string();
    until("it has expired", || world.data(&["locks", "show", &id])["state"] == "expired");
    take(&world, "T", "bob");
    world.ok(&["tasks", "release", "T", "--holder", "bob"]);
    world.assert_refused(&["tasks", "done", "T", "--holder", "ann", "--epoch", &epoch], 8, "CLAIM_LOST");
    world.assert_refused(&["tasks", "done", "T", "--epoch", &epoch], 8, "FENCED");
    // While another holder has the task, the former one gets an error that does not invite it to act for the other.
    let epoch = take(&world, "T", "ann")["epoch"].to_string();
    until("it has expired", || world.data(&["locks", "show", &id])["state"] == "expired");
    world.ok(&["config", "set", "locking.task_timeout", "10m"]);
    let other = take(&world, "T", "bob")["epoch"].to_string();
    for late in [
        &["tasks", "heartbeat", "T", "--holder", "ann"][..],
        &["tasks", "done", "T", "--holder", "ann"],
        &["tasks", "update", "T", "--status", "completed", "--holder", "ann"],
        &["tasks", "release", "T", "--holder", "ann", "--epoch", &epoch],
    ] {
        let (code, error) = world.error(late);
        assert_eq!((code, &error["code"]), (8, &"CLAIM_LOST".into()), "{late:?}: {error}");
        assert!(error["message"].as_str().unwrap().contains("bob has taken the task since"), "{error}");
        assert!(!error.to_string().contains("--holder bob"), "{error}");
    }
    let (code, error) = world.error(&["tasks", "done", "T", "--holder", "eve", "--epoch", "1"]);
    assert_eq!((code, &error["code"]), (8, &"FENCED".into()), "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("epoch 1 is not that of the current claim of") && message.contains("(held by bob for "),
        "{message}"
    );
    world.ok(&["tasks", "release", "T", "--holder", "bob", "--epoch", &other]);
    world.assert_refused(&["tasks", "done", "T", "--holder", "ann"], 8, "CLAIM_LOST");
    // The loss was reported once; another call means that the caller knows the task is unclaimed.
    assert_eq!(world.status("T"), "pending");
    world.ok(&["tasks", "done", "T", "--holder", "ann"]);
    // Work on a task with unmet dependencies needs --anyway.
    world.add(&["first"]);
    world.add(&["then", "--depends-on", "first"]);
    for verb in ["take", "done"] {
        world.assert_refused(&["tasks", verb, "then", "--holder", "ann"], 2, "TASK_BLOCKED");
    }
    world.ok(&["tasks", "take", "then", "--holder", "ann", "--anyway"]);
    world.ok(&["tasks", "fail", "then", "--holder", "ann", "--error", "no"]);
    // A claim of a run ends with the run.
    world.add(&["other"]);
    world.add(&["run", "--run", &format!("{BANKSMAN} tasks take other --no-wait")]);
    let said = world.run(&["run", "--until-idle", "--quiet"]);
    assert_eq!(world.status("run"), "completed", "{said:?}");
    let taken = world.events().into_iter().rfind(|event| event.kind == "task:taken").unwrap();
    assert!(taken.data["holder"].as_str().unwrap().starts_with("run:"), "{taken:?}");
    assert_eq!(world.status("other"), "pending");
    assert_nothing_is_held(&world);
}

/// A5: without a name, the claimant is the user on the terminal of the command.
#[test]
fn claimants_on_two_terminals_are_distinguished() {
    let world = World::new();
    let (first, second) = (world.add(&["First"]), world.add(&["Second"]));
    let on_terminal = |commands: &str| {
        let script = commands.replace("take", &format!("{BANKSMAN} tasks take"));
        let mut screen = Screen::of(world.clean(Command::new("sh"), &["-c", &script]), 20, 200);
        let status = screen.wait();
        (screen, status.code())
    };
    // A terminal keeps its number for as long as its screen lives.
    let (screen, code) = on_terminal("take First --no-wait && take First --no-wait");
    assert!(code == Some(0) && screen.text().contains("is already yours"), "{}", screen.text());
    let (other, code) = on_terminal("take Second --no-wait && take First --no-wait");
    assert!(code == Some(6) && other.text().contains("is locked by"), "{}", other.text());
    let holders = [first, second].map(|id| world.holder(&format!("task:{id}")).unwrap().to_string());
    assert!(holders.iter().all(|holder| holder.contains("@pts/")) && holders[0] != holders[1], "{holders:?}");
}

/// A6: no status ends a claim in the name of an earlier one of the same holder.
#[test]
fn an_update_with_the_epoch_of_an_earlier_claim_is_fenced() {
    let world = World::new();
    let id = world.add(&["T"]);
    let earlier = take(&world, "T", "ann")["epoch"].to_string();
    let update = |status: &str, epoch: &str| {
        let args = ["tasks", "update", "T", "--status", status, "--holder", "ann", "--epoch", epoch];
        args.map(str::to_owned)
    };
    let refused = |status: &str, exit: i32, code: &str| {
        let args = update(status, &earlier);
        for more in [&[][..], &["--priority", "9"]] {
            let args: Vec<&str> = args.iter().map(String::as_str).chain(more.iter().copied()).collect();
            world.assert_refused(&args, exit, code);
        }
    };
    world.ok(&["tasks", "release", "T", "--holder", "ann"]);
    let ends = ["completed", "failed", "pending", "review", "skipped"];
    // The claim is over, and there is no other one.
    for status in ends {
        refused(status, 8, "FENCED");
    }
    let own = format!("task:{id}");
    for status in ends {
        let epoch = take(&world, "T", "ann")["epoch"].to_string();
        refused(status, 8, "FENCED");
        assert_eq!((world.status("T"), world.grant(&own).unwrap().epoch.to_string()), ("in_progress".into(), epoch.clone()));
        assert_eq!(world.data(&update(status, &epoch).each_ref().map(String::as_str))["status"], status);
        world.ok(&["tasks", "retry", "T"]);
    }
    // An epoch that would be ignored is refused.
    take(&world, "T", "ann");
    for status in ["in_progress", "cancelled"] {
        refused(status, 2, "USAGE");
    }
    assert_eq!(world.data(&["tasks", "show", "T"])["priority"], 0);
    world.ok(&["tasks", "release", "T", "--holder", "ann"]);
    // A run is told that it is at work, and not that it is over.
    let mark = format!("{BANKSMAN} tasks update Run --status review --epoch $BANKSMAN_RUN_EPOCH --json > said");
    let script = format!("{mark}; touch asked; {UNTIL_GO}");
    world.add(&["Run", "--run", &script]);
    let _runner = world.start(&["run", "--quiet"]);
    until("it has asked", || world.has("asked"));
    let said: Value = serde_json::from_str(&world.read("said")).unwrap();
    assert_eq!(said["error"]["code"], "TASK_IN_PROGRESS", "{said}");
    world.touch("go");
    world.until_status("Run", "completed");
}
