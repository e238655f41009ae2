//! The slot of the run that this process is part of: released while the run only waits for others.
//!
//! The semaphore `runs` is the only record of who holds slots, so nothing can disagree with it when a process dies in
//! between: the end of the run releases whatever slot it has, under whichever epoch. If the waiting process is killed,
//! the run continues without a slot until it ends or waits again.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::Outcome;
use banksman_core::resource::grant::{Ask, GrantRequest, Term, WaitingProcess};
use banksman_core::resource::{lock, semaphore};
use banksman_core::{Epoch, Liveness, Name, RunId, TaskId, Ticket};
use banksman_engine::{RunOutcome, RunRequest, Seen, awaited_keys, awaited_parts};
use banksman_store::{EventRow, Key, Reader};

use crate::caller;
use crate::client::Client;
use crate::task_wait::TaskWaitError;
use crate::waiting::{Acquisition, WaitOptions};

/// No wait for a slot takes longer: without one the run must not continue.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

pub(crate) struct Slot<'a> {
    client: &'a Client,
    run: RunId,
    epoch: Epoch,
    /// The owner of the workspace that the run works in: the children of the run work there while it waits for them.
    workspace: Option<TaskId>,
    is_released: bool,
}

/// The wait of a run for tasks, as an edge of the wait-for graph. The drop removes it.
pub(crate) struct Edge<'a> {
    client: &'a Client,
    ticket: Option<Ticket>,
}

impl Drop for Edge<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            // If this fails, the exit of this process has the same effect.
            self.client.request(RunRequest::EndAwait { ticket }).ok();
        }
    }
}

impl<'a> Slot<'a> {
    /// The slot of the run in the environment.
    pub(crate) fn inherited(client: &'a Client) -> Result<Option<Slot<'a>>, TaskWaitError> {
        let Some(caller) = caller::run()? else { return Ok(None) };
        let Some(run) = caller.run else { return Ok(None) };
        let rows = client.load(&[Key::Task(caller.task.clone())].into())?.tables.backlog;
        let workspace = rows.tasks.get(&caller.task).and_then(|task| task.spec.workspace.owner(&caller.task).cloned());
        Ok(Some(Slot { client, run, epoch: caller.epoch, workspace, is_released: false }))
    }

    /// Records that the run waits for tasks, so that none of them waits for the run meanwhile. Refused if one already does.
    pub(crate) fn wait_for(&self, reader: &mut Reader, tasks: &[TaskId]) -> Result<Edge<'a>, TaskWaitError> {
        let rows = reader.view().load(&awaited_keys(tasks))?;
        let mut parts = awaited_parts(tasks, &rows.backlog);
        // The run releases its workspace while it waits.
        let own = self.workspace.as_ref().map(TaskId::workspace_lock);
        parts.retain(|part| Some(&part.resource.name) != own.as_ref());
        let standing = WaitingProcess { process: self.client.this_process().clone(), address: None, lease: None };
        let mut seen = Seen::default();
        let ancestors = caller::holder()?.map(|caller| caller.ancestors).unwrap_or_default();
        loop {
            let (run, epoch, parts, standing) = (self.run.clone(), self.epoch, parts.clone(), standing.clone());
            let (ancestors, seen_so_far) = (ancestors.clone(), seen.clone());
            let request = RunRequest::Await { run, epoch, ancestors, parts, standing, seen: seen_so_far };
            match self.call(request)? {
                RunOutcome::Awaits(ticket) => return Ok(Edge { client: self.client, ticket: Some(ticket) }),
                RunOutcome::Unknown => return Ok(Edge { client: self.client, ticket: None }),
                RunOutcome::Deadlock(cycle) => {
                    // A dead process waits for nothing.
                    let probed = cycle.iter().map(|link| (link.process.clone(), self.client.host().probe(&link.process)));
                    let dead = |liveness: &Liveness| matches!(liveness, Liveness::Dead | Liveness::OtherBoot);
                    let dead: Vec<_> = probed.filter(|(_, liveness)| dead(liveness)).collect();
                    if dead.is_empty() || dead.iter().all(|found| seen.probes.contains(found)) {
                        return Err(TaskWaitError::Deadlock { run: self.run.clone(), cycle });
                    }
                    seen.probes.extend(dead);
                }
                other => unreachable!("a run waits for tasks, and the answer is {other:?}"),
            }
        }
    }

