//! 16 processes, each with a lock of its own: the distribution of their calls, and the slowest call.

use std::time::Duration;

use crate::bench::{Bench, Result};
use crate::plain::Plain;
use crate::process_group::ProcessGroup;
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};

const PROCESSES: usize = 16;
const ROUND: Duration = Duration::from_secs(2);
const ROUNDS: usize = 7;

/// The results of the rounds, one value per round.
#[derive(Default)]
struct Rounds {
    rates: Vec<f64>,
    fairness: Vec<f64>,
    slow_ms: Vec<f64>,
    slowest_ms: Vec<f64>,
}

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let (project, client) = bench.project("processes")?;
    // Only the worker processes may have connections.
    drop(client);
    let dir = project.root().display().to_string();
    let path = Plain::create(&bench.place("processes-plain")?, PROCESSES)?.display().to_string();
    let (mut ours, mut plain) = (Rounds::default(), Rounds::default());
    let span = bench.span(ROUND);
    for _ in 0..bench.rounds(ROUNDS) {
        ours.add(span, ProcessGroup::gather("pairs", (0..PROCESSES).map(|number| vec![dir.clone(), format!("lock-{number}")]))?)?;
        plain.add(span, ProcessGroup::gather("plain", (0..PROCESSES).map(|number| vec![path.clone(), number.to_string()]))?)?;
    }
    let best = Sample::once(stats::ratio_of_best(&ours.rates, &plain.rates));
    let fastest = |rounds: &Rounds| Sample::once(Sample::of(&rounds.rates).most);
    let ratio = Sample::of(&stats::ratios(&ours.rates, &plain.rates));
    let name = "plain SQLite, 16 processes";
    let beside = |theirs: &[f64], unit: &str| format!("{name}: {:.2}{unit}", Sample::of(theirs).median);
    let slowest = Sample::of(&ours.slowest_ms);
    Ok(vec![
        Row::new("16 processes, distinct locks: total", Unit::PairsPerSecond, Sample::of(&ours.rates))
            .peer(name, Sample::of(&plain.rates), ratio)
            .target(Target::RatioAtLeast(0.6)),
        Row::new("16 processes: total, fastest round of each", Unit::PairsPerSecond, fastest(&ours))
            .peer(name, fastest(&plain), best)
            .target(Target::RatioAtLeast(0.6)),
        Row::new("16 processes: least busy / most busy", Unit::Ratio, Sample::of(&ours.fairness))
            .beside(beside(&plain.fairness, ""))
            .target(Target::AtLeast(0.5)),
        Row::new("16 processes: p99.9 of one call", Unit::Milliseconds, Sample::of(&ours.slow_ms))
            .beside(beside(&plain.slow_ms, " ms"))
            .target(Target::AtMost(250.0)),
        Row::new("16 processes: slowest call", Unit::Milliseconds, slowest).beside(beside(&plain.slowest_ms, " ms")),
    ])
}

impl Rounds {
    fn add(&mut self, span: Duration, mut group: ProcessGroup) -> Result<()> {
        group.go(span)?;
        let reports = group.reports()?;
        let pairs: Vec<f64> = reports.iter().map(|calls| calls.len() as f64 / 2.0).collect();
        let calls_ms: Vec<f64> = reports.iter().flatten().flatten().map(|nanos| *nanos as f64 / 1e6).collect();
        self.rates.push(pairs.iter().sum::<f64>() / span.as_secs_f64());
        self.fairness.push(stats::percentile(&pairs, 0.0) / stats::percentile(&pairs, 1.0));
        self.slow_ms.push(stats::percentile(&calls_ms, 0.999));
        self.slowest_ms.push(stats::percentile(&calls_ms, 1.0));
        Ok(())
    }
}
