//! The owner of a session, and how ownership moves.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use banksman_adapters::keeper::{self, Found, Notice, Refusal};

use crate::world::{PROGRAM, World, alive, start, until};

/// Runs until a file `go` exists.
const WAIT: &str = "touch up; while [ ! -e go ]; do sleep 0.01; done; echo done; exit 9";

fn go(world: &World) {
    fs::write(world.path("go"), "").unwrap();
}

#[test]
fn a_session_survives_its_runner_and_is_adopted() {
    let world = World::new();
    fs::write(world.path("spec"), serde_json::to_vec(&world.spec(WAIT)).unwrap()).unwrap();
    let mut runner = Command::new(PROGRAM).arg("hold").arg(world.path("spec")).spawn().unwrap();
    world.wait_for("up");
    runner.kill().unwrap();
    runner.wait().unwrap();
    let mut talk = world.adopt(6);
    let (keeper_pid, child_pid) = talk.started();
    assert!(alive(keeper_pid) && alive(child_pid));
    go(&world);
    assert_eq!(talk.settled().code, Some(9));
    assert_eq!(world.log(), "done\n");
    assert_eq!(world.find(), Found::Nothing);
}

#[test]
fn an_adopted_session_can_be_killed() {
    let world = World::new();
    drop(world.start(WAIT));
    world.wait_for("up");
    let mut talk = world.adopt(5);
    talk.started();
    talk.session.kill(Duration::from_secs(20));
    assert!(talk.settled().stopped);
}

#[test]
fn an_unacknowledged_ending_stays() {
    let world = World::new();
    let mut talk = world.start("exit 9");
    let ending = talk.ended();
    assert_eq!(talk.next(), Notice::Gone);
    let Found::Ended(record, found) =
        until("the keeper is gone", || Some(world.find()).filter(|found| !matches!(found, Found::Live(_))))
    else {
        panic!("not ended")
    };
    assert_eq!((record.owner_epoch, found), (5, ending));
    assert_eq!(world.list("sockets"), Vec::<String>::new());
    assert_eq!(keeper::adopt(&world.record(), 6).unwrap_err().kind(), std::io::ErrorKind::NotConnected);
    // A late acknowledgement removes the record that the keeper has left.
    talk.session.acknowledge();
    assert_eq!(world.list("runs"), Vec::<String>::new());
}

#[test]
fn an_ending_without_an_owner_stays_too() {
    let world = World::new();
    drop(world.start(WAIT));
    world.wait_for("up");
    go(&world);
    let found = until("the keeper is gone", || Some(world.find()).filter(|found| !matches!(found, Found::Live(_))));
    assert!(matches!(&found, Found::Ended(_, ending) if ending.code == Some(9)), "{found:?}");
    assert!(keeper::forget(&world.record()).unwrap());
    assert_eq!(world.find(), Found::Nothing);
}

#[test]
fn an_acknowledged_ending_leaves_only_the_log() {
    let world = World::new();
    let mut talk = world.start(WAIT);
    talk.started();
    world.wait_for("up");
    keeper::status(&world.record()).unwrap();
    assert_eq!(world.list("sockets").len(), 1);
    assert!(!keeper::forget(&world.record()).unwrap(), "the keeper lives");
    go(&world);
    talk.ended();
    talk.session.acknowledge();
    // The keeper alone removes its files: the client does not read the session any more.
    until("the keeper has removed its files", || {
        (world.list("runs").is_empty() && world.list("sockets").is_empty()).then_some(())
    });
    assert_eq!(world.list("logs"), ["r-1"]);
}

#[test]
fn an_acknowledgement_before_the_end_is_ignored() {
    let world = World::new();
    let mut talk = world.start(WAIT);
    talk.session.acknowledge();
    world.wait_for("up");
    go(&world);
    talk.ended();
    assert_eq!(talk.next(), Notice::Gone);
    assert!(matches!(world.find(), Found::Ended(..) | Found::Live(_)));
}

