//! A request on its way into the store: it records the moment of its decision, and may be changed by a mutation.

use std::cell::RefCell;

use banksman_core::{Lease, Seq, Ticket, Wall};
use banksman_engine::{Reply, Request};
use banksman_store::{Call, Key, Tables, Tx};

use crate::mutation::Mutation;

/// The moment of a decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Note {
    /// The number of the call's first event, if it wrote any.
    pub(crate) seq: Seq,
    /// The number of the first event after it.
    pub(crate) next: Seq,
    pub(crate) ticket: Ticket,
    pub(crate) lease: Lease,
    pub(crate) wall: Wall,
}

/// One request of a batch.
pub(crate) struct TracedCall<'a> {
    pub(crate) request: &'a Request,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) notes: &'a RefCell<Vec<Note>>,
}

impl Call for TracedCall<'_> {
    type Reply = Reply;

    fn keys(&self) -> Vec<Key> {
        let extra = self.mutation.map(|mutation| mutation.keys(self.request)).unwrap_or_default();
        self.request.keys().into_iter().chain(extra).collect()
    }

    fn follow(&self, loaded: &Tables) -> Vec<Key> {
        self.request.follow(loaded)
    }

    fn decide(&self, tx: &mut Tx) -> Reply {
        let (seq, ticket, lease, wall) = (tx.seq, tx.ticket, tx.lease, tx.wall);
        let reply = match self.mutation {
            None => self.request.decide(tx),
            Some(mutation) => mutation.decide(self.request, tx),
        };
        self.notes.borrow_mut().push(Note { seq, next: tx.seq, ticket, lease, wall });
        reply
    }

    fn settle(tx: &mut Tx) {
        Request::settle(tx);
    }
}
