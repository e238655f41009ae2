//! A command under a supervisor: its reported end, and that no process is left.

use std::process::{Command, Stdio};

use crate::ends::HIDDEN;
use crate::world::{PROGRAM, World, alive, until};

/// Runs a script under a supervisor and returns the printed result.
fn supervise(world: &World, limit_ms: u32, script: &str) -> String {
    let mut command = Command::new(PROGRAM);
    let output = command.args(["supervise", &limit_ms.to_string(), script]).current_dir(world.path(".")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_supervisor_reports_how_its_command_ended() {
    let world = World::new();
    assert_eq!(supervise(&world, 20_000, "echo $GREETING; echo bad >&2; exit 7"), r#"Exited(7) "hello\n" false "bad""#);
    assert_eq!(supervise(&world, 20_000, "kill -9 $$"), r#"Signalled(9) "" false """#);
    assert_eq!(supervise(&world, 20_000, "echo 0123456789abc; cat"), r#"Exited(0) "0123456789" true """#, "stdin is empty");
    assert!(supervise(&world, 20_000, "/nowhere").starts_with("NotStarted(\"/nowhere: No such file"));
}

#[test]
fn long_output_never_blocks_a_command() {
    let world = World::new();
    let said = supervise(&world, 60_000, "head -c 3000000 /dev/zero | tr '\\0' x; exit 3");
    assert_eq!(said, r#"Exited(3) "xxxxxxxxxx" true """#);
}

#[test]
fn a_time_out_leaves_no_process() {
    let world = World::new();
    let said = supervise(&world, 500, &format!("trap '' TERM; {HIDDEN} while :; do sleep 1; done"));
    assert!(said.starts_with("TimedOut"), "{said}");
    let pids = world.pids(4);
    assert!(pids.iter().all(|pid| !alive(*pid)), "{pids:?}");
}

#[test]
fn the_end_of_a_command_leaves_no_process() {
    let world = World::new();
    let said = supervise(&world, 60_000, &format!("{HIDDEN} while [ $(wc -l < pids) != 4 ]; do sleep 0.01; done; exit 6"));
    assert!(said.starts_with("Exited(6)"), "{said}");
    assert!(world.pids(4).iter().all(|pid| !alive(*pid)));
}

#[test]
fn a_command_dies_with_its_supervisor() {
    let world = World::new();
    let said = supervise(&world, 60_000, "echo $$ > pids; kill -9 $PPID; exec sleep 600");
    assert_eq!(said, r#"Lost "" false """#);
    let pids = world.pids(1);
    until("the command is dead", || pids.iter().all(|pid| !alive(*pid)).then_some(()));
}

#[test]
fn a_cancelled_command_is_ended() {
    let world = World::new();
    let mut command = Command::new(PROGRAM);
    command.args(["supervise", "600000", &format!("{HIDDEN} wait"), "want"]).current_dir(world.path("."));
    let mut caller = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let pids = world.pids(4);
    drop(caller.stdin.take());
    let said = caller.wait_with_output().unwrap().stdout;
    assert_eq!(String::from_utf8(said).unwrap(), r#"Unwanted "" false """#);
    assert!(pids.iter().all(|pid| !alive(*pid)), "{pids:?}");
}

#[test]
fn a_command_ends_with_its_caller() {
    let world = World::new();
    let script = format!("{HIDDEN} wait");
    let mut command = Command::new(PROGRAM);
    let mut caller =
        command.args(["supervise", "60000", &script]).current_dir(world.path(".")).stdout(Stdio::null()).spawn().unwrap();
    let pids = world.pids(4);
    assert!(pids.iter().all(|pid| alive(*pid)), "{pids:?}");
    caller.kill().unwrap();
    caller.wait().unwrap();
    until("all processes are dead", || pids.iter().all(|pid| !alive(*pid)).then_some(()));
}
