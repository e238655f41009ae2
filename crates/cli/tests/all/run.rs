//! `locks run`: a command under a lock.

use std::process::Command;

use rustix::process::Signal;

use crate::world::{BANKSMAN, Said, World, is_alive, until};

#[test]
fn the_exit_status_of_the_command_is_passed_on() {
    let world = World::new();
    let status = |command: &[&str]| world.run(&[&["locks", "run", "x", "--"], command].concat()).code;
    assert_eq!(status(&["true"]), 0);
    assert_eq!(status(&["sh", "-c", "exit 42"]), 42);
    assert_eq!(status(&["sh", "-c", "kill -TERM $$"]), 143);
    assert_eq!(status(&["no-such-command"]), 127);
    assert_eq!(status(&["/etc/passwd"]), 126);
    assert!(world.holder("x").is_none(), "released on every way out");
}

#[test]
fn the_command_gets_its_lock_and_inherits_no_descriptors() {
    let world = World::new();
    let said = world.run(&["locks", "run", "x", "--holder", "me", "--", "sh", "-c", "echo $BANKSMAN_LOCK $BANKSMAN_HOLDER"]);
    assert_eq!(said.stdout.trim(), "x me");
    // The test itself may have inherited descriptors, so it compares with a plain start.
    let list = ["sh", "-c", "ls /proc/self/fd | wc -l"];
    let plain: Said = world.clean(Command::new("sh"), &list[1..]).output().unwrap().into();
    assert_eq!(world.run(&[&["locks", "run", "x", "--"], &list[..]].concat()).stdout, plain.stdout);
    // Inside, renewing and releasing the lock needs no epoch.
    let inner = format!("{BANKSMAN} locks heartbeat x && {BANKSMAN} locks release x");
    assert_eq!(world.run(&["locks", "run", "x", "--", "sh", "-c", &inner]).code, 0);
}

#[test]
fn a_nested_run_is_a_deadlock_only_for_the_same_lock() {
    let world = World::new();
    let nested = |name: &str| world.run(&["locks", "run", "x", "--", BANKSMAN, "locks", "run", name, "--", "true"]);
    assert_eq!(nested("x").code, 9);
    assert_eq!(nested("y").code, 0);
}

#[test]
fn a_killed_wrapper_frees_the_lock_only_after_its_command_is_dead() {
    let world = World::new();
    let victim = world.start(&["locks", "run", "x", "--holder", "victim", "--", "sleep", "600"]);
    world.until_held_by("x", "victim");
    let command = world.grant("x").unwrap().claim.processes[1].pid;
    until("the command runs", || {
        std::fs::read_to_string(format!("/proc/{command}/comm")).is_ok_and(|comm| comm.trim() == "sleep")
    });
    // A zombie counts as dead.
    let is_dead = format!("! test -e /proc/{command} || grep -q '^State:.Z' /proc/{command}/status");
    let heir = world.start(&["locks", "run", "x", "--holder", "heir", "--", "sh", "-c", &is_dead]);
    world.until_waiters("x", 1);
    victim.signal(Signal::KILL);
    assert_eq!(heir.end().code, 0, "the heir found the command dead");
    assert!(!is_alive(command));
}

#[test]
fn the_status_of_a_killed_command_is_passed_on() {
    let world = World::new();
    let wrapper = world.start(&["locks", "run", "x", "--holder", "w", "--", "sleep", "600"]);
    world.until_held_by("x", "w");
    let command = world.grant("x").unwrap().claim.processes[1].pid;
    rustix::process::kill_process(rustix::process::Pid::from_raw(command).unwrap(), Signal::KILL).unwrap();
    assert_eq!(wrapper.end().code, 137);
    assert!(world.holder("x").is_none());
}

#[test]
fn a_lost_lock_stops_the_process_tree_with_exit_8() {
    let world = World::new();
    // A grandchild that has left the session, as the shells of agents do.
    let script = "setsid sleep 600 & echo $! > hidden; sleep 600";
    let wrapper = world.start(&["locks", "run", "x", "--holder", "w", "--ttl", "300ms", "--", "sh", "-c", script]);
    world.until_held_by("x", "w");
    let hidden = world.path().join("hidden");
    until("the hidden child", || std::fs::read_to_string(&hidden).is_ok_and(|text| text.ends_with('\n')));
    let pid: i32 = std::fs::read_to_string(&hidden).unwrap().trim().parse().unwrap();
    world.ok(&["locks", "release", "x", "--force"]);
    let said = wrapper.end();
    assert_eq!(said.code, 8, "{said:?}");
    assert!(!is_alive(pid), "the hidden child is gone too");
}

#[test]
fn signals_from_processes_are_forwarded() {
    let world = World::new();
    let wrapper = world.start(&[
        "locks",
        "run",
        "x",
        "--holder",
        "w",
        "--",
        "sh",
        "-c",
        "trap 'echo got it; exit 7' USR1; touch ready; while :; do sleep 0.01; done",
    ]);
    until("ready", || world.has("ready"));
    wrapper.signal(Signal::USR1);
    let said = wrapper.end();
    assert_eq!((said.code, said.stdout.trim()), (7, "got it"));
    let wrapper = world.start(&["locks", "run", "x", "--holder", "w", "--", "sleep", "600"]);
    world.until_held_by("x", "w");
    assert_eq!(wrapper.stop().code, 143);
    assert!(world.holder("x").is_none());
}

#[test]
fn an_interrupted_waiter_leaves_and_its_command_never_starts() {
    let world = World::new();
    world.ok(&["locks", "acquire", "x", "--holder", "a"]);
    for verb in ["acquire", "run"] {
        let mut args = vec!["locks", verb, "x"];
        if verb == "run" {
            args.extend(["--", "touch", "started"]);
        }
        let waiter = world.start(&args);
        world.until_waiters("x", 1);
        assert_eq!(waiter.interrupt().code, 130);
        assert!(world.waiters("x").is_empty());
    }
    assert!(!world.has("started"));
    if world.is_on_sqlite() {
        assert_eq!(std::fs::read_dir(world.path().join(".banksman/run")).unwrap().count(), 1, "only the bell is left");
    }
}

#[test]
fn a_long_command_keeps_its_lock_by_heartbeats() {
    let world = World::new();
    // Holds the lock for several times its lease.
    let wrapper = world.start(&["locks", "run", "x", "--holder", "w", "--ttl", "200ms", "--", "sleep", "1"]);
    world.until_held_by("x", "w");
    let said = world.data(&["locks", "acquire", "x", "--holder", "b", "--timeout", "20s"]);
    assert_eq!(said["outcome"], "acquired", "released, not reclaimed");
    assert_eq!(wrapper.end().code, 0);
}
