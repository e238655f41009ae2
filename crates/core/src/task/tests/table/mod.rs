//! Every state of a task against every input.

use super::*;
use crate::test_world::{assert_table, words};

mod begin;
mod phases;
mod scenes;

use scenes::{STATES, scene};

/// The name of a state.
pub(super) fn letters(state: &State) -> &'static str {
    match state {
        State::Pending => "pending",
        State::Backoff { .. } => "resting",
        State::Held => "held",
        State::Running(_) => "running",
        State::Stuck { .. } => "stuck",
        State::Stopping { then, .. } => match then {
            After::Cancel => "to cancel",
            After::Fail { .. } => "to fail",
            After::Escalate { .. } => "to escalate",
            After::Overtime { .. } => "overtime",
            After::Restart => "to restart",
            After::PutBack { .. } => "to put back",
        },
        State::Awaiting { until: Some(_), .. } => "awaiting",
        State::Awaiting { until: None, .. } => "ending children",
        State::AwaitingDecision { .. } => "parked",
        State::Manual { .. } => "by hand",
        State::InPhases { is_blocked: false } => "in phases",
        State::InPhases { is_blocked: true } => "in phases, blocked",
        State::Landing { .. } => "landing",
        State::Review => "review",
        State::Done(done) => done.status().as_str(),
    }
}

/// The name of a state, with the failures and recoveries so far.
fn state(task: &Task) -> String {
    let state = letters(&task.state);
    match (task.failures, task.recoveries) {
        (0, 0) => state.into(),
        (failures, recoveries) => format!("{state} ({failures} {recoveries})"),
    }
}

fn said(task: &Task) -> &'static str {
    match task.live().and_then(|live| live.verdict.as_ref()) {
        None => "",
        Some(Verdict::Done { .. }) => "done",
        Some(Verdict::NoChange { .. }) => "no change",
        Some(Verdict::Failed { .. }) => "failed",
        Some(Verdict::Ask { .. }) => "asked",
        Some(Verdict::Refused(_)) => "refused",
        Some(Verdict::Untrusted { .. }) => "untrusted",
        Some(Verdict::Agent(_)) => "agent",
    }
}

fn word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Again(setback) => setback.as_str().into(),
        Outcome::AwaitingDecision(_) => "parked".into(),
        other => words(other),
    }
}

/// Every state against the given inputs: the outcome and the state afterwards (a refusal changes nothing), with
/// `+` for the events and `!` for the outbox commands that come out.
fn assert_answers(states: &[&str], inputs: &[&str], act: fn(&mut World<Task>, &str) -> Outcome, expected: &str) {
    assert_table(states, inputs, expected, |state, input| cell(state, |world| act(world, input)));
}

fn cell(name: &str, act: impl FnOnce(&mut World<Task>) -> Outcome) -> String {
    let mut world = scene(name);
    let before = world.clone();
    let outcome = act(&mut world);
    let mut cell = word(&outcome);
    if is_refusal(&outcome) {
        assert_eq!((&world.machine, &world.log, &world.outbox), (&before.machine, &before.log, &before.outbox), "{name}: {cell}");
        return cell;
    }
    let after = state(&world.machine);
    if after != cell {
        cell += &format!(": {after}");
    }
    if said(&world.machine) != said(&before.machine) && world.machine.live().is_some() {
        cell += &format!(", said {}", said(&world.machine));
    }
    world.kinds()[before.log.len()..].iter().for_each(|kind| cell += &format!(" +{kind}"));
    for command in &world.outbox[before.outbox.len()..] {
        cell += match command {
            OutboxCommand::Spawn { .. } => " !spawn",
            OutboxCommand::Kill { .. } => " !kill",
            OutboxCommand::Nudge { .. } => " !nudge",
            OutboxCommand::Deliver { .. } => " !deliver",
            OutboxCommand::Notify(_) => " !tell",
        };
    }
    cell
}

pub(super) fn is_refusal(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::NotPending(_)
            | Outcome::Over(_)
            | Outcome::Late
            | Outcome::Fenced(_)
            | Outcome::Busy(_)
            | Outcome::HasPhases
            | Outcome::MustLand
    )
}

fn start_or_end(world: &mut World<Task>, input: &str) -> Outcome {
    match input {
        "start" => world.start(),
        "never began" => world.end_last(RunEnd::Never),
        "end of another" => world.end(9, RunEnd::Exited(0)),
        "ready" => world.act(Input::MakeReady),
        _ => unreachable!("{input}"),
    }
}

fn end_run(world: &mut World<Task>, input: &str) -> Outcome {
    match input {
        "exit 0" => world.end_last(RunEnd::Exited(0)),
        "exit 1" => world.end_last(RunEnd::Exited(1)),
        "lost" => world.end_last(RunEnd::Lost),
        "exit 1, DONE" => world.end_with(world.runs(), RunEnd::Exited(1), Marker::Done, 0),
        "exit 0, DONE, children" => world.end_done(2),
        "exit 0, DONE broken" => world.end_with(world.runs(), RunEnd::Exited(0), Marker::Broken("it is a directory".into()), 0),
        _ => unreachable!("{input}"),
    }
}

