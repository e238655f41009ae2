//! The rows that a decision sees, and how they are read.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::backlog::Backlog;
use banksman_core::event::{Event, Fact, Kind, Resource};
use banksman_core::queue::Queues;
use banksman_core::resource::coordination::Coordination;
use banksman_core::resource::grant::{Address, Waiter};
use banksman_core::resource::lock::{self, Lock, State};
use banksman_core::resource::semaphore::{self, Semaphore};
use banksman_core::{Epoch, HolderId, ImportId, Lease, RequestId, Seq, WorkClaim};

use crate::counts::TaskCounts;
use crate::crew::{self, Crew};
use crate::error::StoreError;
use crate::key::Key;
use crate::pipelines::{self, Hosted, Listening};
use crate::queues::{self, WorkItems};
use crate::rows::{Waits, parsed};
use crate::sql::Statement;
use crate::value::{Query, Row, Rows, Value};

/// How many tasks that wait for time, or for their children, are looked at together.
const DUE_LIMIT: i64 = 1_000;

/// How many tasks of an import are loaded at once.
pub const IMPORTED: usize = 500;

/// How far what holds a task back is followed.
pub const CHAIN_LIMIT: usize = 10_000;

/// A partial copy of the tables: what the calls of one batch asked for, with the changes of earlier calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tables {
    /// Locks and semaphores.
    pub coordination: Coordination,
    /// What requests were granted.
    pub requests: BTreeMap<RequestId, Granted>,
    /// The runners that are to be woken when something is freed. Loaded with every lock and semaphore.
    pub watchers: Vec<Watcher>,
    /// Tasks and what belongs to them.
    pub backlog: Backlog,
    /// Queues and their items.
    pub queues: Queues,
    /// Workers and routes.
    pub crew: Crew,
    /// Pipelines that are held up.
    pub listening: Listening,
}

/// A runner that waits until something is freed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watcher {
    /// Where to wake it.
    pub address: Address,
    /// What it waits for.
    pub watching: Vec<Resource>,
}

/// What a request was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// Of what.
    pub resource: Resource,
    /// To whom.
    pub holder: HolderId,
    /// The epoch of the grant.
    pub epoch: Epoch,
}

/// What loads claims with everything that they hold. Semaphores come before their slots.
const CLAIMS: [Statement; 4] =
    [Statement::ClaimedTasks, Statement::ClaimedLocks, Statement::ClaimedSemaphores, Statement::ClaimedSlots];

