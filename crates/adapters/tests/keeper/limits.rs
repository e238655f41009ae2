//! A session that is not renewed ends by itself.

use std::fs;
use std::process::Command;
use std::time::Duration;

use banksman_adapters::host::boot_ms;
use banksman_adapters::keeper::{self, Found, Limit, Notice, Spec};

use crate::world::{PROGRAM, World, alive, start, until};

/// Runs until a file `go` exists, and prints `bye` on SIGTERM.
const POLITE: &str = "trap 'echo bye; exit 0' TERM; echo $$ >> pids; while [ ! -e go ]; do sleep 0.01; done; exit 9";

/// Ignores SIGTERM, and hides another process that does.
const STUBBORN: &str = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ >> pids; while :; do sleep 0.01; done' & \
                        echo $$ >> pids; while :; do sleep 0.01; done";

fn in_ms(ask: i64, kill: i64) -> Limit {
    let now = boot_ms();
    Limit { ask_ms: now + ask, kill_ms: now + kill }
}

fn spec(world: &World, script: &str, limit: Limit) -> Spec {
    Spec { limit: Some(limit), ..world.spec(script) }
}

#[test]
fn a_session_without_renewal_is_ended_in_time_as_lapsed() {
    let world = World::new();
    let limit = in_ms(400, 20_000);
    let mut talk = start(&spec(&world, POLITE, limit));
    let ending = talk.settled();
    let now = boot_ms();
    assert!((limit.ask_ms..limit.kill_ms).contains(&now), "{limit:?} {now}");
    // It has ended within its grace, but is not a success.
    assert_eq!((ending.code, ending.stopped, ending.lapsed), (Some(0), true, true));
    assert!(world.log().ends_with("bye\n"));
    assert!(!alive(world.pids(1)[0]));
}

#[test]
fn a_process_that_ignores_the_signal_is_dead_soon_after_the_limit() {
    let world = World::new();
    let mut spec = spec(&world, STUBBORN, in_ms(300, 500));
    // The grace of the spec does not apply.
    spec.grace_ms = 600_000;
    let ending = start(&spec).settled();
    let now = boot_ms();
    assert_eq!((ending.signal, ending.stopped, ending.lapsed), (Some(9), true, true));
    let kill_ms = spec.limit.unwrap().kill_ms;
    assert!((kill_ms..kill_ms + 10_000).contains(&now), "{kill_ms} {now}");
    assert!(world.pids(2).iter().all(|pid| !alive(*pid)));
}

#[test]
fn the_limit_shortens_a_stop_in_progress() {
    let world = World::new();
    let mut talk = start(&spec(&world, STUBBORN, in_ms(600, 700)));
    world.pids(2);
    talk.session.kill(Duration::from_secs(600));
    let ending = talk.settled();
    assert_eq!((ending.signal, ending.stopped, ending.lapsed), (Some(9), true, false), "the kill came before the limit");
}

#[test]
fn a_renewed_session_continues() {
    let world = World::new();
    let mut talk = start(&spec(&world, POLITE, in_ms(300, 20_000)));
    talk.started();
    let first = keeper::status(&world.record()).unwrap().limit.unwrap();
    // Several renewals, each before the previous limit is reached.
    while boot_ms() < first.ask_ms + 900 {
        let limit = in_ms(300, 20_000);
        talk.session.renew(limit);
        until("the renewal has arrived", || (keeper::status(&world.record()).unwrap().limit == Some(limit)).then_some(()));
    }
    talk.session.renew(in_ms(600_000, 600_000));
    fs::write(world.path("go"), "").unwrap();
    let ending = talk.settled();
    assert_eq!((ending.code, ending.stopped, ending.lapsed), (Some(9), false, false));
}

#[test]
fn a_renewal_may_shorten_the_limit() {
    let world = World::new();
    let mut talk = start(&spec(&world, POLITE, in_ms(600_000, 600_000)));
    world.pids(1);
    talk.session.renew(in_ms(0, 20_000));
    assert!(talk.settled().lapsed);
}

#[test]
fn a_renewal_that_comes_too_late_changes_nothing() {
    let world = World::new();
    let mut talk =
        start(&spec(&world, "trap 'touch asked' TERM; echo $$ >> pids; while :; do sleep 0.01; done", in_ms(200, 700)));
    world.wait_for("asked");
    talk.session.renew(in_ms(600_000, 600_000));
    let ending = talk.settled();
    assert!(ending.lapsed && ending.stopped);
}

#[test]
fn only_the_current_owner_renews() {
    let world = World::new();
    let first = in_ms(2_000, 20_000);
    let mut owner = start(&spec(&world, POLITE, first));
    owner.started();
    let mut adopter = world.adopt(8);
    let limit = in_ms(600_000, 600_000);
    adopter.session.renew(limit);
    until("the renewal has arrived", || (keeper::status(&world.record()).unwrap().limit == Some(limit)).then_some(()));
    let mut late = world.adopt(7);
    late.session.renew(in_ms(0, 0));
    assert!(matches!(late.next(), Notice::Refused(_)));
    assert!(matches!(late.next(), Notice::Refused(_)));
    assert_eq!(keeper::status(&world.record()).unwrap().limit, Some(limit));
    fs::write(world.path("go"), "").unwrap();
    assert_eq!(adopter.settled().code, Some(9));
}

#[test]
fn the_limit_ends_a_session_without_a_runner_and_is_recorded() {
    let world = World::new();
    let spec = spec(&world, POLITE, in_ms(800, 20_000));
    fs::write(world.path("spec"), serde_json::to_vec(&spec).unwrap()).unwrap();
    let mut runner = Command::new(PROGRAM).arg("hold").arg(world.path("spec")).spawn().unwrap();
    let pid = world.pids(1)[0];
    runner.kill().unwrap();
    runner.wait().unwrap();
    let found = until("the keeper is gone", || Some(world.find()).filter(|found| !matches!(found, Found::Live(_))));
    assert!(matches!(&found, Found::Ended(_, ending) if ending.lapsed && ending.stopped), "{found:?}");
    assert!(!alive(pid));
}

#[test]
fn a_session_past_its_limit_is_not_started() {
    let world = World::new();
    let ending = start(&spec(&world, POLITE, Limit::default())).settled();
    assert!(ending.lapsed && ending.error.is_some(), "{ending:?}");
    assert!(!world.path("pids").exists());
}

#[test]
fn a_session_that_ended_before_its_limit_has_not_lapsed() {
    let world = World::new();
    let mut talk = start(&spec(&world, "sleep 60 & exit 7", in_ms(500, 600)));
    let ending = talk.settled();
    assert_eq!((ending.code, ending.stopped, ending.lapsed), (Some(7), false, false));
    assert!(ending.stragglers >= 1);
}

#[test]
fn the_limit_ends_the_tree_before_the_lease_expires() {
    let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));
    assert_eq!(Limit::after(1_000, minute, 5 * second), Limit { ask_ms: 41_000, kill_ms: 46_000 });
    assert_eq!(Limit::after(1_000, minute, minute), Limit { ask_ms: 41_000, kill_ms: 51_000 });
    assert_eq!(Limit::after(0, 3 * second, Duration::MAX), Limit { ask_ms: 2_000, kill_ms: 2_500 });
}
