//! Histories of a task: all short ones, and random long ones against a naive model.

use proptest::prelude::*;

use super::model::{Op, TaskModel, op};
use super::table::{is_refusal, letters};
use super::*;
use crate::decision::About;
use crate::event::DecisionFact;
use crate::step::NoticeKind;

/// The number of inputs of [`try_one`].
const CHOICES: usize = 21;

/// Small inputs that collide in many ways: a runner, its runs and their ends, and commands of people.
fn try_one(world: &mut World<Task>, choice: usize) -> Outcome {
    let epoch = world.epoch();
    match choice {
        0 => world.start(),
        1 => world.end_last(RunEnd::Exited(1)),
        2 => world.end_last(RunEnd::Lost),
        3 => world.fall_silent(),
        4 => world.pulse(epoch, Pulse::Active),
        5 => world.say(Some(epoch), true),
        6 => world.stop(After::Restart),
        7 => world.stop(After::Cancel),
        8 => world.fail(),
        9 => world.act(Input::Retry),
        10 => world.end_done(1),
        11 => world.act(Input::Found { marker: Marker::Done, children: 0 }),
        12 => {
            world.pass(REST);
            world.act(Input::Settle { children: 1 })
        }
        13 => world.act(Input::Settle { children: 0 }),
        14 => world.act(Input::MakeReady),
        15 => world.take(Epoch(7)),
        16 => world.act(Input::Return),
        17 => {
            world.pass(MAX_DURATION);
            world.overtime()
        }
        18 => world.end_last(not_begun(true)),
        19 => world.end_last(not_begun(false)),
        20 => world.stop(After::PutBack { now: false }),
        _ => unreachable!("{choice}"),
    }
}

/// Asserts what must hold for every single step.
fn assert_step_is_sound(before: &World<Task>, after: &World<Task>, outcome: &Outcome) {
    let (old, new) = (&before.machine, &after.machine);
    let is_uncounted = after.log.len() > before.log.len() && gives_back(&after.log.last().unwrap().2);
    let begun = old.attempts + u32::from(matches!(outcome, Outcome::Started(_)));
    assert_eq!(new.attempts, begun - u32::from(is_uncounted));
    let limit = if new.spec.restart.is_some() { MAX_ATTEMPTS - 1 } else { RETRIES };
    assert!(new.failures <= limit && new.recoveries <= MAX_RECOVERIES, "{new:?}");
    let is_retry =
        after.log.len() > before.log.len() && ["retried", "taken"].iter().any(|word| after.kinds().last() == Some(word));
    match is_retry {
        true => assert_eq!((new.failures, new.recoveries), (0, 0)),
        false => {
            let is_well = after.log.len() > before.log.len() && after.kinds().last() == Some(&"recovered");
            let is_helped = new.recoveries >= old.recoveries || (is_well && new.recoveries == 0);
            assert!(new.failures >= old.failures && is_helped, "{old:?} became {new:?}");
        }
    }
    if is_refusal(outcome) {
        assert_eq!((new, &after.log, &after.outbox), (old, &before.log, &before.outbox), "a refusal changes nothing");
    }
    match (old.live(), new.live()) {
        (Some(old), Some(new)) => assert_eq!((&old.run, old.epoch), (&new.run, new.epoch), "one run at a time"),
        (None, Some(_)) => assert!(matches!(outcome, Outcome::Started(_))),
        (Some(_), None) => assert!(
            matches!(
                outcome,
                Outcome::Ended(_) | Outcome::Again(_) | Outcome::AwaitingDecision(_) | Outcome::Awaiting(_) | Outcome::Landing
            ),
            "{outcome:?}"
        ),
        (None, None) => {}
    }
    if let State::Stopping { then, .. } = &old.state {
        match &new.state {
            State::Stopping { then: now, .. } => assert!(now.precedence() >= then.precedence(), "{then:?} became {now:?}"),
            State::Pending | State::Backoff { .. } | State::Held => {
                assert!(matches!(then, After::Restart | After::Overtime { .. } | After::PutBack { .. }))
            }
            // Also after overtime or a restart, if the run could not even begin and no recoveries are left.
            State::AwaitingDecision { .. } => {
                assert!(!matches!(then, After::Fail { .. } | After::Cancel))
            }
            State::Awaiting { .. } | State::Landing { .. } => assert_ne!(then, &After::Cancel),
            State::Done(done) => assert!(then != &After::Cancel || done == &TaskEnd::Cancelled),
            State::Running(_) | State::Stuck { .. } | State::Manual { .. } | State::InPhases { .. } | State::Review => {
                panic!("a run that is being stopped became {new:?}")
            }
        }
    }
}

