//! The states for the tables, and how a task gets into each of them.

use super::*;

/// A task in this state. The name of a state of a loop begins with `loop: `.
pub(super) fn scene(state: &str) -> World<Task> {
    let (state, said) = state.split_once(", said ").unwrap_or((state, ""));
    if let Some(state) = state.strip_prefix("parent: ") {
        return phases::scene(state);
    }
    let mut world = match state.strip_prefix("loop: ") {
        Some(state) => {
            let mut world = World::looping();
            lead_loop_to(&mut world, state);
            world
        }
        None => {
            let mut world = World::task();
            lead_to(&mut world, state);
            world
        }
    };
    let epoch = world.epoch();
    match said {
        "" => {}
        "done" => drop(world.say(Some(epoch), true)),
        "failed" => drop(world.say(Some(epoch), false)),
        _ => unreachable!("{said}"),
    }
    world.pass(TIMEOUT);
    world
}

/// Uses all recoveries of the task, and lets it be silent again.
fn exhaust(world: &mut World<Task>) {
    while !matches!(world.machine.state, State::Stopping { then: After::Escalate { .. }, .. }) {
        world.machine.recoveries = MAX_RECOVERIES;
        world.fall_silent();
    }
}

fn lead_to(world: &mut World<Task>, state: &str) {
    if !["pending", "by hand"].contains(&state) {
        world.start();
    }
    let epoch = world.epoch();
    match state {
        "pending" | "running" => {}
        "failed once" => drop(world.end_last(RunEnd::Exited(1))),
        "lost once" => drop(world.end_last(RunEnd::Lost)),
        "last try" => {
            world.end_last(RunEnd::Exited(1));
            world.start();
        }
        "last recovery" => {
            for _ in 0..MAX_RECOVERIES {
                world.end_last(RunEnd::Lost);
                world.start();
            }
        }
        "dead" => drop(world.pulse(epoch, Pulse::SessionDead)),
        "nudged" => drop(world.fall_silent()),
        "nudged, no help left" => {
            world.end_last(RunEnd::Lost);
            world.start();
            world.fall_silent();
        }
        "to cancel" => drop(world.stop(After::Cancel)),
        "to fail" => drop(world.fail()),
        "to escalate" => exhaust(world),
        "overtime" => {
            world.pass(MAX_DURATION);
            world.overtime();
        }
        "to restart" => drop(world.stop(After::Restart)),
        "parked" => {
            exhaust(world);
            world.end_last(RunEnd::Signalled(15));
        }
        "by hand" => drop(world.take(Epoch(7))),
        "review" => {
            world.end_last(RunEnd::Exited(1));
            world.act(Input::Set(Mark::Review));
        }
        "completed" => drop(world.end_last(RunEnd::Exited(0))),
        "failed" => {
            world.end_last(RunEnd::Exited(1));
            world.start();
            world.end_last(RunEnd::Exited(1));
        }
        "cancelled" => {
            world.stop(After::Cancel);
            world.end_last(RunEnd::Signalled(15));
        }
        "skipped" => {
            world.end_last(RunEnd::Never);
            world.act(Input::Set(Mark::Skipped));
        }
        _ => unreachable!("{state}"),
    }
}

fn lead_loop_to(world: &mut World<Task>, state: &str) {
    let tried = |world: &mut World<Task>| {
        world.end_last(RunEnd::Exited(0));
        world.pass(REST);
    };
    if state != "pending" {
        world.start();
    }
    match state {
        "pending" | "running" => {}
        "resting" => drop(world.end_last(RunEnd::Exited(0))),
        "rested" => tried(world),
        "last attempt" => {
            for _ in 1..MAX_ATTEMPTS {
                tried(world);
                world.start();
            }
        }
        "awaiting" => drop(world.end_done(2)),
        "awaited too long" => {
            world.end_done(2);
            world.pass(REST - TIMEOUT);
        }
        "ending children" => {
            world.end_done(2);
            world.pass(REST);
            world.act(Input::Settle { children: 2 });
        }
        "nudged" => drop(world.fall_silent()),
        "to restart" => drop(world.stop(After::Restart)),
        "last recovery" => {
            world.machine.recoveries = MAX_RECOVERIES;
            world.stop(After::Restart);
        }
        "to escalate" => exhaust(world),
        "to fail" => drop(world.fail()),
        "to cancel" => drop(world.stop(After::Cancel)),
        "overtime" => {
            world.pass(MAX_DURATION);
            world.overtime();
        }
        "parked" => {
            exhaust(world);
            world.end_last(RunEnd::Signalled(15));
        }
        "by hand" => {
            tried(world);
            world.take(Epoch(7));
        }
        "review" => {
            tried(world);
            world.act(Input::Set(Mark::Review));
        }
        "completed" => drop(world.end_done(0)),
        "failed" => drop(world.end_with(1, RunEnd::Exited(0), Marker::Broken("a directory".into()), 0)),
        _ => unreachable!("{state}"),
    }
}

pub(super) const STATES: [&str; 49] = [
    "pending",
    "failed once",
    "lost once",
    "running",
    "running, said done",
    "running, said failed",
    "last try",
    "last recovery",
    "dead",
    "nudged",
    "nudged, no help left",
    "to cancel",
    "to cancel, said done",
    "to fail",
    "to fail, said done",
    "to escalate",
    "overtime",
    "to restart",
    "to restart, said done",
    "parked",
    "by hand",
    "review",
    "completed",
    "failed",
    "cancelled",
    "skipped",
    "loop: pending",
    "loop: resting",
    "loop: rested",
    "loop: running",
    "loop: running, said done",
    "loop: running, said failed",
    "loop: last attempt",
    "loop: last attempt, said done",
    "loop: nudged",
    "loop: to restart",
    "loop: last recovery",
    "loop: overtime",
    "loop: to escalate",
    "loop: to fail",
    "loop: to cancel, said done",
    "loop: awaiting",
    "loop: awaited too long",
    "loop: ending children",
    "loop: parked",
    "loop: by hand",
    "loop: review",
    "loop: completed",
    "loop: failed",
];
