//! How to wait: what to ask, whom to watch, and how long to sleep in between.
//!
//! ```text
//!   request() --> store --> answer(reply) --> Ask            ask again at once
//!                                         --> Probe(who)     look at these processes, then probed(…)
//!                                         --> Sleep          until woken, one of these dies, or time passes; then ask
//!                                         --> Done(reply)
//! ```
//!
//! A wake-up is a hint; the row is the truth. Nothing here sleeps or looks: that is the driver's part.

use banksman_core::claim::{Ask, Blocked, Waiting};
use banksman_core::coordination::{Command, Outcome};
use banksman_core::event::{Kind, Resource};
use banksman_core::{Lease, Liveness, ProcessId, Span, Stamp, Ticket, lock, semaphore};

use crate::request::{Reply, Request, Seen};

/// One who wants a lock or slots, from the first request to the end of the wait.
#[derive(Debug)]
pub struct Wait {
    resource: Resource,
    ask: Ask,
    /// How long to sleep at most: covers wake-ups that were lost.
    poll: Span,
    ticket: Option<Ticket>,
    probes: Vec<Probe>,
    /// The deadline that the patience was granted for.
    deadline: Option<Lease>,
    patience: Span,
    last: Option<(Reply, Stamp)>,
}

/// One look at a process.
#[derive(Debug)]
struct Probe {
    process: ProcessId,
    liveness: Liveness,
    /// The store has heard of it. If the process still stands in the way then, it was not believed.
    told: bool,
}

/// What the driver does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advice {
    /// Send [`Wait::request`] to the store.
    Ask,
    /// Look at these processes and report with [`Wait::probed`].
    Probe(Vec<ProcessId>),
    /// Sleep until woken, until one of these processes dies ([`Wait::probed`]), or for this long; then ask.
    Sleep {
        /// Whom to watch.
        watch: Vec<ProcessId>,
        /// How long at most.
        at_most: Span,
        /// The place in the line.
        waiting: Waiting,
    },
    /// The wait is over.
    Done(Reply),
}

impl Wait {
    /// Starts to ask for `resource`.
    pub fn new(resource: Resource, ask: Ask, poll: Span) -> Wait {
        Wait { resource, ask, poll, ticket: None, probes: Vec::new(), deadline: None, patience: Span::ZERO, last: None }
    }

    /// What to send to the store now.
    pub fn request(&self) -> Request {
        let command = match (self.resource.kind, self.ticket) {
            (Kind::Lock, None) => self.lock(lock::Input::Acquire(Box::new(self.ask.clone()))),
            (Kind::Lock, Some(ticket)) => self.lock(lock::Input::Look { ticket }),
            (Kind::Semaphore, None) => self.semaphore(semaphore::Input::Acquire(Box::new(self.ask.clone()))),
            (Kind::Semaphore, Some(ticket)) => self.semaphore(semaphore::Input::Look { ticket }),
        };
        let probes = self.probes.iter().filter(|probe| probe.says_dead()).map(|probe| (probe.process.clone(), probe.liveness));
        Request::Coordinate { command, seen: Seen { probes: probes.collect(), patience: self.patience } }
    }

    /// What to send to give up waiting, if this one stands in line.
    pub fn leave(&self) -> Option<Request> {
        let command = self.ticket.map(|ticket| match self.resource.kind {
            Kind::Lock => self.lock(lock::Input::Leave { ticket }),
            Kind::Semaphore => self.semaphore(semaphore::Input::Leave { ticket }),
        });
        command.map(Request::plain)
    }

