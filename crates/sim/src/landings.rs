//! Merge queues: the real engine and store, workers that are killed between any two steps, a branch that people move as
//! well, tasks whose work conflicts or fails the check, flaky checks, and red tips.
//!
//! Git is a model: the target is a list of commits, and a commit is good or bad. The checkers know nothing of the state
//! machine: they read that list, the rows of the tasks, and the event log.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::landing::{CommitId, Found, Input, Obstacle, Report, Terms, Work};
use banksman_core::resource::coordination::{Command, Outcome as Held};
use banksman_core::resource::grant::{Ask, GrantRequest, Term};
use banksman_core::resource::lock;
use banksman_core::task::{LandSpec, Spec, State, Work as What};
use banksman_core::{DecisionId, Epoch, HolderId, LandingId, Liveness, Name, ProcessId, Status, TaskId, Title};
use banksman_engine::{
    DecisionRequest, LandingOutcome, LandingRequest, LandingWorker, Reply, Request, Seen, TaskRequest, landing_queue,
};
use banksman_store::Key;

use crate::ground::{Ground, history};
use crate::mutation::LandingMutation;

/// How many workers there are, and how many of their steps are taken with faults.
const WORKERS: usize = 3;
const STEPS: usize = 400;

/// How many steps without faults must be enough to finish.
const QUIESCE_STEPS: usize = 4_000;

/// A commit of the target.
#[derive(Debug, Clone)]
struct Commit {
    id: CommitId,
    /// Whether the check passes on it.
    is_good: bool,
    /// The task whose work it is.
    task: Option<TaskId>,
    files: Files,
}

/// The files that a commit changes.
type Files = Vec<&'static str>;

const FILES: [&str; 4] = ["a", "b", "c", "d"];

/// The content of a task's worktree.
#[derive(Debug, Clone)]
struct WorkTree {
    source: Option<CommitId>,
    is_good: bool,
    files: Files,
    /// How many commits of the target its author has merged. It conflicts with later ones that change the same files.
    based_on: usize,
}

struct Worker {
    process: ProcessId,
    grant: Option<LandingWorker>,
    /// A result that it has not reported yet.
    report: Option<(LandingId, Report)>,
}

/// A history, and the model of it.
struct World<'g> {
    ground: &'g mut Ground,
    mutation: Option<LandingMutation>,
    target: Name,
    workers: Vec<Worker>,
    made: u64,
    branch: Vec<Commit>,
    candidates: BTreeMap<CommitId, (bool, Option<TaskId>)>,
    trees: BTreeMap<TaskId, WorkTree>,
    dead: Vec<ProcessId>,
    /// How many commits people have made.
    people: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LandingTally {
    /// How many tasks have landed.
    pub landed: usize,
    /// How many workers were killed.
    pub killed: usize,
}

/// Runs the history of one seed. Returns the violation of a rule, if there is one.
pub fn land_history(seed: u64, mutation: Option<LandingMutation>) -> Result<LandingTally, String> {
    history(seed, 0x1a4d << 16, |ground| {
        let first = Commit { id: commit_id(0), is_good: true, task: None, files: Vec::new() };
        let target = Name::new("main").expect("a valid name");
        let (workers, branch, dead) = (Vec::new(), vec![first], Vec::new());
        let (candidates, trees) = (BTreeMap::new(), BTreeMap::new());
        World { ground, mutation, target, workers, made: 0, branch, candidates, trees, dead, people: 0 }.run()
    })
}

fn commit_id(number: u64) -> CommitId {
    CommitId::new(&format!("{number:040x}")).expect("40 digits")
}

