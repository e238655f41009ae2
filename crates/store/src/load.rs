//! Which statements load the rows that keys name, and how the answers become [`Tables`].

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::event::{Kind, Resource};
use banksman_core::queue::{DUE_PER_TAKE, Part};
use banksman_core::resource::coordination::Coordination;
use banksman_core::resource::grant::Waiter;
use banksman_core::worker::Taken;
use banksman_core::{HolderId, ImportId, Name, TaskId, Ticket, WorkClaim};

use crate::columns::{Codec, Int, Json, Text};
use crate::error::StoreError;
use crate::key::Key;
use crate::table::Table;
use crate::tables::items::WorkItems;
use crate::tables::pipelines::Hosted;
use crate::tables::task_counts::TaskCounts;
use crate::tables::*;
use crate::value::{Query, Row, Rows, Value};

/// How many tasks that wait for time, or for their children, are looked at together.
const DUE_LIMIT: u32 = 1_000;

/// How many tasks of an import are loaded at once.
pub const IMPORTED: usize = 500;

/// How far what holds a task back is followed.
pub const CHAIN_LIMIT: usize = 10_000;

/// The keys of a batch. Takes of one queue share one look at its head: each may take an item, so that as many must be there.
pub(crate) fn gathered(all: impl Iterator<Item = Key>) -> BTreeSet<Key> {
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
    // Only a take reads the head; what others do to it matters only then.
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

    /// Whether the key loads locks or semaphores. The waiters of every loaded resource are needed, so the usually empty table of waiters is
    /// read as a whole, once.
    fn needs_waiters(key: &Key) -> bool {
        matches!(
            key,
            Key::Lock(_)
                | Key::Semaphore(_)
                | Key::Waits
                | Key::Manual(_)
                | Key::ClaimsBy(_)
                | Key::ClaimsOn(_)
                | Key::Awaited { .. }
                | Key::Pipeline(_)
                | Key::Family(_)
        )
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
            Key::Ready { of_each } => self.add(tasks::Statement::Ready, [number(of_each)]),
            Key::Queue { of_each } => self.add(tasks::Statement::ReadyRoots, [number(of_each)]),
            Key::Due => self.add(tasks::Statement::Due, [number(&DUE_LIMIT)]),
            Key::DueRoots => self.add(tasks::Statement::DueRoots, []),
            Key::LimitedRoots => self.add(tasks::Statement::LimitedRoots, []),
            Key::Loops { after, limit } => self.add(tasks::Statement::Loops, [number(limit), after.0.into()]),
            Key::Finish => self.add(marks::Statement::Finished, []),
            Key::Counts => {
                self.add(task_counts::Statement::Kept, []);
                self.add(items::Statement::OfWorkers, []);
            }
            Key::OpenDecisions => self.add(decisions::Statement::Open, []),
            Key::Decision(id) => self.add(decisions::Statement::ById, [id.as_str().into()]),
            Key::Imports => self.add(imports::Statement::All, []),
            Key::Imported(id) => self.add(tasks::Statement::Imported, [id.as_str().into(), (IMPORTED as i64).into()]),
            Key::Live => {
                self.add(runs::Statement::Live, []);
                self.add(tasks::Statement::Live, []);
            }
            Key::Run(id) => self.add(runs::Statement::ById, [id.as_str().into()]),
            Key::RunsOf(id) => self.add(runs::Statement::OfTask, [id.as_str().into()]),
            Key::Runners => self.add(runners::Statement::All, []),
            Key::Outbox => self.add(outbox::Statement::All, []),
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
            Key::Queues => self.add(queues::Statement::All, []),
            Key::NamedQueue(name) => self.add(queues::Statement::ByName, [name.as_str().into()]),
            Key::Item(id) => self.add(items::Statement::ById, [id.0.0.into()]),
            Key::Dedupe(queue, key) => self.add(items::Statement::ByKey, [queue.as_str().into(), key.as_str().into()]),
            Key::Head { queue, takes, removed, ended } => {
                // One more tells whether there is something left for the next in line.
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
            Key::Crew => self.add(workers::Statement::Everything, []),
            Key::Worker(name) => {
                self.add(workers::Statement::ByName, [name.as_str().into()]);
                self.add(jobs::Statement::OfWorker, [name.as_str().into()]);
            }
            Key::Route(id) => self.add(routes::Statement::ById, [(&**id).into()]),
            Key::Router => self.add(marks::Statement::Routed, []),
            Key::Hands(queue) => self.add(runners::Statement::OfQueue, [queue.as_str().into()]),
            Key::HandsBeyond(queue) => self.add(runners::Statement::OfQueueAndDeadLetter, [queue.as_str().into()]),
            Key::AllHands => self.add(runners::Statement::OfQueues, []),
            Key::Log { after, limit } => self.add(events::Statement::Heard, [after.0.into(), number(limit)]),
        }
    }
}

