//! What people and runs do with tasks: add, change, conclude, cancel, retry, delete.

use banksman_core::backlog::Edge;
use banksman_core::dag::{self, DagError};
use banksman_core::event::{Event, TaskFact};
use banksman_core::task::{self, After, Mark, Pulse, Spec, Verdict};
use banksman_core::{Epoch, HolderId, Label, RunId, RunnerId, SectionId, Span, Task, TaskId, Title, lock};
use banksman_store::{Key, Tables, Turn};

use crate::ledger::{emit, step_task, wake_runner, wake_runners};

/// What can be asked.
#[derive(Debug, Clone)]
pub enum TaskRequest {
    /// Hand one over.
    Add {
        /// Its id.
        id: TaskId,
        /// What is to be done.
        spec: Box<Spec>,
        /// What must come first.
        depends_on: Vec<Edge>,
        /// The run that creates it, if its parent's run does.
        by: Option<Epoch>,
    },
    /// Change what is to be done.
    Update {
        /// Which one.
        id: TaskId,
        /// What is different.
        edit: Box<Edit>,
    },
    /// Tell the result.
    Conclude {
        /// Of which one.
        id: TaskId,
        /// The run that says so.
        epoch: Option<Epoch>,
        /// The result.
        verdict: Verdict,
    },
    /// Show a sign of life.
    Heartbeat {
        /// Of which one.
        id: TaskId,
        /// Of which run.
        epoch: Epoch,
        /// What was seen.
        pulse: Pulse,
        /// How long a run may be without one.
        timeout: Span,
    },
    /// Stop it and its children for good.
    Cancel {
        /// Which one.
        id: TaskId,
    },
    /// Stop its run, so that it fails.
    Kill {
        /// Which one.
        id: TaskId,
        /// Which run.
        run: RunId,
        /// Why.
        error: Box<str>,
    },
    /// Try it again.
    Retry {
        /// Which one.
        id: TaskId,
    },
    /// Pass it over, or look at it.
    Set {
        /// Which one.
        id: TaskId,
        /// What it is.
        mark: Mark,
    },
    /// Forget it.
    Delete {
        /// Which one.
        id: TaskId,
        /// Also if its lock is held.
        force: bool,
    },
}

/// What is different. `None` leaves it as it is.
#[derive(Debug, Clone, Default)]
pub struct Edit {
    /// The title.
    pub title: Option<Title>,
    /// The section, or none.
    pub section: Option<Option<SectionId>>,
    /// The priority.
    pub priority: Option<i32>,
    /// All its labels.
    pub labels: Option<Vec<Label>>,
    /// All that must come first.
    pub depends_on: Option<Vec<Edge>>,
}

/// What can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskOutcome {
    /// It is so now.
    Kept(Box<Task>),
    /// The machine's answer, with the task as it stands now.
    Stepped(task::Outcome, Box<Task>),
    /// It is gone.
    Deleted,
    /// There is no such task.
    Unknown,
    /// There is no such section.
    UnknownSection(SectionId),
    /// There is no such parent.
    UnknownParent(TaskId),
    /// The run that wants to add a child is not its parent's run any more.
    Fenced,
    /// The dependencies make no sense.
    Dependencies(DagError),
    /// A run is at it, so that it cannot be changed so.
    InProgress(RunId),
    /// Others wait for it.
    HasDependents(Vec<TaskId>),
    /// It has children.
    HasChildren(Vec<TaskId>),
    /// Somebody works on it.
    Locked(HolderId),
}

impl TaskRequest {
    fn id(&self) -> &TaskId {
        match self {
            TaskRequest::Add { id, .. }
            | TaskRequest::Update { id, .. }
            | TaskRequest::Conclude { id, .. }
            | TaskRequest::Heartbeat { id, .. }
            | TaskRequest::Cancel { id }
            | TaskRequest::Kill { id, .. }
            | TaskRequest::Retry { id }
            | TaskRequest::Set { id, .. }
            | TaskRequest::Delete { id, .. } => id,
        }
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        let id = self.id().clone();
        let mut keys = vec![Key::Task(id.clone()), Key::Runners];
        match self {
            TaskRequest::Add { spec, depends_on, .. } => {
                keys.push(Key::Sections);
                keys.extend(spec.parent.clone().map(Key::Task));
                keys.extend(depends_on.iter().map(|edge| Key::Task(edge.on.clone())));
            }
            TaskRequest::Update { edit, .. } => {
                keys.extend([Key::Sections, Key::Dependencies(id)]);
                for edge in edit.depends_on.iter().flatten() {
                    keys.extend([Key::Task(edge.on.clone()), Key::Upstream(edge.on.clone())]);
                }
            }
            TaskRequest::Cancel { .. } => keys.extend([Key::Family(id), Key::Live, Key::Outbox]),
            TaskRequest::Kill { .. } => keys.extend([Key::Live, Key::Outbox]),
            TaskRequest::Delete { .. } => {
                keys.extend([Key::Family(id.clone()), Key::Dependents(id.clone()), Key::Lock(id.lock()), Key::RunsOf(id)]);
            }
            TaskRequest::Conclude { .. }
            | TaskRequest::Heartbeat { .. }
            | TaskRequest::Retry { .. }
            | TaskRequest::Set { .. } => {}
        }
        keys
    }

