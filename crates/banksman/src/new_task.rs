//! The description of a new task.

use std::collections::BTreeMap;
use std::time::Duration;

use banksman_core::backlog::Edge;
use banksman_core::ids::{Label, Name, SectionId, TaskId as CoreId, Title};
use banksman_core::task::{Need, Spec, Work, WorkspaceSpec, labels, needs};
use banksman_core::{Epoch, Span};
use banksman_runtime::caller;
use banksman_store::{Key, Reader};

use crate::error::{Error, OrPublic, Result, bad_name};

/// A task to be added: a title, and its properties. A title alone makes a manual task.
///
/// ```
/// use std::time::Duration;
/// use banksman::{NewTask, Project, TaskStatus};
///
/// # let dir = tempfile::tempdir()?;
/// # let tasks = Project::init(dir.path())?.open()?.tasks();
/// let build = tasks.add(NewTask::new("Build").run("make").timeout(Duration::from_secs(600)).retries(2))?;
/// let release = NewTask::new("Release").run("./release.sh \"$VERSION\"").env("VERSION", "1.2").depends_on(&build).lock("deploy");
/// assert_eq!(tasks.add(release)?.status(), TaskStatus::Blocked);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "it is no task until it is added"]
pub struct NewTask {
    title: String,
    run: Option<String>,
    section: Option<String>,
    labels: Vec<String>,
    depends_on: Vec<(String, bool)>,
    locks: Vec<String>,
    semaphores: Vec<(String, u32)>,
    priority: i32,
    retries: u32,
    timeout: Option<Duration>,
    silence_timeout: Option<Duration>,
    env: BTreeMap<String, String>,
    is_child: bool,
    has_own_dir: bool,
}

/// A validated task, as the store takes it.
pub(crate) struct TaskInput {
    pub(crate) spec: Spec,
    pub(crate) depends_on: Vec<Edge>,
    pub(crate) by: Option<Epoch>,
}

impl NewTask {
    /// A task with this title.
    pub fn new(title: impl Into<String>) -> NewTask {
        NewTask {
            title: title.into(),
            run: None,
            section: None,
            labels: Vec::new(),
            depends_on: Vec::new(),
            locks: Vec::new(),
            semaphores: Vec::new(),
            priority: 0,
            retries: 0,
            timeout: None,
            silence_timeout: None,
            env: BTreeMap::new(),
            is_child: false,
            has_own_dir: false,
        }
    }

    /// Sets the shell command of the task, which a runner runs in the directory of the project. Pass values by
    /// [`env`](NewTask::env): do not paste them into the command.
    pub fn run(mut self, command: impl Into<String>) -> NewTask {
        self.run = Some(command.into());
        self
    }

    /// Sets an environment variable for the runs of the task.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> NewTask {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Puts the task into this section, given by name or id.
    pub fn section(mut self, section: impl Into<String>) -> NewTask {
        self.section = Some(section.into());
        self
    }

    /// Adds a label. May be called more than once.
    pub fn label(mut self, label: impl Into<String>) -> NewTask {
        self.labels.push(label.into());
        self
    }

    /// Starts the task only after the task with this id is completed. May be called more than once.
    pub fn depends_on(mut self, id: impl AsRef<str>) -> NewTask {
        self.depends_on.push((id.as_ref().to_owned(), false));
        self
    }

    /// Starts the task only after the task with this id has ended in any way.
    pub fn depends_on_end_of(mut self, id: impl AsRef<str>) -> NewTask {
        self.depends_on.push((id.as_ref().to_owned(), true));
        self
    }

    /// Holds this lock during each run. May be called more than once.
    pub fn lock(mut self, name: impl Into<String>) -> NewTask {
        self.locks.push(name.into());
        self
    }

    /// Holds this number of slots of the semaphore during each run. May be called more than once.
    pub fn semaphore(mut self, name: impl Into<String>, slots: u32) -> NewTask {
        self.semaphores.push((name.into(), slots));
        self
    }

    /// Sets the priority: higher comes first.
    pub fn priority(mut self, priority: i32) -> NewTask {
        self.priority = priority;
        self
    }

    /// Sets how many further runs may follow a failed one.
    pub fn retries(mut self, retries: u32) -> NewTask {
        self.retries = retries;
        self
    }

    /// Sets a time limit for a run. A run that takes longer is stopped.
    pub fn timeout(mut self, timeout: Duration) -> NewTask {
        self.timeout = Some(timeout);
        self
    }

