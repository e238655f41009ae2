//! Adding, reading, awaiting and ending tasks.

use std::sync::Arc;
use std::time::Duration;

use banksman_adapters::ids;
use banksman_core::Seq;
use banksman_core::ids::{HolderId, Label, TaskId as CoreId};
use banksman_core::task::{self, ERROR_LIMIT, OUTPUT_LIMIT, Outcome, Verdict};
use banksman_engine::{TaskOutcome, TaskRequest};
use banksman_runtime::{AwaitedTask, Sessions, TaskWaitError, UntilOptions, WaitEnd, caller, wait_for_tasks};
use banksman_store::{Key, Listed, TaskFilter as StoreFilter};
use serde::Serialize;

use crate::cancel::CancelToken;
use crate::client::Client;
use crate::error::{Error, Internal, OrPublic, Resource, ResourceKind, Result};
use crate::json;
use crate::new_task::{self, NewTask, TaskInput};
use crate::task::{Task, TaskFilter, TaskStatus};

/// The tasks of a project.
///
/// ```
/// use std::time::Duration;
/// use banksman::{NewTask, Project, TaskFilter, TaskStatus};
///
/// # let dir = tempfile::tempdir()?;
/// # let client = Project::init(dir.path())?.open()?;
/// let tasks = client.tasks();
/// let tests = tasks.add(NewTask::new("Run the tests").run("make test").retries(1).lock("build"))?;
/// let name = tasks.add("Decide about the name")?;
/// let release = tasks.add(NewTask::new("Release").run("./release.sh").depends_on(&tests).depends_on(&name))?;
/// assert_eq!(tasks.get(&release)?.status(), TaskStatus::Blocked);
///
/// // A runner runs tasks with a command; people, and programs like this one, do the rest.
/// tasks.done(&name, &"banksman")?;
/// assert_eq!(tasks.wait(&name, Duration::from_secs(5))?.output::<String>()?.as_deref(), Some("banksman"));
///
/// tasks.cancel(&tests)?;
/// assert_eq!(tasks.list(TaskFilter::new().status(TaskStatus::Cancelled))?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Tasks {
    client: Client,
    cancel: Option<CancelToken>,
}

impl Tasks {
    pub(crate) fn new(client: &Client) -> Tasks {
        Tasks { client: client.clone(), cancel: None }
    }

    /// Ends waits with [`Error::Cancelled`] when the token is cancelled.
    pub fn cancel_on(mut self, token: &CancelToken) -> Tasks {
        self.cancel = Some(token.clone());
        self
    }

    /// Adds a task: the title of a manual task, or a [`NewTask`].
    pub fn add(&self, task: impl Into<NewTask>) -> Result<Task> {
        let mut reader = self.client.inner().reader().or_public()?;
        let TaskInput { spec, depends_on, by } = task.into().input(&mut reader)?;
        let id = CoreId::new(&ids::short("t")).expect("a short id is valid");
        let request = TaskRequest::Add { id: id.clone(), spec: Box::new(spec), depends_on, by };
        match self.ask(request)? {
            TaskOutcome::Kept(_) => self.read(&id),
            outcome => Err(refused(&id, outcome)),
        }
    }

    /// The task with this id.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such task.
    pub fn get(&self, id: impl AsRef<str>) -> Result<Task> {
        self.read(&core_id(id.as_ref())?)
    }

    /// The tasks that pass the filter, in the order in which they were added.
    pub fn list(&self, filter: TaskFilter) -> Result<Vec<Task>> {
        let mut reader = self.client.inner().reader().or_public()?;
        let filter = StoreFilter {
            statuses: filter.statuses.into_iter().map(TaskStatus::core).collect(),
            section: filter.section.as_deref().map(|name| new_task::section(&mut reader, name)).transpose()?,
            parent: None,
            labels: filter.labels.iter().map(|label| Label::new(label)).collect::<Result<_, _>>().or_public()?,
            search: filter.text,
            ..StoreFilter::default()
        };
        let (mut tasks, mut after) = (Vec::new(), Some(Seq(0)));
        while let Some(seq) = after {
            let (page, next) = reader.view().tasks(&filter, seq).or_public()?;
            tasks.extend(page.into_iter().map(Task::new));
            after = next;
        }
        Ok(tasks)
    }

