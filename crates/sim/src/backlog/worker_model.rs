//! Checks of workers: each item is one job at a time, for as long as its task is open, and ends with the result of the
//! task.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use banksman_core::queue::{Config, Fact};
use banksman_core::route::Route;
use banksman_core::worker::{self, Definition, JobEnd, Taken};
use banksman_core::{Epoch, ItemId, Name, Seq, Status, TaskId, queue};
use banksman_engine::Options;
use banksman_store::Snapshot;

use super::model::{BacklogModel, TaskState};
use super::runner::Runner;
use crate::queues::is_of_takers;
use crate::report::Checker;
use crate::world::World;

/// The model of queues, workers and routes.
#[derive(Debug, Default)]
pub(crate) struct AutomationModel {
    queues: BTreeMap<Name, (Config, bool)>,
    pub(crate) items: BTreeMap<ItemId, Item>,
    pub(crate) workers: BTreeMap<Name, Worker>,
    pub(crate) routes: BTreeMap<Box<str>, (Arc<Route>, Seq)>,
    /// The results of the jobs of takes.
    ended: BTreeMap<Epoch, JobEnd>,
    /// The tasks that a person has retried: they no longer belong to their items.
    pub(crate) retried: BTreeSet<TaskId>,
    /// The reactions that are owed to events, with their routes.
    pub(crate) owed: BTreeMap<(Seq, String), Box<str>>,
}

#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) queue: Name,
    attempts: u32,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// It can be taken; or later, if it was delayed.
    Waits {
        delayed: bool,
    },
    Held {
        holder: String,
        epoch: Epoch,
    },
    Dead,
}

#[derive(Debug)]
pub(crate) struct Worker {
    definition: Arc<Definition>,
    paused: bool,
    pub(crate) awake: bool,
    pub(crate) removed: bool,
    pub(crate) since: Seq,
    jobs: BTreeMap<TaskId, Taken>,
    /// The first event that should wake it.
    pub(crate) called: Option<Seq>,
}

impl Item {
    pub(crate) fn is_dead(&self) -> bool {
        self.state == State::Dead
    }
}

impl Worker {
    pub(crate) fn wake_on(&self) -> impl Iterator<Item = String> {
        self.definition.wake_on.iter().map(ToString::to_string)
    }

    /// Whether it takes items.
    fn takes(&self) -> bool {
        !self.removed && !self.paused && self.awake && self.jobs.len() < self.definition.concurrency as usize
    }
}

impl AutomationModel {
    fn waiting(&self, worker: &Worker) -> impl Iterator<Item = (&ItemId, &Item)> {
        let queue = worker.definition.queue.clone();
        let is_open = worker.takes() && self.queues.get(&queue).is_some_and(|(_, paused)| !paused);
        self.items.iter().filter(move |(_, item)| is_open && item.queue == queue && matches!(item.state, State::Waits { .. }))
    }

    /// Whether there are items that a worker takes, or will take.
    fn waits(&self) -> bool {
        self.workers.values().any(|worker| self.waiting(worker).next().is_some())
    }

    fn holds(&self, item: ItemId, name: &Name, epoch: Epoch) -> bool {
        let held = State::Held { holder: format!("worker:{name}"), epoch };
        self.items.get(&item).is_some_and(|item| item.state == held)
    }
}

impl BacklogModel {
    /// The work of a runner for workers and routes right now.
    fn automation_work(&self) -> Vec<String> {
        let automation = &self.automation;
        let mut work = Vec::new();
        for (name, worker) in &automation.workers {
            let at_once = automation.waiting(worker).find(|(_, item)| item.state == State::Waits { delayed: false });
            work.extend(at_once.map(|(item, _)| format!("{name} could take {item}")));
            work.extend(worker.called.map(|event| format!("event {event} should wake {name}")));
            let is_over = |task: &&TaskId| self.jobs.get(*task).is_none_or(|job| matches!(job.state, TaskState::Over(_)));
            work.extend(worker.jobs.keys().filter(is_over).map(|task| format!("the job {task} of {name} is over")));
        }
        work.extend(automation.owed.keys().map(|(event, what)| format!("after event {event}: {what}")));
        work
    }
}

