//! The memory of a runner in a backlog of 100,000 tasks.

use std::time::Duration;

use crate::bench::{Bench, Result};
use crate::program::Runner;
use crate::report::{Row, Target, Unit};
use crate::stats::Sample;
use crate::{proc, tasks};

const TASKS: usize = 100_000;
const SPAN: Duration = Duration::from_secs(10);

/// Fewer tasks than a slow machine completes in this time: the figure is not about speed.
const AT_LEAST: usize = 50;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let project = tasks::project(bench, "memory", 2)?;
    tasks::fill(&project, tasks::half_waiting(TASKS)?)?;
    let client = Bench::library(&project)?;
    let held = client.lock(tasks::LOCK).try_acquire()?;
    let mut runner = Runner::start(&project, &[], |_| true)?;
    std::thread::sleep(bench.span(SPAN));
    runner.check()?;
    let memory = proc::memory(runner.pid())?;
    drop(runner);
    tasks::check_completed(&project, AT_LEAST)?;
    held.release()?;
    let beside = format!("now: its share {:.1} MB, of it in no file {:.1} MB", memory.share, memory.anonymous);
    Ok(vec![
        Row::new("memory of a runner, 100,000 tasks: peak", Unit::Megabytes, Sample::once(memory.peak))
            .beside(beside)
            .target(Target::AtMost(30.0)),
    ])
}
