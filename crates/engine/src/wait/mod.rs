//! Waiting for a resource: the requests to send, the processes to watch, and the time to sleep in between.
//!
//! ```text
//!   request() --> store --> answer(reply) --> Ask                send the request again at once
//!                                         --> Probe(processes)   probe these processes, then probed(…)
//!                                         --> Sleep              until woken, a process dies, or time passes; then ask
//!                                         --> Done(reply)
//! ```
//!
//! A wake-up is a hint; the row is the truth. Nothing here sleeps or probes: the driver does.

pub(crate) mod take;

use std::collections::BTreeSet;

use banksman_core::event::Resource;
use banksman_core::resource::coordination::{Command, Outcome};
use banksman_core::resource::deadlock::Link;
use banksman_core::resource::grant::{Ask, Blocked, Waiting};
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::{Lease, Liveness, ProcessId, RunId, Span, Stamp, TaskId, Ticket};

use crate::calls::manual::{self, LockedBy, Taking};
use crate::calls::tasks::{TaskOutcome, TaskRequest};
use crate::request::{Reply, Request, Seen};

/// The wait for a lock, for slots, or for a task with all its resources, from the first request to the end.
#[derive(Debug)]
pub struct Wait {
    what: What,
    /// The longest sleep: covers lost wake-ups.
    poll: Span,
    ticket: Option<Ticket>,
    probes: Vec<Probe>,
    /// The deadline for which the patience was granted.
    deadline: Option<Lease>,
    patience: Span,
    last: Option<(Reply, Stamp)>,
}

#[derive(Debug)]
enum What {
    Resource(Resource, Box<Ask>),
    Task(TaskId, Box<Taking>),
}

/// The processes in the way, according to a reply.
struct Stand {
    /// Once all processes of a group are dead, another request may succeed.
    groups: Vec<Vec<ProcessId>>,
    /// The position among the waiters, if it waits.
    waiting: Option<Waiting>,
    at: Stamp,
}

/// The result of probing a process.
#[derive(Debug)]
struct Probe {
    process: ProcessId,
    liveness: Liveness,
    /// The result was sent to the store. If the process is still in the way then, the store did not accept it.
    is_reported: bool,
}

/// The next action of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitAction {
    /// Send [`Wait::request`] to the store.
    Ask,
    /// Probe these processes and report with [`Wait::probed`].
    Probe(Vec<ProcessId>),
    /// Sleep until woken, until one of these processes dies ([`Wait::probed`]), or for this long; then ask.
    Sleep {
        watch: Vec<ProcessId>,
        at_most: Span,
        /// The position among the waiters.
        waiting: Waiting,
    },
    Done(Reply),
}

impl Wait {
    /// Waits for `resource`.
    pub fn new(resource: Resource, ask: Ask, poll: Span) -> Wait {
        Wait::for_what(What::Resource(resource, Box::new(ask)), poll)
    }

    /// Waits for a task with all its resources.
    pub fn for_task(task: TaskId, taking: Taking, poll: Span) -> Wait {
        Wait::for_what(What::Task(task, Box::new(taking)), poll)
    }

    fn for_what(what: What, poll: Span) -> Wait {
        Wait { what, poll, ticket: None, probes: Vec::new(), deadline: None, patience: Span::ZERO, last: None }
    }

    /// The request to send to the store now.
    pub fn request(&self) -> Request {
        let probes = self.probes.iter().filter(|probe| probe.says_dead()).map(|probe| (probe.process.clone(), probe.liveness));
        let seen = Seen { probes: probes.collect(), patience: self.patience };
        let (resource, ask) = match &self.what {
            What::Resource(resource, ask) => (resource, ask),
            What::Task(id, taking) => {
                let taking = Box::new(Taking { ticket: self.ticket, seen, ..(**taking).clone() });
                return Request::Task(TaskRequest::Take { id: id.clone(), taking });
            }
        };
        let command = match self.ticket {
            None => Command::acquire(resource.clone(), ask.clone()),
            Some(ticket) => Command::poll(resource.clone(), ticket),
        };
        Request::Coordinate { command, seen }
    }

