//! A snapshot of a task, and the filter of a list.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use banksman_core::ids::Label;
use banksman_core::task::{self, State, Status, TaskEnd};
use banksman_store::Listed;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Result;
use crate::{json, time_of};

/// The id of a task, such as `t-7k2m9q1a`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(String);

/// A snapshot of a task.
#[derive(Clone)]
pub struct Task {
    id: TaskId,
    status: TaskStatus,
    task: Arc<task::Task>,
}

/// The status of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TaskStatus {
    /// The task can be started.
    Pending,
    /// The task waits for other tasks, or for a decision.
    Blocked,
    /// A run or a person works on the task.
    InProgress,
    /// The run of the task shows no activity.
    Stuck,
    /// The work is done and in the merge queue.
    Landing,
    /// A person reviews the work.
    Review,
    /// The task is done.
    Completed,
    /// The task has failed.
    Failed,
    /// The task was cancelled.
    Cancelled,
    /// The task was skipped.
    Skipped,
}

/// A filter for tasks; without any condition it selects all.
///
/// ```
/// use banksman::{NewTask, Project, TaskFilter, TaskStatus};
///
/// # let dir = tempfile::tempdir()?;
/// # let tasks = Project::init(dir.path())?.open()?.tasks();
/// tasks.add(NewTask::new("Write the report").label("nightly"))?;
/// tasks.add("Send the report")?;
///
/// let nightly = TaskFilter::new().label("nightly").status(TaskStatus::Pending).status(TaskStatus::Blocked);
/// assert_eq!(tasks.list(nightly)?.len(), 1);
/// assert_eq!(tasks.list(TaskFilter::new().title_contains("REPORT"))?.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct TaskFilter {
    pub(crate) statuses: Vec<TaskStatus>,
    pub(crate) section: Option<String>,
    pub(crate) labels: Vec<String>,
    pub(crate) text: Option<String>,
}

impl TaskFilter {
    /// All tasks.
    pub fn new() -> TaskFilter {
        TaskFilter::default()
    }

    /// Only tasks with this status. Several calls select tasks with any of these statuses.
    pub fn status(mut self, status: TaskStatus) -> TaskFilter {
        self.statuses.push(status);
        self
    }

    /// Only tasks of this section, given by name or id.
    pub fn section(mut self, section: impl Into<String>) -> TaskFilter {
        self.section = Some(section.into());
        self
    }

    /// Only tasks with this label. Several calls select tasks with all of these labels.
    pub fn label(mut self, label: impl Into<String>) -> TaskFilter {
        self.labels.push(label.into());
        self
    }

    /// Only tasks whose title contains this text, ignoring case.
    pub fn title_contains(mut self, text: impl Into<String>) -> TaskFilter {
        self.text = Some(text.into());
        self
    }
}

impl Task {
    pub(crate) fn new(listed: Listed) -> Task {
        let status = TaskStatus::of(listed.status());
        Task { id: TaskId(listed.task.id.to_string()), status, task: Arc::new(listed.task) }
    }

    /// The id of the task.
    pub fn id(&self) -> &TaskId {
        &self.id
    }

    /// The title of the task.
    pub fn title(&self) -> &str {
        self.task.spec.title.as_str()
    }

    /// The status of the task.
    pub fn status(&self) -> TaskStatus {
        self.status
    }

    /// The labels of the task.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.task.spec.labels.iter().map(Label::as_str)
    }

    /// The priority of the task: higher comes first.
    pub fn priority(&self) -> i32 {
        self.task.spec.priority
    }

    /// The number of runs so far.
    pub fn attempts(&self) -> u32 {
        self.task.attempts
    }

    /// When the task was added.
    pub fn created(&self) -> SystemTime {
        time_of(self.task.created)
    }

    /// The error of a failed task. `banksman tasks logs ID` prints the log of its runs.
    pub fn error(&self) -> Option<&str> {
        match &self.task.state {
            State::Done(TaskEnd::Failed { error }) => Some(error),
            _ => None,
        }
    }

    /// The result of a completed task, if it has one. A result comes only from `banksman tasks done --output` or from
    /// [`Tasks::done`](crate::Tasks::done), not from the output of the command.
    pub fn output<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        self.value().map(|value| json::read(value, || format!("the result of task {}", self.id))).transpose()
    }

    fn value(&self) -> Option<&Value> {
        match &self.task.state {
            State::Done(TaskEnd::Success { output, .. }) => output.as_ref(),
            _ => None,
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Task");
        fields.field("id", &self.id.0).field("title", &self.title()).field("status", &self.status);
        fields.field("error", &self.error()).field("output", &self.value()).finish_non_exhaustive()
    }
}

impl AsRef<str> for Task {
    /// The id of the task.
    fn as_ref(&self) -> &str {
        &self.id.0
    }
}

impl AsRef<str> for TaskId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl TaskStatus {
    /// Whether the task has ended, so that only a retry changes it.
    pub fn is_over(self) -> bool {
        self.core().is_over()
    }

    fn of(status: Status) -> TaskStatus {
        match status {
            Status::Pending => TaskStatus::Pending,
            Status::Blocked => TaskStatus::Blocked,
            Status::InProgress => TaskStatus::InProgress,
            Status::Stuck => TaskStatus::Stuck,
            Status::Landing => TaskStatus::Landing,
            Status::Review => TaskStatus::Review,
            Status::Completed => TaskStatus::Completed,
            Status::Failed => TaskStatus::Failed,
            Status::Cancelled => TaskStatus::Cancelled,
            Status::Skipped => TaskStatus::Skipped,
        }
    }

    pub(crate) fn core(self) -> Status {
        match self {
            TaskStatus::Pending => Status::Pending,
            TaskStatus::Blocked => Status::Blocked,
            TaskStatus::InProgress => Status::InProgress,
            TaskStatus::Stuck => Status::Stuck,
            TaskStatus::Landing => Status::Landing,
            TaskStatus::Review => Status::Review,
            TaskStatus::Completed => Status::Completed,
            TaskStatus::Failed => Status::Failed,
            TaskStatus::Cancelled => Status::Cancelled,
            TaskStatus::Skipped => Status::Skipped,
        }
    }
}

impl fmt::Display for TaskStatus {
    /// The word that the command line shows, such as `in_progress`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.core().as_str())
    }
}
