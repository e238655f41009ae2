//! The verbs of locks.

use crate::world::World;

#[test]
fn a_lock_is_acquired_shown_renewed_and_released() {
    let world = World::new();
    let got = world.data(&["locks", "acquire", "deploy", "--holder", "me", "--metadata", r#"{"why":"x"}"#]);
    assert_eq!((&got["name"], &got["outcome"], &got["holder"]), (&"deploy".into(), &"acquired".into(), &"me".into()));
    let epoch = got["epoch"].to_string();
    assert!(got["acquiredAt"].as_str().unwrap().ends_with('Z') && got["expiresAt"].is_string());

    let shown = world.data(&["locks", "show", "deploy"]);
    assert_eq!((&shown["state"], &shown["metadata"]["why"]), (&"held".into(), &"x".into()));
    assert_eq!(shown["recentEvents"][0]["kind"], "lock:acquired");

    let renewed = world.data(&["locks", "heartbeat", "deploy", "--holder", "me", "--epoch", &epoch]);
    assert_eq!(renewed["outcome"], "extended");
    let release = ["locks", "release", "deploy", "--holder", "me", "--epoch", &epoch];
    assert_eq!(world.data(&release)["outcome"], "released");
    assert_eq!(world.data(&release)["outcome"], "already_free", "a retried release succeeds");
    assert_eq!(world.data(&["locks", "list"])["locks"][0]["state"], "free");
    assert_eq!(world.data(&["locks", "list", "--held"])["locks"].as_array().unwrap().len(), 0);
}

#[test]
fn a_refused_acquire_names_the_holder() {
    let world = World::new();
    let epoch = world.data(&["locks", "acquire", "db", "--holder", "a"])["epoch"].to_string();
    let (code, error) = world.error(&["locks", "acquire", "db", "--holder", "b", "--no-wait"]);
    assert_eq!((code, &error["code"], &error["details"]["holder"]), (6, &"LOCKED".into(), &"a".into()));
    assert!(error["details"]["expiresAt"].is_string());
    world.assert_refused(&["locks", "acquire", "db", "--holder", "b", "--timeout", "50ms"], 6, "WAIT_TIMEOUT");
    assert!(world.waiters("db").is_empty(), "a waiter that timed out has left");
    world.assert_refused(&["locks", "release", "db", "--holder", "b", "--epoch", &epoch], 5, "NOT_OWNER");
    let (code, _) = world.error(&["locks", "heartbeat", "db", "--holder", "a", "--epoch", "99"]);
    assert_eq!(code, 8, "an epoch that was never given out");
}

#[test]
fn a_forced_release_is_recorded_and_fences_the_former_holder() {
    let world = World::new();
    let epoch = world.data(&["locks", "acquire", "db", "--holder", "a"])["epoch"].to_string();
    world.ok(&["locks", "release", "db", "--force"]);
    let forced = world.events().pop().unwrap();
    assert_eq!((forced.kind.as_str(), &forced.data["holder"]), ("lock:released", &"a".into()));
    assert!(
        forced.data["forced"]["pid"].is_number()
            && forced.data["forced"]["host"].is_string()
            && forced.data["forced"]["user"].is_string()
    );
    for verb in ["heartbeat", "release"] {
        world.assert_refused(&["locks", verb, "db", "--holder", "a", "--epoch", &epoch], 8, "FENCED");
    }
    assert_eq!(world.data(&["locks", "release", "db", "--force"])["outcome"], "already_free");
}

#[test]
fn a_holder_name_without_its_epoch_does_not_extend_the_grant() {
    let world = World::new();
    let epoch = world.data(&["locks", "acquire", "db", "--holder", "a"])["epoch"].to_string();
    assert_eq!(world.error(&["locks", "acquire", "db", "--holder", "a", "--no-wait"]).0, 6);
    assert_eq!(
        world.error(&["locks", "acquire", "db", "--holder", "a", "--timeout", "30ms"]).1["code"],
        "WAIT_TIMEOUT",
        "it waits"
    );
    let again = world.data(&["locks", "acquire", "db", "--holder", "a", "--epoch", &epoch]);
    assert_eq!((&again["outcome"], again["epoch"].to_string()), (&"extended".into(), epoch));
}

#[test]
fn a_repeated_request_id_gets_the_same_grant_only() {
    let world = World::new();
    let ask = ["locks", "acquire", "db", "--holder", "a", "--request-id", "r1"];
    let first = world.data(&ask);
    let second = world.data(&ask);
    assert_eq!((&second["outcome"], &second["epoch"]), (&"extended".into(), &first["epoch"]));
    world.ok(&["locks", "release", "db", "--holder", "a", "--epoch", &first["epoch"].to_string()]);
    world.assert_refused(&ask, 8, "REQUEST_SPENT");
    assert_eq!(
        world.error(&["locks", "acquire", "other", "--holder", "a", "--request-id", "r1"]).0,
        2,
        "it belongs to another lock"
    );
    assert_eq!(
        world.error(&["locks", "acquire", "db", "--holder", "b", "--request-id", "r1"]).0,
        2,
        "it belongs to another holder"
    );
    let unnamed = ["locks", "acquire", "x", "--request-id", "r2"];
    let (first, second) = (world.data(&unnamed), world.data(&unnamed));
    assert_eq!((&first["epoch"], &first["holder"]), (&second["epoch"], &second["holder"]), "also without a name");
}

#[test]
fn an_expired_lease_is_revived_unless_the_lock_was_taken() {
    let world = World::new();
    let epoch = world.data(&["locks", "acquire", "db", "--holder", "a", "--ttl", "1ms"])["epoch"].to_string();
    crate::world::until("expired", || world.data(&["locks", "show", "db"])["state"] == "expired");
    let beat = ["locks", "heartbeat", "db", "--holder", "a", "--epoch", &epoch];
    assert_eq!(world.data(&beat)["outcome"], "extended");
    let taken = world.data(&["locks", "acquire", "db", "--holder", "b"]);
    assert_eq!(taken["outcome"], "reclaimed");
    assert_eq!(world.error(&beat).0, 8);
}

#[test]
fn no_grant_lives_longer_than_its_max_hold() {
    let world = World::new();
    world.ok(&["locks", "define", "db", "--ttl", "1h", "--max-hold", "1ms"]);
    let epoch = world.data(&["locks", "acquire", "db", "--holder", "a"])["epoch"].to_string();
    crate::world::until("past max hold", || world.data(&["locks", "show", "db"])["state"] == "expired");
    world.assert_refused(&["locks", "heartbeat", "db", "--holder", "a", "--epoch", &epoch], 8, "LOST");
    assert_eq!(world.data(&["locks", "show", "db"])["defaults"]["maxHold"], "1ms");
}

#[test]
fn cleanup_releases_only_dead_and_expired_holders() {
    let world = World::new();
    let mut sleeper = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let pid = sleeper.id().to_string();
    world.ok(&["locks", "acquire", "of-the-dead", "--pid", &pid, "--holder", "d"]);
    world.ok(&["locks", "acquire", "of-the-silent", "--ttl", "1ms", "--holder", "s"]);
    world.ok(&["locks", "acquire", "of-the-living", "--pid", &std::process::id().to_string(), "--holder", "l"]);
    assert_eq!(
        world.data(&["locks", "show", "of-the-dead"])["expiresAt"],
        serde_json::Value::Null,
        "bound to a pid, without a lease"
    );
    sleeper.kill().unwrap();
    crate::world::until("both over", || {
        world.data(&["locks", "cleanup", "--dry-run"])["released"].as_array().unwrap().len() == 2
    });
    let doctor = world.data(&["doctor"]);
    let holders = doctor["checks"].as_array().unwrap().iter().find(|check| check["check"] == "holders").unwrap();
    assert_eq!(holders["verdict"], "note", "stale things are notes, not faults");
    let freed = world.data(&["locks", "cleanup"]);
    assert_eq!(freed["released"].as_array().unwrap().len(), 2);
    assert!(world.holder("of-the-living").is_some() && world.holder("of-the-dead").is_none());
    sleeper.wait().unwrap();
}

#[test]
fn a_deadlock_is_refused_with_its_circle() {
    let world = World::new();
    world.ok(&["locks", "acquire", "left", "--holder", "alice"]);
    world.ok(&["locks", "acquire", "right", "--holder", "bob"]);
    let _bob = world.start(&["locks", "acquire", "left", "--holder", "bob"]);
    world.until_waiters("left", 1);
    let error = world.assert_refused(&["locks", "acquire", "right", "--holder", "alice"], 9, "DEADLOCK");
    assert_eq!(error["details"]["cycle"].as_array().unwrap().len(), 2);
    assert_eq!(world.waiters("right").len(), 0, "a refused request does not wait");
}

#[test]
fn a_circle_with_a_dead_waiter_is_no_deadlock() {
    let world = World::new();
    world.ok(&["locks", "acquire", "left", "--holder", "alice"]);
    world.ok(&["locks", "acquire", "right", "--holder", "bob", "--ttl", "300ms"]);
    let bob = world.start(&["locks", "acquire", "left", "--holder", "bob"]);
    world.until_waiters("left", 1);
    bob.signal(rustix::process::Signal::KILL);
    bob.end();
    assert_eq!(world.data(&["locks", "acquire", "right", "--holder", "alice", "--timeout", "30s"])["holder"], "alice");
}
