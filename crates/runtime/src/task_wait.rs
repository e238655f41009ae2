//! Waiting until tasks are over.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use banksman_core::resource::deadlock::Link;
use banksman_core::{RunId, Task, TaskId};
use banksman_store::{Key, Reader, StoreError};
use thiserror::Error;

use crate::caller::CallerError;
use crate::client::Client;
use crate::error::Error;
use crate::inspect;
use crate::project::Project;
use crate::run_slot::Slot;
use crate::runner::recover_run;
use crate::sessions::Sessions;
use crate::wait_until::{UntilOptions, WaitEnd, concern_any, until};
use crate::waiting::Acquisition;

/// How long recording one end may take: another process may be recording it.
const RECORD_WITHIN: Duration = Duration::from_secs(5);

/// A task that is waited for, as last read.
#[derive(Debug)]
pub struct AwaitedTask {
    pub id: TaskId,
    /// `None` if the task was deleted meanwhile.
    pub task: Option<Task>,
}

impl AwaitedTask {
    /// Whether the task is over or deleted.
    pub fn is_over(&self) -> bool {
        self.task.as_ref().is_none_or(|task| task.status().is_over())
    }
}

#[derive(Debug, Error)]
pub enum TaskWaitError {
    /// The store or the system failed.
    #[error(transparent)]
    Failed(#[from] Error),
    /// The environment does not say which run this is.
    #[error(transparent)]
    Caller(#[from] CallerError),
    /// The waiting run is over.
    #[error("fenced: run {run} is over")]
    Fenced { run: RunId },
    /// One of the tasks waits for the waiting run.
    #[error("run {run} would wait for ever")]
    Deadlock {
        run: RunId,
        /// The links of the cycle.
        cycle: Vec<Link>,
    },
    /// The run did not get its slot back after the wait.
    #[error("the run has got no slot to go on")]
    NoSlot(Box<Acquisition>),
}

impl From<StoreError> for TaskWaitError {
    fn from(error: StoreError) -> TaskWaitError {
        TaskWaitError::Failed(error.into())
    }
}

/// Called with the state of the tasks, and a connection to read more.
pub type AwaitProgress<'a> = &'a mut dyn FnMut(&mut Reader, &[AwaitedTask]) -> Result<(), StoreError>;

/// Waits until all these tasks are over; `progress` is called with their state after each check. Inside of a run, the
/// run's slot is released meanwhile and taken again before this returns.
pub fn wait_for_tasks(
    client: &Client,
    files: &Sessions,
    ids: &[TaskId],
    options: &UntilOptions<'_>,
    recorder: OpenRecorder<'_>,
    progress: AwaitProgress<'_>,
) -> Result<(WaitEnd<()>, Vec<AwaitedTask>), TaskWaitError> {
    let mut reader = client.reader()?;
    let mut slot = Slot::inherited(client)?;
    let edge = slot.as_ref().map(|slot| slot.wait_for(&mut reader, ids)).transpose()?;
    let (mut awaited, ends) = (Vec::new(), RefCell::new(Vec::new()));
    let ended = until(client.project(), options, &ends, |reader, events| {
        // Without an event, this is the regular poll.
        if events.is_empty() {
            record_ended(client.project(), files, reader, recorder)?;
        }
        if concern_any(events, ids) {
            awaited = read_tasks(reader, ids)?;
            // A session may end without a runner that would report it.
            ends.replace(inspect::watch_ends(reader, client.project())?);
        }
        if awaited.iter().all(AwaitedTask::is_over) {
            return Ok::<_, TaskWaitError>(Some(()));
        }
        if let Some(slot) = slot.as_mut().filter(|slot| !slot.is_released() || slot.was_taken(events)) {
            slot.release()?;
        }
        progress(reader, &awaited)?;
        Ok(None)
    });
    drop(edge);
    if let Some(slot) = &slot {
        match &ended {
            Ok(WaitEnd::Met(()) | WaitEnd::TimedOut) => slot.take_again(options.cancel)?,
            Ok(WaitEnd::Cancelled) | Err(_) => slot.take_if_free(),
        }
    }
    Ok((ended?, awaited))
}

fn read_tasks(reader: &mut Reader, ids: &[TaskId]) -> Result<Vec<AwaitedTask>, StoreError> {
    let keys = ids.iter().cloned().map(Key::Task).collect();
    let mut tasks = reader.view().load(&keys)?.tables.backlog.tasks;
    Ok(ids.iter().map(|id| AwaitedTask { id: id.clone(), task: tasks.remove(id) }).collect())
}

/// Opens the client that records the ends of runs. It is not the waiting client: no command caused those ends, so they
/// have no actor.
pub type OpenRecorder<'a> = &'a dyn Fn() -> Option<Arc<Client>>;

/// Records the ends of runs whose session has ended without a runner, and returns whether there were any. Without write
/// access nothing is recorded: such runs are then listed as ended, not recorded yet.
pub fn record_ended(project: &Project, files: &Sessions, reader: &mut Reader, open: OpenRecorder<'_>) -> Result<bool, Error> {
    // Only a record on this machine can show such an end, so without records the store is not read.
    if !files.has_records() {
        return Ok(false);
    }
    let ended = inspect::unrecorded(reader, project)?;
    if ended.is_empty() {
        return Ok(false);
    }
    let Some(client) = open() else { return Ok(false) };
    // Nothing cancels this, but it does not take long.
    let (never, _open) = std::io::pipe().map_err(Error::system("a pipe cannot be made"))?;
    for run in ended {
        recover_run(&client, files.clone(), run, never.as_fd(), RECORD_WITHIN, &mut |_| {}).ok();
    }
    Ok(true)
}