    /// Waits until a task has ended, for at most this time, and returns it: [`Task::status`] is its final status.
    ///
    /// In a process that is part of a run, other runs may use the run's slot meanwhile: a run may wait for its
    /// children.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] after the timeout, [`Error::Cancelled`] if the wait was cancelled, [`Error::NotFound`] if
    /// there is no such task, or it was deleted meanwhile, [`Error::Deadlock`] if the task waits for the run that this
    /// process is part of.
    pub fn wait(&self, id: impl AsRef<str>, timeout: Duration) -> Result<Task> {
        let tasks = self.wait_all([id], timeout)?;
        tasks.into_iter().next().ok_or(Error::Cancelled)
    }

    /// Waits until all these tasks have ended, and returns them in the same order.
    pub fn wait_all<I: AsRef<str>>(&self, ids: impl IntoIterator<Item = I>, timeout: Duration) -> Result<Vec<Task>> {
        let ids: Vec<CoreId> = ids.into_iter().map(|id| core_id(id.as_ref())).collect::<Result<_>>()?;
        for id in &ids {
            self.read(id)?;
        }
        let token = self.cancel.clone().map_or_else(CancelToken::new, Ok)?;
        let options = UntilOptions { cancel: token.fd(), timeout: Some(timeout), tick: None };
        let client = self.client.inner();
        let recorder = || client.project().open().ok().map(Arc::new);
        let files = Sessions::new(client.project());
        let ended = wait_for_tasks(client, &files, &ids, &options, &recorder, &mut |_, _| Ok(()));
        let (end, tasks) = ended.map_err(|error| unawaited(&ids, error))?;
        match end {
            WaitEnd::Met(()) => {
                let over = |awaited: AwaitedTask| {
                    let task = awaited.task.ok_or_else(|| no_task(&awaited.id))?;
                    Ok(Task::new(Listed { task, unmet: 0 }))
                };
                tasks.into_iter().map(over).collect()
            }
            WaitEnd::TimedOut => {
                let left: Vec<&str> = tasks.iter().filter(|task| !task.is_over()).map(|task| task.id.as_str()).collect();
                Err(Error::TimedOut { what: format!("the end of {}", left.join(", ")) })
            }
            WaitEnd::Cancelled => Err(Error::Cancelled),
        }
    }

    /// Cancels a task and its children permanently. A current run is stopped; [`wait`](Tasks::wait) waits until its
    /// processes are dead. An ended task stays as it is.
    pub fn cancel(&self, id: impl AsRef<str>) -> Result<Task> {
        let id = core_id(id.as_ref())?;
        match self.ask(TaskRequest::Cancel { id: id.clone() })? {
            TaskOutcome::Stepped(Outcome::Ended(_) | Outcome::Stopping | Outcome::Over(_), _) => self.read(&id),
            outcome => Err(refused(&id, outcome)),
        }
    }

    /// Reports that a task is done, with its result. For a task without a current run this takes effect at once. In a
    /// process that is part of the task's run it takes effect when the run ends.
    pub fn done(&self, id: impl AsRef<str>, output: &impl Serialize) -> Result<Task> {
        let output = json::value(output)?;
        if output.to_string().len() > OUTPUT_LIMIT {
            return Err(Error::invalid(format!("the result of a task may have at most {OUTPUT_LIMIT} bytes")));
        }
        self.finish(id.as_ref(), false, Verdict::Done { output: Some(output).filter(|output| !output.is_null()) })
    }

    /// Reports that a task has failed, and why.
    pub fn fail(&self, id: impl AsRef<str>, error: impl Into<String>) -> Result<Task> {
        let error = error.into();
        if error.trim().is_empty() || error.len() > ERROR_LIMIT {
            return Err(Error::invalid(format!("the error of a task must have 1 to {ERROR_LIMIT} bytes")));
        }
        self.finish(id.as_ref(), true, Verdict::Failed { error: error.into() })
    }

    fn finish(&self, id: &str, anyway: bool, verdict: Verdict) -> Result<Task> {
        let id = core_id(id)?;
        let run = caller::run().map_err(Error::invalid)?.filter(|caller| caller.task == id);
        let by: Option<HolderId> = caller::holder().map_err(Error::invalid)?.map(|caller| caller.holder);
        let request = TaskRequest::Finish { id: id.clone(), by, epoch: run.map(|caller| caller.epoch), anyway, verdict };
        match self.ask(request)? {
            TaskOutcome::Stepped(Outcome::Noted | Outcome::Ended(_), _) => self.read(&id),
            outcome => Err(refused(&id, outcome)),
        }
    }

    fn ask(&self, request: TaskRequest) -> Result<TaskOutcome> {
        self.client.inner().request(request).or_public()
    }

