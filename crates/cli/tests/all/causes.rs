//! `why` tells the truth: situations at random, in a real store. What it names is taken away piece by piece; the task can
//! be claimed when all of it is gone, and not before. Nothing is found in the way later that was not named at first.

use std::collections::BTreeSet;
use std::process::{Command as Program, Stdio};

use banksman::adapters::ids;
use banksman::core::backlog::{Edge, Runner};
use banksman::core::event::{Forced, Kind, Resource};
use banksman::core::resource::coordination::Command;
use banksman::core::resource::grant::{Address, Ask, GrantRequest, WaitingProcess};
use banksman::core::resource::lock;
use banksman::core::resource::semaphore;
use banksman::core::task::admission::Reason;
use banksman::core::task::retry::Marker;
use banksman::core::task::roots;
use banksman::core::task::{Ending, Mark, Need, Spec, Verdict, Work};
use banksman::core::{
    HolderId, Lease, Limits, LimitsChange, Liveness, Name, ProcessId, RunId, RunnerId, SectionId, Span, Stamp, Status, TaskId,
    Title, Wall,
};
use banksman::engine::why::{Answer, Cause, Chain, End, Life, Obstacle};
use banksman::engine::{Candidate, Reply, Request, RunOutcome, RunRequest, SectionRequest, Seen, TaskRequest, ended};
use banksman::store::{Key, Reader, Snapshot};
use banksman::{Client, inspect};

use crate::world::{World, until};

mod cause;

use cause::{ROOTS, about, kind};

/// A small generator of our own: the same seed, the same situation.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.roll(one_in) == 0
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.roll(length as u64)).unwrap()
    }
}

/// A project, and what the test knows of it because it has made it so.
struct Scene {
    client: Client,
    reader: Reader,
    dice: Dice,
    alive: ProcessId,
    /// All that were seen to die, each another one: what is known of one says nothing of the next.
    dead: Vec<ProcessId>,
    limit: u32,
    /// How many roots may be under way.
    roots: u32,
    /// Decides what the limits are, and how they change.
    places: Dice,
    /// Runners that live.
    living: BTreeSet<RunnerId>,
    exclusive: SectionId,
    shared: SectionId,
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn fresh<T>(prefix: &str, make: impl Fn(&str) -> T) -> T {
    make(&ids::short(prefix))
}

/// A process that was seen alive and is dead now.
fn reaped(client: &Client) -> ProcessId {
    let mut child = Program::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let process = client.host().identify(i32::try_from(child.id()).unwrap()).unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    process
}

impl Scene {
    fn new(world: &World, seed: u64) -> Scene {
        let client = world.another(&seed.to_string()).open().unwrap();
        let (alive, dead) = (client.this_process().clone(), Vec::new());
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut places = Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let (limit, roots) = ([0, 0, 1, 2, 3][dice.index(5)], [0, 0, 0, 1, 2, 3][places.index(6)]);
        let sections = [("exclusive", true), ("shared", false)].map(|(name, exclusive)| {
            let id = fresh("s", |id| SectionId::new(id).unwrap());
            let add = SectionRequest::Add { id: id.clone(), name: Title::new(name).unwrap(), exclusive };
            client.call(Request::Section(add)).unwrap();
            id
        });
        let [exclusive, shared] = sections;
        let reader = client.reader().unwrap();
        Scene { client, reader, dice, alive, dead, limit, roots, places, living: BTreeSet::new(), exclusive, shared }
    }

    fn run(&self, request: RunRequest) -> RunOutcome {
        match self.client.call(Request::Run(request)).unwrap() {
            Reply::Run(outcome) => outcome,
            reply => panic!("{reply:?}"),
        }
    }

    fn set_limits(&self, change: LimitsChange) {
        let seed = Limits { runs: self.limit, roots: self.roots };
        self.client.call(Request::SetLimits { change, seed }).unwrap();
    }

    fn task(&self, request: TaskRequest) {
        self.client.call(Request::Task(request)).unwrap();
    }

