//! The database cost of a task: transactions, rows and wakeups, counted at the connections of many runners without
//! sessions.
//!
//! The decisions and the store are real. A session is only a start time and an end time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use banksman_adapters::{host, ids};
use banksman_core::backlog::{RunEndRecord, Runner, Session};
use banksman_core::resource::grant::Address;
use banksman_core::task::RunEnd;
use banksman_core::{Lease, Liveness, RunId, RunnerId, Span, Stamp, Status, Wall};
use banksman_engine::{Dispatcher, Options, RunnerAction, RunnerInput};
use banksman_store::{Reader, Store, Tallied, Tally};

use super::{Database, SLOTS, Site, on_both};
use crate::bench::{Bench, Result};
use crate::report::{Row, Target, Unit};
use crate::stats::Sample;
use crate::tasks;

const RUNNERS: usize = 16;
const TASKS: usize = 1_500;

/// Number of tasks that are added to idle runners, one after the other.
const SINGLE: usize = 60;

/// The time until a session begins, and the range of its duration in milliseconds.
const BEGINS: Duration = Duration::from_millis(3);
const LASTS: [u64; 2] = [150, 350];

/// Time limit of each wait.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    on_both(bench, |bench, database| {
        let site = database.site(bench, "costs", RUNNERS * SLOTS)?;
        tasks::fill(&site.project, vec![tasks::command("true")?; TASKS])?;
        let fleet = Fleet::default();
        let (mut inboxes, mut stops) = (Vec::new(), Vec::new());
        let mut directory = BTreeMap::new();
        for number in 0..RUNNERS {
            let (sender, inbox) = channel();
            let address = Address(format!("runner-{number}").into());
            directory.insert(address.clone(), sender.clone());
            stops.push(sender);
            inboxes.push((address, inbox));
        }
        let directory = &directory;
        std::thread::scope(|scope| {
            let members: Vec<_> = inboxes
                .into_iter()
                .map(|(address, inbox)| {
                    let (site, fleet) = (&site, &fleet);
                    scope.spawn(move || Member::open(site, address, fleet, directory)?.work(&inbox))
                })
                .collect();
            let measured = fleet.measure(&site, database, directory);
            stops.iter().for_each(|stop| drop(stop.send(Message::Leave)));
            for member in members {
                member.join().map_err(|_| "a thread panicked")??;
            }
            measured
        })
    })
}

/// State that all members of a fleet share.
#[derive(Default)]
struct Fleet {
    tally: Arc<Tally>,
    wakes: AtomicU64,
}

/// The inboxes by which members are woken.
type Directory = BTreeMap<Address, Sender<Message>>;

enum Message {
    Wake,
    Leave,
}

impl Fleet {
    fn measure(&self, site: &Site, database: &Database, directory: &Directory) -> Result<Vec<Row>> {
        let name = database.name();
        // The first and the last runs are not typical of a backlog.
        let ramp = RUNNERS * SLOTS;
        let reader = &mut site.project.reader()?;
        wait_for(reader, ramp)?;
        let before = self.read(reader)?;
        wait_for(reader, TASKS - 2 * ramp)?;
        let backlog = self.read(reader)?.per_task(&before);
        wait_for(reader, TASKS)?;
        std::thread::sleep(Duration::from_millis(200));
        let before = self.read(reader)?;
        let mut store = site.project.open_store()?;
        store.wakes_here("");
        for number in 1..=SINGLE {
            for committed in store.batch(&[tasks::add(tasks::command("true")?, &[])?.0]) {
                self.wake(&committed?.wakes, directory);
            }
            wait_for(reader, TASKS + number)?;
        }
        let single = self.read(reader)?.per_task(&before);
        let row = |what: &str, value: f64, bound: f64| {
            Row::new(format!("{name}: {RUNNERS} runners, per task: {what}"), Unit::Count, Sample::once(value))
                .target(Target::AtMost(bound))
        };
        let detail =
            |costs: &Costs| format!("{:.2} round trips, {:.1} statements that write", costs.round_trips, costs.statements);
        Ok(vec![
            row("write transactions", backlog.writes, 1.7).beside(detail(&backlog)),
            row("empty write transactions", backlog.empty, 0.05),
            row("transactions in all", backlog.writes + backlog.reads, 2.2),
            row("rows read", backlog.rows, 30.0),
            row("wake-ups, with a backlog", backlog.wakes, 0.1),
            row("wake-ups, when idle", single.wakes, 1.1).beside(format!(
                "{:.2} transactions, {:.1} rows",
                single.writes + single.reads,
                single.rows
            )),
        ])
    }

    fn wake(&self, addresses: &[Address], directory: &Directory) {
        for address in addresses {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            directory.get(address).map(|inbox| inbox.send(Message::Wake));
        }
    }

    fn read(&self, reader: &mut Reader) -> Result<Moment> {
        Ok(Moment { tallied: self.tally.read(), wakes: self.wakes.load(Ordering::Relaxed), completed: completed(reader)? })
    }
}

struct Moment {
    tallied: Tallied,
    wakes: u64,
    completed: usize,
}

/// The costs of one task.
struct Costs {
    writes: f64,
    empty: f64,
    reads: f64,
    round_trips: f64,
    rows: f64,
    statements: f64,
    wakes: f64,
}