fn observe(world: &mut World<Task>, input: &str) -> Outcome {
    let epoch = world.epoch();
    let checkpoint = |epoch, quiet| Input::Checkpoint { epoch, output_bytes: 9, quiet: Span::from_secs(quiet) };
    match input {
        "active" => world.pulse(epoch, Pulse::Active),
        "idle, not long" => world.pulse(epoch, Pulse::Idle(Span::from_secs(TIMEOUT - 1))),
        "idle" => world.pulse(epoch, Pulse::Idle(Span::from_secs(TIMEOUT))),
        "dead" => world.pulse(epoch, Pulse::SessionDead),
        "old active" => world.pulse(Epoch(epoch.0 - 1), Pulse::Active),
        "future active" => world.pulse(Epoch(epoch.0 + 1), Pulse::Active),
        "checkpoint" => world.act(checkpoint(epoch, 1)),
        "old checkpoint" => world.act(checkpoint(Epoch(epoch.0 - 1), 1)),
        "in time" => world.overtime(),
        "overtime" => {
            world.pass(MAX_DURATION);
            world.overtime()
        }
        "overtime of another" => {
            world.pass(MAX_DURATION);
            world.act(Input::Overtime { run: run(9), max: Span::ZERO })
        }
        _ => unreachable!("{input}"),
    }
}

fn conclude(world: &mut World<Task>, input: &str) -> Outcome {
    let epoch = world.epoch();
    match input {
        "done" => world.say(Some(epoch), true),
        "failed" => world.say(Some(epoch), false),
        "done, old epoch" => world.say(Some(Epoch(epoch.0 - 1)), true),
        "done, by hand" => world.say(None, true),
        "failed, by hand" => world.say(None, false),
        _ => unreachable!("{input}"),
    }
}

fn stop_run(world: &mut World<Task>, input: &str) -> Outcome {
    match input {
        "cancel" => world.stop(After::Cancel),
        "fail" => world.fail(),
        "escalate" => world.stop(After::Escalate { error: "x".into() }),
        "overtime" => world.stop(After::Overtime { max: Span::ZERO }),
        "restart" => world.stop(After::Restart),
        _ => unreachable!("{input}"),
    }
}

fn decide_manually(world: &mut World<Task>, input: &str) -> Outcome {
    match input {
        "retry" => world.act(Input::Retry),
        "skip" => world.act(Input::Set(Mark::Skipped)),
        "review" => world.act(Input::Set(Mark::Review)),
        "take" => world.take(Epoch(8)),
        "take, same grant" => world.take(Epoch(7)),
        "return" => world.act(Input::Return),
        _ => unreachable!("{input}"),
    }
}

fn check_for_done(world: &mut World<Task>, input: &str) -> Outcome {
    let found = |marker, children| Input::Found { marker, children };
    match input {
        "nothing" => world.act(found(Marker::Absent, 0)),
        "DONE" => world.act(found(Marker::Done, 0)),
        "DONE, children" => world.act(found(Marker::Done, 2)),
        "broken" => world.act(found(Marker::Broken("it is a directory".into()), 0)),
        "children left" => world.act(Input::Settle { children: 1 }),
        "children ended" => world.act(Input::Settle { children: 0 }),
        _ => unreachable!("{input}"),
    }
}

#[test]
fn every_state_with_starts() {
    let expected = "
                               start                                   never began                                   end of another  ready
pending                        started: running +started !spawn        late                                          late            not pending
failed once                    started: running (1 0) +started !spawn  late                                          late            not pending
lost once                      started: running (0 1) +started !spawn  late                                          late            not pending
running                        not pending                             never: pending +restarting                    late            not pending
running, said done             not pending                             ended: completed +complete                    late            not pending
running, said failed           not pending                             failed: pending (1 0) +restarting             late            not pending
last try                       not pending                             never: pending (1 0) +restarting              late            not pending
last recovery                  not pending                             never: pending (0 2) +restarting              late            not pending
dead                           not pending                             never: pending +restarting                    late            not pending
nudged                         not pending                             never: pending (0 1) +restarting              late            not pending
nudged, no help left           not pending                             never: pending (0 2) +restarting              late            not pending
to cancel                      not pending                             ended: cancelled +cancelled                   late            not pending
to cancel, said done           not pending                             ended: cancelled +cancelled                   late            not pending
to fail                        not pending                             ended: failed +failed !tell                   late            not pending
to fail, said done             not pending                             ended: completed +complete                    late            not pending
to escalate                    not pending                             parked: parked (0 2) +raised +escalate !tell  late            not pending
overtime                       not pending                             never: pending +restarting                    late            not pending
to restart                     not pending                             never: pending +restarting                    late            not pending
to restart, said done          not pending                             ended: completed +complete                    late            not pending
loop: pending                  started: running +started !spawn        late                                          late            not pending
loop: rested                   started: running (1 0) +started !spawn  late                                          late            clear: pending (1 0)
loop: running                  not pending                             never: pending +restarting                    late            not pending
loop: running, said done       not pending                             ended: completed +complete                    late            not pending
loop: running, said failed     not pending                             failed: resting (1 0) +restarting             late            not pending
loop: last attempt             not pending                             never: pending (2 0) +restarting              late            not pending
loop: last attempt, said done  not pending                             ended: completed (2 0) +complete              late            not pending
loop: nudged                   not pending                             never: pending (0 1) +restarting              late            not pending
loop: to restart               not pending                             never: pending +restarting                    late            not pending
loop: last recovery            not pending                             never: pending (0 2) +restarting              late            not pending
loop: overtime                 not pending                             never: pending +restarting                    late            not pending
loop: to escalate              not pending                             parked: parked (0 2) +raised +escalate !tell  late            not pending
loop: to fail                  not pending                             ended: failed +failed !tell                   late            not pending
loop: to cancel, said done     not pending                             ended: cancelled +cancelled                   late            not pending
any other                      not pending                             late                                          late            not pending
";
    assert_answers(&STATES, &["start", "never began", "end of another", "ready"], start_or_end, expected);
}

