//! How workers, their jobs, and routes stand in columns, which of them a key names, and what a batch has changed of them.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::resource::grant::Address;
use banksman_core::route::{Definition, Heard, InForce, Routes, Subscriber, Subscription};
use banksman_core::task::{Spec, Work};
use banksman_core::worker::{Taken, Worker, Workers};
use banksman_core::{Epoch, Event, ItemId, Lease, Name, Seq, TaskId, Wall};

use crate::error::StoreError;
use crate::key::Key;
use crate::rows::{json, parsed};
use crate::sql::Statement;
use crate::value::{Query, Row, Value};

/// Workers and routes, with what goes on around them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Crew {
    /// The workers, with all their jobs.
    pub workers: Workers,
    /// The routes.
    pub routes: Routes,
    /// The last event that was routed.
    pub cursor: Seq,
    /// The jobs whose tasks are over, or gone. Loaded with [`Key::Crew`] alone.
    pub over: BTreeSet<TaskId>,
    /// Where to wake the runners when there is something in a queue that has a worker.
    pub hands: BTreeMap<Name, BTreeSet<Address>>,
    /// Events, in their order.
    pub heard: Vec<Heard>,
    /// When time next changes something in a queue. Loaded with [`Key::Crew`] alone.
    pub due: BTreeMap<Name, Lease>,
}

/// A row of the one statement that reads it all.
pub(crate) enum CrewRow {
    Worker(Name, Box<Worker>),
    Job { worker: Name, task: TaskId, taken: Taken, is_over: bool },
    Route(Box<str>, InForce),
    Cursor(Seq),
    Due(Name, Lease),
}

impl Row {
    pub(crate) fn crew(&mut self) -> Result<CrewRow, StoreError> {
        let missing = |what: &'static str| move || StoreError::corrupt(format_args!("{what} is missing"));
        let (word, id, data) = (self.text()?, self.text()?, self.maybe_text()?);
        let (worker, queue) = (self.maybe_text()?, self.maybe_text()?);
        let (first, second, since, last) = (self.int()?, self.int()?, Seq(self.int()?), self.int()? != 0);
        let name = |text: Option<String>| parsed(&text.ok_or_else(missing("a name"))?, Name::new);
        let data = || data.ok_or_else(missing("a definition"));
        Ok(match word.as_str() {
            "worker" => {
                let definition = serde_json::from_str(&data()?).map_err(StoreError::corrupt)?;
                let (paused, awake, removed) = (first != 0, second != 0, last);
                let worker = Worker { definition, paused, awake, removed, since, jobs: BTreeMap::new() };
                CrewRow::Worker(name(Some(id))?, Box::new(worker))
            }
            "job" => {
                let taken = Taken { queue: name(queue)?, item: ItemId(Seq(first)), epoch: Epoch(second) };
                CrewRow::Job { worker: name(worker)?, task: parsed(&id, TaskId::new)?, taken, is_over: last }
            }
            "route" => {
                let route = serde_json::from_str(&data()?).map_err(StoreError::corrupt)?;
                CrewRow::Route(id.into(), InForce { route, since })
            }
            "cursor" => CrewRow::Cursor(since),
            "due" => CrewRow::Due(name(Some(id))?, Lease(first)),
            other => return Err(StoreError::corrupt(format_args!("a row of the kind {other:?}"))),
        })
    }

    pub(crate) fn heard(&mut self) -> Result<Heard, StoreError> {
        let (seq, wall) = (Seq(self.int()?), Wall(self.int()?));
        let (kind, component, id, data) = (self.text()?, self.text()?, self.maybe_text()?, self.text()?);
        let event = Event::parse(&kind, &component, id.as_deref(), &data).map_err(StoreError::corrupt)?;
        let pipeline = self.json::<Spec>()?.and_then(|spec| match spec.work {
            Some(Work::Pipeline(plan)) => Some(Definition { runbook: plan.runbook.clone(), name: plan.name.as_str().into() }),
            _ => None,
        });
        let depth = self.maybe_int()?.unwrap_or_default().try_into().map_err(StoreError::corrupt)?;
        Ok(Heard { seq, wall, event, depth, pipeline })
    }
}

impl Crew {
    /// Takes in a row. Jobs wait for their workers, which may come later.
    pub(crate) fn put(&mut self, row: CrewRow, jobs: &mut Vec<(Name, TaskId, Taken)>) {
        match row {
            CrewRow::Worker(name, worker) => drop(self.workers.workers.insert(name, *worker)),
            CrewRow::Job { worker, task, taken, is_over } => {
                if is_over {
                    self.over.insert(task.clone());
                }
                jobs.push((worker, task, taken));
            }
            CrewRow::Route(id, in_force) => drop(self.routes.routes.insert(id, in_force)),
            CrewRow::Cursor(seq) => self.cursor = seq,
            CrewRow::Due(queue, due) => drop(self.due.insert(queue, due)),
        }
    }

    pub(crate) fn assign(&mut self, jobs: Vec<(Name, TaskId, Taken)>) -> Result<(), StoreError> {
        for (worker, task, taken) in jobs {
            let found = self.workers.workers.get_mut(&worker);
            let found = found.ok_or_else(|| StoreError::corrupt(format_args!("a job of no worker: {worker}")))?;
            found.jobs.insert(task, taken);
        }
        Ok(())
    }