    fn rows(&mut self, keys: impl IntoIterator<Item = Key>) -> Snapshot {
        self.reader.view().load(&keys.into_iter().collect()).unwrap()
    }

    fn seen(&self) -> Seen {
        let dead = self.dead.iter().map(|process| (process.clone(), Liveness::Dead));
        Seen { probes: dead.chain([(self.alive.clone(), Liveness::Alive)]).collect(), ..Seen::default() }
    }

    fn process(&mut self, lives: bool) -> ProcessId {
        if lives {
            return self.alive.clone();
        }
        let dead = reaped(&self.client);
        self.dead.push(dead.clone());
        dead
    }

    fn enlist(&mut self, lives: bool, max_runs: Option<u32>, sections: Vec<SectionId>) -> RunnerId {
        let id = fresh("n", |id| RunnerId::new(id).unwrap());
        let process = self.process(lives);
        let started = Stamp { lease: Lease(0), wall: Wall(0) };
        let address = Address(id.as_str().into());
        let runner = Runner {
            id: id.clone(),
            process,
            address,
            sections,
            max_runs,
            watching: Vec::new(),
            started,
            seen: Lease(0),
            terms: None,
            shortage: None,
        };
        self.run(RunRequest::Enlist { runner: Box::new(runner), limits: Limits { runs: self.limit, roots: self.roots } });
        if lives {
            self.living.insert(id.clone());
        }
        id
    }

    fn add(&mut self, section: Option<SectionId>, needs: Vec<Need>, depends_on: Vec<TaskId>, for_runner: bool) -> TaskId {
        let id = fresh("t", |id| TaskId::new(id).unwrap());
        let spec = Spec {
            section,
            priority: i32::try_from(self.dice.roll(3)).unwrap(),
            work: for_runner.then(|| Work::Run("true".into())),
            needs,
            ..Spec::new(Title::new(&format!("task {id}")).unwrap())
        };
        let allow_failed = self.dice.chance(4);
        let depends_on = depends_on.into_iter().map(|on| Edge { on, allow_failed }).collect();
        self.task(TaskRequest::Add { id: id.clone(), spec: Box::new(spec), depends_on, by: None });
        id
    }

    /// Tries to claim, as a runner does. Says whether that succeeded.
    fn claim(&mut self, runner: &RunnerId, task: &TaskId) -> bool {
        let spec = self.rows([Key::Task(task.clone())]).backlog.tasks[task].spec.clone();
        let run = fresh("r", |id| RunId::new(id).unwrap());
        let candidate = Candidate {
            task: task.clone(),
            run,
            section: spec.section,
            needs: spec.needs,
            is_guarded: spec.guarded,
            asks: Default::default(),
        };
        let (runner, candidates, seen) = (runner.clone(), vec![candidate], self.seen());
        let request = RunRequest::Claim { runner, room: 1, candidates, seen };
        matches!(self.run(request), RunOutcome::Claimed { started, .. } if started.len() == 1)
    }

    /// Ends a live run, whoever looks after it.
    fn finish(&mut self, run: &RunId) {
        let rows = self.rows([Key::Live]).backlog;
        let Some(run) = rows.runs.get(run) else { return };
        let what = banksman::engine::Work { run: run.clone(), task: rows.tasks[&run.task].clone() };
        let ending = ended(Ending::Exited(0), Wall(0), None);
        let (runner, marker, watch) = (run.owner.clone(), Marker::Absent, self.client.config().watch());
        let request = RunRequest::Finish { runner, what: Box::new(what), ending, marker, watch };
        assert!(matches!(self.run(request), RunOutcome::Finished(..)));
    }

