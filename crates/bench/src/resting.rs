//! An idle runner with 10,000 tasks that wait for a lock.

use std::time::Duration;

use crate::bench::{Bench, Result};
use crate::program::Runner;
use crate::report::{Row, Target, Unit};
use crate::stats::Sample;
use crate::{proc, tasks};

const TASKS: usize = 10_000;
const SPAN: Duration = Duration::from_secs(60);

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let project = tasks::project(bench, "resting", 2)?;
    tasks::fill(&project, (0..TASKS).map(|_| tasks::waiting()).collect::<Result<_>>()?)?;
    let client = Bench::library(&project)?;
    let held = client.lock(tasks::LOCK).try_acquire()?;
    let mut runner = Runner::start(&project, &[], |runner| runner.idle.is_some())?;
    let span = bench.span(SPAN);
    let (pid, faults) = (runner.pid(), proc::spent(runner.pid())?.children_faults);
    let before = proc::used(pid)?;
    std::thread::sleep(span);
    let after = proc::used(pid)?;
    runner.check()?;
    // Live children, and at least one more if any has come and gone.
    let gone = usize::from(proc::spent(pid)?.children_faults != faults);
    let processes = proc::children(pid)? + gone;
    drop(runner);
    tasks::check_completed(&project, 0)?;
    held.release()?;
    let share = (after.0 - before.0) as f64 / span.as_nanos() as f64 * 100.0;
    let look = format!("{:.0} s, {} voluntary switches", span.as_secs_f64(), after.1 - before.1);
    Ok(vec![
        Row::new("idle runner, 10,000 waiting tasks: CPU", Unit::Percent, Sample::once(share))
            .beside(look)
            .target(Target::AtMost(0.1)),
        Row::new("idle runner: processes started", Unit::Count, Sample::once(processes as f64)).target(Target::AtMost(0.0)),
    ])
}
