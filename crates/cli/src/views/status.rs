//! The status of the project.

use std::collections::BTreeMap;

use banksman_core::{Name, RunnerId, SectionId, Stamp, Status, Task, TaskId, Title};
use banksman_runtime::inspect::{LiveRun, Manned};
use banksman_store::{DeadItems, WorkItems};
use serde::Serialize;

use super::Time;
use super::accounts::LimitView;
use super::pausing::PauseView;
use super::pipelines::PipelineView;
use super::spend::SpendView;
use super::why::AttendedRun;
use crate::commands::tasks::error;
use crate::commands::why::life;
use crate::format;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StatusView<'a> {
    pub(crate) tasks: u64,
    pub(crate) by_status: BTreeMap<Status, u64>,
    pub(crate) by_hand: u64,
    pub(crate) queued_runs: u64,
    pub(crate) slots: Limited<u64>,
    pub(crate) roots: Limited<usize>,
    pub(crate) decisions: usize,
    /// The limits that keep agents from starting.
    pub(crate) account_limits: Vec<LimitView<'a>>,
    /// The spend of agents today (UTC).
    pub(crate) spend_today: Vec<SpendView>,
    /// The budget, in millionths of a dollar.
    pub(crate) budget_micros: Option<u64>,
    pub(crate) runs: Vec<RunView<'a>>,
    pub(crate) runners: Vec<RunnerView<'a>>,
    pub(crate) pipelines: Pipelines<'a>,
    pub(crate) items: ItemsView<'a>,
    pub(crate) failures: Vec<FailureView<'a>>,
    pub(crate) held_by_failed: u64,
    /// The pause, if the project is paused.
    pub(crate) paused: Option<PauseView<'a>>,
    /// The first stopped tasks.
    pub(crate) stopped: Vec<&'a TaskId>,
    pub(crate) next: &'a str,
}

/// A number, and its limit if there is one.
#[derive(Debug, Serialize)]
pub(crate) struct Limited<N> {
    pub(crate) used: N,
    pub(crate) limit: Option<u32>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pipelines<'a> {
    pub(crate) by_state: &'a BTreeMap<String, u64>,
    pub(crate) open: Vec<PipelineView<'a>>,
}

/// A live run.
#[derive(Debug, Serialize)]
pub(crate) struct RunView<'a> {
    #[serde(flatten)]
    run: AttendedRun<'a>,
    task: &'a TaskId,
    title: &'a Title,
}

impl<'a> From<&'a LiveRun> for RunView<'a> {
    fn from(live: &'a LiveRun) -> RunView<'a> {
        RunView { run: (&live.attended).into(), task: &live.run.task, title: &live.title }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunnerView<'a> {
    id: &'a RunnerId,
    state: &'static str,
    pid: i32,
    host: &'a str,
    runs: usize,
    max_runs: Option<u32>,
    sections: &'a [SectionId],
    started_at: Time,
    shortage: Option<ShortageView<'a>>,
}

/// The resource that the machine of a runner lacks.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShortageView<'a> {
    error: &'a str,
    since: Time,
    next_try_at: Time,
}

impl<'a> RunnerView<'a> {
    pub(crate) fn new(manned: &'a Manned, at: Stamp) -> RunnerView<'a> {
        let runner = &manned.runner;
        RunnerView {
            id: &runner.id,
            state: life(manned.life),
            pid: runner.process.pid,
            host: &runner.process.host,
            runs: manned.runs,
            max_runs: runner.max_runs,
            sections: &runner.sections,
            started_at: Time(runner.started.wall),
            shortage: runner.shortage.as_ref().map(|shortage| ShortageView {
                error: &shortage.error,
                since: Time(shortage.since.wall),
                next_try_at: Time(format::wall_of(shortage.until, at)),
            }),
        }
    }
}

/// The items of workers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ItemsView<'a> {
    waiting: u64,
    processing: u64,
    dead: u64,
    dead_in: Vec<DeadView<'a>>,
}

#[derive(Debug, Serialize)]
struct DeadView<'a> {
    queue: &'a Name,
    #[serde(flatten)]
    dead: DeadItems,
}

impl<'a> From<&'a WorkItems> for ItemsView<'a> {
    fn from(items: &'a WorkItems) -> ItemsView<'a> {
        ItemsView {
            waiting: items.waiting,
            processing: items.processing,
            dead: items.deaths(),
            dead_in: items.dead.iter().map(|(queue, dead)| DeadView { queue, dead: *dead }).collect(),
        }
    }
}

/// A task that has failed.
#[derive(Debug, Serialize)]
pub(crate) struct FailureView<'a> {
    task: &'a TaskId,
    title: &'a Title,
    error: &'a str,
    at: Time,
}

impl<'a> From<&'a Task> for FailureView<'a> {
    fn from(task: &'a Task) -> FailureView<'a> {
        let error = error(task).unwrap_or_default();
        FailureView { task: &task.id, title: &task.spec.title, error, at: Time(task.changed.wall) }
    }
}
