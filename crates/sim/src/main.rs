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

use banksman_sim::backlog::{self, Mutation};
use banksman_sim::claims::{self, ClaimMutation};
use banksman_sim::queues::{self, QueueMutation};
use banksman_sim::{Broken, Listener, Options, Report, Tally, Violation, run, run_twice};
use clap::{Parser, ValueEnum};

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
    /// What to live through: locks and semaphores, whole backlogs, queues, claims, or one after the other
    #[arg(long, value_name = "NAME", default_value = "all")]
    world: Which,
    /// Break something on purpose, to see a checker fail
    #[arg(long, value_name = "NAME", value_parser = broken)]
    broken: Option<Fault>,
    /// How many steps with faults; the seed chooses if nothing is said
    #[arg(long)]
    steps: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    Locks,
    Backlog,
    Queues,
    Claims,
    #[value(alias = "both")]
    All,
}

/// A fault, which belongs to one of the worlds.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Locks(Broken),
    Backlog(Mutation),
    Queues(QueueMutation),
    Claims(ClaimMutation),
}

/// A world and how to live in it.
#[derive(Debug, Clone, Copy)]
enum World {
    Locks(Options<Broken>),
    Backlog(Options<Mutation>),
    Queues(Options<QueueMutation>),
    Claims(Options<ClaimMutation>),
}

/// One history in so many is lived through twice, to see whether it is the same.
const TWICE: u64 = 16;

thread_local! {
    /// What this thread is at, for the last words of a panic.
    static SEED: Cell<Option<(World, u64)>> = const { Cell::new(None) };
}

impl World {
    fn live(self, seed: u64, listener: Option<Listener<'_>>) -> Report {
        SEED.set(Some((self, seed)));
        match self {
            World::Locks(options) => run(seed, options, listener),
            World::Backlog(options) => backlog::run(seed, options, listener),
            World::Queues(options) => queues::run(seed, options, listener),
            World::Claims(options) => claims::run(seed, options, listener),
        }
    }

    fn live_twice(self, seed: u64) -> Report {
        SEED.set(Some((self, seed)));
        match self {
            World::Locks(options) => run_twice(seed, options),
            World::Backlog(options) => backlog::run_twice(seed, options),
            World::Queues(options) => queues::run_twice(seed, options),
            World::Claims(options) => claims::run_twice(seed, options),
        }
    }

    fn name(self) -> &'static str {
        match self {
            World::Locks(_) => "locks",
            World::Backlog(_) => "backlog",
            World::Queues(_) => "queues",
            World::Claims(_) => "claims",
        }
    }

    fn broken(self) -> Option<&'static str> {
        match self {
            World::Locks(options) => options.broken.map(Broken::name),
            World::Backlog(options) => options.broken.map(Mutation::name),
            World::Queues(options) => options.broken.map(QueueMutation::name),
            World::Claims(options) => options.broken.map(ClaimMutation::name),
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        before(info);
        if let Some((world, seed)) = SEED.get() {
            println!("\nseed {seed} panicked; replay it with: {}", replay(world, seed));
        }
    }));
    for world in worlds(&args) {
        println!("{}:", world.name());
        let seeds = args.seeds.clone().unwrap_or(args.from..args.from.saturating_add(args.count));
        let well = args.seed.map_or_else(|| run_many(world, seeds), |seed| tell(world, seed));
        if !well {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The worlds to live in: the one that is broken, if one is.
fn worlds(args: &Args) -> Vec<World> {
    let steps = args.steps;
    let locks = |broken| World::Locks(Options { broken, only: None, steps });
    let backlog = |broken| World::Backlog(Options { broken, only: None, steps });
    let queues = |broken| World::Queues(Options { broken, only: None, steps });
    let claims = |broken| World::Claims(Options { broken, only: None, steps });
    match (args.broken, args.world) {
        (Some(Fault::Locks(broken)), _) => vec![locks(Some(broken))],
        (Some(Fault::Backlog(mutation)), _) => vec![backlog(Some(mutation))],
        (Some(Fault::Queues(mutation)), _) => vec![queues(Some(mutation))],
        (Some(Fault::Claims(mutation)), _) => vec![claims(Some(mutation))],
        (None, Which::Locks) => vec![locks(None)],
        (None, Which::Backlog) => vec![backlog(None)],
        (None, Which::Queues) => vec![queues(None)],
        (None, Which::Claims) => vec![claims(None)],
        (None, Which::All) => vec![locks(None), backlog(None), queues(None), claims(None)],
    }
}

/// Replays one history with all its lines.
fn tell(world: World, seed: u64) -> bool {
    let report = world.live(seed, Some(&mut |line| println!("{line}")));
    println!("\nseed {seed}, trace {:016x}", report.hash);
    summary(&report.tally);
    report.violation.iter().for_each(|violation| blame(world, seed, violation));
    report.violation.is_none()
}

fn run_many(world: World, seeds: Range<u64>) -> bool {
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
            let report = if seed % TWICE == 0 { world.live_twice(seed) } else { world.live(seed, None) };
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
    let found = found.into_inner().expect("no thread panics while it holds this");
    found.iter().for_each(|(seed, violation)| blame(world, *seed, violation));
    found.is_none()
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

fn blame(world: World, seed: u64, violation: &Violation) {
    println!("\nseed {seed}: {violation}\nreplay it with: {}", replay(world, seed));
}

fn replay(world: World, seed: u64) -> String {
    let broken = world.broken().map_or_else(String::new, |broken| format!(" --broken {broken}"));
    format!("cargo run -p banksman-sim -- --world {} --seed {seed}{broken}", world.name())
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

fn broken(text: &str) -> Result<Fault, String> {
    let locks = Broken::ALL.into_iter().map(|broken| (broken.name(), Fault::Locks(broken)));
    let backlog = Mutation::ALL.into_iter().map(|mutation| (mutation.name(), Fault::Backlog(mutation)));
    let queues = QueueMutation::ALL.into_iter().map(|mutation| (mutation.name(), Fault::Queues(mutation)));
    let claims = ClaimMutation::ALL.into_iter().map(|mutation| (mutation.name(), Fault::Claims(mutation)));
    let all: Vec<(&str, Fault)> = locks.chain(backlog).chain(queues).chain(claims).collect();
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let found = all.iter().find(|(name, _)| *name == text).map(|(_, fault)| *fault);
    found.ok_or_else(|| format!("there is no {text:?}; there are {}", names.join(", ")))
}
