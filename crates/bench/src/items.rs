//! Queues: cycles of push, take and complete, next to the same three statements of plain SQLite; and the cost of a take
//! while a million items wait.

use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

use banksman_core::queue::{Config, Data, Hold, Input, Item, New, Outcome};
use banksman_core::{HolderId, Name, Span};
use banksman_runtime::{Client, Project};
use rusqlite::{Connection, TransactionBehavior};

use crate::bench::{Bench, Result};
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};
use crate::{clock, single, threads, worker};

const ROUND: Duration = Duration::from_millis(150);
const ROUNDS: usize = 31;
const THREADS: usize = 64;
const THREADS_ROUND: Duration = Duration::from_secs(2);
const THREADS_ROUNDS: usize = 5;
const FEW: usize = 1_000;
const MANY: usize = 1_000_000;

/// Number of items that one transaction adds.
const CHUNK: usize = 500;

/// Number of takes in a round of the comparison; all rounds fit into [`FEW`].
const TAKES: usize = 20;
const TAKES_ROUNDS: usize = 21;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = one_client(bench)?;
    rows.extend(many_threads(bench)?);
    rows.extend(deep(bench)?);
    Ok(rows)
}

fn one_client(bench: &Bench) -> Result<Vec<Row>> {
    let (_project, client) = bench.project("queues-single")?;
    let site = Site::new(&client, "one")?;
    let mut plain = Plain::create(&bench.place("queues-plain")?)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // The two alternate, and rounds are compared in pairs.
    for _ in 0..bench.rounds(ROUNDS) {
        ours.push(single::rate(ROUND, || site.cycle())?);
        theirs.push(single::rate(ROUND, || plain.cycle())?);
    }
    let ratio = Sample::of(&stats::ratios(&ours, &theirs));
    let best = Sample::once(stats::ratio_of_best(&ours, &theirs));
    let name = "plain SQLite, the same three commits without a log";
    let (ours, theirs) = (Sample::of(&ours), Sample::of(&theirs));
    Ok(vec![
        Row::new("queues: 1 client, push + take + complete", Unit::CyclesPerSecond, ours)
            .peer(name, theirs, ratio)
            .target(Target::RatioAtLeast(0.6)),
        Row::new("queues: 1 client, fastest round of each", Unit::CyclesPerSecond, Sample::once(ours.most))
            .peer(name, Sample::once(theirs.most), best)
            .target(Target::RatioAtLeast(0.6)),
    ])
}

fn many_threads(bench: &Bench) -> Result<Vec<Row>> {
    let (project, client) = bench.project("queues-threads")?;
    let site = Site::new(&client, "shared")?;
    let (mut rates, mut batches) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds(THREADS_ROUNDS) {
        let before = worker::commits(&threads::index_file(&project))?;
        let (cycles, seconds) = round(&site, bench.span(THREADS_ROUND))?;
        let commits = worker::commits(&threads::index_file(&project))? - before;
        rates.push(cycles / seconds);
        batches.push(3.0 * cycles / commits as f64);
    }
    Ok(vec![
        Row::new("queues: 64 threads of one process, one queue", Unit::CyclesPerSecond, Sample::of(&rates))
            .beside("each call acknowledged by itself")
            .target(Target::AtLeast(12_000.0)),
        Row::new("queues: 64 threads: calls per commit", Unit::Count, Sample::of(&batches)).beside("64 at most"),
    ])
}

