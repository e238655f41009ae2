//! The output of `pipelines list` and `pipelines show`.

use std::collections::BTreeMap;

use banksman_core::pipeline::plan::{Action, Phase, RunCommand, Text};
use banksman_core::pipeline::{Pipeline, Reason, State};
use banksman_core::{Name, Seq, Stamp, Status, Task, TaskId};
use banksman_store::{Hosted, Key, Reader, TaskFilter};
use clap::Args;

use super::find_pipeline;
use crate::commands::tasks::{brief, coloured};
use crate::commands::{ExitResult, events, find, why};
use crate::context::Context;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::table::{self, TableFlags};
use crate::terminal::Style;
use crate::views::Named;
use crate::views::events::WithEvents;
use crate::views::pipelines::{PhaseTask, PhaseView, PipelinePage, PipelineView};

/// The columns of a list of pipelines.
pub(crate) const COLUMNS: [&str; 7] = ["PIPELINE~???", "ID??", "STATE", "PHASE~", "FOR>??", "TITLE~", "DETAIL~?"];

/// List pipelines.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman pipelines list\n  banksman pipelines list --state blocked")]
pub(super) struct List {
    /// Only pipelines with this state: init, checking, blocked, running, done, failed or cancelled
    #[arg(long, value_name = "STATE", value_parser = ["init", "checking", "blocked", "running", "done", "failed", "cancelled"])]
    state: Option<String>,
    /// Only the newest N pipelines
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    table: TableFlags,
}

/// Show one pipeline: its phases, its progress, and what blocks it.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman pipelines show p-7k2m9q")]
pub(super) struct Show {
    /// The pipeline, or a task of one of its phases
    pipeline: String,
}

impl List {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let mut reader = context.reader()?;
        let now = reader.view().load(&Default::default())?;
        let at = now.at();
        let mut found = Vec::new();
        let mut next = Some(Seq(0));
        while let Some(after) = next {
            let (page, more) = reader.view().pipelines(self.state.as_deref(), after)?;
            found.extend(page);
            next = more;
        }
        let from = self.limit.map_or(0, |limit| found.len().saturating_sub(limit));
        let found = found.split_off(from);
        let views: Vec<_> = found.iter().map(|hosted| PipelineView::new(&hosted.task, &hosted.pipeline, at)).collect();
        let human = match (found.is_empty(), &self.state) {
            (true, Some(state)) => format!("no pipelines with state {state}"),
            (true, None) => format!("no pipelines\n{DIM}try: banksman runbooks list{DIM:#}"),
            (false, _) => {
                let tasks = tasks_at(&mut reader, &found)?;
                self.table.render(&COLUMNS, found.iter().map(|hosted| row(hosted, &tasks, at)).collect())?
            }
        };
        context.printer.result(&Named("pipelines", views), human)
    }
}

/// The tasks of the current phases of pipelines.
pub(crate) fn tasks_at(reader: &mut Reader, found: &[Hosted]) -> Result<BTreeMap<TaskId, Task>, Failure> {
    let keys = found.iter().filter_map(|hosted| hosted.pipeline.task()).cloned().map(Key::Task).collect();
    Ok(reader.view().load(&keys)?.tables.backlog.tasks)
}

/// A row of the list.
pub(crate) fn row(hosted: &Hosted, tasks: &BTreeMap<TaskId, Task>, at: Stamp) -> Vec<String> {
    let Hosted { task, pipeline } = hosted;
    let place = |phase: &Name| {
        let index = pipeline.plan.index(phase).map_or(0, |index| index + 1);
        format!("{phase} {DIM}{index}/{}{DIM:#}", pipeline.plan.phases.len())
    };
    let detail = why::detail(pipeline, pipeline.task().and_then(|task| tasks.get(task)));
    let since = if pipeline.is_over() { task.changed } else { pipeline.phase_started };
    vec![
        pipeline.plan.name.to_string(),
        pipeline.id.to_string(),
        state(pipeline),
        pipeline.phase().map(place).unwrap_or_default(),
        format::span(at.lease - since.lease),
        brief(task.spec.title.as_str(), 40),
        brief(&detail.unwrap_or_default(), 70),
    ]
}

