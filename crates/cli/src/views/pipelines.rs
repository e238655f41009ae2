//! Started pipelines.

use banksman_core::pipeline::plan::Context;
use banksman_core::pipeline::{Checkpoint, Pipeline, Reason, State};
use banksman_core::{Name, Stamp, Status, Task, TaskId, Title};
use serde::Serialize;

use super::Time;
use crate::format;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PipelineView<'a> {
    id: &'a TaskId,
    title: &'a Title,
    runbook: &'a str,
    pipeline: &'a Name,
    state: &'static str,
    status: Status,
    phase: Option<&'a Name>,
    attempt: u32,
    phase_started_at: Time,
    task: Option<&'a TaskId>,
    blocked_by: Option<BlockedBy<'a>>,
    error: Option<&'a str>,
    recoverable: Option<bool>,
    vars: &'a Context,
    created_at: Time,
}

impl<'a> PipelineView<'a> {
    pub(crate) fn new(task: &'a Task, pipeline: &'a Pipeline, at: Stamp) -> PipelineView<'a> {
        let (error, recoverable) = match &pipeline.state {
            State::Failed { error, recoverable, .. } => (Some(&**error), Some(*recoverable)),
            _ => (None, None),
        };
        PipelineView {
            id: &pipeline.id,
            title: &task.spec.title,
            runbook: &pipeline.plan.runbook,
            pipeline: &pipeline.plan.name,
            state: pipeline.word(),
            status: task.status(),
            phase: pipeline.phase(),
            attempt: pipeline.attempt,
            phase_started_at: Time(pipeline.phase_started.wall),
            task: pipeline.task(),
            blocked_by: BlockedBy::of(pipeline, at),
            error,
            recoverable,
            vars: &pipeline.context,
            created_at: Time(task.created),
        }
    }
}

/// Why a pipeline is blocked.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum BlockedBy<'a> {
    Guard {
        guard: &'a Name,
        part: &'a str,
        looked_at: Option<Time>,
        next_look_at: Option<Time>,
    },
    #[serde(untagged)]
    Other(&'a Reason),
}

impl BlockedBy<'_> {
    fn of(pipeline: &Pipeline, at: Stamp) -> Option<BlockedBy<'_>> {
        let State::Blocked { reason, .. } = &pipeline.state else { return None };
        Some(match reason {
            Reason::Guard { guard, part, again, looked, .. } => BlockedBy::Guard {
                guard,
                part,
                looked_at: (looked.0 > 0).then_some(Time(*looked)),
                next_look_at: (again.0 > 0).then(|| Time(format::wall_of(*again, at))),
            },
            reason => BlockedBy::Other(reason),
        })
    }
}

/// One pipeline with its phases.
#[derive(Debug, Serialize)]
pub(crate) struct PipelinePage<'a> {
    #[serde(flatten)]
    pub(crate) pipeline: PipelineView<'a>,
    pub(crate) phases: Vec<PhaseView<'a>>,
    pub(crate) checkpoints: Vec<CheckpointView<'a>>,
}

/// A phase with its tasks.
#[derive(Debug, Serialize)]
pub(crate) struct PhaseView<'a> {
    pub(crate) name: &'a Name,
    pub(crate) does: String,
    pub(crate) tasks: Vec<PhaseTask<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PhaseTask<'a> {
    id: &'a TaskId,
    status: Status,
    started_at: Time,
}

impl<'a> From<&'a Task> for PhaseTask<'a> {
    fn from(task: &'a Task) -> PhaseTask<'a> {
        PhaseTask { id: &task.id, status: task.status(), started_at: Time(task.created) }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct CheckpointView<'a> {
    phase: &'a Option<Name>,
    message: &'a str,
    at: Time,
}

impl<'a> From<&'a Checkpoint> for CheckpointView<'a> {
    fn from(said: &'a Checkpoint) -> CheckpointView<'a> {
        CheckpointView { phase: &said.phase, message: &said.message, at: Time(said.at) }
    }
}

/// A pipeline after a step that a person requested.
#[derive(Debug, Serialize)]
pub(crate) struct Stepped<'a> {
    pipeline: &'a TaskId,
    state: &'static str,
    phase: Option<&'a Name>,
    attempt: u32,
}

impl<'a> From<&'a Pipeline> for Stepped<'a> {
    fn from(pipeline: &'a Pipeline) -> Stepped<'a> {
        Stepped { pipeline: &pipeline.id, state: pipeline.word(), phase: pipeline.phase(), attempt: pipeline.attempt }
    }
}

/// The variables of a pipeline after some were set.
#[derive(Debug, Serialize)]
pub(crate) struct VarsSet<'a> {
    pub(crate) pipeline: &'a TaskId,
    pub(crate) vars: &'a Context,
}

#[derive(Debug, Serialize)]
pub(crate) struct CheckpointSet<'a> {
    pub(crate) pipeline: &'a TaskId,
    pub(crate) phase: Option<&'a Name>,
    pub(crate) message: &'a str,
}
