//! Short commands from start to exit, after many writes: alone, when each command opens the store itself, and next to a
//! runner, which keeps it open.

use std::process::Command;

use crate::bench::{Bench, Result};
use crate::program::{self, Runner};
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};
use crate::tasks;

const WRITES: usize = 1_000;
const TASKS: usize = 200;
const RUNS: usize = 60;

/// The commands. `why` is about a task that waits for a lock.
const COMMANDS: [&[&str]; 3] =
    [&["locks", "list"], &["why", "the one that is asked about"], &["tasks", "list", "--limit", "100"]];

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let project = tasks::project(bench, "commands", 2)?;
    program::succeed(&project, &["tasks", "add", "the one that is asked about", "--run", "true", "--lock", tasks::LOCK])?;
    tasks::fill(&project, (0..TASKS).map(|_| tasks::waiting()).collect::<Result<_>>()?)?;
    program::succeed(&project, &["locks", "acquire", tasks::LOCK, "--holder", "bench", "--ttl", "1h"])?;
    let mut rows = Vec::new();
    for with_runner in [false, true] {
        // The last writer to close the store leaves the log as the commands find it.
        let client = Bench::library(&project)?;
        for _ in 0..WRITES / 2 {
            client.lock("written").try_acquire()?.release()?;
        }
        drop(client);
        let runner = with_runner.then(|| Runner::start(&project, &[], |runner| runner.idle.is_some())).transpose()?;
        let beside = if with_runner { "beside a runner" } else { "alone" };
        for args in COMMANDS {
            let (mut ours, mut bare) = (Vec::new(), Vec::new());
            for _ in 0..RUNS {
                ours.push(program::start_to_exit(&mut program::command(&project, args)?)?);
                bare.push(program::start_to_exit(&mut Command::new("/bin/true"))?);
            }
            let p50 = |times: &[f64]| Sample::once(stats::percentile(times, 0.5));
            let ratio = Sample::once(p50(&ours).median / p50(&bare).median);
            let name = args.iter().take(if args[0] == "why" { 1 } else { 2 }).copied().collect::<Vec<_>>().join(" ");
            rows.push(
                Row::new(format!("`{name}` after 1,000 writes, {beside}, start to exit: p50"), Unit::Milliseconds, p50(&ours))
                    .peer("/bin/true", p50(&bare), ratio)
                    .target(Target::RatioAtMost(5.0)),
            );
        }
        drop(runner);
    }
    Ok(rows)
}