    fn read(&self, id: &CoreId) -> Result<Task> {
        let keys = [Key::Task(id.clone()), Key::Dependencies(id.clone())].into();
        let mut backlog = self.client.inner().reader().or_public()?.view().load(&keys).or_public()?.tables.backlog;
        let unmet = backlog.unmet(id);
        let task = backlog.tasks.remove(id).ok_or_else(|| no_task(id))?;
        Ok(Task::new(Listed { task, unmet }))
    }
}

fn core_id(id: &str) -> Result<CoreId> {
    CoreId::new(id).or_public()
}

fn no_task(id: &CoreId) -> Error {
    Error::NotFound { kind: "task", name: id.to_string() }
}

/// The error of a wait that was refused.
fn unawaited(tasks: &[CoreId], error: TaskWaitError) -> Error {
    match error {
        TaskWaitError::Failed(error) => error.public(),
        TaskWaitError::Caller(error) => Error::invalid(error),
        TaskWaitError::Fenced { run } => Error::Lost { what: format!("run {run}") },
        TaskWaitError::Deadlock { run, cycle } => {
            // The lock of a task is held by the run or person that works on it.
            let name = tasks.first().map_or_else(|| run.holder().to_string(), |task| task.lock().to_string());
            Error::deadlock(Resource { kind: ResourceKind::Lock, name }, &cycle)
        }
        TaskWaitError::NoSlot(_) => Error::Cancelled,
    }
}

/// The error of a refused request.
fn refused(id: &CoreId, outcome: TaskOutcome) -> Error {
    match outcome {
        TaskOutcome::Unknown => no_task(id),
        TaskOutcome::UnknownParent(parent) => no_task(&parent),
        TaskOutcome::UnknownSection(section) => Error::NotFound { kind: "section", name: section.to_string() },
        TaskOutcome::Dependencies(task::dependencies::DagError::Unknown(task)) => no_task(&task),
        TaskOutcome::Dependencies(error) => Error::invalid(error),
        TaskOutcome::Locked(by) => Error::refused(format!("{id} is locked by {}", by.holder)),
        TaskOutcome::InProgress(run) => Error::refused(format!("run {run} works on {id}")),
        TaskOutcome::DependsOn(_) => Error::refused(format!("{id} depends on tasks that are not completed")),
        TaskOutcome::Fenced
        | TaskOutcome::Lost(_)
        | TaskOutcome::NotTheClaim { .. }
        | TaskOutcome::Stepped(Outcome::Fenced(_), _) => Error::Lost { what: format!("the claim or the run of {id}") },
        TaskOutcome::Stepped(Outcome::Busy(_), _) => {
            Error::refused(format!("a run of {id} is in progress, and only that run may report"))
        }
        TaskOutcome::Stepped(Outcome::Over(status), _) => Error::refused(format!("{id} is {status} already")),
        TaskOutcome::Stepped(Outcome::HasPhases, _) => Error::refused(format!("the status of {id} is set by its pipeline")),
        TaskOutcome::Stepped(Outcome::NotPending(status), _) => Error::refused(format!("{id} is {status}")),
        TaskOutcome::Stepped(Outcome::MustLand, _) => Error::refused(format!("{id} is completed when its work has landed")),
        TaskOutcome::Changed => Error::refused(format!("{id} is being changed by another process")),
        TaskOutcome::NeverFits { name, capacity: None } => Error::NotFound { kind: "semaphore", name: name.to_string() },
        TaskOutcome::NeverFits { name, capacity: Some(capacity) } => {
            Error::refused(format!("{id} needs more slots of semaphore {name} than there are: {capacity}"))
        }
        TaskOutcome::RefusedBy(task, outcome) => refused(&task, *outcome),
        TaskOutcome::HasDependents(_) => Error::refused(format!("other tasks depend on {id}")),
        TaskOutcome::HasChildren(_) => Error::refused(format!("{id} has children")),
        TaskOutcome::NotOver => Error::refused(format!("pipeline {id} is not over")),
        TaskOutcome::NotClaimed => Error::refused(format!("{id} is not claimed")),
        TaskOutcome::Deadlock(cycle) => {
            Error::deadlock(Resource { kind: ResourceKind::Lock, name: id.lock().to_string() }, &cycle)
        }
        TaskOutcome::Deleted => no_task(id),
        // This library makes no request with such an answer.
        TaskOutcome::Stepped(..)
        | TaskOutcome::Kept(_)
        | TaskOutcome::Several(_)
        | TaskOutcome::Waiting(_)
        | TaskOutcome::Left
        | TaskOutcome::AlreadyYours(_)
        | TaskOutcome::Renewed(_) => Error::refused(format!("{id} does not allow this now")),
    }
}
