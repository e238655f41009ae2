//! Runs seeds: one with its full trace, or many with a summary.
#![expect(clippy::print_stdout, reason = "this is the command line of the simulator, and printing is what it is for")]
#![expect(clippy::disallowed_methods, reason = "how fast it runs is told in real time; no history depends on it")]

use std::cell::Cell;
use std::io::Write as _;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use banksman_core::Span;
use banksman_sim::{
    Mutation, Options, Projection, Report, Scenario, Tally, Violation, Workload, projection, run, run_twice, use_postgres,
};
use clap::{Parser, ValueEnum as _};

/// Runs histories of many processes, with faults, and checks each of them
#[derive(Debug, Parser)]
struct Args {
    /// Replay one seed and print everything that happens
    #[arg(long, conflicts_with_all = ["seeds", "count", "from"])]
    seed: Option<u64>,
    /// Run the seeds of this range, the last one excluded
    #[arg(long, value_name = "A..B", value_parser = range, conflicts_with_all = ["count", "from"])]
    seeds: Option<Range<u64>>,
    /// Run this many seeds
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    count: u64,
    /// Start with this seed
    #[arg(long, value_name = "A", default_value_t = 0)]
    from: u64,
    /// Choose who takes part [default: the seed chooses]
    #[arg(long, value_name = "NAME")]
    scenario: Option<Scenario>,
    /// Break something on purpose, to see a checker fail
    #[arg(long, value_name = "NAME")]
    mutation: Option<Mutation>,
    /// Run this many steps with faults [default: the seed chooses]
    #[arg(long)]
    steps: Option<usize>,
    /// Run on a PostgreSQL server instead of in memory
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Print the throughput of a project with many machines instead
    #[arg(long, conflicts_with_all = ["seed", "seeds", "count", "from", "scenario", "mutation", "steps", "store"])]
    projection: bool,
}

/// One of this many histories runs twice, to check that it is deterministic.
const TWICE: u64 = 16;

thread_local! {
    /// The history of this thread, for the message after a panic.
    static SEED: Cell<Option<(Options, u64)>> = const { Cell::new(None) };
}

fn main() -> ExitCode {
    let args = Args::parse();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        before(info);
        if let Some((options, seed)) = SEED.get() {
            println!("\nseed {seed} panicked; replay it with: {}", replay(options, seed));
        }
    }));
    if let Some(Err(error)) = args.store.as_deref().map(use_postgres) {
        println!("{error}");
        return ExitCode::FAILURE;
    }
    if args.projection {
        let printed = print_projection().inspect_err(|error| println!("{error}"));
        return if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let Args { scenario, mutation, steps, .. } = args;
    // A deliberately broken variant is for its own checker.
    let only = mutation.map(Mutation::checker);
    let options = Options { scenario, mutation, steps, only };
    let seeds = args.seeds.unwrap_or(args.from..args.from.saturating_add(args.count));
    let holds = args.seed.map_or_else(|| run_many(options, seeds), |seed| run_one(options, seed));
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the table of docs/internals/scaling.md.
fn print_projection() -> Result<(), String> {
    println!(
        "| mean duration | machines | tasks per s | slots busy | commits per task | project busy | gap, median | gap, 99 % |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (seconds, ms) in [("0.1", 100), ("1", 1_000), ("10", 10_000)] {
        for machines in [1, 4, 16, 32, 64, 100] {
            let Projection { tasks_per_second, slots_busy, commits_per_task, project_busy, gaps: [median, high] } =
                projection(Workload { machines, duration: Span::from_ms(ms), tasks: 4_000 }, 0)?;
            let [slots_busy, project_busy] = [slots_busy, project_busy].map(|share| share * 100.0);
            println!(
                "| {seconds} s | {machines} | {tasks_per_second:.1} | {slots_busy:.1} % | {commits_per_task:.2} | {project_busy:.0} % | \
                 {median:.1} ms | {high:.1} ms |"
            );
        }
    }
    Ok(())
}

/// Replays one history with all its lines.
fn run_one(options: Options, seed: u64) -> bool {
    SEED.set(Some((options, seed)));
    let report = run(seed, options, Some(&mut |line| println!("{line}")));
    println!("\nseed {seed}, trace {:016x}", report.hash);
    summary(&report.tally);
    report.violation.iter().for_each(|violation| blame(options, seed, violation));
    report.violation.is_none()
}

fn run_and_check(options: Options, seed: u64) -> Report {
    SEED.set(Some((options, seed)));
    if seed.is_multiple_of(TWICE) { run_twice(seed, options) } else { run(seed, options, None) }
}

fn run_many(options: Options, seeds: Range<u64>) -> bool {
    let start = Instant::now();
    let total = seeds.end.saturating_sub(seeds.start);
    let (next, done, stop) = (AtomicU64::new(seeds.start), AtomicU64::new(0), AtomicBool::new(false));
    let tally = Mutex::new(Tally::default());
    let found: Mutex<Option<(u64, Violation)>> = Mutex::new(None);
    let printed_at = Mutex::new(Instant::now());
    let work = || {
        let mut own = Tally::default();
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            let report = run_and_check(options, seed);
            own.add(&report.tally);
            if let Some(violation) = report.violation {
                stop.store(true, Ordering::Relaxed);
                let mut found = found.lock().expect("no thread panics while it holds this");
                if found.as_ref().is_none_or(|(other, _)| seed < *other) {
                    *found = Some((seed, violation));
                }
            }
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            progress(&printed_at, done, total, start);
        }
        tally.lock().expect("no thread panics while it holds this").add(&own);
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let (done, secs) = (done.into_inner(), start.elapsed().as_secs_f64());
    println!("\r{done} seeds in {secs:.1} s, {:.0} seeds/s on {threads} threads", rate(done, secs));
    summary(&tally.into_inner().expect("no thread panics while it holds this"));
    let found = found.into_inner().expect("no thread panics while it holds this");
    found.iter().for_each(|(seed, violation)| blame(options, *seed, violation));
    found.is_none()
}

fn progress(printed_at: &Mutex<Instant>, done: u64, total: u64, start: Instant) {
    if let Ok(mut printed_at) = printed_at.try_lock()
        && printed_at.elapsed() > Duration::from_millis(500)
    {
        *printed_at = Instant::now();
        print!("\r{done} of {total} seeds, {:.0} seeds/s ", rate(done, start.elapsed().as_secs_f64()));
        // A failure to print progress is ignored.
        std::io::stdout().flush().ok();
    }
}

fn summary(tally: &Tally) {
    for (what, times) in tally.iter() {
        println!("{times:>12} {what}");
    }
}

fn blame(options: Options, seed: u64, violation: &Violation) {
    println!("\nseed {seed}: {violation}\nreplay it with: {}", replay(options, seed));
}

fn replay(options: Options, seed: u64) -> String {
    let scenario = options.scenario.and_then(|scenario| scenario.to_possible_value());
    let scenario = scenario.map_or_else(String::new, |scenario| format!(" --scenario {}", scenario.get_name()));
    let mutation = options.mutation.map_or_else(String::new, |mutation| format!(" --mutation {}", mutation.name()));
    format!("cargo run -p banksman-sim -- --seed {seed}{scenario}{mutation}")
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people needs three digits")]
fn rate(done: u64, secs: f64) -> f64 {
    done as f64 / secs.max(0.001)
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("{text:?} is not a range like 100..200");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    Ok(from.parse().map_err(|_| wrong())?..to.parse().map_err(|_| wrong())?)
}