/// The number of checkpoints on a page.
const CHECKPOINTS: usize = 5;

/// Whether a guard blocks the pipeline, so that it needs a person. Other output covers its dependencies and decisions.
pub(crate) fn is_held_up(pipeline: &Pipeline) -> bool {
    matches!(&pipeline.state, State::Blocked { reason: Reason::Guard { .. }, .. })
}

fn state(pipeline: &Pipeline) -> String {
    let style = match &pipeline.state {
        State::Running { .. } | State::Checking { .. } | State::Done => GREEN,
        State::Failed { .. } => RED,
        State::Blocked { .. } | State::Cancelled { .. } => YELLOW,
        State::Init => Style::PLAIN,
    };
    format!("{style}{}{style:#}", pipeline.word())
}

impl Show {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let mut reader = context.reader()?;
        let pipeline = find_pipeline(&mut reader, &self.pipeline)?;
        let children = phases(&mut reader, &pipeline.id)?;
        let now = reader.view().load(&[Key::Task(pipeline.id.clone())].into())?;
        let at = now.at();
        let host = now.backlog.tasks.get(&pipeline.id).ok_or_else(|| find::no_task(pipeline.id.as_str()))?;
        let recent = reader.view().recent("pipeline", pipeline.id.as_str(), 5)?;
        let phases = pipeline.plan.phases.iter().map(|phase| {
            let tasks = children.iter().filter(|task| of_phase(task, &phase.name)).map(PhaseTask::from).collect();
            PhaseView { name: &phase.name, does: does(phase, &pipeline), tasks }
        });
        let view = PipelinePage {
            pipeline: PipelineView::new(host, &pipeline, at),
            phases: phases.collect(),
            checkpoints: pipeline.checkpoints.iter().map(Into::into).collect(),
        };
        let human = page(host, &pipeline, &children, at)
            + &events::recent(&recent, &[(pipeline.id.clone(), host.spec.title.clone())].into());
        context.printer.result(&WithEvents::new(view, &recent), human)
    }
}

/// The tasks of the phases of a pipeline, oldest first.
pub(crate) fn phases(reader: &mut Reader, pipeline: &TaskId) -> Result<Vec<Task>, Failure> {
    let filter = TaskFilter { parent: Some(pipeline.clone()), ..TaskFilter::default() };
    Ok(find::all_tasks(reader, &filter)?.into_iter().map(|listed| listed.task).collect())
}

fn of_phase(task: &Task, phase: &Name) -> bool {
    task.spec.phase() == Some(phase.as_str())
}

fn page(host: &Task, pipeline: &Pipeline, children: &[Task], at: Stamp) -> String {
    let current = children.iter().find(|task| pipeline.task() == Some(&task.id));
    let standing = why::standing(pipeline, current, host.spec.item.is_some(), at);
    let mut text = format!("{BOLD}{}{BOLD:#} {DIM}{}{DIM:#} {standing}", host.spec.title, pipeline.id);
    let mut field = |name: &str, value: String| text.push_str(&format!("\n  {DIM}{name:<9}{DIM:#} {value}"));
    field("pipeline", format!("{} of runbook {}", pipeline.plan.name, pipeline.plan.runbook));
    field("started", format::ago(host.created));
    for (name, value) in &pipeline.context {
        field("var", format!("{name} = {}", brief(&value.to_string(), 80)));
    }
    let rows = pipeline.plan.phases.iter().map(|phase| phase_row(phase, pipeline, children, at)).collect();
    text.push_str(&format!("\n\n{}", table::render(&["", "PHASE~", "TASK??", "STATUS", "TOOK>?", "DOES~?"], rows)));
    if !pipeline.checkpoints.is_empty() {
        let (all, shown) = (pipeline.checkpoints.len(), pipeline.checkpoints.len().min(CHECKPOINTS));
        let cut = if shown < all { format!(" (the last {shown} of {all}; --json has all)") } else { String::new() };
        text.push_str(&format!("\n\n{DIM}CHECKPOINTS{cut}{DIM:#}"));
        for said in &pipeline.checkpoints[all - shown..] {
            let phase = said.phase.as_ref().map(|phase| format!(" {DIM}in {phase}{DIM:#}")).unwrap_or_default();
            text.push_str(&format!("\n  {DIM}{}{DIM:#} {}{phase}", format::ago(said.at), format::one_line(&said.message)));
        }
    }
    text
}

