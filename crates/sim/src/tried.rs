//! A request on its way into the store: it remembers at which moment it was decided, and may be tampered with.

use std::cell::RefCell;

use banksman_core::{Lease, Seq, Ticket, Wall};
use banksman_engine::{Reply, Request};
use banksman_store::{Call, Key, Tx};

/// A fault that sits around the decision of a request.
pub(crate) trait Tamper: Copy {
    /// Decides like the real request, except for the fault.
    fn decide(self, request: &Request, tx: &mut Tx) -> Reply;

    /// Rows that the fault needs beside those of the request.
    fn keys(self, _request: &Request) -> Vec<Key> {
        Vec::new()
    }
}

/// The moment of a decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Note {
    /// The number that the first event of the call got, if it wrote any.
    pub(crate) seq: Seq,
    /// The number of the first event after it.
    pub(crate) next: Seq,
    pub(crate) ticket: Ticket,
    pub(crate) lease: Lease,
    pub(crate) wall: Wall,
}

/// One request of a batch.
pub(crate) struct Tried<'a, B> {
    pub(crate) request: &'a Request,
    pub(crate) broken: Option<B>,
    pub(crate) notes: &'a RefCell<Vec<Note>>,
}

impl<B: Tamper> Call for Tried<'_, B> {
    type Reply = Reply;

    fn keys(&self) -> Vec<Key> {
        let extra = self.broken.map(|broken| broken.keys(self.request)).unwrap_or_default();
        self.request.keys().into_iter().chain(extra).collect()
    }

    fn decide(&self, tx: &mut Tx) -> Reply {
        let (seq, ticket, lease, wall) = (tx.seq, tx.ticket, tx.lease, tx.wall);
        let reply = match self.broken {
            None => self.request.decide(tx),
            Some(broken) => broken.decide(self.request, tx),
        };
        self.notes.borrow_mut().push(Note { seq, next: tx.seq, ticket, lease, wall });
        reply
    }
}