    pub(crate) fn decide(&self, tables: &mut Tables, turn: &mut Turn) -> TaskOutcome {
        match self {
            TaskRequest::Add { id, spec, depends_on, by } => add(id, spec, depends_on, *by, tables, turn),
            TaskRequest::Update { id, edit } => update(id, edit, tables, turn),
            TaskRequest::Conclude { id, epoch, verdict } => {
                let input = task::Input::Conclude { epoch: *epoch, verdict: verdict.clone() };
                stepped(id, input, tables, turn)
            }
            TaskRequest::Heartbeat { id, epoch, pulse, timeout } => {
                stepped(id, task::Input::Heartbeat { epoch: *epoch, pulse: *pulse, timeout: *timeout }, tables, turn)
            }
            TaskRequest::Cancel { id } => cancel(id, tables, turn),
            TaskRequest::Kill { id, run, error } => match tables.backlog.tasks.get(id).map(|task| task.live().cloned()) {
                None => TaskOutcome::Unknown,
                Some(Some(live)) if live.run == *run => stop(id, After::Fail { error: error.clone() }, tables, turn),
                Some(_) => TaskOutcome::Fenced,
            },
            TaskRequest::Retry { id } => stepped(id, task::Input::Retry, tables, turn),
            TaskRequest::Set { id, mark } => stepped(id, task::Input::Set(*mark), tables, turn),
            TaskRequest::Delete { id, force } => delete(id, *force, tables, turn),
        }
    }
}

fn add(id: &TaskId, spec: &Spec, depends_on: &[Edge], by: Option<Epoch>, tables: &mut Tables, turn: &mut Turn) -> TaskOutcome {
    let backlog = &mut tables.backlog;
    if let Some(section) = spec.section.as_ref().filter(|section| !backlog.sections.contains_key(*section)) {
        return TaskOutcome::UnknownSection(section.clone());
    }
    if let Some(parent) = &spec.parent {
        let Some(parent_task) = backlog.tasks.get(parent) else { return TaskOutcome::UnknownParent(parent.clone()) };
        // One that is being stopped makes no children any more: who cancels it has cancelled all that there were.
        let is_stopping = matches!(parent_task.state, task::State::Stopping { .. });
        if by.is_some() && (parent_task.live().map(|live| live.epoch) != by || is_stopping) {
            return TaskOutcome::Fenced;
        }
    }
    // Nothing can depend on a task that is not there yet, so there is no cycle to look for.
    if let Err(error) = dag::validate(id, depends_on, |on| backlog.tasks.contains_key(on), &Default::default()) {
        return TaskOutcome::Dependencies(error);
    }
    let task = Task::new(id.clone(), spec.clone(), &turn.now(Vec::new(), Span::ZERO));
    let mut edges = depends_on.to_vec();
    edges.sort();
    backlog.tasks.insert(id.clone(), task.clone());
    backlog.edges.insert(id.clone(), edges);
    let fact = TaskFact::Added { spec: Box::new(spec.clone()), depends_on: depends_on.to_vec(), import: None };
    emit(turn, Event::Task { id: id.clone(), fact });
    wake_runners(tables, turn, None);
    TaskOutcome::Kept(Box::new(task))
}

