//! Commands of people and phases on a started pipeline.

use banksman_core::Pipeline;
use banksman_core::pipeline::MESSAGE_LIMIT;
use banksman_engine::PipelineRequest;
use banksman_store::Key;
use clap::Args;

use super::{find_pipeline, note_runner, own, speaker, start, stepped};
use crate::commands::{ExitResult, resources, tasks, why};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::BOLD;
use crate::views::pipelines::{CheckpointSet, Stepped, VarsSet};

/// Set variables of a pipeline.
///
/// Inside of a phase, --pipeline is optional. A phase cannot change a variable that was given at the start of the pipeline.
/// To pass results to later phases, print them and declare them in the runbook: output = ["version"].
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman pipelines set version=1.2 files:='[\"a\", \"b\"]'\n  banksman pipelines set --pipeline p-7k2m9q branch=login"
)]
pub(super) struct Set {
    /// The variables: NAME=TEXT or NAME:=JSON
    #[arg(required = true, value_name = "NAME=VALUE")]
    vars: Vec<String>,
    /// The pipeline [default: the pipeline that this command runs in]
    #[arg(long, value_name = "PIPELINE")]
    pipeline: Option<String>,
}

/// Record a checkpoint: a note that is kept with the pipeline.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman pipelines checkpoint 'half of the files are done'")]
pub(super) struct Checkpoint {
    /// The note to record
    message: String,
    /// The pipeline [default: the pipeline that this command runs in]
    #[arg(long, value_name = "PIPELINE")]
    pipeline: Option<String>,
}

/// Retry the phase that failed.
///
/// The phase runs as the runbook defined it at the start of the pipeline. To use a changed file, start a new pipeline.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman pipelines retry p-7k2m9q")]
pub(super) struct Retry {
    /// The pipeline
    pipeline: String,
}

/// Unblock a pipeline, regardless of its guards.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman pipelines unblock p-7k2m9q")]
pub(super) struct Unblock {
    /// The pipeline
    pipeline: String,
}

/// Cancel pipelines, with the processes of their phases.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman pipelines cancel p-7k2m9q")]
pub(super) struct Cancel {
    /// The pipelines
    #[arg(required = true, value_name = "PIPELINE")]
    pipelines: Vec<String>,
    /// Do not wait until their processes are dead
    #[arg(long)]
    no_wait: bool,
}

/// Delete pipelines, with the tasks, runs and logs of their phases.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman pipelines delete p-7k2m9q\n  banksman pipelines delete --force p-7k2m9q")]
pub(super) struct Delete {
    /// The pipelines
    #[arg(required = true, value_name = "PIPELINE")]
    pipelines: Vec<String>,
    /// Also unfinished pipelines: they are cancelled first
    #[arg(long)]
    force: bool,
}

/// The named pipeline, or the one that this command is part of.
fn name_or_own(name: Option<String>) -> Result<String, Failure> {
    name.or_else(own).ok_or_else(|| {
        Failure::usage("--pipeline is missing, and this command does not run inside of a pipeline")
            .hint("for example --pipeline p-7k2m9q; list the pipelines: banksman pipelines list")
    })
}

impl Set {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let vars = start::variables(&self.vars)?;
        let client = context.client()?;
        let id = find_pipeline(&mut client.reader()?, &name_or_own(self.pipeline)?)?.id;
        let names: Vec<String> = vars.keys().map(ToString::to_string).collect();
        let request = PipelineRequest::Set { id: id.clone(), vars, by: speaker(&id)? };
        let pipeline = stepped(&id, client.request(request)?)?;
        let view = VarsSet { pipeline: &id, vars: &pipeline.context };
        context.printer.result(&view, format!("set {} of {BOLD}{id}{BOLD:#}", names.join(", ")))
    }
}

impl Checkpoint {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        if self.message.trim().is_empty() || self.message.len() > MESSAGE_LIMIT {
            return Err(Failure::usage(format!("a message has between 1 and {MESSAGE_LIMIT} bytes")));
        }
        let client = context.client()?;
        let id = find_pipeline(&mut client.reader()?, &name_or_own(self.pipeline)?)?.id;
        let message = self.message.trim().into();
        let pipeline = stepped(&id, client.request(PipelineRequest::Checkpoint { id: id.clone(), message, by: speaker(&id)? })?)?;
        let view = CheckpointSet { pipeline: &id, phase: pipeline.phase(), message: self.message.trim() };
        context.printer.result(&view, format!("recorded a checkpoint of {BOLD}{id}{BOLD:#}"))
    }
}

impl Retry {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let id = find_pipeline(&mut client.reader()?, &self.pipeline)?.id;
        let pipeline = stepped(&id, client.request(PipelineRequest::Retry { id: id.clone() })?)?;
        print_state(context, &client, &pipeline)
    }
}

impl Unblock {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let id = find_pipeline(&mut client.reader()?, &self.pipeline)?.id;
        let pipeline = stepped(
            &id,
            client.request(PipelineRequest::Unblock { id: id.clone(), by: Some(resources::forced(&client).user) })?,
        )?;
        print_state(context, &client, &pipeline)
    }
}

impl Cancel {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        tasks::cancel_all(context, &ids(context, &self.pipelines)?, self.no_wait, None)
    }
}

impl Delete {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        tasks::delete_all(context, &ids(context, &self.pipelines)?, self.force)
    }
}

/// The ids of the pipelines with these names.
fn ids(context: &Context, names: &[String]) -> Result<Vec<String>, Failure> {
    let mut reader = context.reader()?;
    names.iter().map(|name| Ok(find_pipeline(&mut reader, name)?.id.to_string())).collect()
}

fn print_state(context: &Context, client: &banksman_runtime::Client, pipeline: &Pipeline) -> ExitResult {
    let mut reader = client.reader()?;
    let rows = reader.view().load(&pipeline.task().cloned().map(Key::Task).into_iter().collect())?;
    let at = rows.at();
    let task = pipeline.task().and_then(|task| rows.backlog.tasks.get(task));
    let human = format!("{BOLD}{}{BOLD:#} {}", pipeline.id, why::standing(pipeline, task, false, at));
    context.printer.print(&Stepped::from(pipeline), human);
    note_runner(context, client, &mut reader)?;
    Ok(exit::OK)
}
