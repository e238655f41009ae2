//! Projects full of tasks.

use banksman_adapters::ids;
use banksman_core::backlog::Edge;
use banksman_core::task::{Need, Spec, Work};
use banksman_core::{Name, Status, TaskId, Title};
use banksman_engine::{Reply, Request, TaskOutcome, TaskRequest};
use banksman_runtime::{Client, Project};

use crate::bench::{Bench, Result};
use crate::program;

/// The lock that tasks wait for.
pub(crate) const LOCK: &str = "db";

/// Number of tasks in one transaction.
const BATCH: usize = 1_000;

/// A fresh project with this many run slots, without tasks.
pub(crate) fn project(bench: &Bench, name: &str, slots: usize) -> Result<Project> {
    let (project, _) = bench.project(name)?;
    program::succeed(&project, &["config", "set", "limits.max_concurrent_runs", &slots.to_string()])?;
    // Opened again, with the new setting.
    Ok(Project::find_at(project.root(), None)?)
}

/// A task that runs a command.
pub(crate) fn command(command: &str) -> Result<Spec> {
    Ok(Spec { work: Some(Work::Run(command.into())), ..Spec::new(Title::new("a task of the bench")?) })
}

/// A task `true` that waits for [`LOCK`].
pub(crate) fn waiting() -> Result<Spec> {
    Ok(Spec { needs: vec![Need::Lock(Name::new(LOCK)?)], ..command("true")? })
}

/// This many tasks `true`, every other one waiting.
pub(crate) fn half_waiting(count: usize) -> Result<Vec<Spec>> {
    (0..count).map(|number| if number % 2 == 0 { waiting() } else { command("true") }).collect()
}

/// Adds tasks, many in one transaction.
pub(crate) fn fill(project: &Project, specs: Vec<Spec>) -> Result<()> {
    fill_after(project, specs, &[])
}

/// Adds tasks with these dependencies.
pub(crate) fn fill_after(project: &Project, specs: Vec<Spec>, after: &[TaskId]) -> Result<()> {
    let mut store = project.open_store()?;
    let requests = specs.into_iter().map(|spec| Ok(add(spec, after)?.0)).collect::<Result<Vec<_>>>()?;
    for batch in requests.chunks(BATCH) {
        for committed in store.batch(batch) {
            committed?.replies.into_iter().try_for_each(kept)?;
        }
        store.tidy(true)?;
    }
    Ok(())
}

/// Adds one task.
pub(crate) fn submit(client: &Client, spec: Spec, after: &[TaskId]) -> Result<TaskId> {
    let (request, id) = add(spec, after)?;
    kept(client.call(request)?)?;
    Ok(id)
}

pub(crate) fn add(spec: Spec, after: &[TaskId]) -> Result<(Request, TaskId)> {
    let id = TaskId::new(&ids::short("t"))?;
    let depends_on = after.iter().map(|on| Edge { on: on.clone(), allow_failed: false }).collect();
    Ok((Request::Task(TaskRequest::Add { id: id.clone(), spec: Box::new(spec), depends_on, by: None }), id))
}

fn kept(reply: Reply) -> Result<()> {
    match reply {
        Reply::Task(TaskOutcome::Kept(_)) => Ok(()),
        other => Err(format!("a task was not kept: {other:?}").into()),
    }
}

/// Fails unless this many tasks are completed, and none has failed.
pub(crate) fn check_completed(project: &Project, at_least: usize) -> Result<()> {
    let counts = project.reader()?.view().counts()?.by_status;
    let of = |status: Status| counts.get(&status).copied().unwrap_or_default();
    if of(Status::Completed) >= at_least as u64 && of(Status::Failed) == 0 {
        return Ok(());
    }
    Err(format!("{at_least} tasks should be completed, but there are {counts:?}").into())
}