#[test]
fn every_state_with_ends_of_its_run() {
    let expected = "
                               exit 0                                        exit 1                                        lost                                          exit 1, DONE                                  exit 0, DONE, children                        exit 0, DONE broken
running                        ended: completed +complete                    failed: pending (1 0) +restarting             lost: pending (0 1) +restarting               failed: pending (1 0) +restarting             ended: completed +complete                    ended: completed +complete
running, said done             ended: completed +complete                    ended: completed +complete                    ended: completed +complete                    ended: completed +complete                    ended: completed +complete                    ended: completed +complete
running, said failed           failed: pending (1 0) +restarting             failed: pending (1 0) +restarting             failed: pending (1 0) +restarting             failed: pending (1 0) +restarting             failed: pending (1 0) +restarting             failed: pending (1 0) +restarting
last try                       ended: completed (1 0) +complete              ended: failed (1 0) +failed !tell             lost: pending (1 1) +restarting               ended: failed (1 0) +failed !tell             ended: completed (1 0) +complete              ended: completed (1 0) +complete
last recovery                  ended: completed (0 2) +complete              failed: pending (1 2) +restarting             parked: parked (0 2) +raised +escalate !tell  failed: pending (1 2) +restarting             ended: completed (0 2) +complete              ended: completed (0 2) +complete
dead                           ended: completed +complete                    failed: pending (1 0) +restarting             lost: pending (0 1) +restarting               failed: pending (1 0) +restarting             ended: completed +complete                    ended: completed +complete
nudged                         ended: completed (0 1) +complete              failed: pending (1 1) +restarting             lost: pending (0 2) +restarting               failed: pending (1 1) +restarting             ended: completed (0 1) +complete              ended: completed (0 1) +complete
nudged, no help left           ended: completed (0 2) +complete              failed: pending (1 2) +restarting             parked: parked (0 2) +raised +escalate !tell  failed: pending (1 2) +restarting             ended: completed (0 2) +complete              ended: completed (0 2) +complete
to cancel                      ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled
to cancel, said done           ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled
to fail                        ended: failed +failed !tell                   ended: failed +failed !tell                   ended: failed +failed !tell                   ended: failed +failed !tell                   ended: failed +failed !tell                   ended: failed +failed !tell
to fail, said done             ended: completed +complete                    ended: completed +complete                    ended: completed +complete                    ended: completed +complete                    ended: completed +complete                    ended: completed +complete
to escalate                    parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell
overtime                       overtime: pending (1 0) +restarting           overtime: pending (1 0) +restarting           overtime: pending (1 0) +restarting           overtime: pending (1 0) +restarting           overtime: pending (1 0) +restarting           overtime: pending (1 0) +restarting
to restart                     stuck: pending (0 1) +restarting              stuck: pending (0 1) +restarting              stuck: pending (0 1) +restarting              stuck: pending (0 1) +restarting              stuck: pending (0 1) +restarting              stuck: pending (0 1) +restarting
to restart, said done          ended: completed +complete                    ended: completed +complete                    ended: completed +complete                    ended: completed +complete                    ended: completed +complete                    ended: completed +complete
loop: running                  no_verdict: resting (1 0) +restarting         failed: resting (1 0) +restarting             lost: resting (1 0) +restarting               ended: completed +complete                    awaiting +awaiting                            ended: failed +failed !tell
loop: running, said done       ended: completed +complete                    ended: completed +complete                    ended: completed +complete                    ended: completed +complete                    awaiting +awaiting                            ended: completed +complete
loop: running, said failed     failed: resting (1 0) +restarting             failed: resting (1 0) +restarting             failed: resting (1 0) +restarting             ended: completed +complete                    awaiting +awaiting                            ended: failed +failed !tell
loop: last attempt             ended: failed (2 0) +failed !tell             ended: failed (2 0) +failed !tell             ended: failed (2 0) +failed !tell             ended: completed (2 0) +complete              awaiting: awaiting (2 0) +awaiting            ended: failed (2 0) +failed !tell
loop: last attempt, said done  ended: completed (2 0) +complete              ended: completed (2 0) +complete              ended: completed (2 0) +complete              ended: completed (2 0) +complete              awaiting: awaiting (2 0) +awaiting            ended: completed (2 0) +complete
loop: nudged                   no_verdict: resting (1 1) +restarting         failed: resting (1 1) +restarting             lost: resting (1 1) +restarting               ended: completed (0 1) +complete              awaiting: awaiting (0 1) +awaiting            ended: failed (0 1) +failed !tell
loop: to restart               stuck: resting (1 1) +restarting              stuck: resting (1 1) +restarting              stuck: resting (1 1) +restarting              ended: completed +complete                    awaiting +awaiting                            ended: failed +failed !tell
loop: last recovery            parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell  ended: completed (0 2) +complete              awaiting: awaiting (0 2) +awaiting            ended: failed (0 2) +failed !tell
loop: overtime                 overtime: resting (1 0) +restarting           overtime: resting (1 0) +restarting           overtime: resting (1 0) +restarting           ended: completed +complete                    awaiting +awaiting                            ended: failed +failed !tell
loop: to escalate              parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell  ended: completed (0 2) +complete              awaiting: awaiting (0 2) +awaiting            parked: parked (0 2) +raised +escalate !tell
loop: to fail                  ended: failed +failed !tell                   ended: failed +failed !tell                   ended: failed +failed !tell                   ended: completed +complete                    awaiting +awaiting                            ended: failed +failed !tell
loop: to cancel, said done     ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled
any other                      late                                          late                                          late                                          late                                          late                                          late
";
    assert_answers(
        &STATES,
        &["exit 0", "exit 1", "lost", "exit 1, DONE", "exit 0, DONE, children", "exit 0, DONE broken"],
        end_run,
        expected,
    );
}

