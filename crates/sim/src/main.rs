//! Runs seeds: one with its whole story, or many with a summary.
#![expect(clippy::print_stdout, reason = "this is the command line of the simulator, and printing is what it is for")]
#![expect(clippy::disallowed_methods, reason = "how fast it runs is told in real time; no history depends on it")]

use std::cell::Cell;
use std::io::Write as _;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use banksman_sim::{Broken, Options, Tally, Violation, run, run_twice};
use clap::Parser;

/// Lives through histories of many processes, with faults, and checks each of them.
#[derive(Debug, Parser)]
struct Args {
    /// Replay one seed and tell everything that happens
    #[arg(long, conflicts_with_all = ["seeds", "count", "from"])]
    seed: Option<u64>,
    /// Run the seeds of this range, the last one excluded
    #[arg(long, value_name = "A..B", value_parser = range, conflicts_with_all = ["count", "from"])]
    seeds: Option<Range<u64>>,
    /// Run this many seeds
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    count: u64,
    /// The first of them
    #[arg(long, value_name = "A", default_value_t = 0)]
    from: u64,
    /// Break the store on purpose, to see a checker fail
    #[arg(long, value_name = "NAME", value_parser = broken)]
    broken: Option<Broken>,
    /// How many steps with faults; the seed chooses if nothing is said
    #[arg(long)]
    steps: Option<usize>,
}

/// One history in so many is lived through twice, to see whether it is the same.
const TWICE: u64 = 16;

thread_local! {
    /// What this thread is at, for the last words of a panic.
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

fn main() -> ExitCode {
    let args = Args::parse();
    let before = std::panic::take_hook();
    let broken = args.broken;
    std::panic::set_hook(Box::new(move |info| {
        before(info);
        if let Some(seed) = SEED.get() {
            println!("\nseed {seed} panicked; replay it with: {}", replay(seed, broken));
        }
    }));
    let options = Options { broken: args.broken, only: None, steps: args.steps };
    match args.seed {
        Some(seed) => tell(seed, options),
        None => run_many(args.seeds.unwrap_or(args.from..args.from.saturating_add(args.count)), options),
    }
}

/// Replays one history with all its lines.
fn tell(seed: u64, options: Options) -> ExitCode {
    SEED.set(Some(seed));
    let report = run(seed, options, Some(&mut |line| println!("{line}")));
    println!("\nseed {seed}, trace {:016x}", report.hash);
    summary(&report.tally);
    match report.violation {
        None => ExitCode::SUCCESS,
        Some(violation) => blame(seed, options, &violation),
    }
}

fn run_many(seeds: Range<u64>, options: Options) -> ExitCode {
    let start = Instant::now();
    let total = seeds.end.saturating_sub(seeds.start);
    let (next, done, stop) = (AtomicU64::new(seeds.start), AtomicU64::new(0), AtomicBool::new(false));
    let tally = Mutex::new(Tally::default());
    let found: Mutex<Option<(u64, Violation)>> = Mutex::new(None);
    let shown = Mutex::new(Instant::now());
    let work = || {
        let mut own = Tally::default();
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            SEED.set(Some(seed));
            let report = if seed % TWICE == 0 { run_twice(seed, options) } else { run(seed, options, None) };
            own.add(&report.tally);
            if let Some(violation) = report.violation {
                stop.store(true, Ordering::Relaxed);
                let mut found = found.lock().expect("no thread panics while it holds this");
                if found.as_ref().is_none_or(|(other, _)| seed < *other) {
                    *found = Some((seed, violation));
                }
            }
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            progress(&shown, done, total, start);
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
    match found.into_inner().expect("no thread panics while it holds this") {
        None => ExitCode::SUCCESS,
        Some((seed, violation)) => blame(seed, options, &violation),
    }
}

fn progress(shown: &Mutex<Instant>, done: u64, total: u64, start: Instant) {
    if let Ok(mut shown) = shown.try_lock()
        && shown.elapsed() > Duration::from_millis(500)
    {
        *shown = Instant::now();
        print!("\r{done} of {total} seeds, {:.0} seeds/s ", rate(done, start.elapsed().as_secs_f64()));
        // A progress line that cannot be shown is not missed.
        std::io::stdout().flush().ok();
    }
}

fn summary(tally: &Tally) {
    for (what, times) in tally.iter() {
        println!("{times:>12} {what}");
    }
}

fn blame(seed: u64, options: Options, violation: &Violation) -> ExitCode {
    println!("\nseed {seed}: {violation}\nreplay it with: {}", replay(seed, options.broken));
    ExitCode::FAILURE
}

fn replay(seed: u64, broken: Option<Broken>) -> String {
    let broken = broken.map_or_else(String::new, |broken| format!(" --broken {}", broken.name()));
    format!("cargo run -p banksman-sim -- --seed {seed}{broken}")
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

fn broken(text: &str) -> Result<Broken, String> {
    let names: Vec<&str> = Broken::ALL.iter().map(|broken| broken.name()).collect();
    let found = Broken::ALL.into_iter().find(|broken| broken.name() == text);
    found.ok_or_else(|| format!("there is no {text:?}; there are {}", names.join(", ")))
}
