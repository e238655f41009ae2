//! Following the event log.

use std::io::{BufRead, BufReader};

use rustix::process::Signal;

use crate::world::World;

#[test]
fn a_follower_sees_every_event_once_and_in_order() {
    let world = World::new();
    world.ok(&["events", "emit", "deploy:start", "--data", r#"{"n":0}"#]);
    let mut follower = world.start(&["events", "--follow", "--json"]);
    let mut lines = BufReader::new(follower.0.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<serde_json::Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["kind"], "deploy:start");
    for n in 1..=20 {
        world.ok(&["events", "emit", "deploy:step", "--data", &format!(r#"{{"n":{n}}}"#)]);
        let event = next();
        assert_eq!((&event["id"], &event["data"]["n"]), (&(n + 1).into(), &n.into()));
    }
    world.ok(&["locks", "run", "x", "--", "true"]);
    assert_eq!((next()["kind"].clone(), next()["kind"].clone()), ("lock:acquired".into(), "lock:released".into()));
    follower.signal(Signal::INT);
    assert_eq!(follower.0.wait().unwrap().code(), Some(130));
}

#[test]
fn events_are_filtered_by_kind_source_and_time() {
    let world = World::new();
    world.ok(&["locks", "run", "a", "--", "true"]);
    world.ok(&["locks", "run", "b", "--", "true"]);
    world.ok(&["events", "emit", "deploy:done"]);
    let count = |args: &[&str]| world.data(&[&["events"], args].concat())["events"].as_array().unwrap().len();
    assert_eq!(count(&[]), 5);
    assert_eq!(count(&["--kind", "lock:acquired"]), 2);
    assert_eq!(count(&["--kind", "lock:"]), 4);
    assert_eq!(count(&["--source", "lock:a"]), 2);
    assert_eq!(count(&["--source", "lock"]), 4);
    assert_eq!(count(&["--since", "1h"]), 5);
    assert_eq!(count(&["--since", "2999-01-01T00:00:00Z"]), 0);
    assert_eq!(count(&["--limit", "2"]), 2);
    world.ok(&["events", "emit", "deploy:done", "--about", "web"]);
    assert_eq!((count(&["--source", "user:web"]), count(&["--kind", "deploy:done"])), (1, 2));
    assert_eq!(world.error(&["events", "emit", "deploy:done", "--about", ""]).0, 2);
    assert_eq!(world.error(&["events", "--since", "yesterday"]).0, 2);
    assert_eq!(world.error(&["events", "emit", "lock:acquired"]).0, 2, "users cannot emit events of Banksman");
    assert_eq!(world.error(&["events", "emit", "deploy:done", "--data", "{"]).0, 2);
}
