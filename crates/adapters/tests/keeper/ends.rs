//! The end of a session, with all of its processes.

use std::process::Command;
use std::time::{Duration, Instant};

use banksman_adapters::keeper::{self, Found, Notice, Record, Swept};
use rustix::process::Signal;

use crate::world::{PROGRAM, World, alive, signal, start, until};

/// Four processes, of which three hide: in another session, behind a parent that has exited, and also without any environment.
pub(crate) const HIDDEN: &str = r#"
    note='echo $$ >> pids; exec sleep 60'
    sh -c "$note" &
    setsid sh -c "$note" &
    setsid sh -c "(sh -c '$note' &) ; exit 0"
    env -i "$(command -v setsid)" sh -c "sh -c '$note' &"
"#;

#[test]
fn a_kill_ends_hidden_processes() {
    let world = World::new();
    let mut talk = world.start(&format!("{HIDDEN} wait"));
    talk.started();
    let pids = world.pids(4);
    assert!(pids.iter().all(|pid| alive(*pid)), "{pids:?}");
    talk.session.kill(Duration::from_secs(20));
    let ending = talk.settled();
    assert!(ending.stopped);
    assert_eq!(ending.signal, Some(15));
    assert!(pids.iter().all(|pid| !alive(*pid)), "{pids:?}");
}

#[test]
fn stragglers_are_ended_after_a_normal_exit() {
    let world = World::new();
    let mut talk = world.start(&format!("exec 2>&- 1>&-; {HIDDEN} while [ $(wc -l < pids) != 4 ]; do sleep 0.01; done; exit 6"));
    let ending = talk.settled();
    assert_eq!((ending.code, ending.stopped, ending.stragglers), (Some(6), false, 4));
    assert!(world.pids(4).iter().all(|pid| !alive(*pid)));
}

#[test]
fn the_last_output_of_a_straggler_is_logged() {
    let world = World::new();
    let ending = world.start("(sleep 0.1; echo late) & echo early").settled();
    assert_eq!(ending.stragglers, 0);
    assert_eq!(world.log(), "early\nlate\n");
}

#[test]
fn a_straggler_cannot_delay_the_end() {
    let world = World::new();
    let begin = Instant::now();
    let ending = world.start("sleep 60 & exit 0").settled();
    assert_eq!((ending.code, ending.stragglers), (Some(0), 1));
    assert!((Duration::from_secs(1)..Duration::from_secs(9)).contains(&begin.elapsed()), "{:?}", begin.elapsed());
}

#[test]
fn a_process_that_ignores_the_signal_is_killed_after_the_grace() {
    let world = World::new();
    let mut talk = world.start("trap '' TERM; echo $$ >> pids; while :; do sleep 0.01; done");
    let pids = world.pids(1);
    talk.session.kill(Duration::from_millis(50));
    let ending = talk.settled();
    assert_eq!((ending.signal, ending.stopped), (Some(9), true));
    assert!(!alive(pids[0]));
}

#[test]
fn a_second_kill_can_shorten_the_grace() {
    let world = World::new();
    let mut talk = world.start("trap '' TERM; echo $$ >> pids; while :; do sleep 0.01; done");
    world.pids(1);
    talk.session.kill(Duration::from_secs(600));
    until("the session is stopping", || keeper::status(&world.record()).unwrap().stopping.then_some(()));
    talk.session.kill(Duration::ZERO);
    assert_eq!(talk.settled().signal, Some(9));
}