    /// Takes in the store's answer to [`Wait::request`].
    pub fn answer(&mut self, reply: Reply) -> Advice {
        for probe in self.probes.iter_mut().filter(|probe| probe.says_dead()) {
            probe.told = true;
        }
        let Reply::Coordinate { outcome, at } = &reply else { return Advice::Done(reply) };
        match outcome {
            Outcome::Lock(lock::Outcome::Gone) | Outcome::Semaphore(semaphore::Outcome::Gone) => {
                self.ticket = None;
                Advice::Ask
            }
            Outcome::Lock(lock::Outcome::Waiting(waiting)) | Outcome::Semaphore(semaphore::Outcome::Waiting(waiting)) => {
                self.ticket = Some(waiting.ticket);
                if waiting.blocked.deadline != self.deadline {
                    // The holder has shown itself since: the time it was owed for a stall is settled.
                    self.deadline = waiting.blocked.deadline;
                    self.patience = Span::ZERO;
                }
                let at = *at;
                self.look_at(reply, at)
            }
            _ => {
                let at = *at;
                self.look_at(reply, at)
            }
        }
    }

    /// Takes in what a look at processes found.
    pub fn probed(&mut self, found: impl IntoIterator<Item = (ProcessId, Liveness)>) -> Advice {
        for (process, liveness) in found {
            self.probes.retain(|probe| probe.process != process);
            self.probes.push(Probe { process, liveness, told: false });
        }
        match self.last.take() {
            Some((reply, at)) => self.look_at(reply, at),
            None => Advice::Ask,
        }
    }

    /// Tells that this process itself was stalled for so long, perhaps with all the others.
    pub fn stalled(&mut self, late: Span) {
        self.patience = self.patience + late;
    }

    /// Decides over the last reply, with what is known of those who stand in the way.
    fn look_at(&mut self, reply: Reply, at: Stamp) -> Advice {
        let Reply::Coordinate { outcome, .. } = &reply else { return Advice::Done(reply) };
        let (groups, waiting) = match outcome {
            Outcome::Lock(lock::Outcome::Waiting(waiting)) | Outcome::Semaphore(semaphore::Outcome::Waiting(waiting)) => {
                (waiting.blocked.watch.clone(), Some(waiting.clone()))
            }
            Outcome::Lock(lock::Outcome::Busy(Blocked { watch, .. }))
            | Outcome::Semaphore(semaphore::Outcome::Full { blocked: Blocked { watch, .. }, .. }) => (watch.clone(), None),
            // Each of them alone would break the circle if it were dead.
            Outcome::Deadlock(cycle) => (cycle.iter().map(|link| vec![link.process.clone()]).collect(), None),
            _ => return Advice::Done(reply),
        };
        self.probes.retain(|probe| groups.iter().flatten().any(|process| *process == probe.process));
        let unknown: Vec<ProcessId> = groups.iter().flatten().filter(|process| self.probe(process).is_none()).cloned().collect();
        if !unknown.is_empty() {
            self.last = Some((reply, at));
            return Advice::Probe(unknown);
        }
        if groups.iter().any(|group| self.is_news(group)) {
            return Advice::Ask;
        }
        let Some(waiting) = waiting else { return Advice::Done(reply) };
        let alive = |process: &&ProcessId| self.probe(process).is_some_and(|probe| probe.liveness == Liveness::Alive);
        let watch = groups.iter().flatten().filter(alive).cloned().collect();
        let due = waiting.blocked.deadline.map(|deadline| (deadline + self.patience) - at.lease);
        self.last = Some((reply, at));
        Advice::Sleep { watch, at_most: due.map_or(self.poll, |due| due.min(self.poll)), waiting }
    }

    /// Whether the whole group is dead and the store has not heard of it yet.
    fn is_news(&self, group: &[ProcessId]) -> bool {
        let probes: Vec<&Probe> = group.iter().filter_map(|process| self.probe(process)).collect();
        !group.is_empty() && probes.iter().all(|probe| probe.says_dead()) && probes.iter().any(|probe| !probe.told)
    }

    fn probe(&self, process: &ProcessId) -> Option<&Probe> {
        self.probes.iter().find(|probe| probe.process == *process)
    }

    fn lock(&self, input: lock::Input) -> Command {
        Command::Lock(self.resource.name.clone(), input)
    }

    fn semaphore(&self, input: semaphore::Input) -> Command {
        Command::Semaphore(self.resource.name.clone(), input)
    }
}

impl Probe {
    fn says_dead(&self) -> bool {
        matches!(self.liveness, Liveness::Dead | Liveness::OtherBoot)
    }
}
