//! Tests of the pure parts, ended an event log written here.

#![expect(clippy::disallowed_macros, reason = "event data is written as JSON")]

use banksman_core::event::Source;
use banksman_core::{RunId, Seq, Wall};
use banksman_store::EventRow;
use serde_json::{Value, json};

use super::audit::Audit;
use crate::commands::timeline::picture::{self, Axis};
use crate::commands::timeline::rows::{RunnerSpan, State, Timeline};

/// An event at this time in milliseconds; the source is written `component id`.
fn event(at: i64, kind: &str, source: &str, data: Value) -> EventRow {
    let (component, id) = source.split_once(' ').unwrap();
    let source = Source { component: component.into(), id: Some(id.into()) };
    EventRow { id: Seq(at), kind: kind.into(), wall: Wall(at), source, data, by: None, depth: 0 }
}

fn added(id: &str, title: &str, section: &str, depends_on: &[&str], parent: Option<&str>) -> EventRow {
    let edges: Vec<Value> = depends_on.iter().map(|on| json!({ "on": on })).collect();
    let mut spec = json!({ "title": title, "section": section, "priority": 0, "retries": 1, "workspace": "none" });
    if let Some(parent) = parent {
        spec["parent"] = parent.into();
    }
    let at = if parent.is_some() { 1_100 } else { 0 };
    event(at, "task:added", &format!("task {id}"), json!({ "spec": spec, "dependsOn": edges }))
}

fn slot(at: i64, kind: &str, run: &str) -> EventRow {
    event(at, &format!("semaphore:{kind}"), "semaphore runs", json!({ "holder": format!("run:{run}"), "epoch": 1 }))
}

/// A run begins and takes its slot.
fn started(at: i64, task: &str, run: &str, runner: &str) -> [EventRow; 2] {
    let data = json!({ "run": run, "attempt": 0, "runner": runner });
    [slot(at, "acquired", run), event(at, "task:started", &format!("task {task}"), data)]
}

/// A run releases its slot and ends.
fn ended(at: i64, kind: &str, task: &str, run: &str) -> [EventRow; 2] {
    let data = json!({ "run": run, "ending": { "exited": 1 }, "why": "failed", "failures": 1, "recoveries": 0 });
    [slot(at, "released", run), event(at, kind, &format!("task {task}"), data)]
}

fn adopted(at: i64, task: &str, run: &str) -> EventRow {
    event(at, "task:adopted", &format!("task {task}"), json!({ "run": run, "runner": "n-2", "from": "n-1" }))
}

/// A log with everything that the timeline can show, in four seconds.
fn log() -> Vec<EventRow> {
    let section = |id: &str, name: &str, exclusive: bool| {
        event(0, "section:added", &format!("section {id}"), json!({ "name": name, "exclusive": exclusive }))
    };
    let mut log = vec![
        section("s-1", "build", false),
        section("s-2", "production", true),
        added("t-1", "Compile", "s-1", &[], None),
        added("t-2", "Unit tests", "s-1", &["t-1"], None),
        added("t-3", "Fuzzing", "s-1", &[], None),
        added("t-5", "Deploy", "s-2", &["t-2", "t-3"], None),
        event(0, "semaphore:defined", "semaphore runs", json!({ "capacity": 2 })),
    ];
    log.extend(started(50, "t-1", "r-1", "n-1"));
    log.extend(ended(900, "task:complete", "t-1", "r-1"));
    log.extend(started(900, "t-3", "r-3", "n-1"));
    log.extend(started(900, "t-2", "r-2", "n-1"));
    log.push(added("t-4", "Minimise", "s-1", &[], Some("t-3")));
    log.push(slot(1_150, "released", "r-3"));
    log.extend(started(1_200, "t-4", "r-4", "n-1"));
    log.extend(ended(1_400, "task:restarting", "t-2", "r-2"));
    log.extend(started(1_410, "t-2", "r-5", "n-1"));
    // The runner is killed here: the end of a run is not reported until there is another runner.
    log.extend([adopted(2_600, "t-2", "r-5"), adopted(2_600, "t-3", "r-3"), adopted(2_600, "t-4", "r-4")]);
    log.extend(ended(2_610, "task:complete", "t-2", "r-5"));
    log.extend(ended(2_900, "task:complete", "t-4", "r-4"));
    log.push(slot(2_910, "acquired", "r-3"));
    log.extend(ended(3_200, "task:complete", "t-3", "r-3"));
    log.extend(started(3_210, "t-5", "r-6", "n-2"));
    log.extend(ended(3_950, "task:complete", "t-5", "r-6"));
    log
}

