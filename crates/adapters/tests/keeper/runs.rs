//! Running a program, and logging its output.

use std::fs;
use std::process::Command;

use banksman_adapters::keeper::{self, Notice};
use rustix::process::Signal;

use crate::world::{PROGRAM, World, signal, start, until};

#[test]
fn the_exit_code_is_reported() {
    let world = World::new();
    let ending = world.start("exit 7").settled();
    assert_eq!((ending.code, ending.signal, ending.error, ending.stopped), (Some(7), None, None, false));
    assert!(ending.ended_at_ms > 1_700_000_000_000);
}

#[test]
fn the_signal_is_reported() {
    let ending = World::new().start("kill -QUIT $$").settled();
    assert_eq!((ending.code, ending.signal, ending.stopped), (None, Some(3), false));
}

#[test]
fn the_output_is_in_the_log() {
    let world = World::new();
    let mut talk = world.start("echo one; echo two >&2; echo three");
    let ending = talk.settled();
    assert_eq!(world.log(), "one\ntwo\nthree\n");
    assert_eq!((ending.log.bytes, ending.log.dropped, ending.log.error), (14, 0, None));
}

#[test]
fn without_output_there_is_no_log() {
    let world = World::new();
    world.start("true").settled();
    assert!(!world.path("logs").exists());
}

#[test]
fn the_log_keeps_the_newest_output_up_to_its_limit() {
    let world = World::new();
    let mut spec = world.spec("seq 1 200000");
    spec.log_limit = 100_000;
    let ending = start(&spec).settled();
    assert_eq!(ending.log.bytes, 1_288_895);
    let kept = fs::read_to_string(world.path("logs/r-1.1")).unwrap() + &world.log();
    assert!(kept.ends_with("\n199999\n200000\n"), "the newest output is kept");
    assert!((100_000..=200_000).contains(&kept.len()), "{} are kept", kept.len());
    assert_eq!(ending.log.dropped, 1_288_895 - kept.len() as u64);
}

#[test]
fn a_log_that_cannot_be_written_does_not_block_the_program() {
    let world = World::new();
    fs::write(world.path("logs"), "a file").unwrap();
    // More than a pipe holds: the program would hang if the keeper did not read.
    let ending = world.start("seq 1 100000; exit 3").settled();
    assert_eq!(ending.code, Some(3));
    assert_eq!((ending.log.bytes, ending.log.dropped), (588_895, 588_895));
    let error = ending.log.error.unwrap();
    assert!(error.ends_with("logs/r-1\": Not a directory"), "{error}");
}

#[test]
fn the_program_gets_its_environment_stdin_and_directories() {
    let world = World::new();
    fs::write(world.path("prompt"), "hello").unwrap();
    let plain = |name: &str| !["PATH", "PWD", "OLDPWD", "SHLVL", "_"].contains(&name);
    let (inherited, _) = std::env::vars().find(|(name, _)| plain(name)).unwrap();
    let script = format!(
        "pwd; cat; echo; echo ${{PATH:+path}} $ADDED; printenv '{inherited}' || echo gone; ls -d made/deep; touch made/used/x"
    );
    let mut spec = world.spec(&script);
    spec.stdin = Some(world.path("prompt"));
    spec.make_dirs = vec![world.path("made/deep"), world.path("made/used")];
    spec.spare_dirs = spec.make_dirs.clone();
    spec.env = vec![("ADDED".into(), "a b".into())];
    spec.env_remove = vec![inherited];
    start(&spec).settled();
    let cwd = world.path("").canonicalize().unwrap();
    assert_eq!(world.log(), format!("{}\nhello\npath a b\ngone\nmade/deep\n", cwd.display()));
    assert_eq!(
        (world.path("made/deep").exists(), world.path("made/used").exists()),
        (false, true),
        "an empty directory is removed"
    );
}

#[test]
fn without_an_input_stdin_is_dev_null() {
    let world = World::new();
    world.start("cat; readlink /proc/$$/fd/0; ls -l /proc/$$/fd").settled();
    let log = world.log();
    assert!(log.starts_with("/dev/null\n"), "{log}");
    assert!(!log.contains("runs/r-1"), "the lock on the record is the keeper's alone: {log}");
}

#[test]
fn the_program_begins_with_default_signals() {
    let world = World::new();
    let spec = world.path("spec");
    let text = serde_json::to_vec(&world.spec("exec grep -E '^Sig(Blk|Ign)' /proc/self/status")).unwrap();
    fs::write(&spec, text).unwrap();
    // The signals are ignored as under nohup, in the background of a script.
    let runner = format!("trap '' HUP INT QUIT PIPE; exec {PROGRAM} hold {}", spec.display());
    assert!(Command::new("sh").args(["-c", &runner]).status().unwrap().success());
    let masks: Vec<u64> = world.log().lines().map(|line| u64::from_str_radix(&line[8..], 16).unwrap()).collect();
    // Real-time signals may be ignored where the tests run.
    assert_eq!(masks.iter().map(|mask| mask & 0x7fff_ffff).collect::<Vec<_>>(), [0, 0]);
}

