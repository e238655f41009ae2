//! The requests of people and runs about tasks: add, change, conclude, cancel, retry, delete.

mod change;
mod end;

use change::edited;
pub(crate) use change::{add, add_keys, edit_keys, update};
use end::{cancel, cancel_all, delete};

use std::collections::BTreeSet;

use banksman_core::backlog::{Edge, LostClaim};
use banksman_core::event::Resource;
use banksman_core::resource::deadlock::Link;
use banksman_core::task::dependencies::DagError;
use banksman_core::task::retry::Policy;
use banksman_core::task::{self, After, LandSpec, Mark, Need, Pulse, Spec, Verdict, Watch, Work, WorkspaceSpec};
use banksman_core::{Epoch, HolderId, Label, Name, RunId, RunnerId, SectionId, Span, Status, Task, TaskId, Ticket, Title};
use banksman_store::{Key, Tables, Tx};

use crate::calls::landings::is_moving;
use crate::calls::mailbox;
use crate::calls::manual::{self, ClaimWaiting, LockedBy, Taking, Unmet};
use crate::calls::steps::{step_task, wake_runner, wake_runners};
use crate::request::Seen;

#[derive(Debug, Clone)]
pub enum TaskRequest {
    Add {
        id: TaskId,
        spec: Box<Spec>,
        depends_on: Vec<Edge>,
        /// The epoch of the run that creates it, if its parent's run does.
        by: Option<Epoch>,
    },
    Update {
        id: TaskId,
        edit: Box<Edit>,
    },
    Conclude {
        id: TaskId,
        /// The epoch of the reporting run.
        epoch: Option<Epoch>,
        /// The reporting person, if no run reports.
        by: Option<HolderId>,
        verdict: Verdict,
    },
    /// Start manual work on the task.
    Take {
        id: TaskId,
        taking: Box<Taking>,
    },
    /// Remove a waiting claim, which gives up or whose process is dead.
    Leave {
        /// The ticket of the claim.
        ticket: Ticket,
        resources: Vec<Resource>,
        /// The observed state of its process; `None` if the process itself calls.
        seen: Option<Seen>,
    },
    /// Renew a manual claim.
    Renew {
        id: TaskId,
        by: Option<HolderId>,
        /// The epoch of the claim.
        epoch: Option<Epoch>,
    },
    /// Release a manual claim without a verdict.
    GiveBack {
        id: TaskId,
        by: Option<HolderId>,
        /// The epoch of the claim.
        epoch: Option<Epoch>,
    },
    /// Report the result, as a person or as the run of the task.
    Finish {
        id: TaskId,
        by: Option<HolderId>,
        /// The epoch of the claim, or of the run.
        epoch: Option<Epoch>,
        /// Accept the result although a dependency is not completed.
        anyway: bool,
        verdict: Verdict,
    },
    /// Change the task, and carry out another request on it: both or neither.
    Edited {
        edit: Box<Edit>,
        status: Status,
        then: Box<TaskRequest>,
    },
    Heartbeat {
        id: TaskId,
        epoch: Epoch,
        pulse: Pulse,
        watch: Watch,
    },
    /// Report the activity of a live run.
    Checkpoint {
        id: TaskId,
        epoch: Epoch,
        /// The total output of the run.
        output_bytes: u64,
        /// The time since the last output.
        quiet: Span,
    },
    /// Stop a run that takes too long.
    Overtime {
        id: TaskId,
        run: RunId,
        /// The longest time that a run may take.
        max: Span,
    },
    /// Stop the task and its descendants for good.
    Cancel {
        id: TaskId,
    },
    /// Stop several tasks and their descendants for good: all of them, or none if one refuses.
    CancelAll {
        ids: Vec<TaskId>,
    },
    /// Stop the run, so that the task fails.
    Kill {
        id: TaskId,
        run: RunId,
        error: Box<str>,
    },
    /// Land the work of the task as it is.
    Land {
        id: TaskId,
        by: Option<HolderId>,
        to: LandSpec,
    },
    Retry {
        id: TaskId,
    },
    /// Skip the task, or mark it for review.
    Set {
        id: TaskId,
        by: Option<HolderId>,
        /// The epoch of the claim.
        epoch: Option<Epoch>,
        mark: Mark,
    },
    Delete {
        id: TaskId,
        /// Delete it even if its lock is held.
        force: bool,
    },
}

