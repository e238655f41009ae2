//! Random situations: runners, runs, people with locks and claims, and one task among them.

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::Command;
use banksman_core::resource::semaphore;
use banksman_core::task::{Mark, Outcome, Verdict};
use banksman_core::{RunnerId, Span, TaskId};
use banksman_engine::{TaskOutcome, TaskRequest};
use banksman_store::Key;

use super::scene::{Scene, name};

impl Scene {
    /// Adds a holder of a resource, and sometimes waiters: dead or alive, with or without a lease, which may have expired.
    fn occupy(&mut self, resource: &Resource, weight: u32) {
        let process = [None, Some(true), Some(false)][self.dice.index(3)].map(|lives| self.process(lives));
        let ttl = match (self.dice.index(3), &process) {
            (0, _) => Some(Span::from_secs(3_600)),
            (1, None) => Some(Span::from_ms(1)),
            (_, _) => None,
        };
        self.ask(resource, weight, process.as_ref(), ttl, None);
        if ttl == Some(Span::from_ms(1)) {
            self.advance(2);
        }
        for _ in 0..self.dice.roll(3) {
            let lives = self.dice.chance(2);
            let process = self.process(lives);
            // Its grant may be bound to the process or not.
            let bound = Some(&process).filter(|_| self.dice.chance(2));
            self.ask(resource, 1, bound, None, Some(&process));
        }
        // A released resource goes to the first waiter, who has not taken it up yet.
        if self.dice.chance(3) {
            self.vacate_first(resource);
        }
    }

    /// Adds people who work on tasks of their own or wait for what these need: some of them for so long that it is reserved for them.
    fn some_people(&mut self) {
        for _ in 0..self.dice.roll(4) {
            let (section, needs, for_runner) = (self.some_section(), self.some_needs(), self.dice.chance(2));
            let task = self.add(section, needs, Vec::new(), for_runner);
            self.some_claim(&task);
        }
    }

    /// A person claims a task, or waits for it. Some die while they wait, and some claims expire.
    fn some_claim(&mut self, task: &TaskId) {
        let is_brief = self.dice.chance(5);
        let ttl = if is_brief { Span::from_ms(1) } else { Span::from_secs(3_600) };
        let lives = !self.dice.chance(4);
        let wait = self.dice.chance(2).then(|| self.process(lives));
        let overtake = if self.dice.chance(3) { Span::from_secs(60) } else { Span::ZERO };
        self.take(task, ttl, wait.map(|process| (process, overtake)));
        if is_brief {
            self.advance(2);
        }
    }

    /// Adds a task, in any state, for another one to depend on.
    fn some_dependency(&mut self, depth: u32) -> TaskId {
        let below = if depth > 0 && self.dice.chance(2) { vec![self.some_dependency(depth - 1)] } else { Vec::new() };
        let for_runner = !self.dice.chance(5);
        let id = self.add(None, Vec::new(), below, for_runner);
        let verdict = Verdict::Done { output: None };
        match self.dice.roll(8) {
            0..=2 => drop(self.request(TaskRequest::Conclude { id: id.clone(), epoch: None, by: None, verdict })),
            3 => {
                let verdict = Verdict::Failed { error: "it broke".into() };
                self.request(TaskRequest::Conclude { id: id.clone(), epoch: None, by: None, verdict });
            }
            4 => drop(self.request(TaskRequest::Cancel { id: id.clone() })),
            5 => drop(self.request(TaskRequest::Set { id: id.clone(), by: None, epoch: None, mark: Mark::Skipped })),
            6 => drop(self.request(TaskRequest::Set { id: id.clone(), by: None, epoch: None, mark: Mark::Review })),
            _ => {}
        }
        id
    }

    /// Makes the surroundings of a task, and the task itself.
    pub(super) fn furnish(&mut self) -> TaskId {
        let define = semaphore::Input::Define(semaphore::Config { capacity: 3, ttl: None });
        self.command(Command::Semaphore(name("gpu"), define));
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
        self.some_people();
        let depends_on = (0..self.dice.roll(3)).map(|_| self.some_dependency(3)).collect();
        let (section, needs, for_runner) = (self.some_section(), self.some_needs(), !self.dice.chance(12));
        let task = self.add(section, needs, depends_on, for_runner);
        if self.dice.chance(6) {
            self.occupy(&Resource { kind: Kind::Lock, name: task.lock() }, 1);
        } else if self.dice.chance(5) {
            self.some_claim(&task);
        }
        task
    }

    /// The living runner of its section with room that can claim the task, if there is one. That runner claims it.
    pub(super) fn claimable(&mut self, task: &TaskId) -> Option<RunnerId> {
        let rows = self.rows([Key::Task(task.clone()), Key::Live, Key::Runners]).tables.backlog;
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

    /// Whether a person can work on the task right now. If so, the person claims it.
    pub(super) fn takeable(&mut self, task: &TaskId) -> bool {
        matches!(self.take(task, Span::from_secs(3_600), None), TaskOutcome::Stepped(Outcome::Taken, _))
    }
}