    fn ask(&self, resource: &Resource, weight: u32, process: Option<&ProcessId>, ttl: Option<Span>, wait: Option<&ProcessId>) {
        let claim = GrantRequest {
            weight,
            ttl,
            processes: process.cloned().into_iter().collect(),
            ..GrantRequest::new(HolderId::new(&ids::short("h")).unwrap())
        };
        let wait = wait.map(|process| WaitingProcess { process: process.clone(), address: None, lease: None });
        let ask = Box::new(Ask { wait, ..Ask::new(claim) });
        let command = match resource.kind {
            Kind::Lock => Command::Lock(resource.name.clone(), lock::Input::Acquire(ask)),
            Kind::Semaphore => Command::Semaphore(resource.name.clone(), semaphore::Input::Acquire(ask)),
        };
        self.client.call(Request::plain(command)).unwrap();
    }

    /// Lets somebody have some of a resource, and perhaps others stand in line for it: dead or alive, with or without a
    /// lease, one that is over included.
    fn occupy(&mut self, resource: &Resource, weight: u32) {
        let process = [None, Some(true), Some(false)][self.dice.index(3)].map(|lives| self.process(lives));
        let ttl = match (self.dice.index(3), &process) {
            (0, _) => Some(Span::from_secs(3_600)),
            (1, None) => Some(Span::from_ms(1)),
            (_, _) => None,
        };
        self.ask(resource, weight, process.as_ref(), ttl, None);
        if ttl == Some(Span::from_ms(1)) {
            let start = self.rows([Key::Runners]).lease;
            let reader = std::cell::RefCell::new(self.client.reader().unwrap());
            let now = || reader.borrow_mut().view().load(&[Key::Runners].into()).unwrap().lease;
            until("the lease is over", || now() > start + Span::from_ms(2));
        }
        for _ in 0..self.dice.roll(3) {
            let lives = self.dice.chance(2);
            let process = self.process(lives);
            // What it gets may be bound to it or not.
            let bound = Some(&process).filter(|_| self.dice.chance(2));
            self.ask(resource, 1, bound, None, Some(&process));
        }
        // Released, it goes to the first in line, who has not taken it up yet.
        if self.dice.chance(3) {
            self.vacate_first(resource);
        }
    }

    fn forced() -> Forced {
        Forced { user: "test".into(), host: "here".into(), pid: 1 }
    }

    fn vacate_first(&mut self, resource: &Resource) {
        let command = match resource.kind {
            Kind::Lock => Command::Lock(resource.name.clone(), lock::Input::Force { by: Scene::forced() }),
            Kind::Semaphore => {
                let rows = self.rows([Key::Semaphore(resource.name.clone())]).coordination.semaphores;
                let Some(holder) = rows[&resource.name].holders.keys().next().cloned() else { return };
                Command::Semaphore(resource.name.clone(), semaphore::Input::Force { holder, by: Scene::forced() })
            }
        };
        self.client.call(Request::plain(command)).unwrap();
    }

    /// Sends everybody away from a resource.
    fn vacate(&mut self, resource: &Resource) {
        loop {
            let rows = self.rows([Key::Lock(resource.name.clone()), Key::Semaphore(resource.name.clone())]).coordination;
            let (holders, line) = match resource.kind {
                Kind::Lock => {
                    let Some(lock) = rows.locks.get(&resource.name) else { return };
                    let held = match &lock.state {
                        lock::State::Held(grant) => vec![grant.claim.holder.clone()],
                        lock::State::Free => Vec::new(),
                    };
                    (held, lock.waiters.clone())
                }
                Kind::Semaphore => {
                    let row = &rows.semaphores[&resource.name];
                    (row.holders.keys().cloned().collect(), row.waiters.clone())
                }
            };
            if let Some(waiter) = line.iter().next() {
                let command = match resource.kind {
                    Kind::Lock => Command::Lock(resource.name.clone(), lock::Input::Leave { ticket: waiter.ticket }),
                    Kind::Semaphore => {
                        Command::Semaphore(resource.name.clone(), semaphore::Input::Leave { ticket: waiter.ticket })
                    }
                };
                self.client.call(Request::plain(command)).unwrap();
                continue;
            }
            let Some(holder) = holders.first() else { return };
            match holder.as_str().strip_prefix("run:") {
                Some(run) => self.finish(&RunId::new(run).unwrap()),
                None => self.vacate_first(resource),
            }
        }
    }

