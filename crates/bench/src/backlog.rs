//! 1,000 tasks `true`, two at a time, each with a durable start and a durable end, next to programs that do less.

use crate::bench::{Bench, Result};
use crate::program::Cost;
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};
use crate::{program, queues, tasks};

const TASKS: usize = 1_000;
const ROUNDS: usize = 7;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let (mut runner_ms, mut session_ms, mut bare_ms) = (Vec::new(), Vec::new(), Vec::new());
    let each = |ms: f64| ms / TASKS as f64;
    for round in 0..bench.rounds(ROUNDS) {
        let cost = work_through(bench, round)?;
        ours.push(TASKS as f64 / cost.seconds);
        runner_ms.push(each(cost.own_ms));
        session_ms.push(each(cost.others_ms));
        let cost = queues::xargs(bench.dir(), TASKS)?;
        theirs.push(TASKS as f64 / cost.seconds);
        bare_ms.push(each(cost.own_ms + cost.others_ms));
    }
    let ratio = Sample::of(&stats::ratios(&ours, &theirs));
    let (ours, theirs) = (Sample::of(&ours), Sample::of(&theirs));
    let what = "1,000 tasks `true`, 2 slots";
    let sum: Vec<f64> = runner_ms.iter().zip(&session_ms).map(|(runner, session)| runner + session).collect();
    let bare = Sample::of(&bare_ms);
    let parts = format!(
        "runner {:.2} ms, keeper and sh {:.2} ms; xargs and true: {:.2} ms",
        Sample::of(&runner_ms).median,
        Sample::of(&session_ms).median,
        bare.median
    );
    let mut rows = vec![
        Row::new(what, Unit::TasksPerSecond, ours).beside("start and end durable").target(Target::AtLeast(300.0)),
        Row::new(format!("{what}, beside xargs"), Unit::TasksPerSecond, ours)
            .peer("xargs -P2, no record", theirs, ratio)
            .target(Target::RatioAtLeast(0.25)),
    ];
    for (name, rate) in [("task-spooler, not durable", queues::spooler(bench)?), ("pueue", queues::pueue(bench)?)] {
        let row = Row::new(format!("{what}, beside a peer"), Unit::TasksPerSecond, ours);
        rows.push(match rate {
            Some(rate) => row.peer(name, Sample::once(rate), Sample::once(ours.median / rate)),
            None => row.beside(format!("{name}: not installed")),
        });
    }
    rows.push(Row::new(format!("{what}: CPU of one task"), Unit::Milliseconds, Sample::of(&sum)).beside(parts));
    Ok(rows)
}

/// The cost of a runner and all its sessions, from its start to its exit.
fn work_through(bench: &Bench, round: usize) -> Result<Cost> {
    let project = tasks::project(bench, &format!("backlog-{round}"), 2)?;
    tasks::fill(&project, (0..TASKS).map(|_| tasks::command("true")).collect::<Result<_>>()?)?;
    let cost = program::timed(&mut program::run(&project, &["--until-idle", "--max-runs", "2"])?)?;
    tasks::check_completed(&project, TASKS)?;
    Ok(cost)
}
