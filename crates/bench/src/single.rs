//! One client: pairs of acquire and release, beside two commits of plain SQLite.

use std::time::Duration;

use banksman::Client;

use crate::bench::{Bench, Result};
use crate::clock;
use crate::plain::Plain;
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};

const ROUND: Duration = Duration::from_secs(1);
const ROUNDS: usize = 7;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let (_project, client) = bench.project("single")?;
    let mut plain = Plain::open(&Plain::create(&bench.place("single-plain")?, 1)?)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // The machine's mood changes from second to second: the two take turns, and each round is compared by itself.
    for _ in 0..bench.rounds(ROUNDS) {
        ours.push(rate(bench.span(ROUND), || pair(&client, "one"))?);
        theirs.push(rate(bench.span(ROUND), || plain.acquire(0).and_then(|()| plain.release(0)))?);
    }
    let ratio = Sample::of(&stats::ratios(&ours, &theirs));
    let row = Row::new("1 client, acquire + release", Unit::PairsPerSecond, Sample::of(&ours));
    Ok(vec![row.peer("plain SQLite, two commits", Sample::of(&theirs), ratio).target(Target::RatioAtLeast(0.7))])
}

/// Takes a lock and gives it back.
pub(crate) fn pair(client: &Client, name: &str) -> Result<()> {
    Ok(client.lock(name)?.acquire()?.release()?)
}

/// How often per second `pair` can be done.
fn rate(span: Duration, mut pair: impl FnMut() -> Result<()>) -> Result<f64> {
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