    /// The routes, and the workers that are asleep: one that is awake takes what there is anyway.
    pub fn subscriptions(&self) -> impl Iterator<Item = Subscription> {
        let routes = self.routes.routes.iter().map(|(id, in_force)| Subscription {
            pattern: in_force.route.on.clone(),
            since: in_force.since,
            subscriber: Subscriber::Route(id.clone(), in_force.route.clone()),
        });
        let asleep = self.workers.workers.iter().filter(|(_, worker)| !worker.awake && !worker.removed);
        let workers = asleep.flat_map(|(name, worker)| {
            worker.definition.wake_on.iter().map(|pattern| Subscription {
                pattern: pattern.clone(),
                since: worker.since,
                subscriber: Subscriber::Worker(name.clone()),
            })
        });
        routes.chain(workers)
    }

    /// What is in the tables, without what is only there to be looked at.
    pub(crate) fn kept(self) -> Crew {
        Crew { over: BTreeSet::new(), hands: BTreeMap::new(), heard: Vec::new(), due: BTreeMap::new(), ..self }
    }
}

/// The queries that load the keys of workers and routes.
pub(crate) fn plan<'a>(project: i64, key: &'a Key, queries: &mut Vec<Query<'a>>) {
    let mut add = |statement, params: Vec<Value<'a>>| {
        queries.push(Query::new(statement, [vec![project.into()], params].concat()));
    };
    match key {
        Key::Crew => add(Statement::Crew, vec![]),
        Key::Worker(name) => add(Statement::WorkerRows, vec![name.as_str().into()]),
        Key::Route(id) => add(Statement::RouteRow, vec![(&**id).into()]),
        Key::Router => add(Statement::Cursor, vec![]),
        Key::Hands(queue) => add(Statement::Hands, vec![queue.as_str().into()]),
        Key::HandsBeyond(queue) => add(Statement::HandsBeyond, vec![queue.as_str().into()]),
        Key::AllHands => add(Statement::AllHands, vec![]),
        Key::Log { after, limit } => {
            add(Statement::Heard, vec![after.0.into(), i64::from(*limit).into()]);
        }
        _ => {}
    }
}

/// The statements that turn the workers and routes of `before` into those of `after`.
pub(crate) fn between<'a>(project: i64, before: &'a Crew, after: &'a Crew, queries: &mut Vec<Query<'a>>) {
    let (old, new) = (&before.workers.workers, &after.workers.workers);
    for (name, was) in old {
        let left = |task: &&TaskId| new.get(name).is_none_or(|worker| !worker.jobs.contains_key(*task));
        for task in was.jobs.keys().filter(left) {
            let params: [Value<'a>; 3] = [project.into(), name.as_str().into(), task.as_str().into()];
            queries.push(Query::new(Statement::DeleteJob, params));
        }
        if !new.contains_key(name) {
            queries.push(Query::new(Statement::DeleteWorker, [project.into(), name.as_str().into()]));
        }
    }
    for (name, worker) in new {
        worker_rows(project, name, old.get(name), worker, queries);
    }
    let (old, new) = (&before.routes.routes, &after.routes.routes);
    for id in old.keys().filter(|id| !new.contains_key(*id)) {
        queries.push(Query::new(Statement::DeleteRoute, [project.into(), (&**id).into()]));
    }
    for (id, in_force) in new.iter().filter(|(id, in_force)| old.get(*id) != Some(*in_force)) {
        let params: [Value<'a>; 4] = [project.into(), (&**id).into(), json(&in_force.route), in_force.since.0.into()];
        queries.push(Query::new(Statement::UpsertRoute, params));
    }
    if before.cursor != after.cursor {
        queries.push(Query::new(Statement::MoveCursor, [project.into(), after.cursor.0.into()]));
    }
}

fn worker_rows<'a>(project: i64, name: &'a Name, was: Option<&'a Worker>, worker: &'a Worker, queries: &mut Vec<Query<'a>>) {
    let flags = [worker.paused, worker.awake, worker.removed];
    let [paused, awake, removed]: [Value<'a>; 3] = flags.map(|flag| i64::from(flag).into());
    match was {
        Some(was) if was.definition == worker.definition => {
            if ([was.paused, was.awake, was.removed], was.since) != (flags, worker.since) {
                let params = [project.into(), name.as_str().into(), paused, awake, removed, worker.since.0.into()];
                queries.push(Query::new(Statement::UpdateWorker, params));
            }
        }
        _ => {
            let (queue, definition) = (worker.definition.queue.as_str().into(), json(&worker.definition));
            let since = worker.since.0.into();
            let params = [project.into(), name.as_str().into(), queue, definition, paused, awake, removed, since];
            queries.push(Query::new(Statement::UpsertWorker, params));
        }
    }
    let is_new = |task: &TaskId| was.is_none_or(|was| !was.jobs.contains_key(task));
    for (task, taken) in worker.jobs.iter().filter(|(task, _)| is_new(task)) {
        let (queue, item, epoch) = (taken.queue.as_str().into(), taken.item.0.0.into(), taken.epoch.0.into());
        let params = [project.into(), name.as_str().into(), task.as_str().into(), queue, item, epoch];
        queries.push(Query::new(Statement::InsertJob, params));
    }
}
