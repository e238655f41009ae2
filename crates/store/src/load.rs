//! The statements that load the rows of keys.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::event::{Kind, Resource};
use banksman_core::queue::{DUE_PER_TAKE, Part};
use banksman_core::{Name, SectionId};

use crate::key::Key;
use crate::tables::projects::Counters;
use crate::tables::*;
use crate::value::{Query, Value};

/// Maximum number of tasks that wait for time, or for their children, in one load.
const DUE_LIMIT: u32 = 1_000;

/// Maximum number of tasks that are parked on one semaphore or one account limit, and that return to their lanes at
/// once.
pub const PARKED_LIMIT: u32 = 16;

/// Tasks to read that are parked on one lock: the first one returns to its lane, or the second if the first has changed
/// meanwhile.
const PARKED_ON_LOCK: u32 = 2;

/// The number of tasks parked on this resource to read.
pub fn parked_page(resource: &Resource) -> u32 {
    if resource.kind == Kind::Lock && !resource.name.is_account_limit() { PARKED_ON_LOCK } else { PARKED_LIMIT }
}

/// The semaphore of the run slots.
const RUNS: &str = "runs";

/// Maximum number of tasks of an import in one load.
pub const IMPORTED: usize = 500;

/// Maximum length of the chain of tasks that hold a task back.
pub const CHAIN_LIMIT: usize = 10_000;

/// The keys of a batch. Takes of one queue share one read of its head, which needs one item for each take.
pub(crate) fn merge_keys(all: impl Iterator<Item = Key>) -> BTreeSet<Key> {
    let mut heads: BTreeMap<Name, [u32; 3]> = BTreeMap::new();
    let mut keys: BTreeSet<Key> = all
        .filter_map(|key| match key {
            Key::Head { queue, takes, removed, ended } => {
                let head = heads.entry(queue).or_default();
                head.iter_mut().zip([takes, removed, ended]).for_each(|(sum, more)| *sum = sum.saturating_add(more));
                None
            }
            key => Some(key),
        })
        .collect();
    // Only a take reads the head; removals from it matter only then.
    let read = heads.into_iter().filter(|(_, [takes, ..])| *takes > 0);
    keys.extend(read.map(|(queue, [takes, removed, ended])| Key::Head { queue, takes, removed, ended }));
    keys
}

/// The statements of a load, in their order.
struct Plan<'a> {
    project: i64,
    queries: Vec<Query<'a>>,
}