impl World<'_> {
    pub(crate) fn observe_queue(&mut self, name: &Name, fact: &Fact, seq: Seq) {
        self.tally.count(fact.kind());
        let automation = &mut self.model.automation;
        let right = match fact {
            Fact::Defined(config) => {
                let paused = automation.queues.get(name).is_some_and(|(_, paused)| *paused);
                automation.queues.insert(name.clone(), (config.clone(), paused));
                true
            }
            Fact::Paused {} | Fact::Resumed {} => {
                let paused = matches!(fact, Fact::Paused {});
                automation.queues.get_mut(name).is_some_and(|(_, was)| std::mem::replace(was, paused) != paused)
            }
            Fact::Push { item, not_before, .. } => {
                let state = State::Waits { delayed: not_before.is_some() };
                automation.items.insert(*item, Item { queue: name.clone(), attempts: 0, state }).is_none()
            }
            Fact::Take { item, holder, attempt } => automation.items.get_mut(item).is_some_and(|item| {
                let held = State::Held { holder: holder.to_string(), epoch: seq.into() };
                let was = std::mem::replace(&mut item.state, held);
                item.attempts += 1;
                matches!(was, State::Waits { .. }) && item.attempts == *attempt
            }),
            Fact::Complete { item, holder, epoch } => {
                let is_held = automation.items.remove(item).is_some_and(|item| item.state == held(holder.as_str(), *epoch));
                is_held && automation.ended.get(epoch) == Some(&JobEnd::Completed)
            }
            Fact::Fail { item, holder, epoch, timed_out, retry_at, .. } => {
                // An item that could not become a task has had no job.
                let is_right = !matches!(automation.ended.get(epoch), Some(JobEnd::Completed));
                let is_kept = holder.as_str().starts_with("worker:");
                automation.items.get_mut(item).is_some_and(|item| {
                    let was = std::mem::replace(&mut item.state, State::Waits { delayed: retry_at.is_some() });
                    was == held(holder.as_str(), *epoch) && is_right && !(is_kept && *timed_out)
                })
            }
            Fact::Dead { item, moved_to, .. } => {
                let most = automation.queues.get(name).map_or(0, |(config, _)| config.max_attempts);
                automation.items.get_mut(item).is_some_and(|item| {
                    let was_last = item.attempts >= most;
                    match moved_to {
                        None => item.state = State::Dead,
                        Some(queue) => (item.queue, item.attempts) = (queue.clone(), 0),
                    }
                    was_last
                })
            }
            Fact::Requeue { item, moved_to } => automation.items.get_mut(item).is_some_and(|item| {
                item.queue = moved_to.clone().unwrap_or_else(|| item.queue.clone());
                (item.state, item.attempts) = (State::Waits { delayed: false }, 0);
                true
            }),
            Fact::Purged { item } => automation.items.remove(item).is_some(),
        };
        self.verdict.expect(Checker::Items, right, || format!("queue {name}: {fact:?} ({seq})"));
    }

    pub(crate) fn observe_worker(&mut self, name: &Name, fact: &worker::Fact, seq: Seq) {
        self.tally.count(fact.kind());
        let automation = &mut self.model.automation;
        if let worker::Fact::Defined(definition) = fact {
            let worker = defined(automation.workers.remove(name), definition, seq);
            automation.workers.insert(name.clone(), worker);
            return;
        }
        let Some(worker) = automation.workers.get_mut(name) else {
            return self.verdict.report(Checker::Items, || format!("there is no worker {name}: {fact:?}"));
        };
        let right = match fact {
            worker::Fact::Defined(_) => true,
            worker::Fact::Removed {} => {
                worker.called = None;
                !std::mem::replace(&mut worker.removed, true)
            }
            worker::Fact::Paused {} => !std::mem::replace(&mut worker.paused, true),
            worker::Fact::Resumed {} => std::mem::replace(&mut worker.paused, false),
            worker::Fact::Woken {} => {
                let was = std::mem::replace(&mut worker.awake, true);
                let called = worker.called.take();
                let name = format!("wake {name}");
                let is_due = |to: Seq| called.is_some_and(|event| event <= to) || automation.owes(to, &name);
                !was && self.call.routed.is_none_or(is_due)
            }
            worker::Fact::Asleep {} => {
                (worker.awake, worker.since) = (false, seq);
                let is_free = worker.jobs.is_empty() && !worker.definition.wake_on.is_empty();
                let queue = worker.definition.queue.clone();
                let mut left = automation.items.values().filter(|item| item.queue == queue);
                is_free && !left.any(|item| item.state == State::Waits { delayed: false })
            }
            worker::Fact::Take { task, taken } => {
                let takes = worker.takes() && worker.definition.queue == taken.queue;
                let of = self.model.jobs.get(task).and_then(|job| job.spec.item.as_deref());
                let is_its_task = of.is_some_and(|of| of.worker == *name && of.taken == *taken);
                worker.jobs.insert(task.clone(), taken.clone());
                takes && is_its_task
            }
            worker::Fact::End { task, how } => {
                let should = match self.model.jobs.get(task).map(|job| &job.state) {
                    Some(TaskState::Over(Status::Completed)) => Some(JobEnd::Completed),
                    Some(TaskState::Over(Status::Failed)) => Some(JobEnd::Failed),
                    Some(TaskState::Over(_)) | None => Some(JobEnd::Cancelled),
                    Some(_) => None,
                };
                let taken = worker.jobs.remove(task);
                automation.ended.extend(taken.iter().map(|taken| (taken.epoch, *how)));
                taken.is_some() && should == Some(*how)
            }
        };
        if automation.workers.get(name).is_some_and(|worker| worker.removed && worker.jobs.is_empty()) {
            automation.workers.remove(name);
        }
        self.verdict.expect(Checker::Items, right, || format!("worker {name}: {fact:?} ({seq})"));
    }

    /// After every commit: an item is in progress exactly as long as a worker has its job, and has at most one task.
    pub(crate) fn check_items(&mut self) {
        let wrong = self.fault_of_items();
        self.verdict.expect(Checker::Items, wrong.is_none(), || wrong.unwrap_or_default());
    }

    fn fault_of_items(&self) -> Option<String> {
        let automation = &self.model.automation;
        let jobs = || automation.workers.iter().flat_map(|(name, worker)| worker.jobs.iter().map(move |job| (name, job)));
        let mut known = BTreeSet::new();
        for (name, (task, taken)) in jobs() {
            // A person may have removed it.
            if automation.items.contains_key(&taken.item) && !automation.holds(taken.item, name, taken.epoch) {
                return Some(format!(
                    "{name} has the job {task}, and {} is {:?}",
                    taken.item, automation.items[&taken.item].state
                ));
            }
            if !known.insert(taken.item) {
                return Some(format!("{} is the job of two tasks, one of them is {task}", taken.item));
            }
        }
        for (id, item) in &automation.items {
            if let State::Held { holder, epoch } = &item.state
                && holder.starts_with("worker:")
                && !jobs().any(|(_, (_, taken))| taken.item == *id && taken.epoch == *epoch)
            {
                return Some(format!("{id} is left to {holder}, which has no job for it"));
            }
        }
        let open = self.model.jobs.iter().filter(|(_, job)| !matches!(job.state, TaskState::Over(_)));
        let of_items = open.filter(|(id, job)| job.spec.item.is_some() && !automation.retried.contains(*id));
        let mut stray = of_items.filter(|(id, _)| !jobs().any(|(_, (task, _))| task == *id));
        stray.next().map(|(id, _)| format!("{id} is open, and the job of nobody"))
    }

    /// Whether a runner with these options has to wait for items.
    pub(crate) fn waits_for_items(&self, options: &Options) -> bool {
        options.sections.is_empty() && self.model.automation.waits()
    }

    /// Notes for how long there has been work for workers and routes.
    pub(crate) fn watch_automation(&mut self, reliable: bool, limit: i64) {
        let now = self.clock.now();
        let able = |runner: &Runner| runner.is_awake() && !runner.cancelled && runner.options.sections.is_empty();
        let work = if self.runners.iter().any(able) { self.model.automation_work() } else { Vec::new() };
        self.neglected.retain(|what, _| work.contains(what));
        for what in work {
            self.neglected.entry(what).or_insert(now);
        }
        if let Some((what, since)) = self.neglected.iter().find(|(_, since)| reliable && now - **since > limit) {
            self.verdict.report(Checker::Idle, || format!("{what}, since {} ms", now - since));
        }
    }

    /// In the end no item can be taken, now or later, and nothing is left to settle or route.
    pub(crate) fn workers_are_idle(&self) -> bool {
        self.model.automation_work().is_empty() && !self.model.automation.waits()
    }

    pub(crate) fn check_workers_at_the_end(&mut self) {
        let work = self.model.automation_work();
        self.verdict.expect(Checker::Idle, work.is_empty(), || format!("nothing moves, and {}", work.join(", ")));
    }

    /// Compares the rows of items and workers with the model.
    pub(crate) fn compare_automation(&mut self, rows: &Snapshot) {
        let automation = &self.model.automation;
        // A failed item waits like others, and cannot be distinguished from them once its delay is over.
        let status = |item: &queue::Item| if item.status() == "failed" { "pending" } else { item.status() };
        let row = |item: &queue::Item| (item.id, item.queue.clone(), item.attempts, status(item));
        let expected = |(id, item): (&ItemId, &Item)| {
            let status = match &item.state {
                State::Waits { .. } => "pending",
                State::Held { .. } => "processing",
                State::Dead => "dead",
            };
            (*id, item.queue.clone(), item.attempts, status)
        };
        let items = rows
            .queues
            .items
            .values()
            .filter(|item| !is_of_takers(&item.queue))
            .map(row)
            .eq(automation.items.iter().map(expected));
        let row = |(name, worker): (&Name, &worker::Worker)| {
            let flags = [worker.paused, worker.awake, worker.removed];
            (name.clone(), flags, worker.since, worker.jobs.clone())
        };
        let expected = |(name, worker): (&Name, &Worker)| {
            let flags = [worker.paused, worker.awake, worker.removed];
            (name.clone(), flags, worker.since, worker.jobs.clone())
        };
        let workers = rows.automation.workers.workers.iter().map(row).eq(automation.workers.iter().map(expected));
        rows.automation.workers.check();
        self.verdict.expect(Checker::Model, items, || "the items, or how they stand, differ".to_owned());
        self.verdict.expect(Checker::Model, workers, || "the workers, or their jobs, differ".to_owned());
    }
}

fn held(holder: &str, epoch: Epoch) -> State {
    State::Held { holder: holder.to_owned(), epoch }
}

fn defined(was: Option<Worker>, definition: &Arc<Definition>, since: Seq) -> Worker {
    let sleeps = !definition.wake_on.is_empty();
    let (was_awake, paused) = match &was {
        Some(was) if !was.removed => (was.awake, was.paused),
        Some(_) | None => (false, false),
    };
    let jobs = was.map(|was| was.jobs).unwrap_or_default();
    let awake = was_awake || !sleeps || !jobs.is_empty();
    Worker { definition: Arc::clone(definition), paused, awake, removed: false, since, jobs, called: None }
}
