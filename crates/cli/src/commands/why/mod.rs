//! `banksman why`: what blocks a task, or how it ended.

mod dependency;
mod item;
mod phases;
mod reason;
mod sentence;
mod taken;

use banksman_core::landing::Entry;
use banksman_core::pipeline::phase_task;
use banksman_core::task::TaskEnd;
use banksman_core::{Name, Stamp, TaskId};
use banksman_engine::why::{Answer, Life, Unanswered, Why as Found};
use banksman_runtime::inspect;
use banksman_store::{Key, Reader};
use clap::Args;

use super::recording::record_ended;
use super::tasks::coloured;
use super::{ExitResult, find};
use crate::context::Context;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::views::Time;
use crate::views::landing::EntryView;
use crate::views::pipelines::PipelineView;
use crate::views::why::{AnswerKind, RunView, UnansweredView, WhyView};

pub(crate) use phases::{detail, needs_runner, restart, side, standing};
pub(crate) use reason::Reason;
pub(crate) use sentence::attention;

/// Explain why a task is not running.
///
/// Names everything that blocks the task: the holder, since when, and what unblocks it. Dependencies are followed to the first
/// task that is blocked by something else. For an ended task it says how the task ended.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman why 'Run the tests'\n  banksman why t-7k2m9q --json")]
pub(crate) struct Why {
    /// The task: its id, its title, or the beginning of its id
    task: String,
}

impl Why {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let mut reader = project.reader()?;
        let id = match find::task_id(&mut reader, &self.task) {
            Err(failure) => return Err(item::with_item_hint(&mut reader, &self.task, failure)?),
            Ok(id) => id,
        };
        record_ended(context, &project, &mut reader)?;
        // The task may have been deleted between the two reads.
        let why = inspect::why(&mut reader, &project, &id)?.ok_or_else(|| find::no_task(&self.task))?;
        let failed = failed_task(&mut reader, &why)?;
        context.printer.result(&view(&why), human(&why, failed.as_ref()))
    }
}

/// The task of the phase in which a pipeline failed, if there is one: a guard before the phase may have failed.
fn failed_task(reader: &mut Reader, why: &Found) -> Result<Option<TaskId>, Failure> {
    let Answer::Over { done: TaskEnd::Failed { .. }, pipeline: Some(pipeline), .. } = &why.answer else { return Ok(None) };
    let id = phase_task(&pipeline.id, pipeline.tasks);
    let tasks = reader.view().load(&[Key::Task(id.clone())].into())?.tables.backlog.tasks;
    let phase = pipeline.phase().map(Name::as_str);
    Ok(tasks.get(&id).is_some_and(|task| task.spec.phase() == phase).then_some(id))
}

/// `alive`, `gone` or `unknown`.
pub(crate) fn life(life: Life) -> &'static str {
    match life {
        Life::Alive => "alive",
        Life::Gone => "gone",
        Life::Unknown => "unknown",
    }
}

fn human(why: &Found, failed: Option<&TaskId>) -> String {
    let (task, at) = (&why.task, why.at);
    let mut text = format!("{BOLD}{}{BOLD:#} {DIM}{}{DIM:#} ", task.spec.title, task.id);
    match &why.answer {
        Answer::Waits(causes) => {
            text.push_str(&format!("has been {}", coloured(why.status)));
            let ago = format::span(at.lease - task.changed.lease);
            text.push_str(&format!(" {DIM}for {ago}{DIM:#}: {}", sentence::headline(causes)));
            for reason in causes.iter().map(|cause| reason::of(cause, &task.id, why.at)) {
                reason.print("", &mut text);
            }
        }
        Answer::InPhases(phases) => {
            text.push_str(&phases::in_phases(phases, at));
            phases::reasons(phases, at).iter().for_each(|reason| reason.print("", &mut text));
        }
        Answer::Over { done, last, pipeline } => {
            let style = match done {
                TaskEnd::Success { .. } => GREEN,
                TaskEnd::Failed { .. } => RED,
                TaskEnd::Cancelled | TaskEnd::Skipped => YELLOW,
            };
            text.push_str(&format!("{style}{}{style:#}", sentence::over(done, task.changed, at)));
            if let Some((run, ended)) = last.as_ref().and_then(|run| Some((run, run.ended.as_ref()?))) {
                let took = format::span(ended.at - run.started.wall);
                let attempt = run.attempt + 1;
                text.push_str(&format!("\n  {DIM}run{DIM:#}   {} (attempt {attempt}): {} after {took}", run.id, ended.ending));
                if let Some(note) = &ended.note {
                    text.push_str(&format!("\n  {DIM}note{DIM:#}  {note}"));
                }
                text.push_str(&format!("\n  {DIM}its output: banksman sessions logs {}{DIM:#}", run.id));
            }
            if let Some(failed) = failed {
                text.push_str(&format!("\n  {DIM}its output: banksman tasks logs {failed}{DIM:#}"));
            }
            // The item of a worker is retried with another pipeline.
            if let Some(advice) = pipeline.as_ref().filter(|_| task.spec.item.is_none()).and_then(|found| phases::advice(found)) {
                text.push_str(&format!("\n  {DIM}{advice}{DIM:#}"));
            }
        }
        answer => text.push_str(&sentence::answer(answer, task.changed, at)),
    }
    for Unanswered { holder, pid, since } in &why.unanswered {
        let silent = format::span(at.lease - *since);
        text.push_str(&format!(
            "\n  {YELLOW}-{YELLOW:#} {} waits for the task, but its process was woken {silent} ago and has not answered\n    \
             {DIM}try: kill -CONT {pid}{DIM:#}",
            format::holder(holder)
        ));
    }
    text + &item::human(why)
}