    /// The request that gives up the wait, if it has a ticket.
    pub fn leave(&self) -> Option<Request> {
        let ticket = self.ticket?;
        Some(match &self.what {
            What::Resource(resource, _) => Request::plain(Command::leave(resource.clone(), ticket)),
            What::Task(id, taking) => {
                let parts = manual::parts(id, taking.section.as_ref(), &taking.needs);
                let resources = parts.into_iter().map(|part| part.resource).collect();
                Request::Task(TaskRequest::Leave { ticket, resources, seen: None })
            }
        })
    }

    /// The holders that block a task, according to the last reply.
    pub fn locked_by(&self) -> &[LockedBy] {
        match &self.last {
            Some((Reply::Task(TaskOutcome::Waiting(waiting)), _)) => &waiting.locked_by,
            _ => &[],
        }
    }

    /// The runs that are in the way, according to the last reply.
    pub fn runs_in_the_way(&self) -> BTreeSet<RunId> {
        self.last.as_ref().map(|(reply, _)| runs_in_the_way(reply)).unwrap_or_default()
    }

    /// Takes in the store's reply to [`Wait::request`].
    pub fn answer(&mut self, reply: Reply) -> WaitAction {
        for probe in self.probes.iter_mut().filter(|probe| probe.says_dead()) {
            probe.is_reported = true;
        }
        let (Outcome::Lock(lock::Outcome::Gone) | Outcome::Semaphore(semaphore::Outcome::Gone)) = outcome(&reply) else {
            return self.stands(reply);
        };
        self.ticket = None;
        WaitAction::Ask
    }

    fn stands(&mut self, reply: Reply) -> WaitAction {
        let Some(Stand { waiting, at, .. }) = stand(&reply) else { return WaitAction::Done(reply) };
        if let Some(waiting) = waiting {
            self.ticket = Some(waiting.ticket);
            if waiting.blocked.deadline != self.deadline {
                // The holder has renewed its grant since, so the extra time for a stall is used up.
                self.deadline = waiting.blocked.deadline;
                self.patience = Span::ZERO;
            }
        }
        self.on_answer(reply, at)
    }

    /// Takes in the results of probes.
    pub fn probed(&mut self, found: impl IntoIterator<Item = (ProcessId, Liveness)>) -> WaitAction {
        for (process, liveness) in found {
            self.probes.retain(|probe| probe.process != process);
            self.probes.push(Probe { process, liveness, is_reported: false });
        }
        match self.last.take() {
            Some((reply, at)) => self.on_answer(reply, at),
            None => WaitAction::Ask,
        }
    }

    /// Records that this process itself was stalled, perhaps with all the others.
    pub fn stalled(&mut self, late: Span) {
        self.patience = self.patience + late;
    }

    /// Decides from the last reply and the probes of the processes in the way.
    fn on_answer(&mut self, reply: Reply, at: Stamp) -> WaitAction {
        let Some(Stand { groups, waiting, .. }) = stand(&reply) else { return WaitAction::Done(reply) };
        let is_in_the_way = |probe: &Probe| groups.iter().flatten().any(|process| *process == probe.process);
        // A claim that is blocked by one part changes nothing in the store, so the death of another part's holder must be sent again.
        self.probes.retain(|probe| probe.says_dead() || is_in_the_way(probe));
        let unknown: Vec<ProcessId> = groups.iter().flatten().filter(|process| self.probe(process).is_none()).cloned().collect();
        if !unknown.is_empty() {
            self.last = Some((reply, at));
            return WaitAction::Probe(unknown);
        }
        if groups.iter().any(|group| self.is_unreported_death(group)) {
            return WaitAction::Ask;
        }
        let Some(waiting) = waiting else { return WaitAction::Done(reply) };
        let alive = |process: &&ProcessId| self.probe(process).is_some_and(|probe| probe.liveness == Liveness::Alive);
        let watch = groups.iter().flatten().filter(alive).cloned().collect();
        let due = waiting.blocked.deadline.map(|deadline| (deadline + self.patience) - at.lease);
        self.probes.retain(is_in_the_way);
        self.last = Some((reply, at));
        WaitAction::Sleep { watch, at_most: due.map_or(self.poll, |due| due.min(self.poll)), waiting }
    }

