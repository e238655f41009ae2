//! A project in memory, and the facts that the test knows because it has made them.

use std::collections::BTreeSet;

use banksman_core::backlog::{Edge, Runner};
use banksman_core::event::{Forced, Kind, Resource};
use banksman_core::resource::coordination::Command;
use banksman_core::resource::grant::{Address, Ask, GrantRequest, WaitingProcess};
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::task::retry::Marker;
use banksman_core::task::{Need, OnExhausted, RunEnd, Spec, State, Watch, Work};
use banksman_core::{
    HolderId, Lease, Limits, LimitsChange, Liveness, Name, ProcessId, RunId, RunnerId, SectionId, Span, Stamp, TaskId, Title,
    Wall, WorkClaim,
};
use banksman_engine::why::{self, Answer, Situation};
use banksman_engine::{
    Claim, Claimed, Reply, Request, RunOutcome, RunRequest, SectionRequest, Seen, Taking, TaskOutcome, TaskRequest, TypedRequest,
    ended,
};
use banksman_store::test_support::ManualMachine;
use banksman_store::{Call, Key, Snapshot, Store, Tables, Tx, sqlite};

use crate::dice::Dice;

/// Restricts a claim to one task: earlier tasks are hidden from it.
struct Only {
    request: Request,
    task: Option<TaskId>,
}

impl Call for Only {
    type Reply = Reply;

    fn keys(&self) -> Vec<Key> {
        let own = |task: &TaskId| [Key::Task(task.clone()), Key::Lock(task.lock()), Key::Dependencies(task.clone())];
        self.request.keys().into_iter().chain(self.task.iter().flat_map(own)).collect()
    }

    fn follow(&self, loaded: &Tables) -> Vec<Key> {
        self.request.follow(&self.restricted(loaded.clone()))
    }

    fn decide(&self, tx: &mut Tx) -> Reply {
        tx.tables = self.restricted(std::mem::take(&mut tx.tables));
        self.request.decide(tx)
    }

    fn settle(tx: &mut Tx) {
        Request::settle(tx);
    }
}

impl Only {
    fn restricted(&self, mut rows: Tables) -> Tables {
        if let Some(task) = &self.task {
            let is_ready = rows.backlog.unmet(task) == 0;
            rows.ready = is_ready.then(|| task.clone()).into_iter().collect();
            rows.parked_on.clear();
        }
        rows
    }
}

/// A project in memory, and the facts that the test knows because it has made them.
pub(super) struct Scene {
    pub(super) store: Store,
    clock: ManualMachine,
    pub(super) dice: Dice,
    /// Dead processes, each with its own id: a probe of one says nothing about the next. All others are alive.
    dead: BTreeSet<ProcessId>,
    ids: u32,
    limit: u32,
    /// The limit of roots under way.
    roots: u32,
    /// Draws the limits and their changes.
    pub(super) places: Dice,
    /// Live runners.
    pub(super) living: BTreeSet<RunnerId>,
    pub(super) exclusive: SectionId,
    shared: SectionId,
}

pub(super) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

impl Scene {
    pub(super) fn new(seed: u64) -> Scene {
        let clock = ManualMachine::default();
        let store = sqlite::memory(Box::new(clock.clone())).unwrap();
        let (mut dice, mut places) = (Dice::new(seed), Dice::new(seed ^ 0x2545_f491_4f6c_dd1d));
        let (limit, roots) = ([0, 0, 1, 2, 3][dice.index(5)], [0, 0, 0, 1, 2, 3][places.index(6)]);
        let [exclusive, shared] = ["s-exclusive", "s-shared"].map(|id| SectionId::new(id).unwrap());
        let (dead, living) = (BTreeSet::new(), BTreeSet::new());
        let mut scene = Scene { store, clock, dice, dead, ids: 0, limit, roots, places, living, exclusive, shared };
        for (id, exclusive) in [(scene.exclusive.clone(), true), (scene.shared.clone(), false)] {
            let name = Title::new(id.as_str()).unwrap();
            scene.call(Request::Section(SectionRequest::Add { id, name, exclusive }));
        }
        scene
    }

    fn fresh(&mut self, prefix: &str) -> String {
        self.ids += 1;
        format!("{prefix}-{}", self.ids)
    }

    pub(super) fn call(&mut self, request: Request) -> Reply {
        self.store.begin(&[request]).unwrap().commit().unwrap().replies.remove(0)
    }

    pub(super) fn request<R: TypedRequest>(&mut self, request: R) -> R::Reply {
        R::reply(self.call(request.into())).unwrap()
    }

    pub(super) fn command(&mut self, command: Command) -> Reply {
        self.call(Request::plain(command))
    }