    fn some_section(&mut self) -> Option<SectionId> {
        [None, Some(self.exclusive.clone()), Some(self.exclusive.clone()), Some(self.shared.clone())][self.dice.index(4)].clone()
    }

    fn some_needs(&mut self) -> Vec<Need> {
        let mut needs = Vec::new();
        if self.dice.chance(2) {
            needs.push(Need::Lock(name("db")));
        }
        if self.dice.chance(2) {
            needs.push(Need::Slots { name: name("gpu"), weight: 1 + u32::try_from(self.dice.roll(4)).unwrap() });
        }
        if self.dice.chance(8) {
            needs.push(Need::Slots { name: name("tpu"), weight: 1 });
        }
        needs
    }

    /// A task that another one may depend on, in any state.
    fn some_dependency(&mut self, depth: u32) -> TaskId {
        let below = if depth > 0 && self.dice.chance(2) { vec![self.some_dependency(depth - 1)] } else { Vec::new() };
        let for_runner = !self.dice.chance(5);
        let id = self.add(None, Vec::new(), below, for_runner);
        let verdict = Verdict::Done { output: None };
        match self.dice.roll(8) {
            0..=2 => self.task(TaskRequest::Conclude { id: id.clone(), epoch: None, by: None, verdict }),
            3 => {
                let verdict = Verdict::Failed { error: "it broke".into() };
                self.task(TaskRequest::Conclude { id: id.clone(), epoch: None, by: None, verdict });
            }
            4 => self.task(TaskRequest::Cancel { id: id.clone() }),
            5 => self.task(TaskRequest::Set { id: id.clone(), by: None, mark: Mark::Skipped }),
            6 => self.task(TaskRequest::Set { id: id.clone(), by: None, mark: Mark::Review }),
            _ => {}
        }
        id
    }

    /// Makes the world around a task, and the task itself.
    fn furnish(&mut self) -> TaskId {
        let define = semaphore::Input::Define(semaphore::Config { capacity: 3, ttl: None });
        self.client.ask(Command::Semaphore(name("gpu"), define), Vec::new()).unwrap();
        for _ in 0..self.dice.roll(4) {
            let sections = if self.dice.chance(3) { self.some_section().into_iter().collect() } else { Vec::new() };
            let max_runs = [None, Some(1), Some(2)][self.dice.index(3)];
            let lives = !self.dice.chance(3);
            let runner = self.enlist(lives, max_runs, sections);
            for _ in 0..self.dice.roll(3) {
                let (section, needs) = (self.some_section(), self.some_needs());
                let filler = self.add(section, needs, Vec::new(), true);
                self.claim(&runner, &filler);
            }
        }
        if self.dice.chance(2) {
            self.occupy(&Resource { kind: Kind::Lock, name: name("db") }, 1);
        }
        for _ in 0..self.dice.roll(3) {
            let weight = 1 + u32::try_from(self.dice.roll(3)).unwrap();
            self.occupy(&Resource { kind: Kind::Semaphore, name: name("gpu") }, weight);
        }
        let depends_on = (0..self.dice.roll(3)).map(|_| self.some_dependency(3)).collect();
        let (section, needs, for_runner) = (self.some_section(), self.some_needs(), !self.dice.chance(12));
        let task = self.add(section, needs, depends_on, for_runner);
        if self.dice.chance(6) {
            self.occupy(&Resource { kind: Kind::Lock, name: task.lock() }, 1);
        }
        task
    }

    /// Whether a living runner that works there and has room could claim the task. If one can, one does.
    fn claimable(&mut self, task: &TaskId) -> Option<RunnerId> {
        let rows = self.rows([Key::Task(task.clone()), Key::Live, Key::Runners]).backlog;
        let section = rows.tasks[task].spec.section.clone();
        let able: Vec<RunnerId> = rows
            .runners
            .values()
            .filter(|runner| self.living.contains(&runner.id))
            .filter(|runner| {
                runner.sections.is_empty() || section.as_ref().is_some_and(|section| runner.sections.contains(section))
            })
            .filter(|runner| {
                let runs = rows.runs.values().filter(|run| run.owner == runner.id).count();
                runner.max_runs.is_none_or(|max| runs < max as usize)
            })
            .map(|runner| runner.id.clone())
            .collect();
        able.into_iter().find(|runner| self.claim(runner, task))
    }

