//! The punctuality of a loop: from the end of its delay until its next attempt runs.

use std::num::NonZeroU32;
use std::time::Duration;

use banksman_adapters::host;
use banksman_core::task::Spec;
use banksman_core::task::retry::{OnTimeout, Policy};
use banksman_core::{Seq, Span};
use banksman_store::EventFilter;

use crate::bench::{Bench, Result};
use crate::clock;
use crate::fifo::Fifo;
use crate::program::Runner;
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};
use crate::tasks;

const TIMES: usize = 50;

/// The delay of the loop: long enough for all processes to sleep.
const DELAY: Span = Span::from_ms(200);

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let attempts = bench.rounds(TIMES) + 1;
    let project = tasks::project(bench, "restarts", 2)?;
    let mut bell = Fifo::make(&project.root().join("bell"))?;
    let mut runner = Runner::start(&project, &[], |_| true)?;
    // The offset from the clock of the bench to that of the log, which counts whole milliseconds.
    let to_wall = host::wall_ms() as f64 - clock::now() as f64 / 1e6;
    let policy = Policy {
        max_attempts: NonZeroU32::new(u32::try_from(attempts)?).ok_or("there are attempts")?,
        delay: DELAY,
        child_wait: Span::ZERO,
        on_children_timeout: OnTimeout::Warn,
    };
    let spec = Spec { restart: Some(policy), ..tasks::command("echo >bell")? };
    let id = tasks::submit(&project.open()?, spec, &[])?;
    let mut began = Vec::with_capacity(attempts);
    for _ in 0..attempts {
        began.push(bell.wait()? as f64 / 1e6 + to_wall);
    }
    if bell.has_more(Duration::from_millis(500))? {
        return Err("there was an attempt too many".into());
    }
    runner.check()?;
    let filter = EventFilter { kind: Some("task:restarting".into()), source: Some(format!("task:{id}")), since: None };
    let mut ended = Vec::new();
    let mut after = Seq(0);
    let mut reader = project.reader()?;
    loop {
        let page = reader.view().events(after, &filter)?;
        ended.extend(page.events.iter().map(|event| event.wall.0 as f64));
        after = page.last;
        if !page.more {
            break;
        }
    }
    if ended.len() + 1 != began.len() {
        return Err(format!("{} attempts, but {} restarts", began.len(), ended.len()).into());
    }
    let late = |(end, next): (&f64, &f64)| next - (end + DELAY.as_ms() as f64);
    let late: Vec<f64> = ended.iter().zip(&began[1..]).map(late).collect();
    let row = |what: &str, share| Row::new(what, Unit::Milliseconds, Sample::once(stats::percentile(&late, share)));
    Ok(vec![
        row("a loop after its rest, due to running: p50", 0.5)
            .beside(format!("of {}, each after {DELAY}", late.len()))
            .target(Target::AtMost(15.0)),
        row("a loop after its rest, due to running: p99", 0.99).target(Target::AtMost(15.0)),
    ])
}