    fn limits(&self) -> Limits {
        Limits { runs: self.limit, roots: self.roots }
    }

    pub(super) fn set_limits(&mut self, change: LimitsChange) {
        let seed = self.limits();
        self.call(Request::SetLimits { change, seed });
    }

    pub(super) fn rows(&mut self, keys: impl IntoIterator<Item = Key>) -> Snapshot {
        self.store.view().load(&keys.into_iter().collect()).unwrap()
    }

    pub(super) fn everything(&mut self) -> Snapshot {
        self.store.view().everything().unwrap()
    }

    pub(super) fn seen(&self) -> Seen {
        let probes = self.dead.iter().map(|process| (process.clone(), Liveness::Dead)).collect();
        Seen { probes, ..Seen::default() }
    }

    pub(super) fn advance(&self, ms: i64) {
        self.clock.advance(ms);
    }

    pub(super) fn process(&mut self, lives: bool) -> ProcessId {
        self.ids += 1;
        let pid = i32::try_from(self.ids).unwrap();
        let process = ProcessId { host: "host".into(), boot: "boot".into(), pid_ns: 1, pid, start: 1 };
        if !lives {
            self.dead.insert(process.clone());
        }
        process
    }

    pub(super) fn enlist(&mut self, lives: bool, max_runs: Option<u32>, sections: Vec<SectionId>) -> RunnerId {
        let id = RunnerId::new(&self.fresh("n")).unwrap();
        let process = self.process(lives);
        let started = Stamp { lease: Lease(0), wall: Wall(0) };
        let address = Address(id.as_str().into());
        let (until_idle, idle, woken, has_duty) = (false, None, None, false);
        let (seen, terms, shortage) = (Lease(0), None, None);
        let runner = Runner {
            id: id.clone(),
            process,
            address,
            sections,
            max_runs,
            started,
            until_idle,
            idle,
            woken,
            has_duty,
            seen,
            terms,
            shortage,
        };
        let limits = self.limits();
        self.request(RunRequest::Enlist { runner: Box::new(runner), limits });
        if lives {
            self.living.insert(id.clone());
        }
        id
    }

    pub(super) fn add(
        &mut self,
        section: Option<SectionId>,
        needs: Vec<Need>,
        depends_on: Vec<TaskId>,
        for_runner: bool,
    ) -> TaskId {
        let id = TaskId::new(&self.fresh("t")).unwrap();
        let spec = Spec {
            section,
            priority: i32::try_from(self.dice.roll(3)).unwrap(),
            work: for_runner.then(|| Work::Run("true".into())),
            needs,
            ..Spec::new(Title::new(&format!("task {id}")).unwrap())
        };
        let allow_failed = self.dice.chance(4);
        let depends_on = depends_on.into_iter().map(|on| Edge { on, allow_failed }).collect();
        self.request(TaskRequest::Add { id: id.clone(), spec: Box::new(spec), depends_on, by: None });
        id
    }

    /// Claims a task as a runner does. Returns whether that succeeded.
    pub(super) fn claim(&mut self, runner: &RunnerId, task: &TaskId) -> bool {
        self.claim_only(runner, Some(task), 1).started.len() == 1
    }

    /// Lets pipelines begin, without room for a run.
    pub(super) fn begin_pipelines(&mut self, runner: &RunnerId) {
        self.claim_only(runner, None, 0);
    }

    fn claim_only(&mut self, runner: &RunnerId, task: Option<&TaskId>, room: usize) -> Claimed {
        let runs = (0..room).map(|_| RunId::new(&self.fresh("r")).unwrap()).collect();
        let (runner, seen, sections, checked) = (runner.clone(), self.seen(), Vec::new(), Vec::new());
        let claim = Box::new(Claim { runner, room, head: 8, runs, sections, checked, seen });
        let only = Only { request: Request::Run(RunRequest::Claim(claim)), task: task.cloned() };
        match self.store.begin(&[only]).unwrap().commit().unwrap().replies.remove(0) {
            Reply::Run(RunOutcome::Claimed(claimed)) => *claimed,
            reply => panic!("{reply:?}"),
        }
    }

    /// Ends a live run, whichever runner owns it.
    pub(super) fn finish(&mut self, run: &RunId) {
        let rows = self.rows([Key::Live]).tables.backlog;
        let Some(run) = rows.runs.get(run) else { return };
        let what = banksman_engine::Work { run: run.clone(), task: rows.tasks[&run.task].clone() };
        let ending = ended(RunEnd::Exited(0), Wall(0), None);
        let watch = Watch { timeout: Span::from_secs(60), max_recoveries: 3, on_exhausted: OnExhausted::Fail };
        let (runner, marker) = (run.owner.clone(), Marker::Absent);
        let request = RunRequest::Finish { runner, what: Box::new(what), ending, marker, watch };
        assert!(matches!(self.request(request), RunOutcome::Finished(..)));
    }

