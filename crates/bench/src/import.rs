//! `banksman tasks import` of 100,000 tasks with 200,000 dependencies, and the wait of other calls meanwhile.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use banksman_core::task::dependencies;
use banksman_runtime::{Client, Project};
use rusqlite::Connection;
use serde_json::json;

use crate::bench::{Bench, Result};
use crate::process_group::ProcessGroup;
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};
use crate::{clock, program};

const TASKS: usize = 100_000;
const ROUNDS: usize = 3;

/// Number of tasks that one transaction of plain SQLite inserts, the same as ours.
const CHUNK: usize = 250;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let file = write_file(bench)?;
    let (mut alone, mut beside, mut plain, mut cycles) = (vec![], vec![], vec![], vec![]);
    let mut calls = Vec::new();
    for round in 0..bench.rounds(ROUNDS) {
        let (project, _) = bench.project(&format!("import-{round}"))?;
        alone.push(import(&project, &file)?);
        plain.push(insert(&bench.place(&format!("import-plain-{round}"))?)?);
        cycles.push(cycle_check_ms());

        let (project, client) = bench.project(&format!("import-beside-{round}"))?;
        let (ms, times) = import_with_other_calls(bench, round, &project, client, &file)?;
        beside.push(ms);
        calls.extend(times);
    }
    let ratio = Sample::of(&stats::ratios(&alone, &plain));
    let what = "import of 100,000 tasks, 200,000 dependencies";
    let others = format!(
        "of {} calls in a loop: p50 {:.2} ms, p99 {:.2} ms; the import then took {:.0} ms",
        calls.len(),
        stats::percentile(&calls, 0.5),
        stats::percentile(&calls, 0.99),
        Sample::of(&beside).median
    );
    Ok(vec![
        Row::new(what, Unit::Milliseconds, Sample::of(&alone))
            .peer("plain SQLite, the same rows", Sample::of(&plain), ratio)
            .target(Target::AtMost(8_000.0)),
        Row::new("cycle check of the same", Unit::Milliseconds, Sample::of(&cycles)).target(Target::AtMost(200.0)),
        // No call of any round may take longer: a median would hide the slow one.
        Row::new("slowest call of another process meanwhile", Unit::Milliseconds, Sample::once(stats::percentile(&calls, 1.0)))
            .beside(others)
            .target(Target::AtMost(100.0)),
    ])
}

/// The dependencies of a task: two earlier tasks, anywhere.
fn dependencies(number: usize) -> Vec<usize> {
    let somewhere = |salt: usize| (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(salt * 0x517c_c1b7) >> 20;
    let mut on: Vec<usize> = match number {
        0 => Vec::new(),
        // A few tasks have three, to make up for the first two.
        _ if number % (TASKS / 3) == TASKS / 3 - 1 => (0..3).map(|salt| somewhere(salt) % number).collect(),
        _ => (0..2).map(|salt| somewhere(salt) % number).collect(),
    };
    on.sort_unstable();
    on.dedup();
    on
}

fn write_file(bench: &Bench) -> Result<PathBuf> {
    let path = bench.place("import-file")?.join("backlog.jsonl");
    let mut out = BufWriter::new(File::create(&path)?);
    for number in 0..TASKS {
        let after: Vec<String> = dependencies(number).iter().map(|on| format!("k{on}")).collect();
        let title = format!("Task {number} of a backlog");
        let line =
            json!({ "key": format!("k{number}"), "title": title, "run": "make check", "labels": ["bench"], "dependsOn": after });
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    Ok(path)
}

/// Milliseconds from the start of the command to its exit.
fn import(project: &Project, file: &Path) -> Result<f64> {
    let file = file.to_str().ok_or("an odd path")?;
    let ms = program::start_to_exit(&mut program::command(project, &["tasks", "import", file])?)?;
    let counts = project.reader()?.view().counts()?.by_status;
    if counts.values().sum::<u64>() != TASKS as u64 {
        return Err(format!("{TASKS} tasks should be there, but there are {counts:?}").into());
    }
    Ok(ms)
}

/// The same while another process acquires and releases a lock. Returns the durations of its calls too, in
/// milliseconds.
fn import_with_other_calls(
    bench: &Bench,
    round: usize,
    project: &Project,
    client: Client,
    file: &Path,
) -> Result<(f64, Vec<f64>)> {
    drop(client);
    let over = bench.dir().join(format!("import-over-{round}"));
    let dir = project.root().display().to_string();
    let mut group = ProcessGroup::gather("pairs-until", [vec![dir, "db".into(), over.display().to_string()]])?;
    group.go(Duration::from_secs(60))?;
    let ms = import(project, file)?;
    File::create(&over)?;
    let calls = group.reports()?.concat();
    Ok((ms, calls.iter().flatten().map(|nanos| *nanos as f64 / 1e6).collect()))
}

fn cycle_check_ms() -> f64 {
    // Numbered backwards, so that the path from the first task is long.
    let backwards = |on: usize| u32::try_from(TASKS - 1 - on).ok();
    let graph: Vec<Vec<u32>> =
        (0..TASKS).rev().map(|number| dependencies(number).into_iter().filter_map(backwards).collect()).collect();
    let start = clock::now();
    let found = std::hint::black_box(dependencies::cycle(std::hint::black_box(&graph)));
    let ms = (clock::now() - start) as f64 / 1e6;
    debug_assert!(found.is_none(), "tasks depend on earlier ones only");
    ms
}

/// Plain SQLite: a row for each task, each event and each dependency, a minimum of indexes, and the same number of
/// commits.
fn insert(dir: &Path) -> Result<f64> {
    let mut connection = Connection::open(dir.join("plain.db"))?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch(
        "CREATE TABLE tasks (id TEXT PRIMARY KEY, title TEXT, lane TEXT, position INTEGER, unmet INTEGER, spec TEXT) STRICT;
         CREATE INDEX ready ON tasks (lane, position) WHERE unmet = 0;
         CREATE TABLE edges (task TEXT, on_task TEXT, PRIMARY KEY (task, on_task)) STRICT, WITHOUT ROWID;
         CREATE INDEX back ON edges (on_task, task);
         CREATE TABLE events (seq INTEGER PRIMARY KEY, data TEXT) STRICT;",
    )?;
    let start = clock::now();
    let numbers: Vec<usize> = (0..TASKS).collect();
    for chunk in numbers.chunks(CHUNK) {
        let transaction = connection.transaction()?;
        for number in chunk {
            let (id, on) = (format!("t-{number:012}"), dependencies(*number));
            let spec =
                json!({ "title": format!("Task {number} of a backlog"), "work": { "run": "make check" }, "labels": ["bench"] });
            let (position, unmet, spec) = (i64::try_from(*number)?, i64::try_from(on.len())?, spec.to_string());
            transaction.prepare_cached("INSERT INTO tasks VALUES (?1, ?2, 'lane', ?3, ?4, ?5)")?.execute((
                &id,
                format!("Task {number} of a backlog"),
                position,
                unmet,
                &spec,
            ))?;
            transaction.prepare_cached("INSERT INTO events VALUES (?1, ?2)")?.execute((position, &spec))?;
            for on in on {
                transaction.prepare_cached("INSERT INTO edges VALUES (?1, ?2)")?.execute((&id, format!("t-{on:012}")))?;
            }
        }
        transaction.commit()?;
    }
    Ok((clock::now() - start) as f64 / 1e6)
}
