//! Whether a silent session works.

use std::fs;
use std::process::Command;
use std::time::Duration;

use banksman_adapters::keeper::{self, Activity, Spec};

use crate::world::{Talk, World, start, until};

/// Longer than the ticks of the clocks that a sample compares.
const GAP: Duration = Duration::from_millis(60);

/// Starts a session that prints a line, and waits until its keeper has read the line.
fn begin(world: &World, spec: &Spec) -> Talk {
    let mut talk = start(spec);
    talk.started();
    until("it has printed", || world.log().contains("begun").then_some(()));
    talk
}

/// Samples the session, some time after its last output and the last sample.
fn sample(world: &World) -> Activity {
    std::thread::sleep(GAP);
    keeper::sample(&world.record()).unwrap().unwrap()
}

/// A process that has just started may still use the processor on a busy machine.
fn until_idle(world: &World) {
    until("it is idle", || (sample(world) == Activity::Idle).then_some(()));
}

#[test]
fn processor_use_takes_two_samples() {
    let world = World::new();
    let _talk = begin(&world, &world.spec("echo begun; while :; do :; done"));
    assert_eq!(sample(&world), Activity::Unclear);
    // On a busy machine the session may get no processor time for a moment.
    until("it uses the processor", || (sample(&world) == Activity::Busy).then_some(()));
}

#[test]
fn a_new_child_or_a_newer_file_in_the_own_workspace_is_activity() {
    let world = World::new();
    fs::create_dir_all(world.path("own/deep")).unwrap();
    assert!(Command::new("mkfifo").arg(world.path("gate")).status().unwrap().success());
    let script = "echo begun; read line < gate; sleep 60 & echo $! >> pids; wait";
    let _talk = begin(&world, &Spec { own_workspace: Some(world.path("own")), ..world.spec(script) });
    assert_eq!(sample(&world), Activity::Unclear);
    until_idle(&world);
    // Each counts once.
    std::thread::sleep(GAP);
    fs::write(world.path("gate"), "\n").unwrap();
    world.pids(1);
    assert_eq!(sample(&world), Activity::Busy, "a new child");
    until_idle(&world);
    std::thread::sleep(GAP);
    fs::write(world.path("own/deep/file"), "").unwrap();
    assert_eq!(sample(&world), Activity::Busy, "a newer file");
    until_idle(&world);
    std::thread::sleep(GAP);
    fs::write(world.path("beside"), "").unwrap();
    assert_eq!(sample(&world), Activity::Idle, "a file elsewhere");
}