/// The queries that load these keys.
pub(crate) fn plan(project: i64, keys: &BTreeSet<Key>) -> Vec<Query<'_>> {
    let mut queries = Vec::with_capacity(keys.len() + 4);
    let mut add = |statement, name| {
        let params = match name {
            Some(name) => vec![project.into(), Value::from(name)],
            None => vec![project.into()],
        };
        queries.push(Query::new(statement, params));
    };
    // The line of every loaded resource is needed, so the usually empty table of waiters is read as a whole, once.
    if keys.iter().any(|key| {
        matches!(
            key,
            Key::Lock(_)
                | Key::Semaphore(_)
                | Key::Waits
                | Key::ByHand(_)
                | Key::ClaimsBy(_)
                | Key::ClaimsOn(_)
                | Key::Awaited { .. }
                | Key::Pipeline(_)
                | Key::Family(_)
        )
    }) {
        add(Statement::Waiters, None);
    }
    for key in keys {
        match key {
            Key::Lock(name) => add(Statement::Lock, Some(name.as_str())),
            Key::Semaphore(name) => {
                add(Statement::Semaphore, Some(name.as_str()));
                add(Statement::Slots, Some(name.as_str()));
            }
            Key::Waits => {
                add(Statement::WaitedLocks, None);
                add(Statement::WaitedSemaphores, None);
                add(Statement::WaitedSlots, None);
            }
            Key::Request(request) => add(Statement::Request, Some(request.as_str())),
            Key::Sections => add(Statement::Sections, None),
            Key::Task(id) => add(Statement::Task, Some(id.as_str())),
            Key::Family(id) => {
                add(Statement::Family, Some(id.as_str()));
                add(Statement::FamilyPipelines, Some(id.as_str()));
                add(Statement::FamilyPipelineLocks, Some(id.as_str()));
                add(Statement::FamilyPipelineSemaphores, Some(id.as_str()));
                add(Statement::FamilyPipelineSlots, Some(id.as_str()));
            }
            Key::Pipeline(id) => {
                add(Statement::Pipeline, Some(id.as_str()));
                add(Statement::PipelineLocks, Some(id.as_str()));
                add(Statement::PipelineSemaphores, Some(id.as_str()));
                add(Statement::PipelineSlots, Some(id.as_str()));
            }
            Key::BegunPipelines => add(Statement::BegunPipelines, None),
            Key::DuePipelines { .. } | Key::HeardPipelines { .. } | Key::Awaited { .. } => {}
            Key::Dependencies(id) => {
                add(Statement::Edges, Some(id.as_str()));
                add(Statement::Dependencies, Some(id.as_str()));
            }
            Key::Dependents(id) => add(Statement::Dependents, Some(id.as_str())),
            Key::FamilyDependents(id) => add(Statement::FamilyDependents, Some(id.as_str())),
            Key::Upstream(id) => add(Statement::Upstream, Some(id.as_str())),
            Key::Chain(id) => {
                add(Statement::ChainTasks, Some(id.as_str()));
                add(Statement::ChainEdges, Some(id.as_str()));
            }
            Key::InSection(id) => add(Statement::InSection, Some(id.as_str())),
            Key::Ready { .. } | Key::Queue { .. } | Key::Due | Key::Loops { .. } | Key::Imported(_) | Key::Expired { .. } => {}
            Key::Queues
            | Key::NamedQueue(_)
            | Key::Item(_)
            | Key::Dedupe(..)
            | Key::Head { .. }
            | Key::Part { .. }
            | Key::FirstTaker(_)
            | Key::Takers(_)
            | Key::AllTakers
            | Key::Crew
            | Key::Worker(_)
            | Key::Route(_)
            | Key::Router
            | Key::Hands(_)
            | Key::HandsBeyond(_)
            | Key::AllHands
            | Key::Log { .. } => {}
            Key::ByHand(id) => {
                add(Statement::HandLocks, Some(id.as_str()));
                add(Statement::HandSemaphores, Some(id.as_str()));
                add(Statement::HandSlots, Some(id.as_str()));
                add(Statement::HandTasks, Some(id.as_str()));
                add(Statement::LostClaims, Some(id.as_str()));
            }
            Key::ClaimsBy(_) | Key::ClaimsOn(_) => {}
            Key::DueRoots => add(Statement::DueRoots, None),
            Key::LimitedRoots => add(Statement::LimitedRoots, None),
            Key::Finish => add(Statement::Finish, None),
            Key::Counts => {
                add(Statement::TaskCounts, None);
                add(Statement::WorkItems, None);
            }
            Key::OpenDecisions => add(Statement::OpenDecisions, None),
            Key::Decision(id) => add(Statement::Decision, Some(id.as_str())),
            Key::Imports => add(Statement::Imports, None),
            Key::Live => {
                add(Statement::LiveRuns, None);
                add(Statement::LiveTasks, None);
            }
            Key::Run(id) => add(Statement::Run, Some(id.as_str())),
            Key::RunsOf(id) => add(Statement::RunsOf, Some(id.as_str())),
            Key::Runners => add(Statement::Runners, None),
            Key::Outbox => add(Statement::Outbox, None),
        }
    }
    for key in keys {
        match key {
            Key::Ready { of_each } => {
                queries.push(Query::new(Statement::Ready, [project.into(), i64::from(*of_each).into()]));
            }
            Key::Queue { of_each } => {
                queries.push(Query::new(Statement::Queue, [project.into(), i64::from(*of_each).into()]));
            }
            Key::Expired { now, limit } => {
                for statement in [Statement::ExpiredLocks, Statement::ExpiredSemaphores, Statement::ExpiredSlots] {
                    queries.push(Query::new(statement, [project.into(), now.0.into(), i64::from(*limit).into()]));
                }
            }
            Key::ClaimsBy(_) | Key::ClaimsOn(_) => {
                let (holder, resource) = match key {
                    Key::ClaimsBy(holder) => (Value::from(holder.as_str()), Value::Null),
                    Key::ClaimsOn(name) => (Value::Null, name.as_str().into()),
                    _ => unreachable!("one of these two"),
                };
                for statement in CLAIMS {
                    queries.push(Query::new(statement, [project.into(), holder.clone(), resource.clone()]));
                }
            }
            Key::Due => queries.push(Query::new(Statement::Due, [project.into(), DUE_LIMIT.into()])),
            Key::Loops { after, limit } => {
                queries.push(Query::new(Statement::Loops, [project.into(), i64::from(*limit).into(), after.0.into()]));
            }
            _ => {}
        }
        queues::plan(project, key, &mut queries);
        crew::plan(project, key, &mut queries);
        pipelines::plan(project, key, &mut queries);
        if let Key::Imported(id) = key {
            queries.push(Query::new(Statement::Imported, [project.into(), id.as_str().into(), (IMPORTED as i64).into()]));
        }
    }
    queries
}

