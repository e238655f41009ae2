//! A nudge reaches the entire tree of a session, continues stopped processes, and ends none. Also, the first line of the log.

use std::time::Duration;

use banksman_adapters::keeper::{self, AgentSpec, Notice, Spec};
use banksman_agents::Family;
use rustix::process::Signal;

use crate::world::{World, alive, signal, start, until};

/// Whether a process is stopped.
fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

#[test]
fn a_nudge_continues_a_stopped_tree() {
    let world = World::new();
    // A child that waits for a grandchild in a session of its own, which waits for a file.
    let grandchild = "echo $$ >> pids; while [ ! -e go ]; do sleep 0.01; done; echo went";
    let mut talk = world.start(&format!("echo $$ >> pids; setsid sh -c '{grandchild}' & wait"));
    talk.started();
    let pids = world.pids(2);
    pids.iter().for_each(|pid| signal(*pid, Signal::STOP));
    until("both are stopped", || pids.iter().all(|pid| is_stopped(*pid)).then_some(()));
    std::fs::write(world.path("go"), "").unwrap();
    assert_eq!(world.log(), "", "no process has seen the file");
    talk.session.nudge(1);
    assert_eq!(talk.next(), Notice::Nudged { effect_id: 1 });
    let ending = talk.settled();
    assert_eq!((ending.code, ending.stopped), (Some(0), false));
    assert_eq!(world.log(), "banksman: nudged\nwent\n");
}

#[test]
fn a_nudge_signals_only_processes_with_a_handler() {
    let world = World::new();
    let listens = r#"trap "echo heard; exit 0" USR1; echo $$ >> pids; while :; do sleep 0.01; done"#;
    let deaf = "echo $$ >> pids; while [ ! -e go ]; do sleep 0.01; done; echo unharmed";
    let mut talk = world.start(&format!("setsid sh -c '{deaf}' & (sh -c '{listens}'; echo left) & wait"));
    talk.started();
    let pids = world.pids(2);
    talk.session.nudge(1);
    assert_eq!(talk.next(), Notice::Nudged { effect_id: 1 });
    until("the process with a handler has got the signal", || world.log().contains("heard\nleft\n").then_some(()));
    assert_eq!(pids.iter().filter(|pid| alive(**pid)).count(), 1);
    std::fs::write(world.path("go"), "").unwrap();
    assert_eq!(talk.settled().code, Some(0));
    assert!(world.log().ends_with("unharmed\n"), "{:?}", world.log());
}

#[test]
fn a_nudge_makes_no_program_open_its_debugger() {
    let listens = r#"trap "echo heard; exit 0" USR1; echo $$ >> pids; while [ ! -e go ]; do sleep 0.01; done; echo left alone"#;
    let of_agent = AgentSpec { family: Family::Codex, after_result_ms: 0, patience_ms: 60_000 };
    for (script, agent) in [(format!("./node -c '{listens}'; true"), None), (listens.to_owned(), Some(of_agent))] {
        let world = World::new();
        std::fs::copy(std::fs::canonicalize("/bin/sh").unwrap(), world.path("node")).unwrap();
        let mut talk = start(&Spec { agent, ..world.spec(&script) });
        talk.started();
        world.pids(1);
        talk.session.nudge(1);
        assert_eq!(talk.next(), Notice::Nudged { effect_id: 1 });
        std::fs::write(world.path("go"), "").unwrap();
        assert_eq!(talk.settled().code, Some(0));
        assert!(world.log().ends_with("left alone\n"), "{:?}", world.log());
    }
}

#[test]
fn a_nudge_does_not_count_as_activity() {
    let world = World::new();
    let mut talk = world.start("while [ ! -e go ]; do sleep 0.01; done");
    talk.started();
    let quiet = || keeper::status(&world.record()).unwrap().quiet_ms;
    until("the session was quiet for a while", || (quiet() >= 50).then_some(()));
    let before = quiet();
    talk.session.nudge(1);
    assert_eq!(talk.next(), Notice::Nudged { effect_id: 1 });
    assert!(quiet() >= before, "the keeper's own line does not count");
    talk.session.kill(Duration::ZERO);
    talk.settled();
}

#[test]
fn the_banner_begins_the_log() {
    let world = World::new();
    let banner = Some("starting restart #3".to_owned());
    let mut talk = start(&Spec { banner, ..world.spec("echo hello") });
    assert_eq!(talk.settled().code, Some(0));
    assert_eq!(world.log(), "banksman: starting restart #3\nhello\n");
}

#[test]
fn the_banner_is_logged_even_if_the_program_does_not_start() {
    let world = World::new();
    let banner = Some("starting restart #0".to_owned());
    let argv = vec!["/nowhere/at/all".into()];
    let mut talk = start(&Spec { banner, argv, ..world.spec("") });
    assert!(talk.settled().code != Some(0));
    assert!(world.log().starts_with("banksman: starting restart #0\n"), "{:?}", world.log());
}
