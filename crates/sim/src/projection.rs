//! The projection of a project to many machines: how many tasks they do, and how long their slots wait for the project.
//!
//! Each machine has one runner: the real dispatcher, on the real engine and store, driven as `runtime/runner.rs` and
//! `runtime/writer.rs` do it on PostgreSQL. Only batches, round trips and wake-ups take (virtual) time. There are no faults.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use banksman_core::backlog::{RunEndRecord, Runner, Session, Terms};
use banksman_core::resource::grant::Address;
use banksman_core::task::{OnExhausted, RunEnd, Spec, Watch, Work as Command};
use banksman_core::{Lease, Limits, Liveness, ProcessId, RunId, RunnerId, Span, Stamp, TaskId, Wall};
use banksman_engine::{Dispatcher, Options, Reply, Request, RunOutcome, RunnerAction, RunnerInput, TaskRequest};
use banksman_store::Key;

use crate::ground::{Ground, history};

/// Microseconds of virtual time.
type Us = i64;

const SLOTS: usize = 4;
const ROUND_TRIP: Us = 500;
const WAKE_UP: Us = 500;
/// How long a batch holds the project: two round trips, the statements, and the flush.
const HOLD: Us = 2 * ROUND_TRIP + 1_000 + 100;
/// How long a runner that had to wait for the project locks it in a round trip of its own.
const POLITE: Us = 100_000;

#[derive(Debug, Clone, Copy)]
pub struct Workload {
    pub machines: usize,
    /// The mean duration of a task. Durations are distributed evenly between half of it and one and a half times as much.
    pub duration: Span,
    /// How many tasks end during the measurement, which begins when as many tasks have ended as there are slots.
    pub tasks: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Projection {
    pub tasks_per_second: f64,
    /// The share of the time in which a slot has a run.
    pub slots_busy: f64,
    pub commits_per_task: f64,
    /// The share of the time in which a batch holds the project.
    pub project_busy: f64,
    /// From the end of a run to the start of the next one in its slot, in milliseconds: median and 99th percentile.
    pub gaps: [f64; 2],
}

enum Event {
    Woken,
    SleepOver,
    SessionEnds(RunId),
    Rows(BTreeSet<Key>),
    Locks,
    Commits,
}

enum Doing {
    Acting,
    Sleeping(Us),
    Reading,
    /// The requests, and whether the project is locked in a round trip of its own.
    Calling(Vec<Request>, bool),
}

struct Machine {
    dispatcher: Dispatcher,
    doing: Doing,
    is_woken: bool,
    /// The runs that have ended, until the runner listens.
    ended: Vec<RunId>,
    /// When the free slots became free.
    free: VecDeque<Us>,
    /// When it last had to wait for the project.
    met: Us,
}

#[derive(Default)]
struct Measured {
    since: Us,
    finished: usize,
    commits: usize,
    held: Us,
    running: Us,
    gaps: Vec<Us>,
}

struct World<'g> {
    ground: &'g mut Ground,
    workload: Workload,
    now: Us,
    /// What happens to machines, and when; the number keeps the order of what happens at the same time.
    events: BTreeMap<(Us, u64), (usize, Event)>,
    machines: Vec<Machine>,
    /// The first of them holds the project, the others wait for it.
    queue: VecDeque<usize>,
    running: i64,
    count: u64,
    measured: Measured,
}

/// Measures a workload. The same seed gives the same result.
pub fn projection(workload: Workload, seed: u64) -> Result<Projection, String> {
    history(seed, 0x9105 << 16, |ground| {
        let (events, machines, queue, measured) = Default::default();
        World { ground, workload, now: 0, events, machines, queue, running: 0, count: 0, measured }.run()
    })
}

