//! The escalation for a run without activity, and for one that takes too long, as scripts.

use super::*;
use crate::decision::{About, Act};
use crate::event::DecisionFact;
use crate::step::NoticeKind;

fn commands(world: &World<Task>) -> Vec<&'static str> {
    let word = |command: &OutboxCommand| match command {
        OutboxCommand::Spawn { .. } => "spawn",
        OutboxCommand::Kill { .. } => "kill",
        OutboxCommand::Nudge { .. } => "nudge",
        OutboxCommand::Deliver { .. } => "deliver",
        OutboxCommand::Notify(_) => "notify",
    };
    world.outbox.iter().map(word).collect()
}

/// Both kinds of task escalate the same way.
fn worlds() -> [World<Task>; 2] {
    [World::task(), World::looping()]
}

#[test]
fn a_silent_run_is_nudged_then_restarted_then_escalated() {
    for mut world in worlds() {
        world.start();
        assert_eq!(world.fall_silent(), Outcome::Stuck);
        assert_eq!((commands(&world), world.machine.recoveries), (vec!["spawn", "nudge"], 1));
        assert_eq!(world.fall_silent(), Outcome::Stopping);
        assert_eq!((commands(&world), world.machine.recoveries), (vec!["spawn", "nudge", "kill"], 1), "counted at its end");
        assert_eq!(world.end_last(RunEnd::Signalled(15)), Outcome::Again(RetryReason::Stuck));
        assert_eq!(world.machine.recoveries, 2);

        world.pass(REST);
        world.start();
        assert_eq!(world.fall_silent(), Outcome::Stopping, "no recovery is left");
        let Outcome::AwaitingDecision(decision) = world.end_last(RunEnd::Signalled(15)) else { panic!("{:?}", world.machine) };
        assert_eq!(world.machine.state, State::AwaitingDecision { decision: decision.clone() });
        assert_eq!(world.machine.status(), Status::Blocked);
        let before = ["added", "started", "stuck", "nudged", "stopping", "restarting"];
        assert_eq!(world.kinds()[..6], before);
        assert_eq!(world.kinds()[6..], ["started", "stuck", "stopping", "raised", "escalate"]);
        assert_eq!(commands(&world)[3..], ["spawn", "kill", "notify"]);

        let raised = world.log.iter().find_map(|(seq, _, event)| match event {
            Event::Decision { id, fact: DecisionFact::Raised(question) } => Some((*seq, id, question)),
            _ => None,
        });
        let (seq, id, question) = raised.unwrap();
        assert_eq!((id, &decision), (&DecisionId::from(seq), id));
        assert_eq!(question.about, About::Task(world.machine.id.clone()));
        let acts: Vec<_> = question.options.iter().map(|choice| choice.act).collect();
        assert_eq!((acts, question.recommended), (vec![Act::Retry, Act::Fail, Act::Skip, Act::Cancel], 1));
        assert!(question.text.contains("no activity") && question.text.contains("2 times"), "{}", question.text);
        let Some(OutboxCommand::Notify(notice)) = world.outbox.last() else { panic!("{:?}", world.outbox) };
        assert_eq!(notice.kind, NoticeKind::Escalate);
    }
}

#[test]
fn with_on_exhausted_fail_the_task_fails() {
    let watch = Watch { max_recoveries: 0, on_exhausted: OnExhausted::Fail, ..WATCH };
    for mut world in worlds() {
        world.start();
        let (epoch, pulse) = (world.epoch(), Pulse::Idle(Span::from_secs(1_000)));
        world.pass(TIMEOUT);
        assert_eq!(world.act(Input::Heartbeat { epoch, pulse, watch }), Outcome::Stopping);
        assert_eq!(world.end_last(RunEnd::Signalled(15)), Outcome::Ended(Status::Failed));
        assert!(world.error().starts_with("no activity for "), "{}", world.error());
    }
}

#[test]
fn escalation_steps_are_exactly_one_time_out_apart() {
    for mut world in worlds() {
        world.start();
        world.fall_silent();
        let (epoch, pulse) = (world.epoch(), Pulse::Idle(Span::from_secs(1_000)));
        let deadline = world.now.lease + Span::from_secs(TIMEOUT);
        assert_eq!(world.machine.next_deadline(Span::from_secs(TIMEOUT)), Some(deadline));
        world.now.lease = Lease(deadline.0 - 1);
        assert_eq!(world.pulse(epoch, pulse), Outcome::Seen);
        world.now.lease = deadline;
        world.now.patience = Span::from_ms(1);
        assert_eq!(world.pulse(epoch, pulse), Outcome::Seen, "a stalled runner allows more time");
        world.now.patience = Span::ZERO;
        assert_eq!(world.pulse(epoch, pulse), Outcome::Stopping);
    }
}

#[test]
fn output_recovers_a_stuck_run_and_resets_its_recoveries() {
    for mut world in worlds() {
        world.start();
        let epoch = world.epoch();
        for _ in 0..=MAX_RECOVERIES {
            assert_eq!(world.fall_silent(), Outcome::Stuck);
            assert_eq!(world.machine.recoveries, 1);
            assert_eq!(world.pulse(epoch, Pulse::Active), Outcome::Recovered);
            assert_eq!(world.machine.recoveries, 0);
            assert!(matches!(world.machine.state, State::Running(_)));
        }
    }
}

