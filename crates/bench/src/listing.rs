//! `banksman locks list` with 100 locks, from its start to its exit.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::bench::{Bench, Result};
use crate::clock;
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};

const LOCKS: usize = 100;
const RUNS: usize = 50;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let program = std::env::current_exe()?.with_file_name("banksman");
    if !program.exists() {
        return Err(format!("{} is missing: cargo build --release -p banksman-cli", program.display()).into());
    }
    let (project, client) = bench.project("list")?;
    // All of them are held: each holder is looked at, which is the longer way.
    let held = (0..LOCKS).map(|number| Ok(client.lock(&format!("lock-{number}"))?.acquire()?)).collect::<Result<Vec<_>>>()?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        ours.push(start_to_exit(Command::new(&program).args(["locks", "list"]).current_dir(project.root()))?);
        bare.push(start_to_exit(&mut Command::new(Path::new("/bin/true")))?);
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

fn start_to_exit(command: &mut Command) -> Result<f64> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let start = clock::now();
    let status = command.status()?;
    let ms = (clock::now() - start) as f64 / 1e6;
    if status.success() { Ok(ms) } else { Err(format!("{command:?}: {status}").into()) }
}
