//! The verbs of semaphores.

use crate::world::World;

fn world() -> World {
    let world = World::new();
    world.ok(&["semaphores", "define", "gpu", "--capacity", "3"]);
    world
}

fn available(world: &World) -> i64 {
    world.data(&["semaphores", "show", "gpu"])["available"].as_i64().unwrap()
}

#[test]
fn slots_are_taken_by_weight_and_released() {
    let world = world();
    let a = world.data(&["semaphores", "acquire", "gpu", "--holder", "a", "--weight", "2"]);
    assert_eq!((&a["outcome"], &a["weight"]), (&"acquired".into(), &2.into()));
    assert_eq!(available(&world), 1);
    let (code, error) = world.error(&["semaphores", "acquire", "gpu", "--holder", "b", "--weight", "2", "--no-wait"]);
    assert_eq!((code, &error["code"], &error["details"]["available"]), (6, &"FULL".into(), &1.into()));
    assert_eq!(world.data(&["semaphores", "acquire", "gpu", "--holder", "a", "--weight", "1"])["outcome"], "already_held");
    let more = world.data(&["semaphores", "acquire", "gpu", "--holder", "a", "--weight", "3"]);
    assert_eq!((&more["outcome"], &more["epoch"]), (&"increased".into(), &a["epoch"]));
    world.ok(&["semaphores", "heartbeat", "gpu", "--holder", "a"]);
    world.ok(&["semaphores", "release", "gpu", "--holder", "a", "--epoch", &a["epoch"].to_string()]);
    assert_eq!(available(&world), 3);
}

#[test]
fn wrong_use_is_refused_with_a_code() {
    let world = world();
    let code = |args: &[&str]| {
        let (code, error) = world.error(args);
        (code, error["code"].as_str().unwrap().to_owned())
    };
    assert_eq!(code(&["semaphores", "acquire", "gpu", "--weight", "0"]), (2, "USAGE".into()));
    assert_eq!(code(&["semaphores", "acquire", "gpu", "--weight", "4"]), (2, "OVER_CAPACITY".into()));
    assert_eq!(code(&["semaphores", "acquire", "tpu"]), (4, "SEMAPHORE_NOT_FOUND".into()));
    assert_eq!(code(&["semaphores", "release", "gpu", "--holder", "x"]), (5, "NOT_HOLDER".into()));
    assert_eq!(code(&["semaphores", "release", "gpu", "--holder", "x", "--epoch", "1"]), (8, "FENCED".into()));
    assert_eq!(code(&["semaphores", "define", "gpu", "--capacity", "0"]), (2, "USAGE".into()));
    assert_eq!(code(&["semaphores", "acquire", "runs"]), (2, "RESERVED_NAME".into()));
}

#[test]
fn waiters_are_served_in_order_and_a_resize_applies_at_once() {
    let world = world();
    world.ok(&["semaphores", "acquire", "gpu", "--holder", "a", "--weight", "3"]);
    let big = world.start(&["semaphores", "acquire", "gpu", "--holder", "big", "--weight", "3"]);
    let until_waiters = |length: usize| {
        crate::world::until("waiters", || world.data(&["semaphores", "show", "gpu"])["line"].as_array().unwrap().len() == length);
    };
    until_waiters(1);
    let small = world.start(&["semaphores", "acquire", "gpu", "--holder", "small"]);
    until_waiters(2);
    // One more slot would suffice for the small one, but the big one was first.
    world.ok(&["semaphores", "define", "gpu", "--capacity", "4"]);
    assert_eq!(world.data(&["semaphores", "show", "gpu"])["line"].as_array().unwrap().len(), 2);
    world.ok(&["semaphores", "define", "gpu", "--capacity", "7"]);
    assert_eq!((big.end().code, small.end().code), (0, 0));
    assert_eq!(available(&world), 0);

    let waits = world.start(&["semaphores", "acquire", "gpu", "--holder", "waits", "--weight", "5", "--json"]);
    until_waiters(1);
    world.ok(&["semaphores", "define", "gpu", "--capacity", "4"]);
    let said = waits.end();
    assert_eq!(said.code, 2, "a waiter over the new capacity ends with an error: {said:?}");
    assert_eq!(world.data(&["semaphores", "show", "gpu"])["holders"].as_array().unwrap().len(), 3, "holders keep what they have");
}

#[test]
fn an_increase_that_does_not_fit_waits_with_its_old_weight() {
    let world = world();
    let a = world.data(&["semaphores", "acquire", "gpu", "--holder", "a", "--weight", "1"]);
    world.ok(&["semaphores", "acquire", "gpu", "--holder", "b", "--weight", "2"]);
    let more = world.start(&["semaphores", "acquire", "gpu", "--holder", "a", "--weight", "2", "--json"]);
    crate::world::until("waiters", || world.data(&["semaphores", "show", "gpu"])["line"].as_array().unwrap().len() == 1);
    assert_eq!(world.data(&["semaphores", "show", "gpu"])["holders"][0]["weight"], 1);
    let (code, _) = world.error(&["semaphores", "acquire", "gpu", "--holder", "b", "--weight", "3"]);
    assert_eq!(code, 9, "two increases that wait for each other are a deadlock");
    world.ok(&["semaphores", "release", "gpu", "--holder", "b"]);
    let said = more.end();
    let said: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((&said["data"]["weight"], &said["data"]["epoch"]), (&2.into(), &a["epoch"]));
}

#[test]
fn a_command_runs_while_slots_are_held() {
    let world = world();
    let said = world.run(&[
        "semaphores",
        "run",
        "gpu",
        "--weight",
        "2",
        "--",
        "sh",
        "-c",
        "echo $BANKSMAN_SEMAPHORE $BANKSMAN_SEMAPHORE_EPOCH; exit 5",
    ]);
    assert_eq!(said.code, 5);
    assert!(said.stdout.starts_with("gpu "), "{said:?}");
    assert_eq!(available(&world), 3);
}

#[test]
fn sixteen_processes_never_exceed_the_capacity() {
    let world = world();
    // Each process makes a directory while it holds a slot, and counts the directories.
    let script = "mkdir $$.held && ls -d *.held | wc -l >> counts && sleep 0.01 && rmdir $$.held";
    let all: Vec<_> = (0..16).map(|_| world.start(&["semaphores", "run", "gpu", "--", "sh", "-c", script])).collect();
    assert!(all.into_iter().all(|one| one.end().code == 0));
    let counts = std::fs::read_to_string(world.path().join("counts")).unwrap();
    let counts: Vec<u32> = counts.lines().map(|line| line.trim().parse().unwrap()).collect();
    assert_eq!(counts.len(), 16);
    assert!(counts.iter().all(|count| *count <= 3), "{counts:?}");
    assert_eq!(available(&world), 3);
}
