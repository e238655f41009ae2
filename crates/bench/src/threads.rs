//! 64 threads of one process, each with a lock of its own: calls that arrive together share a commit.

use std::path::PathBuf;
use std::sync::Barrier;
use std::time::Duration;

use banksman_runtime::{Client, Project};

use crate::bench::{Bench, Result};
use crate::report::{Row, Target, Unit};
use crate::stats::Sample;
use crate::{clock, peers, single, worker};

const THREADS: usize = 64;
const ROUND: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let (project, client) = bench.project("threads")?;
    let (mut rates, mut batches) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds(ROUNDS) {
        let before = worker::commits(&index_file(&project))?;
        let (pairs, seconds) = round(&client, THREADS, bench.span(ROUND))?;
        let commits = worker::commits(&index_file(&project))? - before;
        rates.push(pairs / seconds);
        batches.push(2.0 * pairs / commits as f64);
    }
    let ours = Sample::of(&rates);
    let commits = rates.iter().zip(&batches).map(|(rate, batch)| 2.0 * rate / batch).collect::<Vec<_>>();
    let flushes = format!("{:.0} commits/s; the disk alone: {:.0} flushes/s", Sample::of(&commits).median, 1.0 / flush(bench));
    let mut rows = vec![
        Row::new("64 threads of one process, distinct locks", Unit::PairsPerSecond, ours)
            .beside(flushes)
            .target(Target::AtLeast(25_000.0)),
        Row::new("64 threads: calls per commit", Unit::Count, Sample::of(&batches)).beside("64 at most"),
    ];
    rows.push(peers::redis(bench)?.row("redis, appendfsync always, 50 connections", ours));
    rows.push(peers::etcd(bench)?.row("etcd, 50 connections", ours));
    Ok(rows)
}

fn flush(bench: &Bench) -> f64 {
    bench.flush.as_secs_f64()
}

/// SQLite's shared memory, which counts the commits.
pub(crate) fn index_file(project: &Project) -> PathBuf {
    project.root().join(".banksman/store.db-shm")
}

/// The number of pairs of all threads, and the seconds that they took.
pub(crate) fn round(client: &Client, threads: usize, span: Duration) -> Result<(f64, f64)> {
    let start = Barrier::new(threads);
    let began = clock::now();
    let counts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|number| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    pairs_until(client, &format!("lock-{number}"), clock::now() + clock::nanos(span))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect::<Result<Vec<u32>>>()
    })?;
    let seconds = (clock::now() - began) as f64 / 1e9;
    Ok((counts.into_iter().map(f64::from).sum(), seconds))
}

fn pairs_until(client: &Client, name: &str, end: u64) -> Result<u32> {
    let mut pairs = 0;
    while clock::now() < end {
        single::pair(client, name)?;
        pairs += 1;
    }
    Ok(pairs)
}
