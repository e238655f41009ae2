//! The work of a runner for workers and routes: items that become tasks, tasks that are over, new events.

use banksman_core::queue::{Input, Item};
use banksman_core::route::{Reaction, Subscription, route};
use banksman_core::worker::Worker;
use banksman_core::{Lease, Name, Seq};
use banksman_store::{Automation, Key, Snapshot};

use super::CLAIM_LIMIT;
use super::context::Context;
use crate::calls::queues::QueueRequest;
use crate::calls::routes::RouteRequest;
use crate::calls::workers::{WorkerRequest, later, waits};
use crate::request::Request;

/// The most events to read at once, and the number of events after which the cursor is stored even without a reaction.
const PAGE: u32 = 500;

/// The number of reactions after which a transaction is large enough.
const REACTIONS: usize = 200;

#[derive(Debug, Default)]
pub(super) struct Routing {
    /// The last event that was routed without a reaction.
    routed: Seq,
    /// Whether new events may cause reactions.
    pub(super) listens: bool,
}

impl Routing {
    /// The rows that workers and routes depend on: the heads of queues, and new events.
    pub(super) fn keys(&self, snapshot: &Snapshot) -> Vec<Key> {
        let mut keys = Vec::new();
        for worker in takers(&snapshot.automation) {
            let takes = u32::try_from(worker.room().min(CLAIM_LIMIT)).unwrap_or(u32::MAX);
            let queue = worker.definition.queue.clone();
            keys.extend([Key::NamedQueue(queue.clone()), later(&queue), Key::Head { queue, takes, removed: 0, ended: 0 }]);
        }
        let after = self.routed_to(snapshot).filter(|after| *after < snapshot.seq);
        keys.extend(after.map(|after| Key::Log { after, limit: PAGE }));
        keys
    }

    /// The last routed event; `None` without subscriptions. Events before the first subscription reach none.
    fn routed_to(&self, snapshot: &Snapshot) -> Option<Seq> {
        let first = snapshot.automation.subscriptions().map(|one| one.since).min()?;
        Some(snapshot.automation.cursor.max(self.routed).max(first))
    }

    /// The requests for workers and routes.
    pub(super) fn requests(&mut self, snapshot: &Snapshot, context: &Context) -> Vec<Request> {
        self.listens = false;
        if !context.serves() || !context.does_duty() {
            return Vec::new();
        }
        let mut requests = settled(&snapshot.automation);
        requests.extend(overdue(snapshot, context));
        requests.extend(takers(&snapshot.automation).flat_map(|worker| takes(worker, snapshot)));
        requests.extend(self.route(snapshot, context));
        requests
    }

    /// Routes the events that were read.
    fn route(&mut self, snapshot: &Snapshot, context: &Context) -> Option<Request> {
        let automation = &snapshot.automation;
        let subscriptions: Vec<Subscription> = automation.subscriptions().collect();
        let from = self.routed_to(snapshot)?;
        self.listens = context.has_duty;
        let mut reactions: Vec<Reaction> = Vec::new();
        let mut to = from;
        // Events since the subscriptions were read may be for newer subscriptions.
        for heard in automation.heard.iter().filter(|heard| heard.seq > from && heard.seq <= snapshot.seq) {
            reactions.extend(route(heard, &subscriptions));
            to = heard.seq;
            if reactions.len() >= REACTIONS {
                break;
            }
        }
        if reactions.is_empty() && to.0 - automation.cursor.0 < i64::from(PAGE) {
            // Without a reaction the cursor is not stored: any other runner would get the same result.
            self.routed = to;
            return None;
        }
        (to > from).then_some(Request::Route(RouteRequest { from: automation.cursor, to, reactions }))
    }
}

/// Lets queues settle their expired items: otherwise a queue might do so only at its next take, and dead items must be routed.
fn overdue(snapshot: &Snapshot, context: &Context) -> Vec<Request> {
    let over = snapshot.automation.due.iter().filter(|(_, due)| **due + context.patience() <= snapshot.lease);
    let settle = |queue: &Name| QueueRequest { queue: queue.clone(), input: Input::Settle, seen: context.seen() };
    over.map(|(queue, _)| Request::Queue(settle(queue))).take(CLAIM_LIMIT).collect()
}

/// The next deadline of a queue.
pub(super) fn next_due(snapshot: &Snapshot, context: &Context) -> Option<Lease> {
    snapshot.automation.due.values().map(|due| *due + context.patience()).min().filter(|_| context.serves())
}

/// Whether a worker will take an item, now or later, or the runner on duty has work left.
pub(super) fn is_waiting(snapshot: &Snapshot, context: &Context) -> bool {
    if !context.serves() {
        return false;
    }
    let subscriptions: Vec<Subscription> = snapshot.automation.subscriptions().collect();
    let heard = snapshot.automation.heard.iter().filter(|heard| heard.seq > snapshot.automation.cursor);
    let has_reaction = heard.into_iter().any(|heard| !route(heard, &subscriptions).is_empty());
    if has_reaction || !settled(&snapshot.automation).is_empty() || !overdue(snapshot, context).is_empty() {
        return true;
    }
    let has_items = |worker: &Worker| {
        let queue = &worker.definition.queue;
        is_open(queue, snapshot) && waits(queue, &snapshot.queues)
    };
    takers(&snapshot.automation).any(has_items)
}

/// The workers that may take items.
fn takers(automation: &Automation) -> impl Iterator<Item = &Worker> {
    automation.workers.workers.values().filter(|worker| worker.refusal().is_none())
}

fn items<'a>(queue: &'a Name, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a Item> {
    snapshot.queues.items.values().filter(move |item| item.queue == *queue)
}

fn is_open(queue: &Name, snapshot: &Snapshot) -> bool {
    snapshot.queues.queues.get(queue).is_some_and(|queue| !queue.paused)
}

fn settled(automation: &Automation) -> Vec<Request> {
    let jobs = automation.workers.workers.iter().flat_map(|(name, worker)| worker.jobs.iter().map(move |job| (name, job)));
    let over = jobs.filter(|(_, (task, _))| automation.over.contains(*task));
    over.map(|(name, (task, taken))| {
        Request::Worker(WorkerRequest::Settle { worker: name.clone(), task: task.clone(), taken: taken.clone() })
    })
    .collect()
}

/// One request for each item that a worker can take. A worker that sleeps when its queue is empty learns that by a take.
fn takes(worker: &Worker, snapshot: &Snapshot) -> Vec<Request> {
    let queue = &worker.definition.queue;
    if !is_open(queue, snapshot) {
        return Vec::new();
    }
    let is_there = |item: &&Item| item.is_ready() || item.due().is_some_and(|due| due <= snapshot.lease);
    let there = items(queue, snapshot).filter(is_there).count().min(worker.room()).min(CLAIM_LIMIT);
    let is_drained = worker.jobs.is_empty() && !worker.definition.wake_on.is_empty() && !waits(queue, &snapshot.queues);
    let take = || Request::Worker(WorkerRequest::Take { worker: worker.definition.name.clone(), queue: queue.clone() });
    std::iter::repeat_with(take).take(there.max(usize::from(is_drained))).collect()
}
