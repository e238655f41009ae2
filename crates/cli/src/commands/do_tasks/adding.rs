//! The tasks: those that are new are added, and those that are there go on.

use banksman_adapters::git::Repository;
use banksman_adapters::ids;
use banksman_core::task::{LandSpec, Spec, WorkspaceSpec};
use banksman_core::{Name, Seq, Status, Task, TaskId};
use banksman_engine::{TaskOutcome, TaskRequest};
use banksman_runtime::{Client, landing};
use banksman_store::TaskFilter;

use super::plan::Item;
use crate::commands::landing::{git_failure, target_of};
use crate::commands::tasks;
use crate::context::Context;
use crate::failure::Failure;
use crate::printer::DIM;

/// Where tasks work.
pub(super) enum Place {
    /// Each in a worktree of its own, whose work lands on this branch.
    Worktrees { target: Name },
    /// In the project's directory: it is no git repository, or has no commit yet.
    Here,
}

impl Place {
    pub(super) fn find(client: &Client) -> Result<Place, Failure> {
        let repository = Repository::of(client.project().root()).map_err(git_failure)?;
        let has_commits = |found: &Repository| found.commit("HEAD").is_ok_and(|head| head.is_some());
        if !repository.is_some_and(|found| has_commits(&found)) {
            return Ok(Place::Here);
        }
        let lander = landing::lander(client.project()).map_err(git_failure)?;
        let named = |failure: Failure| failure.hint("git switch BRANCH, or banksman config set landing.target BRANCH");
        Ok(Place::Worktrees { target: target_of(client, &lander, None).map_err(named)? })
    }

    fn land(&self) -> Option<LandSpec> {
        match self {
            Place::Worktrees { target } => Some(LandSpec { target: target.clone(), unchecked: false, of_child: false }),
            Place::Here => None,
        }
    }
}

/// Adds the tasks that are not there yet, lets the others go on, and returns all of them.
pub(super) fn add_all(
    context: &Context,
    client: &Client,
    agents: &str,
    items: &[Item],
    place: &Place,
) -> Result<Vec<TaskId>, Failure> {
    let known = known(client)?;
    let mut ids: Vec<TaskId> = Vec::new();
    for (number, Item { title, prompt }) in items.iter().enumerate() {
        let same = |other: &str| other.to_lowercase() == title.as_str().to_lowercase();
        if items[..number].iter().any(|item| same(item.title.as_str())) {
            continue;
        }
        if let Some(task) = known.iter().find(|task| same(task.spec.title.as_str())) {
            let goes_on = go_on(client, task, place)?;
            context.printer.note(&format!("{DIM}{}: {goes_on}{DIM:#}", task.spec.title));
            ids.push(task.id.clone());
            continue;
        }
        let work = tasks::agents::work(client.config(), agents, prompt.clone())?;
        let land = place.land();
        let workspace = if land.is_some() { WorkspaceSpec::Worktree(Box::default()) } else { WorkspaceSpec::Checkout };
        let spec = Spec { work: Some(work), workspace, land: land.map(Box::new), ..Spec::new(title.clone()) };
        let id = TaskId::new(&ids::short("t")).expect("a short id is valid");
        match client.request(TaskRequest::Add { id: id.clone(), spec: Box::new(spec), depends_on: Vec::new(), by: None })? {
            TaskOutcome::Kept(_) => ids.push(id),
            outcome => return Err(tasks::refused(&id, &outcome)),
        }
    }
    Ok(ids)
}

/// Lets a task go on that is there already: one that has failed is tried again, and one in review lands if there is a check by now. Says
/// how it stands.
fn go_on(client: &Client, task: &Task, place: &Place) -> Result<String, Failure> {
    let id = task.id.clone();
    let is_checked = client.config().landing.check.is_some();
    let (request, said) = match (task.status(), place.land().filter(|_| is_checked)) {
        (Status::Failed, _) => (TaskRequest::Retry { id }, "failed before, and is tried again"),
        (Status::Review, Some(to)) => (TaskRequest::Land { id, by: tasks::speaker(None)?, to }, "was in review, and lands"),
        (status, _) => return Ok(format!("{status} already")),
    };
    match client.request(request)? {
        TaskOutcome::Stepped(..) => Ok(said.into()),
        outcome => Err(tasks::refused(&task.id, &outcome)),
    }
}

/// The tasks that another `do` goes on with, or need not do again: all but those that were given up.
fn known(client: &Client) -> Result<Vec<Task>, Failure> {
    let given_up = [Status::Cancelled, Status::Skipped];
    let statuses = Status::ALL.into_iter().filter(|status| !given_up.contains(status)).collect();
    let filter = TaskFilter { statuses, ..TaskFilter::default() };
    let (mut reader, mut known, mut next) = (client.reader()?, Vec::new(), Some(Seq(0)));
    while let Some(after) = next {
        let (page, more) = reader.view().tasks(&filter, after)?;
        known.extend(page.into_iter().map(|listed| listed.task));
        next = more;
    }
    Ok(known)
}
