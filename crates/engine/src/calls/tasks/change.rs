//! Adding and changing tasks.

use std::num::NonZeroU32;

use banksman_core::backlog::Edge;
use banksman_core::event::{Event, TaskFact};
use banksman_core::task::{self, Spec, dependencies};
use banksman_core::{Epoch, Span, Status, Task, TaskId};
use banksman_store::{Key, Tx};

use super::{Edit, TaskOutcome, TaskRequest, left_to_pipeline};
use crate::calls::manual;
use crate::calls::steps::{emit, wake_runners};
use crate::{facts, wakeups};

/// The rows that a new task needs.
pub(crate) fn add_keys(id: &TaskId, spec: &Spec, depends_on: &[Edge]) -> Vec<Key> {
    let on = depends_on.iter().map(|edge| Key::Task(edge.on.clone()));
    let parent = spec.parent.clone().map(Key::Task);
    let needs = spec.needs_to_begin(true).iter().map(facts::need_key);
    [Key::Task(id.clone()), Key::Idle, Key::Sections].into_iter().chain(parent).chain(on).chain(needs).collect()
}

pub(crate) fn add(id: &TaskId, spec: &Spec, depends_on: &[Edge], by: Option<Epoch>, tx: &mut Tx) -> TaskOutcome {
    let now = tx.now(Vec::new(), Span::ZERO);
    let backlog = &mut tx.tables.backlog;
    if let Some(section) = spec.section.as_ref().filter(|section| !backlog.sections.contains_key(*section)) {
        return TaskOutcome::UnknownSection(section.clone());
    }
    if let Some(parent) = &spec.parent {
        let Some(parent_task) = backlog.tasks.get(parent) else { return TaskOutcome::UnknownParent(parent.clone()) };
        // A task that is being stopped adds no more children: its cancellation has cancelled only the children that existed.
        let is_stopping = matches!(parent_task.state, task::State::Stopping { .. });
        if by.is_some() && (parent_task.live().map(|live| live.epoch) != by || is_stopping) {
            return TaskOutcome::Fenced;
        }
    }
    // No task can depend on a task that does not exist yet, so a cycle is impossible.
    if let Err(error) = dependencies::validate(id, depends_on, |on| backlog.tasks.contains_key(on), &Default::default()) {
        return TaskOutcome::Dependencies(error);
    }
    // A task that results from a route is as deep as the reaction.
    let spec = Spec { depth: spec.depth.max(tx.depth), ..spec.clone() }.with_workspace(id);
    let task = Task::new(id.clone(), spec.clone(), &now);
    let mut edges = depends_on.to_vec();
    edges.sort();
    backlog.tasks.insert(id.clone(), task.clone());
    backlog.edges.insert(id.clone(), edges);
    let fact = TaskFact::Added { spec: Box::new(spec), depends_on: depends_on.to_vec(), import: None };
    emit(tx, Event::Task { id: id.clone(), fact });
    wakeups::note_added(id, tx);
    TaskOutcome::Kept(Box::new(task))
}

/// The rows that a change needs.
pub(crate) fn edit_keys(id: &TaskId, edit: &Edit) -> Vec<Key> {
    let edges = edit.depends_on.iter().flatten();
    let edges = edges.flat_map(|edge| [Key::Task(edge.on.clone()), Key::Upstream(edge.on.clone())]);
    let needs = edit.needs.iter().flatten().map(facts::need_key);
    [Key::Sections, Key::Dependencies(id.clone())].into_iter().chain(edges).chain(needs).collect()
}

/// Changes a task and carries out a second request on it, or neither.
pub(super) fn edited(edit: &Edit, status: Status, then: &TaskRequest, tx: &mut Tx) -> TaskOutcome {
    let Some(id) = then.id() else { return TaskOutcome::Unknown };
    let mut draft = tx.clone();
    match update(id, edit, &mut draft) {
        TaskOutcome::Kept(_) => {}
        refused => return refused,
    }
    let outcome = then.decide(&mut draft);
    let is_done = match &outcome {
        TaskOutcome::Stepped(outcome, _) => match outcome {
            task::Outcome::Over(found) | task::Outcome::NotPending(found) => *found == status,
            task::Outcome::Ended(_)
            | task::Outcome::Marked(_)
            | task::Outcome::Clear
            | task::Outcome::Returned
            | task::Outcome::Stopping
            | task::Outcome::Noted => true,
            _ => false,
        },
        _ => false,
    };
    if is_done {
        *tx = draft;
    }
    outcome
}