fn phase_row(phase: &Phase, pipeline: &Pipeline, children: &[Task], at: Stamp) -> Vec<String> {
    let own: Vec<&Task> = children.iter().filter(|task| of_phase(task, &phase.name)).collect();
    let last = own.last();
    let is_current = pipeline.phase() == Some(&phase.name);
    // The pipeline's state is more exact than the task of its current or last phase.
    let mark = match (last.map(|task| task.status()), &pipeline.state) {
        (_, State::Blocked { .. }) if is_current => format!("{YELLOW}■{YELLOW:#}"),
        (_, State::Failed { .. }) if is_current => format!("{RED}✗{RED:#}"),
        (_, State::Cancelled { .. }) if is_current => format!("{YELLOW}-{YELLOW:#}"),
        _ if is_current => format!("{GREEN}▶{GREEN:#}"),
        (Some(Status::Completed), _) => format!("{GREEN}✓{GREEN:#}"),
        (Some(Status::Failed), _) => format!("{RED}✗{RED:#}"),
        // A push leaves no task and no other trace.
        (None, _) if is_passed(phase, pipeline) => format!("{GREEN}✓{GREEN:#}"),
        (Some(_), _) => format!("{YELLOW}-{YELLOW:#}"),
        (None, _) => format!("{DIM}·{DIM:#}"),
    };
    let took = last.map(|task| {
        let until = if task.status().is_over() { task.changed.wall } else { at.wall };
        format::span(until - task.created)
    });
    let tries = if own.len() > 1 { format!(" {DIM}({} tasks){DIM:#}", own.len()) } else { String::new() };
    vec![
        mark,
        phase.name.to_string(),
        last.map(|task| format!("{}{tries}", task.id)).unwrap_or_default(),
        last.map(|task| coloured(task.status())).unwrap_or_default(),
        took.unwrap_or_default(),
        brief(without_preamble(&does(phase, pipeline)), 60),
    ]
}

/// Whether the pipeline is past this push, so that its item must be in the queue.
fn is_passed(phase: &Phase, pipeline: &Pipeline) -> bool {
    let place = |name: &Name| pipeline.plan.index(name);
    let is_behind = || pipeline.phase().and_then(place) > place(&phase.name);
    matches!(phase.action, Action::Push(_)) && (pipeline.state == State::Done || is_behind())
}

/// A script without leading empty lines, comments and shell settings.
fn without_preamble(script: &str) -> &str {
    let is_preamble =
        |line: &str| line.is_empty() || line.starts_with('#') || line.starts_with("set ") && !line.contains([';', '&', '|']);
    let mut rest = script;
    while let Some((_, after)) = rest.split_once('\n').filter(|(line, _)| is_preamble(line.trim())) {
        rest = after;
    }
    rest.trim_start()
}

/// The action of a phase in a few words.
fn does(phase: &Phase, pipeline: &Pipeline) -> String {
    let name = |text: &Text| text.get(&pipeline.context).unwrap_or_else(|| text.to_string().into());
    match &phase.action {
        Action::Do(RunCommand::Run(line)) => line.to_string(),
        Action::Do(RunCommand::Argv(argv)) => argv.iter().map(format::quoted).collect::<Vec<_>>().join(" "),
        Action::Do(RunCommand::Agent { name, .. }) => format!("agent {name}"),
        Action::Do(RunCommand::Merge(merge)) => {
            format!("merge {} into {} ({})", name(&merge.branch), name(&merge.into), merge.how.as_str())
        }
        Action::Strategy { name, approaches } => {
            let names: Vec<&str> = approaches.iter().map(|approach| approach.name.as_str()).collect();
            format!("strategy {name}: {}", names.join(", then "))
        }
        Action::Push(push) => format!("push to queue {}", push.queue),
    }
}
