//! Faults of wake-ups and of parked tasks.

use banksman_core::Ticket;
use banksman_engine::{Reply, Request, RunRequest};
use banksman_store::{Call as _, Tx};

use super::Mutation;

/// Decides like the real request, except for the fault; `None` if the fault is in another group.
pub(super) fn decide(mutation: Mutation, request: &Request, tx: &mut Tx) -> Option<Reply> {
    match (mutation, request) {
        (Mutation::WakesTheDead, Request::Run(RunRequest::Retire { runner, .. })) => {
            tx.tables.backlog.runners.get_mut(runner)?.woken = None;
            Some(request.decide(tx))
        }
        (Mutation::EndersFirst, Request::Run(RunRequest::Claim(claim))) => {
            let reply = request.decide(tx);
            let row = tx.tables.backlog.runners.get_mut(&claim.runner).filter(|row| row.until_idle);
            row.and_then(|row| row.idle.as_mut()).into_iter().for_each(|idle| idle.ticket = Ticket(-1));
            Some(reply)
        }
        (Mutation::NewestFirst, Request::Run(RunRequest::Claim(claim))) => {
            let was_idle = tx.tables.backlog.runners.get(&claim.runner).is_some_and(|row| row.idle.is_some());
            let reply = request.decide(tx);
            let idle = tx.tables.backlog.runners.get_mut(&claim.runner).and_then(|row| row.idle.as_mut());
            idle.into_iter().filter(|_| !was_idle).for_each(|idle| idle.ticket = Ticket(-idle.ticket.0));
            Some(reply)
        }
        (Mutation::StaysParked, _) => {
            tx.tables.parked_on.clear();
            Some(request.decide(tx))
        }
        _ => None,
    }
}
