//! Agent programs: a result or too many retries end them, and a result after the request to end does not count.

use std::time::Duration;

use banksman_adapters::keeper::{AgentReport, AgentSpec, Notice, Spec};
use banksman_agents::{Family, StopReason, Trouble};

use crate::world::{World, alive, start};

const INIT: &str = r#"echo '{"type":"system","subtype":"init","session_id":"s-1","model":"m"}'"#;
const ANSWER: &str = r#"echo '{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"hello"}]}}'"#;
const RESULT: &str = r#"echo '{"type":"result","subtype":"success","is_error":false,"result":"done","num_turns":1}'"#;
const RETRY: &str = r#"echo '{"type":"system","subtype":"api_retry","error_status":529,"error":"overloaded"}'"#;
const REFUSED: &str = r#"echo '{"type":"system","subtype":"api_retry","error_status":401,"error":"authentication_failed"}'"#;
const SLEEP: &str = "echo $$ >> pids; while :; do sleep 0.01; done";

fn spec(world: &World, lines: &[&str], after_result_ms: u64, patience_ms: u64) -> Spec {
    let agent = Some(AgentSpec { family: Family::Claude, after_result_ms, patience_ms });
    Spec { agent, grace_ms: 2_000, ..world.spec(&lines.join("; ")) }
}

fn run(world: &World, lines: &[&str], after_result_ms: u64, patience_ms: u64) -> AgentReport {
    let ended = start(&spec(world, lines, after_result_ms, patience_ms)).settled();
    *ended.agent.expect("the session was an agent's")
}

#[test]
fn a_program_that_stays_after_its_result_is_ended() {
    let world = World::new();
    let agent = run(&world, &[INIT, ANSWER, RESULT, "(setsid sleep 600 &)", SLEEP], 50, 60_000);
    assert_eq!((agent.stop, agent.report.ending.is_some()), (Some(StopReason::AfterResult), true));
    assert_eq!(agent.report.session.as_deref(), Some("s-1"));
    assert!(!alive(world.pids(1)[0]));
}

#[test]
fn a_program_that_only_retries_is_ended_after_its_patience() {
    let world = World::new();
    let agent = run(&world, &[INIT, RETRY, SLEEP], 60_000, 50);
    assert_eq!(agent.stop, Some(StopReason::Retrying));
    assert_eq!(agent.report.retry.map(|retry| retry.trouble), Some(Trouble::Overloaded));
    // A login that is refused twice ends the program, whatever its patience.
    let world = World::new();
    let agent = run(&world, &[INIT, REFUSED, REFUSED, SLEEP], 60_000, 60_000);
    assert_eq!(agent.report.retry.map(|retry| retry.trouble), Some(Trouble::Auth));
}

#[test]
fn a_result_after_the_request_to_end_does_not_count() {
    let world = World::new();
    let trap = format!("trap \"{}; exit 0\" TERM", RESULT.replace('"', "\\\""));
    let mut talk = start(&spec(&world, &[&trap, INIT, ANSWER, SLEEP], 60_000, 60_000));
    while talk.next() != Notice::Answered {}
    world.pids(1);
    talk.session.kill(Duration::from_secs(5));
    let ended = talk.settled();
    let agent = ended.agent.expect("the session was an agent's");
    assert_eq!((ended.code, agent.stop, agent.report.ending), (Some(0), Some(StopReason::Asked), None));
    assert!(world.log().contains("\"result\""), "the log has it all the same");
}

#[test]
fn lines_of_both_streams_do_not_mix_in_the_log() {
    let world = World::new();
    let halves = ["printf '{\"type\":'; echo oops >&2; sleep 0.05; echo '\"x\"}'", RESULT];
    let agent = run(&world, &halves, 60_000, 60_000);
    assert!(agent.report.ending.is_some() && &*agent.report.plain == "oops");
    assert!(world.log().contains("{\"type\":\"x\"}\n") && world.log().contains("oops\n"), "{}", world.log());
}

#[test]
fn oversized_lines_and_garbage_change_nothing() {
    let world = World::new();
    let flood = "head -c 30000000 /dev/zero | tr '\\0' x; echo; printf '\\377\\376{\\n'";
    let agent = run(&world, &[INIT, flood, ANSWER, RESULT], 60_000, 60_000);
    assert!(agent.report.ending.is_some_and(|ending| !ending.is_error));
}