#[test]
fn a_stopped_process_can_end_by_itself() {
    let world = World::new();
    let mut talk = world.start("trap 'exit 8' TERM; echo $$ >> pids; kill -STOP $$; sleep 60");
    talk.started();
    let pid = world.pids(1)[0];
    until("it is stopped", || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ").then_some(()));
    talk.session.kill(Duration::from_secs(60));
    assert_eq!(talk.settled().code, Some(8));
}

#[test]
fn a_process_that_keeps_forking_is_caught() {
    let world = World::new();
    let fork = "trap \"\" TERM; echo $$ >> pids; while :; do setsid sleep 50 & setsid sh -c \"sleep 50 &\"; done";
    let mut talk = world.start(&format!("setsid sh -c '{fork}' & setsid sh -c '{fork}' & wait"));
    world.pids(2);
    talk.session.kill(Duration::from_millis(20));
    let ending = talk.settled();
    assert!(ending.stopped);
    assert!(world.pids(2).iter().all(|pid| !alive(*pid)));
}

/// Waits until the keeper is dead, and returns its record: the kernel closes its stream before it releases its lock.
fn dead(world: &World) -> Record {
    until("the keeper is dead", || match world.find() {
        Found::Live(_) => None,
        Found::Dead(record) => Some(record),
        other => panic!("not dead: {other:?}"),
    })
}

#[test]
fn the_program_dies_with_its_keeper_and_the_rest_is_swept_up() {
    let world = World::new();
    let script = "note='echo $$ >> pids; exec sleep 60'; sh -c \"$note\" & setsid sh -c \"$note\" & env -i sh -c \"$note\" & \
                  setsid sh -c '(env -i setsid sleep 60 & echo $! >> pids; wait)' & sleep 60; echo not reached";
    let mut talk = world.start(script);
    let (keeper_pid, child_pid) = talk.started();
    let pids = world.pids(4);
    // The sweep must not touch a session of another run, nor a process of no run.
    let other = World::new();
    let mut others = other.start("setsid sleep 60 & wait");
    let (_, other_pid) = others.started();
    let mut stranger = std::process::Command::new("sleep").arg("60").spawn().unwrap();

    signal(keeper_pid, Signal::KILL);
    assert_eq!(talk.next(), Notice::Gone);
    until("the program is dead", || (!alive(child_pid)).then_some(()));
    let record = dead(&world);
    assert!(pids.iter().all(|pid| alive(*pid)), "no process has got a signal");
    let swept = keeper::sweep(&record, Duration::from_secs(20)).unwrap();
    assert_eq!(swept.left, Vec::<i32>::new());
    assert!(swept.ended >= 4, "{swept:?}");
    assert!(pids.iter().all(|pid| !alive(*pid)), "{pids:?}");
    assert_eq!(keeper::sweep(&record, Duration::ZERO).unwrap(), Swept::default());
    assert!(stranger.try_wait().unwrap().is_none());
    assert!(alive(other_pid));
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert!(keeper::forget(&world.record()).unwrap());
    assert_eq!(world.list("runs"), Vec::<String>::new());
    assert_eq!(world.list("sockets"), Vec::<String>::new());
}

#[test]
fn a_sweep_kills_a_process_that_ignores_sigterm() {
    let world = World::new();
    let mut talk = world.start("setsid sh -c 'trap \"\" TERM; echo $$ >> pids; while :; do sleep 0.01; done' & wait");
    let (keeper_pid, _) = talk.started();
    let pids = world.pids(1);
    signal(keeper_pid, Signal::KILL);
    assert_eq!(talk.next(), Notice::Gone);
    let record = dead(&world);
    let swept = keeper::sweep(&record, Duration::from_millis(50)).unwrap();
    assert_eq!(swept.left, Vec::<i32>::new());
    assert!(!alive(pids[0]));
}

#[test]
fn the_grace_of_the_spec_applies_to_stragglers() {
    let world = World::new();
    let mut spec = world.spec("setsid sh -c 'trap \"\" TERM; echo $$ >> pids; while :; do sleep 0.01; done' >&- 2>&- & while [ ! -s pids ]; do sleep 0.01; done");
    spec.grace_ms = 30;
    let ending = start(&spec).settled();
    assert_eq!((ending.code, ending.stopped), (Some(0), false));
    assert!(ending.stragglers >= 1);
    assert!(!alive(world.pids(1)[0]));
}

#[test]
fn descendants_in_other_process_groups_are_ended_too() {
    let world = World::new();
    let script = format!("cd {}; {HIDDEN} while [ \"$(wc -l < pids)\" != 4 ]; do sleep 0.01; done", world.path("").display());
    assert!(Command::new(PROGRAM).args(["end", &script]).status().unwrap().success());
    assert!(world.pids(4).iter().all(|pid| !alive(*pid)));
}