/// The queries that load these keys.
pub(crate) fn plan(project: i64, keys: &BTreeSet<Key>) -> Vec<Query<'_>> {
    let mut plan = Plan { project, queries: Vec::with_capacity(keys.len() + 4) };
    if keys.iter().any(Plan::needs_waiters) {
        plan.add(waiters::Statement::All, []);
    }
    keys.iter().for_each(|key| plan.load(key));
    plan.queries
}

/// Everything that is held and waited for, without the locks of tasks that nobody works on.
pub(crate) fn plan_held(project: i64) -> Vec<Query<'static>> {
    plan_of(project, locks::Statement::Listed, &[])
}

/// Everything.
pub(crate) fn plan_all(project: i64) -> Vec<Query<'static>> {
    let rest = [
        sections::Statement::All.whole(),
        tasks::Statement::All.whole(),
        edges::Statement::All.whole(),
        runs::Statement::All.whole(),
        runners::Statement::All.whole(),
        outbox::Statement::All.whole(),
        marks::Statement::Finished.whole(),
        decisions::Statement::All.whole(),
        imports::Statement::All.whole(),
        pipelines::Statement::All.whole(),
        queues::Statement::All.whole(),
        items::Statement::All.whole(),
        workers::Statement::Everything.whole(),
    ];
    plan_of(project, locks::Statement::All, &rest)
}

fn plan_of(project: i64, locks: locks::Statement, rest: &[Statement]) -> Vec<Query<'static>> {
    let (semaphores, slots) = (semaphores::Statement::All.whole(), slots::Statement::All.whole());
    let held = [waiters::Statement::All.whole(), locks.whole(), semaphores, slots];
    held.iter().chain(rest).map(|statement| Query::new(*statement, [project.into()])).collect()
}

/// The answers to a plan, put together. Rows that two queries both return are equal, as they come from one transaction.
#[derive(Default)]
struct Loaded {
    tables: Tables,
    /// What belongs to rows that may come later.
    waiters: Vec<(Resource, Waiter)>,
    holders: Vec<(Ticket, HolderId)>,
    jobs: Vec<(Name, TaskId, Taken)>,
}