#[test]
fn every_state_with_activity_reports() {
    let expected = "
                               active                         idle, not long                               idle                                                dead                       old active  future active
running                        seen: running                  seen: running                                stuck: stuck (0 1) +stuck +nudged !nudge            stuck +stuck               fenced      fenced
running, said done             seen: running                  seen: running                                stuck: stuck (0 1) +stuck +nudged !nudge            stuck +stuck               fenced      fenced
running, said failed           seen: running                  seen: running                                stuck: stuck (0 1) +stuck +nudged !nudge            stuck +stuck               fenced      fenced
last try                       seen: running (1 0)            seen: running (1 0)                          stuck: stuck (1 1) +stuck +nudged !nudge            stuck: stuck (1 0) +stuck  fenced      fenced
last recovery                  seen: running (0 2)            seen: running (0 2)                          stopping: to escalate (0 2) +stuck +stopping !kill  stuck: stuck (0 2) +stuck  fenced      fenced
dead                           recovered: running +recovered  seen: stuck                                  seen: stuck                                         seen: stuck                fenced      fenced
nudged                         recovered: running +recovered  stopping: to restart (0 1) +stopping !kill   stopping: to restart (0 1) +stopping !kill          seen: stuck (0 1)          fenced      fenced
nudged, no help left           recovered: running +recovered  stopping: to escalate (0 2) +stopping !kill  stopping: to escalate (0 2) +stopping !kill         seen: stuck (0 2)          fenced      fenced
to cancel                      seen: to cancel                seen: to cancel                              seen: to cancel                                     seen: to cancel            fenced      fenced
to cancel, said done           seen: to cancel                seen: to cancel                              seen: to cancel                                     seen: to cancel            fenced      fenced
to fail                        seen: to fail                  seen: to fail                                seen: to fail                                       seen: to fail              fenced      fenced
to fail, said done             seen: to fail                  seen: to fail                                seen: to fail                                       seen: to fail              fenced      fenced
to escalate                    seen: to escalate (0 2)        seen: to escalate (0 2)                      seen: to escalate (0 2)                             seen: to escalate (0 2)    fenced      fenced
overtime                       seen: overtime                 seen: overtime                               seen: overtime                                      seen: overtime             fenced      fenced
to restart                     seen: to restart               seen: to restart                             seen: to restart                                    seen: to restart           fenced      fenced
to restart, said done          seen: to restart               seen: to restart                             seen: to restart                                    seen: to restart           fenced      fenced
loop: running                  seen: running                  seen: running                                stuck: stuck (0 1) +stuck +nudged !nudge            stuck +stuck               fenced      fenced
loop: running, said done       seen: running                  seen: running                                stuck: stuck (0 1) +stuck +nudged !nudge            stuck +stuck               fenced      fenced
loop: running, said failed     seen: running                  seen: running                                stuck: stuck (0 1) +stuck +nudged !nudge            stuck +stuck               fenced      fenced
loop: last attempt             seen: running (2 0)            seen: running (2 0)                          stuck: stuck (2 1) +stuck +nudged !nudge            stuck: stuck (2 0) +stuck  fenced      fenced
loop: last attempt, said done  seen: running (2 0)            seen: running (2 0)                          stuck: stuck (2 1) +stuck +nudged !nudge            stuck: stuck (2 0) +stuck  fenced      fenced
loop: nudged                   recovered: running +recovered  stopping: to restart (0 1) +stopping !kill   stopping: to restart (0 1) +stopping !kill          seen: stuck (0 1)          fenced      fenced
loop: to restart               seen: to restart               seen: to restart                             seen: to restart                                    seen: to restart           fenced      fenced
loop: last recovery            seen: to restart (0 2)         seen: to restart (0 2)                       seen: to restart (0 2)                              seen: to restart (0 2)     fenced      fenced
loop: overtime                 seen: overtime                 seen: overtime                               seen: overtime                                      seen: overtime             fenced      fenced
loop: to escalate              seen: to escalate (0 2)        seen: to escalate (0 2)                      seen: to escalate (0 2)                             seen: to escalate (0 2)    fenced      fenced
loop: to fail                  seen: to fail                  seen: to fail                                seen: to fail                                       seen: to fail              fenced      fenced
loop: to cancel, said done     seen: to cancel                seen: to cancel                              seen: to cancel                                     seen: to cancel            fenced      fenced
any other                      fenced                         fenced                                       fenced                                              fenced                     fenced      fenced
";
    assert_answers(&STATES, &["active", "idle, not long", "idle", "dead", "old active", "future active"], observe, expected);
}

