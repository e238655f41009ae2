//! What happens in the world of queues.

use std::cell::RefCell;

use banksman_core::queue::{Config, Data, Hold, Input, New, Outcome, Part, State, Waiting};
use banksman_core::resource::grant::{Address, WaitingProcess};
use banksman_core::{HolderId, Liveness, Name, ProcessId, Span};
use banksman_engine::{QueueRequest, Reply, Request, TakeAction, TakingItem};
use banksman_store::{Store, StoreError, sqlite};

use super::ledger::Ledger;
use super::mutation::QueueMutation;
use crate::clock::{Clock, HOST, Ms};
use crate::random::Random;
use crate::report::{Checker, Report, Tally, Verdict};
use crate::trace::Trace;
use crate::tried::Tried;
use crate::{Listener, Options};

/// How often a worker looks by itself.
const POLL: Ms = 60_000;

/// How long an item is left to its holder.
const VISIBILITY: Ms = 2_000;

/// How many workers there are at a time.
const WORKERS: usize = 5;

/// How many steps a calm world needs at most.
const CALM: usize = 4_000;

pub(super) struct World<'a> {
    clock: Clock,
    random: Random,
    trace: Trace<'a>,
    tally: Tally,
    verdict: Verdict,
    store: Store,
    mutation: Option<QueueMutation>,
    ledger: Ledger,
    workers: Vec<Worker>,
    next_pid: i32,
    steps: usize,
    /// Whether things go wrong.
    faults: bool,
}

/// A process that works on items.
struct Worker {
    pid: i32,
    taking: TakingItem,
    doing: Doing,
}

enum Doing {
    /// It has a request for the store, and what it holds if that is about an item.
    Asking(Request, Option<Hold>),
    /// It waits for an item.
    Sleeping { until: Ms, watch: Option<ProcessId>, waiting: Waiting },
    /// It works on an item.
    Working { hold: Hold, until: Ms },
}

/// What became of a transaction.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Committed,
    Lost,
    Unknown,
}

fn queue() -> Name {
    Name::new("q").expect("a plain word")
}

fn dead_letters() -> Name {
    Name::new("d").expect("a plain word")
}

fn process(pid: i32) -> ProcessId {
    ProcessId { host: HOST.into(), boot: "boot0".into(), pid_ns: 1, pid, start: 1 }
}

fn holder(pid: i32) -> HolderId {
    HolderId::new(&format!("worker-{pid}")).expect("a plain word")
}

impl Worker {
    fn new(pid: i32) -> Worker {
        let address = Some(Address(pid.to_string().into()));
        let standing = WaitingProcess { process: process(pid), address, lease: None };
        let taking = TakingItem::new(queue(), holder(pid), Some(standing), Span::from_ms(POLL));
        let doing = Doing::Asking(taking.request(), None);
        Worker { pid, taking, doing }
    }
}