/// Whether the run that ended does not count.
fn gives_back(event: &Event) -> bool {
    matches!(event, Event::Task { fact: TaskFact::Restarting { attempts: Some(_), .. }, .. })
}

/// Asserts what must hold for the log and the outbox: runs one after the other, numbered without a gap except for the
/// ones that could not begin, each killed at most once; never more attempts or recoveries than allowed; every question
/// with its task.
fn assert_log_is_sound(world: &World<Task>) {
    let is_loop = world.machine.spec.restart.is_some();
    let (mut live, mut spawned, mut cancelled) = (None, Vec::new(), false);
    let (mut nudges, mut raised, mut parked) = (0, None, 0);
    // Since the last retry by a person.
    let (mut begun, mut helped) = (0, 0);
    let mut counted = 0;
    for (_, _, event) in &world.log {
        let fact = match event {
            Event::Task { fact, .. } => fact,
            Event::Decision { id, fact: DecisionFact::Raised(question) } => {
                assert_eq!(question.about, About::Task(world.machine.id.clone()));
                assert_eq!(raised.replace(id), None, "the question before has its event");
                continue;
            }
            other => unreachable!("a task has events about itself and its questions only, not {other:?}"),
        };
        match fact {
            TaskFact::Started { run, attempt, restart, .. } => {
                assert_eq!((live, *attempt), (None, counted), "{:#?}", world.log);
                counted += 1;
                assert!(!cancelled, "a cancelled task does not start");
                assert_eq!(*restart, is_loop.then_some(begun), "attempts are announced one after the other");
                live = Some(run);
                spawned.push(run.clone());
                begun += 1;
                assert!(!is_loop || begun <= MAX_ATTEMPTS, "{:#?}", world.log);
            }
            TaskFact::Nudged { run, recoveries } => {
                assert_eq!(live, Some(run));
                (nudges, helped) = (nudges + 1, helped + 1);
                assert_eq!(*recoveries, helped);
                assert!(helped <= MAX_RECOVERIES);
            }
            TaskFact::Recovered { run, recoveries } => {
                assert_eq!(live, Some(run));
                helped = recoveries.unwrap_or(helped);
            }
            TaskFact::Stuck { run, .. } | TaskFact::Checkpoint { run, .. } | TaskFact::Stopping { run, .. } => {
                assert_eq!(live, Some(run))
            }
            TaskFact::Restarting { run, why, failures, recoveries, attempts, .. } => {
                assert_eq!(live.take(), Some(run));
                counted -= u32::from(attempts.is_some());
                assert!(attempts.is_none_or(|attempts| attempts == counted));
                begun -= u32::from(matches!(why, Some(RetryReason::Never | RetryReason::Shortage | RetryReason::Stopped)));
                let is_help = match why {
                    Some(RetryReason::Stuck) => true,
                    Some(RetryReason::Lost) => !is_loop,
                    Some(RetryReason::Never) => attempts.is_some(),
                    _ => false,
                };
                helped += u32::from(is_help);
                assert_eq!(*recoveries, Some(helped), "{:#?}", world.log);
                assert!(helped <= MAX_RECOVERIES);
                assert!(!is_loop || *failures == Some(begun));
            }
            TaskFact::Escalated { run, decision, .. } => {
                assert_eq!((live.take(), raised.take()), (Some(run), Some(decision)));
                // A run without a result and without a successor is not counted, until a retry.
                (parked, begun) = (parked + 1, begun - 1);
            }
            TaskFact::Asked { .. } | TaskFact::Answered { .. } => unreachable!("no run asks here"),
            TaskFact::Awaiting { run, .. } | TaskFact::Landing { run, .. } => assert_eq!(live.take(), run.as_ref()),
            TaskFact::SentBack { .. } => assert_eq!(live, None),
            TaskFact::Complete { run, .. } | TaskFact::Failed { run, .. } | TaskFact::Cancelled { run } => {
                assert_eq!(live.take(), run.as_ref());
                cancelled = matches!(fact, TaskFact::Cancelled { .. });
            }
            TaskFact::Retried {} => (cancelled, begun, helped) = (false, 0, 0),
            TaskFact::Taken { .. } => {
                assert_eq!(live, None);
                (begun, helped) = (0, 0);
            }
            TaskFact::Marked { .. } | TaskFact::Returned {} | TaskFact::InPhases { .. } | TaskFact::EndingChildren {} => {
                assert_eq!(live, None);
            }
            TaskFact::Paused(_) | TaskFact::Resumed(_) => unreachable!("no input of a task pauses it"),
            TaskFact::Added { .. } | TaskFact::Updated { .. } | TaskFact::Adopted { .. } | TaskFact::Deleted {} => {}
        }
    }
    assert_eq!((live, raised), (world.machine.live().map(|live| &live.run), None));
    let of = |kind: fn(&OutboxCommand) -> bool| {
        world.outbox.iter().filter(move |command| kind(command)).filter_map(OutboxCommand::run)
    };
    assert!(of(|command| matches!(command, OutboxCommand::Spawn { .. })).eq(&spawned));
    assert_eq!(of(|command| matches!(command, OutboxCommand::Nudge { .. })).count(), nudges, "one nudge for each event");
    let killed: Vec<_> = of(|command| matches!(command, OutboxCommand::Kill { .. })).collect();
    let distinct: std::collections::BTreeSet<_> = killed.iter().collect();
    assert_eq!(distinct.len(), killed.len(), "killed twice: {killed:?}");
    let notices = |kind| {
        let is_one = |command: &&OutboxCommand| matches!(command, OutboxCommand::Notify(notice) if notice.kind == kind);
        world.outbox.iter().filter(is_one).count()
    };
    let failed = world.kinds().iter().filter(|kind| **kind == "failed").count();
    assert_eq!((notices(NoticeKind::Escalate), notices(NoticeKind::TaskFailed)), (parked, failed), "one notification each");
}