#[test]
fn every_state_with_checkpoints_and_overtime() {
    let expected = "
                               checkpoint                           old checkpoint  in time                      overtime                                  overtime of another
running                        seen: running +checkpoint            fenced          seen: running                stopping: overtime +stopping !kill        late
running, said done             seen: running +checkpoint            fenced          seen: running                stopping: overtime +stopping !kill        late
running, said failed           seen: running +checkpoint            fenced          seen: running                stopping: overtime +stopping !kill        late
last try                       seen: running (1 0) +checkpoint      fenced          seen: running (1 0)          stopping: overtime (1 0) +stopping !kill  late
last recovery                  seen: running (0 2) +checkpoint      fenced          seen: running (0 2)          stopping: overtime (0 2) +stopping !kill  late
dead                           seen: stuck +checkpoint              fenced          seen: stuck                  stopping: overtime +stopping !kill        late
nudged                         seen: stuck (0 1) +checkpoint        fenced          seen: stuck (0 1)            stopping: overtime (0 1) +stopping !kill  late
nudged, no help left           seen: stuck (0 2) +checkpoint        fenced          seen: stuck (0 2)            stopping: overtime (0 2) +stopping !kill  late
to cancel                      seen: to cancel +checkpoint          fenced          stopping: to cancel          stopping: to cancel                       late
to cancel, said done           seen: to cancel +checkpoint          fenced          stopping: to cancel          stopping: to cancel                       late
to fail                        seen: to fail +checkpoint            fenced          stopping: to fail            stopping: to fail                         late
to fail, said done             seen: to fail +checkpoint            fenced          stopping: to fail            stopping: to fail                         late
to escalate                    seen: to escalate (0 2) +checkpoint  fenced          stopping: to escalate (0 2)  stopping: to escalate (0 2)               late
overtime                       seen: overtime +checkpoint           fenced          stopping: overtime           stopping: overtime                        late
to restart                     seen: to restart +checkpoint         fenced          stopping: to restart         stopping: to restart                      late
to restart, said done          seen: to restart +checkpoint         fenced          stopping: to restart         stopping: to restart                      late
loop: running                  seen: running +checkpoint            fenced          seen: running                stopping: overtime +stopping !kill        late
loop: running, said done       seen: running +checkpoint            fenced          seen: running                stopping: overtime +stopping !kill        late
loop: running, said failed     seen: running +checkpoint            fenced          seen: running                stopping: overtime +stopping !kill        late
loop: last attempt             seen: running (2 0) +checkpoint      fenced          seen: running (2 0)          stopping: overtime (2 0) +stopping !kill  late
loop: last attempt, said done  seen: running (2 0) +checkpoint      fenced          seen: running (2 0)          stopping: overtime (2 0) +stopping !kill  late
loop: nudged                   seen: stuck (0 1) +checkpoint        fenced          seen: stuck (0 1)            stopping: overtime (0 1) +stopping !kill  late
loop: to restart               seen: to restart +checkpoint         fenced          stopping: to restart         stopping: to restart                      late
loop: last recovery            seen: to restart (0 2) +checkpoint   fenced          stopping: to restart (0 2)   stopping: to restart (0 2)                late
loop: overtime                 seen: overtime +checkpoint           fenced          stopping: overtime           stopping: overtime                        late
loop: to escalate              seen: to escalate (0 2) +checkpoint  fenced          stopping: to escalate (0 2)  stopping: to escalate (0 2)               late
loop: to fail                  seen: to fail +checkpoint            fenced          stopping: to fail            stopping: to fail                         late
loop: to cancel, said done     seen: to cancel +checkpoint          fenced          stopping: to cancel          stopping: to cancel                       late
any other                      fenced                               fenced          late                         late                                      late
";
    assert_answers(&STATES, &["checkpoint", "old checkpoint", "in time", "overtime", "overtime of another"], observe, expected);
}

