//! Keepers that do not answer, or cannot begin.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use banksman_adapters::keeper::{self, Found, Notice, Silence};
use rustix::process::Signal;

use crate::world::{Talk, World, signal, until};

/// A session that stops its keeper, maybe before the keeper can send any notice.
fn stopped(world: &World, script: &str) -> (Talk, keeper::Record) {
    let talk = world.start(script);
    let record = until("the keeper is stopped", || match world.find() {
        Found::Live(record) if keeper::is_stopped(&record) => Some(record),
        _ => None,
    });
    (talk, record)
}

#[test]
fn a_stopped_keeper_is_distinguished_from_one_that_answers() {
    let world = World::new();
    let mut talk = world.start("sleep 60");
    talk.next();
    assert_eq!(keeper::silence(&world.record(), Duration::from_secs(20)), None);
    let record = world.live();
    signal(record.keeper_pid, Signal::STOP);
    until("the keeper is stopped", || keeper::is_stopped(&record).then_some(()));
    assert_eq!(keeper::silence(&world.record(), Duration::from_secs(20)), Some(Silence::Stopped));
    let began = Instant::now();
    let error = keeper::status_within(&world.record(), Duration::from_millis(50)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    signal(record.keeper_pid, Signal::CONT);
    assert_eq!(keeper::silence(&world.record(), Duration::from_secs(20)), None);
}

#[test]
fn await_end_returns_early_if_the_keeper_is_stopped() {
    let world = World::new();
    let (mut talk, record) = stopped(&world, "kill -STOP $PPID; sleep 600 & sleep 600");
    talk.session.kill(Duration::from_secs(60));
    let (found, silence) = keeper::await_end(&world.record(), Duration::from_secs(60)).unwrap();
    assert_eq!((found.keeper_pid, silence), (record.keeper_pid, Silence::Stopped));
    assert!(keeper::kill(&found).unwrap());
    until("the keeper is dead", || matches!(world.find(), Found::Dead(_)).then_some(()));
    assert!(keeper::sweep(&found, Duration::ZERO).unwrap().left.is_empty());
    assert!(!keeper::kill(&found).unwrap(), "its pid is unused or reused");
}

#[test]
fn await_end_waits_for_a_keeper_that_ends_its_session() {
    let world = World::new();
    let mut talk = world.start("sleep 600");
    talk.next();
    talk.session.kill(Duration::from_secs(60));
    assert!(keeper::await_end(&world.record(), Duration::from_secs(60)).is_none());
    assert_eq!(talk.ended().signal, Some(15));
}

#[test]
fn a_keeper_that_exits_at_once_reports_its_status() {
    let world = World::new();
    let mut session = keeper::start_from(Path::new("/bin/false"), &world.spec("true")).unwrap();
    let notices = until("the keeper is gone", || Some(session.notices()).filter(|notices| !notices.is_empty()));
    assert_eq!(notices, [Notice::Gone]);
    assert!(session.is_own());
    // The status is missing if the process takes long to exit.
    assert!(session.exit().is_none_or(|exit| exit.code() == Some(1)));
    assert_eq!(world.find(), Found::Nothing);
}

#[test]
fn an_unread_spawn_request_is_buffered() {
    let world = World::new();
    let mut spec = world.spec("true");
    spec.env = (0..40).map(|n| (format!("V{n}"), "x".repeat(20_000).into())).collect();
    let program = world.path("sleeper");
    std::fs::write(&program, "#!/bin/sh\nexec sleep 20\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let began = Instant::now();
    let session = keeper::start_from(&program, &spec).unwrap();
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert!(session.has_unsent());
}
