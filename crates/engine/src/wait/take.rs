//! Waiting for an item of a queue: the requests to send, the process to watch, and the time to sleep in between.
//!
//! A push wakes the first waiter, and a take that leaves items wakes the next one. Each waiter watches the process of the waiter before
//! it: if that process dies, its death is reported to the store, so that no waiter is blocked by a dead one. Only the first waiter wakes
//! up when a delayed item becomes available. Nothing here sleeps or probes: the driver does.

use banksman_core::queue::{Input, Outcome, Waiting};
use banksman_core::resource::grant::WaitingProcess;
use banksman_core::{HolderId, Liveness, Name, ProcessId, Span, Ticket};

use crate::calls::queues::QueueRequest;
use crate::request::{Reply, Request, Seen};

/// The wait for an item, from the first request to the end.
#[derive(Debug)]
pub struct Taking {
    queue: Name,
    holder: HolderId,
    /// The waiting process; `None` to not wait.
    standing: Option<WaitingProcess>,
    /// The longest sleep: covers lost wake-ups.
    poll: Span,
    ticket: Option<Ticket>,
    /// Dead processes that were not reported to the store yet.
    dead: Vec<(ProcessId, Liveness)>,
    /// The last probed process of the waiter before this one, with the result.
    probed: Option<(ProcessId, Liveness)>,
    patience: Span,
}

/// The next action of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakeAction {
    /// Send [`Taking::request`] to the store.
    Ask,
    /// Probe this process and report with [`Taking::probed`], together with this `Waiting`.
    Probe(ProcessId, Waiting),
    /// Sleep until woken, until this process dies ([`Taking::probed`]), or for this long; then ask.
    Sleep {
        watch: Option<ProcessId>,
        at_most: Span,
        /// The position among the waiters.
        waiting: Waiting,
    },
    Done(Reply),
}

impl Taking {
    pub fn new(queue: Name, holder: HolderId, standing: Option<WaitingProcess>, poll: Span) -> Taking {
        Taking { queue, holder, standing, poll, ticket: None, dead: Vec::new(), probed: None, patience: Span::ZERO }
    }

    /// The request to send to the store now.
    pub fn request(&self) -> Request {
        let input = Input::Take { holder: self.holder.clone(), wait: self.standing.clone(), ticket: self.ticket };
        let seen = Seen { probes: self.dead.clone(), patience: self.patience };
        Request::Queue(QueueRequest { queue: self.queue.clone(), input, seen })
    }

    /// The request that gives up the wait, if it has a ticket.
    pub fn leave(&self) -> Option<Request> {
        let input = Input::Leave { ticket: self.ticket? };
        Some(Request::Queue(QueueRequest::new(self.queue.clone(), input)))
    }

    /// Takes in the store's reply to [`Taking::request`].
    pub fn answer(&mut self, reply: Reply) -> TakeAction {
        self.dead.clear();
        self.patience = Span::ZERO;
        let Reply::Queue { outcome: Outcome::Waiting(waiting), at } = &reply else { return TakeAction::Done(reply) };
        self.ticket = Some(waiting.ticket);
        let due = waiting.next.map(|next| next - at.lease);
        let at_most = due.map_or(self.poll, |due| due.min(self.poll));
        match &waiting.before {
            Some(before) if self.probed.as_ref().is_none_or(|(probed, _)| probed != before) => {
                TakeAction::Probe(before.clone(), waiting.clone())
            }
            // If a death was reported and the process is still there, the store did not accept the report.
            before => TakeAction::Sleep { watch: before.clone().filter(|_| self.can_watch()), at_most, waiting: waiting.clone() },
        }
    }

    /// Takes in the result of probing the process of the waiter before this one.
    pub fn probed(&mut self, process: ProcessId, liveness: Liveness, waiting: Waiting) -> TakeAction {
        self.probed = Some((process.clone(), liveness));
        match liveness {
            Liveness::Dead | Liveness::OtherBoot => {
                self.dead.push((process, liveness));
                TakeAction::Ask
            }
            Liveness::Alive => TakeAction::Sleep { watch: Some(process), at_most: self.poll, waiting },
            Liveness::Unknown => TakeAction::Sleep { watch: None, at_most: self.poll, waiting },
        }
    }

    /// Records that this process itself was stalled, perhaps with all the others.
    pub fn stalled(&mut self, late: Span) {
        self.patience = self.patience + late;
    }

    fn can_watch(&self) -> bool {
        matches!(self.probed, Some((_, Liveness::Alive)))
    }
}

#[cfg(test)]
mod tests {
    use banksman_core::resource::grant::Address;
    use banksman_core::{Lease, Stamp, Wall};

    use super::*;

    fn process(pid: i32) -> ProcessId {
        ProcessId { host: "h".into(), boot: "b".into(), pid_ns: 1, pid, start: 1 }
    }

    fn taking() -> Taking {
        let standing = WaitingProcess { process: process(1), address: Some(Address("a".into())), lease: None };
        Taking::new(Name::new("q").unwrap(), HolderId::new("h").unwrap(), Some(standing), Span::from_ms(5_000))
    }

    fn waiting(before: Option<i32>, next: Option<i64>) -> Reply {
        let place = if before.is_some() { 2 } else { 1 };
        let before = before.map(process);
        let waiting = Waiting { ticket: Ticket(9), place, before, next: next.map(Lease), is_halted: false };
        Reply::Queue { outcome: Outcome::Waiting(waiting), at: Stamp { lease: Lease(1_000), wall: Wall(0) } }
    }

    fn sleeps(action: &TakeAction) -> (Option<i32>, i64) {
        match action {
            TakeAction::Sleep { watch, at_most, .. } => (watch.as_ref().map(|process| process.pid), at_most.as_ms()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_waiter_wakes_for_due_items_and_others_watch_predecessors() {
        let mut first = taking();
        assert_eq!(sleeps(&first.answer(waiting(None, Some(1_300)))), (None, 300));
        assert_eq!(sleeps(&first.answer(waiting(None, None))), (None, 5_000));
        assert!(matches!(first.leave(), Some(Request::Queue(request)) if request.input == Input::Leave { ticket: Ticket(9) }));

        let mut second = taking();
        let TakeAction::Probe(before, stood) = second.answer(waiting(Some(2), None)) else { panic!("it probes first") };
        assert_eq!(sleeps(&second.probed(before, Liveness::Alive, stood)), (Some(2), 5_000));
        assert_eq!(sleeps(&second.answer(waiting(Some(2), None))), (Some(2), 5_000), "it has probed before");
    }

    #[test]
    fn a_death_is_reported_to_the_store_once() {
        let mut second = taking();
        let TakeAction::Probe(before, stood) = second.answer(waiting(Some(2), None)) else { panic!("it probes first") };
        assert_eq!(second.probed(before, Liveness::Dead, stood), TakeAction::Ask);
        let probes = |taking: &Taking| match taking.request() {
            Request::Queue(request) => request.seen.probes.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!(probes(&second), 1);
        // The store did not accept the report: there is nothing to watch, and only the poll remains.
        assert_eq!(sleeps(&second.answer(waiting(Some(2), None))), (None, 5_000));
        assert_eq!(probes(&second), 0);
    }
}