#[test]
fn every_state_with_verdicts() {
    let expected = "
                               done                                  failed                                  done, old epoch  done, by hand                     failed, by hand
failed once                    fenced                                fenced                                  fenced           ended: completed (1 0) +complete  ended: failed (1 0) +failed !tell
lost once                      fenced                                fenced                                  fenced           ended: completed (0 1) +complete  ended: failed (0 1) +failed !tell
running                        noted: running, said done             noted: running, said failed             fenced           busy                              busy
running, said done             noted: running                        noted: running, said failed             fenced           busy                              busy
running, said failed           noted: running, said done             noted: running                          fenced           busy                              busy
last try                       noted: running (1 0), said done       noted: running (1 0), said failed       fenced           busy                              busy
last recovery                  noted: running (0 2), said done       noted: running (0 2), said failed       fenced           busy                              busy
dead                           noted: running, said done +recovered  noted: running, said failed +recovered  fenced           busy                              busy
nudged                         noted: running, said done +recovered  noted: running, said failed +recovered  fenced           busy                              busy
nudged, no help left           noted: running, said done +recovered  noted: running, said failed +recovered  fenced           busy                              busy
to cancel                      noted: to cancel, said done           noted: to cancel, said failed           fenced           busy                              busy
to cancel, said done           noted: to cancel                      noted: to cancel, said failed           fenced           busy                              busy
to fail                        noted: to fail, said done             noted: to fail, said failed             fenced           busy                              busy
to fail, said done             noted: to fail                        noted: to fail, said failed             fenced           busy                              busy
to escalate                    noted: to escalate (0 2), said done   noted: to escalate (0 2), said failed   fenced           busy                              busy
overtime                       noted: overtime, said done            noted: overtime, said failed            fenced           busy                              busy
to restart                     noted: to restart, said done          noted: to restart, said failed          fenced           busy                              busy
to restart, said done          noted: to restart                     noted: to restart, said failed          fenced           busy                              busy
parked                         fenced                                fenced                                  fenced           ended: completed (0 2) +complete  ended: failed (0 2) +failed !tell
review                         fenced                                fenced                                  fenced           ended: completed (1 0) +complete  ended: failed (1 0) +failed !tell
completed                      fenced                                fenced                                  fenced           over                              over
failed                         fenced                                fenced                                  fenced           over                              over
cancelled                      fenced                                fenced                                  fenced           over                              over
skipped                        fenced                                fenced                                  fenced           over                              over
loop: resting                  fenced                                fenced                                  fenced           ended: completed (1 0) +complete  ended: failed (1 0) +failed !tell
loop: rested                   fenced                                fenced                                  fenced           ended: completed (1 0) +complete  ended: failed (1 0) +failed !tell
loop: running                  noted: running, said done             noted: running, said failed             fenced           busy                              busy
loop: running, said done       noted: running                        noted: running, said failed             fenced           busy                              busy
loop: running, said failed     noted: running, said done             noted: running                          fenced           busy                              busy
loop: last attempt             noted: running (2 0), said done       noted: running (2 0), said failed       fenced           busy                              busy
loop: last attempt, said done  noted: running (2 0)                  noted: running (2 0), said failed       fenced           busy                              busy
loop: nudged                   noted: running, said done +recovered  noted: running, said failed +recovered  fenced           busy                              busy
loop: to restart               noted: to restart, said done          noted: to restart, said failed          fenced           busy                              busy
loop: last recovery            noted: to restart (0 2), said done    noted: to restart (0 2), said failed    fenced           busy                              busy
loop: overtime                 noted: overtime, said done            noted: overtime, said failed            fenced           busy                              busy
loop: to escalate              noted: to escalate (0 2), said done   noted: to escalate (0 2), said failed   fenced           busy                              busy
loop: to fail                  noted: to fail, said done             noted: to fail, said failed             fenced           busy                              busy
loop: to cancel, said done     noted: to cancel                      noted: to cancel, said failed           fenced           busy                              busy
loop: parked                   fenced                                fenced                                  fenced           ended: completed (0 2) +complete  ended: failed (0 2) +failed !tell
loop: review                   fenced                                fenced                                  fenced           ended: completed (1 0) +complete  ended: failed (1 0) +failed !tell
loop: completed                fenced                                fenced                                  fenced           over                              over
loop: failed                   fenced                                fenced                                  fenced           over                              over
any other                      fenced                                fenced                                  fenced           ended: completed +complete        ended: failed +failed !tell
";
    assert_answers(&STATES, &["done", "failed", "done, old epoch", "done, by hand", "failed, by hand"], conclude, expected);
}

