//! Pipelines: one pass through the phases of a runbook.

mod change;
mod start;
mod view;

use std::collections::BTreeSet;

use banksman_core::pipeline::{Outcome, Pipeline, Refusal, State};
use banksman_core::{Epoch, TaskId};
use banksman_engine::PipelineOutcome;
use banksman_runtime::Client;
use banksman_store::{Key, Reader};

pub(crate) use start::{StartRequest, variables};
pub(crate) use view::{COLUMNS, is_held_up, phases, row, tasks_at};

use super::{find, why};
use crate::context::{Context, variable};
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::DIM;

subcommands! {
    /// Start and manage pipelines: phases that a runbook defines.
    ///
    /// Each phase is a task. A pipeline is a task, too: `--depends-on`, `tasks wait` and `why` take its id.
    #[command(
        after_help = "Examples:\n  banksman pipelines start feature --var title='Add login' --var branch=login\n  banksman pipelines list\n  banksman pipelines show p-7k2m9q"
    )]
    pub(crate) noun Pipelines {
        Start(start::Start),
        List(view::List),
        Show(view::Show),
        Set(change::Set),
        Checkpoint(change::Checkpoint),
        Retry(change::Retry),
        Unblock(change::Unblock),
        Cancel(change::Cancel),
        Delete(change::Delete),
    }
}

/// Prints a note if no runner is running.
fn note_runner(context: &Context, client: &Client, reader: &mut Reader) -> Result<(), Failure> {
    if let Some(note) = super::tasks::runner_note(client, reader)?.filter(|_| !context.printer.json) {
        context.printer.note(&format!("{DIM}{note}{DIM:#}"));
    }
    Ok(())
}

/// The pipeline with this name, in its current state.
fn find_pipeline(reader: &mut Reader, name: &str) -> Result<Pipeline, Failure> {
    let ids = find::tasks_named(reader, name)?;
    let keys = ids.iter().flat_map(|id| [Key::Task(id.clone()), Key::Pipeline(id.clone())]).collect();
    let mut backlog = reader.view().load(&keys)?.tables.backlog;
    // The id of a phase means its pipeline; other tasks are no candidates.
    let host = |id: &TaskId| match backlog.pipelines.contains_key(id) {
        true => Some(id.clone()),
        false => backlog.tasks.get(id)?.spec.parent.clone().filter(|parent| backlog.pipelines.contains_key(parent)),
    };
    let hosts: BTreeSet<TaskId> = ids.iter().filter_map(host).collect();
    match hosts.len() {
        0 | 1 => hosts.first().and_then(|id| backlog.pipelines.remove(id)).ok_or_else(|| no_pipeline(name)),
        _ => Err(find::ambiguous("pipeline", name, hosts.iter().map(TaskId::as_str))),
    }
}

/// The id of the pipeline that this command is part of.
fn own() -> Option<String> {
    variable(banksman_core::task::PIPELINE_ENV)
}

/// The calling run, if this command is part of a phase of this pipeline.
fn speaker(id: &TaskId) -> Result<Option<(TaskId, Epoch)>, Failure> {
    if own().as_deref() != Some(id.as_str()) {
        return Ok(None);
    }
    super::tasks::inherited()
}

fn no_pipeline(name: &str) -> Failure {
    Failure::new(exit::NOT_FOUND, "PIPELINE_NOT_FOUND", format!("there is no pipeline {name:?}"))
        .detail("pipeline", &name)
        .hint("list the pipelines: banksman pipelines list")
}

/// The pipeline after a step, or the failure.
fn stepped(id: &TaskId, outcome: PipelineOutcome) -> Result<Box<Pipeline>, Failure> {
    match outcome {
        PipelineOutcome::Stepped(Outcome::Refused(refusal), pipeline) => Err(refused(&refusal, &pipeline)),
        PipelineOutcome::Stepped(_, pipeline) => Ok(pipeline),
        PipelineOutcome::Unknown => Err(no_pipeline(id.as_str())),
        PipelineOutcome::Fenced => {
            let message = format!("fenced: this is not the current run of the phase of {id}");
            Err(Failure::new(exit::FENCED, "FENCED", message)
                .detail("pipeline", id)
                .hint("this run has ended; stop its remaining processes"))
        }
        PipelineOutcome::Refused(outcome) => Err(super::tasks::refused(id, &outcome)),
        outcome @ PipelineOutcome::Waits(_) => Err(Failure::unexpected(&outcome)),
    }
}

fn refused(refusal: &Refusal, pipeline: &Pipeline) -> Failure {
    let (id, word) = (&pipeline.id, pipeline.word());
    let failure = match refusal {
        Refusal::NotBlocked => Failure::new(exit::USAGE, "PIPELINE_NOT_BLOCKED", format!("{id} is {word}, not blocked")),
        Refusal::NotFailed => Failure::new(exit::USAGE, "PIPELINE_NOT_FAILED", format!("{id} is {word}, and has not failed")),
        Refusal::NotRecoverable => {
            let message = format!("{id} has failed for good and cannot be retried");
            let again = format!("start a new one: {}", why::restart(pipeline));
            Failure::new(exit::NOT_PERMITTED, "NOT_RECOVERABLE", message).hint(again)
        }
        Refusal::Over => {
            let over = |is: &str| Failure::new(exit::USAGE, "PIPELINE_OVER", format!("{id} {is} {word} already"));
            match pipeline.state {
                State::Failed { recoverable: true, .. } => {
                    over("has").hint(format!("to retry the phase: banksman pipelines retry {id}"))
                }
                State::Failed { recoverable: false, .. } => over("has"),
                State::Done
                | State::Cancelled { .. }
                | State::Init
                | State::Checking { .. }
                | State::Running { .. }
                | State::Blocked { .. } => over("is"),
            }
        }
        Refusal::Undecided(decision) => {
            let message = format!("{id} waits for decision {decision}");
            let hint = format!("answer it: banksman decisions resolve {decision} N");
            Failure::new(exit::USAGE, "PIPELINE_UNDECIDED", message).hint(hint)
        }
        Refusal::Unbound(error) => return start::unbound(error, &pipeline.plan),
    };
    failure.detail("pipeline", id).detail("state", word).detail("phase", &pipeline.phase())
}