impl Moment {
    fn per_task(&self, before: &Moment) -> Costs {
        let tasks = (self.completed - before.completed) as f64;
        let (now, then) = (self.tallied, before.tallied);
        let of = |now: u64, then: u64| (now - then) as f64 / tasks;
        Costs {
            writes: of(now.writes, then.writes),
            empty: of(now.empty, then.empty.min(now.empty)),
            reads: of(now.reads, then.reads),
            round_trips: of(now.round_trips, then.round_trips),
            rows: of(now.rows, then.rows),
            statements: of(now.statements, then.statements),
            wakes: of(self.wakes, before.wakes),
        }
    }
}

fn completed(reader: &mut Reader) -> Result<usize> {
    let counts = reader.view().counts()?.by_status;
    Ok(usize::try_from(counts.get(&Status::Completed).copied().unwrap_or_default())?)
}

fn wait_for(reader: &mut Reader, count: usize) -> Result<()> {
    let until = Instant::now() + TIMEOUT;
    while completed(reader)? < count {
        if Instant::now() > until {
            return Err(format!("{count} tasks did not end within {} s", TIMEOUT.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// One runner of a fleet.
struct Member<'a> {
    store: Store,
    dispatcher: Dispatcher,
    fleet: &'a Fleet,
    directory: &'a Directory,
    /// Starts (`true`) and ends of its sessions, with their times.
    due: BTreeSet<(Instant, RunId, bool)>,
    /// The store's lease clock at `read_at` of this program's clock.
    lease: Lease,
    read_at: Instant,
    random: u64,
}

impl<'a> Member<'a> {
    fn open(site: &Site, address: Address, fleet: &'a Fleet, directory: &'a Directory) -> Result<Member<'a>> {
        let config = site.project.config();
        let (id, process) = (RunnerId::new(&ids::short("n"))?, site.project.host().current()?);
        let started = Stamp { lease: Lease(0), wall: Wall(host::wall_ms()) };
        let max_runs = Some(u32::try_from(SLOTS)?);
        let runner = Runner { max_runs, ..Runner::new(id, process, address.clone(), started) };
        let options = Options { max_runs, limits: config.limits(), poll: Span::from_secs(5), ..Options::new(config.watch()) };
        let mut store = site.project.open_store()?.counted(&fleet.tally);
        store.wakes_here("");
        let random = address.0.bytes().fold(7, |sum, byte| sum * 31 + u64::from(byte));
        let dispatcher = Dispatcher::new(runner, options);
        Ok(Member { store, dispatcher, fleet, directory, due: BTreeSet::new(), lease: Lease(0), read_at: Instant::now(), random })
    }

    fn now(&self) -> Lease {
        self.lease + Span::from(self.read_at.elapsed())
    }

    /// Carries out the dispatcher's actions until it is done.
    fn work(&mut self, inbox: &Receiver<Message>) -> Result<()> {
        loop {
            self.dispatcher.give_ids(|| RunId::new(&ids::short("r")).expect("a short id is valid"));
            match self.dispatcher.next(self.now()) {
                RunnerAction::Load(keys) => {
                    let snapshot = self.store.view().load(&keys)?;
                    (self.lease, self.read_at) = (snapshot.lease, Instant::now());
                    self.dispatcher.on(RunnerInput::Rows(Box::new(snapshot)), self.now());
                }
                RunnerAction::Probe(processes) => {
                    let found = processes.into_iter().map(|process| (process, Liveness::Alive)).collect();
                    self.dispatcher.on(RunnerInput::Probed(found), self.now());
                }
                RunnerAction::Call(requests) => self.call(&requests)?,
                RunnerAction::Spawn(work) => {
                    self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let lasts = LASTS[0] + (self.random >> 33) % (LASTS[1] - LASTS[0]);
                    self.due.insert((Instant::now() + BEGINS, work.run.id.clone(), true));
                    self.due.insert((Instant::now() + Duration::from_millis(lasts), work.run.id.clone(), false));
                }
                RunnerAction::Notify(command, _) => self.dispatcher.on(RunnerInput::CommandDone(command, Ok(())), self.now()),
                RunnerAction::Sleep { at_most, .. } => self.sleep(inbox, at_most),
                RunnerAction::Acknowledge(_) => {}
                RunnerAction::Done => return Ok(()),
                other => return Err(format!("nothing of this figure needs {other:?}").into()),
            }
            self.dispatcher.events();
        }
    }

    fn call(&mut self, requests: &[banksman_engine::Request]) -> Result<()> {
        let mut replies = Vec::new();
        for committed in self.store.batch(requests) {
            let committed = committed?;
            self.fleet.wake(&committed.wakes, self.directory);
            replies.extend(committed.replies);
        }
        self.dispatcher.on(RunnerInput::Replies(replies), self.now());
        self.store.tidy(false)?;
        Ok(())
    }

    fn sleep(&mut self, inbox: &Receiver<Message>, at_most: Span) {
        let next = self.due.first().map(|(at, ..)| at.saturating_duration_since(Instant::now()));
        let at_most = Duration::from_millis(u64::try_from(at_most.as_ms()).unwrap_or(0));
        match inbox.recv_timeout(next.map_or(at_most, |next| next.min(at_most))) {
            Ok(Message::Wake) => self.dispatcher.on(RunnerInput::Woken, self.now()),
            Ok(Message::Leave) | Err(RecvTimeoutError::Disconnected) => self.dispatcher.on(RunnerInput::Leave, self.now()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = Instant::now();
        while self.due.first().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, run, begins)) = self.due.pop_first() else { break };
            let input = if begins {
                RunnerInput::Started(run, Session { keeper: 1, child: 1 })
            } else {
                RunnerInput::Ended(run, RunEndRecord::new(RunEnd::Exited(0), Wall(host::wall_ms()), None))
            };
            self.dispatcher.on(input, self.now());
        }
    }
}