#[test]
fn every_state_with_stop_requests() {
    let expected = "
                               cancel                                     fail                                     escalate                                     overtime                                  restart
failed once                    ended: cancelled (1 0) +cancelled          ended: failed (1 0) +failed !tell        not pending                                  not pending                               not pending
lost once                      ended: cancelled (0 1) +cancelled          ended: failed (0 1) +failed !tell        not pending                                  not pending                               not pending
running                        stopping: to cancel +stopping !kill        stopping: to fail +stopping !kill        stopping: to escalate +stopping !kill        stopping: overtime +stopping !kill        stopping: to restart +stopping !kill
running, said done             stopping: to cancel +stopping !kill        stopping: to fail +stopping !kill        stopping: to escalate +stopping !kill        stopping: overtime +stopping !kill        stopping: to restart +stopping !kill
running, said failed           stopping: to cancel +stopping !kill        stopping: to fail +stopping !kill        stopping: to escalate +stopping !kill        stopping: overtime +stopping !kill        stopping: to restart +stopping !kill
last try                       stopping: to cancel (1 0) +stopping !kill  stopping: to fail (1 0) +stopping !kill  stopping: to escalate (1 0) +stopping !kill  stopping: overtime (1 0) +stopping !kill  stopping: to restart (1 0) +stopping !kill
last recovery                  stopping: to cancel (0 2) +stopping !kill  stopping: to fail (0 2) +stopping !kill  stopping: to escalate (0 2) +stopping !kill  stopping: overtime (0 2) +stopping !kill  stopping: to restart (0 2) +stopping !kill
dead                           stopping: to cancel +stopping !kill        stopping: to fail +stopping !kill        stopping: to escalate +stopping !kill        stopping: overtime +stopping !kill        stopping: to restart +stopping !kill
nudged                         stopping: to cancel (0 1) +stopping !kill  stopping: to fail (0 1) +stopping !kill  stopping: to escalate (0 1) +stopping !kill  stopping: overtime (0 1) +stopping !kill  stopping: to restart (0 1) +stopping !kill
nudged, no help left           stopping: to cancel (0 2) +stopping !kill  stopping: to fail (0 2) +stopping !kill  stopping: to escalate (0 2) +stopping !kill  stopping: overtime (0 2) +stopping !kill  stopping: to restart (0 2) +stopping !kill
to cancel                      stopping: to cancel                        stopping: to cancel                      stopping: to cancel                          stopping: to cancel                       stopping: to cancel
to cancel, said done           stopping: to cancel                        stopping: to cancel                      stopping: to cancel                          stopping: to cancel                       stopping: to cancel
to fail                        stopping: to cancel +stopping              stopping: to fail                        stopping: to fail                            stopping: to fail                         stopping: to fail
to fail, said done             stopping: to cancel +stopping              stopping: to fail                        stopping: to fail                            stopping: to fail                         stopping: to fail
to escalate                    stopping: to cancel (0 2) +stopping        stopping: to fail (0 2) +stopping        stopping: to escalate (0 2)                  stopping: to escalate (0 2)               stopping: to escalate (0 2)
overtime                       stopping: to cancel +stopping              stopping: to fail +stopping              stopping: to escalate +stopping              stopping: overtime                        stopping: overtime
to restart                     stopping: to cancel +stopping              stopping: to fail +stopping              stopping: to escalate +stopping              stopping: overtime +stopping              stopping: to restart
to restart, said done          stopping: to cancel +stopping              stopping: to fail +stopping              stopping: to escalate +stopping              stopping: overtime +stopping              stopping: to restart
parked                         ended: cancelled (0 2) +cancelled          ended: failed (0 2) +failed !tell        not pending                                  not pending                               not pending
review                         ended: cancelled (1 0) +cancelled          ended: failed (1 0) +failed !tell        not pending                                  not pending                               not pending
completed                      over                                       over                                     over                                         over                                      over
failed                         over                                       over                                     over                                         over                                      over
cancelled                      over                                       over                                     over                                         over                                      over
skipped                        over                                       over                                     over                                         over                                      over
loop: resting                  ended: cancelled (1 0) +cancelled          ended: failed (1 0) +failed !tell        not pending                                  not pending                               not pending
loop: rested                   ended: cancelled (1 0) +cancelled          ended: failed (1 0) +failed !tell        not pending                                  not pending                               not pending
loop: running                  stopping: to cancel +stopping !kill        stopping: to fail +stopping !kill        stopping: to escalate +stopping !kill        stopping: overtime +stopping !kill        stopping: to restart +stopping !kill
loop: running, said done       stopping: to cancel +stopping !kill        stopping: to fail +stopping !kill        stopping: to escalate +stopping !kill        stopping: overtime +stopping !kill        stopping: to restart +stopping !kill
loop: running, said failed     stopping: to cancel +stopping !kill        stopping: to fail +stopping !kill        stopping: to escalate +stopping !kill        stopping: overtime +stopping !kill        stopping: to restart +stopping !kill
loop: last attempt             stopping: to cancel (2 0) +stopping !kill  stopping: to fail (2 0) +stopping !kill  stopping: to escalate (2 0) +stopping !kill  stopping: overtime (2 0) +stopping !kill  stopping: to restart (2 0) +stopping !kill
loop: last attempt, said done  stopping: to cancel (2 0) +stopping !kill  stopping: to fail (2 0) +stopping !kill  stopping: to escalate (2 0) +stopping !kill  stopping: overtime (2 0) +stopping !kill  stopping: to restart (2 0) +stopping !kill
loop: nudged                   stopping: to cancel (0 1) +stopping !kill  stopping: to fail (0 1) +stopping !kill  stopping: to escalate (0 1) +stopping !kill  stopping: overtime (0 1) +stopping !kill  stopping: to restart (0 1) +stopping !kill
loop: to restart               stopping: to cancel +stopping              stopping: to fail +stopping              stopping: to escalate +stopping              stopping: overtime +stopping              stopping: to restart
loop: last recovery            stopping: to cancel (0 2) +stopping        stopping: to fail (0 2) +stopping        stopping: to escalate (0 2) +stopping        stopping: overtime (0 2) +stopping        stopping: to restart (0 2)
loop: overtime                 stopping: to cancel +stopping              stopping: to fail +stopping              stopping: to escalate +stopping              stopping: overtime                        stopping: overtime
loop: to escalate              stopping: to cancel (0 2) +stopping        stopping: to fail (0 2) +stopping        stopping: to escalate (0 2)                  stopping: to escalate (0 2)               stopping: to escalate (0 2)
loop: to fail                  stopping: to cancel +stopping              stopping: to fail                        stopping: to fail                            stopping: to fail                         stopping: to fail
loop: to cancel, said done     stopping: to cancel                        stopping: to cancel                      stopping: to cancel                          stopping: to cancel                       stopping: to cancel
loop: parked                   ended: cancelled (0 2) +cancelled          ended: failed (0 2) +failed !tell        not pending                                  not pending                               not pending
loop: review                   ended: cancelled (1 0) +cancelled          ended: failed (1 0) +failed !tell        not pending                                  not pending                               not pending
loop: completed                over                                       over                                     over                                         over                                      over
loop: failed                   over                                       over                                     over                                         over                                      over
any other                      ended: cancelled +cancelled                ended: failed +failed !tell              not pending                                  not pending                               not pending
";
    assert_answers(&STATES, &["cancel", "fail", "escalate", "overtime", "restart"], stop_run, expected);
}

