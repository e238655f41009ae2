//! The failures for refused requests, with their codes and exit statuses.

use banksman_core::task::Outcome;
use banksman_core::task::dependencies::DagError;
use banksman_core::{Status, Task, TaskId};
use banksman_engine::{LockedBy, TaskOutcome};

use super::claim::{self, locked};
use crate::commands::find;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;

/// The failure for a refused request to a task.
pub(crate) fn refused(task: &TaskId, outcome: &TaskOutcome) -> Failure {
    match outcome {
        TaskOutcome::Unknown => find::no_task(task.as_str()),
        TaskOutcome::UnknownSection(section) => find::no_section(section.as_str()),
        TaskOutcome::UnknownParent(parent) => find::no_task(parent.as_str()),
        TaskOutcome::Fenced => fenced(task),
        TaskOutcome::Dependencies(error) => dependencies(task, error),
        TaskOutcome::InProgress(run) => {
            let locked_by = LockedBy::new(task.lock(), run.holder(), None);
            locked(task, &locked_by).hint(format!("to stop its run: banksman tasks cancel {task}"))
        }
        TaskOutcome::Locked(locked_by) => {
            let (lock, holder) = (format::quoted(&locked_by.lock), format::quoted(&locked_by.holder));
            locked(task, locked_by).hint(format!(
                "add --holder {holder} if this is you, or take the lock away: banksman locks release {lock} --force"
            ))
        }
        TaskOutcome::Changed => {
            Failure::new(exit::LOCKED, "TASK_BUSY", format!("{task} is being changed by another process; try again"))
                .detail("taskId", &task)
        }
        TaskOutcome::HasDependents(others) => {
            let message = format!("other tasks depend on {task}: {}", list(others));
            Failure::new(exit::USAGE, "TASK_HAS_DEPENDENTS", message)
                .detail("taskId", &task)
                .detail("dependents", &others)
                .hint("delete them too, or change their dependencies: banksman tasks update TASK --depends-on …")
        }
        TaskOutcome::HasChildren(children) => {
            let message = format!("{task} has children: {}", list(children));
            Failure::new(exit::USAGE, "TASK_HAS_CHILDREN", message)
                .detail("taskId", &task)
                .detail("children", &children)
                .hint("delete them too: banksman tasks delete TASK…")
        }
        TaskOutcome::NotOver => Failure::new(exit::LOCKED, "TASK_BUSY", format!("{task} is an unfinished pipeline"))
            .detail("taskId", &task)
            .hint(format!("to cancel it first: banksman pipelines delete --force {task}")),
        TaskOutcome::Stepped(Outcome::HasPhases, row) => has_phases(row),
        TaskOutcome::Stepped(outcome, _) => stepped(task, outcome),
        TaskOutcome::Deadlock(cycle) => claim::deadlock(task, cycle),
        TaskOutcome::Lost(lost) => {
            let message = format!("fenced: your claim on {task} (epoch {}) has ended: {}", lost.epoch, lost.reason);
            let at = format::rfc3339(lost.at);
            Failure::new(exit::FENCED, "CLAIM_LOST", message)
                .detail("taskId", &task)
                .detail("holder", &lost.holder)
                .detail("epoch", &lost.epoch)
                .detail("reason", &lost.reason)
                .detail("lostAt", &at)
                .hint(format!("stop the work that relied on it, or take the task again: banksman tasks take {task}"))
        }
        TaskOutcome::NotTheClaim { epoch, claimed_by } => {
            let by = claim::held_by(claimed_by);
            let message = format!("fenced: epoch {epoch} is not that of the current claim of {task} (held by {by})");
            Failure::new(exit::FENCED, "FENCED", message)
                .detail("taskId", &task)
                .detail("lockedBy", &claimed_by.holder)
                .hint("the claim with this epoch has ended; stop the work that relied on it")
        }
        TaskOutcome::NotClaimed => Failure::new(exit::NOT_PERMITTED, "NOT_CLAIMED", format!("{task} is not claimed"))
            .detail("taskId", &task)
            .hint(format!("to work on it: banksman tasks take {task}")),
        TaskOutcome::DependsOn(unmet) => {
            let ids: Vec<TaskId> = unmet.iter().map(|unmet| unmet.task.clone()).collect();
            let names: Vec<String> = ids.iter().take(5).map(TaskId::to_string).collect();
            let message = format!("{task} has dependencies that are not completed: {}", names.join(", "));
            Failure::new(exit::USAGE, "TASK_BLOCKED", message)
                .detail("taskId", &task)
                .detail("dependencies", &ids)
                .hint("add --anyway to ignore them")
        }
        TaskOutcome::NeverFits { name, capacity: None } => crate::commands::resources::undefined(name),
        TaskOutcome::NeverFits { name, capacity: Some(capacity) } => {
            let message = format!("{task} needs more slots of semaphore {name} than its capacity of {capacity}");
            Failure::new(exit::USAGE, "OVER_CAPACITY", message)
                .detail("taskId", &task)
                .detail("name", &name)
                .detail("capacity", &capacity)
                .hint(format!("increase its capacity: banksman semaphores define {} --capacity N", format::quoted(name)))
        }
        TaskOutcome::RefusedBy(task, outcome) => refused(task, outcome),
        TaskOutcome::Kept(_)
        | TaskOutcome::Several(_)
        | TaskOutcome::Deleted
        | TaskOutcome::Waiting(_)
        | TaskOutcome::Left
        | TaskOutcome::AlreadyYours(_)
        | TaskOutcome::Renewed(_) => Failure::unexpected(outcome),
    }
}

