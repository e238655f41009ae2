//! Runs that a person stops so that the task is pending again.

use super::*;

fn stopped(world: &mut World<Task>) {
    world.start();
    assert_eq!(world.stop(After::PutBack { now: false }), Outcome::Stopping);
}

fn ran(world: &mut World<Task>, ending: RunEnd) -> Outcome {
    let (run, ran) = (run(world.runs()), Some(Span::from_secs(1)));
    world.act(Input::End { run, ending, ran, marker: Marker::Absent, children: 0, watch: WATCH })
}

#[test]
fn a_stopped_run_uses_no_attempt_retry_or_recovery() {
    for mut world in [World::task(), World::looping()] {
        for ending in [RunEnd::Signalled(15), RunEnd::Exited(0), RunEnd::Exited(3), RunEnd::Lost, RunEnd::Never, not_begun(false)]
        {
            stopped(&mut world);
            assert_eq!(world.end_last(ending), Outcome::Again(RetryReason::Stopped));
            let Task { state, attempts, failures, recoveries, .. } = &world.machine;
            assert_eq!((state, attempts, failures, recoveries), (&State::Pending, &0, &0, &0));
        }
    }
}

#[test]
fn a_run_that_ended_before_the_request_counts() {
    let mut world = World::task();
    stopped(&mut world);
    assert_eq!(ran(&mut world, RunEnd::Exited(1)), Outcome::Again(RetryReason::Failed));
    assert_eq!((world.machine.attempts, world.machine.failures), (1, 1));
    stopped(&mut world);
    assert_eq!(ran(&mut world, RunEnd::Exited(0)), Outcome::Ended(Status::Completed));
}

#[test]
fn the_verdict_of_a_stopped_run_counts() {
    for (done, outcome) in [(true, Outcome::Ended(Status::Completed)), (false, Outcome::Again(RetryReason::Failed))] {
        let (mut world, epoch) = World::running();
        world.say(Some(epoch), done);
        world.stop(After::PutBack { now: false });
        assert_eq!(world.end_last(RunEnd::Signalled(15)), outcome);
    }
    let mut world = World::looping();
    stopped(&mut world);
    assert_eq!(world.end_done(0), Outcome::Ended(Status::Completed), "the file DONE was there");
}

#[test]
fn a_hurried_stop_kills_at_once_and_changes_nothing_else() {
    let kills = |world: &World<Task>| -> Vec<bool> {
        let kills = world.outbox.iter().filter_map(|command| match command {
            OutboxCommand::Kill { now, .. } => Some(*now),
            _ => None,
        });
        kills.collect()
    };
    let mut world = World::task();
    stopped(&mut world);
    world.stop(After::PutBack { now: true });
    world.stop(After::PutBack { now: true });
    assert_eq!(kills(&world), [false, true]);
    let (mut world, _) = World::running();
    world.fail();
    assert_eq!(world.stop(After::PutBack { now: true }), Outcome::Stopping);
    assert_eq!(kills(&world), [false, true]);
    assert_eq!(world.end_last(RunEnd::Signalled(9)), Outcome::Ended(Status::Failed), "the first request was to fail");
}

#[test]
fn a_retry_by_a_person_ends_the_pause_of_a_task() {
    let mut world = World::task();
    let pause = crate::Pause { verb: crate::PauseVerb::Stop, by: "ann".into(), at: Wall(7) };
    world.machine.spec.paused = Some(Box::new(pause));
    world.stop(After::Cancel);
    assert_eq!(world.act(Input::Retry), Outcome::Clear);
    assert_eq!(world.machine.spec.paused, None);
}
