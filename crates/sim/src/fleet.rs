//! A hundred runners of one project: the longest idle runner is woken, none without a reason, and no task stays parked
//! on a free resource.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::grant::Address;
use banksman_core::task::{Need, OnExhausted, Spec, Watch, Work};
use banksman_core::{Lease, RunnerId, SectionId, Span, TaskId};
use banksman_engine::{Edit, Options, Request, SectionRequest, TaskRequest};
use banksman_store::{Key, Snapshot};

use crate::Scenario;
use crate::backlog::model::{TaskModel, TaskState};
use crate::backlog::runner::{Doing, POLL};
use crate::backlog::users::{TOP_CAPACITY, define, resources};
use crate::clock::Ms;
use crate::mutation::Mutation;
use crate::report::Checker;
use crate::world::World;

const RUNNERS: usize = 100;

/// None of them is exclusive.
const SECTIONS: usize = 2;

/// How many tasks exist from the beginning.
const FIRST: usize = 30;

/// How many runners a batch wakes at most for tasks.
const WAKE_LIMIT: usize = 16;

/// The model of a fleet.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    /// When the next task comes.
    feed_at: Ms,
    commits: u64,
    /// The runners that wait for tasks, and since which commit.
    idle_since: BTreeMap<RunnerId, u64>,
    /// The runners that were woken and have not called since, and when.
    woken: BTreeMap<RunnerId, Lease>,
}