/// Asserts that inputs about a run that is over are refused and change nothing.
fn assert_earlier_runs_are_powerless(world: &World<Task>) {
    for (seq, _, event) in &world.log {
        let Event::Task { fact: TaskFact::Started { run, .. }, .. } = event else { continue };
        let (run, epoch) = (run.clone(), Epoch::from(*seq));
        let current = world.machine.live().map(|live| live.epoch);
        if current == Some(epoch) {
            continue;
        }
        let mut later = world.clone();
        later.pass(MAX_DURATION);
        for ending in [RunEnd::Exited(0), RunEnd::Lost, RunEnd::Never] {
            let end = Input::End { run: run.clone(), ending, ran: None, marker: Marker::Done, children: 0, watch: WATCH };
            assert_eq!(later.act(end), Outcome::Late);
        }
        assert_eq!(later.act(Input::Overtime { run, max: Span::ZERO }), Outcome::Late);
        for pulse in [Pulse::Active, Pulse::SessionDead, Pulse::Idle(Span::from_secs(TIMEOUT))] {
            assert_eq!(later.pulse(epoch, pulse), Outcome::Fenced(current));
        }
        let checkpoint = Input::Checkpoint { epoch, output_bytes: 1, quiet: Span::ZERO };
        assert_eq!(later.act(checkpoint), Outcome::Fenced(current));
        assert_eq!(later.say(Some(epoch), true), Outcome::Fenced(current));
        assert_eq!((&later.machine, &later.log, &later.outbox), (&world.machine, &world.log, &world.outbox));
    }
}

