//! What agents execute where single tasks run, and the tasks that wait for trust in it.

use std::path::{Path, PathBuf};

use banksman_core::decision::About;
use banksman_core::{Decision, Name, Task, TaskId};
use banksman_runtime::agents::{self, Exposure};
use banksman_runtime::{Project, Trust as Trusted};
use banksman_store::{Key, Reader};

use crate::commands::{decisions, find};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;

/// What agents execute where a task runs.
pub(super) struct Place {
    pub(super) directory: PathBuf,
    pub(super) exposures: Vec<Exposure>,
}

/// What these agents, or else those of each task, execute where these tasks run.
pub(super) fn places(project: &Project, names: &[String], wanted: &[String]) -> Result<Vec<Place>, Failure> {
    let mut reader = project.reader()?;
    let ids = find::task_ids(&mut reader, wanted.iter().map(String::as_str))?;
    ids.iter().map(|id| place(project, &mut reader, names, id)).collect()
}

fn place(project: &Project, reader: &mut Reader, names: &[String], id: &TaskId) -> Result<Place, Failure> {
    let task = task(reader, id)?.ok_or_else(|| find::no_task(id.as_str()))?;
    let choices = agents::choices(&task).iter().map(|choice| choice.agent.to_string());
    let names: Vec<String> = if names.is_empty() { choices.collect() } else { names.to_vec() };
    if names.is_empty() {
        return Err(Failure::usage(format!("{id} has no agent")).hint("name one with --agent"));
    }
    let directory = project.agent_directory(&task).ok_or_else(|| no_worktree(id))?;
    let exposures = names.iter().flat_map(|name| project.exposures_in(name, &directory)).collect();
    Ok(Place { directory, exposures })
}

fn no_worktree(id: &TaskId) -> Failure {
    Failure::new(exit::NOT_FOUND, "WORKSPACE_NOT_FOUND", format!("{id} has no worktree yet"))
        .detail("task", id)
        .hint("its first run creates one, and starts only when its content is trusted")
}

/// Continues the tasks whose exposures are all trusted now. Returns their titles, and the commands for tasks that wait
/// for more.
pub(super) fn resume(context: &Context, project: &Project, trust: &Trusted) -> Result<(Vec<String>, Vec<String>), Failure> {
    let (mut resumed, mut commands) = (Vec::new(), Vec::new());
    let waiting = waiting(&mut project.reader()?)?;
    for Waiting { decision, task, agent } in waiting {
        let Some(directory) = project.agent_directory(&task) else { continue };
        if is_covered(project, trust, &agent, &directory) {
            decisions::resolve(context, &*context.client()?, &decision, decision.question.recommended, None)?;
            resumed.push(task.spec.title.to_string());
        } else {
            commands.push(format!("banksman trust --agent {agent} --task {}", task.id));
        }
    }
    Ok((resumed, commands))
}

fn is_covered(project: &Project, trust: &Trusted, agent: &Name, directory: &Path) -> bool {
    let covers = |exposure: &Exposure| trust.covers_exposure(project.root(), exposure);
    project.exposures_in(agent.as_str(), directory).iter().all(covers)
}

/// A task that waits for trust in its agent.
struct Waiting {
    decision: Decision,
    task: Task,
    agent: Name,
}

fn waiting(reader: &mut Reader) -> Result<Vec<Waiting>, Failure> {
    let open = reader.view().load(&[Key::OpenDecisions].into())?.tables.backlog.decisions;
    let mut waiting = Vec::new();
    for decision in open.into_values().filter(|decision| decision.question.is_of_trust()) {
        let About::Task(id) = &decision.question.about else { continue };
        let Some(task) = task(reader, id)? else { continue };
        let runs = reader.view().load(&[Key::RunsOf(id.clone())].into())?.tables.backlog.runs;
        let last = runs.into_values().max_by_key(|run| run.epoch).and_then(|run| run.agent);
        let Some(agent) = last.map(|last| last.agent).or_else(|| Some(agents::choices(&task).first()?.agent.clone())) else {
            continue;
        };
        waiting.push(Waiting { decision, task, agent });
    }
    waiting.sort_by_key(|waiting| waiting.decision.id.seq());
    Ok(waiting)
}

fn task(reader: &mut Reader, id: &TaskId) -> Result<Option<Task>, Failure> {
    Ok(reader.view().load(&[Key::Task(id.clone())].into())?.backlog.tasks.remove(id))
}