    fn why(&mut self, task: &TaskId) -> Answer {
        inspect::why(&mut self.reader, self.client.project(), task).unwrap().unwrap().answer
    }
}

/// Plays one situation to its end. Returns the kinds of causes that it had.
fn play(world: &World, seed: u64) -> BTreeSet<&'static str> {
    let mut scene = Scene::new(world, seed);
    let task = scene.furnish();
    let mut kinds = BTreeSet::new();
    let mut named: Option<BTreeSet<String>> = None;
    loop {
        let answer = scene.why(&task);
        // The places of roots go to those that came earlier, though the task itself could be claimed.
        let is_overtaken =
            matches!(&answer, Answer::Waits(causes) if causes.iter().any(|cause| kind(cause) == "behind earlier roots"));
        let claimed = if is_overtaken { None } else { scene.claimable(&task) };
        let causes = match &answer {
            Answer::Starting(runner) => {
                assert!(scene.living.contains(runner), "seed {seed}");
                assert!(claimed.is_some(), "seed {seed}: nothing is said to stand in the way, but it cannot be claimed");
                kinds.insert("starting");
                return kinds;
            }
            Answer::Waits(causes) => causes.clone(),
            other => panic!("seed {seed}: {other:?}"),
        };
        assert_eq!(claimed, None, "seed {seed}: {causes:#?} stands in the way, but it can be claimed");
        kinds.extend(causes.iter().map(kind));
        causes.iter().for_each(|cause| scene.verify(cause, &task));
        if causes.contains(&Cause::Manual) {
            let of_people = |cause: &Cause| ["by hand", "dependency", "task lock"].contains(&kind(cause));
            assert!(causes.iter().all(of_people), "seed {seed}: nobody who does it needs that: {causes:#?}");
        }
        let now: BTreeSet<String> = causes.iter().map(about).collect();
        if let Some(named) = &named {
            // What is taken away may let an earlier root begin, which then takes a place.
            let new: Vec<&String> = now.iter().filter(|cause| *cause != ROOTS && !named.contains(*cause)).collect();
            assert!(new.is_empty(), "seed {seed}: {new:?} was not named before: {named:?}");
        }
        let removable: Vec<&Cause> = causes.iter().filter(|cause| **cause != Cause::Manual).collect();
        if removable.is_empty() {
            return kinds;
        }
        let cause = removable[scene.dice.index(removable.len())];
        let gone = about(cause);
        scene.remove(cause);
        // Some take more than one step, such as more runs than there are slots.
        let still = match scene.why(&task) {
            Answer::Waits(causes) => causes.iter().any(|cause| about(cause) == gone),
            _ => false,
        };
        named = Some(now.into_iter().filter(|cause| still || *cause != gone).collect());
    }
}

#[test]
fn what_is_named_is_all_that_stands_in_the_way_and_nothing_else() {
    let seeds: u64 = std::env::var("BANKSMAN_TEST_SITUATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(150);
    let world = World::empty();
    let kinds: BTreeSet<&str> = (0..seeds).flat_map(|seed| play(&world, seed)).collect();
    let all = [
        "behind a line",
        "behind earlier roots",
        "by hand",
        "dependency",
        "full",
        "kept out of the section",
        "lock",
        "lock goes on",
        "never fits",
        "no runner",
        "no slot",
        "roots",
        "section busy",
        "slots",
        "starting",
        "task lock",
        "undefined",
        "works elsewhere",
    ];
    let missing: Vec<&str> = all.into_iter().filter(|kind| !kinds.contains(kind)).collect();
    assert!(missing.is_empty(), "never came up: {missing:?}");
}
