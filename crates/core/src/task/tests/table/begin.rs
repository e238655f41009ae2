//! Every state of a task against runs that could not begin, and against ends that are reported late.

use super::*;

fn begin_in_vain(world: &mut World<Task>, input: &str) -> Outcome {
    match input {
        "shortage" => world.end_last(not_begun(true)),
        "cannot begin" => world.end_last(not_begun(false)),
        "exit 0, in time" => world.end_after(RunEnd::Exited(0), MAX_DURATION),
        "exit 0, too late" => world.end_after(RunEnd::Exited(0), MAX_DURATION + 1),
        _ => unreachable!("{input}"),
    }
}

const INPUTS: [&str; 4] = ["shortage", "cannot begin", "exit 0, in time", "exit 0, too late"];

#[test]
fn every_state_with_runs_that_could_not_begin_or_ended_late() {
    let expected = "
                               shortage                                      cannot begin                                  exit 0, in time                               exit 0, too late
running                        shortage: pending +restarting                 never: resting (0 1) +restarting              ended: completed +complete                    ended: completed +complete
running, said done             ended: completed +complete                    ended: completed +complete                    ended: completed +complete                    ended: completed +complete
running, said failed           failed: pending (1 0) +restarting             failed: pending (1 0) +restarting             failed: pending (1 0) +restarting             failed: pending (1 0) +restarting
last try                       shortage: pending (1 0) +restarting           never: resting (1 1) +restarting              ended: completed (1 0) +complete              ended: completed (1 0) +complete
last recovery                  shortage: pending (0 2) +restarting           parked: parked (0 2) +raised +escalate !tell  ended: completed (0 2) +complete              ended: completed (0 2) +complete
dead                           shortage: pending +restarting                 never: resting (0 1) +restarting              ended: completed +complete                    ended: completed +complete
nudged                         shortage: pending (0 1) +restarting           never: resting (0 2) +restarting              ended: completed (0 1) +complete              ended: completed (0 1) +complete
nudged, no help left           shortage: pending (0 2) +restarting           parked: parked (0 2) +raised +escalate !tell  ended: completed (0 2) +complete              ended: completed (0 2) +complete
to cancel                      ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled
to cancel, said done           ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled
to fail                        ended: failed +failed !tell                   ended: failed +failed !tell                   ended: failed +failed !tell                   ended: failed +failed !tell
to fail, said done             ended: completed +complete                    ended: completed +complete                    ended: completed +complete                    ended: completed +complete
to escalate                    parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell
overtime                       shortage: pending +restarting                 never: resting (0 1) +restarting              ended: completed +complete                    overtime: pending (1 0) +restarting
to restart                     shortage: pending +restarting                 never: resting (0 1) +restarting              stuck: pending (0 1) +restarting              stuck: pending (0 1) +restarting
to restart, said done          ended: completed +complete                    ended: completed +complete                    ended: completed +complete                    ended: completed +complete
loop: running                  shortage: pending +restarting                 never: resting (0 1) +restarting              no_verdict: resting (1 0) +restarting         no_verdict: resting (1 0) +restarting
loop: running, said done       ended: completed +complete                    ended: completed +complete                    ended: completed +complete                    ended: completed +complete
loop: running, said failed     failed: resting (1 0) +restarting             failed: resting (1 0) +restarting             failed: resting (1 0) +restarting             failed: resting (1 0) +restarting
loop: last attempt             shortage: pending (2 0) +restarting           never: resting (2 1) +restarting              ended: failed (2 0) +failed !tell             ended: failed (2 0) +failed !tell
loop: last attempt, said done  ended: completed (2 0) +complete              ended: completed (2 0) +complete              ended: completed (2 0) +complete              ended: completed (2 0) +complete
loop: nudged                   shortage: pending (0 1) +restarting           never: resting (0 2) +restarting              no_verdict: resting (1 1) +restarting         no_verdict: resting (1 1) +restarting
loop: to restart               shortage: pending +restarting                 never: resting (0 1) +restarting              stuck: resting (1 1) +restarting              stuck: resting (1 1) +restarting
loop: last recovery            shortage: pending (0 2) +restarting           parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell
loop: overtime                 shortage: pending +restarting                 never: resting (0 1) +restarting              no_verdict: resting (1 0) +restarting         overtime: resting (1 0) +restarting
loop: to escalate              parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell
loop: to fail                  ended: failed +failed !tell                   ended: failed +failed !tell                   ended: failed +failed !tell                   ended: failed +failed !tell
loop: to cancel, said done     ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled
any other                      late                                          late                                          late                                          late
";
    assert_answers(&STATES, &INPUTS, begin_in_vain, expected);
}
