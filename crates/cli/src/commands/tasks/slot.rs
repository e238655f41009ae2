//! The slot of the run that this command is part of: given back while the run only waits for others.
//!
//! Who holds slots is written in the semaphore `runs` and nowhere else, so there is nothing that could disagree when a
//! process dies in between: the end of the run gives back whatever the run has, under whichever number. If the process
//! that waits is killed, the run goes on without a slot until it ends or waits again.

use std::os::fd::AsFd;
use std::time::Duration;

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::deadlock::Link;
use banksman_core::resource::grant::{Ask, GrantRequest, Term, WaitingProcess};
use banksman_core::{Epoch, Liveness, Name, RunId, TaskId, Ticket};
use banksman_engine::{RunOutcome, RunRequest, Seen, awaited_keys, awaited_parts};
use banksman_runtime::{Client, WaitOptions};
use banksman_store::{EventRow, Reader};

use crate::commands::resources;
use crate::context::{Actor, variable};
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::signals::Signals;

/// Nobody waits longer for a slot: without one the run must not go on.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

pub(super) struct Slot<'a> {
    client: &'a Client,
    run: RunId,
    epoch: Epoch,
    given_back: bool,
}

/// The wait of a run for tasks, as others see it. It ends with this.
pub(super) struct Edge<'a> {
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

fn circle(tasks: &[TaskId], run: &RunId, cycle: &[Link]) -> Failure {
    let names: Vec<&str> = tasks.iter().map(TaskId::as_str).collect();
    resources::circle(&format!("waiting for {}", names.join(", ")), cycle)
        .detail("tasks", &tasks)
        .detail("run", &run)
        .hint("let one of them end first")
}

impl<'a> Slot<'a> {
    /// The slot of the run in the environment.
    pub(super) fn inherited(client: &'a Client) -> Result<Option<Slot<'a>>, Failure> {
        let (Some(run), Some((_, epoch))) = (variable("BANKSMAN_RUN"), super::inherited()?) else { return Ok(None) };
        let run = RunId::new(&run).map_err(|error| Failure::usage(format!("BANKSMAN_RUN: {error}")))?;
        Ok(Some(Slot { client, run, epoch, given_back: false }))
    }

    /// Says that the run waits for tasks, so that nobody waits for the run meanwhile who is waited for. Refused if somebody does.
    pub(super) fn wait_for(&self, reader: &mut Reader, tasks: &[TaskId]) -> Result<Edge<'a>, Failure> {
        let rows = reader.view().load(&awaited_keys(tasks))?;
        let parts = awaited_parts(tasks, &rows.backlog);
        let standing = WaitingProcess { process: self.client.this_process().clone(), address: None, lease: None };
        let mut seen = Seen::default();
        let ancestors = Actor::named(None, || None)?.map(|actor| actor.ancestors).unwrap_or_default();
        loop {
            let (run, epoch, parts, standing) = (self.run.clone(), self.epoch, parts.clone(), standing.clone());
            let (ancestors, seen_so_far) = (ancestors.clone(), seen.clone());
            let request = RunRequest::Await { run, epoch, ancestors, parts, standing, seen: seen_so_far };
            match self.client.request(request)? {
                RunOutcome::Awaits(ticket) => return Ok(Edge { client: self.client, ticket: Some(ticket) }),
                RunOutcome::Unknown => return Ok(Edge { client: self.client, ticket: None }),
                RunOutcome::Late => return Err(self.fenced()),
                RunOutcome::Deadlock(cycle) => {
                    // One who is dead waits for nobody.
                    let looked = cycle.iter().map(|link| (link.process.clone(), self.client.host().probe(&link.process)));
                    let dead = |liveness: &Liveness| matches!(liveness, Liveness::Dead | Liveness::OtherBoot);
                    let dead: Vec<_> = looked.filter(|(_, liveness)| dead(liveness)).collect();
                    if dead.is_empty() || dead.iter().all(|found| seen.probes.contains(found)) {
                        return Err(circle(tasks, &self.run, &cycle));
                    }
                    seen.probes.extend(dead);
                }
                reply => return Err(Failure::unexpected(&reply)),
            }
        }
    }

    /// Gives it back. A run that this project does not know is none of its business.
    pub(super) fn give_back(&mut self) -> Result<(), Failure> {
        let (run, epoch) = (self.run.clone(), self.epoch);
        match self.client.request(RunRequest::Pause { run, epoch })? {
            RunOutcome::Done => self.given_back = true,
            RunOutcome::Unknown => {}
            RunOutcome::Late => return Err(self.fenced()),
            reply => return Err(Failure::unexpected(&reply)),
        }
        Ok(())
    }

    pub(super) fn is_given_back(&self) -> bool {
        self.given_back
    }

    /// Whether another command of the same run has taken the slot again. It must be given back once more, or those who
    /// are waited for could never start.
    pub(super) fn was_taken(&self, events: &[EventRow]) -> bool {
        let holder = self.run.holder();
        events.iter().any(|event| {
            event.kind == "semaphore:acquired"
                && event.source.id.as_deref() == Some(Name::runs().as_str())
                && event.data["holder"] == holder.as_str()
        })
    }

    /// Takes it again, and waits in line for it.
    pub(super) fn take_again(&self, signals: &Signals) -> Result<(), Failure> {
        self.take(WaitOptions { wait: Some(FOR_EVER), cancel: Some(signals.as_fd()), ..WaitOptions::default() })
    }

    /// Takes it again if it is free: for one who is in a hurry.
    pub(super) fn take_if_free(&self) {
        // If it is not, the run goes on without one; whoever asked it to hurry has most likely ended it anyway.
        self.take(WaitOptions::default()).ok();
    }

    fn take(&self, patience: WaitOptions<'_>) -> Result<(), Failure> {
        if !self.given_back {
            return Ok(());
        }
        let resource = Resource { kind: Kind::Semaphore, name: Name::runs() };
        // Bound to no process: like the one it had before, it ends with the run.
        let ask = Ask { term: Term::Open, ..Ask::new(GrantRequest::new(self.run.holder())) };
        resources::judge(&resource, self.client.acquire_any(resource.clone(), ask, patience)?)?;
        let (run, epoch) = (self.run.clone(), self.epoch);
        match self.client.request(RunRequest::Resume { run, epoch })? {
            RunOutcome::Done => Ok(()),
            RunOutcome::Late | RunOutcome::Unknown => Err(self.fenced()),
            reply => Err(Failure::unexpected(&reply)),
        }
    }

    fn fenced(&self) -> Failure {
        Failure::new(exit::FENCED, "FENCED", format!("fenced: run {} is over", self.run))
            .detail("run", &self.run)
            .hint("stop what is left of it")
    }
}