/// The changes of a task. `None` leaves a field unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Edit {
    pub title: Option<Title>,
    /// The section, or none.
    pub section: Option<Option<SectionId>>,
    pub priority: Option<i32>,
    pub labels: Option<Vec<Label>>,
    /// All dependencies.
    pub depends_on: Option<Vec<Edge>>,
    /// The work of a runner, or none for manual work.
    pub work: Option<Option<Work>>,
    /// All resources that the runs hold.
    pub needs: Option<Vec<Need>>,
    /// The most retries after failed runs.
    pub retries: Option<u32>,
    /// The policy of a loop, or none.
    pub restart: Option<Option<Policy>>,
    /// The longest time of a run, or none to use the setting.
    pub timeout: Option<Option<Span>>,
    /// The longest silence of a run, or none to use the setting.
    pub silence: Option<Option<Span>>,
    pub workspace: Option<WorkspaceSpec>,
}

impl Edit {
    /// Whether the edit changes the work of runs, or how often they are tried.
    fn is_of_runs(&self) -> bool {
        self.work.is_some()
            || self.needs.is_some()
            || self.retries.is_some()
            || self.restart.is_some()
            || self.timeout.is_some()
            || self.silence.is_some()
            || self.workspace.is_some()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskOutcome {
    Kept(Box<Task>),
    /// The machine's answer, with the task after the step.
    Stepped(task::Outcome, Box<Task>),
    /// The outcomes of several tasks, in their order.
    Several(Vec<TaskOutcome>),
    /// One of several tasks refuses, so nothing has changed.
    RefusedBy(TaskId, Box<TaskOutcome>),
    Deleted,
    Unknown,
    UnknownSection(SectionId),
    UnknownParent(TaskId),
    /// The caller is no longer the live run of the task or of the parent.
    Fenced,
    /// The dependencies are invalid.
    Dependencies(DagError),
    /// The task has a live run, which excludes this change.
    InProgress(RunId),
    HasDependents(Vec<TaskId>),
    HasChildren(Vec<TaskId>),
    /// The task is a pipeline that is not over.
    NotOver,
    /// Another holder has the task, its section, or one of its resources.
    Locked(LockedBy),
    Waiting(Box<ClaimWaiting>),
    /// The claim waits no longer.
    Left,
    /// Waiting would never end; the claim does not wait.
    Deadlock(Vec<Link>),
    /// The caller had claimed the task before; the claim was renewed.
    AlreadyYours(Box<Task>),
    /// The claim is renewed, with all its parts.
    Renewed(Box<Task>),
    /// The claim of the caller is over; this is reported once.
    Lost(LostClaim),
    /// The epoch is not the epoch of the claim on the task.
    NotTheClaim {
        /// The epoch that was given.
        epoch: Epoch,
        claimed_by: LockedBy,
    },
    NotClaimed,
    /// These tasks must be completed first.
    DependsOn(Vec<Unmet>),
    /// A semaphore that the task needs was never defined, or has too few slots.
    NeverFits {
        name: Name,
        /// The capacity, if the semaphore is defined.
        capacity: Option<u32>,
    },
    /// The task has changed since it was read: read it again.
    Changed,
}

impl TaskRequest {
    fn id(&self) -> Option<&TaskId> {
        Some(match self {
            TaskRequest::Leave { .. } | TaskRequest::CancelAll { .. } => return None,
            TaskRequest::Edited { then, .. } => return then.id(),
            TaskRequest::Add { id, .. }
            | TaskRequest::Update { id, .. }
            | TaskRequest::Conclude { id, .. }
            | TaskRequest::Take { id, .. }
            | TaskRequest::Renew { id, .. }
            | TaskRequest::GiveBack { id, .. }
            | TaskRequest::Finish { id, .. }
            | TaskRequest::Heartbeat { id, .. }
            | TaskRequest::Checkpoint { id, .. }
            | TaskRequest::Overtime { id, .. }
            | TaskRequest::Cancel { id }
            | TaskRequest::Kill { id, .. }
            | TaskRequest::Land { id, .. }
            | TaskRequest::Retry { id }
            | TaskRequest::Set { id, .. }
            | TaskRequest::Delete { id, .. } => id,
        })
    }

    /// The task that caused the request.
    pub(crate) fn cause(&self) -> Option<&TaskId> {
        match self {
            TaskRequest::Add { spec, .. } => spec.parent.as_ref(),
            request => request.id(),
        }
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        let Some(id) = self.id().cloned() else {
            let resources = match self {
                TaskRequest::Leave { resources, .. } => resources,
                TaskRequest::CancelAll { ids } => {
                    let all: BTreeSet<Key> = ids.iter().flat_map(|id| TaskRequest::Cancel { id: id.clone() }.keys()).collect();
                    return all.into_iter().collect();
                }
                _ => return Vec::new(),
            };
            return resources.iter().map(Key::resource).collect();
        };
        let mut keys = vec![Key::Task(id.clone()), Key::Runners];
        match self {
            TaskRequest::Add { spec, depends_on, .. } => return add_keys(&id, spec, depends_on),
            TaskRequest::Update { edit, .. } => keys.extend(edit_keys(&id, edit)),
            TaskRequest::Edited { edit, then, .. } => {
                keys.extend(edit_keys(&id, edit));
                keys.extend(then.keys());
            }
            TaskRequest::Cancel { .. } => {
                keys.extend([Key::Manual(id.clone()), Key::Family(id.clone()), Key::Pipeline(id)]);
                keys.extend([Key::Live, Key::Outbox, Key::OpenDecisions]);
            }
            TaskRequest::Take { taking, .. } => keys.extend(manual::keys(&id, taking)),
            TaskRequest::Renew { .. } | TaskRequest::GiveBack { .. } => keys.push(Key::Manual(id)),
            TaskRequest::Finish { .. } => {
                keys.extend([Key::Live, Key::OpenDecisions, Key::Manual(id.clone())]);
                keys.extend([Key::Dependencies(id.clone()), Key::Pipeline(id.clone()), Key::Mailbox(id)]);
            }
            // These requests may stop the run.
            TaskRequest::Kill { .. } | TaskRequest::Overtime { .. } | TaskRequest::Heartbeat { .. } => {
                keys.extend([Key::Live, Key::Outbox]);
            }
            TaskRequest::Delete { .. } => {
                keys.extend([Key::OpenDecisions, Key::Manual(id.clone()), Key::Pipeline(id.clone())]);
                keys.extend([Key::Family(id.clone()), Key::FamilyDependents(id.clone()), Key::Lock(id.lock()), Key::RunsOf(id)]);
            }
            // Only these requests of people may end a wait for a decision.
            TaskRequest::Retry { .. } => {
                keys.extend([Key::OpenDecisions, Key::Manual(id.clone()), Key::Pipeline(id.clone())]);
                keys.extend([Key::Lock(id.dispatch_lock()), Key::RunsOf(id.clone()), Key::Mailbox(id)]);
            }
            TaskRequest::Conclude { epoch: None, .. } | TaskRequest::Land { .. } | TaskRequest::Set { .. } => {
                keys.extend([Key::OpenDecisions, Key::Manual(id.clone()), Key::Pipeline(id)]);
            }
            TaskRequest::Conclude { .. } => keys.push(Key::Mailbox(id)),
            TaskRequest::Checkpoint { .. } | TaskRequest::Leave { .. } | TaskRequest::CancelAll { .. } => {}
        }
        keys
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> TaskOutcome {
        match self {
            TaskRequest::Add { id, spec, depends_on, by } => add(id, spec, depends_on, *by, tx),
            TaskRequest::Update { id, edit } => update(id, edit, tx),
            TaskRequest::Conclude { id, epoch, by, verdict } => {
                let input = task::Input::Conclude { epoch: *epoch, verdict: verdict.clone() };
                let outcome = unless_locked(id, by.as_ref(), input, tx);
                mailbox::acknowledge_live(id, tx);
                outcome
            }
            TaskRequest::Take { id, taking } => manual::take(id, taking, tx),
            TaskRequest::Leave { ticket, seen: None, .. } => manual::leave(*ticket, &tx.now(Vec::new(), Span::ZERO), tx),
            TaskRequest::Leave { ticket, seen: Some(seen), .. } => manual::drop_over(*ticket, seen, tx),
            TaskRequest::Renew { id, by, epoch } => manual::renew(id, by.as_ref(), *epoch, tx),
            TaskRequest::GiveBack { id, by, epoch } => manual::release(id, by.as_ref(), *epoch, tx),
            TaskRequest::Finish { id, by, epoch, anyway, verdict } => {
                let outcome = manual::conclude(id, by.as_ref(), *epoch, *anyway, verdict, tx);
                mailbox::acknowledge_live(id, tx);
                outcome
            }
            TaskRequest::Edited { edit, status, then } => edited(edit, *status, then, tx),
            TaskRequest::Heartbeat { id, epoch, pulse, watch } => {
                stepped(id, task::Input::Heartbeat { epoch: *epoch, pulse: *pulse, watch: *watch }, tx)
            }
            TaskRequest::Checkpoint { id, epoch, output_bytes, quiet } => {
                let input = task::Input::Checkpoint { epoch: *epoch, output_bytes: *output_bytes, quiet: *quiet };
                let outcome = step_task(tx, id, input, None);
                outcome.map_or(TaskOutcome::Unknown, |outcome| {
                    TaskOutcome::Stepped(outcome, Box::new(tx.tables.backlog.tasks[id].clone()))
                })
            }
            TaskRequest::Overtime { id, run, max } => stepped(id, task::Input::Overtime { run: run.clone(), max: *max }, tx),
            TaskRequest::Cancel { id } => cancel(id, tx),
            TaskRequest::CancelAll { ids } => cancel_all(ids, tx),
            TaskRequest::Kill { id, run, error } => match tx.tables.backlog.tasks.get(id).map(|task| task.live().cloned()) {
                None => TaskOutcome::Unknown,
                Some(Some(live)) if live.run == *run => stop(id, After::Fail { error: error.clone() }, tx),
                Some(_) => TaskOutcome::Fenced,
            },
            TaskRequest::Land { id, by, to } => unless_locked(id, by.as_ref(), task::Input::Land(Box::new(to.clone())), tx),
            TaskRequest::Retry { id } => retry(id, tx),
            TaskRequest::Set { id, by, epoch, mark } => set(id, by.as_ref(), *epoch, *mark, tx),
            TaskRequest::Delete { id, force } => delete(id, *force, tx),
        }
    }
}

/// Steps a task, unless another holder has taken it for manual work.
fn unless_locked(id: &TaskId, by: Option<&HolderId>, input: task::Input, tx: &mut Tx) -> TaskOutcome {
    match tx.tables.backlog.tasks.get(id).and_then(|task| manual::locked_by(task, by, tx)) {
        Some(locked_by) => TaskOutcome::Locked(locked_by),
        None => stepped(id, input, tx),
    }
}

/// Refuses a request about a phase or a pipeline, whose plan decides.
fn left_to_pipeline(task: &Task) -> TaskOutcome {
    TaskOutcome::Stepped(task::Outcome::HasPhases, Box::new(task.clone()))
}

fn set(id: &TaskId, by: Option<&HolderId>, epoch: Option<Epoch>, mark: Mark, tx: &mut Tx) -> TaskOutcome {
    match tx.tables.backlog.tasks.get(id) {
        // Only the pipeline makes a phase wait for a person, by a guard or a decision.
        Some(task) if task.spec.phase().is_some() && mark == Mark::Review => left_to_pipeline(task),
        _ => match manual::refusal(id, by, epoch, tx) {
            Some(refusal) => refusal,
            None => stepped(id, task::Input::Set(mark), tx),
        },
    }
}

fn retry(id: &TaskId, tx: &mut Tx) -> TaskOutcome {
    // The messages that were undelivered when the task ended go back to their senders.
    mailbox::return_rest(id, tx);
    match tx.tables.backlog.tasks.get(id) {
        // The pipeline has moved on, and does not expect another run of the phase.
        Some(task) if task.spec.phase().is_some() && task.status().is_over() => left_to_pipeline(task),
        _ => unless_locked(id, None, task::Input::Retry, tx),
    }
}

pub(crate) fn stepped(id: &TaskId, input: task::Input, tx: &mut Tx) -> TaskOutcome {
    let before = tx.seq;
    let owner = owner(id, &tx.tables);
    let Some(outcome) = step_task(tx, id, input, owner.as_ref()) else { return TaskOutcome::Unknown };
    if tx.seq != before {
        // This task or others may have become ready, or its run is to be stopped.
        wake_runners(tx);
    }
    TaskOutcome::Stepped(outcome, Box::new(tx.tables.backlog.tasks[id].clone()))
}

/// The owner of the live run of a task, if the run was loaded.
fn owner(id: &TaskId, tables: &Tables) -> Option<RunnerId> {
    let live = tables.backlog.tasks.get(id)?.live()?;
    tables.backlog.runs.get(&live.run).map(|run| run.owner.clone())
}

/// Stops one task, whether it has a run or not.
pub(crate) fn stop(id: &TaskId, after: After, tx: &mut Tx) -> TaskOutcome {
    if let Some(task) = tx.tables.backlog.tasks.get(id).filter(|_| is_moving(id, tx)) {
        return TaskOutcome::Stepped(task::Outcome::NotPending(task.status()), Box::new(task.clone()));
    }
    let owner = owner(id, &tx.tables);
    let Some(outcome) = step_task(tx, id, task::Input::Stop(after), owner.as_ref()) else {
        return TaskOutcome::Unknown;
    };
    match (&outcome, owner) {
        (task::Outcome::Stopping, Some(owner)) => wake_runner(tx, &owner),
        _ => wake_runners(tx),
    }
    TaskOutcome::Stepped(outcome, Box::new(tx.tables.backlog.tasks[id].clone()))
}
