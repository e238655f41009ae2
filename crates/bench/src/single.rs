//! One client: pairs of acquire and release, next to two commits of plain SQLite.

use std::time::Duration;

use banksman_runtime::Client;

use crate::bench::{Bench, Result};
use crate::clock;
use crate::held::Held;
use crate::plain::Plain;
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};

/// Short and many: the disk of a virtual machine may be fast in one second and throttled in the next.
const ROUND: Duration = Duration::from_millis(150);
const ROUNDS: usize = 41;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let (project, client) = bench.project("single")?;
    let library = Bench::library(&project)?;
    let mut plain = Plain::open(&Plain::create(&bench.place("single-plain")?, 1)?)?;
    let (mut ours, mut guarded, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    // The three alternate, and rounds are compared in pairs.
    for _ in 0..bench.rounds(ROUNDS) {
        ours.push(rate(ROUND, || pair(&client, "one"))?);
        guarded.push(rate(ROUND, || Ok(library.lock("one").try_acquire()?.release()?))?);
        theirs.push(rate(ROUND, || plain.acquire(0).and_then(|()| plain.release(0)))?);
    }
    let ratio = Sample::of(&stats::ratios(&ours, &theirs));
    let name = "plain SQLite, two commits";
    let through_library = Sample::of(&stats::ratios(&guarded, &ours));
    let best = Sample::once(stats::ratio_of_best(&ours, &theirs));
    let (ours, theirs) = (Sample::of(&ours), Sample::of(&theirs));
    Ok(vec![
        Row::new("1 client, acquire + release", Unit::PairsPerSecond, ours)
            .peer(name, theirs, ratio)
            .target(Target::RatioAtLeast(0.7)),
        Row::new("1 client, fastest round of each", Unit::PairsPerSecond, Sample::once(ours.most))
            .peer(name, Sample::once(theirs.most), best)
            .target(Target::RatioAtLeast(0.7)),
        Row::new("1 client, through the library", Unit::PairsPerSecond, Sample::of(&guarded))
            .peer("the engine without guards", ours, through_library)
            .target(Target::RatioAtLeast(0.9)),
    ])
}

/// Acquires and releases a lock.
pub(crate) fn pair(client: &Client, name: &str) -> Result<()> {
    Held::acquire(client, name)?.release(client)
}

/// The rate of `pair` per second.
pub(crate) fn rate(span: Duration, mut pair: impl FnMut() -> Result<()>) -> Result<f64> {
    let start = clock::now();
    let end = start + clock::nanos(span);
    let mut pairs = 0.0;
    loop {
        pair()?;
        pairs += 1.0;
        let now = clock::now();
        if now >= end {
            return Ok(pairs * 1e9 / (now - start) as f64);
        }
    }
}
