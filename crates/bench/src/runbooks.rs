//! `banksman runbooks check` of a runbook with 1,000 phases, from start to exit.

use std::fmt::Write;
use std::process::Command;

use crate::bench::{Bench, Result};
use crate::program;
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};

const PHASES: usize = 1_000;
const RUNS: usize = 50;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let (project, _client) = bench.project("runbooks")?;
    std::fs::write(project.runbooks_dir().join("large.toml"), large(PHASES)?)?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds(RUNS) {
        ours.push(program::start_to_exit(&mut program::command(&project, &["runbooks", "check"])?)?);
        bare.push(program::start_to_exit(&mut Command::new("/bin/true"))?);
    }
    let at = |times: &[f64], share| Sample::once(stats::percentile(times, share));
    let ratio = Sample::once(at(&ours, 0.5).median / at(&bare, 0.5).median);
    Ok(vec![
        Row::new("`runbooks check`, 1,000 phases, start to exit: p50", Unit::Milliseconds, at(&ours, 0.5))
            .peer("/bin/true", at(&bare, 0.5), ratio)
            .target(Target::AtMost(50.0)),
        Row::new("`runbooks check`, 1,000 phases: p90", Unit::Milliseconds, at(&ours, 0.9)),
    ])
}

/// Realistic phases: a command, a template, guards, a lock, a step back.
fn large(phases: usize) -> Result<String> {
    let mut text = String::from(
        "[guard.quiet]\ncondition = { all = [{ lock_free = \"deploy\" }, { file_contains = { path = \"log\", pattern = '^ok \\d+' } }] }\n\n\
         [pipeline.large]\nvars = [\"branch\", { base = \"main\" }]\n",
    );
    for index in 0..phases {
        let back = index / 2;
        write!(
            text,
            "\n[[pipeline.large.phase]]\nname = \"phase-{index}\"\nargv = [\"make\", \"check\", \"BRANCH={{{{ branch }}}}\"]\n\
             pre = [\"quiet\"]\nlock = \"main\"\ntimeout = \"30m\"\nretries = 1\non_fail = {{ phase = \"phase-{back}\", times = 2 }}\n"
        )?;
    }
    Ok(text)
}
