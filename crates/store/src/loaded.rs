//! Decoding of the answers to a load into [`Tables`].

use std::collections::BTreeMap;

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::Coordination;
use banksman_core::resource::grant::Waiter;
use banksman_core::worker::Taken;
use banksman_core::{HolderId, ImportId, Name, TaskId, Ticket, WorkClaim};

use crate::columns::{Codec, Int, Text};
use crate::error::StoreError;
use crate::table::Table;
use crate::tables::items::WorkItems;
use crate::tables::pipelines::Hosted;
use crate::tables::project_counts::ProjectCounts;
use crate::tables::task_counts::TaskCounts;
use crate::tables::*;
use crate::value::{Query, Row, Rows, Value};

/// The answers to a plan, merged. Rows that two queries both return are equal, as they come from one transaction.
#[derive(Default)]
pub(crate) struct Loaded {
    tables: Tables,
    /// Parts of rows that may be read later.
    waiters: Vec<(Resource, Waiter)>,
    holders: Vec<(Ticket, HolderId)>,
    jobs: Vec<(Name, TaskId, Taken)>,
    /// Counters of tasks of imports and of blocked tasks.
    task_counts: Option<Rows>,
    /// Whether only some of the run slots were queried.
    has_some_run_slots: bool,
}

pub(crate) fn decode(queries: &[Query<'_>], answers: Vec<Rows>, counts: &ProjectCounts) -> Result<Tables, StoreError> {
    let mut loaded = Loaded::default();
    loaded.extend(queries, answers)?;
    loaded.finish(counts)
}

impl Loaded {
    /// Adds the answers to a plan.
    pub(crate) fn extend(&mut self, queries: &[Query<'_>], answers: Vec<Rows>) -> Result<(), StoreError> {
        for (query, rows) in queries.iter().zip(answers) {
            self.has_some_run_slots |= query.statement == slots::Statement::Mortal.erased();
            match query.statement {
                Statement::TaskCounts(_) => self.task_counts.get_or_insert_default().extend(rows),
                _ => rows.into_iter().try_for_each(|mut row| self.add(query, &mut row))?,
            }
        }
        Ok(())
    }

    /// The rows loaded so far; waiters may be missing.
    pub(crate) fn so_far(&self) -> &Tables {
        &self.tables
    }

    fn add(&mut self, query: &Query<'_>, row: &mut Row) -> Result<(), StoreError> {
        let Tables { coordination, backlog, queues, automation, listening, ready, parked, parked_on, .. } = &mut self.tables;
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
            Statement::Events(events::Statement::OfRequest) => self.tables.requests.extend([events::granted(row)?]),
            Statement::Events(_) => automation.heard.push(events::heard(row)?),
            Statement::Sections(_) => put::<sections::Sections, _>(&mut backlog.sections, row, |section| section.id.clone())?,
            Statement::Tasks(statement) => {
                let task = tasks::Tasks::read(row)?;
                // These tasks are counted under the import.
                if let (tasks::Statement::Imported, Some(Value::Text(import))) = (statement, query.params.get(1)) {
                    backlog.imported.insert(task.id.clone(), ImportId::new(import).map_err(StoreError::corrupt)?);
                }
                match statement {
                    tasks::Statement::Ready | tasks::Statement::ReadyRoots => {
                        ready.insert(task.id.clone());
                        if !row.is_null() {
                            let lock = locks::Locks::read(row)?;
                            coordination.locks.insert(lock.name.clone(), lock);
                        }
                    }
                    tasks::Statement::Parked => parked.push((tasks::parked_resource(&row.text()?)?, task.id.clone())),
                    tasks::Statement::ParkedOn | tasks::Statement::LightestParkedOn => {
                        let waiting = parked_on.entry(parked_resource(query)?).or_default();
                        // The same task may be among the first and among the lightest.
                        if !waiting.contains(&task.id) {
                            waiting.push(task.id.clone());
                        }
                    }
                    _ => {}
                }
                backlog.tasks.insert(task.id.clone(), task);
            }
            Statement::Edges(edges::Statement::CountOnTask) => {
                self.tables.dependents.insert(Text::read(row)?, Int::read(row)?);
            }
            Statement::FanOuts(_) => self.tables.fan_out = Some(Text::read(row)?),
            Statement::Edges(_) => {
                let (task, edge) = edges::Edges::read(row)?;
                let edges = backlog.edges.entry(task).or_default();
                // Two queries may return the same edge.
                if let Err(at) = edges.binary_search(&edge) {
                    edges.insert(at, edge);
                }
            }
            Statement::Runs(_) => put::<runs::Runs, _>(&mut backlog.runs, row, |run| run.id.clone())?,
            Statement::Runners(runners::Statement::All | runners::Statement::ById | runners::Statement::Idle) => {
                put::<runners::Runners, _>(&mut backlog.runners, row, |runner| runner.id.clone())?
            }
            Statement::Runners(_) => {
                let (queue, address) = (Text::read(row)?, Text::read(row)?);
                automation.worker_runners.entry(queue).or_default().insert(address);
            }
            Statement::Outbox(_) => put::<outbox::Outbox, _>(&mut backlog.outbox, row, |entry| entry.seq)?,
            Statement::Marks(marks::Statement::Routed) => automation.cursor = Int::read(row)?,
            Statement::Marks(_) => (backlog.totals.finished_at, backlog.totals.last_run) = (Int::read(row)?, Int::read(row)?),
            Statement::Decisions(_) => {
                put::<decisions::Decisions, _>(&mut backlog.decisions, row, |decision| decision.id.clone())?
            }
            Statement::Imports(_) => put::<imports::Imports, _>(&mut backlog.imports, row, |import| import.id.clone())?,
            Statement::Landings(_) => put::<landings::Landings, _>(&mut backlog.landings, row, |entry| entry.id.clone())?,
            Statement::LandingTargets(_) => {
                put::<landing_targets::LandingTargets, _>(&mut backlog.landing_targets, row, |target| target.name.clone())?
            }
            Statement::AccountLimits(_) => {
                put::<account_limits::AccountLimits, _>(&mut backlog.account_limits, row, |limit| limit.name.clone())?
            }
            Statement::Spend(_) => put::<spend::Spend, _>(&mut backlog.spend, row, |spend| (spend.day, spend.agent.clone()))?,
            Statement::Listeners(_) => (listening.next_due, listening.since) = (Int::read(row)?, Int::read(row)?),
            Statement::Pipelines(statement) => {
                let Hosted { task, pipeline } = pipelines::read(row)?;
                if statement == pipelines::Statement::Heard {
                    listening.heard.insert(task.id.clone());
                }
                backlog.pipelines.insert(task.id.clone(), pipeline);
                backlog.tasks.insert(task.id.clone(), task);
            }
            Statement::Workspaces(_) => {
                put::<workspaces::Workspaces, _>(&mut backlog.workspaces, row, |workspace| workspace.owner.clone())?
            }
            Statement::Queues(_) => put::<queues::Queues, _>(&mut queues.queues, row, |queue| queue.name.clone())?,
            Statement::Items(items::Statement::OfWorkers) => {
                let mut items = WorkItems::default();
                items.put(row)?;
                backlog.totals.dead += items.deaths();
            }
            Statement::Items(_) => put::<items::Items, _>(&mut queues.items, row, |item| item.id)?,
            Statement::Takers(_) => put::<takers::Takers, _>(&mut queues.takers, row, |taker| taker.ticket)?,
            Statement::Workers(workers::Statement::ByName) => automation.workers.workers.extend([workers::Workers::read(row)?]),
            Statement::Workers(_) => automation.add(row, &mut self.jobs)?,
            Statement::Jobs(_) => self.jobs.push(jobs::Jobs::read(row)?),
            Statement::Messages(_) => {
                put::<messages::Messages, _>(&mut self.tables.messages, row, |message| message.draft.id.clone())?
            }
            Statement::Deliveries(deliveries::Statement::OverTargets) => drop(self.tables.over_targets.insert(Text::read(row)?)),
            Statement::Deliveries(_) => {
                put::<deliveries::Deliveries, _>(&mut self.tables.deliveries, row, |delivery| delivery.id.clone())?
            }
            Statement::Routes(_) => automation.routes.routes.extend([routes::Routes::read(row)?]),
            other @ (Statement::Projects(_) | Statement::Baseline(_) | Statement::Claims(_) | Statement::TaskCounts(_)) => {
                unreachable!("{other:?} loads no table")
            }
        }
        Ok(())
    }

    /// Adds a row of the statement that reads all waiters.
    fn add_waiting(&mut self, row: &mut Row) -> Result<(), StoreError> {
        let word = row.text()?;
        row.skip_nulls();
        match word.as_str() {
            "waiter" => self.waiters.push(waiters::WaiterRows::read(row)?),
            "claim" => add_claim_part(claims::Claims::read(row)?, &mut self.tables.coordination),
            "holder" => self.holders.push((Int::read(row)?, Text::read(row)?)),
            other => return Err(StoreError::corrupt(format_args!("a row of the kind {other:?}"))),
        }
        Ok(())
    }

    /// Joins waiters, claims and jobs with their rows. The counters of the project row were read in the same
    /// transaction.
    pub(crate) fn finish(mut self, counts: &ProjectCounts) -> Result<Tables, StoreError> {
        self.tables.live_runs = counts.live_runs.try_into().map_err(StoreError::corrupt)?;
        if let Some(rows) = self.task_counts {
            self.tables.backlog.totals.counts = TaskCounts::kept(counts, rows)?.by_status;
        }
        let coordination = &mut self.tables.coordination;
        if let Some(slots) = coordination.semaphores.get_mut(&Name::runs()).filter(|_| self.has_some_run_slots) {
            let known: i64 = slots.holders.values().map(|grant| i64::from(grant.claim.weight)).sum();
            slots.elsewhere = (counts.run_slots - known).try_into().map_err(StoreError::corrupt)?;
        }
        for (ticket, holder) in self.holders {
            coordination.claims.get_mut(&ticket).into_iter().for_each(|claim| claim.in_the_way.extend([holder.clone()]));
        }
        for (resource, waiter) in self.waiters {
            add_waiter(&resource, waiter, coordination);
        }
        coordination.claims.values_mut().for_each(|claim| claim.parts.sort_by(|a, b| a.resource.cmp(&b.resource)));
        self.tables.automation.assign(self.jobs)?;
        Ok(self.tables)
    }
}

/// The resource whose parked tasks a query reads.
fn parked_resource(query: &Query<'_>) -> Result<Resource, StoreError> {
    let text = query.params.get(1).and_then(Value::as_text).unwrap_or_default();
    tasks::parked_resource(text)
}

/// Adds a row to its table.
fn put<T: Table, K: Ord>(rows: &mut BTreeMap<K, T::Row>, row: &mut Row, key: impl Fn(&T::Row) -> K) -> Result<(), StoreError> {
    let read = T::read(row)?;
    rows.insert(key(&read), read);
    Ok(())
}

/// Adds one part of a claim to the other parts.
fn add_claim_part(part: WorkClaim, coordination: &mut Coordination) {
    match coordination.claims.get_mut(&part.ticket) {
        Some(claim) => claim.parts.extend(part.parts),
        None => drop(coordination.claims.insert(part.ticket, part)),
    }
}

/// Adds a waiter to its resource, if that was loaded.
fn add_waiter(resource: &Resource, waiter: Waiter, coordination: &mut Coordination) {
    let waiters = match resource.kind {
        Kind::Lock => coordination.locks.get_mut(&resource.name).map(|lock| &mut lock.waiters),
        Kind::Semaphore => coordination.semaphores.get_mut(&resource.name).map(|semaphore| &mut semaphore.waiters),
    };
    if let Some(waiters) = waiters {
        waiters.push(waiter);
    }
}