/// Asserts that time alone changes something at the deadline and not a millisecond earlier.
fn assert_deadline_is_exact(world: &World<Task>) {
    let (epoch, long) = (world.epoch(), Pulse::Idle(Span::from_secs(1_000_000)));
    let poll = |world: &mut World<Task>| match &world.machine.state {
        State::Backoff { .. } => drop(world.act(Input::MakeReady)),
        State::Awaiting { .. } => drop(world.act(Input::Settle { children: 1 })),
        State::Running(_) | State::Stuck { .. } | State::Stopping { .. } => drop(world.pulse(epoch, long)),
        State::Pending
        | State::Held
        | State::AwaitingDecision { .. }
        | State::Manual { .. }
        | State::InPhases { .. }
        | State::Landing { .. }
        | State::Review
        | State::Done(_) => {
            drop(world.pulse(epoch, long));
            world.act(Input::MakeReady);
            world.act(Input::Settle { children: 1 });
        }
    };
    let mut later = world.clone();
    match world.machine.next_deadline(Span::from_secs(TIMEOUT)) {
        None => {
            later.pass(1_000_000);
            poll(&mut later);
            assert_eq!(&later.machine, &world.machine);
        }
        // The end of a lock, which is handled elsewhere.
        Some(deadline) if matches!(world.machine.state, State::Manual { until: Some(until), .. } if until == deadline) => {}
        Some(deadline) => {
            later.now.lease = Lease(deadline.0 - 1);
            poll(&mut later);
            assert_eq!(letters(&later.machine.state), letters(&world.machine.state));
            later.now.lease = deadline;
            poll(&mut later);
            assert_ne!(letters(&later.machine.state), letters(&world.machine.state), "{:?}", world.machine);
        }
    }
}

fn assert_world_is_sound(world: &World<Task>) {
    assert_log_is_sound(world);
    assert_earlier_runs_are_powerless(world);
    assert_deadline_is_exact(world);
}

fn explore(world: &World<Task>, depth: u32) -> usize {
    if depth == 0 {
        assert_world_is_sound(world);
        return 1;
    }
    let after = |choice| {
        let mut next = world.clone();
        let outcome = try_one(&mut next, choice);
        assert_step_is_sound(world, &next, &outcome);
        explore(&next, depth - 1)
    };
    (0..CHOICES).map(after).sum()
}

#[test]
fn all_orders_of_a_few_inputs_keep_the_invariants() {
    assert_eq!(explore(&World::task(), 4), CHOICES.pow(4));
    // From a task that was started and lost before, so that its counters can run out.
    let mut world = World::task();
    for _ in 1..MAX_RECOVERIES {
        world.start();
        world.end_last(RunEnd::Lost);
    }
    world.start();
    assert_eq!(explore(&world, 3), CHOICES.pow(3));
}

#[test]
fn all_orders_of_a_few_inputs_keep_the_invariants_of_a_loop() {
    assert_eq!(explore(&World::looping(), 4), CHOICES.pow(4));
    // From its last attempt but one, after a nudge.
    let mut world = World::looping();
    for _ in 2..MAX_ATTEMPTS {
        world.start();
        world.end_last(RunEnd::Exited(0));
        world.pass(REST);
    }
    world.start();
    world.fall_silent();
    assert_eq!(explore(&world, 3), CHOICES.pow(3));
}

