//! The latency of a task that nothing blocks: from its submission, or from the end of its dependency, until its command
//! runs.

use std::process::{Command, Stdio};
use std::time::Duration;

use banksman_runtime::{Client, Project};

use crate::bench::{Bench, Result};
use crate::clock;
use crate::fifo::Fifo;
use crate::program::{self, Runner};
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};
use crate::tasks;

const TIMES: usize = 100;

/// After this time all results are recorded, all processes sleep, and none still spins for new work.
const PAUSE: Duration = Duration::from_millis(150);

/// The command of a task: its shell runs it without another process.
const RING: &str = "echo >bell";

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let project = tasks::project(bench, "starts", 2)?;
    let mut site = Site::new(&project)?;
    let mut runner = Runner::start(&project, &[], |_| true)?;
    let (mut bare, mut library, mut binary, mut chained) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.rounds(TIMES) {
        bare.push(site.bare()?);
        library.push(site.library()?);
        binary.push(site.binary()?);
        chained.push(site.chained()?);
    }
    std::thread::sleep(PAUSE);
    runner.check()?;
    tasks::check_completed(&project, 4 * library.len())?;
    if site.bell.has_more(Duration::ZERO)? {
        return Err("a task has run twice".into());
    }
    let at = |times: &[f64], share| Sample::once(stats::percentile(times, share));
    let p50 = |what: &str, times: &[f64]| Row::new(format!("{what}: p50"), Unit::Milliseconds, at(times, 0.5));
    let p99 = |what: &str, times: &[f64]| {
        let row = Row::new(format!("{what}: p99"), Unit::Milliseconds, at(times, 0.99));
        row.beside(format!("of {}", times.len()))
    };
    let limit = (at(&bare, 0.5), |times: &[f64]| Sample::once(stats::percentile(times, 0.5) / stats::percentile(&bare, 0.5)));
    let name = "the bench starts the same `sh` itself";
    let (submit, by_binary, end) = ("submit to running", "`tasks add` to running", "end to dependent running");
    Ok(vec![
        p50(submit, &library).peer(name, limit.0, limit.1(&library)).target(Target::AtMost(8.0)),
        p99(submit, &library),
        p50(by_binary, &binary).peer(name, limit.0, limit.1(&binary)),
        p99(by_binary, &binary),
        p50(end, &chained).peer(name, limit.0, limit.1(&chained)).target(Target::AtMost(12.0)),
        p99(end, &chained),
    ])
}

/// A project with an idle runner, and the pipes that its commands use.
struct Site<'a> {
    project: &'a Project,
    client: Client,
    gate: Fifo,
    ended: Fifo,
    bell: Fifo,
}

impl Site<'_> {
    fn new(project: &Project) -> Result<Site<'_>> {
        let fifo = |name: &str| Fifo::make(&project.root().join(name));
        Ok(Site { project, client: project.open()?, gate: fifo("gate")?, ended: fifo("ended")?, bell: fifo("bell")? })
    }

    /// The lower bound: a shell that this process starts. In milliseconds, like the others.
    fn bare(&mut self) -> Result<f64> {
        std::thread::sleep(PAUSE);
        let start = clock::now();
        let mut child = Command::new("sh").args(["-c", RING]).current_dir(self.project.root()).stdin(Stdio::null()).spawn()?;
        let running = self.bell.wait()?;
        child.wait()?;
        Ok(ms(start, running))
    }

    /// From just before a call of the library.
    fn library(&mut self) -> Result<f64> {
        std::thread::sleep(PAUSE);
        let spec = tasks::command(RING)?;
        let start = clock::now();
        tasks::submit(&self.client, spec, &[])?;
        Ok(ms(start, self.bell.wait()?))
    }

    /// From just before the start of the binary that adds the task.
    fn binary(&mut self) -> Result<f64> {
        std::thread::sleep(PAUSE);
        let mut command = program::command(self.project, &["tasks", "add", "a task", "--run", RING])?;
        let start = clock::now();
        let mut child = command.spawn()?;
        let running = self.bell.wait()?;
        child.wait()?;
        Ok(ms(start, running))
    }

    /// From the last action of the command of one task until the command of its dependent runs.
    fn chained(&mut self) -> Result<f64> {
        std::thread::sleep(PAUSE);
        let first = tasks::submit(&self.client, tasks::command("read x <gate; echo >ended")?, &[])?;
        tasks::submit(&self.client, tasks::command(RING)?, &[first])?;
        std::thread::sleep(PAUSE);
        self.gate.ring(1)?;
        let end = self.ended.wait()?;
        Ok(ms(end, self.bell.wait()?))
    }
}

fn ms(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e6
}