/// The number of cycles of all threads, and the seconds that they took.
fn round(site: &Site<'_>, span: Duration) -> Result<(f64, f64)> {
    let start = Barrier::new(THREADS);
    let began = clock::now();
    let end = began + clock::nanos(span);
    let counts = std::thread::scope(|scope| {
        let work = || {
            start.wait();
            let mut cycles = 0u32;
            while clock::now() < end {
                site.cycle()?;
                cycles += 1;
            }
            Ok(cycles)
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect::<Result<Vec<u32>>>()
    })?;
    Ok((counts.into_iter().map(f64::from).sum(), (clock::now() - began) as f64 / 1e9))
}

fn deep(bench: &Bench) -> Result<Vec<Row>> {
    let (small, large) = (filled(bench, "queues-few", FEW)?, filled(bench, "queues-many", MANY)?);
    let (small, large) = (Site::new(&small.1, "deep")?, Site::new(&large.1, "deep")?);
    let (mut few, mut many) = (Vec::new(), Vec::new());
    // The first takes fill the caches.
    small.takes(TAKES)?;
    large.takes(TAKES)?;
    for _ in 0..bench.rounds(TAKES_ROUNDS) {
        few.extend(small.takes(TAKES)?);
        many.extend(large.takes(TAKES)?);
    }
    let p50 = |times: &[f64]| stats::percentile(times, 0.5);
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    let row = |what: &str, times: &[f64]| {
        Row::new(format!("take, {what} items: p50"), Unit::Milliseconds, Sample::once(p50(times)))
            .beside(format!("mean {:.2} ms", mean(times)))
    };
    Ok(vec![
        row("1,000", &few),
        row("1,000,000", &many),
        Row::new("take, 1,000,000 / 1,000", Unit::Ratio, Sample::once(p50(&many) / p50(&few)))
            .beside(format!("of the means: {:.2}", mean(&many) / mean(&few)))
            .target(Target::AtMost(1.5)),
    ])
}

fn filled(bench: &Bench, name: &str, count: usize) -> Result<(Project, Client)> {
    let (project, client) = bench.project(name)?;
    let site = Site::new(&client, "deep")?;
    for first in (0..count).step_by(CHUNK) {
        let items = (first..count.min(first + CHUNK)).map(new).collect::<Result<Vec<_>>>()?;
        client.ask_queue(&site.queue, Input::Push(items))?;
    }
    Ok((project, client))
}

fn new(number: usize) -> Result<New> {
    let data = Data::parse(&format!("{{\"number\":{number}}}"))?;
    Ok(New { data, priority: 0, delay: Span::ZERO, dedupe: None })
}

/// A queue with one holder.
struct Site<'a> {
    client: &'a Client,
    queue: Name,
    holder: HolderId,
}

impl<'a> Site<'a> {
    fn new(client: &'a Client, name: &str) -> Result<Site<'a>> {
        let queue = Name::new(name)?;
        let config =
            Config { visibility_timeout: Span::from_secs(300), max_attempts: 3, dead_letter: None, max_length: 10_000_000 };
        client.ask_queue(&queue, Input::Define(config))?;
        Ok(Site { client, queue, holder: HolderId::new("bench")? })
    }

    fn cycle(&self) -> Result<()> {
        match self.client.ask_queue(&self.queue, Input::Push(vec![new(1)?]))?.0 {
            Outcome::Pushed(_) => {}
            other => return Err(format!("not pushed: {other:?}").into()),
        }
        let item = self.take()?;
        let hold = Hold { item: item.id, holder: self.holder.clone(), epoch: item.fence };
        match self.client.ask_queue(&self.queue, Input::Complete(hold))?.0 {
            Outcome::Completed => Ok(()),
            other => Err(format!("not completed: {other:?}").into()),
        }
    }

    fn take(&self) -> Result<Box<Item>> {
        match self.client.ask_queue(&self.queue, Input::Take { holder: self.holder.clone(), wait: None, ticket: None })?.0 {
            Outcome::Taken(item) => Ok(item),
            other => Err(format!("not taken: {other:?}").into()),
        }
    }

    /// The durations of this many takes, each in milliseconds.
    fn takes(&self, count: usize) -> Result<Vec<f64>> {
        let one = |_| {
            let start = clock::now();
            self.take()?;
            Ok((clock::now() - start) as f64 / 1e6)
        };
        (0..count).map(one).collect()
    }
}

/// A minimal but correct queue: one table, one index, three commits, no event log.
struct Plain(Connection);

impl Plain {
    fn create(dir: &Path) -> Result<Plain> {
        let connection = Connection::open(dir.join("plain.db"))?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch(
            "CREATE TABLE items (id INTEGER PRIMARY KEY, data TEXT NOT NULL, priority INTEGER NOT NULL, holder TEXT);
             CREATE INDEX items_ready ON items (priority DESC, id) WHERE holder IS NULL;",
        )?;
        Ok(Plain(connection))
    }

    fn cycle(&mut self) -> Result<()> {
        self.commit("INSERT INTO items (data, priority) VALUES ('{\"number\":1}', 0) RETURNING id", None)?;
        let id = self.commit(
            "UPDATE items SET holder = 'bench' WHERE id = (SELECT id FROM items WHERE holder IS NULL ORDER BY priority DESC, id LIMIT 1) RETURNING id",
            None,
        )?;
        self.commit("DELETE FROM items WHERE id = ?1 AND holder = 'bench' RETURNING id", Some(id))?;
        Ok(())
    }

    fn commit(&mut self, sql: &str, id: Option<i64>) -> Result<i64> {
        let transaction = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let id = {
            let mut statement = transaction.prepare_cached(sql)?;
            statement.query_row(rusqlite::params_from_iter(id), |row| row.get::<_, i64>(0))?
        };
        transaction.commit()?;
        Ok(id)
    }
}
