//! Workers, routes, and their environment.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::resource::grant::Address;
use banksman_core::route::{Heard, Routes, Subscriber, Subscription};
use banksman_core::worker::{Taken, Worker};
use banksman_core::{Lease, Name, Seq, TaskId};

use crate::columns::{Codec, Int, NeededJson, Text};
use crate::error::StoreError;
use crate::table::{self, Table, table};
use crate::tables::jobs::Jobs;
use crate::tables::{marks, routes};
use crate::value::{Query, Row};

/// Workers and routes, with the facts around them that a runner needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Automation {
    /// The workers, with all their jobs.
    pub workers: banksman_core::worker::Workers,
    pub routes: Routes,
    /// The last event that was routed.
    pub cursor: Seq,
    /// The jobs whose tasks have ended or are gone. Loaded with [`Key::Automation`](crate::Key::Automation) alone.
    pub over: BTreeSet<TaskId>,
    /// The addresses of the runners to wake when a queue with a worker has items.
    pub worker_runners: BTreeMap<Name, BTreeSet<Address>>,
    pub heard: Vec<Heard>,
    /// When time next changes a queue. Loaded with [`Key::Automation`](crate::Key::Automation) alone.
    pub due: BTreeMap<Name, Lease>,
}

table! {
    Workers "workers" of &'a Name => Worker, |name, worker|
    by ["name"] = [Text name]; saves
    fixed { name: Text = name }
    changing { definition: NeededJson, paused: Int, awake: Int, removed: Int, since: Int }
        + { "queue": Text = worker.definition.queue.as_str() }
    read (Name, Worker) = (name, Worker { definition, paused, awake, removed, since, jobs: BTreeMap::new() });
    statements {
        ByName => "SELECT {workers} FROM workers WHERE project = $1 AND name = $2",
        Any => "SELECT name FROM workers WHERE project = $1 LIMIT 1",
        /// Everything that a runner needs to know of workers, routes and timed queues: one statement finds that there
        /// is nothing in 4 µs on SQLite, five take 8 µs. Each kind of row has columns of its own.
        Everything => "SELECT 'worker', {workers}, {no jobs}, CAST(NULL AS BIGINT), {no routes}, \
            CAST(NULL AS TEXT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT) FROM workers WHERE project = $1 \
            UNION ALL SELECT 'job', {no workers}, {jobs j}, \
            CASE WHEN coalesce(t.state, 'gone') IN ('gone', 'completed', 'failed', 'cancelled', 'skipped') THEN 1 ELSE 0 END, \
            {no routes}, NULL, NULL, NULL FROM jobs j LEFT JOIN tasks t ON t.project = j.project AND t.id = j.task WHERE j.project = $1 \
            UNION ALL SELECT 'route', {no workers}, {no jobs}, NULL, {routes}, NULL, NULL, NULL FROM routes WHERE project = $1 \
            UNION ALL SELECT 'due', {no workers}, {no jobs}, NULL, {no routes}, name, due, NULL FROM (SELECT q.name, \
            (SELECT min(i.due) FROM items i WHERE i.project = q.project AND i.queue = q.name AND i.due IS NOT NULL) AS due \
            FROM queues q WHERE q.project = $1) AS next WHERE due IS NOT NULL \
            UNION ALL SELECT 'cursor', {no workers}, {no jobs}, NULL, {no routes}, NULL, NULL, seq \
            FROM marks WHERE project = $1 AND name = 'router'",
    }
}

impl Automation {
    /// Adds a row of the statement that reads everything. Jobs wait for their workers, whose rows may come later.
    pub(crate) fn add(&mut self, row: &mut Row, jobs: &mut Vec<(Name, TaskId, Taken)>) -> Result<(), StoreError> {
        let word = row.text()?;
        row.skip_nulls();
        match word.as_str() {
            "worker" => self.workers.workers.extend([Workers::read(row)?]),
            "job" => {
                let job = Jobs::read(row)?;
                if Int::read(row)? {
                    self.over.insert(job.1.clone());
                }
                jobs.push(job);
            }
            "route" => self.routes.routes.extend([routes::Routes::read(row)?]),
            "due" => self.due.extend([(Text::read(row)?, Int::read(row)?)]),
            "cursor" => self.cursor = Int::read(row)?,
            other => return Err(StoreError::corrupt(format_args!("a row of the kind {other:?}"))),
        }
        Ok(())
    }

    pub(crate) fn assign(&mut self, jobs: Vec<(Name, TaskId, Taken)>) -> Result<(), StoreError> {
        for (worker, task, taken) in jobs {
            let found = self.workers.workers.get_mut(&worker);
            let found = found.ok_or_else(|| StoreError::corrupt(format_args!("a job of no worker: {worker}")))?;
            found.jobs.insert(task, taken);
        }
        Ok(())
    }

    /// The routes, and the workers that are asleep: a worker that is awake takes any item anyway.
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

    /// The stored part, without rows that were loaded for information only.
    pub(crate) fn kept(self) -> Automation {
        Automation { over: BTreeSet::new(), worker_runners: BTreeMap::new(), heard: Vec::new(), due: BTreeMap::new(), ..self }
    }
}

/// The statements that turn the workers and routes of `before` into those of `after`.
pub(crate) fn changes<'a>(project: i64, before: &'a Automation, after: &'a Automation, queries: &mut Vec<Query<'a>>) {
    let (old, new) = (&before.workers.workers, &after.workers.workers);
    for (name, was) in old {
        let left = |task: &TaskId| new.get(name).is_none_or(|worker| !worker.jobs.contains_key(task));
        let left = was.jobs.iter().filter(|(task, _)| left(task));
        queries.extend(left.map(|(task, taken)| table::delete::<Jobs>(project, (name, task), taken)));
        if !new.contains_key(name) {
            queries.push(table::delete::<Workers>(project, name, was));
        }
    }
    for (name, worker) in new {
        let was = old.get(name);
        // Its jobs have rows of their own.
        if was.is_none_or(|was| row(was) != row(worker)) {
            queries.extend(table::change::<Workers>(project, name, was, worker));
        }
        let is_new = |task: &TaskId| was.is_none_or(|was| !was.jobs.contains_key(task));
        let begun = worker.jobs.iter().filter(|(task, _)| is_new(task));
        queries.extend(begun.map(|(task, taken)| table::insert::<Jobs>(project, (name, task), taken)));
    }
    table::changes::<_, routes::Routes>(project, &before.routes.routes, &after.routes.routes, queries);
    if before.cursor != after.cursor {
        queries.push(marks::routed(project, after.cursor));
    }
}

fn row(worker: &Worker) -> (&banksman_core::worker::Definition, [bool; 3], Seq) {
    (&worker.definition, [worker.paused, worker.awake, worker.removed], worker.since)
}