/// Everything that is held and waited for, without the locks of tasks that nobody works on.
pub(crate) fn plan_held(project: i64) -> Vec<Query<'static>> {
    plan_of(project, &[Statement::Waiters, Statement::ListedLocks, Statement::AllSemaphores, Statement::AllSlots])
}

/// Everything.
pub(crate) fn plan_all(project: i64) -> Vec<Query<'static>> {
    let held = [Statement::Waiters, Statement::AllLocks, Statement::AllSemaphores, Statement::AllSlots];
    let backlog = [
        Statement::Sections,
        Statement::AllTasks,
        Statement::AllEdges,
        Statement::AllRuns,
        Statement::Runners,
        Statement::Outbox,
        Statement::Finish,
        Statement::AllDecisions,
        Statement::Imports,
        Statement::AllPipelines,
        Statement::AllQueues,
        Statement::AllItems,
        Statement::Crew,
    ];
    plan_of(project, &[&held[..], &backlog[..]].concat())
}

fn plan_of(project: i64, statements: &[Statement]) -> Vec<Query<'static>> {
    statements.iter().copied().map(|statement| Query::new(statement, [project.into()])).collect()
}

/// Puts the answers to a plan together. Rows that two queries both return are equal, as they come from one
/// transaction.
pub(crate) fn decode(queries: &[Query<'_>], answers: Vec<Rows>) -> Result<Tables, StoreError> {
    let mut tables = Tables::default();
    let (mut waiters, mut jobs, mut in_the_way) = (Vec::new(), Vec::new(), Vec::new());
    for (query, rows) in queries.iter().zip(answers) {
        if query.statement == Statement::TaskCounts {
            tables.backlog.finish.counts = TaskCounts::kept(rows)?.by_status;
            continue;
        }
        for mut row in rows {
            match query.statement {
                Statement::Lock
                | Statement::HandLocks
                | Statement::PipelineLocks
                | Statement::ClaimedLocks
                | Statement::FamilyPipelineLocks
                | Statement::AllLocks
                | Statement::ListedLocks
                | Statement::AwaitedLocks
                | Statement::ExpiredLocks
                | Statement::WaitedLocks => {
                    let lock = lock(&mut row)?;
                    if query.statement == Statement::AwaitedLocks {
                        tables.listening.awaited.insert(Resource { kind: Kind::Lock, name: lock.name.clone() });
                    }
                    tables.coordination.locks.insert(lock.name.clone(), lock);
                }
                Statement::Semaphore
                | Statement::HandSemaphores
                | Statement::PipelineSemaphores
                | Statement::ClaimedSemaphores
                | Statement::FamilyPipelineSemaphores
                | Statement::AllSemaphores
                | Statement::AwaitedSemaphores
                | Statement::ExpiredSemaphores
                | Statement::WaitedSemaphores => {
                    let semaphore = semaphore(&mut row)?;
                    if query.statement == Statement::AwaitedSemaphores {
                        tables.listening.awaited.insert(Resource { kind: Kind::Semaphore, name: semaphore.name.clone() });
                    }
                    tables.coordination.semaphores.entry(semaphore.name.clone()).or_insert(semaphore);
                }
                Statement::Slots
                | Statement::HandSlots
                | Statement::PipelineSlots
                | Statement::ClaimedSlots
                | Statement::FamilyPipelineSlots
                | Statement::AllSlots
                | Statement::AwaitedSlots
                | Statement::ExpiredSlots
                | Statement::WaitedSlots => slot(&mut row, &mut tables.coordination)?,
                Statement::Waiters => match row.waiter_or_watcher()? {
                    Waits::InLine(resource, waiter) => waiters.push((resource, *waiter)),
                    Waits::Watching(watcher) => tables.watchers.push(watcher),
                    Waits::Claim(claim) => join(*claim, &mut tables.coordination),
                    Waits::InTheWay(ticket, holder) => in_the_way.push((ticket, holder)),
                },
                Statement::LostClaims => {
                    let lost = row.lost_claim()?;
                    tables.backlog.lost_claims.insert((lost.task.clone(), lost.holder.clone()), lost);
                }
                Statement::Request => {
                    let (request, granted) = request(&mut row)?;
                    tables.requests.insert(request, granted);
                }
                Statement::Sections => {
                    let section = row.section()?;
                    tables.backlog.sections.insert(section.id.clone(), section);
                }
                Statement::Task
                | Statement::AllTasks
                | Statement::Family
                | Statement::Dependencies
                | Statement::ChainTasks
                | Statement::InSection
                | Statement::Ready
                | Statement::Queue
                | Statement::Due
                | Statement::DueRoots
                | Statement::LimitedRoots
                | Statement::HandTasks
                | Statement::ClaimedTasks
                | Statement::Loops
                | Statement::LiveTasks => {
                    let task = row.task()?;
                    tables.backlog.tasks.insert(task.id.clone(), task);
                }
                // They are counted under the import.
                Statement::Imported => {
                    let task = row.task()?;
                    if let Some(Value::Text(import)) = query.params.get(1) {
                        tables.backlog.imported.insert(task.id.clone(), parsed(import, ImportId::new)?);
                    }
                    tables.backlog.tasks.insert(task.id.clone(), task);
                }
                Statement::Edges
                | Statement::AllEdges
                | Statement::Dependents
                | Statement::FamilyDependents
                | Statement::Upstream
                | Statement::ChainEdges => {
                    let (task, edge) = row.edge()?;
                    let edges = tables.backlog.edges.entry(task).or_default();
                    // Two queries may both return it.
                    if let Err(at) = edges.binary_search(&edge) {
                        edges.insert(at, edge);
                    }
                }
                Statement::Run | Statement::AllRuns | Statement::LiveRuns | Statement::RunsOf => {
                    let run = row.run()?;
                    tables.backlog.runs.insert(run.id.clone(), run);
                }
                Statement::Runners => {
                    let runner = row.runner()?;
                    tables.backlog.runners.insert(runner.id.clone(), runner);
                }
                Statement::Outbox => {
                    let entry = row.entry()?;
                    tables.backlog.outbox.insert(entry.seq, entry);
                }
                Statement::Finish => {
                    let finish = &mut tables.backlog.finish;
                    (finish.told, finish.last) = (Seq(row.int()?), Epoch(row.int()?));
                }
                Statement::WorkItems => {
                    let mut items = WorkItems::default();
                    items.put(row)?;
                    tables.backlog.finish.dead += items.deaths();
                }
                Statement::Decision | Statement::AllDecisions | Statement::OpenDecisions => {
                    let decision = row.decision()?;
                    tables.backlog.decisions.insert(decision.id.clone(), decision);
                }
                Statement::Imports => {
                    let import = row.import()?;
                    tables.backlog.imports.insert(import.id.clone(), import);
                }
                Statement::Listening => {
                    tables.listening.next_due = row.maybe_int()?.map(Lease);
                    tables.listening.since = row.maybe_int()?.map(Seq);
                }
                Statement::Pipeline
                | Statement::FamilyPipelines
                | Statement::BegunPipelines
                | Statement::DuePipelines
                | Statement::HeardPipelines
                | Statement::AllPipelines => {
                    let Hosted { task, pipeline } = row.hosted()?;
                    if query.statement == Statement::HeardPipelines {
                        tables.listening.heard.insert(task.id.clone());
                    }
                    tables.backlog.pipelines.insert(task.id.clone(), pipeline);
                    tables.backlog.tasks.insert(task.id.clone(), task);
                }
                Statement::AllQueues | Statement::QueueRow => {
                    let queue = row.queue()?;
                    tables.queues.queues.insert(queue.name.clone(), queue);
                }
                Statement::Item
                | Statement::AllItems
                | Statement::ItemByKey
                | Statement::ReadyItems
                | Statement::DueItems
                | Statement::RestingItems
                | Statement::ProcessingItems
                | Statement::DeadItems
                | Statement::MovedItems => {
                    let item = row.item()?;
                    tables.queues.items.insert(item.id, item);
                }
                Statement::FirstTaker | Statement::Takers | Statement::AllTakers => {
                    let taker = row.taker()?;
                    tables.queues.takers.insert(taker.ticket, taker);
                }
                Statement::Crew | Statement::WorkerRows | Statement::RouteRow | Statement::Cursor => {
                    tables.crew.put(row.crew()?, &mut jobs)
                }
                Statement::Hands | Statement::HandsBeyond | Statement::AllHands => {
                    let (queue, address) = (row.name()?, Address(row.text()?.into()));
                    tables.crew.hands.entry(queue).or_default().insert(address);
                }
                Statement::Heard => tables.crew.heard.push(row.heard()?),
                other => unreachable!("{other:?} loads no table"),
            }
        }
    }
    for (ticket, holder) in in_the_way {
        tables.coordination.claims.get_mut(&ticket).into_iter().for_each(|claim| claim.in_the_way.extend([holder.clone()]));
    }
    for (resource, waiter) in waiters {
        stand(resource, waiter, &mut tables.coordination);
    }
    tables.coordination.claims.values_mut().for_each(|claim| claim.parts.sort_by(|a, b| a.resource.cmp(&b.resource)));
    tables.crew.assign(jobs)?;
    Ok(tables)
}

fn lock(row: &mut Row) -> Result<Lock, StoreError> {
    let name = row.name()?;
    let config = lock::Config { ttl: row.span()?, max_hold: row.span()? };
    let fence = Epoch(row.int()?);
    let state = row.grant()?.map_or(State::Free, |grant| State::Held(Box::new(grant)));
    Ok(Lock { config, fence, state, ..Lock::new(name) })
}

fn semaphore(row: &mut Row) -> Result<Semaphore, StoreError> {
    let name = row.name()?;
    let capacity = row.int()?.try_into().map_err(StoreError::corrupt)?;
    Ok(Semaphore::new(name, semaphore::Config { capacity, ttl: row.span()? }))
}

fn slot(row: &mut Row, coordination: &mut Coordination) -> Result<(), StoreError> {
    let name = row.name()?;
    let grant = row.grant()?.ok_or_else(|| StoreError::corrupt("a slot without a holder"))?;
    let semaphore = coordination.semaphores.get_mut(&name);
    let semaphore = semaphore.ok_or_else(|| StoreError::corrupt(format_args!("slots of no semaphore: {name}")))?;
    semaphore.holders.insert(grant.claim.holder.clone(), grant);
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
fn stand(resource: Resource, waiter: Waiter, coordination: &mut Coordination) {
    let line = match resource.kind {
        Kind::Lock => coordination.locks.get_mut(&resource.name).map(|lock| &mut lock.line),
        Kind::Semaphore => coordination.semaphores.get_mut(&resource.name).map(|semaphore| &mut semaphore.line),
    };
    if let Some(line) = line {
        line.push(waiter);
    }
}

fn request(row: &mut Row) -> Result<(RequestId, Granted), StoreError> {
    let epoch = Epoch(row.int()?);
    let (kind, component, id, data) = (row.text()?, row.text()?, row.maybe_text()?, row.text()?);
    match Event::parse(&kind, &component, id.as_deref(), &data).map_err(StoreError::corrupt)? {
        Event::Resource { resource, fact: Fact::Acquired(claim) } if claim.request.is_some() => {
            let request = claim.request.expect("the guard has looked");
            Ok((request, Granted { resource, holder: claim.holder, epoch }))
        }
        _ => Err(StoreError::corrupt(format_args!("event {epoch} carries a request but grants nothing"))),
    }
}
