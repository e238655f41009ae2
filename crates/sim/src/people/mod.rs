//! Claims: people who claim tasks with everything that they need while they hold other resources, renew, give up and
//! are killed, beside runners with exclusive sections whose runs are adopted; limits that change, locks that are
//! forced, tasks that are deleted.
//!
//! * `person`: the actors. `checks`, `circles`, `overtaking`: the rules after every commit. `stopped`: whether others
//!   get past stopped processes. `explanation`: whether `why` names the true cause. The checkers read rows and events
//!   alone; they call none of the functions that they check.

mod checks;
mod circles;
mod explanation;
mod overtaking;
mod person;
mod stopped;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use banksman_core::event::{Forced, Kind, Resource};
use banksman_core::resource::coordination::Command;
use banksman_core::resource::grant::{Address, Grant};
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::task::{Need, OnExhausted, Spec, Watch, Work};
use banksman_core::{HolderId, Limits, LimitsChange, Liveness, Name, ProcessId, RunId, RunnerId, SectionId, Span, TaskId};
use banksman_engine::{Options, Request, SectionRequest, Seen, TaskRequest};
use banksman_store::Snapshot;

use self::checks::grants;
pub(crate) use self::person::Person;
use crate::backlog::runner::POLL;
use crate::clock::{HOST, Ms};
use crate::commit::{CommittedCall, InFlight, Sender};
use crate::world::World;

const PEOPLE: usize = 4;
const RUNNERS: usize = 2;
const TASKS: usize = 7;

/// The locks and the semaphore that tasks need.
const LOCKS: [&str; 2] = ["la", "lb"];
const SEMAPHORE: &str = "sa";

/// The people of a history, and the model of their claims.
#[derive(Default)]
pub(crate) struct People {
    pub(crate) persons: Vec<Person>,
    /// How many shells there have been.
    shells: u32,
    tasks: Vec<(TaskId, Spec)>,
    /// When limits are changed, locks forced, tasks replaced or explanations checked next.
    disturbed_at: Ms,
    /// All rows since the last commit.
    rows: Option<Rc<Snapshot>>,
    /// Live runs whose runner is dead, and since when.
    orphans: BTreeMap<RunId, Ms>,
    /// The waits that are held up by stopped processes alone, and since when.
    held_up: BTreeMap<String, Ms>,
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a plain word")
}

fn sections() -> [SectionId; 2] {
    ["s1", "s2"].map(|id| SectionId::new(id).expect("a plain word"))
}

