//! Loops, as scripts.

use super::*;

/// A loop that is done and waits for two children.
fn awaiting(on_children_timeout: OnTimeout) -> World<Task> {
    let mut world = World::looping();
    world.machine.spec.restart = Some(Policy { on_children_timeout, ..POLICY });
    world.start();
    assert_eq!(world.end_done(2), Outcome::Awaiting(2));
    world
}

/// The numbers that were announced.
fn announced(world: &World<Task>) -> Vec<Option<u32>> {
    let number = |event: &Event| match event {
        Event::Task { fact: TaskFact::Started { restart, .. }, .. } => Some(*restart),
        _ => None,
    };
    world.log.iter().filter_map(|(_, _, event)| number(event)).collect()
}

#[test]
fn it_is_tried_so_often_and_not_once_more() {
    let mut world = World::looping();
    for _ in 1..MAX_ATTEMPTS {
        world.start();
        assert_eq!(world.end_last(RunEnd::Exited(0)), Outcome::Again(RetryReason::NoVerdict));
        world.pass(REST);
        assert_eq!(world.act(Input::Found { marker: Marker::Absent, children: 0 }), Outcome::Clear);
    }
    world.start();
    assert_eq!(world.end_last(RunEnd::Exited(3)), Outcome::Ended(Status::Failed));
    assert_eq!(world.error(), "not done after 3 attempts, and max_attempts is 3; the last one: exit status 3");
    assert_eq!(announced(&world), [Some(0), Some(1), Some(2)]);

    world.act(Input::Retry);
    world.start();
    assert_eq!(announced(&world).last(), Some(&Some(0)), "a retry begins anew");
}

#[test]
fn a_run_that_never_began_is_announced_again_at_once() {
    let mut world = World::looping();
    world.start();
    assert_eq!(world.end_last(RunEnd::Never), Outcome::Again(RetryReason::Never));
    assert_eq!(world.machine.state, State::Pending, "nothing was tried, so there is nothing to rest from");
    world.start();
    assert_eq!((announced(&world), world.machine.attempts), (vec![Some(0), Some(0)], 2));
}

#[test]
fn it_rests_to_the_millisecond() {
    let mut world = World::looping();
    world.start();
    world.end_last(RunEnd::Exited(1));
    let until = world.now.lease + Span::from_secs(REST);
    assert_eq!(world.machine.next_deadline(Span::from_secs(TIMEOUT)), Some(until));
    world.now.lease = Lease(until.0 - 1);
    // One who was stalled need not wait longer: nothing is taken from anybody.
    world.now.patience = Span::from_secs(15);
    assert!(!world.machine.is_due(world.now.lease));
    assert_eq!(world.start(), Outcome::NotPending(Status::Pending));
    assert_eq!(world.act(Input::MakeReady), Outcome::NotPending(Status::Pending));
    world.now.lease = until;
    assert!(world.machine.is_due(until));
    let mut ripe = world.clone();
    assert_eq!(ripe.act(Input::MakeReady), Outcome::Clear);
    assert_eq!((&ripe.machine.state, ripe.log.len()), (&State::Pending, world.log.len()), "that is no news");
    for mut world in [world, ripe] {
        assert!(matches!(world.start(), Outcome::Started(_)));
    }
}

#[test]
fn without_a_delay_the_next_attempt_follows_at_once() {
    let mut world = World::looping();
    world.machine.spec.restart = Some(Policy { delay: Span::ZERO, ..POLICY });
    world.start();
    world.end_last(RunEnd::Exited(1));
    assert_eq!((&world.machine.state, world.machine.failures), (&State::Pending, 1));
}

#[test]
fn done_ends_it_while_it_waits_and_while_it_rests() {
    let found = || Input::Found { marker: Marker::Done, children: 0 };
    let mut world = World::looping();
    assert_eq!(world.act(found()), Outcome::Ended(Status::Completed));
    assert_eq!(world.kinds(), ["added", "complete"]);

    let mut world = World::looping();
    world.start();
    world.end_last(RunEnd::Exited(1));
    assert_eq!(world.act(found()), Outcome::Ended(Status::Completed));

    let mut world = World::looping();
    world.start();
    assert_eq!(world.act(found()), Outcome::NotPending(Status::InProgress), "its run may still be writing");
    assert_eq!(World::task().act(found()), Outcome::NotPending(Status::Pending), "it is no loop");
}

