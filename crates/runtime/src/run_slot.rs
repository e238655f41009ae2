//! The slot of the run that this process is part of: given back while the run only waits for others.
//!
//! Who holds slots is written in the semaphore `runs` and nowhere else, so there is nothing that could disagree when a
//! process dies in between: the end of the run gives back whatever the run has, under whichever number. If the process
//! that waits is killed, the run goes on without a slot until it ends or waits again.

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

/// Nobody waits longer for a slot: without one the run must not go on.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

pub(crate) struct Slot<'a> {
    client: &'a Client,
    run: RunId,
    epoch: Epoch,
    /// The owner of the workspace that the run works in: its children work there while it waits for them.
    workspace: Option<TaskId>,
    given_back: bool,
}

/// The wait of a run for tasks, as others see it. It ends with this.
pub(crate) struct Edge<'a> {
    client: &'a Client,
    ticket: Option<Ticket>,
}

impl Drop for Edge<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            // If it fails, the end of this process tells as much.
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
        Ok(Some(Slot { client, run, epoch: caller.epoch, workspace, given_back: false }))
    }

    /// Says that the run waits for tasks, so that nobody waits for the run meanwhile who is waited for. Refused if somebody does.
    pub(crate) fn wait_for(&self, reader: &mut Reader, tasks: &[TaskId]) -> Result<Edge<'a>, TaskWaitError> {
        let rows = reader.view().load(&awaited_keys(tasks))?;
        let mut parts = awaited_parts(tasks, &rows.backlog);
        // It is given back while the run waits.
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
                    // One who is dead waits for nobody.
                    let looked = cycle.iter().map(|link| (link.process.clone(), self.client.host().probe(&link.process)));
                    let dead = |liveness: &Liveness| matches!(liveness, Liveness::Dead | Liveness::OtherBoot);
                    let dead: Vec<_> = looked.filter(|(_, liveness)| dead(liveness)).collect();
                    if dead.is_empty() || dead.iter().all(|found| seen.probes.contains(found)) {
                        return Err(TaskWaitError::Deadlock { run: self.run.clone(), cycle });
                    }
                    seen.probes.extend(dead);
                }
                other => unreachable!("a run waits for tasks, and the answer is {other:?}"),
            }
        }
    }

    /// Gives it back. A run that this project does not know is none of its business.
    pub(crate) fn give_back(&mut self) -> Result<(), TaskWaitError> {
        let (run, epoch, workspace) = (self.run.clone(), self.epoch, self.workspace.clone());
        self.given_back |= self.call(RunRequest::Pause { run, epoch, workspace })? == RunOutcome::Done;
        Ok(())
    }

    pub(crate) fn is_given_back(&self) -> bool {
        self.given_back
    }

    /// Whether another command of the same run has taken the slot again. It must be given back once more, or those who
    /// are waited for could never start.
    pub(crate) fn was_taken(&self, events: &[EventRow]) -> bool {
        let holder = self.run.holder();
        events.iter().any(|event| {
            event.kind == "semaphore:acquired"
                && event.source.id.as_deref() == Some(Name::runs().as_str())
                && event.data["holder"] == holder.as_str()
        })
    }

    /// Takes it again, and waits in line for it.
    pub(crate) fn take_again(&self, cancel: BorrowedFd<'_>) -> Result<(), TaskWaitError> {
        self.take(|| WaitOptions { wait: Some(FOR_EVER), cancel: Some(cancel), ..WaitOptions::default() })
    }

    /// Takes it again if it is free: for one who is in a hurry.
    pub(crate) fn take_if_free(&self) {
        // If it is not, the run goes on without one; whoever asked it to hurry has most likely ended it anyway.
        self.take(WaitOptions::default).ok();
    }

    fn take<'o>(&self, options: impl Fn() -> WaitOptions<'o>) -> Result<(), TaskWaitError> {
        if !self.given_back {
            return Ok(());
        }
        // The workspace first: who waits for it must not keep a slot from those who work there.
        let lock = self.workspace.as_ref().map(|owner| Resource { kind: Kind::Lock, name: owner.workspace_lock() });
        for resource in lock.into_iter().chain([Resource { kind: Kind::Semaphore, name: Name::runs() }]) {
            // Bound to no process: like the one it had before, it ends with the run.
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