fn unanswered(one: &Unanswered, at: Stamp) -> UnansweredView<'_> {
    UnansweredView { holder: &one.holder, pid: one.pid, since: Time(at.wall_of(one.since)) }
}

fn view(why: &Found) -> WhyView<'_> {
    let task = &why.task;
    let mut view = WhyView {
        task: &task.id,
        title: &task.spec.title,
        status: why.status,
        answer: AnswerKind::Waiting,
        message: match &why.answer {
            Answer::Waits(causes) => sentence::headline(causes),
            answer => sentence::answer(answer, task.changed, why.at),
        },
        since: task.changed.into(),
        attempts: task.attempts,
        reasons: Vec::new(),
        runner: None,
        run: None,
        then: None,
        decision: None,
        holder: None,
        error: None,
        output: None,
        pipeline: None,
        landing: None,
        item: item::view(why),
        unanswered: why.unanswered.iter().map(|one| unanswered(one, why.at)).collect(),
    };
    match &why.answer {
        Answer::Waits(causes) => view.reasons = causes.iter().map(|cause| reason::of(cause, &task.id, why.at)).collect(),
        Answer::Starting(runner) => {
            view.answer = AnswerKind::Starting;
            view.runner = Some(runner);
        }
        Answer::Running { run, stuck } => {
            view.answer = AnswerKind::Running;
            view.runner = Some(&run.owner);
            view.run = Some(RunView::live(run));
            view.error = stuck.as_ref().map(|(_, stuck)| sentence::stuck(stuck, why.at));
        }
        Answer::Stopping { run, then, .. } => {
            view.answer = AnswerKind::Stopping;
            view.runner = Some(&run.owner);
            view.run = Some(RunView::live(run));
            view.then = Some(sentence::then(then));
        }
        Answer::Awaiting { .. } => view.answer = AnswerKind::Awaiting,
        Answer::AwaitingDecision { decision, .. } => {
            view.answer = AnswerKind::Parked;
            view.decision = Some(decision);
        }
        Answer::Manual { holder, .. } => {
            view.answer = AnswerKind::ByHand;
            view.holder = Some(holder);
        }
        Answer::Landing(place) => {
            view.answer = AnswerKind::Landing;
            view.landing = place.entry.as_ref().map(EntryView::from);
            view.decision = place.entry.as_ref().and_then(Entry::decision);
        }
        Answer::Review(entry) => {
            view.answer = AnswerKind::Review;
            view.landing = entry.as_deref().map(EntryView::from);
        }
        Answer::InPhases(phases) => {
            view.answer = AnswerKind::InPhases;
            view.pipeline = Some(PipelineView::new(task, &phases.pipeline, why.at));
            view.reasons = phases::reasons(phases, why.at);
        }
        Answer::Over { done, last, pipeline } => {
            view.answer = AnswerKind::Finished;
            view.pipeline = pipeline.as_ref().map(|pipeline| PipelineView::new(task, pipeline, why.at));
            match done {
                TaskEnd::Success { output, .. } => view.output = output.as_ref(),
                TaskEnd::Failed { error } => view.error = Some(error.to_string()),
                TaskEnd::Cancelled | TaskEnd::Skipped => {}
            }
            view.run = last.as_ref().map(|run| RunView::ended(run));
        }
    }
    view
}
