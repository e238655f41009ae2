//! Queues and their items.

use banksman_core::queue::{Attempt, Config, Data, Item, Queue, State};
use banksman_core::{DedupeKey, Epoch, HolderId, ItemId, Name, Span, TaskId, Wall};
use banksman_runbook::QueueTerms;
use banksman_store::QueueCounts;
use serde::Serialize;

use super::{Text, Time};

/// The terms of a queue; terms without a value are the defaults.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TermsView<'a> {
    visibility_timeout: Option<Text<Span>>,
    max_attempts: Option<u32>,
    dead_letter: &'a Option<Name>,
    max_length: Option<u32>,
}

impl<'a> From<&'a Config> for TermsView<'a> {
    fn from(config: &'a Config) -> TermsView<'a> {
        TermsView {
            visibility_timeout: Some(Text(config.visibility_timeout)),
            max_attempts: Some(config.max_attempts),
            dead_letter: &config.dead_letter,
            max_length: Some(config.max_length),
        }
    }
}

impl<'a> From<&'a QueueTerms> for TermsView<'a> {
    fn from(terms: &'a QueueTerms) -> TermsView<'a> {
        TermsView {
            visibility_timeout: terms.visibility_timeout.map(Text),
            max_attempts: terms.max_attempts,
            dead_letter: &terms.dead_letter,
            max_length: terms.max_length,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Defined<'a> {
    pub(crate) queue: &'a Name,
    #[serde(flatten)]
    pub(crate) terms: TermsView<'a>,
}

#[derive(Debug, Serialize)]
pub(crate) struct QueueView<'a> {
    name: &'a Name,
    paused: bool,
    #[serde(flatten)]
    terms: TermsView<'a>,
    length: u32,
    #[serde(flatten)]
    counts: QueueCounts,
    waiters: usize,
}

impl<'a> QueueView<'a> {
    pub(crate) fn new(queue: &'a Queue, counts: QueueCounts, waiters: usize) -> QueueView<'a> {
        let (name, terms) = (&queue.name, (&queue.config).into());
        QueueView { name, paused: queue.paused, terms, length: queue.length, counts, waiters }
    }
}

/// One queue with its first items and its workers.
#[derive(Debug, Serialize)]
pub(crate) struct QueuePage<'a> {
    #[serde(flatten)]
    pub(crate) queue: QueueView<'a>,
    pub(crate) items: Vec<ItemView<'a>>,
    pub(crate) workers: Vec<WorkerState<'a>>,
}

/// A worker of a queue with its state.
#[derive(Debug, Serialize)]
pub(crate) struct WorkerState<'a> {
    pub(crate) name: &'a Name,
    pub(crate) state: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ItemView<'a> {
    id: ItemId,
    queue: &'a Name,
    state: &'static str,
    data: &'a Data,
    priority: i32,
    attempts: u32,
    dedupe: &'a Option<DedupeKey>,
    created_at: Time,
    due_at: Option<Time>,
    holder: Option<&'a HolderId>,
    epoch: Option<Epoch>,
    task: Option<&'a TaskId>,
    died_in: Option<&'a Name>,
    reason: Option<&'a str>,
    died_at: Option<Time>,
    history: Vec<AttemptView<'a>>,
}

impl<'a> ItemView<'a> {
    /// An item with the task of its worker.
    pub(crate) fn new(item: &'a Item, task: Option<&'a TaskId>) -> ItemView<'a> {
        let taken = match &item.state {
            State::Processing(taken) => Some(taken),
            State::Pending { .. } | State::Failed { .. } | State::Dead { .. } | State::Completed => None,
        };
        // An item of a worker has no deadline while its task lives.
        let task = task.filter(|_| taken.is_some());
        let stamp = taken.map_or(item.created, |taken| taken.since);
        let death = death(item);
        ItemView {
            id: item.id,
            queue: &item.queue,
            state: item.status(),
            data: &item.data,
            priority: item.priority,
            attempts: item.attempts,
            dedupe: &item.dedupe,
            created_at: Time(item.created.wall),
            due_at: item.due().filter(|_| task.is_none()).map(|due| Time(stamp.wall_of(due))),
            holder: taken.map(|taken| &taken.holder),
            epoch: taken.map(|taken| taken.epoch),
            task,
            died_in: death.map(|(queue, ..)| queue),
            reason: death.map(|(_, reason, _)| reason),
            died_at: death.map(|(.., at)| Time(at)),
            history: item.history.iter().map(AttemptView::from).collect(),
        }
    }
}

/// The queue, the reason and the time of an item's death.
pub(crate) fn death(item: &Item) -> Option<(&Name, &str, Wall)> {
    match (&item.state, &item.origin) {
        (State::Dead { reason, at }, _) => Some((&item.queue, reason, *at)),
        (_, Some(origin)) => Some((&origin.queue, &origin.reason, origin.at)),
        (_, None) => None,
    }
}

/// A failed attempt.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AttemptView<'a> {
    holder: &'a HolderId,
    epoch: Epoch,
    started_at: Time,
    ended_at: Time,
    error: &'a str,
    timed_out: bool,
}

impl<'a> From<&'a Attempt> for AttemptView<'a> {
    fn from(attempt: &'a Attempt) -> AttemptView<'a> {
        let Attempt { holder, epoch, started, ended, error, timed_out } = attempt;
        let (started_at, ended_at) = (Time(*started), Time(*ended));
        AttemptView { holder, epoch: *epoch, started_at, ended_at, error, timed_out: *timed_out }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Taken<'a> {
    pub(crate) queue: &'a Name,
    pub(crate) item: TakenItem<'a>,
    pub(crate) holder: &'a HolderId,
    pub(crate) taken_at: Time,
    pub(crate) visible_until: Time,
}

#[derive(Debug, Serialize)]
pub(crate) struct TakenItem<'a> {
    pub(crate) id: ItemId,
    pub(crate) data: &'a Data,
    pub(crate) priority: i32,
    pub(crate) attempts: u32,
    pub(crate) epoch: Epoch,
}

/// The outcome of a request for an item.
#[derive(Debug, Serialize)]
pub(crate) struct Changed<'a> {
    pub(crate) queue: &'a Name,
    pub(crate) id: ItemId,
    pub(crate) outcome: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Extended<'a> {
    #[serde(flatten)]
    pub(crate) item: Changed<'a>,
    pub(crate) visible_until: Time,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Failed<'a> {
    #[serde(flatten)]
    pub(crate) item: Changed<'a>,
    pub(crate) retry_at: Option<Time>,
    pub(crate) moved_to: Option<Name>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Pushed<'a> {
    pub(crate) queue: &'a Name,
    pub(crate) id: Option<ItemId>,
    pub(crate) outcome: &'static str,
    pub(crate) pushed: usize,
    pub(crate) duplicates: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Requeued<'a> {
    pub(crate) queue: &'a Name,
    pub(crate) id: Option<ItemId>,
    pub(crate) moved_to: Option<Name>,
    pub(crate) requeued: usize,
    pub(crate) stuck: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct Purged<'a> {
    pub(crate) queue: &'a Name,
    pub(crate) purged: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct Paused<'a> {
    pub(crate) queue: &'a Name,
    pub(crate) paused: bool,
}