impl World<'_> {
    pub(crate) fn has_people(&self) -> bool {
        !self.people.persons.is_empty()
    }

    pub(crate) fn set_up_people(&mut self) {
        (self.limit, self.root_limit, self.has_workers) = (0, 0, false);
        self.rule_out_shortage();
        let define = semaphore::Input::Define(semaphore::Config { capacity: 2, ttl: None });
        self.operate(Request::plain(Command::Semaphore(name(SEMAPHORE), define)));
        for id in sections() {
            let title = id.as_str().parse().expect("a plain word");
            self.operate(Request::Section(SectionRequest::Add { id, name: title, exclusive: true }));
        }
        for _ in 0..TASKS {
            let task = self.add_claimed_task();
            self.people.tasks.push(task);
        }
        for _ in 0..PEOPLE {
            let person = self.new_person(0);
            self.people.persons.push(person);
        }
        for slot in 0..RUNNERS {
            let options = self.runner_options();
            self.start_runner(slot, options);
        }
    }

    fn new_person(&mut self, from: Ms) -> Person {
        self.people.shells += 1;
        Person::new(self.machine.fork(), self.people.shells, from)
    }

    /// A waiting process is stopped for a while, and may be woken in vain.
    fn stop_person(&mut self) {
        let index = self.random.below(PEOPLE);
        let until = self.clock.now() + self.random.between(1_000, 40_000);
        if self.people.persons[index].stop(until) {
            self.tally.count("waiting processes stopped");
        }
    }

    /// Runners beside people have long timeouts, and take any task.
    pub(crate) fn options_beside_people(&self) -> Options {
        let watch = Watch { timeout: Span::from_secs(60), max_recoveries: 3, on_exhausted: OnExhausted::Fail };
        Options { kill_patience: Span::from_secs(3), poll: POLL, ..Options::new(watch) }
    }

    fn add_claimed_task(&mut self) -> (TaskId, Spec) {
        let mut needs = Vec::new();
        for lock in LOCKS {
            needs.extend(self.random.in_thousand(350).then(|| Need::Lock(name(lock))));
        }
        let weight = 1 + u32::from(self.random.in_thousand(400));
        needs.extend(self.random.in_thousand(350).then(|| Need::Slots { name: name(SEMAPHORE), weight }));
        let section = self.random.in_thousand(650).then(|| self.random.pick(&sections()).clone());
        self.counts.tasks += 1;
        let id = TaskId::new(&format!("t{}", self.counts.tasks)).expect("a plain word");
        let title = id.as_str().parse().expect("a plain word");
        let spec = Spec { section, needs, work: Some(Work::Run("true".into())), ..Spec::new(title) };
        let add = TaskRequest::Add { id: id.clone(), spec: Box::new(spec.clone()), depends_on: Vec::new(), by: None };
        self.operate(Request::Task(add));
        (id, spec)
    }

    /// When the next disturbance from outside of the actors is due.
    pub(crate) fn disturbance_due(&self) -> Option<Ms> {
        (self.has_people() && !self.is_quiescing).then_some(self.people.disturbed_at)
    }

    pub(crate) fn disturb(&mut self) {
        self.people.disturbed_at = self.clock.now() + self.random.between(1, 250);
        let (id, _) = self.random.pick(&self.people.tasks).clone();
        let request = match self.random.below(100) {
            // A task that is over is to be done again.
            0..55 => Request::Task(TaskRequest::Retry { id }),
            55..60 => self.some_limits(),
            60..63 => match self.some_force() {
                Some(request) => request,
                None => return,
            },
            63..66 => return self.replace_task(),
            66..80 => return self.check_explanation(&id),
            80..84 => return self.stop_person(),
            _ => return,
        };
        self.calls.push(InFlight { from: Sender::Nobody, requests: vec![request] });
    }

    fn some_limits(&mut self) -> Request {
        self.tally.count("limits changed");
        let runs = *self.random.pick(&[0, 1, 1, 2, 3]);
        Request::SetLimits { change: LimitsChange { runs: Some(runs), ..LimitsChange::default() }, seed: Limits::NONE }
    }

    /// A person forces a lock or slots. Runs keep theirs.
    fn some_force(&mut self) -> Option<Request> {
        let rows = self.claim_rows()?;
        let by = Forced { user: "ann".into(), host: HOST.into(), pid: 1 };
        let lock = LOCKS[self.random.below(LOCKS.len())];
        let lock = Resource { kind: Kind::Lock, name: name(lock) };
        let slots = Resource { kind: Kind::Semaphore, name: name(SEMAPHORE) };
        let is_of_run = |grant: &&Grant| grant.claim.holder.as_str().starts_with("run:");
        let of_person = |resource: &Resource| -> Option<HolderId> {
            let holders = grants(&rows.coordination, resource).into_iter().filter(|grant| !is_of_run(grant));
            holders.map(|grant| grant.claim.holder.clone()).next()
        };
        self.tally.count("forced");
        let command = match of_person(&slots) {
            Some(holder) if self.random.in_thousand(300) => {
                Command::Semaphore(slots.name, semaphore::Input::Force { holder, by })
            }
            _ => {
                of_person(&lock)?;
                Command::Lock(lock.name, lock::Input::Force { by })
            }
        };
        // At once: by the next transaction, a run might have it.
        self.operate(Request::plain(command));
        None
    }

    /// A task is deleted, even if claims wait for it, and another one takes its place.
    fn replace_task(&mut self) {
        let index = self.random.below(self.people.tasks.len());
        let id = self.people.tasks[index].0.clone();
        self.operate(Request::Task(TaskRequest::Delete { id: id.clone(), force: false }));
        if !self.model.tasks_contain(&id) {
            self.tally.count("tasks deleted");
            self.people.tasks[index] = self.add_claimed_task();
        }
    }

    pub(crate) fn wake_person(&mut self, address: &Address) {
        let now = self.clock.now();
        let is_addressed = |person: &&mut Person| *person.address() == *address.0;
        self.people.persons.iter_mut().filter(is_addressed).for_each(|person| person.wake(now));
    }

    /// Whether any person holds or requests anything, or waits.
    pub(crate) fn people_are_busy(&self) -> bool {
        !self.people.persons.iter().all(Person::is_done)
    }

    /// Grants that only dead processes hold are free for the next claimant.
    pub(crate) fn reap_for_people(&mut self) {
        let Some(rows) = self.claim_rows() else { return };
        let seen = self.seen(&rows);
        for lock in LOCKS {
            let command = Command::Lock(name(lock), lock::Input::Reap);
            self.operate(Request::Coordinate { command, seen: seen.clone() });
        }
    }

    /// The people who still wait for a task or a lock.
    pub(crate) fn stuck_people(&self) -> Vec<String> {
        self.people.persons.iter().filter(|person| person.is_waiting()).map(Person::address).collect()
    }

    /// All rows since the last commit.
    fn claim_rows(&mut self) -> Option<Rc<Snapshot>> {
        if self.people.rows.is_none() {
            match self.store.view().everything() {
                Ok(rows) => self.people.rows = Some(Rc::new(rows)),
                Err(error) => self.store_failed(&error),
            }
        }
        self.people.rows.clone()
    }

    /// Checks every commit: the rows before it and after it, which are the same if nothing was written.
    pub(crate) fn check_people(&mut self, calls: &[CommittedCall<'_>], has_written: bool) {
        if !self.has_people() {
            return;
        }
        let Some(before) = self.claim_rows() else { return };
        if has_written {
            self.people.rows = None;
        }
        let Some(after) = self.claim_rows() else { return };
        self.check_rows(&before, &after, calls);
    }

    /// Whether the process of a runner is dead.
    fn is_gone(&self, rows: &Snapshot, runner: &RunnerId) -> bool {
        rows.backlog.runners.get(runner).is_none_or(|runner| !self.machine.lives(&runner.process))
    }

    /// What a caller knows that has probed every process in these rows.
    fn seen(&self, rows: &Snapshot) -> Seen {
        let coordination = &rows.coordination;
        let locks = coordination.locks.keys().map(|name| Resource { kind: Kind::Lock, name: name.clone() });
        let slots = coordination.semaphores.keys().map(|name| Resource { kind: Kind::Semaphore, name: name.clone() });
        let holders =
            locks.chain(slots).flat_map(|resource| grants(coordination, &resource)).flat_map(|grant| &grant.claim.processes);
        let claims = coordination.claims.values().filter_map(|claim| claim.waits()).map(|terms| &terms.standing.process);
        let waiters = coordination.locks.values().flat_map(|lock| lock.waiters.iter()).map(|waiter| &waiter.standing.process);
        let runners = rows.backlog.runners.values().map(|runner| &runner.process);
        let all: BTreeSet<&ProcessId> = holders.chain(claims).chain(waiters).chain(runners).collect();
        let dead = all.into_iter().filter(|process| !self.machine.lives(process));
        Seen { probes: dead.map(|process| (process.clone(), Liveness::Dead)).collect(), ..Seen::default() }
    }
}
