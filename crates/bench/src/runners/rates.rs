//! Tasks that take no time: the rate of runners, for many runners, waiting tasks and locks.

use banksman_core::Name;
use banksman_core::task::{Need, Spec};

use super::{Database, SLOTS, Site, fleet, on_both};
use crate::bench::{Bench, Result};
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};
use crate::tasks;

const TASKS: usize = 3_000;
const RUNNERS: usize = 16;
const ROUNDS: usize = 3;

/// The backlog of a single runner, and the number of its tasks that are timed.
const MANY: usize = 20_000;
const FEW: usize = 300;
const FEW_LOCKS: usize = 100;

pub(crate) fn runners(bench: &Bench) -> Result<Vec<Row>> {
    on_both(bench, |bench, database| {
        let (mut one, mut all) = (Vec::new(), Vec::new());
        for round in 0..bench.rounds(ROUNDS) {
            one.push(rate(bench, database, round, 1)?);
            all.push(rate(bench, database, round, RUNNERS)?);
        }
        let name = database.name();
        let single = Row::new(format!("{name}: 1 runner, `true`"), Unit::TasksPerSecond, Sample::of(&one));
        let single = match database {
            Database::Sqlite => single,
            Database::Postgres(_) => single.target(Target::AtLeast(350.0)),
        };
        let ratio = Sample::of(&stats::ratios(&all, &one));
        let many = Row::new(format!("{name}: {RUNNERS} runners, `true`"), Unit::TasksPerSecond, Sample::of(&all));
        Ok(vec![single, many.peer("1 runner", Sample::of(&one), ratio).target(Target::RatioAtLeast(0.9))])
    })
}

/// Tasks per second, from the first start to the last end.
fn rate(bench: &Bench, database: &Database, round: usize, runners: usize) -> Result<f64> {
    let site = database.site(bench, &format!("true-{runners}-{round}"), RUNNERS * SLOTS)?;
    tasks::fill(&site.project, vec![tasks::command("true")?; TASKS])?;
    let (seconds, _) = fleet::finish(&site, runners, SLOTS)?;
    tasks::check_completed(&site.project, TASKS)?;
    Ok(TASKS as f64 / seconds)
}

pub(crate) fn waiting(bench: &Bench) -> Result<Vec<Row>> {
    on_both(bench, |bench, database| {
        let plain = |_| tasks::command("true");
        let row = beside_many(bench, database, "waiting", FEW, plain)?;
        Ok(vec![row.target(Target::RatioAtLeast(0.9))])
    })
}

pub(crate) fn locks(bench: &Bench) -> Result<Vec<Row>> {
    on_both(bench, |bench, database| {
        let locked =
            |number| Ok(Spec { needs: vec![Need::Lock(Name::new(&format!("lock-{number}"))?)], ..tasks::command("true")? });
        let row = beside_many(bench, database, "with a lock of its own", FEW_LOCKS, locked)?;
        Ok(vec![row.target(Target::RatioAtLeast(0.8))])
    })
}

/// One runner with many tasks and one with few, alternating.
fn beside_many(bench: &Bench, database: &Database, what: &str, few: usize, spec: impl Fn(usize) -> Result<Spec>) -> Result<Row> {
    let place = what.replace(' ', "-");
    let fill = |name: &str, count: usize| -> Result<Site> {
        let site = database.site(bench, name, SLOTS)?;
        tasks::fill(&site.project, (0..count).map(&spec).collect::<Result<_>>()?)?;
        Ok(site)
    };
    let large = fill(&format!("{place}-many"), MANY)?;
    let (mut slow, mut fast) = (Vec::new(), Vec::new());
    for round in 0..bench.rounds(2 * ROUNDS + 1) {
        let small = fill(&format!("{place}-{round}"), few)?;
        fast.push(few as f64 / fleet::first(&small, 1, few)?);
        slow.push(few as f64 / fleet::first(&large, 1, few)?);
    }
    let what = format!("{}: 1 runner, 20,000 tasks {what}", database.name());
    let ratio = Sample::of(&stats::ratios(&slow, &fast));
    Ok(Row::new(what, Unit::TasksPerSecond, Sample::of(&slow)).peer(&format!("{few} tasks"), Sample::of(&fast), ratio))
}
