//! Pausing, stopping and resuming: the whole project, or some tasks with their families.
//!
//! A pause is a row. Stopping pauses and requests the end of the live runs in the same transaction, so the calling process may die
//! afterwards. The resources of a run are free once its processes were seen dead, as after every other kill.

use banksman_core::event::{Event, Resumed, TaskFact};
use banksman_core::task::{After, Outcome};
use banksman_core::{Pause, PauseVerb, RunId, TaskId};
use banksman_store::{Key, Tx};

use crate::calls::steps::{descendants, emit, wake_runners};
use crate::calls::tasks::{TaskOutcome, stop};

#[derive(Debug, Clone)]
pub enum PauseRequest {
    /// Start nothing until the project is resumed. Live runs continue.
    Pause { by: Box<str> },
    /// Start nothing, and end all live runs; their tasks become pending.
    Stop {
        by: Box<str>,
        verb: PauseVerb,
        /// End the sessions without a grace period.
        now: bool,
    },
    /// Stop starting these tasks and all that they have created until they are resumed, and end their live runs.
    StopTasks { by: Box<str>, tasks: Vec<TaskId>, now: bool },
    Resume {
        by: Box<str>,
        /// Keep a pause that was not made by stopping.
        only_stopped: bool,
    },
    /// Start these tasks again, and all that they have created.
    ResumeTasks { by: Box<str>, tasks: Vec<TaskId> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PauseOutcome {
    /// The project is paused; `before` is the pause that it had.
    Paused {
        pause: Pause,
        before: Option<Pause>,
    },
    /// The project is paused, and these runs are being ended.
    Stopped {
        pause: Pause,
        stopping: Vec<RunId>,
    },
    /// The result for each task, and the runs that are being ended.
    TasksStopped {
        tasks: Vec<(TaskId, Stopped)>,
        stopping: Vec<RunId>,
    },
    /// The pause that was lifted; `None` if there was none.
    Resumed(Option<Pause>),
    StillPaused(Pause),
    /// The named tasks that were stopped, or had stopped descendants.
    TasksResumed(Vec<TaskId>),
    /// A task does not exist; nothing was done.
    Unknown(TaskId),
}

/// The result of stopping a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The task, or one that it has created, is no longer started.
    Held,
    /// The task is over, and so are all tasks that it has created.
    Over,
}

impl PauseRequest {
    pub(crate) fn keys(&self) -> Vec<Key> {
        let families = |tasks: &[TaskId]| -> Vec<Key> {
            tasks.iter().flat_map(|id| [Key::Task(id.clone()), Key::Family(id.clone())]).collect()
        };
        let mut keys = vec![Key::Runners];
        match self {
            PauseRequest::Pause { .. } | PauseRequest::Resume { .. } => {}
            PauseRequest::Stop { .. } => keys.extend([Key::Live, Key::Outbox]),
            PauseRequest::StopTasks { tasks, .. } => {
                keys.extend([Key::Live, Key::Outbox]);
                keys.extend(families(tasks));
            }
            PauseRequest::ResumeTasks { tasks, .. } => keys.extend(families(tasks)),
        }
        keys
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> PauseOutcome {
        match self {
            PauseRequest::Pause { by } => {
                let before = tx.tables.backlog.pause.clone();
                let pause = pause(PauseVerb::Pause, by, tx);
                PauseOutcome::Paused { pause, before }
            }
            PauseRequest::Stop { by, verb, now } => {
                let pause = pause(*verb, by, tx);
                let live: Vec<TaskId> =
                    tx.tables.backlog.runs.values().filter(|run| run.is_live()).map(|run| run.task.clone()).collect();
                let stopping = live.iter().filter_map(|id| put_back(id, *now, tx)).collect();
                PauseOutcome::Stopped { pause, stopping }
            }
            PauseRequest::StopTasks { by, tasks, now } => stop_tasks(by, tasks, *now, tx),
            PauseRequest::Resume { by, only_stopped } => match tx.tables.backlog.pause.take() {
                Some(pause) if *only_stopped && !pause.verb.is_lifted_by_run() => {
                    tx.tables.backlog.pause = Some(pause.clone());
                    PauseOutcome::StillPaused(pause)
                }
                None => PauseOutcome::Resumed(None),
                Some(pause) => {
                    emit(tx, Event::Resumed(Resumed { by: by.clone() }));
                    wake_runners(tx);
                    PauseOutcome::Resumed(Some(pause))
                }
            },
            PauseRequest::ResumeTasks { by, tasks } => resume_tasks(by, tasks, tx),
        }
    }
}

/// Pauses the project, unless it already has a stronger pause or one of the same kind.
fn pause(verb: PauseVerb, by: &str, tx: &mut Tx) -> Pause {
    let before = tx.tables.backlog.pause.clone();
    let same = before.clone().filter(|pause| pause.verb == verb);
    let pause = same.unwrap_or_else(|| Pause { verb, by: by.into(), at: tx.wall }.after(before.clone()));
    if before.as_ref() != Some(&pause) {
        tx.tables.backlog.pause = Some(pause.clone());
        emit(tx, Event::Paused(pause.clone()));
        // Runners report the pause, and runners that end when nothing is left to do may leave.
        wake_runners(tx);
    }
    pause
}

/// Ends the run of a task, if it has one: the task becomes pending.
fn put_back(id: &TaskId, now: bool, tx: &mut Tx) -> Option<RunId> {
    let run = tx.tables.backlog.tasks.get(id)?.live()?.run.clone();
    match stop(id, After::PutBack { now }, tx) {
        TaskOutcome::Stepped(Outcome::Stopping, _) => Some(run),
        _ => None,
    }
}

fn stop_tasks(by: &str, tasks: &[TaskId], now: bool, tx: &mut Tx) -> PauseOutcome {
    if let Some(unknown) = tasks.iter().find(|id| !tx.tables.backlog.tasks.contains_key(*id)) {
        return PauseOutcome::Unknown(unknown.clone());
    }
    let (mut outcomes, mut stopping) = (Vec::new(), Vec::new());
    for id in tasks {
        let mut outcome = Stopped::Over;
        for member in family(id, tx) {
            let task = &tx.tables.backlog.tasks[&member];
            if task.status().is_over() {
                continue;
            }
            outcome = Stopped::Held;
            if task.spec.paused.is_none() {
                let pause = Box::new(Pause { verb: PauseVerb::Stop, by: by.into(), at: tx.wall });
                set(&member, Some(pause.clone()), TaskFact::Paused(pause), tx);
            }
            stopping.extend(put_back(&member, now, tx));
        }
        outcomes.push((id.clone(), outcome));
    }
    // A runner that ends when nothing is left to do may leave.
    wake_runners(tx);
    PauseOutcome::TasksStopped { tasks: outcomes, stopping }
}

fn resume_tasks(by: &str, tasks: &[TaskId], tx: &mut Tx) -> PauseOutcome {
    if let Some(unknown) = tasks.iter().find(|id| !tx.tables.backlog.tasks.contains_key(*id)) {
        return PauseOutcome::Unknown(unknown.clone());
    }
    let mut resumed = Vec::new();
    for id in tasks {
        for member in family(id, tx) {
            if tx.tables.backlog.tasks[&member].spec.paused.is_some() {
                set(&member, None, TaskFact::Resumed(Resumed { by: by.into() }), tx);
                resumed.extend((!resumed.contains(id)).then(|| id.clone()));
            }
        }
    }
    wake_runners(tx);
    PauseOutcome::TasksResumed(resumed)
}

fn set(id: &TaskId, paused: Option<Box<Pause>>, fact: TaskFact, tx: &mut Tx) {
    let task = tx.tables.backlog.tasks.get_mut(id).expect("the caller has seen it");
    task.spec.paused = paused;
    emit(tx, Event::Task { id: id.clone(), fact });
}

/// A task and all tasks that it has created.
fn family(id: &TaskId, tx: &Tx) -> Vec<TaskId> {
    let mut family = descendants(&tx.tables.backlog, id);
    family.retain(|member| member != id);
    family.insert(0, id.clone());
    family
}