impl World<'_> {
    fn run(mut self) -> Result<Projection, String> {
        let Workload { machines, tasks, .. } = self.workload;
        let slots = machines * SLOTS;
        for number in 0..slots + tasks + slots {
            let spec = Spec { work: Some(Command::Run("true".into())), ..Spec::new("a task".parse().expect("a good title")) };
            let id = TaskId::new(&format!("t{number}")).expect("a good id");
            self.ground.call(TaskRequest::Add { id, spec: Box::new(spec), depends_on: Vec::new(), by: None })?;
        }
        (0..machines).for_each(|slot| self.add_machine(slot));
        for goal in [slots, tasks] {
            self.measured = Measured { since: self.now, ..Measured::default() };
            while self.measured.finished < goal {
                let ((at, _), (slot, event)) = self.events.pop_first().ok_or("all machines wait for ever")?;
                self.measured.running += (at - self.now) * self.running;
                self.measured.held += if self.queue.is_empty() { 0 } else { at - self.now };
                self.now = at;
                self.ground.clock.advance(at / 1_000 - self.ground.clock.now());
                self.happen(slot, event)?;
            }
        }
        Ok(self.results())
    }

    fn add_machine(&mut self, slot: usize) {
        let process = ProcessId { host: format!("m{slot}").into(), ..self.ground.newborn() };
        let id = RunnerId::new(&process.host).expect("a good id");
        // The defaults of the settings.
        let [ttl, poll, timeout] = [60, 5, 900].map(Span::from_secs);
        let (max_runs, limits) = (u32::try_from(SLOTS).ok(), Limits { runs: u32::MAX, ..Limits::NONE });
        let terms = Some(Terms { ttl, folder: "/project".into() });
        let row = Runner { max_runs, terms, ..Runner::new(id, process, Address(slot.to_string().into()), Stamp::default()) };
        let watch = Watch { timeout, max_recoveries: 3, on_exhausted: OnExhausted::Escalate };
        let options = Options { max_runs, limits, poll, lease: Some(ttl), ..Options::new(watch) };
        let (dispatcher, ended, free) = (Dispatcher::new(row, options), Vec::new(), VecDeque::new());
        self.machines.push(Machine { dispatcher, doing: Doing::Acting, is_woken: false, ended, free, met: -POLITE });
        self.after(0, slot, Event::SleepOver);
    }

    fn after(&mut self, span: Us, slot: usize, event: Event) {
        self.count += 1;
        self.events.insert((self.now + span, self.count), (slot, event));
    }

    fn input(&mut self, slot: usize, input: RunnerInput) {
        self.machines[slot].dispatcher.on(input, Lease(self.ground.clock.monotonic()));
    }

    fn happen(&mut self, slot: usize, event: Event) -> Result<(), String> {
        let machine = &mut self.machines[slot];
        match event {
            Event::Woken => machine.is_woken = true,
            Event::SleepOver => {}
            Event::SessionEnds(run) => {
                self.running -= 1;
                machine.ended.push(run);
                machine.free.push_back(self.now);
                self.amend(slot);
            }
            Event::Rows(keys) => {
                machine.doing = Doing::Acting;
                let rows = Box::new(self.ground.load(keys)?);
                self.input(slot, RunnerInput::Rows(rows));
            }
            Event::Locks => {
                self.queue.push_back(slot);
                if self.queue.len() == 1 {
                    self.after(HOLD, slot, Event::Commits);
                }
            }
            Event::Commits => self.commit(slot)?,
        }
        self.drive(slot)
    }

    /// Drives a runner until it waits for something.
    fn drive(&mut self, slot: usize) -> Result<(), String> {
        loop {
            let machine = &mut self.machines[slot];
            match machine.doing {
                Doing::Acting => self.act(slot)?,
                Doing::Sleeping(until) if until <= self.now || machine.is_woken || !machine.ended.is_empty() => {
                    machine.doing = Doing::Acting;
                    if std::mem::take(&mut machine.is_woken) {
                        self.input(slot, RunnerInput::Woken);
                    }
                    self.listen(slot);
                }
                Doing::Sleeping(_) | Doing::Reading | Doing::Calling(..) => return Ok(()),
            }
        }
    }

    fn act(&mut self, slot: usize) -> Result<(), String> {
        let (count, machine) = (&mut self.count, &mut self.machines[slot]);
        machine.dispatcher.give_ids(|| {
            *count += 1;
            RunId::new(&format!("r{count}")).expect("a good id")
        });
        match machine.dispatcher.next(Lease(self.ground.clock.monotonic())) {
            RunnerAction::Load(keys) => {
                machine.doing = Doing::Reading;
                self.after(ROUND_TRIP, slot, Event::Rows(keys));
            }
            RunnerAction::Probe(processes) => {
                let found = processes.into_iter().map(|process| (process, Liveness::Unknown)).collect();
                self.input(slot, RunnerInput::Probed(found));
            }
            RunnerAction::Call(requests) => {
                let has_just_met = self.now - machine.met < POLITE;
                machine.doing = Doing::Calling(requests, has_just_met);
                self.after(if has_just_met { ROUND_TRIP } else { 0 }, slot, Event::Locks);
                self.amend(slot);
            }
            RunnerAction::Spawn(work) => self.spawn(slot, work.run.id.clone()),
            // Rounded up, so that a deadline has passed when the runner wakes.
            RunnerAction::Sleep { at_most, .. } => {
                let span = (at_most.as_ms() + 1) * 1_000;
                machine.doing = Doing::Sleeping(self.now + span);
                self.after(span, slot, Event::SleepOver);
            }
            RunnerAction::Acknowledge(_) => {}
            other => return Err(format!("a runner wants {other:?}")),
        }
        Ok(())
    }

    fn spawn(&mut self, slot: usize, run: RunId) {
        let mean = self.workload.duration.as_ms() * 1_000;
        let since = self.machines[slot].free.pop_front();
        self.measured.gaps.extend(since.map(|since| self.now - since));
        // The first runs begin together, and must not end together.
        let least = if since.is_some() { mean / 2 } else { 0 };
        let takes = self.ground.random.between(least, least + mean);
        self.running += 1;
        self.after(takes, slot, Event::SessionEnds(run.clone()));
        self.input(slot, RunnerInput::Started(run, Session { keeper: 1, child: 2 }));
    }

    /// A runner receives the ends of its sessions.
    fn listen(&mut self, slot: usize) {
        for run in std::mem::take(&mut self.machines[slot].ended) {
            self.input(slot, RunnerInput::Ended(run, RunEndRecord::new(RunEnd::Exited(0), Wall(0), None)));
        }
    }

    /// A runner that waits for the project adds the ends of its sessions to its call.
    fn amend(&mut self, slot: usize) {
        let machine = &self.machines[slot];
        let is_open = matches!(machine.doing, Doing::Calling(_, true)) && self.queue.front() != Some(&slot);
        if is_open && machine.dispatcher.may_amend() {
            self.listen(slot);
            let Machine { dispatcher, doing: Doing::Calling(requests, _), .. } = &mut self.machines[slot] else { return };
            dispatcher.amend(requests);
        }
    }

    fn commit(&mut self, slot: usize) -> Result<(), String> {
        let doing = std::mem::replace(&mut self.machines[slot].doing, Doing::Acting);
        let Doing::Calling(requests, _) = doing else { unreachable!("only a call commits") };
        let committed = self.ground.store.batch(&requests).pop().expect("one batch").map_err(|error| error.to_string())?;
        let is_end = |reply: &&Reply| matches!(reply, Reply::Run(RunOutcome::Finished(..)));
        self.measured.finished += committed.replies.iter().filter(is_end).count();
        self.measured.commits += 1;
        for address in committed.wakes {
            self.after(WAKE_UP, address.0.parse().expect("the number of a machine"), Event::Woken);
        }
        self.input(slot, RunnerInput::Replies(committed.replies));
        self.queue.pop_front();
        if let Some(next) = self.queue.front().copied() {
            self.machines[next].met = self.now;
            self.after(HOLD, next, Event::Commits);
        }
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people need three digits")]
    fn results(self) -> Projection {
        let Measured { since, finished, commits, held, running, mut gaps } = self.measured;
        let (time, tasks) = ((self.now - since) as f64, finished as f64);
        gaps.sort_unstable();
        let gap = |share: usize| gaps.get(gaps.len() * share / 100).map_or(0.0, |gap| *gap as f64 / 1_000.0);
        Projection {
            tasks_per_second: tasks * 1e6 / time,
            slots_busy: running as f64 / time / (self.workload.machines * SLOTS) as f64,
            commits_per_task: commits as f64 / tasks,
            project_busy: held as f64 / time,
            gaps: [gap(50), gap(99)],
        }
    }
}