fn update(id: &TaskId, edit: &Edit, tables: &mut Tables, turn: &mut Turn) -> TaskOutcome {
    let backlog = &mut tables.backlog;
    let Some(task) = backlog.tasks.get(id).cloned() else { return TaskOutcome::Unknown };
    // What a run was started with is fixed: its section's lock is held, its dependencies were met.
    if let Some(live) = task.live()
        && (edit.section.is_some() || edit.depends_on.is_some())
    {
        return TaskOutcome::InProgress(live.run.clone());
    }
    if let Some(Some(section)) =
        edit.section.as_ref().filter(|section| section.as_ref().is_some_and(|id| !backlog.sections.contains_key(id)))
    {
        return TaskOutcome::UnknownSection(section.clone());
    }
    if let Some(edges) = &edit.depends_on {
        if let Err(error) = dag::validate(id, edges, |on| backlog.tasks.contains_key(on), &backlog.edges) {
            return TaskOutcome::Dependencies(error);
        }
        let mut edges = edges.clone();
        edges.sort();
        backlog.edges.insert(id.clone(), edges);
    }
    let mut task = task;
    let Edit { title, section, priority, labels, depends_on: _ } = edit.clone();
    task.spec.title = title.unwrap_or(task.spec.title);
    task.spec.section = section.unwrap_or(task.spec.section);
    task.spec.priority = priority.unwrap_or(task.spec.priority);
    task.spec.labels = labels.unwrap_or(task.spec.labels);
    let depends_on = backlog.edges.get(id).cloned().unwrap_or_default();
    backlog.tasks.insert(id.clone(), task.clone());
    let fact = TaskFact::Updated { spec: Box::new(task.spec.clone()), depends_on };
    emit(turn, Event::Task { id: id.clone(), fact });
    wake_runners(tables, turn, None);
    TaskOutcome::Kept(Box::new(task))
}

fn stepped(id: &TaskId, input: task::Input, tables: &mut Tables, turn: &mut Turn) -> TaskOutcome {
    let before = turn.seq;
    let Some(outcome) = step_task(tables, turn, id, input, None) else { return TaskOutcome::Unknown };
    if turn.seq != before {
        // It may have become ready, or others with it.
        wake_runners(tables, turn, None);
    }
    TaskOutcome::Stepped(outcome, Box::new(tables.backlog.tasks[id].clone()))
}

/// Stops one task, whether it has a run or not.
fn stop(id: &TaskId, after: After, tables: &mut Tables, turn: &mut Turn) -> TaskOutcome {
    let Some(task) = tables.backlog.tasks.get(id) else { return TaskOutcome::Unknown };
    let owner: Option<RunnerId> = task.live().and_then(|live| tables.backlog.runs.get(&live.run)).map(|run| run.owner.clone());
    let outcome = step_task(tables, turn, id, task::Input::Stop(after), owner.as_ref()).expect("it was just there");
    match (&outcome, owner) {
        (task::Outcome::Stopping, Some(owner)) => wake_runner(tables, turn, &owner),
        _ => wake_runners(tables, turn, None),
    }
    TaskOutcome::Stepped(outcome, Box::new(tables.backlog.tasks[id].clone()))
}

/// Stops a task and all that it has created.
fn cancel(id: &TaskId, tables: &mut Tables, turn: &mut Turn) -> TaskOutcome {
    let outcome = stop(id, After::Cancel, tables, turn);
    let mut family = vec![id.clone()];
    let mut at = 0;
    while let Some(parent) = family.get(at).cloned() {
        let children: Vec<TaskId> = children(&parent, tables);
        for child in &children {
            stop(child, After::Cancel, tables, turn);
        }
        family.extend(children);
        at += 1;
    }
    outcome
}

fn children(parent: &TaskId, tables: &Tables) -> Vec<TaskId> {
    let is_child = |task: &&Task| task.spec.parent.as_ref() == Some(parent);
    tables.backlog.tasks.values().filter(is_child).map(|task| task.id.clone()).collect()
}

fn delete(id: &TaskId, force: bool, tables: &mut Tables, turn: &mut Turn) -> TaskOutcome {
    let Some(task) = tables.backlog.tasks.get(id) else { return TaskOutcome::Unknown };
    if let Some(live) = task.live() {
        return TaskOutcome::InProgress(live.run.clone());
    }
    let lock = tables.coordination.locks.get(&id.lock());
    if let Some(lock::State::Held(grant)) = lock.map(|lock| &lock.state)
        && !force
    {
        return TaskOutcome::Locked(grant.claim.holder.clone());
    }
    let waits = |edges: &[Edge]| edges.iter().any(|edge| edge.on == *id);
    let dependents: Vec<TaskId> =
        tables.backlog.edges.iter().filter(|(_, edges)| waits(edges)).map(|(task, _)| task.clone()).collect();
    if !dependents.is_empty() {
        return TaskOutcome::HasDependents(dependents);
    }
    let children = children(id, tables);
    if !children.is_empty() {
        return TaskOutcome::HasChildren(children);
    }
    tables.backlog.tasks.remove(id);
    tables.backlog.edges.remove(id);
    tables.backlog.runs.retain(|_, run| run.task != *id);
    emit(turn, Event::Task { id: id.clone(), fact: TaskFact::Deleted {} });
    TaskOutcome::Deleted
}