#[test]
fn the_highest_epoch_owns_the_session() {
    let world = World::new();
    let mut first = world.start(WAIT);
    let pids = first.started();
    world.wait_for("up");
    let mut lower = world.adopt(4);
    assert_eq!(lower.next(), Notice::Refused(Refusal::LowerEpoch { current: 5 }));
    lower.session.kill(Duration::ZERO);
    assert_eq!(lower.next(), Notice::Refused(Refusal::LowerEpoch { current: 5 }));

    let mut second = world.adopt(8);
    assert_eq!(second.started(), pids);
    assert_eq!(first.next(), Notice::Refused(Refusal::LowerEpoch { current: 8 }));
    assert_eq!(first.next(), Notice::Gone);
    first.session.kill(Duration::ZERO);
    let mut former = world.adopt(7);
    assert_eq!(former.next(), Notice::Refused(Refusal::LowerEpoch { current: 8 }));

    let status = keeper::status(&world.record()).unwrap();
    assert_eq!((status.owner_epoch, status.owned, status.stopping), (8, true, false));
    go(&world);
    assert_eq!(second.settled().code, Some(9));
}

#[test]
fn the_same_owner_may_adopt_again() {
    let world = World::new();
    drop(world.start(WAIT));
    world.wait_for("up");
    let mut talk = world.adopt(5);
    talk.started();
    until("the session has an owner", || keeper::status(&world.record()).unwrap().owned.then_some(()));
    go(&world);
    assert_eq!(talk.settled().code, Some(9));
}

#[test]
fn a_socket_is_private_and_works_behind_a_long_path() {
    let world = World::new();
    let mut spec = world.spec(WAIT);
    spec.sockets = world.path(&"s".repeat(200));
    let mut talk = start(&spec);
    talk.started();
    let status = keeper::status(&world.record()).unwrap();
    assert_eq!((status.run, status.owner_epoch), (spec.run.clone(), 5));
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&spec.sockets), mode(&world.live().socket)), (0o700, 0o600));
    go(&world);
    talk.settled();
}

#[test]
fn garbage_closes_only_the_stream_it_comes_from() {
    let world = World::new();
    let mut talk = world.start(WAIT);
    talk.started();
    keeper::status(&world.record()).unwrap();
    let socket = world.live().socket;
    let dir = File::open(socket.parent().unwrap()).unwrap();
    let short = format!("/proc/self/fd/{}/{}", dir.as_raw_fd(), socket.file_name().unwrap().to_str().unwrap());
    let send = |text: &[u8]| {
        let mut stream = UnixStream::connect(&short).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The stream may be closed before all is written.
        stream.write_all(text).ok();
        let mut answer = String::new();
        match stream.read_to_string(&mut answer) {
            Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("not closed: {error}"),
            _ => answer,
        }
    };
    assert_eq!(send(b"hello\n"), "");
    assert_eq!(send(b"{\"v\":1,\"is\":{\"kill\":{\"epoch\":\"high\"}}}\n"), "");
    assert_eq!(send(&b"x".repeat(9 * 1024 * 1024)), "");
    let answer = send(b"{\"v\":2,\"is\":{\"sing\":{}}}\n");
    assert_eq!(answer, "{\"v\":1,\"is\":{\"refused\":{\"version\":{\"keeper\":1}}}}\n");
    // Idle connections do not keep others out.
    let idle: Vec<UnixStream> = (0..40).map(|_| UnixStream::connect(&short).unwrap()).collect();
    assert!(keeper::status(&world.record()).unwrap().owned);
    drop(idle);
    go(&world);
    assert_eq!(talk.settled().code, Some(9));
}

#[test]
fn a_request_right_after_the_start_is_handled() {
    let world = World::new();
    let mut talk = world.start(WAIT);
    // Long before the keeper has read its first line.
    talk.session.kill(Duration::ZERO);
    assert!(talk.settled().stopped);
}
