//! A run starts at most once.

use std::fs;

use banksman_adapters::keeper::{self, Found, Notice, Refusal};

use crate::world::{World, start, until};

const LIVE: &str = "echo started >> starts; while [ ! -e go ]; do sleep 0.01; done";

#[test]
fn a_run_with_a_record_is_not_started_again() {
    let world = World::new();
    let mut first = world.start(LIVE);
    first.started();
    let mut second = world.start(LIVE);
    assert_eq!(second.next(), Notice::Refused(Refusal::RecordExists));
    assert_eq!(second.next(), Notice::Gone);
    assert!(matches!(keeper::write_tombstone(&world.record()).unwrap(), Found::Live(_)), "too late");
    fs::write(world.path("go"), "").unwrap();
    first.ended();
    assert_eq!(first.next(), Notice::Gone);
    assert!(matches!(until("the keeper is gone", || not_live(&world)), Found::Ended(..)));
    assert!(matches!(keeper::write_tombstone(&world.record()).unwrap(), Found::Ended(..)), "too late");
    assert_eq!(world.start(LIVE).next(), Notice::Refused(Refusal::RecordExists));
    assert_eq!(fs::read_to_string(world.path("starts")).unwrap(), "started\n");
}

fn not_live(world: &World) -> Option<Found> {
    Some(world.find()).filter(|found| !matches!(found, Found::Live(_)))
}

#[test]
fn a_run_with_a_tombstone_never_starts() {
    let world = World::new();
    assert_eq!(world.find(), Found::Nothing);
    for _ in 0..2 {
        assert_eq!(keeper::write_tombstone(&world.record()).unwrap(), Found::Tombstone);
        assert_eq!(world.find(), Found::Tombstone);
    }
    let mut talk = world.start(LIVE);
    assert_eq!(talk.next(), Notice::Refused(Refusal::RecordExists));
    assert_eq!(talk.next(), Notice::Gone);
    assert!(!world.path("starts").exists());
    assert!(keeper::forget(&world.record()).unwrap());
    assert_eq!(world.find(), Found::Tombstone, "a delayed keeper may still come");
}

#[test]
fn of_concurrent_starts_exactly_one_succeeds() {
    for _ in 0..5 {
        let world = World::new();
        let mut talks: Vec<_> = (0..6).map(|_| world.start("echo started >> starts; touch written; sleep 60")).collect();
        let notices: Vec<Notice> = talks.iter_mut().map(|talk| talk.next()).collect();
        let refused = notices.iter().filter(|notice| **notice == Notice::Refused(Refusal::RecordExists)).count();
        let started = notices.iter().position(|notice| matches!(notice, Notice::Started { .. }));
        assert_eq!((refused, started.is_some()), (5, true), "{notices:?}");
        world.wait_for("written");
        let talk = &mut talks[started.unwrap()];
        talk.session.kill(std::time::Duration::from_secs(20));
        talk.settled();
        assert_eq!(fs::read_to_string(world.path("starts")).unwrap(), "started\n");
    }
}

#[test]
fn of_a_concurrent_start_and_tombstone_one_wins() {
    for _ in 0..40 {
        let world = World::new();
        let mut talk = world.start("echo started >> starts");
        let found = keeper::write_tombstone(&world.record()).unwrap();
        let notice = talk.next();
        match found {
            Found::Tombstone => assert_eq!(notice, Notice::Refused(Refusal::RecordExists)),
            Found::Live(_) | Found::Ended(..) => assert!(matches!(notice, Notice::Started { .. }), "{notice:?}"),
            Found::Nothing | Found::Dead(_) => panic!("neither: {found:?}"),
        }
        assert_eq!(found == Found::Tombstone, !matches!(notice, Notice::Started { .. }));
        if found != Found::Tombstone {
            talk.settled();
        }
        assert_eq!(world.path("starts").exists(), found != Found::Tombstone);
    }
}

#[test]
fn a_record_that_cannot_be_made_is_reported() {
    let world = World::new();
    let mut spec = world.spec("true");
    fs::write(world.path("file"), "").unwrap();
    spec.record = world.path("file/record");
    let mut talk = start(&spec);
    assert_eq!(talk.next(), Notice::Refused(Refusal::NoRecord { error: "Not a directory".into(), shortage: None }));
    assert_eq!(talk.next(), Notice::Gone);
}

#[test]
fn only_a_complete_ending_counts_and_only_a_lock_means_life() {
    let world = World::new();
    let mut talk = world.start("exit 9");
    talk.ended();
    assert_eq!(talk.next(), Notice::Gone);
    until("the keeper is gone", || not_live(&world));
    let bytes = fs::read(world.record()).unwrap();
    let first = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for length in 0..bytes.len() {
        fs::write(world.record(), &bytes[..length]).unwrap();
        match world.find() {
            Found::Nothing => assert!(length < first, "{length}"),
            Found::Dead(_) => assert!(length >= first, "{length}"),
            other => panic!("{length}: {other:?}"),
        }
    }
    // The pid belongs to a live process that is no keeper: it does not hold the lock.
    let Found::Dead(record) = world.find() else { panic!("not dead") };
    let own = std::process::id();
    let text = String::from_utf8(bytes[..first].to_vec()).unwrap();
    let reused = text.replace(&format!("\"keeper_pid\":{}", record.keeper_pid), &format!("\"keeper_pid\":{own}"));
    assert_ne!(text, reused);
    fs::write(world.record(), reused).unwrap();
    assert!(matches!(world.find(), Found::Dead(record) if record.keeper_pid == i32::try_from(own).unwrap()));
    // A power cut may leave a file of zeros.
    fs::write(world.record(), [0; 300]).unwrap();
    assert_eq!(world.find(), Found::Nothing);
    assert_eq!(
        world.start("true").next(),
        Notice::Refused(Refusal::RecordExists),
        "the run may have started before the power cut"
    );
}

#[test]
fn concurrent_readers_are_not_taken_for_a_keeper() {
    let world = World::new();
    let mut talk = world.start("exit 9");
    talk.ended();
    assert_eq!(talk.next(), Notice::Gone);
    until("the keeper is gone", || not_live(&world));
    let file = fs::File::open(world.record()).unwrap();
    file.lock_shared().unwrap();
    assert!(matches!(world.find(), Found::Ended(..)));
}