pub(crate) fn decode(queries: &[Query<'_>], answers: Vec<Rows>) -> Result<Tables, StoreError> {
    let mut loaded = Loaded::default();
    for (query, rows) in queries.iter().zip(answers) {
        match query.statement {
            Statement::TaskCounts(_) => loaded.tables.backlog.finish.counts = TaskCounts::kept(rows)?.by_status,
            _ => rows.into_iter().try_for_each(|mut row| loaded.add(query, &mut row))?,
        }
    }
    loaded.finish()
}

impl Loaded {
    fn add(&mut self, query: &Query<'_>, row: &mut Row) -> Result<(), StoreError> {
        let Tables { coordination, requests, backlog, queues, crew, listening, .. } = &mut self.tables;
        match query.statement {
            Statement::Locks(statement) => {
                let lock = locks::Locks::read(row)?;
                if statement == locks::Statement::Awaited {
                    listening.awaited.insert(Resource { kind: Kind::Lock, name: lock.name.clone() });
                }
                coordination.locks.insert(lock.name.clone(), lock);
            }
            Statement::Semaphores(statement) => {
                let semaphore = semaphores::Semaphores::read(row)?;
                if statement == semaphores::Statement::Awaited {
                    listening.awaited.insert(Resource { kind: Kind::Semaphore, name: semaphore.name.clone() });
                }
                coordination.semaphores.entry(semaphore.name.clone()).or_insert(semaphore);
            }
            Statement::Slots(_) => {
                let (name, grant) = slots::Slots::read(row)?;
                let semaphore = coordination.semaphores.get_mut(&name);
                let semaphore = semaphore.ok_or_else(|| StoreError::corrupt(format_args!("slots of no semaphore: {name}")))?;
                semaphore.holders.insert(grant.claim.holder.clone(), grant);
            }
            Statement::Waiters(_) => self.add_waiting(row)?,
            Statement::LostClaims(_) => {
                put::<lost_claims::LostClaims, _>(&mut backlog.lost_claims, row, |lost| (lost.task.clone(), lost.holder.clone()))?
            }
            Statement::Events(events::Statement::OfRequest) => requests.extend([events::granted(row)?]),
            Statement::Events(_) => crew.heard.push(events::heard(row)?),
            Statement::Sections(_) => put::<sections::Sections, _>(&mut backlog.sections, row, |section| section.id.clone())?,
            Statement::Tasks(statement) => {
                let task = tasks::Tasks::read(row)?;
                // They are counted under the import.
                if let (tasks::Statement::Imported, Some(Value::Text(import))) = (statement, query.params.get(1)) {
                    backlog.imported.insert(task.id.clone(), ImportId::new(import).map_err(StoreError::corrupt)?);
                }
                backlog.tasks.insert(task.id.clone(), task);
            }
            Statement::Edges(_) => {
                let (task, edge) = edges::Edges::read(row)?;
                let edges = backlog.edges.entry(task).or_default();
                // Two queries may both return it.
                if let Err(at) = edges.binary_search(&edge) {
                    edges.insert(at, edge);
                }
            }
            Statement::Runs(_) => put::<runs::Runs, _>(&mut backlog.runs, row, |run| run.id.clone())?,
            Statement::Runners(runners::Statement::All) => {
                put::<runners::Runners, _>(&mut backlog.runners, row, |runner| runner.id.clone())?
            }
            Statement::Runners(_) => {
                let (queue, address) = (Text::read(row)?, Text::read(row)?);
                crew.hands.entry(queue).or_default().insert(address);
            }
            Statement::Outbox(_) => put::<outbox::Outbox, _>(&mut backlog.outbox, row, |entry| entry.seq)?,
            Statement::Marks(marks::Statement::Routed) => crew.cursor = Int::read(row)?,
            Statement::Marks(_) => (backlog.finish.told, backlog.finish.last) = (Int::read(row)?, Int::read(row)?),
            Statement::Decisions(_) => {
                put::<decisions::Decisions, _>(&mut backlog.decisions, row, |decision| decision.id.clone())?
            }
            Statement::Imports(_) => put::<imports::Imports, _>(&mut backlog.imports, row, |import| import.id.clone())?,
            Statement::Listeners(_) => (listening.next_due, listening.since) = (Int::read(row)?, Int::read(row)?),
            Statement::Pipelines(statement) => {
                let Hosted { task, pipeline } = pipelines::read(row)?;
                if statement == pipelines::Statement::Heard {
                    listening.heard.insert(task.id.clone());
                }
                backlog.pipelines.insert(task.id.clone(), pipeline);
                backlog.tasks.insert(task.id.clone(), task);
            }
            Statement::Queues(_) => put::<queues::Queues, _>(&mut queues.queues, row, |queue| queue.name.clone())?,
            Statement::Items(items::Statement::OfWorkers) => {
                let mut items = WorkItems::default();
                items.put(row)?;
                backlog.finish.dead += items.deaths();
            }
            Statement::Items(_) => put::<items::Items, _>(&mut queues.items, row, |item| item.id)?,
            Statement::Takers(_) => put::<takers::Takers, _>(&mut queues.takers, row, |taker| taker.ticket)?,
            Statement::Workers(workers::Statement::ByName) => crew.workers.workers.extend([workers::Workers::read(row)?]),
            Statement::Workers(_) => crew.add(row, &mut self.jobs)?,
            Statement::Jobs(_) => self.jobs.push(jobs::Jobs::read(row)?),
            Statement::Routes(_) => crew.routes.routes.extend([routes::Routes::read(row)?]),
            other @ (Statement::Projects(_) | Statement::Baseline(_) | Statement::Claims(_) | Statement::TaskCounts(_)) => {
                unreachable!("{other:?} loads no table")
            }
        }
        Ok(())
    }

    /// A row of the statement that reads everybody who waits.
    fn add_waiting(&mut self, row: &mut Row) -> Result<(), StoreError> {
        let word = row.text()?;
        row.skip_nulls();
        match word.as_str() {
            "waiter" => self.waiters.push(waiters::WaiterRows::read(row)?),
            "claim" => join(claims::Claims::read(row)?, &mut self.tables.coordination),
            "runner" => self.tables.watchers.push(Watcher { address: Text::read(row)?, watching: Json::read(row)? }),
            "holder" => self.holders.push((Int::read(row)?, Text::read(row)?)),
            other => return Err(StoreError::corrupt(format_args!("a row of the kind {other:?}"))),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Tables, StoreError> {
        let coordination = &mut self.tables.coordination;
        for (ticket, holder) in self.holders {
            coordination.claims.get_mut(&ticket).into_iter().for_each(|claim| claim.in_the_way.extend([holder.clone()]));
        }
        for (resource, waiter) in self.waiters {
            stand(&resource, waiter, coordination);
        }
        coordination.claims.values_mut().for_each(|claim| claim.parts.sort_by(|a, b| a.resource.cmp(&b.resource)));
        self.tables.crew.assign(self.jobs)?;
        Ok(self.tables)
    }
}

/// Puts a row to the others of its table.
fn put<T: Table, K: Ord>(rows: &mut BTreeMap<K, T::Row>, row: &mut Row, key: impl Fn(&T::Row) -> K) -> Result<(), StoreError> {
    let read = T::read(row)?;
    rows.insert(key(&read), read);
    Ok(())
}

/// Puts one part of a claim to the others.
fn join(part: WorkClaim, coordination: &mut Coordination) {
    match coordination.claims.get_mut(&part.ticket) {
        Some(claim) => claim.parts.extend(part.parts),
        None => drop(coordination.claims.insert(part.ticket, part)),
    }
}

/// Puts a waiter in the line of its resource, if that was loaded.
fn stand(resource: &Resource, waiter: Waiter, coordination: &mut Coordination) {
    let line = match resource.kind {
        Kind::Lock => coordination.locks.get_mut(&resource.name).map(|lock| &mut lock.waiters),
        Kind::Semaphore => coordination.semaphores.get_mut(&resource.name).map(|semaphore| &mut semaphore.waiters),
    };
    if let Some(line) = line {
        line.push(waiter);
    }
}
