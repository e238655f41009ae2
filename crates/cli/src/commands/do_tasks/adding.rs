//! Adds new tasks and continues existing ones.

use std::sync::Arc;

use banksman_adapters::git::Repository;
use banksman_adapters::ids;
use banksman_core::agent::AgentWork;
use banksman_core::task::{LandSpec, Spec, Work, WorkspaceSpec};
use banksman_core::{Name, Status, Task, TaskId};
use banksman_engine::{Edit, TaskOutcome, TaskRequest};
use banksman_runtime::{Client, landing};
use banksman_store::TaskFilter;

use super::plan::Item;
use crate::commands::landing::{git_failure, target_of};
use crate::commands::{find, tasks};
use crate::context::Context;
use crate::failure::Failure;
use crate::printer::DIM;

/// Where the tasks work.
pub(super) enum Place {
    /// Each in its own worktree, whose work lands on this branch.
    Worktrees { target: Name },
    /// In the project's directory, which is no git repository or has no commit yet.
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

/// Adds the tasks that do not exist, continues the others, and returns all of them. Existing tasks keep their agents
/// unless `wanted` names others.
pub(super) fn add_all(
    context: &Context,
    client: &Client,
    agents: &str,
    wanted: Option<&str>,
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
            let outcome_text = continue_task(client, task, &Revision::of(client, task, prompt.as_deref(), wanted)?, place)?;
            context.printer.note(&format!("{DIM}{}: {outcome_text}{DIM:#}", task.spec.title));
            ids.push(task.id.clone());
            continue;
        }
        let work = tasks::agents::work(client.config(), agents, prompt.clone().unwrap_or_default())?;
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

/// The changes to an existing task.
struct Revision {
    work: Work,
    /// The changed parts, as text for people.
    what: Vec<&'static str>,
    /// The new agents, if they change.
    by: Option<String>,
}

impl Revision {
    /// The changes of prompt and agents to a task that an agent works on; `None` if nothing changes.
    fn of(client: &Client, task: &Task, prompt: Option<&str>, agents: Option<&str>) -> Result<Option<Revision>, Failure> {
        let Some(Work::Agent(now)) = &task.spec.work else { return Ok(None) };
        let prompt = prompt.unwrap_or(&now.prompt);
        let mut work = AgentWork { prompt: prompt.into(), ..AgentWork::clone(now) };
        if let Some(Work::Agent(wanted)) =
            agents.map(|names| tasks::agents::work(client.config(), names, String::new())).transpose()?
        {
            (work.agents, work.on_quota) = (wanted.agents.clone(), wanted.on_quota);
        }
        let (has_prompt, has_agents) = (work.prompt != now.prompt, work.names() != now.names());
        work.is_revised |= has_prompt;
        let by = has_agents.then(|| work.names());
        let what = [(has_prompt, "its new prompt"), (has_agents, "its new agent")];
        let what: Vec<&str> = what.into_iter().filter(|(is_new, _)| *is_new).map(|(_, what)| what).collect();
        Ok((!what.is_empty()).then(|| Revision { work: Work::Agent(Arc::new(work)), what, by }))
    }

    fn edit(&self) -> Box<Edit> {
        Box::new(Edit { work: Some(Some(self.work.clone())), ..Edit::default() })
    }

    /// The changes as the end of a sentence.
    fn used(&self) -> String {
        let prompt = self.what.contains(&"its new prompt").then(|| " with its new prompt".to_owned());
        let by = self.by.as_ref().map(|by| format!("by {by}"));
        match (prompt, by) {
            (Some(prompt), Some(by)) => format!("{prompt}, {by}"),
            (Some(words), None) => words,
            (None, by) => by.map(|by| format!(" {by}")).unwrap_or_default(),
        }
    }

    fn unused(&self, why: &str) -> String {
        let are = if self.what.len() == 1 { "is" } else { "are" };
        format!("; {} {are} not used{why}", self.what.join(" and "))
    }
}

const BY_RUN: &str = ", because a run is in progress";

/// Continues an existing task: a failed one is retried, one in review lands if there is a check by now, and one without
/// a live run takes over the revision. Returns a description of the outcome.
fn continue_task(client: &Client, task: &Task, revision: &Option<Revision>, place: &Place) -> Result<String, Failure> {
    let id = task.id.clone();
    let is_checked = client.config().landing.check.is_some();
    let unused = |why: &str| revision.as_ref().map(|revision| revision.unused(why)).unwrap_or_default();
    let retry = || format!(": banksman tasks retry {}", task.id);
    let status = task.status();
    let (request, said) = match (status, place.land().filter(|_| is_checked)) {
        (Status::Failed, _) => {
            let retry = TaskRequest::Retry { id };
            let said = "failed before, queued for retry";
            match revision {
                None => (retry, said.to_owned()),
                Some(revision) => {
                    let request = TaskRequest::Edited { edit: revision.edit(), status: Status::Pending, then: Box::new(retry) };
                    (request, format!("{said}{}", revision.used()))
                }
            }
        }
        (Status::Review, Some(to)) => {
            let said = format!("was in review, and lands{}", unused(""));
            (TaskRequest::Land { id, by: tasks::speaker(None)?, to }, said)
        }
        (Status::Pending | Status::Blocked, _) if task.live().is_none() => match revision {
            None => return Ok(format!("{status} already")),
            Some(revision) => {
                (TaskRequest::Update { id, edit: revision.edit() }, format!("{status} already, now{}", revision.used()))
            }
        },
        (Status::Completed | Status::Review, _) => return Ok(format!("{status} already{}", unused(&retry()))),
        (Status::Landing, _) => return Ok(format!("{status} already{}", unused(", because its work lands"))),
        _ if task.live().is_some() => return Ok(format!("{status} already{}", unused(BY_RUN))),
        _ => return Ok(format!("{status} already{}", unused(", because a person works on it"))),
    };
    match client.request(request)? {
        TaskOutcome::Stepped(..) | TaskOutcome::Kept(_) => Ok(said),
        // The task has started since it was read.
        TaskOutcome::InProgress(_) => Ok(format!("in_progress already{}", unused(BY_RUN))),
        outcome => Err(tasks::refused(&task.id, &outcome)),
    }
}

/// The tasks that another `do` continues or need not repeat: all except cancelled and skipped ones.
fn known(client: &Client) -> Result<Vec<Task>, Failure> {
    let given_up = [Status::Cancelled, Status::Skipped];
    let statuses = Status::ALL.into_iter().filter(|status| !given_up.contains(status)).collect();
    let filter = TaskFilter { statuses, ..TaskFilter::default() };
    Ok(find::all_tasks(&mut client.reader()?, &filter)?.into_iter().map(|listed| listed.task).collect())
}
