//! The landing of a task's work: every state against the ends of the entry and commands of people.

use super::table::letters;
use super::*;
use crate::ids::Name;
use crate::landing::{CommitId, LandingEnd, Return};

fn commit() -> CommitId {
    CommitId::new(&"ab".repeat(20)).unwrap()
}

fn to() -> LandSpec {
    LandSpec { target: Name::new("main").unwrap(), unchecked: false, of_child: false }
}

/// A task that lands, in its first run.
fn running() -> World<Task> {
    let mut world = World::task();
    world.machine.spec.land = Some(Box::new(to()));
    world.start();
    world
}

fn landing() -> World<Task> {
    let mut world = running();
    assert_eq!(world.end_last(RunEnd::Exited(0)), Outcome::Landing);
    world
}

fn ends() -> [(LandingEnd, Outcome, &'static str); 6] {
    let tip = commit();
    [
        (
            LandingEnd::Landed { from: tip.clone(), commit: commit(), checked: true, flaky: false },
            Outcome::Ended(Status::Completed),
            "completed",
        ),
        (LandingEnd::NoChange { tip: tip.clone() }, Outcome::Ended(Status::Completed), "completed"),
        (
            LandingEnd::Returned(Return::Conflict { tip, files: vec!["a".into()] }),
            Outcome::Again(RetryReason::Landing),
            "pending",
        ),
        (LandingEnd::Returned(Return::NoChange), Outcome::Again(RetryReason::Landing), "pending"),
        (LandingEnd::Shelved { reason: "no check".into() }, Outcome::Marked(Status::Review), "review"),
        (LandingEnd::Removed { by: "ann".into() }, Outcome::Marked(Status::Review), "review"),
    ]
}

#[test]
fn the_end_of_the_entry_ends_the_task_or_brings_it_back() {
    for (end, outcome, state) in ends() {
        let mut world = landing();
        assert_eq!(world.act(Input::LandingEnded(end.clone())), outcome, "{end:?}");
        assert_eq!(letters(&world.machine.state), state, "{end:?}");
        // Only once: an input about an entry that the task does not wait for changes nothing.
        let before = world.machine.clone();
        let outcome = world.act(Input::LandingEnded(end));
        assert_eq!((outcome, &world.machine), (Outcome::NotPending(before.status()), &before));
    }
}

#[test]
fn only_the_merge_queue_completes_a_task_that_lands() {
    let mut world = landing();
    let before = world.machine.clone();
    for input in [
        Input::Retry,
        Input::Set(Mark::Skipped),
        Input::Set(Mark::Review),
        Input::Land(Box::new(to())),
        Input::Conclude { epoch: None, verdict: Verdict::Done { output: None } },
        Input::Conclude { epoch: None, verdict: Verdict::NoChange { output: None } },
        Input::Conclude { epoch: None, verdict: Verdict::Failed { error: "x".into() } },
    ] {
        assert_eq!(world.act(input.clone()), Outcome::NotPending(Status::Landing), "{input:?}");
        assert_eq!(world.machine, before, "{input:?}");
    }
    assert_eq!(world.take(Epoch(7)), Outcome::NotPending(Status::Landing));
    assert_eq!(world.stop(After::Cancel), Outcome::Ended(Status::Cancelled));
    let mut world = World::task();
    world.machine.spec.land = Some(Box::new(to()));
    assert_eq!(world.say(None, true), Outcome::MustLand);
    let nothing = Verdict::NoChange { output: None };
    assert_eq!(world.act(Input::Conclude { epoch: None, verdict: nothing }), Outcome::Ended(Status::Completed));
}

#[test]
fn a_run_without_changes_completes_without_landing() {
    let mut world = running();
    let epoch = Some(world.epoch());
    world.act(Input::Conclude { epoch, verdict: Verdict::NoChange { output: None } });
    assert_eq!(world.end_last(RunEnd::Exited(0)), Outcome::Ended(Status::Completed));
    // A loop waits for its children nevertheless.
    let mut world = World::looping();
    world.machine.spec.land = Some(Box::new(to()));
    world.start();
    let epoch = Some(world.epoch());
    world.act(Input::Conclude { epoch, verdict: Verdict::NoChange { output: None } });
    assert_eq!(world.end_with(1, RunEnd::Exited(0), Marker::Absent, 2), Outcome::Awaiting(2));
    assert_eq!(world.act(Input::Settle { children: 0 }), Outcome::Ended(Status::Completed));
}

#[test]
fn a_loop_lands_after_its_children() {
    let mut world = World::looping();
    world.machine.spec.land = Some(Box::new(to()));
    world.start();
    assert_eq!(world.end_done(1), Outcome::Awaiting(1));
    assert_eq!(world.act(Input::Settle { children: 0 }), Outcome::Landing);
}

#[test]
fn a_person_can_land_a_task_without_a_live_run() {
    let mut world = World::task();
    assert_eq!(world.act(Input::Land(Box::new(to()))), Outcome::Landing, "also a task that does not land by itself");
    let mut world = running();
    let epoch = world.epoch();
    assert_eq!(world.act(Input::Land(Box::new(to()))), Outcome::Busy(epoch));
    world.end_last(RunEnd::Exited(1));
    world.act(Input::Set(Mark::Review));
    assert_eq!(world.act(Input::Land(Box::new(to()))), Outcome::Landing);
    let (landed, ..) = ends()[0].clone();
    world.act(Input::LandingEnded(landed));
    assert_eq!(world.act(Input::Land(Box::new(to()))), Outcome::Over(Status::Completed));
}
