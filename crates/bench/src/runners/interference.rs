//! The effect of one large operation on all others: a task that frees thousands, and a snapshot that is held for long.

use std::io::Write;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use banksman_core::Status;

use super::fleet::Fleet;
use super::{Database, SLOTS, Site, on_both};
use crate::bench::{Bench, Result};
use crate::fifo::Fifo;
use crate::report::{Row, Target, Unit};
use crate::stats::Sample;
use crate::{clock, single, tasks};

const DEPENDENTS: usize = 10_000;

/// How long other calls are timed after the end of the task.
const AFTER: Duration = Duration::from_secs(4);

/// How long a snapshot is held, and for which part of that the rate is measured.
const HELD: Duration = Duration::from_secs(60);
const RATED: Duration = Duration::from_secs(8);

/// More tasks than can run meanwhile.
const BACKLOG: usize = 60_000;

pub(crate) fn dependents(bench: &Bench) -> Result<Vec<Row>> {
    on_both(bench, |bench, database| {
        let site = database.site(bench, "dependents", SLOTS)?;
        let mut gate = Fifo::make(&site.project.root().join("gate"))?;
        let mut ended = Fifo::make(&site.project.root().join("ended"))?;
        let client = site.project.open()?;
        let first = tasks::submit(&client, tasks::command("read x <gate; echo >ended")?, &[])?;
        tasks::fill_after(&site.project, vec![tasks::command("true")?; DEPENDENTS], &[first])?;
        let fleet = Fleet::start(&site, 1, SLOTS, &[])?;
        let is_over = AtomicBool::new(false);
        let waits = std::thread::scope(|scope| -> Result<Vec<(u64, f64)>> {
            let calls = scope.spawn(|| -> Result<Vec<(u64, f64)>> {
                let mut waits = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let from = clock::now();
                    single::pair(&client, "one")?;
                    waits.push((from, (clock::now() - from) as f64 / 1e6));
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(waits)
            });
            std::thread::sleep(AFTER / 4);
            gate.ring(1)?;
            let end = ended.wait()?;
            std::thread::sleep(bench.span(AFTER));
            is_over.store(true, Ordering::Relaxed);
            let waits = calls.join().map_err(|_| "a thread panicked")??;
            Ok(waits.into_iter().filter(|(from, _)| *from + 500_000_000 > end).collect())
        })?;
        drop(fleet);
        let longest = waits.iter().map(|(_, ms)| *ms).fold(0.0, f64::max);
        let what = format!("{}: a task with 10,000 dependents ends: longest wait of another pair of calls", database.name());
        Ok(vec![
            Row::new(what, Unit::Milliseconds, Sample::once(longest))
                .beside(format!("of {}", waits.len()))
                .target(Target::AtMost(100.0)),
        ])
    })
}

pub(crate) fn snapshot(bench: &Bench) -> Result<Vec<Row>> {
    on_both(bench, |bench, database| {
        let site = database.site(bench, "snapshot", SLOTS)?;
        tasks::fill(&site.project, vec![tasks::command("true")?; BACKLOG])?;
        let fleet = Fleet::start(&site, 1, SLOTS, &[])?;
        std::thread::sleep(Duration::from_secs(2));
        let free = rate(&site)?;
        let snapshot = Snapshot::open(&site, database)?;
        let held = bench.span(HELD);
        std::thread::sleep(held.saturating_sub(RATED));
        let beside = rate(&site)?;
        drop(snapshot);
        drop(fleet);
        let what = format!("{}: 1 runner, `true`, beside a snapshot held for {:.0} s", database.name(), held.as_secs_f64());
        Ok(vec![
            Row::new(what, Unit::TasksPerSecond, Sample::once(beside))
                .peer("without", Sample::once(free), Sample::once(beside / free))
                .target(Target::RatioAtLeast(0.7)),
        ])
    })
}

/// The current rate in tasks per second.
fn rate(site: &Site) -> Result<f64> {
    let mut reader = site.project.reader()?;
    let mut completed =
        || -> Result<u64> { Ok(reader.view().counts()?.by_status.get(&Status::Completed).copied().unwrap_or_default()) };
    let (before, from) = (completed()?, Instant::now());
    std::thread::sleep(RATED);
    let (after, seconds) = (completed()?, from.elapsed().as_secs_f64());
    if after == before {
        return Err("no task has ended for a while".into());
    }
    Ok((after - before) as f64 / seconds)
}

/// A transaction that sees the rows of one moment until it is dropped, as a backup does.
enum Snapshot {
    Sqlite(rusqlite::Connection),
    Postgres(Child),
}

impl Snapshot {
    fn open(site: &Site, database: &Database) -> Result<Snapshot> {
        match database {
            Database::Sqlite => {
                let connection = rusqlite::Connection::open(site.project.folder().join("store.db"))?;
                connection.execute_batch("BEGIN")?;
                connection.query_row("SELECT count(*) FROM tasks", [], |_| Ok(()))?;
                Ok(Snapshot::Sqlite(connection))
            }
            Database::Postgres(server) => {
                let mut psql = server.psql().stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
                let input = psql.stdin.as_mut().ok_or("psql has no input")?;
                input.write_all(b"BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM banksman.tasks;\n")?;
                Ok(Snapshot::Postgres(psql))
            }
        }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        match self {
            Snapshot::Sqlite(connection) => drop(connection.execute_batch("COMMIT")),
            Snapshot::Postgres(psql) => {
                psql.kill().ok();
                psql.wait().ok();
            }
        }
    }
}
