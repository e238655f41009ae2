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

/// The attempt numbers in the events.
fn announced(world: &World<Task>) -> Vec<Option<u32>> {
    let number = |event: &Event| match event {
        Event::Task { fact: TaskFact::Started { restart, .. }, .. } => Some(*restart),
        _ => None,
    };
    world.log.iter().filter_map(|(_, _, event)| number(event)).collect()
}

#[test]
fn a_loop_ends_after_its_last_attempt() {
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
    assert_eq!(announced(&world).last(), Some(&Some(0)), "a retry starts again from zero");
}

#[test]
fn a_run_that_never_began_is_repeated_at_once() {
    let mut world = World::looping();
    world.start();
    assert_eq!(world.end_last(RunEnd::Never), Outcome::Again(RetryReason::Never));
    assert_eq!(world.machine.state, State::Pending, "without an attempt there is no backoff");
    world.start();
    assert_eq!((announced(&world), world.machine.attempts), (vec![Some(0), Some(0)], 2));
}

#[test]
fn the_backoff_is_exact_to_the_millisecond() {
    let mut world = World::looping();
    world.start();
    world.end_last(RunEnd::Exited(1));
    let until = world.now.lease + Span::from_secs(REST);
    assert_eq!(world.machine.next_deadline(Span::from_secs(TIMEOUT)), Some(until));
    world.now.lease = Lease(until.0 - 1);
    // A stalled runner need not wait longer: no grant is taken away.
    world.now.patience = Span::from_secs(15);
    assert!(!world.machine.is_due(world.now.lease));
    assert_eq!(world.start(), Outcome::NotPending(Status::Pending));
    assert_eq!(world.act(Input::MakeReady), Outcome::NotPending(Status::Pending));
    world.now.lease = until;
    assert!(world.machine.is_due(until));
    let mut ready = world.clone();
    assert_eq!(ready.act(Input::MakeReady), Outcome::Clear);
    assert_eq!((&ready.machine.state, ready.log.len()), (&State::Pending, world.log.len()), "that has no event");
    for mut world in [world, ready] {
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
fn done_ends_a_loop_while_it_is_pending_or_backs_off() {
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
    assert_eq!(World::task().act(found()), Outcome::NotPending(Status::Pending), "it is not a loop");
}

#[test]
fn the_result_of_a_loop_waits_for_its_children() {
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
fn the_time_of_children_is_exact_to_the_millisecond() {
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
    assert_eq!(world.machine.next_deadline(Span::from_secs(TIMEOUT)), None, "the children are cancelled once");
    world.pass(1_000_000);
    assert_eq!(world.act(Input::Settle { children: 1 }), Outcome::Awaiting(1));
    assert_eq!(world.act(Input::Settle { children: 0 }), Outcome::Ended(Status::Completed));
}

#[test]
fn a_warning_is_logged() {
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
fn the_verdict_of_an_earlier_attempt_is_fenced() {
    let mut world = World::looping();
    world.start();
    let first = world.epoch();
    world.end_last(RunEnd::Exited(1));
    assert_eq!(world.say(Some(first), true), Outcome::Fenced(None), "during the backoff");
    world.pass(REST);
    world.start();
    assert_eq!(world.say(Some(first), true), Outcome::Fenced(Some(world.epoch())));
}

#[test]
fn each_end_of_an_attempt_has_its_retry_reason() {
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
fn manual_work_resets_the_attempts_of_a_loop() {
    let mut world = World::looping();
    world.start();
    world.end_last(RunEnd::Exited(1));
    assert_eq!(world.take(Epoch(7)), Outcome::Taken);
    assert_eq!(world.start(), Outcome::NotPending(Status::InProgress));
    assert_eq!(world.act(Input::Return), Outcome::Returned);
    assert_eq!((&world.machine.state, world.machine.failures), (&State::Pending, 0));
}