    /// Releases the slot. A run that this project does not know is ignored.
    pub(crate) fn release(&mut self) -> Result<(), TaskWaitError> {
        let (run, epoch, workspace) = (self.run.clone(), self.epoch, self.workspace.clone());
        self.is_released |= self.call(RunRequest::Pause { run, epoch, workspace })? == RunOutcome::Done;
        Ok(())
    }

    pub(crate) fn is_released(&self) -> bool {
        self.is_released
    }

    /// Whether another command of the same run has taken the slot again. It must be released once more, or the awaited
    /// tasks could never start.
    pub(crate) fn was_taken(&self, events: &[EventRow]) -> bool {
        let holder = self.run.holder();
        events.iter().any(|event| {
            event.kind == "semaphore:acquired"
                && event.source.id.as_deref() == Some(Name::runs().as_str())
                && event.data["holder"] == holder.as_str()
        })
    }

    /// Takes the slot again, and waits for it.
    pub(crate) fn take_again(&self, cancel: BorrowedFd<'_>) -> Result<(), TaskWaitError> {
        self.take(|| WaitOptions { wait: Some(FOR_EVER), cancel: Some(cancel), ..WaitOptions::default() })
    }

    /// Takes the slot again if it is free, for a caller that must not wait.
    pub(crate) fn take_if_free(&self) {
        // If it is not, the run continues without one; the process that cancelled the wait has most likely ended the
        // run anyway.
        self.take(WaitOptions::default).ok();
    }

    fn take<'o>(&self, options: impl Fn() -> WaitOptions<'o>) -> Result<(), TaskWaitError> {
        if !self.is_released {
            return Ok(());
        }
        // The workspace first: a run that waits for it must not keep a slot from the runs that work there.
        let lock = self.workspace.as_ref().map(|owner| Resource { kind: Kind::Lock, name: owner.workspace_lock() });
        for resource in lock.into_iter().chain([Resource { kind: Kind::Semaphore, name: Name::runs() }]) {
            // Bound to no process: like the former slot, it ends with the run.
            let ask = Ask { term: Term::Open, ..Ask::new(GrantRequest::new(self.run.holder())) };
            match self.client.acquire_any(resource, ask, options())? {
                Acquisition::Answered { outcome, .. } if is_granted(&outcome) => {}
                other => return Err(TaskWaitError::NoSlot(Box::new(other))),
            }
        }
        let (run, epoch, workspace) = (self.run.clone(), self.epoch, self.workspace.clone());
        match self.call(RunRequest::Resume { run, epoch, workspace })? {
            RunOutcome::Unknown => Err(TaskWaitError::Fenced { run: self.run.clone() }),
            _ => Ok(()),
        }
    }

    fn call(&self, request: RunRequest) -> Result<RunOutcome, TaskWaitError> {
        match self.client.request(request)? {
            RunOutcome::Late => Err(TaskWaitError::Fenced { run: self.run.clone() }),
            outcome => Ok(outcome),
        }
    }
}

fn is_granted(outcome: &Outcome) -> bool {
    use semaphore::Outcome::{Acquired, AlreadyHeld, Increased};
    match outcome {
        Outcome::Deadlock(_) | Outcome::Undefined => false,
        Outcome::Semaphore(outcome) => matches!(outcome, Acquired(_) | AlreadyHeld(_) | Increased(_)),
        Outcome::Lock(outcome) => {
            matches!(outcome, lock::Outcome::Acquired(_) | lock::Outcome::Extended(_) | lock::Outcome::Reclaimed { .. })
        }
    }
}
