//! The lease of a runner: proves to other machines, which cannot observe its process, that the runner lives.

use std::collections::BTreeSet;

use banksman_core::{Lease, RunId, RunnerId, Span};

use crate::calls::runs::RunRequest;

#[derive(Debug)]
pub(super) struct Renewal {
    /// The duration of the lease; `None` where all runners are on one machine.
    ttl: Option<Span>,
    /// When the last call was sent, and when the last call that renewed the lease was sent.
    sent_at: Lease,
    renewed_at: Lease,
    /// The runs whose keepers must be notified of the renewal.
    renewed: Option<BTreeSet<RunId>>,
}

impl Renewal {
    pub(super) fn new(ttl: Option<Span>) -> Renewal {
        Renewal { ttl, sent_at: Lease(0), renewed_at: Lease(0), renewed: None }
    }

    pub(super) fn request(&self, runner: RunnerId) -> Option<RunRequest> {
        self.ttl.map(|_| RunRequest::Renew { runner })
    }

    pub(super) fn next_deadline(&self) -> Option<Lease> {
        self.ttl.map(|ttl| self.renewed_at + Span::from_ms(ttl.as_ms() / 3))
    }

    /// Records when a call was sent: a renewal counts from then.
    pub(super) fn sent(&mut self, now: Lease) {
        self.sent_at = now;
    }

    pub(super) fn sent_at(&self) -> Lease {
        self.sent_at
    }

    pub(super) fn on_reply(&mut self, runs: BTreeSet<RunId>) {
        self.renewed_at = self.sent_at;
        self.renewed = Some(runs);
    }

    pub(super) fn take_renewed(&mut self) -> Option<BTreeSet<RunId>> {
        self.renewed.take()
    }
}