    pub(super) fn ask(
        &mut self,
        resource: &Resource,
        weight: u32,
        process: Option<&ProcessId>,
        ttl: Option<Span>,
        wait: Option<&ProcessId>,
    ) {
        let holder = HolderId::new(&self.fresh("h")).unwrap();
        let claim = GrantRequest { weight, ttl, processes: process.cloned().into_iter().collect(), ..GrantRequest::new(holder) };
        let wait = wait.map(|process| WaitingProcess { process: process.clone(), address: None, lease: None });
        let ask = Box::new(Ask { wait, ..Ask::new(claim) });
        self.command(match resource.kind {
            Kind::Lock => Command::Lock(resource.name.clone(), lock::Input::Acquire(ask)),
            Kind::Semaphore => Command::Semaphore(resource.name.clone(), semaphore::Input::Acquire(ask)),
        });
    }

    /// A person claims a task with all that it needs. With `wait`, the person waits; others may overtake for the given time.
    pub(super) fn take(&mut self, task: &TaskId, ttl: Span, wait: Option<(ProcessId, Span)>) -> TaskOutcome {
        let spec = self.rows([Key::Task(task.clone())]).backlog.tasks[task].spec.clone();
        let holder = HolderId::new(&self.fresh("ann")).unwrap();
        let waiting_process = |process| WaitingProcess { process, address: None, lease: None };
        let taking = Taking {
            section: spec.section,
            needs: spec.needs,
            wait: wait.map(|(process, overtake)| (waiting_process(process), overtake)),
            seen: self.seen(),
            ..Taking::new(holder, ttl)
        };
        self.request(TaskRequest::Take { id: task.clone(), taking: Box::new(taking) })
    }

    /// Ends the claim of a person on a task: the person releases it, or a runner removes the expired claim.
    pub(super) fn end_claim(&mut self, task: &TaskId) {
        let rows = self.rows([Key::Task(task.clone())]);
        let State::Manual { holder, epoch, until } = rows.backlog.tasks[task].state.clone() else { return };
        if until.is_some_and(|until| until <= rows.lease) {
            let seen = self.seen();
            self.request(RunRequest::MakeReady { rested: Vec::new(), left: vec![task.clone()], seen });
        } else {
            self.request(TaskRequest::GiveBack { id: task.clone(), by: Some(holder), epoch: Some(epoch) });
        }
    }

    /// The claims that wait for a resource.
    pub(super) fn waiting(&mut self, resource: &Resource) -> Vec<WorkClaim> {
        let claims = self.everything().tables.coordination.claims.into_values();
        claims.filter(|claim| claim.waits().is_some() && claim.wants(resource)).collect()
    }

    /// Removes a waiting claim.
    pub(super) fn dismiss(&mut self, claim: &WorkClaim) {
        let resources = claim.parts.iter().map(|part| part.resource.clone()).collect();
        self.request(TaskRequest::Leave { ticket: claim.ticket, resources, seen: None });
    }

    pub(super) fn vacate_first(&mut self, resource: &Resource) {
        let by = Forced { user: "test".into(), host: "here".into(), pid: 1 };
        let command = match resource.kind {
            Kind::Lock => Command::Lock(resource.name.clone(), lock::Input::Force { by }),
            Kind::Semaphore => {
                let rows = self.rows([Key::Semaphore(resource.name.clone())]).tables.coordination.semaphores;
                let Some(holder) = rows[&resource.name].holders.keys().next().cloned() else { return };
                Command::Semaphore(resource.name.clone(), semaphore::Input::Force { holder, by })
            }
        };
        self.command(command);
    }

    pub(super) fn some_section(&mut self) -> Option<SectionId> {
        [None, Some(self.exclusive.clone()), Some(self.exclusive.clone()), Some(self.shared.clone())][self.dice.index(4)].clone()
    }

    pub(super) fn some_needs(&mut self) -> Vec<Need> {
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

    pub(super) fn why(&mut self, task: &TaskId) -> Answer {
        let limits = self.limits();
        let why::Rows { snapshot, before } = why::read(&mut self.store.view(), task, limits).unwrap().unwrap();
        let liveness = |process: &ProcessId| if self.dead.contains(process) { Liveness::Dead } else { Liveness::Alive };
        let probes = why::processes(&snapshot).into_iter().map(|process| (process.clone(), liveness(&process))).collect();
        Situation::new(&snapshot, &probes).why(task, &before).unwrap().answer
    }
}