#[test]
fn the_result_waits_with_it_for_the_children() {
    let mut world = World::looping();
    world.start();
    let epoch = world.epoch();
    world.say(Some(epoch), true);
    assert_eq!(world.end_with(1, RunEnd::Exited(0), Marker::Absent, 2), Outcome::Awaiting(2));
    assert_eq!(world.machine.status(), Status::InProgress);
    assert_eq!(world.act(Input::Settle { children: 1 }), Outcome::Awaiting(1));
    assert_eq!(world.act(Input::Settle { children: 0 }), Outcome::Ended(Status::Completed));
    assert_eq!(world.machine.state, State::Done(TaskEnd::Success { output: Some(json!(7)), warning: None }));
}

#[test]
fn children_have_their_time_to_the_millisecond_and_then_the_policy_decides() {
    for (policy, outcome, last) in [
        (OnTimeout::Warn, Outcome::Ended(Status::Completed), "complete"),
        (OnTimeout::Fail, Outcome::Ended(Status::Failed), "failed"),
        (OnTimeout::Kill, Outcome::EndChildren, "ending_children"),
    ] {
        let mut world = awaiting(policy);
        let until = world.now.lease + Span::from_secs(REST);
        assert_eq!(world.machine.next_deadline(Span::from_secs(TIMEOUT)), Some(until));
        world.now.lease = Lease(until.0 - 1);
        assert_eq!(world.act(Input::Settle { children: 2 }), Outcome::Awaiting(2));
        world.now.lease = until;
        assert_eq!(world.act(Input::Settle { children: 2 }), outcome);
        assert_eq!(world.kinds().last(), Some(&last));
    }
    let mut world = awaiting(OnTimeout::Kill);
    world.pass(REST);
    world.act(Input::Settle { children: 2 });
    assert_eq!(world.machine.next_deadline(Span::from_secs(TIMEOUT)), None, "they are cancelled once");
    world.pass(1_000_000);
    assert_eq!(world.act(Input::Settle { children: 1 }), Outcome::Awaiting(1));
    assert_eq!(world.act(Input::Settle { children: 0 }), Outcome::Ended(Status::Completed));
}

#[test]
fn a_warning_is_in_the_log() {
    let mut world = awaiting(OnTimeout::Warn);
    world.pass(REST);
    world.act(Input::Settle { children: 2 });
    let (_, _, last) = world.log.last().unwrap();
    assert!(last.data().starts_with(r#"{"warning":"2 of its children had not ended after "#), "{}", last.data());
}

#[test]
fn only_a_loop_waits_for_its_children() {
    let (mut world, _) = World::running();
    assert_eq!(world.end_with(1, RunEnd::Exited(0), Marker::Absent, 2), Outcome::Ended(Status::Completed));
}

#[test]
fn what_an_earlier_attempt_says_is_fenced() {
    let mut world = World::looping();
    world.start();
    let first = world.epoch();
    world.end_last(RunEnd::Exited(1));
    assert_eq!(world.say(Some(first), true), Outcome::Fenced(None), "while it rests");
    world.pass(REST);
    world.start();
    assert_eq!(world.say(Some(first), true), Outcome::Fenced(Some(world.epoch())));
}

#[test]
fn each_way_to_end_has_its_word() {
    for (said, ending, word) in [
        (false, RunEnd::Exited(0), RetryReason::NoVerdict),
        (true, RunEnd::Exited(0), RetryReason::Failed),
        (false, RunEnd::Exited(1), RetryReason::Failed),
        (false, RunEnd::Signalled(9), RetryReason::Failed),
        (false, RunEnd::Lost, RetryReason::Lost),
        (false, RunEnd::Never, RetryReason::Never),
    ] {
        let mut world = World::looping();
        world.start();
        let epoch = world.epoch();
        if said {
            world.say(Some(epoch), false);
        }
        assert_eq!(world.end_last(ending.clone()), Outcome::Again(word), "{ending:?}");
        assert_eq!(world.machine.recoveries, 0, "a loop has its own limit: {ending:?}");
        assert_eq!(world.machine.failures, u32::from(word != RetryReason::Never));
    }
    let mut world = World::looping();
    world.start();
    world.pass(MAX_DURATION);
    world.overtime();
    assert_eq!(world.end_last(RunEnd::Signalled(15)), Outcome::Again(RetryReason::Overtime));
}

#[test]
fn who_has_worked_on_it_by_hand_gives_back_all_attempts() {
    let mut world = World::looping();
    world.start();
    world.end_last(RunEnd::Exited(1));
    assert_eq!(world.take(Epoch(7)), Outcome::Taken);
    assert_eq!(world.start(), Outcome::NotPending(Status::InProgress));
    assert_eq!(world.act(Input::Return), Outcome::Returned);
    assert_eq!((&world.machine.state, world.machine.failures), (&State::Pending, 0));
}
