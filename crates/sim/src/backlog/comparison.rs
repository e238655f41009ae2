//! Compares the rows of pipelines with the model.

use banksman_core::Pipeline;
use banksman_core::pipeline::{Reason, When};

use super::pipeline_model::{PipelineModel, PipelineState};
use crate::report::Checker;
use crate::world::World;

impl World<'_> {
    pub(crate) fn compare_pipelines(&mut self, rows: &banksman_core::backlog::Backlog) {
        let mut differs = rows.pipelines.values().filter_map(|row| {
            let Some(pipeline) = self.model.pipelines.get(&row.id) else {
                return Some(format!("{} is not in the model", row.id));
            };
            let expected = (pipeline.attempt, pipeline.begun, &pipeline.context);
            let is_same = expected == (row.attempt, row.tasks, &row.context) && matches(row, pipeline);
            (!is_same).then(|| format!("the row says {row:?}, the model {pipeline:?}"))
        });
        let differs = differs.next();
        let many = rows.pipelines.len() == self.model.pipelines.len();
        self.verdict.expect(Checker::Model, differs.is_none() && many, || differs.unwrap_or("a pipeline has no row".to_owned()));
    }
}

fn matches(row: &Pipeline, pipeline: &PipelineModel) -> bool {
    use banksman_core::pipeline::State as Row;
    let at = row.phase().and_then(|phase| pipeline.at(phase));
    match (&row.state, &pipeline.state) {
        (Row::Init, PipelineState::Init) => pipeline.blocked.is_none(),
        (Row::Blocked { reason: Reason::Dependencies, .. }, PipelineState::Init) => pipeline.blocked.is_some(),
        (Row::Checking { when, .. }, state) => pipeline.blocked.is_none() && side(state, at) == Some(*when),
        (Row::Blocked { reason, .. }, PipelineState::In { .. }) if reason.held().is_some() => {
            let is_same = pipeline.is_held_up() == matches!(reason, Reason::Guard { .. });
            is_same && pipeline.blocked.is_some() && row.task() == pipeline.task()
        }
        (Row::Blocked { when, reason: Reason::Guard { .. }, .. }, state) => {
            pipeline.is_held_up() && side(state, at) == Some(*when)
        }
        (Row::Blocked { when, reason: Reason::Overdue { .. }, .. }, state) => {
            matches!(pipeline.blocked, Some(Reason::Overdue { .. })) && side(state, at) == Some(*when)
        }
        (Row::Blocked { reason: Reason::Decision { .. }, .. }, PipelineState::In { .. }) => row.task() == pipeline.task(),
        (Row::Running { approach, task, .. }, PipelineState::In { at: here, approach: tried, task: own }) => {
            (at, approach, task) == (Some(*here), tried, own)
        }
        (Row::Done, PipelineState::Done) | (Row::Cancelled { .. }, PipelineState::Cancelled) => true,
        (Row::Failed { recoverable, .. }, PipelineState::Failed { at: here, recoverable: expected }) => {
            (at, recoverable) == (Some(*here), expected)
        }
        _ => false,
    }
}

fn side(state: &PipelineState, at: Option<usize>) -> Option<When> {
    match state {
        PipelineState::Pre(here) if Some(*here) == at => Some(When::Pre),
        PipelineState::Post(here) if Some(*here) == at => Some(When::Post),
        _ => None,
    }
}
