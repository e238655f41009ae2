//! Idle runners: their cost, and how many of them one task wakes.

use std::time::{Duration, Instant};

use banksman_runtime::Client;
use banksman_store::Key;

use super::fleet::Fleet;
use super::{Database, SLOTS, Site, on_both};
use crate::bench::{Bench, Result};
use crate::fifo::Fifo;
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};
use crate::{clock, proc, tasks};

const WOKEN: usize = 32;
const IDLE: usize = 100;

/// Number of runners that a server with `max_connections = 100` must serve.
const CONNECTED: usize = 80;

const TIMES: usize = 30;
const SPAN: Duration = Duration::from_secs(30);

/// Time limit for starting many runners.
const TIMEOUT: Duration = Duration::from_secs(60);

/// After this time all processes sleep.
const PAUSE: Duration = Duration::from_millis(150);

/// The command of a task: its shell runs it without another process.
const RING: &str = "echo >bell";

pub(crate) fn wakeups(bench: &Bench) -> Result<Vec<Row>> {
    on_both(bench, |bench, database| {
        let mut one = Scene::open(bench, database, 1)?;
        let mut many = Scene::open(bench, database, WOKEN)?;
        let (mut alone, mut beside, mut woken, mut first) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        // The first task of each runner takes longer. Idle runners are woken in turn.
        one.start()?;
        for _ in 0..WOKEN {
            first.push(many.start()?.0);
        }
        for _ in 0..bench.rounds(TIMES) {
            alone.push(one.start()?.0);
            let (ms, runners) = many.start()?;
            beside.push(ms);
            woken.push(runners as f64);
        }
        let median = |times: &[f64]| stats::percentile(times, 0.5);
        let (ours, theirs, first) = (median(&beside), median(&alone), median(&first));
        let name = database.name();
        Ok(vec![
            Row::new(
                format!("{name}: {WOKEN} idle runners, one task is added: runners that wake"),
                Unit::Count,
                Sample::of(&woken),
            )
            .target(Target::AtMost(1.0)),
            Row::new(format!("{name}: {WOKEN} idle runners, submit to running: p50"), Unit::Milliseconds, Sample::once(ours))
                .peer(
                    &format!("the first task of each: {first:.2} ms; 1 idle runner"),
                    Sample::once(theirs),
                    Sample::once(theirs / ours),
                )
                .target(Target::RatioAtLeast(0.9)),
        ])
    })
}

/// Idle runners, and a pipe on which their commands report.
struct Scene {
    client: Client,
    fleet: Fleet,
    bell: Fifo,
}

impl Scene {
    fn open(bench: &Bench, database: &Database, runners: usize) -> Result<Scene> {
        let site = database.site(bench, &format!("woken-{runners}"), runners * SLOTS)?;
        let bell = Fifo::make(&site.project.root().join("bell"))?;
        let fleet = start_idle(&site, runners)?;
        Ok(Scene { client: site.project.open()?, fleet, bell })
    }

    /// The time that a task takes to start, in milliseconds, and the number of runners that ran meanwhile.
    fn start(&mut self) -> Result<(f64, usize)> {
        std::thread::sleep(PAUSE);
        let before = self.switches()?;
        let spec = tasks::command(RING)?;
        let from = clock::now();
        tasks::submit(&self.client, spec, &[])?;
        let running = self.bell.wait()?;
        std::thread::sleep(PAUSE);
        let woken = self.switches()?.iter().zip(before).filter(|(after, before)| *after != before).count();
        Ok((running.saturating_sub(from) as f64 / 1e6, woken))
    }

    fn switches(&self) -> Result<Vec<u64>> {
        self.fleet.pids().map(|pid| Ok(proc::used(pid)?.1)).collect()
    }
}

pub(crate) fn resting(bench: &Bench) -> Result<Vec<Row>> {
    on_both(bench, |bench, database| {
        let name = database.name();
        let runners = database.pick(IDLE, CONNECTED);
        let site = database.site(bench, "idle", runners * SLOTS)?;
        let fleet = start_idle(&site, runners)?;
        let connections = match database {
            Database::Sqlite => None,
            Database::Postgres(_) => site.project.reader()?.view().server_usage()?.map(|usage| usage.connections),
        };
        let server = || match database {
            Database::Sqlite => Ok(0.0),
            Database::Postgres(server) => server.cpu_ms(),
        };
        let ran = || fleet.pids().map(|pid| Ok(proc::used(pid)?.0)).sum::<Result<u64>>();
        let span = bench.span(SPAN);
        let (before, of_server) = (ran()?, server()?);
        std::thread::sleep(span);
        let (after, server) = (ran()?, server()? - of_server);
        let share = |ms: f64| ms / span.as_secs_f64() / 10.0;
        let own = (after - before) as f64 / 1e6;
        // The server may have fewer connections than runners in the figure, so the result is scaled.
        let all = share(own + server) * IDLE as f64 / runners as f64;
        let what = format!("{name}: {IDLE} idle runners, share of a core");
        let mut rows = vec![
            Row::new(what, Unit::Percent, Sample::once(all))
                .beside(format!(
                    "{runners} runners: {:.2} %, server: {:.2} %, {:.0} s",
                    share(own),
                    share(server),
                    span.as_secs_f64()
                ))
                .target(Target::AtMost(database.pick(1.0, 3.0))),
        ];
        rows.extend(connections.map(|connections| {
            let what = format!("{name}: connections of {runners} idle runners");
            // One more connection is this program's.
            Row::new(what, Unit::Count, Sample::once(f64::from(connections) - 1.0)).target(Target::AtMost(97.0))
        }));
        Ok(rows)
    })
}

/// Starts this many runners, and waits until all are idle.
fn start_idle(site: &Site, runners: usize) -> Result<Fleet> {
    let fleet = Fleet::start(site, runners, SLOTS, &[])?;
    let mut reader = site.project.reader()?;
    let until = Instant::now() + TIMEOUT;
    let keys = [Key::Runners].into();
    while reader.view().load(&keys)?.backlog.runners.values().filter(|runner| runner.idle.is_some()).count() < runners {
        if Instant::now() > until {
            return Err(format!("{runners} runners did not come to rest").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(4 * PAUSE);
    Ok(fleet)
}
