//! `banksman status`, from start to exit.

use std::process::Command;

use crate::bench::{Bench, Result};
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};
use crate::{program, tasks};

const RUNS: usize = 50;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (count, words, target) in [(1_000, "1,000", 15.0), (100_000, "100,000", 8.0)] {
        let project = tasks::project(bench, &format!("status-{count}"), 2)?;
        tasks::fill(&project, tasks::half_waiting(count)?)?;
        let client = Bench::library(&project)?;
        let held = client.lock(tasks::LOCK).try_acquire()?;
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            ours.push(program::start_to_exit(&mut program::command(&project, &["status"])?)?);
            bare.push(program::start_to_exit(&mut Command::new("/bin/true"))?);
        }
        held.release()?;
        let p50 = |times: &[f64]| Sample::once(stats::percentile(times, 0.5));
        let ratio = Sample::once(p50(&ours).median / p50(&bare).median);
        let row = Row::new(format!("`status`, {words} tasks, start to exit: p50"), Unit::Milliseconds, p50(&ours));
        rows.push(row.peer("/bin/true", p50(&bare), ratio).target(Target::AtMost(target)));
    }
    Ok(rows)
}
