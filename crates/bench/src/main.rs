//! Measures what `docs/performance.md` states: each figure next to a raw limit or a peer of the same run.
//!
//! `cargo run --release -p banksman-bench -- [--only NAME] [--quick] [--json]`. All files are in a temporary directory
//! below `target/`, on a real disk. Every loop has a time limit.
//!
//! * [`single`], [`threads`], [`processes`], [`handoff`], [`listing`], [`steps`], [`postgres`]: locks, one file per figure.
//! * [`backlog`], [`starts`], [`restarts`], [`runner_start`], [`claims`], [`resting`], [`memory`], [`compaction`],
//!   [`import`]: tasks and runners, likewise. [`status`], [`commands`], [`screen`]: commands that people read.
//! * [`agents`]: the output of agent programs, [`profiles`]: their runs. [`messages`]: the bus, [`sends`]: messages to
//!   live sessions. [`landing`]: merge queues, [`worktrees`]. [`items`]: queues, [`phases`]: pipelines, and
//!   [`runbooks`], likewise.
//! * [`runners`]: many runners in one project, on both databases; `--only runners` takes the group, `--only runners.rate`
//!   a part.
//! * [`tasks`], [`program`], [`fifo`]: projects full of tasks, the binary, and signals of its commands.
//! * [`process_group`] and [`worker`]: this program again, as many processes that start together.
//! * [`plain`], [`peers`], [`queues`], [`machine`], [`proc`]: what the figures are compared with.
//! * [`report`], [`stats`]: rows, and the arithmetic in them.

mod agents;
mod backlog;
mod bench;
mod claims;
mod clock;
mod commands;
mod compaction;
mod fifo;
mod handoff;
mod held;
mod import;
mod items;
mod landing;
mod listing;
mod machine;
mod memory;
mod messages;
mod peers;
mod phases;
mod plain;
mod postgres;
mod proc;
mod process_group;
mod processes;
mod profiles;
mod program;
mod queues;
mod report;
mod restarts;
mod resting;
mod runbooks;
mod runner_start;
mod runners;
mod screen;
mod sends;
mod single;
mod starts;
mod stats;
mod status;
mod steps;
mod tasks;
mod threads;
mod worker;
mod worktrees;

use std::process::ExitCode;

use bench::{Bench, Result};
use report::{Report, Row};

/// A figure: its name on the command line, and its function.
type Figure = (&'static str, fn(&Bench) -> Result<Vec<Row>>);

const FIGURES: [Figure; 37] = [
    ("single", single::measure),
    ("threads", threads::measure),
    ("processes", processes::measure),
    ("handoff", handoff::measure),
    ("list", listing::measure),
    ("steps", steps::measure),
    ("postgres", postgres::measure),
    ("backlog", backlog::measure),
    ("starts", starts::measure),
    ("restarts", restarts::measure),
    ("runner_start", runner_start::measure),
    ("claims", claims::measure),
    ("idle", resting::measure),
    ("memory", memory::measure),
    ("status", status::measure),
    ("commands", commands::measure),
    ("screen", screen::measure),
    ("compaction", compaction::measure),
    ("import", import::measure),
    ("landing", landing::measure),
    ("worktrees", worktrees::measure),
    ("bus", messages::measure),
    ("queues", items::measure),
    ("pipelines", phases::measure),
    ("agents.output", agents::measure),
    ("agents.runs", profiles::measure),
    ("sends", sends::measure),
    ("runbooks", runbooks::measure),
    ("runners.sleep", runners::sleeping::measure),
    ("runners.rate", runners::rates::runners),
    ("runners.waiting", runners::rates::waiting),
    ("runners.locks", runners::rates::locks),
    ("runners.costs", runners::costs),
    ("runners.wakeups", runners::idle::wakeups),
    ("runners.idle", runners::idle::resting),
    ("runners.dependents", runners::interference::dependents),
    ("runners.snapshot", runners::interference::snapshot),
];

#[derive(Default)]
struct Options {
    json: bool,
    quick: bool,
    only: Option<String>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.split_first() {
        Some((first, rest)) if first == worker::MARK => worker::run(rest),
        _ => options(&args).and_then(|options| run(&options)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::complain(&*error);
            ExitCode::FAILURE
        }
    }
}

fn options(args: &[String]) -> Result<Options> {
    let names = FIGURES.map(|(name, _)| name).join(", ");
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => options.json = true,
            "--quick" => options.quick = true,
            "--only" => {
                let name = args.next().filter(|name| FIGURES.iter().any(|(known, _)| is_named(known, name)));
                options.only = Some(name.ok_or_else(|| format!("--only takes one of: {names}"))?.clone());
            }
            _ => return Err(format!("usage: banksman-bench [--json] [--quick] [--only NAME], NAME one of: {names}").into()),
        }
    }
    Ok(options)
}

/// Whether a figure has this name, or is in the group of this name.
fn is_named(figure: &str, name: &str) -> bool {
    figure == name || figure.split_once('.').is_some_and(|(group, _)| group == name)
}

fn run(options: &Options) -> Result<()> {
    let bench = Bench::open(options.quick)?;
    let mut report = Report { header: machine::header(&bench)?, rows: Vec::new() };
    for (name, measure) in FIGURES {
        if options.only.as_ref().is_none_or(|only| is_named(name, only)) {
            report::announce(name);
            report.rows.extend(measure(&bench)?);
        }
    }
    report.header.push(machine::flush_again(&bench)?);
    if options.json {
        report.print_json()
    } else {
        report.print_table()
    }
    Ok(())
}