fn timeline() -> Timeline {
    let spans = [
        RunnerSpan { name: "runner 1", from: Wall(0), to: Wall(2_000), is_killed: true },
        RunnerSpan { name: "runner 2", from: Wall(2_550), to: Wall(4_000), is_killed: false },
    ];
    Timeline::of(&log(), &[(RunId::new("r-5").unwrap(), Wall(2_300))].into(), &spans)
}

#[test]
fn a_timeline_in_80_columns() {
    let picture = crate::terminal::plain(&picture::draw(&timeline(), Axis::Elapsed, 80));
    assert!(picture.lines().all(|line| line.chars().count() <= 80), "{picture}");
    insta::assert_snapshot!(picture);
}

#[test]
fn a_run_ends_at_its_keepers_time_and_dependents_are_ready_when_reported() {
    use State::{Alone, Crashes, Lends, Ready, Runs, Waits};
    let timeline = timeline();
    let segments = |title: &str| {
        let mut rows = timeline.sections.iter().flat_map(|section| &section.rows);
        rows.find(|row| row.title == title).unwrap().segments().collect::<Vec<_>>()
    };
    assert_eq!(
        segments("Unit tests"),
        [(0, 900, Waits), (900, 1_400, Crashes), (1_400, 1_410, Ready), (1_410, 2_000, Runs), (2_000, 2_300, Alone)]
    );
    let lent = [(900, 1_150, Runs), (1_150, 2_000, Lends), (2_000, 2_600, Alone), (2_600, 2_910, Lends), (2_910, 3_200, Runs)];
    assert_eq!(segments("Fuzzing")[1..], lent);
    assert_eq!(segments("Deploy"), [(0, 3_200, Waits), (3_200, 3_210, Ready), (3_210, 3_950, Runs)]);
    assert_eq!((timeline.slots_at(1_300), timeline.slots_at(3_205), timeline.capacity), (2, 0, 2));
}

#[test]
fn the_audit_accepts_a_log_that_keeps_all_guarantees() {
    let audit = Audit::of(&log());
    assert_eq!((audit.runs, audit.crashed, audit.adopted.len(), audit.children), (6, vec!["Unit tests".to_owned()], 3, 1));
    assert_eq!((audit.early, audit.doubled, audit.most_runners, audit.most["semaphore runs"]), (0, 0, 1, 2));
}

#[test]
fn the_audit_counts_every_broken_guarantee() {
    let with = |more: Vec<EventRow>| Audit::of(&[log(), more].concat());
    let waiting = added("t-7", "Late", "s-2", &["t-8"], None);
    assert_eq!(with([vec![waiting], started(5_000, "t-7", "r-7", "n-2").into()].concat()).early, 1);
    let twice = [started(5_000, "t-1", "r-7", "n-1"), started(5_001, "t-1", "r-8", "n-2")].concat();
    assert_eq!(with(twice).doubled, 1);
    let strangers = [
        vec![added("t-7", "Other", "s-2", &[], None)],
        started(5_000, "t-5", "r-7", "n-1").into(),
        started(5_001, "t-7", "r-8", "n-2").into(),
        started(5_002, "t-1", "r-9", "n-2").into(),
    ];
    let audit = with(strangers.concat());
    assert_eq!((audit.most_runners, audit.most["semaphore runs"]), (2, 3));
}
