//! `banksman locks list` with 100 locks, from start to exit.

use std::process::Command;

use crate::bench::{Bench, Result};
use crate::program;
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};

const LOCKS: usize = 100;
const RUNS: usize = 50;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let (project, _) = bench.project("list")?;
    let client = Bench::library(&project)?;
    // All locks are held: the command checks each holder, which is the slow case.
    let held = (0..LOCKS).map(|number| Ok(client.lock(format!("lock-{number}")).try_acquire()?)).collect::<Result<Vec<_>>>()?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        ours.push(program::start_to_exit(&mut program::command(&project, &["locks", "list"])?)?);
        bare.push(program::start_to_exit(&mut Command::new("/bin/true"))?);
    }
    drop(held);
    let quiet = |times: &[f64]| Sample::once(stats::percentile(times, 0.5));
    let ratio = Sample::once(quiet(&ours).median / quiet(&bare).median);
    let slow = Sample::once(stats::percentile(&ours, 0.9));
    Ok(vec![
        Row::new("`locks list` of 100, start to exit: p50", Unit::Milliseconds, quiet(&ours))
            .peer("/bin/true", quiet(&bare), ratio)
            .target(Target::AtMost(6.0)),
        Row::new("`locks list`: p90", Unit::Milliseconds, slow),
    ])
}
