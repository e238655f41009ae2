//! Tasks that only take time: their total duration compared with that of runners without any overhead.

use std::process::Command;

use super::{Database, SLOTS, fleet, on_both};
use crate::bench::{Bench, Result};
use crate::report::{Row, Target, Unit};
use crate::stats::Sample;
use crate::{program, tasks};

const TASKS: usize = 600;
const SECONDS: f64 = 0.5;

/// Number of commands that run without Banksman, to measure their own cost.
const BARE: usize = 60;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    on_both(bench, |bench, database| {
        let mut rows = round(bench, database, 16, database.pick(1.2, 1.4))?;
        rows.extend(round(bench, database, 32, database.pick(1.6, 1.9))?);
        Ok(rows)
    })
}

fn round(bench: &Bench, database: &Database, runners: usize, bound: f64) -> Result<Vec<Row>> {
    let slots = runners * SLOTS;
    let ideal = TASKS as f64 * SECONDS / slots as f64;
    let ((one, _), one_ms) = run(bench, database, 1, slots)?;
    let ((all, left), all_ms) = run(bench, database, runners, SLOTS)?;
    let name = database.name();
    let mut rows = vec![
        Row::new(
            format!("{name}: {runners} runners, 600 x `sleep 0.5`, against the ideal"),
            Unit::Ratio,
            Sample::once(all / ideal),
        )
        .beside(format!("{all:.2} s; one runner with {slots} slots: {:.2}", one / ideal))
        .target(Target::AtMost(bound)),
        Row::new(
            format!("{name}: {runners} runners with `--until-idle`: from the last end until all are gone"),
            Unit::Milliseconds,
            Sample::once(left),
        )
        .target(Target::AtMost(100.0)),
    ];
    // The PostgreSQL server's work is part of the total, and cannot be separated from that of the runners.
    if let (Database::Sqlite, 16) = (database, runners) {
        let loop_of = format!("i=0; while [ $i -lt {BARE} ]; do sh -c 'sleep 0.01'; i=$((i+1)); done");
        let ((), bare) = program::with_children(|| program::done(Command::new("sh").args(["-c", &loop_of])))?;
        let bare = bare * TASKS as f64 / BARE as f64;
        let (one_ms, all_ms) = (one_ms - bare, all_ms - bare);
        rows.push(
            Row::new(
                format!("{name}: CPU of {runners} runners and their keepers, against one with {slots} slots"),
                Unit::Ratio,
                Sample::once(all_ms / one_ms),
            )
            .beside(format!("{:.2} s / {:.2} s; the commands themselves: {:.2} s", all_ms / 1e3, one_ms / 1e3, bare / 1e3))
            .target(Target::AtMost(1.5)),
        );
    }
    Ok(rows)
}

/// The result of [`fleet::finish`], and the processor time of all processes in milliseconds.
fn run(bench: &Bench, database: &Database, runners: usize, slots: usize) -> Result<((f64, f64), f64)> {
    let site = database.site(bench, &format!("sleep-{runners}-{slots}"), runners * slots)?;
    let spec = tasks::command(&format!("sleep {SECONDS}"))?;
    tasks::fill(&site.project, vec![spec; TASKS])?;
    let measured = match database {
        Database::Sqlite => program::with_children(|| fleet::finish(&site, runners, slots))?,
        Database::Postgres(_) => (fleet::finish(&site, runners, slots)?, f64::NAN),
    };
    tasks::check_completed(&site.project, TASKS)?;
    Ok(measured)
}