impl World<'_> {
    fn run(&mut self) -> Result<LandingTally, String> {
        let mut tally = LandingTally::default();
        for _ in 0..WORKERS {
            let worker = self.newborn();
            self.workers.push(worker);
        }
        for number in 0..2 + self.ground.random.below(6) {
            self.add(number)?;
        }
        for step in 0..STEPS + QUIESCE_STEPS {
            self.ground.is_quiescing = step >= STEPS;
            self.ground.clock.advance(self.ground.random.between(1, if self.ground.is_quiescing { 60_000 } else { 4_000 }));
            match self.ground.random.below(100) {
                0..6 if !self.ground.is_quiescing => {
                    let slot = self.ground.random.below(WORKERS);
                    self.kill(slot);
                    tally.killed += 1;
                }
                6..10 if !self.ground.is_quiescing => self.move_by_person(),
                10..20 => self.answer()?,
                20..32 => self.author()?,
                _ => {
                    let slot = self.ground.random.below(WORKERS);
                    self.work(slot)?;
                }
            }
            self.check()?;
            if self.ground.is_quiescing && self.is_over()? {
                break;
            }
        }
        if !self.is_over()? {
            let rows = self.ground.load([Key::OpenLandings])?;
            return Err(format!("something never ends: {:?}", rows.backlog.landings));
        }
        self.ground.compare_with_log()?;
        tally.landed = self.branch.iter().filter(|commit| commit.task.is_some()).count();
        Ok(tally)
    }

    fn newborn(&mut self) -> Worker {
        Worker { process: self.ground.newborn(), grant: None, report: None }
    }

    fn add(&mut self, number: usize) -> Result<(), String> {
        let id = TaskId::new(&format!("t{number}")).expect("a valid id");
        let land = LandSpec { target: self.target.clone(), unchecked: false, of_child: false };
        let title = Title::new(&format!("work {number}")).expect("a valid title");
        let work = What::shell("true").expect("a command");
        let spec = Spec { work: Some(work), land: Some(Box::new(land)), ..Spec::new(title) };
        self.ground.call(Request::Task(TaskRequest::Add {
            id: id.clone(),
            spec: Box::new(spec),
            depends_on: Vec::new(),
            by: None,
        }))?;
        let files = self.some_files();
        let tree = WorkTree { source: None, is_good: self.ground.random.in_thousand(700), files, based_on: self.branch.len() };
        self.trees.insert(id, tree);
        Ok(())
    }

    /// Random files, which other commits often change as well.
    fn some_files(&mut self) -> Files {
        FILES.into_iter().filter(|_| self.ground.random.in_thousand(300)).collect()
    }

    fn task(&mut self, id: &TaskId) -> Result<(Status, State), String> {
        let rows = self.ground.load([Key::Task(id.clone())])?;
        let task = &rows.backlog.tasks[id];
        Ok((task.status(), task.state.clone()))
    }

    /// An author works on a task that is not in the queue, and lands it: a second attempt mostly repairs everything.
    fn author(&mut self) -> Result<(), String> {
        let ids: Vec<TaskId> = self.trees.keys().cloned().collect();
        let id = self.ground.random.pick(&ids).clone();
        let (_, state) = self.task(&id)?;
        if !matches!(state, State::Pending | State::Review) {
            return Ok(());
        }
        self.made += 1;
        let source = commit_id(0x100_0000 + self.made);
        let (improves, is_empty) = (
            self.ground.is_quiescing || self.ground.random.in_thousand(700),
            self.ground.random.in_thousand(100) && !self.ground.is_quiescing,
        );
        let tree = self.trees.get_mut(&id).expect("every task has one");
        if tree.source.is_some() && improves {
            (tree.is_good, tree.based_on) = (true, self.branch.len());
        }
        tree.source = (!is_empty).then_some(source);
        let to = LandSpec { target: self.target.clone(), unchecked: false, of_child: false };
        self.ground.call(Request::Task(TaskRequest::Land { id, by: None, to }))?;
        Ok(())
    }

    /// A person commits to the target: a good commit, or one that breaks it for a while.
    fn move_by_person(&mut self) {
        let is_good = self.ground.random.in_thousand(850);
        self.commit_by_person(is_good);
    }

    fn commit_by_person(&mut self, is_good: bool) {
        (self.made, self.people) = (self.made + 1, self.people + 1);
        let files = if self.ground.random.in_thousand(300) { self.some_files() } else { Vec::new() };
        self.branch.push(Commit { id: commit_id(0x900_0000 + self.made), is_good, task: None, files });
    }

    /// A person answers a question about a landing: retry after the tip is repaired, back to the author, or out of the
    /// queue.
    fn answer(&mut self) -> Result<(), String> {
        let rows = self.ground.load([Key::OpenDecisions])?;
        let open: Vec<(DecisionId, usize)> =
            rows.backlog.decisions.values().map(|decision| (decision.id.clone(), decision.question.options.len())).collect();
        let Some((id, options)) = open.first().cloned() else { return Ok(()) };
        let about = rows.backlog.decisions[&id].question.about.clone();
        if options == 1 && !self.branch.last().is_some_and(|tip| tip.is_good) {
            // The tip is red: a person repairs it first.
            self.commit_by_person(true);
        }
        let option = if options == 1 || self.ground.is_quiescing {
            1
        } else {
            u32::try_from(1 + self.ground.random.below(options)).expect("few")
        };
        self.ground.call(Request::Decision(DecisionRequest { id, about, option, by: "ann".into(), note: None, run: None }))?;
        Ok(())
    }

    fn kill(&mut self, slot: usize) {
        let newborn = self.newborn();
        let killed = std::mem::replace(&mut self.workers[slot], newborn);
        self.dead.push(killed.process);
    }

    /// One step of a worker: take the lock, do the next piece of work, or report its result.
    fn work(&mut self, slot: usize) -> Result<(), String> {
        let Some(grant) = self.workers[slot].grant.clone() else { return self.take_lock(slot) };
        if let Some((entry, report)) = self.workers[slot].report.take() {
            let (target, input) = (self.target.clone(), Input::Report(entry, report));
            let reply = self.ground.call(LandingRequest { target, input, worker: Some(grant) })?;
            if let Reply::Landing(LandingOutcome::Fenced) = reply {
                self.workers[slot].grant = None;
            }
            return Ok(());
        }
        let rows = self.ground.load([Key::LandingQueue(self.target.clone())])?;
        let queue = landing_queue(&self.target, &rows.backlog);
        let work = queue.next("", rows.lease);
        if matches!(work, Work::Nothing | Work::Sleep(_)) {
            return self.release(slot);
        }
        let report = self.act(work)?;
        self.workers[slot].report = Some(report);
        Ok(())
    }

    /// The result of a piece of work. Its effect is immediate; its report comes later or never.
    fn act(&mut self, work: Work) -> Result<(LandingId, Report), String> {
        if !self.ground.is_quiescing && self.ground.random.in_thousand(30) {
            let (Work::Collect(entry)
            | Work::Build(entry)
            | Work::Check { entry, .. }
            | Work::CheckTip { entry, .. }
            | Work::Move { entry, .. }) = work
            else {
                return Err("there is nothing to do".into());
            };
            return Ok((entry.id, Report::Obstructed(Obstacle::Failure { error: "no space".into() })));
        }
        let tip = self.branch.last().cloned().expect("a branch has a tip");
        let log: Box<str> = "log".into();
        Ok(match work {
            Work::Collect(entry) => {
                let tree = &self.trees[entry.spec.task.as_ref().expect("only tasks are collected")];
                let found = match &tree.source {
                    Some(source) => Found::Commit { source: source.clone(), branch: None },
                    None => Found::Nothing,
                };
                (entry.id, Report::Collected { found, terms: Terms { rounds: 2, ask_on_conflict: false } })
            }
            Work::Build(entry) => {
                let task = entry.spec.task.clone();
                let tree = task.as_ref().and_then(|task| self.trees.get(task)).cloned().ok_or("no such task")?;
                let later: Files = self.branch.iter().skip(tree.based_on).flat_map(|commit| commit.files.clone()).collect();
                let conflicts = tree.files.iter().filter(|file| later.contains(file)).map(|file| (*file).into());
                let files: Vec<Box<str>> = conflicts.collect();
                if !files.is_empty() {
                    return Ok((entry.id, Report::Conflict { tip: tip.id, files }));
                }
                self.made += 1;
                let commit = commit_id(0x200_0000 + self.made);
                self.candidates.insert(commit.clone(), (tree.is_good && tip.is_good, task));
                (entry.id, Report::Built { tip: tip.id, commit })
            }
            Work::Check { entry, commit } => {
                let passes = self.candidates[&commit].0;
                // A flaky check fails at random.
                let is_flaky = !self.ground.is_quiescing && self.ground.random.in_thousand(100);
                let passed = self.mutation == Some(LandingMutation::SkipsCheck) || (passes && !is_flaky);
                (entry.id, Report::Checked { commit, passed, log })
            }
            Work::CheckTip { entry, tip } => {
                let passed = self.branch.iter().find(|commit| commit.id == tip).is_some_and(|commit| commit.is_good);
                (entry.id, Report::TipChecked { tip, passed, log })
            }
            Work::Move { entry, tip: from, commit } => (entry.id, self.move_target(&from, commit)),
            Work::Sleep(_) | Work::Nothing => return Err("there is nothing to do".into()),
        })
    }

    fn move_target(&mut self, from: &CommitId, commit: CommitId) -> Report {
        let is_there = self.branch.iter().any(|known| known.id == commit) && self.mutation != Some(LandingMutation::ForgetsMove);
        let is_tip = self.branch.last().is_some_and(|tip| tip.id == *from) || self.mutation == Some(LandingMutation::MovesAnyway);
        if self.mutation == Some(LandingMutation::ReportsTooSoon) && self.ground.random.in_thousand(300) {
            return Report::Moved { commit };
        }
        if !is_there && !is_tip {
            return Report::TipMoved;
        }
        if !is_there {
            let (is_good, task) = self.candidates[&commit].clone();
            // A move from another tip drops the commits after it.
            if let Some(at) = self.branch.iter().position(|known| known.id == *from) {
                self.branch.truncate(at + 1);
            }
            let files = task.as_ref().map(|task| self.trees[task].files.clone()).unwrap_or_default();
            self.branch.push(Commit { id: commit.clone(), is_good, task, files });
        }
        Report::Moved { commit }
    }

    fn take_lock(&mut self, slot: usize) -> Result<(), String> {
        let process = self.workers[slot].process.clone();
        let holder = HolderId::new(&format!("w{}", process.pid)).expect("a valid name");
        let claim = GrantRequest { processes: vec![process], ..GrantRequest::new(holder.clone()) };
        let ask = Box::new(Ask { term: Term::Open, ..Ask::new(claim) });
        let name = banksman_core::landing::Target::lock(&self.target).expect("a short name");
        let probes = self.dead.iter().map(|process| (process.clone(), Liveness::Dead)).collect();
        let command = Command::Lock(name, lock::Input::Acquire(ask));
        let reply = self.ground.call(Request::Coordinate { command, seen: Seen { probes, ..Seen::default() } })?;
        if let Reply::Coordinate {
            outcome: Held::Lock(lock::Outcome::Acquired(grant) | lock::Outcome::Reclaimed { grant, .. }),
            ..
        } = reply
        {
            self.workers[slot].grant = Some(LandingWorker { holder, epoch: grant.epoch });
        }
        Ok(())
    }

    fn release(&mut self, slot: usize) -> Result<(), String> {
        let Some(LandingWorker { holder, epoch }) = self.workers[slot].grant.take() else { return Ok(()) };
        let name = banksman_core::landing::Target::lock(&self.target).expect("a short name");
        let command = Command::Lock(name, lock::Input::Release { holder, epoch: Epoch(epoch.0) });
        self.ground.call(Request::Coordinate { command, seen: Seen::default() })?;
        Ok(())
    }

    /// Whether every task has landed.
    fn is_over(&mut self) -> Result<bool, String> {
        let ids: Vec<TaskId> = self.trees.keys().cloned().collect();
        for id in ids {
            if self.task(&id)?.0 != Status::Completed {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The rules that hold after every step.
    fn check(&mut self) -> Result<(), String> {
        let mut landed = BTreeSet::new();
        for commit in &self.branch {
            if let Some(task) = &commit.task {
                if !commit.is_good {
                    return Err(format!("{task} has landed as {}, on which the check fails", commit.id.short()));
                }
                if !landed.insert(task.clone()) {
                    return Err(format!("{task} has landed twice"));
                }
            }
        }
        let people = self.branch.iter().filter(|commit| commit.task.is_none()).count();
        if people != 1 + self.people {
            return Err(format!("people have made {} commits, and {people} are there", 1 + self.people));
        }
        let ids: Vec<TaskId> = self.trees.keys().cloned().collect();
        let rows = self.ground.load([Key::OpenLandings])?;
        for id in ids {
            let (status, _) = self.task(&id)?;
            if status == Status::Completed && !landed.contains(&id) {
                return Err(format!("{id} is completed, and its work is not on the target"));
            }
            let is_waited_for =
                rows.backlog.landing_targets.values().any(|target| target.resolving.iter().any(|of| of.task == id));
            if is_waited_for && !matches!(status, Status::Pending | Status::Landing) {
                return Err(format!("{id} is {status}, and others wait until its author has resolved a conflict"));
            }
        }
        Ok(())
    }
}