#[test]
fn work_without_output_postpones_the_escalation_only() {
    for mut world in worlds() {
        world.start();
        let (epoch, busy) = (world.epoch(), Pulse::Busy(Span::from_secs(1_000)));
        assert_eq!(world.pulse(epoch, busy), Outcome::Seen);
        for recoveries in 1..=MAX_RECOVERIES {
            assert_eq!(world.fall_silent(), Outcome::Stuck);
            assert_eq!(world.pulse(epoch, busy), Outcome::Recovered);
            assert_eq!(world.machine.recoveries, recoveries);
        }
        assert_eq!(world.fall_silent(), Outcome::Stopping, "no recovery is left");
        assert_eq!(commands(&world), ["spawn", "nudge", "nudge", "kill"]);
        let watch = Watch { timeout: Span::from_secs(10), max_recoveries: 0, on_exhausted: OnExhausted::Fail };
        assert_eq!([49, 50].map(|secs| watch.believes(Span::from_secs(secs))), [true, false], "four more limits");
    }
}

#[test]
fn steady_output_resets_the_recoveries() {
    let (mut world, _) = World::running();
    world.end_last(RunEnd::Lost);
    world.start();
    assert_eq!(world.machine.recoveries, 1);
    let epoch = world.epoch();
    world.pulse(epoch, Pulse::Active);
    assert_eq!(world.machine.recoveries, 1, "a first output is no proof");
    assert_eq!(world.pulse(epoch, Pulse::Steady), Outcome::Seen);
    assert_eq!(world.machine.recoveries, 0);
}

#[test]
fn a_dead_session_is_not_nudged() {
    let (mut world, epoch) = World::running();
    assert_eq!(world.pulse(epoch, Pulse::SessionDead), Outcome::Stuck);
    world.pass(TIMEOUT);
    assert_eq!(world.pulse(epoch, Pulse::Idle(Span::from_secs(1_000))), Outcome::Seen);
    assert_eq!((commands(&world), world.machine.recoveries), (vec!["spawn"], 0));
}

#[test]
fn a_lost_run_escalates_at_the_limit_but_in_a_loop_is_an_attempt() {
    let mut world = World::task();
    for _ in 0..MAX_RECOVERIES {
        world.start();
        assert_eq!(world.end_last(RunEnd::Lost), Outcome::Again(RetryReason::Lost));
    }
    world.start();
    assert!(matches!(world.end_last(RunEnd::Lost), Outcome::AwaitingDecision(_)));

    let mut world = World::looping();
    for _ in 1..MAX_ATTEMPTS {
        world.start();
        assert_eq!(world.end_last(RunEnd::Lost), Outcome::Again(RetryReason::Lost));
        world.pass(REST);
    }
    world.start();
    assert_eq!(world.end_last(RunEnd::Lost), Outcome::Ended(Status::Failed));
}

#[test]
fn overtime_is_a_failure_and_counts_from_the_start_of_the_run() {
    let mut world = World::task();
    for again in [Outcome::Again(RetryReason::Overtime), Outcome::Ended(Status::Failed)] {
        world.start();
        let (epoch, began) = (world.epoch(), world.now.lease);
        world.now.lease = Lease((began + Span::from_secs(MAX_DURATION)).0 - 1);
        world.pulse(epoch, Pulse::Active);
        assert_eq!(world.overtime(), Outcome::Seen);
        world.now.lease = began + Span::from_secs(MAX_DURATION);
        world.now.patience = Span::from_ms(1);
        assert_eq!(world.overtime(), Outcome::Seen, "a stalled runner allows more time");
        world.now.patience = Span::ZERO;
        assert_eq!(world.overtime(), Outcome::Stopping, "activity does not help");
        assert_eq!(world.overtime(), Outcome::Stopping);
        assert_eq!(world.end_last(RunEnd::Signalled(15)), again);
    }
    assert!(world.error().starts_with("it took longer than "), "{}", world.error());
    assert_eq!(commands(&world), ["spawn", "kill", "spawn", "kill", "notify"]);
}

/// The runner died between the claim and the start of the session.
#[test]
fn a_run_that_never_began_has_no_overtime() {
    for mut world in worlds() {
        world.machine.spec.retries = 0;
        world.start();
        world.pass(MAX_DURATION);
        world.overtime();
        assert_eq!(world.end_last(RunEnd::Never), Outcome::Again(RetryReason::Never));
        assert_eq!(world.machine.failures, 0);
    }
}

#[test]
fn a_checkpoint_moves_the_time_of_the_last_activity() {
    let (mut world, _) = World::running();
    let (epoch, began) = (world.epoch(), world.now.lease);
    world.pass(50);
    let checkpoint = |quiet| Input::Checkpoint { epoch, output_bytes: 1_234, quiet: Span::from_secs(quiet) };
    assert_eq!(world.act(checkpoint(20)), Outcome::Seen);
    let deadline = began + Span::from_secs(30 + TIMEOUT);
    assert_eq!(world.machine.next_deadline(Span::from_secs(TIMEOUT)), Some(deadline));
    world.act(checkpoint(40));
    assert_eq!(world.machine.next_deadline(Span::from_secs(TIMEOUT)), Some(deadline), "it never goes back");
    let (_, _, last) = world.log.last().unwrap();
    assert_eq!((last.kind(), &*last.data()), ("task:checkpoint", r#"{"outputBytes":1234,"quiet":40000,"run":"r-1"}"#));
}

#[test]
fn taking_and_returning_a_task_resets_its_recoveries() {
    let (mut world, _) = World::running();
    world.stop(After::Escalate { error: "x".into() });
    world.machine.recoveries = MAX_RECOVERIES;
    world.end_last(RunEnd::Signalled(15));
    assert_eq!(world.take(Epoch(7)), Outcome::Taken);
    assert_eq!(world.act(Input::Return), Outcome::Returned);
    assert_eq!(world.machine.recoveries, 0);
}