impl World<'_> {
    pub(crate) fn set_up_fleet(&mut self) {
        for resource in &resources()[..4] {
            self.operate(define(resource, TOP_CAPACITY));
        }
        for number in 1..=SECTIONS {
            let (id, name) = (section(number), format!("section {number}").parse().expect("a good name"));
            self.operate(SectionRequest::Add { id, name, exclusive: false }.into());
        }
        for _ in 0..FIRST {
            let request = self.fleet_task();
            self.operate(request);
        }
        for slot in 0..RUNNERS {
            let options = self.fleet_options();
            self.start_runner(slot, options);
        }
    }

    pub(crate) fn fleet_options(&mut self) -> Options {
        let watch = Watch { timeout: Span::from_secs(600), max_recoveries: 2, on_exhausted: OnExhausted::Escalate };
        let max_runs = Some(1 + u32::from(self.random.in_thousand(300)));
        // Many runners of one section, so that the longest idle runner may not be able to take a task; and a few of
        // another.
        let sections = match self.random.below(100) {
            0..40 => vec![section(1)],
            40..45 => vec![section(2)],
            _ => Vec::new(),
        };
        Options { max_runs, sections, kill_patience: Span::from_secs(3), poll: POLL, ..Options::new(watch) }
    }

    fn fleet_task(&mut self) -> Request {
        self.counts.tasks += 1;
        let random = &mut self.random;
        let mut needs = Vec::new();
        for (resource, share) in resources().iter().zip([200, 150, 150, 100]) {
            if random.in_thousand(share) {
                let name = resource.name.clone();
                let weight = 1 + u32::from(random.in_thousand(300));
                needs.push(match resource.kind {
                    Kind::Lock => Need::Lock(name),
                    Kind::Semaphore => Need::Slots { name, weight },
                });
            }
        }
        let priority = i32::from(random.in_thousand(300));
        let work = Some(Work::Run("true".into()));
        let section = random.in_thousand(250).then(|| section(1 + random.below(SECTIONS)));
        let spec = Spec { priority, work, needs, section, ..Spec::new("some work".parse().expect("a good title")) };
        let id = TaskId::new(&format!("t{}", self.counts.tasks)).expect("a good id");
        let depends_on = self.dependencies(900);
        Request::Task(TaskRequest::Add { id, spec: Box::new(spec), depends_on, by: None })
    }

    /// When the next task comes, if there is one.
    pub(crate) fn feed_due(&self) -> Option<Ms> {
        (self.scenario == Scenario::Runners && !self.is_quiescing).then_some(self.fleet.feed_at)
    }

    /// Adds a task, now and then several at once.
    pub(crate) fn feed(&mut self) {
        let now = self.clock.now();
        if self.feed_due().is_none_or(|due| due > now) {
            return;
        }
        // Several at once; or none for so long that a task for which no runner was woken is seen to wait.
        self.fleet.feed_at = now
            + match self.random.below(100) {
                0..30 => self.random.between(0, 3),
                30..97 => self.random.between(50, 900),
                _ => self.random.between(7_000, 12_000),
            };
        // Such changes wake a runner, which hides that another one was not woken.
        let changes = self.mutation().is_none() && self.random.in_thousand(300);
        let request = if changes { self.fleet_change() } else { None };
        let request = request.unwrap_or_else(|| self.fleet_task());
        self.operate(request);
    }

    /// A change that may free what tasks are parked on, or reorder them, without the end of a run.
    fn fleet_change(&mut self) -> Option<Request> {
        let pending = |job: &TaskModel| job.state == TaskState::Pending;
        let kind = self.random.below(4);
        let jobs = self.model.jobs.iter().filter(|(_, job)| pending(job) == (kind != 0)).map(|(id, _)| id.clone());
        let jobs: Vec<TaskId> = jobs.collect();
        let capacity = u32::try_from(self.random.between(1, i64::from(TOP_CAPACITY))).expect("a small number");
        if kind == 3 {
            return Some(define(&resources()[2 + self.random.below(2)], capacity));
        }
        let id = (!jobs.is_empty()).then(|| self.random.pick(&jobs).clone())?;
        Some(Request::Task(match kind {
            0 => TaskRequest::Retry { id },
            1 => TaskRequest::Cancel { id },
            _ => TaskRequest::Update { id, edit: Box::new(Edit { priority: Some(2), ..Edit::default() }) },
        }))
    }

    /// A runner may die in the moment in which it is woken. Returns whether this one has.
    pub(crate) fn dies_when_woken(&mut self, address: &Address) -> bool {
        if self.scenario != Scenario::Runners || self.is_quiescing || !self.random.in_thousand(25) {
            return false;
        }
        let sleeps =
            |runner: &crate::backlog::runner::Runner| runner.is_awake() && matches!(runner.doing, Doing::Sleeping { .. });
        let slot = self.runners.iter().position(|runner| runner.address() == *address && sleeps(runner));
        if let Some(slot) = slot {
            self.tally.count("fault: death when woken");
            self.note(slot, format_args!("dies when it is woken"));
            self.end_runner(slot);
        }
        slot.is_some()
    }

    /// Wakes more runners than there is a reason for, in a mutation.
    pub(crate) fn wake_too_many(&self, wakes: &mut Vec<Address>) {
        if self.mutation() == Some(Mutation::WakesAll) && wakes.iter().any(|address| self.is_runner(address)) {
            wakes.extend(self.runners.iter().filter(|runner| runner.is_awake()).map(|runner| runner.address()));
        }
    }

    pub(crate) fn is_runner(&self, address: &Address) -> bool {
        self.runners.iter().any(|runner| runner.address() == *address)
    }

    /// Checks the runners and the parked tasks after a commit of `calls` calls.
    pub(crate) fn check_fleet(&mut self, calls: usize, wakes: &[Address]) {
        if self.scenario != Scenario::Runners {
            return;
        }
        let rows = self.store.view().load(&[Key::Runners].into());
        let parked = self.store.view().first_parked(i64::MAX);
        let (snapshot, parked) = match rows.and_then(|rows| Ok((rows, parked?))) {
            Ok(read) => read,
            Err(error) => return self.store_failed(&error),
        };
        self.check_wakes(calls, wakes);
        self.check_turns(&snapshot, wakes);
        self.check_successors(&snapshot);
        self.check_parked(&parked);
    }

    /// One runner is woken for each task that could be taken, and few others.
    fn check_wakes(&mut self, calls: usize, wakes: &[Address]) {
        let woken: BTreeSet<&Address> = wakes.iter().filter(|address| self.is_runner(address)).collect();
        let waiting =
            self.model.jobs.values().filter(|job| job.state == TaskState::Pending && self.model.unmet(job).next().is_none());
        // Besides them the runner on duty, one for a limit, and those that a call itself concerns.
        let bound = waiting.count().min(WAKE_LIMIT) + 2 + calls;
        let is_within = woken.len() <= bound;
        self.verdict
            .expect(Checker::Wakeups, is_within, || format!("{} runners were woken, and {bound} are enough", woken.len()));
    }

    /// The longest idle runner is woken first. A runner that exits when idle may be woken out of order, but only by a
    /// transaction after which no run is live: it is woken then to check whether it may exit, not for a task.
    fn check_turns(&mut self, snapshot: &Snapshot, wakes: &[Address]) {
        self.fleet.commits += 1;
        let commits = self.fleet.commits;
        let before = std::mem::take(&mut self.fleet.idle_since);
        let rows = &snapshot.backlog.runners;
        let is_idle = |id: &RunnerId| rows.get(id).is_some_and(|row| row.idle.is_some());
        let is_over = self.model.live_runs().next().is_none();
        let woken = before.iter().filter(|(id, _)| {
            rows.get(*id).is_some_and(|row| row.idle.is_none() && wakes.contains(&row.address) && !(row.until_idle && is_over))
        });
        let sections = |id: &RunnerId| rows.get(id).map(|row| &row.sections);
        let last = woken.max_by_key(|(_, since)| **since);
        if let Some((id, since)) = last
            && let Some((other, _)) =
                before.iter().find(|(other, earlier)| *earlier < since && is_idle(other) && sections(other) == sections(id))
        {
            self.verdict.report(Checker::Turns, || format!("{id} was woken, and {other} has waited for longer"));
        }
        let idle = rows.values().filter(|row| row.idle.is_some());
        self.fleet.idle_since = idle.map(|row| (row.id.clone(), before.get(&row.id).copied().unwrap_or(commits))).collect();
    }

    /// When a runner that was woken is gone without having called, another idle runner is woken in the same
    /// transaction, if there is one. Histories do not show the lack of that as a waiting task: the runner that finds
    /// the dead one mostly has capacity and claims the task itself.
    fn check_successors(&mut self, snapshot: &Snapshot) {
        let rows = &snapshot.backlog.runners;
        let woken = rows.values().filter_map(|row| Some((row.id.clone(), row.woken?))).collect();
        let before = std::mem::replace(&mut self.fleet.woken, woken);
        let Some(gone) = before.keys().find(|id| !rows.contains_key(*id)) else { return };
        self.tally.count("runners gone after a wake-up");
        let has_successor = self.fleet.woken.iter().any(|(id, woken)| before.get(id) != Some(woken));
        let is_idle = rows.values().any(|row| row.idle.is_some());
        let what = || format!("{gone} was woken and is gone, and nobody is woken in its place");
        self.verdict.expect(Checker::Wakeups, has_successor || !is_idle, what);
    }

    /// No task is parked on a resource that is free for it, unless another ready task needs it.
    fn check_parked(&mut self, all: &[(TaskId, Resource)]) {
        let parked: BTreeMap<&TaskId, &Resource> = all.iter().map(|(id, resource)| (id, resource)).collect();
        let needs = |id: &TaskId, resource: &Resource| {
            let needs = self.model.jobs.get(id).map(|job| &job.spec.needs[..]).unwrap_or_default();
            needs.iter().find(|need| need.resource() == *resource).map(Need::weight)
        };
        let is_ready = |id: &TaskId| {
            !parked.contains_key(id)
                && self
                    .model
                    .jobs
                    .get(id)
                    .is_some_and(|job| job.state == TaskState::Pending && self.model.unmet(job).next().is_none())
        };
        let is_free = |id: &TaskId, on: &Resource| needs(id, on).is_some_and(|weight| self.is_free(on.kind, &on.name, weight));
        for (id, resource) in parked.iter().filter(|(id, resource)| is_free(id, resource)) {
            if !self.model.jobs.keys().any(|other| is_ready(other) && needs(other, resource).is_some()) {
                let what = format!("{id} is parked on {}, which is free", resource.name);
                return self.verdict.report(Checker::Parked, || what);
            }
        }
    }
}

/// A section, by its number.
fn section(number: usize) -> SectionId {
    SectionId::new(&format!("s{number}")).expect("a good id")
}