impl<'a> World<'a> {
    pub(super) fn new(
        seed: u64,
        options: Options<QueueMutation>,
        listener: Option<Listener<'a>>,
    ) -> Result<World<'a>, StoreError> {
        let clock = Clock::new();
        let store = sqlite::memory(Box::new(clock.clone()))?;
        let mut random = Random::new(seed);
        let steps = options.steps.unwrap_or_else(|| 60 + random.below(240));
        let mut world = World {
            clock,
            random,
            trace: Trace::new(listener),
            tally: Tally::default(),
            verdict: Verdict::new(options.only),
            store,
            mutation: options.broken,
            ledger: Ledger::new(),
            workers: Vec::new(),
            next_pid: 1,
            steps,
            faults: false,
        };
        let config = |dead_letter| Config {
            visibility_timeout: Span::from_ms(VISIBILITY),
            max_attempts: 3,
            dead_letter,
            max_length: 1_000,
        };
        world.ask(dead_letters(), Input::Define(config(None)));
        world.ask(queue(), Input::Define(config(Some(dead_letters()))));
        for _ in 0..WORKERS {
            world.hire();
        }
        Ok(world)
    }

    pub(super) fn run(mut self) -> Report {
        self.faults = true;
        for _ in 0..self.steps {
            if self.verdict.is_guilty() {
                break;
            }
            self.step();
        }
        self.faults = false;
        self.calm_down();
        self.fold();
        Report { violation: self.verdict.take(), hash: self.trace.hash(), tally: self.tally }
    }

    fn hire(&mut self) {
        self.workers.push(Worker::new(self.next_pid));
        self.next_pid += 1;
    }

    fn step(&mut self) {
        if self.faults && self.random.in_thousand(40) {
            self.kill();
        }
        if self.faults && self.random.in_thousand(300) {
            self.user();
        }
        self.wake_up_late();
        let asking: Vec<usize> =
            (0..self.workers.len()).filter(|index| matches!(self.workers[*index].doing, Doing::Asking(..))).collect();
        let mut chosen = asking;
        self.random.shuffle(&mut chosen);
        chosen.truncate(1 + self.random.below(4));
        if chosen.is_empty() {
            self.pass();
        } else {
            self.batch_of(&chosen);
            self.clock.advance(self.random.between(0, 30));
        }
        if self.faults && self.random.in_thousand(30) {
            self.fold();
        }
    }

    /// Time goes on to the next moment at which somebody does something.
    fn pass(&mut self) {
        let moments = self.workers.iter().filter_map(|worker| match &worker.doing {
            Doing::Asking(..) => None,
            Doing::Sleeping { until, .. } | Doing::Working { until, .. } => Some(*until),
        });
        if let Some(next) = moments.min() {
            self.clock.advance((next - self.clock.now()).max(1));
        }
    }

    /// Those whose time has come do what they do next.
    fn wake_up_late(&mut self) {
        let now = self.clock.now();
        for index in 0..self.workers.len() {
            match &self.workers[index].doing {
                Doing::Sleeping { until, .. } if *until <= now => {
                    let worker = &mut self.workers[index];
                    worker.doing = Doing::Asking(worker.taking.request(), None);
                    self.tally.count("slow looks");
                }
                Doing::Working { hold, until } if *until <= now => {
                    let hold = hold.clone();
                    let input = self.next_deed(&hold);
                    let request = Request::Queue(QueueRequest::new(queue(), input));
                    self.workers[index].doing = Doing::Asking(request, Some(hold));
                }
                Doing::Sleeping { .. } | Doing::Working { .. } | Doing::Asking(..) => {}
            }
        }
    }

    fn next_deed(&mut self, hold: &Hold) -> Input {
        match self.random.below(if self.faults { 10 } else { 1 }) {
            0..6 => Input::Complete(hold.clone()),
            6..8 => {
                let retry_after = Span::from_ms(if self.random.in_thousand(500) { 0 } else { self.random.between(1, 3_000) });
                Input::Fail {
                    hold: hold.clone(),
                    error: "no".into(),
                    retry_after: (!self.random.in_thousand(50)).then_some(retry_after),
                }
            }
            _ => Input::Extend(hold.clone(), None),
        }
    }

    /// Somebody pushes, pauses, resumes or requeues.
    fn user(&mut self) {
        let new = |random: &mut Random| New {
            data: Data::parse("1").expect("it is JSON"),
            priority: i32::try_from(random.below(3)).expect("small"),
            delay: Span::from_ms(if random.in_thousand(700) { 0 } else { random.between(1, 3_000) }),
            dedupe: None,
        };
        let (name, input) = match self.random.below(12) {
            0 => (queue(), Input::Pause),
            1 | 2 => (queue(), Input::Resume),
            3 => (dead_letters(), Input::RequeueAll(Part::Moved, 5)),
            _ => {
                let count = 1 + self.random.below(3);
                (queue(), Input::Push((0..count).map(|_| new(&mut self.random)).collect()))
            }
        };
        self.ask(name, input);
    }

    fn ask(&mut self, name: Name, input: Input) {
        let request = Request::Queue(QueueRequest::new(name, input));
        // One who is not answered does not know, and asks no more: what was done may or may not be there.
        self.commit(&[request]);
    }

    /// A process dies. Another takes its place, and whoever watched it hears of it.
    fn kill(&mut self) {
        let index = self.random.below(self.workers.len());
        self.bury(index);
    }

    fn bury(&mut self, index: usize) {
        let dead = self.workers.remove(index);
        self.tally.count("deaths");
        self.trace.write(self.clock.now(), format_args!("worker {} dies", dead.pid));
        for worker in &mut self.workers {
            let Doing::Sleeping { watch: Some(watched), waiting, .. } = &worker.doing else { continue };
            if watched.pid == dead.pid {
                let counsel = worker.taking.probed(watched.clone(), Liveness::Dead, waiting.clone());
                debug_assert_eq!(counsel, TakeAction::Ask);
                worker.doing = Doing::Asking(worker.taking.request(), None);
            }
        }
        self.hire();
    }

    fn batch_of(&mut self, chosen: &[usize]) {
        let requests: Vec<Request> = chosen
            .iter()
            .filter_map(|index| match &self.workers[*index].doing {
                Doing::Asking(request, _) => Some(request.clone()),
                Doing::Sleeping { .. } | Doing::Working { .. } => None,
            })
            .collect();
        let (fate, replies) = self.commit(&requests);
        match fate {
            Fate::Lost => {}
            Fate::Committed => {
                for (index, reply) in chosen.iter().zip(replies) {
                    self.answered(*index, reply);
                }
            }
            // They do not know what has happened, and stop.
            Fate::Unknown => {
                let mut pids: Vec<i32> = chosen.iter().map(|index| self.workers[*index].pid).collect();
                pids.sort_unstable();
                for pid in pids {
                    let index = self.workers.iter().position(|worker| worker.pid == pid).expect("it lives until now");
                    self.bury(index);
                }
            }
        }
    }

    /// One transaction, with what may happen to it.
    fn commit(&mut self, requests: &[Request]) -> (Fate, Vec<Reply>) {
        let fate = match self.random.below(1_000) {
            0..50 if self.faults => Fate::Lost,
            50..80 if self.faults => Fate::Unknown,
            _ => Fate::Committed,
        };
        let notes = RefCell::new(Vec::new());
        let tried: Vec<Tried<'_, QueueMutation>> =
            requests.iter().map(|request| Tried { request, broken: self.mutation, notes: &notes }).collect();
        let open = match self.store.begin(&tried) {
            Ok(open) => open,
            Err(error) => {
                self.verdict.report(Checker::Store, || error.to_string());
                return (Fate::Lost, Vec::new());
            }
        };
        if fate == Fate::Lost {
            drop(open);
            self.tally.count("transactions lost");
            return (fate, Vec::new());
        }
        let committed = match open.commit() {
            Ok(committed) => committed,
            Err(error) => {
                self.verdict.report(Checker::Store, || error.to_string());
                return (Fate::Lost, Vec::new());
            }
        };
        self.tally.count("transactions");
        for (request, reply) in requests.iter().zip(&committed.replies) {
            self.trace.write(self.clock.now(), format_args!("{}", crate::words::Told(request, reply)));
            if let Request::Queue(request) = request {
                self.ledger.take_in(request, reply, &mut self.verdict);
            }
        }
        for address in committed.wakes {
            self.wake(&address);
        }
        (fate, committed.replies)
    }

    fn wake(&mut self, address: &Address) {
        if self.faults && self.random.in_thousand(50) {
            self.tally.count("wake-ups lost");
            return;
        }
        for worker in &mut self.workers {
            if *worker.pid.to_string() == *address.0 && matches!(worker.doing, Doing::Sleeping { .. }) {
                worker.doing = Doing::Asking(worker.taking.request(), None);
                self.tally.count("wake-ups");
            }
        }
    }

    fn answered(&mut self, index: usize, reply: Reply) {
        let now = self.clock.now();
        let Doing::Asking(_, hold) = &self.workers[index].doing else { return };
        match (hold.clone(), reply) {
            (Some(hold), Reply::Queue { outcome: Outcome::Extended { .. }, .. }) => {
                self.workers[index].doing = Doing::Working { hold, until: now + self.random.between(1, VISIBILITY) };
            }
            // It is rid of the item, one way or the other, and wants the next.
            (Some(_), _) => self.workers[index] = Worker::new(self.workers[index].pid),
            (None, reply) => self.workers[index].doing = self.advised(index, reply),
        }
    }

    /// What one who wants an item does after an answer.
    fn advised(&mut self, index: usize, reply: Reply) -> Doing {
        let now = self.clock.now();
        let mut counsel = self.workers[index].taking.answer(reply);
        if let TakeAction::Probe(process, waiting) = counsel {
            let liveness = if self.lives(&process) { Liveness::Alive } else { Liveness::Dead };
            counsel = self.workers[index].taking.probed(process, liveness, waiting);
        }
        // Whoever begins to watch a process that has died meanwhile hears so at once.
        if let TakeAction::Sleep { watch: Some(process), waiting, .. } = &counsel
            && !self.lives(process)
        {
            counsel = self.workers[index].taking.probed(process.clone(), Liveness::Dead, waiting.clone());
        }
        match counsel {
            TakeAction::Sleep { watch, at_most, waiting } => Doing::Sleeping { until: now + at_most.as_ms() + 1, watch, waiting },
            TakeAction::Done(Reply::Queue { outcome: Outcome::Taken(item), .. }) => {
                let State::Processing(taken) = &item.state else { unreachable!("it was just taken") };
                let hold = Hold { item: item.id, holder: taken.holder.clone(), epoch: taken.epoch };
                // Some work for longer than they may.
                let most = if self.faults { VISIBILITY * 3 / 2 } else { VISIBILITY / 2 };
                self.tally.count("takes");
                Doing::Working { hold, until: now + self.random.between(1, most) }
            }
            TakeAction::Ask | TakeAction::Done(_) | TakeAction::Probe(..) => {
                Doing::Asking(self.workers[index].taking.request(), None)
            }
        }
    }

    fn lives(&self, process: &ProcessId) -> bool {
        self.workers.iter().any(|worker| worker.pid == process.pid)
    }

    fn fold(&mut self) {
        match self.store.view().compare_with_log() {
            Ok(differences) => {
                self.verdict.expect(Checker::Fold, differences.is_empty(), || differences.join("; "));
            }
            Err(error) => self.verdict.report(Checker::Store, || error.to_string()),
        }
    }

    /// The faults are over: all that was acknowledged is done or dead, and a push wakes those who wait.
    fn calm_down(&mut self) {
        self.ask(queue(), Input::Resume);
        self.until_drained();
        for id in self.ledger.acknowledged.difference(&self.ledger.completed) {
            // Nobody takes from the dead-letter queue here.
            let is_dead = self.ledger.model.items.get(id).is_some_and(|item| item.queue == dead_letters());
            let in_store = self.store.view().load(&[banksman_store::Key::Item(*id)].into());
            let is_there = in_store.is_ok_and(|rows| rows.queues.items.contains_key(id));
            self.verdict
                .expect(Checker::Left, is_dead && is_there, || format!("{id} was acknowledged, and is neither done nor dead"));
        }
        if self.verdict.is_guilty() {
            return;
        }
        // Everybody looks once more, since wake-ups were lost. From then on nobody looks by himself.
        self.clock.advance(POLL + 1);
        self.wake_up_late();
        self.until_drained();
        let deadline = self.clock.now() + POLL / 2;
        let new = || New { data: Data::parse("2").expect("it is JSON"), priority: 0, delay: Span::ZERO, dedupe: None };
        self.ask(queue(), Input::Push(vec![new(), new(), new()]));
        self.until_drained();
        let (now, done) = (self.clock.now(), self.ledger.acknowledged.difference(&self.ledger.completed).count());
        let dead = self.ledger.model.items.values().filter(|item| item.queue == dead_letters()).count();
        self.verdict.expect(Checker::Waiters, now < deadline && done <= dead, || {
            format!("three items were pushed while all waited; {done} are not done, {} ms after the deadline", now - deadline)
        });
    }

    /// Goes on until nobody has anything to do but to wait.
    fn until_drained(&mut self) {
        for _ in 0..CALM {
            if self.verdict.is_guilty() {
                return;
            }
            let left = self.ledger.model.items.values().any(|item| item.queue == queue());
            let idle = self.workers.iter().all(|worker| matches!(worker.doing, Doing::Sleeping { .. }));
            if idle && !left {
                return;
            }
            self.step();
        }
    }
}
