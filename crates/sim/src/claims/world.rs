//! What happens in the world of claims.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use banksman_core::event::Forced;
use banksman_core::resource::coordination::Command;
use banksman_core::resource::grant::Address;
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::task::{Need, Spec, Work};
use banksman_core::{Event, Limits, LimitsChange, Liveness, Name, ProcessId, RunId, SectionId, Seq, TaskId};
use banksman_engine::{Reply, Request, SectionRequest, Seen, TaskRequest};
use banksman_store::{EventFilter, Snapshot, Store, StoreError, sqlite};

use super::mutation::ClaimMutation;
use super::people::Person;
use super::runners::Runner;
use crate::clock::{Clock, HOST, Ms};
use crate::random::Random;
use crate::report::{Checker, Report, Tally, Verdict};
use crate::trace::Trace;
use crate::tried::Tried;
use crate::{Listener, Options};

const PEOPLE: usize = 4;
const RUNNERS: usize = 2;
const TASKS: usize = 7;

/// How many steps a world without faults needs at most until everything has ended.
const QUIESCE: usize = 3_000;

/// The locks and the semaphore that tasks need.
pub(super) const LOCKS: [&str; 2] = ["la", "lb"];
pub(super) const SEMAPHORE: &str = "sa";

/// The limits of a project that nobody has set.
pub(super) const NO_LIMITS: Limits = Limits { runs: 0, roots: 0 };

pub(super) struct World<'a> {
    pub(super) clock: Clock,
    pub(super) random: Random,
    trace: Trace<'a>,
    pub(super) tally: Tally,
    pub(super) verdict: Verdict,
    pub(super) store: Store,
    pub(super) mutation: Option<ClaimMutation>,
    pub(super) people: Vec<Person>,
    pub(super) runners: Vec<Runner>,
    /// When the sessions of runs end.
    pub(super) sessions: BTreeMap<RunId, Ms>,
    pub(super) run_number: u32,
    task_number: u32,
    sections: Vec<SectionId>,
    tasks: Vec<(TaskId, Spec)>,
    /// The events of the last commit.
    pub(super) events: Vec<Event>,
    last: Seq,
    /// Live runs whose runner is dead, and since when.
    pub(super) orphans: BTreeMap<RunId, Ms>,
    dead: BTreeSet<i32>,
    next_pid: i32,
    steps: usize,
    /// Whether things go wrong, and new work begins.
    pub(super) faults: bool,
}

/// What became of a transaction, as its caller sees it.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum CommitOutcome {
    Committed,
    Lost,
    Unknown,
}

pub(super) fn process(pid: i32) -> ProcessId {
    ProcessId { host: HOST.into(), boot: "boot0".into(), pid_ns: 1, pid, start: 1 }
}

pub(super) fn name(text: &str) -> Name {
    Name::new(text).expect("a plain word")
}