impl<'a> Plan<'a> {
    fn add<const N: usize>(&mut self, statement: impl Into<Statement>, params: [Value<'a>; N]) {
        let mut all = Vec::with_capacity(1 + N);
        all.push(self.project.into());
        all.extend(params);
        self.queries.push(Query::new(statement, all));
    }

    /// Whether the key loads locks or semaphores. Their waiters are needed too; the table of waiters is usually empty,
    /// so it is read once and completely.
    fn needs_waiters(key: &Key) -> bool {
        matches!(
            key,
            Key::Lock(_)
                | Key::Semaphore(_)
                | Key::RunSlots
                | Key::Ready { .. }
                | Key::ReadyRoots { .. }
                | Key::Waits
                | Key::Manual(_)
                | Key::ClaimsBy(_)
                | Key::ClaimsOn(_)
                | Key::Awaited { .. }
                | Key::Pipeline(_)
                | Key::Family(_)
        )
    }

    /// Whether freeing the rows of the key may have to wake an idle runner. Tasks that wait for a plain lock or
    /// semaphore are parked on it: without parked tasks there is no runner to wake.
    fn needs_idle(key: &Key) -> bool {
        match key {
            Key::Lock(name) => name.is_section() || name.task().is_some(),
            Key::Semaphore(name) => name.as_str() == RUNS,
            key => Plan::needs_waiters(key),
        }
    }

    /// Loads the waiters of these keys, and the runners to wake, unless the keys before them have loaded both.
    fn waiters(&mut self, loaded: &BTreeSet<Key>, keys: &BTreeSet<Key>) {
        if keys.iter().any(Plan::needs_waiters) && !loaded.iter().any(Plan::needs_waiters) {
            self.add(waiters::Statement::All, []);
        }
        if keys.iter().any(Plan::needs_idle) && !loads_idle(loaded) && !keys.contains(&Key::Idle) {
            self.add(runners::Statement::Idle, []);
        }
    }

    /// Claims with everything that they hold. Semaphores come before their slots.
    fn claims(&mut self, holder: Value<'a>, resource: Value<'a>) {
        self.add(tasks::Statement::Claimed, [holder.clone(), resource.clone()]);
        self.add(locks::Statement::Claimed, [holder.clone(), resource.clone()]);
        self.add(semaphores::Statement::Claimed, [holder.clone(), resource.clone()]);
        self.add(slots::Statement::Claimed, [holder, resource]);
    }

    fn load(&mut self, key: &'a Key) {
        let number = |number: &u32| Value::from(i64::from(*number));
        match key {
            Key::Lock(name) => self.add(locks::Statement::ByName, [name.as_str().into()]),
            Key::Semaphore(name) => {
                self.add(semaphores::Statement::ByName, [name.as_str().into()]);
                self.add(slots::Statement::OfSemaphore, [name.as_str().into()]);
            }
            Key::RunSlots => {
                self.add(semaphores::Statement::ByName, [RUNS.into()]);
                self.add(slots::Statement::Mortal, [RUNS.into()]);
            }
            Key::RunSlot(run) => {
                self.add(slots::Statement::OfHolder, [RUNS.into(), run.holder().as_str().to_owned().into()]);
            }
            Key::Waits => {
                self.add(locks::Statement::Waited, []);
                self.add(semaphores::Statement::Waited, []);
                self.add(slots::Statement::Waited, []);
            }
            Key::Expired { now, limit } => {
                self.add(locks::Statement::Expired, [now.0.into(), number(limit)]);
                self.add(semaphores::Statement::Expired, [now.0.into(), number(limit)]);
                self.add(slots::Statement::Expired, [now.0.into(), number(limit)]);
            }
            Key::Awaited { limit } => {
                self.add(locks::Statement::Awaited, [number(limit)]);
                self.add(semaphores::Statement::Awaited, [number(limit)]);
                self.add(slots::Statement::Awaited, [number(limit)]);
            }
            Key::Manual(id) => {
                self.add(locks::Statement::Manual, [id.as_str().into()]);
                self.add(semaphores::Statement::Manual, [id.as_str().into()]);
                self.add(slots::Statement::Manual, [id.as_str().into()]);
                self.add(tasks::Statement::Manual, [id.as_str().into()]);
                self.add(lost_claims::Statement::OfTask, [id.as_str().into()]);
            }
            Key::ClaimsBy(holder) => self.claims(holder.as_str().into(), Value::Null),
            Key::ClaimsOn(name) => self.claims(Value::Null, name.as_str().into()),
            Key::Request(request) => self.add(events::Statement::OfRequest, [request.as_str().into()]),
            Key::Sections => self.add(sections::Statement::All, []),
            Key::Task(id) => self.add(tasks::Statement::ById, [id.as_str().into()]),
            Key::Family(id) => {
                self.add(tasks::Statement::Family, [id.as_str().into()]);
                self.add(pipelines::Statement::OfFamily, [id.as_str().into()]);
                self.add(locks::Statement::OfFamilyPipelines, [id.as_str().into()]);
                self.add(semaphores::Statement::OfFamilyPipelines, [id.as_str().into()]);
                self.add(slots::Statement::OfFamilyPipelines, [id.as_str().into()]);
            }
            Key::Dependencies(id) => {
                self.add(edges::Statement::OfTask, [id.as_str().into()]);
                self.add(tasks::Statement::Dependencies, [id.as_str().into()]);
            }
            Key::Dependents(id) => self.add(edges::Statement::OnTask, [id.as_str().into()]),
            Key::FamilyDependents(id) => self.add(edges::Statement::OnFamily, [id.as_str().into()]),
            Key::Upstream(id) => self.add(edges::Statement::Upstream, [id.as_str().into()]),
            Key::Chain(id) => {
                self.add(tasks::Statement::Chain, [id.as_str().into()]);
                self.add(edges::Statement::Chain, [id.as_str().into()]);
            }
            Key::InSection(id) => self.add(tasks::Statement::InSection, [id.as_str().into()]),
            Key::Ready { of_each, sections } => {
                self.add(tasks::Statement::Ready, [number(of_each), between_bars(sections).into()]);
            }
            Key::ReadyRoots { of_each, sections } => {
                self.add(tasks::Statement::ReadyRoots, [number(of_each), between_bars(sections).into()]);
            }
            Key::ParkedOn(resource) => {
                let page = number(&parked_page(resource));
                self.add(tasks::Statement::ParkedOn, [tasks::parked_on(resource).into(), page.clone()]);
                if resource.kind == Kind::Semaphore {
                    self.add(tasks::Statement::LightestParkedOn, [tasks::parked_on(resource).into(), page]);
                }
            }
            Key::Parked { after, limit } => {
                let after = after.as_ref().map(tasks::parked_on).unwrap_or_default();
                self.add(tasks::Statement::Parked, [number(limit), after.into()]);
            }
            Key::DependentCount(id) => {
                self.add(edges::Statement::CountOnTask, [id.as_str().into(), (fan_outs::FAN_OUT as i64 + 1).into()]);
            }
            Key::FanOut => self.add(fan_outs::Statement::First, []),
            Key::Due => self.add(tasks::Statement::Due, [number(&DUE_LIMIT)]),
            Key::DueRoots => self.add(tasks::Statement::DueRoots, []),
            Key::LimitedRoots => self.add(tasks::Statement::LimitedRoots, []),
            Key::Loops { after, limit } => self.add(tasks::Statement::Loops, [number(limit), after.0.into()]),
            Key::FinishedMark => self.add(marks::Statement::Finished, []),
            Key::Counts => {
                self.add(task_counts::Statement::Imported, []);
                self.add(task_counts::Statement::Held, []);
                self.add(items::Statement::OfWorkers, []);
            }
            Key::OpenDecisions => self.add(decisions::Statement::Open, []),
            Key::Decision(id) => self.add(decisions::Statement::ById, [id.as_str().into()]),
            Key::Landing(id) => self.add(landings::Statement::ById, [id.as_str().into()]),
            Key::LandingQueue(target) => {
                self.add(landing_targets::Statement::ByName, [target.as_str().into()]);
                self.add(landings::Statement::OpenOf, [target.as_str().into()]);
            }
            Key::OpenLandings => {
                self.add(landing_targets::Statement::All, []);
                self.add(landings::Statement::Open, []);
            }
            Key::LandingOf(task) => {
                self.add(landings::Statement::OfTask, [task.as_str().into()]);
                self.add(landing_targets::Statement::OfTask, [task.as_str().into()]);
            }
            Key::LandingsAbove(task) => self.add(landings::Statement::Above, [task.as_str().into()]),
            Key::AccountLimits => self.add(account_limits::Statement::All, []),
            Key::Spend { since } => self.add(spend::Statement::Since, [(*since).into()]),
            Key::Imports => self.add(imports::Statement::All, []),
            Key::Imported(id) => self.add(tasks::Statement::Imported, [id.as_str().into(), (IMPORTED as i64).into()]),
            Key::Live => {
                self.add(runs::Statement::Live, []);
                self.add(tasks::Statement::Live, []);
            }
            Key::LiveExclusive => {
                self.add(runs::Statement::LiveExclusive, []);
                self.add(tasks::Statement::LiveExclusive, []);
            }
            Key::LiveOf(runner) => {
                self.add(runs::Statement::OfRunner, [runner.as_str().into()]);
                self.add(tasks::Statement::OfRunner, [runner.as_str().into()]);
            }
            Key::Run(id) => self.add(runs::Statement::ById, [id.as_str().into()]),
            Key::RunsOf(id) => self.add(runs::Statement::OfTask, [id.as_str().into()]),
            Key::Runners => self.add(runners::Statement::All, []),
            Key::Runner(id) => self.add(runners::Statement::ById, [id.as_str().into()]),
            Key::Idle => self.add(runners::Statement::Idle, []),
            Key::Outbox => self.add(outbox::Statement::All, []),
            Key::OutboxOf(runner) => self.add(outbox::Statement::OfRunner, [runner.as_str().into()]),
            Key::OutboxOfRun(run) => self.add(outbox::Statement::OfRun, [run.as_str().into()]),
            Key::Pipeline(id) => {
                self.add(pipelines::Statement::OfTask, [id.as_str().into()]);
                self.add(locks::Statement::OfPipeline, [id.as_str().into()]);
                self.add(semaphores::Statement::OfPipeline, [id.as_str().into()]);
                self.add(slots::Statement::OfPipeline, [id.as_str().into()]);
            }
            Key::BegunPipelines => self.add(pipelines::Statement::Begun, []),
            Key::DuePipelines { now, limit } => {
                self.add(pipelines::Statement::Due, [number(limit), now.0.into()]);
                self.add(listeners::Statement::Next, [now.0.into()]);
            }
            Key::HeardPipelines { after, through, limit } => {
                self.add(pipelines::Statement::Heard, [after.0.into(), through.0.into(), number(limit)]);
            }
            Key::Workspace(owner) => self.add(workspaces::Statement::ByOwner, [owner.as_str().into()]),
            Key::Workspaces => self.add(workspaces::Statement::All, []),
            Key::Queues => self.add(queues::Statement::All, []),
            Key::NamedQueue(name) => self.add(queues::Statement::ByName, [name.as_str().into()]),
            Key::Item(id) => self.add(items::Statement::ById, [id.0.0.into()]),
            Key::Dedupe(queue, key) => self.add(items::Statement::ByKey, [queue.as_str().into(), key.as_str().into()]),
            Key::Head { queue, takes, removed, ended } => {
                // One more item tells whether the next waiter can take one.
                let [takes, removed, ended] = [takes, removed, ended].map(|number| i64::from(*number));
                let due = takes * DUE_PER_TAKE as i64 + ended + 1;
                self.add(items::Statement::Ready, [queue.as_str().into(), (takes + removed + 1).into()]);
                self.add(items::Statement::Due, [queue.as_str().into(), due.into()]);
            }
            Key::Part { queue, part, limit } => {
                let statement = match part {
                    Part::Ready => items::Statement::Ready,
                    Part::Backoff => items::Statement::Backoff,
                    Part::Processing => items::Statement::Processing,
                    Part::Dead => items::Statement::Dead,
                    Part::Moved => items::Statement::Moved,
                };
                self.add(statement, [queue.as_str().into(), number(limit)]);
            }
            Key::FirstTaker(queue) => self.add(takers::Statement::First, [queue.as_str().into()]),
            Key::Takers(queue) => self.add(takers::Statement::OfQueue, [queue.as_str().into()]),
            Key::AllTakers => self.add(takers::Statement::All, []),
            Key::Automation => self.add(workers::Statement::Everything, []),
            Key::Worker(name) => {
                self.add(workers::Statement::ByName, [name.as_str().into()]);
                self.add(jobs::Statement::OfWorker, [name.as_str().into()]);
            }
            Key::Route(id) => self.add(routes::Statement::ById, [(&**id).into()]),
            Key::Router => self.add(marks::Statement::Routed, []),
            Key::WorkerRunners(queue) => self.add(runners::Statement::OfQueue, [queue.as_str().into()]),
            Key::WorkerRunnersBeyond(queue) => self.add(runners::Statement::OfQueueAndDeadLetter, [queue.as_str().into()]),
            Key::AllWorkerRunners => self.add(runners::Statement::OfQueues, []),
            Key::Message(id) => self.add(messages::Statement::ById, [id.as_str().into()]),
            Key::Delivery(id) => self.add(deliveries::Statement::ById, [id.as_str().into()]),
            Key::Mailbox(task) => self.add(deliveries::Statement::OfTarget, [task.as_str().into()]),
            Key::UnsettledDeliveries { limit } => {
                self.add(deliveries::Statement::Locked, [number(limit)]);
                self.add(deliveries::Statement::OverTargets, [number(limit)]);
            }
            Key::Log { after, limit } => self.add(events::Statement::Heard, [after.0.into(), number(limit)]),
        }
    }
}

/// The ids between bars; `None` if there are none.
fn between_bars(sections: &[SectionId]) -> Option<String> {
    (!sections.is_empty()).then(|| sections.iter().fold("|".to_owned(), |all, section| all + section.as_str() + "|"))
}

/// Whether a rare key may have rows, judging by the rows that the other keys of the batch have loaded: most projects
/// have none of these.
pub(crate) fn may_have_rows(key: &Key, rows: &Tables, counters: &Counters) -> bool {
    let is_limited = || counters.limits.is_some_and(|limits| limits.roots > 0);
    match key {
        // All claims are read with the waiters.
        Key::ClaimsBy(_) | Key::ClaimsOn(_) => !rows.coordination.claims.is_empty(),
        Key::LiveExclusive => rows.backlog.sections.values().any(|section| section.exclusive),
        Key::LimitedRoots | Key::ReadyRoots { .. } => is_limited(),
        _ => true,
    }
}

/// Whether [`may_have_rows`] decides about this key after the others are loaded.
pub(crate) fn is_rare(key: &Key) -> bool {
    matches!(key, Key::ClaimsBy(_) | Key::ClaimsOn(_) | Key::LiveExclusive | Key::LimitedRoots | Key::ReadyRoots { .. })
}

/// Whether these keys load the idle runners.
pub(crate) fn loads_idle(keys: &BTreeSet<Key>) -> bool {
    keys.iter().any(|key| *key == Key::Idle || Plan::needs_idle(key))
}

/// The queries that load these keys.
pub(crate) fn plan(project: i64, keys: &BTreeSet<Key>) -> Vec<Query<'_>> {
    plan_more(project, &BTreeSet::new(), keys)
}