pub(crate) fn update(id: &TaskId, edit: &Edit, tx: &mut Tx) -> TaskOutcome {
    let Some(task) = tx.tables.backlog.tasks.get(id).cloned() else { return TaskOutcome::Unknown };
    // The terms of a live run are fixed: its section's lock is held, its dependencies were met.
    if let Some(live) = task.live()
        && (edit.section.is_some() || edit.depends_on.is_some() || edit.is_of_runs())
    {
        return TaskOutcome::InProgress(live.run.clone());
    }
    // The work of a pipeline is in its plan.
    if edit.is_of_runs() && (task.spec.phase().is_some() || task.has_phases()) {
        return left_to_pipeline(&task);
    }
    // The holder of a manual claim has the lock of the task's section, and releases the lock of the section that the task is in then.
    let moves = edit.section.as_ref().is_some_and(|section| *section != task.spec.section);
    if (moves || edit.needs.is_some())
        && let Some(locked_by) = manual::locked_by(&task, None, tx)
    {
        return TaskOutcome::Locked(locked_by);
    }
    let backlog = &mut tx.tables.backlog;
    // Only the plan orders the phases: a phase that depended on a dependent of its pipeline would wait for itself.
    if task.spec.phase().is_some() && edit.depends_on.is_some() {
        return left_to_pipeline(&task);
    }
    if let Some(Some(section)) =
        edit.section.as_ref().filter(|section| section.as_ref().is_some_and(|id| !backlog.sections.contains_key(id)))
    {
        return TaskOutcome::UnknownSection(section.clone());
    }
    if let Some(edges) = &edit.depends_on {
        if let Err(error) = dependencies::validate(id, edges, |on| backlog.tasks.contains_key(on), &backlog.edges) {
            return TaskOutcome::Dependencies(error);
        }
        let mut edges = edges.clone();
        edges.sort();
        backlog.edges.insert(id.clone(), edges);
    }
    let mut task = task;
    let Edit { title, section, priority, labels, depends_on: _, work, needs, retries, restart, timeout, silence, workspace } =
        edit.clone();
    task.spec.title = title.unwrap_or(task.spec.title);
    task.spec.section = section.unwrap_or(task.spec.section);
    task.spec.priority = priority.unwrap_or(task.spec.priority);
    task.spec.labels = labels.unwrap_or(task.spec.labels);
    task.spec.work = work.unwrap_or(task.spec.work);
    task.spec.needs = needs.unwrap_or(task.spec.needs);
    task.spec.retries = retries.unwrap_or(task.spec.retries);
    task.spec.restart = restart.unwrap_or(task.spec.restart);
    task.spec.timeout = timeout.unwrap_or(task.spec.timeout);
    task.spec.silence = silence.unwrap_or(task.spec.silence);
    if let Some(workspace) = workspace {
        // The lock of the old workspace was added with the workspace, and goes with it.
        let lock = task.spec.workspace.owner(id).map(|owner| task::Need::Lock(owner.workspace_lock()));
        task.spec.needs.retain(|need| Some(need) != lock.as_ref());
        task.spec.workspace = workspace;
    }
    if let Some(policy) = &mut task.spec.restart {
        // A loop has no separate retries, and earlier failures count as attempts.
        task.spec.retries = 0;
        policy.max_attempts = policy.max_attempts.max(NonZeroU32::new(task.failures).unwrap_or(policy.max_attempts));
    }
    // Adds the lock of the workspace to the needs.
    task.spec = task.spec.with_workspace(id);
    let depends_on = backlog.edges.get(id).cloned().unwrap_or_default();
    backlog.tasks.insert(id.clone(), task.clone());
    let fact = TaskFact::Updated { spec: Box::new(task.spec.clone()), depends_on };
    emit(tx, Event::Task { id: id.clone(), fact });
    wake_runners(tx);
    TaskOutcome::Kept(Box::new(task))
}
