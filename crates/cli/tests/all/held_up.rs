//! A blocked pipeline continues as soon as its guard holds, also when no event announces the change.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::world::{World, until};

const RUNBOOK: &str = r#"
[pipeline.deploy]
[[pipeline.deploy.phase]]
name = "go"
run = "true"
pre = ["free"]
[guard.free]
condition = { lock_free = "deploy" }
"#;

/// An upper bound that is long before any poll by time alone.
const SOON: Duration = Duration::from_secs(30);

pub(crate) fn state(world: &World) -> String {
    world.data(&["pipelines", "list"])["pipelines"][0]["state"].as_str().unwrap().to_owned()
}

#[test]
fn a_lock_whose_lease_expires_unblocks() {
    let world = World::new();
    world.ok(&["locks", "acquire", "deploy", "--holder", "me", "--ttl", "3s"]);
    crate::runbooks::write(&world, "deploy", RUNBOOK);
    world.ok(&["pipelines", "start", "deploy"]);
    let _runner = world.start(&["run"]);
    let began = Instant::now();
    until("it is done", || state(&world) == "done");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[test]
fn a_lock_whose_holder_dies_unblocks() {
    let world = World::new();
    let wrapper = world.start(&["locks", "run", "deploy", "--ttl", "1h", "--", "sleep", "600"]);
    until("it is held", || world.grant("deploy").is_some());
    crate::runbooks::write(&world, "deploy", RUNBOOK);
    world.ok(&["pipelines", "start", "deploy"]);
    let _runner = world.start(&["run"]);
    until("it is held up", || state(&world) == "blocked");
    let began = Instant::now();
    wrapper.signal(Signal::KILL);
    until("it is done", || state(&world) == "done");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[test]
fn a_lock_that_is_released_unblocks() {
    let world = World::new();
    let epoch = world.data(&["locks", "acquire", "deploy", "--holder", "me", "--ttl", "1h"])["epoch"].to_string();
    crate::runbooks::write(&world, "deploy", RUNBOOK);
    world.ok(&["pipelines", "start", "deploy"]);
    let _runner = world.start(&["run"]);
    until("it is held up", || state(&world) == "blocked");
    let why = world.data(&["why", "deploy"]);
    assert_eq!(why["pipeline"]["blockedBy"]["guard"]["part"], "lock deploy is held by me", "{why}");
    let began = Instant::now();
    world.ok(&["locks", "release", "deploy", "--holder", "me", "--epoch", &epoch]);
    until("it is done", || state(&world) == "done");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[test]
fn many_pipelines_blocked_by_another_lock_do_not_delay() {
    let many = crate::postgres::sized(120);
    let world = World::new();
    let hold = |lock: &str| world.data(&["locks", "acquire", lock, "--holder", "me", "--ttl", "1h"])["epoch"].to_string();
    let epochs = ["deploy", "release"].map(|lock| (lock, hold(lock)));
    crate::runbooks::write(&world, "deploy", RUNBOOK);
    crate::runbooks::write(&world, "release", &RUNBOOK.replace("deploy", "release"));
    let start = |name: &str, number| (0..number).for_each(|_| drop(world.ok(&["pipelines", "start", name])));
    start("deploy", many);
    start("release", 5);
    let count = |state: &str| world.data(&["pipelines", "list", "--state", state])["pipelines"].as_array().unwrap().len();
    let _runner = world.start(&["run"]);
    until("all are held up", || count("blocked") == many + 5);
    for ((lock, epoch), done) in epochs.iter().rev().zip([5, many + 5]) {
        let began = Instant::now();
        world.ok(&["locks", "release", lock, "--holder", "me", "--epoch", epoch]);
        until("they are done", || count("done") == done);
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    }
}