/// The queries for everything that these keys need besides their own rows, before it is known whether they have any.
pub(crate) fn plan_needed(project: i64, loaded: &BTreeSet<Key>, rare: &BTreeSet<Key>) -> Vec<Query<'static>> {
    let mut plan = Plan { project, queries: Vec::new() };
    plan.waiters(loaded, rare);
    plan.queries
}

/// The queries that load these keys after those of an earlier plan.
pub(crate) fn plan_more<'a>(project: i64, loaded: &BTreeSet<Key>, more: &'a BTreeSet<Key>) -> Vec<Query<'a>> {
    let mut plan = Plan { project, queries: Vec::with_capacity(more.len() + 4) };
    plan.waiters(loaded, more);
    more.iter().for_each(|key| plan.load(key));
    plan.queries
}

/// All grants and waiters, without the locks of tasks that are not in progress.
pub(crate) fn plan_held(project: i64) -> Vec<Query<'static>> {
    plan_of(project, locks::Statement::Listed, &[])
}

pub(crate) fn plan_all(project: i64) -> Vec<Query<'static>> {
    let rest = [
        sections::Statement::All.erased(),
        tasks::Statement::All.erased(),
        edges::Statement::All.erased(),
        runs::Statement::All.erased(),
        runners::Statement::All.erased(),
        outbox::Statement::All.erased(),
        marks::Statement::Finished.erased(),
        decisions::Statement::All.erased(),
        imports::Statement::All.erased(),
        landings::Statement::All.erased(),
        landing_targets::Statement::All.erased(),
        account_limits::Statement::All.erased(),
        spend::Statement::All.erased(),
        pipelines::Statement::All.erased(),
        workspaces::Statement::All.erased(),
        queues::Statement::All.erased(),
        items::Statement::All.erased(),
        workers::Statement::Everything.erased(),
    ];
    plan_of(project, locks::Statement::All, &rest)
}

fn plan_of(project: i64, locks: locks::Statement, rest: &[Statement]) -> Vec<Query<'static>> {
    let (semaphores, slots) = (semaphores::Statement::All.erased(), slots::Statement::All.erased());
    let held = [waiters::Statement::All.erased(), locks.erased(), semaphores, slots];
    held.iter().chain(rest).map(|statement| Query::new(*statement, [project.into()])).collect()
}