fn stepped(task: &TaskId, outcome: &Outcome) -> Failure {
    match outcome {
        Outcome::Fenced(_) => fenced(task),
        Outcome::Busy(_) => {
            let message = format!("a run of {task} is in progress, and only that run may report");
            Failure::new(exit::NOT_PERMITTED, "TASK_IN_PROGRESS", message)
                .detail("taskId", &task)
                .hint(format!("to stop its run: banksman tasks cancel {task}"))
        }
        Outcome::Over(status) => Failure::new(exit::USAGE, "TASK_OVER", format!("{task} is {status} already"))
            .detail("taskId", &task)
            .detail("status", &status)
            .hint(format!("to retry it: banksman tasks retry {task}")),
        Outcome::NotPending(status @ (Status::InProgress | Status::Stuck)) => {
            Failure::new(exit::LOCKED, "TASK_BUSY", format!("{task} is {status}: a run is in progress"))
                .detail("taskId", &task)
                .detail("status", &status)
                .hint(format!("to stop its run: banksman tasks cancel {task}"))
        }
        Outcome::NotPending(status @ Status::Landing) => {
            Failure::new(exit::LOCKED, "TASK_LANDING", format!("{task} is in the merge queue"))
                .detail("taskId", &task)
                .detail("status", &status)
                .hint(format!("see banksman why {task}; take it out of the queue first: banksman landing remove LANDING"))
        }
        Outcome::NotPending(status) => Failure::new(exit::LOCKED, "TASK_BUSY", format!("{task} is {status}"))
            .detail("taskId", &task)
            .detail("status", &status)
            .hint(format!("banksman why {task}")),
        Outcome::MustLand => Failure::new(exit::USAGE, "TASK_LANDS", format!("{task} is completed when its work has landed"))
            .detail("taskId", &task)
            .hint(format!("land it: banksman land {task}; complete it without landing: banksman tasks done {task} --no-change")),
        other => Failure::unexpected(other),
    }
}

/// The failure for a task with phases, or for a phase.
fn has_phases(task: &Task) -> Failure {
    let pipeline = task.spec.parent.as_ref().filter(|_| task.spec.phase().is_some()).unwrap_or(&task.id);
    Failure::new(exit::USAGE, "TASK_IS_PIPELINE", format!("the status of {} is set by its pipeline", task.id))
        .detail("taskId", &task.id)
        .detail("pipeline", &pipeline)
        .hint(format!("see banksman pipelines show {pipeline}; a pipeline can be retried, unblocked and cancelled"))
}

fn fenced(task: &TaskId) -> Failure {
    let message = format!("fenced: this epoch is not that of the current run of {task}");
    Failure::new(exit::FENCED, "FENCED", message).detail("taskId", &task).hint("this run has ended; stop its remaining processes")
}

pub(super) fn dependencies(task: &TaskId, error: &DagError) -> Failure {
    match error {
        DagError::Cycle(cycle) => {
            Failure::new(exit::USAGE, "DEPENDENCY_CYCLE", error.to_string()).detail("cycle", &cycle).hint("nothing was changed")
        }
        DagError::Own => Failure::new(exit::USAGE, "DEPENDENCY_CYCLE", error.to_string())
            .detail("cycle", &[task, task])
            .hint("nothing was changed"),
        DagError::Unknown(task) => find::no_task(task.as_str()),
        DagError::TooMany(_) => Failure::usage(error),
    }
}

/// The first few ids.
fn list(tasks: &[TaskId]) -> String {
    let shown: Vec<&str> = tasks.iter().take(5).map(TaskId::as_str).collect();
    let more = if tasks.len() > shown.len() { format!(" and {} more", tasks.len() - shown.len()) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}