#[test]
fn every_state_with_manual_commands() {
    let expected = "
                        retry                    skip                           review                        take                   take, same grant       return
pending                 not pending              marked: skipped +marked        marked: review +marked        taken: by hand +taken  taken: by hand +taken  not pending
failed once             not pending              marked: skipped (1 0) +marked  marked: review (1 0) +marked  taken: by hand +taken  taken: by hand +taken  not pending
lost once               not pending              marked: skipped (0 1) +marked  marked: review (0 1) +marked  taken: by hand +taken  taken: by hand +taken  not pending
parked                  clear: pending +retried  marked: skipped (0 2) +marked  marked: review (0 2) +marked  taken: by hand +taken  taken: by hand +taken  not pending
by hand                 not pending              marked: skipped +marked        marked: review +marked        taken: by hand +taken  taken: by hand         returned: pending +returned
review                  clear: pending +retried  marked: skipped (1 0) +marked  marked: review (1 0) +marked  taken: by hand +taken  taken: by hand +taken  not pending
completed               clear: pending +retried  over                           over                          over                   over                   not pending
failed                  clear: pending +retried  over                           over                          over                   over                   not pending
cancelled               clear: pending +retried  over                           over                          over                   over                   not pending
skipped                 clear: pending +retried  over                           over                          over                   over                   not pending
loop: pending           not pending              marked: skipped +marked        marked: review +marked        taken: by hand +taken  taken: by hand +taken  not pending
loop: resting           not pending              marked: skipped (1 0) +marked  marked: review (1 0) +marked  taken: by hand +taken  taken: by hand +taken  not pending
loop: rested            not pending              marked: skipped (1 0) +marked  marked: review (1 0) +marked  taken: by hand +taken  taken: by hand +taken  not pending
loop: awaiting          not pending              not pending                    not pending                   not pending            not pending            not pending
loop: awaited too long  not pending              not pending                    not pending                   not pending            not pending            not pending
loop: ending children   not pending              not pending                    not pending                   not pending            not pending            not pending
loop: parked            clear: pending +retried  marked: skipped (0 2) +marked  marked: review (0 2) +marked  taken: by hand +taken  taken: by hand +taken  not pending
loop: by hand           not pending              marked: skipped +marked        marked: review +marked        taken: by hand +taken  taken: by hand         returned: pending +returned
loop: review            clear: pending +retried  marked: skipped (1 0) +marked  marked: review (1 0) +marked  taken: by hand +taken  taken: by hand +taken  not pending
loop: completed         clear: pending +retried  over                           over                          over                   over                   not pending
loop: failed            clear: pending +retried  over                           over                          over                   over                   not pending
any other               not pending              busy                           busy                          busy                   busy                   not pending
";
    assert_answers(&STATES, &["retry", "skip", "review", "take", "take, same grant", "return"], decide_manually, expected);
}

#[test]
fn every_state_with_checks_for_done() {
    let expected = "
                        nothing               DONE                              DONE, children                      broken                             children left                                   children ended
loop: pending           clear: pending        ended: completed +complete        awaiting +awaiting                  ended: failed +failed !tell        not pending                                     not pending
loop: resting           clear: resting (1 0)  ended: completed (1 0) +complete  awaiting: awaiting (1 0) +awaiting  ended: failed (1 0) +failed !tell  not pending                                     not pending
loop: rested            clear: resting (1 0)  ended: completed (1 0) +complete  awaiting: awaiting (1 0) +awaiting  ended: failed (1 0) +failed !tell  not pending                                     not pending
loop: awaiting          not pending           not pending                       not pending                         not pending                        awaiting                                        ended: completed +complete
loop: awaited too long  not pending           not pending                       not pending                         not pending                        end children: ending children +ending_children  ended: completed +complete
loop: ending children   not pending           not pending                       not pending                         not pending                        awaiting: ending children                       ended: completed +complete
any other               not pending           not pending                       not pending                         not pending                        not pending                                     not pending
";
    assert_answers(
        &STATES,
        &["nothing", "DONE", "DONE, children", "broken", "children left", "children ended"],
        check_for_done,
        expected,
    );
}