#[test]
fn a_missing_program_is_reported_in_words() {
    let world = World::new();
    let mut spec = world.spec("");
    spec.argv = vec!["no-such-program".into()];
    let ending = start(&spec).settled();
    assert_eq!(ending.error.as_deref(), Some("cannot start \"no-such-program\": No such file or directory"));
    assert_eq!((ending.code, ending.signal), (None, None));
    assert_eq!(world.list("runs"), Vec::<String>::new());
}

#[test]
fn other_start_errors_are_reported_in_words() {
    let world = World::new();
    let missing = world.path("missing");
    let mut cwd = world.spec("true");
    cwd.cwd = missing.clone();
    let mut stdin = world.spec("true");
    stdin.stdin = Some(missing.clone());
    let mut argv = world.spec("true");
    argv.argv.clear();
    let errors = [cwd, stdin, argv].map(|spec| start(&spec).settled().error.unwrap());
    assert_eq!(errors[0], format!("cannot start in {missing:?}: No such file or directory"));
    assert_eq!(errors[1], format!("cannot read {missing:?}: No such file or directory"));
    assert_eq!(errors[2], "there is no program to start");
}

#[test]
fn a_nudge_is_done_once_and_kills_no_process() {
    let world = World::new();
    let mut talk = world.start("touch up; while [ ! -e go ]; do sleep 0.01; done; exit 4");
    talk.started();
    world.wait_for("up");
    for effect_id in [10, 10, 11] {
        talk.session.nudge(effect_id);
        assert_eq!(talk.next(), Notice::Nudged { effect_id });
    }
    assert_eq!(keeper::status(&world.record()).unwrap().nudges, 2);
    fs::write(world.path("go"), "").unwrap();
    assert_eq!(talk.settled().code, Some(4));
    assert_eq!(world.log(), "banksman: nudged\nbanksman: nudged\n");
}

#[test]
fn a_nudge_reaches_a_process_with_a_handler() {
    let world = World::new();
    // Without children: between fork and `exec` a child has the handler of the shell, gets the signal too, and dies of it.
    let mut talk = world.start("trap 'echo heard; exit 5' USR1; touch up; while :; do :; done");
    talk.started();
    world.wait_for("up");
    talk.session.nudge(1);
    assert_eq!(talk.next(), Notice::Nudged { effect_id: 1 });
    assert_eq!(talk.settled().code, Some(5));
    assert_eq!(world.log(), "banksman: nudged\nheard\n");
}

#[test]
fn only_sigterm_stops_a_keeper() {
    let world = World::new();
    let mut talk = world.start("touch up; sleep 60");
    let (keeper_pid, child_pid) = talk.started();
    world.wait_for("up");
    signal(keeper_pid, Signal::HUP);
    signal(keeper_pid, Signal::INT);
    let status = keeper::status(&world.record()).unwrap();
    assert_eq!((status.keeper_pid, status.child_pid, status.stopping), (keeper_pid, Some(child_pid), false));
    assert!(status.processes.contains(&child_pid));
    signal(keeper_pid, Signal::TERM);
    let ending = talk.settled();
    assert_eq!((ending.signal, ending.stopped), (Some(15), true));
}

#[test]
fn an_oversized_or_relative_spec_is_refused_at_once() {
    let world = World::new();
    let mut large = world.spec("true");
    large.env = vec![("LARGE".into(), "x".repeat(2 << 20).into())];
    let error = keeper::start(&large).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ArgumentListTooLong);
    let mut relative = world.spec("true");
    relative.cwd = "here".into();
    assert_eq!(keeper::start(&relative).unwrap_err().to_string(), "\"here\" is not an absolute path");
    let mut fits = world.spec("echo ${#LARGE}");
    fits.env = vec![("LARGE".into(), "x".repeat(100_000).into())];
    fits.argv.extend((0..6).map(|_| "y".repeat(100_000).into()));
    assert_eq!(start(&fits).settled().code, Some(0));
    assert_eq!(world.log(), "100000\n");
}

#[test]
fn ended_keepers_are_reaped() {
    let world = World::new();
    let mut talk = world.start("true");
    let (keeper_pid, _) = talk.started();
    talk.settled();
    drop(talk);
    until("the keeper is reaped", || {
        // The end of this session or the next start in this process reaps it, whichever comes first.
        World::new().start("true").settled();
        (!std::path::Path::new(&format!("/proc/{keeper_pid}")).exists()).then_some(())
    });
}
