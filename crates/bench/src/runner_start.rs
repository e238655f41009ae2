//! The time from the start of a runner's process until the command of a task runs, in a project with a history: 100,000
//! tasks that wait for a lock, and 1,000,000 events.

use std::collections::BTreeSet;
use std::time::Duration;

use banksman_core::event::{CustomKind, Event, Source};
use banksman_engine::Request;
use banksman_runtime::Project;
use banksman_store::Key;
use serde_json::json;

use crate::bench::{Bench, Result};
use crate::clock;
use crate::fifo::Fifo;
use crate::program::{self, Runner};
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};
use crate::tasks;

const TASKS: usize = 100_000;

/// Number of events in the log, including those of the tasks.
const EVENTS: usize = 1_000_000;

/// Number of events in one transaction.
const BATCH: usize = 2_000;

const TIMES: usize = 21;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let (old, new) = (tasks::project(bench, "runner-start", 2)?, tasks::project(bench, "runner-start-new", 2)?);
    tasks::fill(&old, (0..TASKS).map(|_| tasks::waiting()).collect::<Result<_>>()?)?;
    add_events(&old, EVENTS - TASKS)?;
    let events = old.reader()?.view().last_event()?.0;
    if events < EVENTS as i64 {
        return Err(format!("the log should have {EVENTS} events, but it has {events}").into());
    }
    let client = Bench::library(&old)?;
    let held = client.lock(tasks::LOCK).try_acquire()?;
    let (mut with_past, mut without) = (Vec::new(), Vec::new());
    let (mut old_bell, mut new_bell) = (bell(&old)?, bell(&new)?);
    for _ in 0..bench.rounds(TIMES) {
        with_past.push(start(&old, &mut old_bell)?);
        without.push(start(&new, &mut new_bell)?);
    }
    tasks::check_completed(&old, with_past.len())?;
    held.release()?;
    let at = |times: &[f64], share| Sample::once(stats::percentile(times, share));
    let ratio = Sample::once(at(&with_past, 0.5).median / at(&without, 0.5).median);
    let what = "start of a runner to running, 100,000 tasks, 1,000,000 events";
    Ok(vec![
        Row::new(format!("{what}: p50"), Unit::Milliseconds, at(&with_past, 0.5))
            .peer("in an empty project", at(&without, 0.5), ratio)
            .target(Target::AtMost(500.0)),
        Row::new(format!("{what}: slowest"), Unit::Milliseconds, at(&with_past, 1.0)).beside(format!("of {}", with_past.len())),
    ])
}

fn bell(project: &Project) -> Result<Fifo> {
    Fifo::make(&project.root().join("bell"))
}

/// Adds this many custom events to the log.
fn add_events(project: &Project, count: usize) -> Result<()> {
    let mut store = project.open_store()?;
    let kind = CustomKind::new("build:step")?;
    let source = Source { component: "user".into(), id: Some("builder".into()) };
    for first in (0..count).step_by(BATCH) {
        let event = |number: usize| {
            let data = json!({ "number": number, "text": "compiled another file of the project" });
            Request::Emit(Event::Custom { kind: kind.clone(), source: source.clone(), data })
        };
        let batch: Vec<Request> = (first..count.min(first + BATCH)).map(event).collect();
        for committed in store.batch(&batch) {
            committed?;
        }
        store.tidy(true)?;
    }
    Ok(())
}

/// Milliseconds from just before the start of a runner until the only ready task runs.
fn start(project: &Project, bell: &mut Fifo) -> Result<f64> {
    tasks::submit(&project.open()?, tasks::command("echo >bell")?, &[])?;
    let mut command = program::run(project, &[])?;
    let start = clock::now();
    let runner = Runner::of(command.spawn()?);
    let running = bell.wait()?;
    // The next runner must not find a run whose end is not recorded.
    let mut reader = project.reader()?;
    while !reader.view().load(&BTreeSet::from([Key::Live]))?.backlog.runs.is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(runner);
    Ok((running - start) as f64 / 1e6)
}
