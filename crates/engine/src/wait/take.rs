//! How to wait for an item of a queue: what to ask, whom to watch, and how long to sleep in between.
//!
//! A push wakes the first in line, and whoever takes an item while there is more wakes the next. Each watches the process
//! before it: if that dies, the store is told, and nobody is held up by the dead. Only the first in line looks when the
//! time of an item comes. Nothing here sleeps or looks: that is the driver's part.

use banksman_core::queue::{Input, Outcome, Waiting};
use banksman_core::resource::grant::WaitingProcess;
use banksman_core::{HolderId, Liveness, Name, ProcessId, Span, Ticket};

use crate::calls::queues::QueueRequest;
use crate::request::{Reply, Request, Seen};

/// One who wants an item, from the first request to the end of the wait.
#[derive(Debug)]
pub struct Taking {
    queue: Name,
    holder: HolderId,
    /// How it can be woken; it does not wait if there is none.
    standing: Option<WaitingProcess>,
    /// How long to sleep at most: covers wake-ups that were lost.
    poll: Span,
    ticket: Option<Ticket>,
    /// Processes that are dead, and that the store has not heard of yet.
    dead: Vec<(ProcessId, Liveness)>,
    /// The process before it that was looked at last, with what was found.
    looked: Option<(ProcessId, Liveness)>,
    patience: Span,
}

/// What the driver does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakeAction {
    /// Send [`Taking::request`] to the store.
    Ask,
    /// Look at this process and report with [`Taking::probed`]; then go on with what stood before.
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
    /// Starts to ask for an item.
    pub fn new(queue: Name, holder: HolderId, standing: Option<WaitingProcess>, poll: Span) -> Taking {
        Taking { queue, holder, standing, poll, ticket: None, dead: Vec::new(), looked: None, patience: Span::ZERO }
    }

    /// What to send to the store now.
    pub fn request(&self) -> Request {
        let input = Input::Take { holder: self.holder.clone(), wait: self.standing.clone(), ticket: self.ticket };
        let seen = Seen { probes: self.dead.clone(), patience: self.patience };
        Request::Queue(QueueRequest { queue: self.queue.clone(), input, seen })
    }

    /// What to send to give up waiting, if this one waits.
    pub fn leave(&self) -> Option<Request> {
        let input = Input::Leave { ticket: self.ticket? };
        Some(Request::Queue(QueueRequest::new(self.queue.clone(), input)))
    }

    /// Takes in the store's answer to [`Taking::request`].
    pub fn answer(&mut self, reply: Reply) -> TakeAction {
        self.dead.clear();
        self.patience = Span::ZERO;
        let Reply::Queue { outcome: Outcome::Waiting(waiting), at } = &reply else { return TakeAction::Done(reply) };
        self.ticket = Some(waiting.ticket);
        let due = waiting.next.map(|next| next - at.lease);
        let at_most = due.map_or(self.poll, |due| due.min(self.poll));
        match &waiting.before {
            Some(before) if self.looked.as_ref().is_none_or(|(looked, _)| looked != before) => {
                TakeAction::Probe(before.clone(), waiting.clone())
            }
            // If the store has heard of a death and the dead still stands there, it was not believed.
            before => TakeAction::Sleep { watch: before.clone().filter(|_| self.can_watch()), at_most, waiting: waiting.clone() },
        }
    }

    /// Takes in what a look at the process before it has found.
    pub fn probed(&mut self, process: ProcessId, liveness: Liveness, waiting: Waiting) -> TakeAction {
        self.looked = Some((process.clone(), liveness));
        match liveness {
            Liveness::Dead | Liveness::OtherBoot => {
                self.dead.push((process, liveness));
                TakeAction::Ask
            }
            Liveness::Alive => TakeAction::Sleep { watch: Some(process), at_most: self.poll, waiting },
            Liveness::Unknown => TakeAction::Sleep { watch: None, at_most: self.poll, waiting },
        }
    }

    /// Tells that this process itself was stalled for so long, perhaps with all the others.
    pub fn stalled(&mut self, late: Span) {
        self.patience = self.patience + late;
    }

    fn can_watch(&self) -> bool {
        matches!(self.looked, Some((_, Liveness::Alive)))
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
    fn the_first_in_line_looks_when_an_item_is_due_and_the_others_watch_the_one_before() {
        let mut first = taking();
        assert_eq!(sleeps(&first.answer(waiting(None, Some(1_300)))), (None, 300));
        assert_eq!(sleeps(&first.answer(waiting(None, None))), (None, 5_000));
        assert!(matches!(first.leave(), Some(Request::Queue(request)) if request.input == Input::Leave { ticket: Ticket(9) }));

        let mut second = taking();
        let TakeAction::Probe(before, stood) = second.answer(waiting(Some(2), None)) else { panic!("it looks first") };
        assert_eq!(sleeps(&second.probed(before, Liveness::Alive, stood)), (Some(2), 5_000));
        assert_eq!(sleeps(&second.answer(waiting(Some(2), None))), (Some(2), 5_000), "it has looked before");
    }

    #[test]
    fn the_store_hears_of_a_death_once() {
        let mut second = taking();
        let TakeAction::Probe(before, stood) = second.answer(waiting(Some(2), None)) else { panic!("it looks first") };
        assert_eq!(second.probed(before, Liveness::Dead, stood), TakeAction::Ask);
        let probes = |taking: &Taking| match taking.request() {
            Request::Queue(request) => request.seen.probes.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!(probes(&second), 1);
        // The store did not believe it: there is nothing to watch, and the slow look remains.
        assert_eq!(sleeps(&second.answer(waiting(Some(2), None))), (None, 5_000));
        assert_eq!(probes(&second), 0);
    }
}