impl<'a> World<'a> {
    pub(super) fn new(
        seed: u64,
        options: Options<ClaimMutation>,
        listener: Option<Listener<'a>>,
    ) -> Result<World<'a>, StoreError> {
        let clock = Clock::new();
        let store = sqlite::memory(Box::new(clock.clone()))?;
        let mut random = Random::new(seed ^ 0xc1a1_0000_5eed_0000);
        let steps = options.steps.unwrap_or_else(|| 80 + random.below(160));
        let mut world = World {
            clock,
            random,
            trace: Trace::new(listener),
            tally: Tally::default(),
            verdict: Verdict::new(options.only),
            store,
            mutation: options.broken,
            people: Vec::new(),
            runners: Vec::new(),
            sessions: BTreeMap::new(),
            run_number: 0,
            task_number: 0,
            sections: ["s1", "s2"].map(|id| SectionId::new(id).expect("a plain word")).into(),
            tasks: Vec::new(),
            events: Vec::new(),
            last: Seq(0),
            orphans: BTreeMap::new(),
            dead: BTreeSet::new(),
            next_pid: 1,
            steps,
            faults: false,
        };
        world.set_up();
        Ok(world)
    }

    fn set_up(&mut self) {
        let define = semaphore::Input::Define(semaphore::Config { capacity: 2, ttl: None });
        self.commit(vec![Request::plain(Command::Semaphore(name(SEMAPHORE), define))]);
        for id in self.sections.clone() {
            let title = id.as_str().parse().expect("a plain word");
            self.commit(vec![Request::Section(SectionRequest::Add { id, name: title, exclusive: true })]);
        }
        for _ in 0..TASKS {
            let task = self.add_task();
            self.tasks.push(task);
        }
        for _ in 0..PEOPLE {
            let person = Person::new(self.fork(), 0);
            self.people.push(person);
        }
        for _ in 0..RUNNERS {
            let runner = Runner::new(self.fork(), 0);
            self.runners.push(runner);
        }
    }

    fn add_task(&mut self) -> (TaskId, Spec) {
        let mut needs = Vec::new();
        for lock in LOCKS {
            needs.extend(self.random.in_thousand(350).then(|| Need::Lock(name(lock))));
        }
        let weight = 1 + u32::from(self.random.in_thousand(400));
        needs.extend(self.random.in_thousand(350).then(|| Need::Slots { name: name(SEMAPHORE), weight }));
        let section = self.random.in_thousand(650).then(|| self.random.pick(&self.sections).clone());
        self.task_number += 1;
        let id = TaskId::new(&format!("t{}", self.task_number)).expect("a plain word");
        let title = id.as_str().parse().expect("a plain word");
        let spec = Spec { section, needs, work: Some(Work::Run("true".into())), ..Spec::new(title) };
        let add = TaskRequest::Add { id: id.clone(), spec: Box::new(spec.clone()), depends_on: Vec::new(), by: None };
        // A task is added by somebody who tries until it is there.
        while self.commit(vec![Request::Task(add.clone())]).0 == CommitOutcome::Lost {}
        (id, spec)
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
        self.quiesce();
        let violation = self.verdict.take();
        if let Some(violation) = &violation {
            self.trace.write(self.clock.now(), format_args!("VIOLATION {violation}"));
        }
        Report { violation, hash: self.trace.hash(), tally: self.tally }
    }

    fn fork(&mut self) -> i32 {
        self.next_pid += 1;
        self.next_pid
    }

    pub(super) fn some_task(&mut self) -> (TaskId, Spec) {
        self.random.pick(&self.tasks).clone()
    }

    fn step(&mut self) {
        if self.faults {
            self.disturb();
        }
        let now = self.clock.now();
        let people = (0..self.people.len()).filter(|index| self.person_due(*index).is_some_and(|due| due <= now));
        let runners = (0..self.runners.len()).filter(|index| self.runners[*index].woken || self.runners[*index].next <= now);
        let ready: Vec<(bool, usize)> = people.map(|index| (true, index)).chain(runners.map(|index| (false, index))).collect();
        if ready.is_empty() {
            return self.pass();
        }
        match *self.random.pick(&ready) {
            (true, index) => self.act(index),
            (false, index) => self.drive(index),
        }
        self.clock.advance(self.random.between(0, 20));
    }

    /// Things happen that nobody of the actors does.
    fn disturb(&mut self) {
        match self.random.below(1_000) {
            0..40 => {
                let people = self.people.iter().map(|person| person.pid);
                let pids: Vec<i32> = people.chain(self.runners.iter().map(|runner| runner.pid)).collect();
                let pid = *self.random.pick(&pids);
                self.kill(pid);
            }
            // What is over is to be done again.
            40..280 => {
                let (id, _) = self.some_task();
                self.commit(vec![Request::Task(TaskRequest::Retry { id })]);
            }
            280..300 => self.set_limit(),
            300..312 => self.force(),
            312..325 => self.replace_task(),
            325..500 => {
                let (id, _) = self.some_task();
                self.check_explanation(&id);
            }
            _ => {}
        }
    }

    fn set_limit(&mut self) {
        self.tally.count("limits changed");
        let runs = *self.random.pick(&[0, 1, 1, 2, 3]);
        let change = LimitsChange { runs: Some(runs), ..LimitsChange::default() };
        self.commit(vec![Request::SetLimits { change, seed: NO_LIMITS }]);
    }

    /// A person takes a lock or slots away from whoever has them.
    fn force(&mut self) {
        let Some(rows) = self.rows() else { return };
        let by = Forced { user: "ann".into(), host: HOST.into(), pid: 1 };
        let lock = *self.random.pick(&LOCKS);
        let holder = rows.coordination.semaphores.get(&name(SEMAPHORE)).and_then(|one| one.holders.keys().next().cloned());
        let command = match holder {
            // A run keeps its slots: only those of people are taken away.
            Some(holder) if self.random.in_thousand(300) && !holder.as_str().starts_with("run:") => {
                Command::Semaphore(name(SEMAPHORE), semaphore::Input::Force { holder, by })
            }
            _ => Command::Lock(name(lock), lock::Input::Force { by }),
        };
        let is_of_run = |grant: &banksman_core::Grant| grant.claim.holder.as_str().starts_with("run:");
        if let Command::Lock(name, _) = &command
            && let Some(lock::State::Held(grant)) = rows.coordination.locks.get(name).map(|lock| &lock.state)
            && is_of_run(grant)
        {
            return;
        }
        self.tally.count("forced");
        self.commit(vec![Request::plain(command)]);
    }

    /// A task is deleted, whoever waits for it, and another one takes its place.
    fn replace_task(&mut self) {
        let index = self.random.below(self.tasks.len());
        let id = self.tasks[index].0.clone();
        let (outcome, _) = self.commit(vec![Request::Task(TaskRequest::Delete { id: id.clone(), force: false })]);
        let is_gone = self.rows().is_some_and(|rows| !rows.backlog.tasks.contains_key(&id));
        if outcome != CommitOutcome::Lost && is_gone {
            self.tally.count("tasks deleted");
            self.tasks[index] = self.add_task();
        }
    }

    /// Time goes on to the next moment at which somebody does something.
    fn pass(&self) {
        let people = (0..self.people.len()).filter_map(|index| self.person_due(index));
        let next = people.chain(self.runners.iter().map(|runner| runner.next)).min();
        self.clock.advance(next.map_or(1, |next| (next - self.clock.now()).max(1)));
    }

    /// A process dies. Another takes its place, and whoever watched it is told. The sessions of a runner live on.
    pub(super) fn kill(&mut self, pid: i32) {
        self.tally.count("deaths");
        self.trace.write(self.clock.now(), format_args!("process {pid} dies"));
        self.dead.insert(pid);
        let (now, new) = (self.clock.now(), self.fork());
        if let Some(person) = self.people.iter_mut().find(|person| person.pid == pid) {
            *person = Person::new(new, now + 50);
        }
        if let Some(runner) = self.runners.iter_mut().find(|runner| runner.pid == pid) {
            *runner = Runner::new(new, now + 300);
        }
        self.people.iter_mut().for_each(|person| person.hear_of_death(pid, now));
    }

    pub(super) fn lives(&self, process: &ProcessId) -> bool {
        !self.dead.contains(&process.pid)
    }

    /// What somebody knows who has looked at every process.
    pub(super) fn seen(&self) -> Seen {
        let probes = self.dead.iter().map(|pid| (process(*pid), Liveness::Dead)).collect();
        Seen { probes, ..Seen::default() }
    }

    pub(super) fn rows(&mut self) -> Option<Snapshot> {
        match self.store.view().everything() {
            Ok(rows) => Some(rows),
            Err(error) => {
                self.verdict.report(Checker::Store, || error.to_string());
                None
            }
        }
    }

    /// One transaction, with what may happen to it.
    pub(super) fn commit(&mut self, requests: Vec<Request>) -> (CommitOutcome, Vec<Reply>) {
        let outcome = match self.random.below(1_000) {
            0..40 if self.faults => CommitOutcome::Lost,
            40..60 if self.faults => CommitOutcome::Unknown,
            _ => CommitOutcome::Committed,
        };
        match self.try_commit(&requests, outcome) {
            Ok(replies) => (outcome, replies),
            Err(error) => {
                self.verdict.report(Checker::Store, || error.to_string());
                (CommitOutcome::Unknown, Vec::new())
            }
        }
    }

    fn try_commit(&mut self, requests: &[Request], outcome: CommitOutcome) -> Result<Vec<Reply>, StoreError> {
        let before = self.store.view().everything()?;
        let notes = RefCell::new(Vec::new());
        let tried: Vec<Tried<'_, ClaimMutation>> =
            requests.iter().map(|request| Tried { request, broken: self.mutation, notes: &notes }).collect();
        let open = self.store.begin(&tried)?;
        if outcome == CommitOutcome::Lost {
            drop(open);
            self.tally.count("transactions lost");
            return Ok(Vec::new());
        }
        let committed = open.commit()?;
        self.tally.count("transactions");
        let lease = notes.borrow().first().map_or(before.lease, |note| note.lease);
        let after = self.store.view().everything()?;
        self.read_events()?;
        let answered: Vec<(Request, Reply)> = requests.iter().cloned().zip(committed.replies.iter().cloned()).collect();
        for (request, reply) in &answered {
            self.trace.write(self.clock.now(), format_args!("{}", crate::words::Told(request, reply)));
        }
        self.check(&before, &after, &answered, lease);
        for address in &committed.wakes {
            self.wake(address);
        }
        Ok(committed.replies)
    }

    fn read_events(&mut self) -> Result<(), StoreError> {
        self.events.clear();
        loop {
            let page = self.store.view().events(self.last, &EventFilter::default())?;
            self.last = page.last;
            for row in page.events {
                let event = Event::parse(&row.kind, &row.source.component, row.source.id.as_deref(), &row.data.to_string());
                self.events.extend(event.ok());
            }
            if !page.more {
                return Ok(());
            }
        }
    }

    fn wake(&mut self, address: &Address) {
        if self.faults && self.random.in_thousand(40) {
            self.tally.count("wake-ups lost");
            return;
        }
        let now = self.clock.now();
        let is_meant = |pid: i32| *pid.to_string() == *address.0;
        self.people.iter_mut().filter(|person| is_meant(person.pid)).for_each(|person| person.wake(now));
        self.runners.iter_mut().filter(|runner| is_meant(runner.pid)).for_each(|runner| runner.woken = true);
    }

    /// The faults are over and no new work begins: all waits end, all work ends, and nothing is left.
    fn quiesce(&mut self) {
        for _ in 0..QUIESCE {
            if self.verdict.is_guilty() {
                return;
            }
            let Some(rows) = self.rows() else { return };
            let is_idle = self.people.iter().all(Person::is_done);
            let live = rows.backlog.runs.values().any(banksman_core::backlog::Run::is_live);
            if is_idle && !live && rows.coordination.claims.is_empty() {
                self.reap();
                return self.check_rest();
            }
            self.step();
        }
        let waiting: Vec<i32> = self.people.iter().filter(|person| person.is_waiting()).map(|person| person.pid).collect();
        self.verdict.expect(Checker::Waiters, waiting.is_empty(), || format!("{waiting:?} wait for ever"));
        self.check_rest();
    }

    /// What the dead held alone is free for the next who asks.
    fn reap(&mut self) {
        let seen = self.seen();
        for lock in LOCKS {
            let command = Command::Lock(name(lock), lock::Input::Reap);
            self.commit(vec![Request::Coordinate { command, seen: seen.clone() }]);
        }
    }
}