/// Executes one operation in the world.
fn play(world: &mut World<Task>, watch: Watch, epochs: &mut Vec<Epoch>, op: &Op) -> Option<Outcome> {
    // An epoch from before the first run, if there were fewer runs.
    let epoch = |back: usize| epochs.iter().rev().nth(back).copied().unwrap_or(Epoch(1));
    let number = |back: usize| run(world.runs().wrapping_sub(back));
    let pulse = |back: usize, pulse| Input::Heartbeat { epoch: epoch(back), pulse, watch };
    let outcome = match op.clone() {
        Op::Found(marker, children) => world.act(Input::Found { marker, children }),
        Op::Start => world.start(),
        Op::Active(back) => world.act(pulse(back, Pulse::Active)),
        Op::Idle(back, secs) => world.act(pulse(back, Pulse::Idle(Span::from_secs(secs)))),
        Op::Dead(back) => world.act(pulse(back, Pulse::SessionDead)),
        Op::Checkpoint(back, secs) => {
            world.act(Input::Checkpoint { epoch: epoch(back), output_bytes: 9, quiet: Span::from_secs(secs) })
        }
        Op::Overtime(back) => world.act(Input::Overtime { run: number(back), max: Span::from_secs(MAX_DURATION) }),
        Op::Say(back, done) => world.say(Some(epoch(back)), done),
        Op::SayManually(done) => world.say(None, done),
        Op::Stop(0) => world.stop(After::PutBack { now: false }),
        Op::Stop(1) => world.stop(After::Restart),
        Op::Stop(2) => world.stop(After::Overtime { max: Span::from_secs(MAX_DURATION) }),
        Op::Stop(3) => world.stop(After::Escalate { error: "x".into() }),
        Op::Stop(4) => world.fail(),
        Op::Stop(_) => world.stop(After::Cancel),
        Op::End(back, ending, marker, children) => {
            world.act(Input::End { run: number(back), ending, ran: None, marker, children, watch })
        }
        Op::MakeReady => world.act(Input::MakeReady),
        Op::Settle(children) => world.act(Input::Settle { children }),
        Op::Retry => world.act(Input::Retry),
        Op::Set(mark) => world.act(Input::Set(mark)),
        Op::Take(epoch) => world.take(Epoch(epoch)),
        Op::Return => world.act(Input::Return),
        Op::Pass(secs) => {
            world.pass(secs);
            return None;
        }
    };
    if let Outcome::Started(epoch) = outcome {
        epochs.push(epoch);
    }
    Some(outcome)
}

fn agree(mut world: World<Task>, mut model: TaskModel, ops: &[Op]) -> Result<(), TestCaseError> {
    let on_exhausted = if model.escalates { OnExhausted::Escalate } else { OnExhausted::Fail };
    let (watch, mut epochs) = (Watch { on_exhausted, ..WATCH }, Vec::new());
    for op in ops {
        let before = world.clone();
        let outcome = play(&mut world, watch, &mut epochs, op);
        if let Some(outcome) = &outcome {
            assert_step_is_sound(&before, &world, outcome);
        }
        model.op(op);
        let task = &world.machine;
        prop_assert_eq!(letters(&task.state), model.letters(), "after {:?}", op);
        prop_assert_eq!((task.failures, task.recoveries), (model.failures, model.recoveries), "after {:?}", op);
        prop_assert_eq!((world.runs(), epochs.len()), (model.runs, model.runs));
        let live = task.live().map(|live| (live.epoch, live.run.clone()));
        let last = || epochs.last().copied().map(|epoch| (epoch, run(model.runs)));
        prop_assert_eq!(live, model.live.as_ref().and_then(|_| last()));
        let heard = |attempt: &super::model::Attempt| Lease(5_000 + 1_000 * attempt.heard);
        prop_assert_eq!(task.live().map(|live| live.seen.lease), model.live.as_ref().map(heard));
        match &task.state {
            State::Backoff { until } | State::Awaiting { until: Some(until), .. } => {
                prop_assert_eq!(*until, Lease(5_000 + 1_000 * model.until));
            }
            State::Manual { epoch, .. } => prop_assert_eq!(epoch.0, model.grant),
            _ => {}
        }
    }
    if model.escalates {
        assert_world_is_sound(&world);
    }
    Ok(())
}

proptest! {
    #[test]
    fn random_histories_agree_with_a_naive_task(ops in prop::collection::vec(op(), 1..120), escalates: bool) {
        agree(World::task(), TaskModel::new(None, escalates), &ops)?;
    }

    #[test]
    fn random_histories_agree_with_a_naive_loop(
        ops in prop::collection::vec(op(), 1..120),
        on_timeout in prop::sample::select(vec![OnTimeout::Warn, OnTimeout::Fail, OnTimeout::Kill]),
        escalates: bool,
    ) {
        let mut world = World::looping();
        world.machine.spec.restart = Some(Policy { on_children_timeout: on_timeout, ..POLICY });
        agree(world, TaskModel::new(Some(on_timeout), escalates), &ops)?;
    }
}
