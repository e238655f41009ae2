//! The cost of reporting one run and claiming the next, in a small backlog and in a large one: real decisions over the
//! real store, without sessions.

use banksman::{Client, Guard};
use banksman_adapters::{host, ids};
use banksman_core::backlog::{RunEndRecord, Runner};
use banksman_core::resource::grant::Address;
use banksman_core::task::RunEnd;
use banksman_core::{Lease, RunId, RunnerId, Span, Stamp, Wall};
use banksman_engine::{Dispatcher, Options, RunnerAction, RunnerInput};
use banksman_runtime::Project;
use banksman_store::Store;

use crate::bench::{Bench, Result};
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};
use crate::{clock, tasks};

const FEW: usize = 1_000;
const MANY: usize = 100_000;

/// Rounds are short, because the two projects alternate; all cycles fit into the half of [`FEW`] that does not wait.
const CYCLES: usize = 20;
const ROUNDS: usize = 21;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let (small, large) = (prepare(bench, "claims-few", FEW)?, prepare(bench, "claims-many", MANY)?);
    let (held_small, held_large) = (small.hold()?, large.hold()?);
    let (mut small, mut large) = (Site::new(&small.0)?, Site::new(&large.0)?);
    let (mut few, mut many) = (Vec::new(), Vec::new());
    // The first cycles fill the caches.
    small.cycles(CYCLES)?;
    large.cycles(CYCLES)?;
    for _ in 0..bench.rounds(ROUNDS) {
        few.extend(small.cycles(CYCLES)?);
        many.extend(large.cycles(CYCLES)?);
    }
    for site in [&small, &large] {
        tasks::check_completed(site.project, few.len())?;
    }
    drop((held_small, held_large));
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    let p50 = |times: &[f64]| stats::percentile(times, 0.5);
    let row = |what: &str, times: &[f64]| {
        let row = Row::new(format!("report and claim, {what} tasks: p50"), Unit::Milliseconds, Sample::once(p50(times)));
        row.beside(format!("mean {:.2} ms; half of the tasks wait for one lock", mean(times)))
    };
    Ok(vec![
        row("1,000", &few),
        row("100,000", &many),
        Row::new("report and claim, 100,000 / 1,000", Unit::Ratio, Sample::once(p50(&many) / p50(&few)))
            .beside(format!("of the means: {:.2}", mean(&many) / mean(&few)))
            .target(Target::AtMost(1.5)),
    ])
}

struct Prepared(Project, Client);

fn prepare(bench: &Bench, name: &str, count: usize) -> Result<Prepared> {
    let project = tasks::project(bench, name, 1)?;
    tasks::fill(&project, tasks::half_waiting(count)?)?;
    let client = Bench::library(&project)?;
    Ok(Prepared(project, client))
}

impl Prepared {
    fn hold(&self) -> Result<Guard> {
        Ok(self.1.lock(tasks::LOCK).try_acquire()?)
    }
}

/// A runner whose runs end as soon as they begin.
struct Site<'a> {
    project: &'a Project,
    store: Store,
    dispatcher: Dispatcher,
    now: Lease,
}

impl Site<'_> {
    fn new(project: &Project) -> Result<Site<'_>> {
        let (id, process) = (RunnerId::new(&ids::short("n"))?, project.host().current()?);
        let started = Stamp { lease: Lease(0), wall: Wall(host::wall_ms()) };
        let runner = Runner { max_runs: Some(1), ..Runner::new(id, process, Address("nobody".into()), started) };
        let limits = project.config().limits();
        let options = Options { max_runs: Some(1), limits, poll: Span::from_secs(5), ..Options::new(project.config().watch()) };
        Ok(Site { project, store: project.open_store()?, dispatcher: Dispatcher::new(runner, options), now: Lease(0) })
    }

    /// The milliseconds between consecutive starts of runs, this many times.
    fn cycles(&mut self, count: usize) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(count);
        let mut before = clock::now();
        while times.len() < count {
            if self.step()? {
                let now = clock::now();
                times.push((now - before) as f64 / 1e6);
                before = now;
            }
        }
        Ok(times)
    }

    /// Carries out the dispatcher's next action. Returns whether a run has begun, which then ends at once.
    fn step(&mut self) -> Result<bool> {
        self.dispatcher.give_ids(|| RunId::new(&ids::short("r")).expect("a short id is valid"));
        match self.dispatcher.next(self.now) {
            RunnerAction::Load(keys) => {
                let snapshot = self.store.view().load(&keys)?;
                self.now = snapshot.lease;
                self.dispatcher.on(RunnerInput::Rows(Box::new(snapshot)), self.now);
            }
            RunnerAction::Probe(processes) => {
                let host = self.project.host();
                self.dispatcher.on(
                    RunnerInput::Probed(processes.into_iter().map(|process| (process.clone(), host.probe(&process))).collect()),
                    self.now,
                );
            }
            RunnerAction::Call(requests) => {
                let mut replies = Vec::new();
                for committed in self.store.batch(&requests) {
                    replies.extend(committed?.replies);
                }
                self.dispatcher.on(RunnerInput::Replies(replies), self.now);
                self.store.tidy(true)?;
            }
            RunnerAction::Spawn(work) => {
                let ended = RunEndRecord::new(RunEnd::Exited(0), Wall(host::wall_ms()), None);
                self.dispatcher.on(RunnerInput::Ended(work.run.id.clone(), ended), self.now);
                self.dispatcher.events();
                return Ok(true);
            }
            RunnerAction::Acknowledge(_) => {}
            other => return Err(format!("there should be something to claim, but the next thing is {other:?}").into()),
        }
        Ok(false)
    }
}