    /// Sets how long a run may print nothing before it counts as stuck.
    pub fn silence_timeout(mut self, timeout: Duration) -> NewTask {
        self.silence_timeout = Some(timeout);
        self
    }

    /// Makes the task a child of the task whose run this process is part of: it is cancelled with its parent.
    pub fn child(mut self) -> NewTask {
        self.is_child = true;
        self
    }

    /// Runs the task in a directory of its own instead of the project's.
    pub fn own_directory(mut self) -> NewTask {
        self.has_own_dir = true;
        self
    }

    /// The validated specification.
    pub(crate) fn input(&self, reader: &mut Reader) -> Result<TaskInput> {
        let caller = caller::run().map_err(Error::invalid)?.filter(|_| self.is_child);
        if self.is_child && caller.is_none() {
            return Err(Error::invalid("NewTask::child works only inside a run (BANKSMAN_TASK is not set)"));
        }
        let spec = Spec {
            section: self.section.as_deref().map(|name| section(reader, name)).transpose()?,
            parent: caller.as_ref().map(|caller| caller.task.clone()),
            labels: self.labels()?,
            priority: self.priority,
            work: self.run.as_deref().map(Work::shell).transpose().map_err(Error::invalid)?,
            needs: self.needs()?,
            retries: self.retries,
            workspace: if self.has_own_dir { WorkspaceSpec::Dir } else { WorkspaceSpec::Checkout },
            env: self.checked_env()?.iter().map(|(name, value)| (name.as_str().into(), value.as_str().into())).collect(),
            timeout: positive(self.timeout)?,
            silence: positive(self.silence_timeout)?,
            ..Spec::new(Title::new(&self.title).or_public()?)
        };
        let edge = |(id, allow_failed): &(String, bool)| -> Result<Edge> {
            Ok(Edge { on: CoreId::new(id).or_public()?, allow_failed: *allow_failed })
        };
        let depends_on = self.depends_on.iter().map(edge).collect::<Result<_>>()?;
        Ok(TaskInput { spec, depends_on, by: caller.map(|caller| caller.epoch) })
    }

    fn labels(&self) -> Result<Vec<Label>> {
        let all = self.labels.iter().map(|label| Label::new(label)).collect::<Result<_, _>>().or_public()?;
        labels(all).map_err(Error::invalid)
    }

    fn needs(&self) -> Result<Vec<Need>> {
        let mut all = Vec::new();
        for name in &self.locks {
            all.push(Need::Lock(Name::unreserved(name).map_err(|error| bad_name("lock", error))?));
        }
        for (name, weight) in &self.semaphores {
            let name = Name::unreserved(name).map_err(|error| bad_name("semaphore", error))?;
            all.push(Need::Slots { name, weight: *weight });
        }
        needs(all).map_err(Error::invalid)
    }

    fn checked_env(&self) -> Result<&BTreeMap<String, String>> {
        for (name, value) in &self.env {
            let why = match name.as_str() {
                "" => "the name of a variable must not be empty",
                name if name.contains(['=', '\0']) => "the name of a variable must not contain = or NUL",
                name if name.starts_with("BANKSMAN_") => "names that begin with BANKSMAN_ are reserved",
                _ if value.contains('\0') => "its value contains NUL",
                _ => continue,
            };
            return Err(Error::invalid(format!("the variable {name:?} cannot be set: {why}")));
        }
        Ok(&self.env)
    }
}

impl From<&str> for NewTask {
    fn from(title: &str) -> NewTask {
        NewTask::new(title)
    }
}

impl From<String> for NewTask {
    fn from(title: String) -> NewTask {
        NewTask::new(title)
    }
}

fn positive(time: Option<Duration>) -> Result<Option<Span>> {
    match time.map(Span::from) {
        Some(Span::ZERO) => Err(Error::invalid("a timeout must be at least one millisecond")),
        time => Ok(time),
    }
}

/// The section with this id or name.
pub(crate) fn section(reader: &mut Reader, name: &str) -> Result<SectionId> {
    let sections = reader.view().load(&[Key::Sections].into()).or_public()?.tables.backlog.sections;
    let by_name = || sections.values().find(|section| section.name.as_str() == name);
    let found = sections.get(name).or_else(by_name).map(|section| section.id.clone());
    found.ok_or_else(|| Error::NotFound { kind: "section", name: name.to_owned() })
}
