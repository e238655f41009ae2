//! Workers, their jobs, and routes.

use banksman_core::route::{Pattern, Route};
use banksman_core::worker::{Definition, Taken, Worker};
use banksman_core::{Epoch, ItemId, Name, Span, Status, Task, TaskId};
use serde::Serialize;

use super::Text;
use crate::commands::runbooks::picture;

/// The definition of a worker in a runbook.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DefinitionView<'a> {
    name: &'a Name,
    queue: &'a Name,
    concurrency: u32,
    wake_on: Vec<Text<&'a Pattern>>,
    retry_delay: Text<Span>,
}

impl<'a> From<&'a Definition> for DefinitionView<'a> {
    fn from(definition: &'a Definition) -> DefinitionView<'a> {
        DefinitionView {
            name: &definition.name,
            queue: &definition.queue,
            concurrency: definition.concurrency,
            wake_on: definition.wake_on.iter().map(Text).collect(),
            retry_delay: Text(definition.retry_delay),
        }
    }
}

/// An applied worker.
#[derive(Debug, Serialize)]
pub(crate) struct WorkerView<'a> {
    #[serde(flatten)]
    definition: DefinitionView<'a>,
    runbook: &'a str,
    does: String,
    state: &'static str,
    paused: bool,
    awake: bool,
    busy: usize,
    waiting: u64,
}

impl<'a> WorkerView<'a> {
    pub(crate) fn new(worker: &'a Worker, state: &'static str, waiting: u64) -> WorkerView<'a> {
        let definition = &*worker.definition;
        WorkerView {
            definition: definition.into(),
            runbook: &definition.runbook,
            does: definition.job.describe(),
            state,
            paused: worker.paused,
            awake: worker.awake,
            busy: worker.jobs.len(),
            waiting,
        }
    }
}

/// One worker with its jobs.
#[derive(Debug, Serialize)]
pub(crate) struct WorkerPage<'a> {
    #[serde(flatten)]
    pub(crate) worker: WorkerView<'a>,
    pub(crate) jobs: Vec<JobView<'a>>,
}

/// An item that became a task; a deleted task has no status.
#[derive(Debug, Serialize)]
pub(crate) struct JobView<'a> {
    task: &'a TaskId,
    queue: &'a Name,
    item: ItemId,
    epoch: Epoch,
    status: Option<Status>,
}

impl<'a> JobView<'a> {
    pub(crate) fn new(id: &'a TaskId, taken: &'a Taken, task: Option<&Task>) -> JobView<'a> {
        JobView { task: id, queue: &taken.queue, item: taken.item, epoch: taken.epoch, status: task.map(Task::status) }
    }
}

/// A route; the name of its runbook is left out on the page of that runbook.
#[derive(Debug, Serialize)]
pub(crate) struct RouteView<'a> {
    on: Text<&'a Pattern>,
    then: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runbook: Option<&'a str>,
}

impl<'a> RouteView<'a> {
    /// A route with the name of its runbook.
    pub(crate) fn applied(route: &'a Route) -> RouteView<'a> {
        RouteView { runbook: Some(&route.runbook), ..route.into() }
    }
}

impl<'a> From<&'a Route> for RouteView<'a> {
    fn from(route: &'a Route) -> RouteView<'a> {
        RouteView { on: Text(&route.on), then: route.then.iter().map(picture::then).collect(), runbook: None }
    }
}

/// All applied workers and routes.
#[derive(Debug, Serialize)]
pub(crate) struct Applied<'a> {
    pub(crate) workers: Vec<WorkerView<'a>>,
    pub(crate) routes: Vec<RouteView<'a>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Woken<'a> {
    pub(crate) worker: &'a Name,
    pub(crate) outcome: &'static str,
}

#[derive(Debug, Serialize)]
pub(crate) struct Paused<'a> {
    pub(crate) worker: &'a Name,
    pub(crate) paused: bool,
}