    /// Whether all processes of a group are dead, which was not reported to the store yet.
    fn is_unreported_death(&self, group: &[ProcessId]) -> bool {
        let probes: Vec<&Probe> = group.iter().filter_map(|process| self.probe(process)).collect();
        !group.is_empty() && probes.iter().all(|probe| probe.says_dead()) && probes.iter().any(|probe| !probe.is_reported)
    }

    fn probe(&self, process: &ProcessId) -> Option<&Probe> {
        self.probes.iter().find(|probe| probe.process == *process)
    }
}

/// The outcome of a lock or a semaphore; `Undefined` for any other request.
fn outcome(reply: &Reply) -> &Outcome {
    match reply {
        Reply::Coordinate { outcome, .. } => outcome,
        _ => &Outcome::Undefined,
    }
}

/// The runs that hold the requested resource, if it was not granted.
pub fn runs_in_the_way(reply: &Reply) -> BTreeSet<RunId> {
    let of_locks = |locked_by: &[LockedBy]| locked_by.iter().filter_map(|one| one.holder.run()).collect();
    let of_grants = |blocked: &Blocked| blocked.holders.iter().filter_map(|grant| grant.claim.holder.run()).collect();
    match reply {
        Reply::Coordinate { outcome, .. } => match outcome {
            Outcome::Lock(lock::Outcome::Waiting(waiting)) | Outcome::Semaphore(semaphore::Outcome::Waiting(waiting)) => {
                of_grants(&waiting.blocked)
            }
            Outcome::Lock(lock::Outcome::Busy(blocked)) | Outcome::Semaphore(semaphore::Outcome::Full { blocked, .. }) => {
                of_grants(blocked)
            }
            _ => BTreeSet::new(),
        },
        Reply::Task(TaskOutcome::Waiting(claim)) => of_locks(&claim.locked_by),
        Reply::Task(TaskOutcome::Locked(locked_by)) => of_locks(std::slice::from_ref(locked_by)),
        _ => BTreeSet::new(),
    }
}

/// The processes in the way, according to a reply; `None` if the reply is final.
fn stand(reply: &Reply) -> Option<Stand> {
    // The death of any single process would break the cycle.
    let each = |cycle: &[Link]| {
        let processes = cycle.iter().flat_map(|link| [&link.process].into_iter().chain(&link.before));
        processes.map(|process| vec![process.clone()]).collect()
    };
    let (groups, waiting, at) = match reply {
        Reply::Coordinate { outcome, at } => match outcome {
            Outcome::Lock(lock::Outcome::Waiting(waiting)) | Outcome::Semaphore(semaphore::Outcome::Waiting(waiting)) => {
                (waiting.blocked.watch.clone(), Some(waiting.clone()), *at)
            }
            Outcome::Lock(lock::Outcome::Busy(Blocked { watch, .. }))
            | Outcome::Semaphore(semaphore::Outcome::Full { blocked: Blocked { watch, .. }, .. }) => (watch.clone(), None, *at),
            Outcome::Deadlock(cycle) => (each(cycle), None, *at),
            _ => return None,
        },
        Reply::Task(TaskOutcome::Waiting(claim)) => (claim.waiting.blocked.watch.clone(), Some(claim.waiting.clone()), claim.at),
        Reply::Task(TaskOutcome::Locked(locked_by)) => (locked_by.watch.clone(), None, Stamp::default()),
        Reply::Task(TaskOutcome::Deadlock(cycle)) => (each(cycle), None, Stamp::default()),
        _ => return None,
    };
    Some(Stand { groups, waiting, at })
}

impl Probe {
    fn says_dead(&self) -> bool {
        matches!(self.liveness, Liveness::Dead | Liveness::OtherBoot)
    }
}

#[cfg(test)]
mod tests;
