//! Faults of the claims of people.

use std::collections::BTreeMap;

use banksman_core::resource::coordination::{Command, Coordination};
use banksman_core::resource::lock;
use banksman_core::resource::work_claim::{State, WorkClaim};
use banksman_core::{HolderId, Ticket};
use banksman_engine::{Reply, Request, RunOutcome, RunRequest, TaskOutcome, TaskRequest};
use banksman_store::{Call as _, Tx};

use super::{Mutation, after, locks, queues, tasks};

/// Decides like the real request, except for the fault. A fault of another group is left to its module.
pub(super) fn decide(mutation: Mutation, request: &Request, tx: &mut Tx) -> Reply {
    let before = tx.tables.coordination.clone();
    match (mutation, request) {
        (Mutation::SectionStays, Request::Run(RunRequest::Finish { what, .. })) => after(request, tx, |tx| {
            let section = what.task.spec.section.as_ref().map(|section| section.lock());
            let lock = section.and_then(|name| before.locks.get(&name).cloned());
            tx.tables.coordination.locks.extend(lock.map(|lock| (lock.name.clone(), lock)));
        }),
        (Mutation::ClaimForgotten, Request::Task(TaskRequest::Take { .. })) => after(request, tx, |tx| {
            let is_new = |ticket: &Ticket, claim: &WorkClaim| {
                claim.waits().is_none() && before.claims.get(ticket).is_none_or(|before| before.waits().is_some())
            };
            tx.tables.coordination.claims.retain(|ticket, claim| !is_new(ticket, claim));
        }),
        (Mutation::RenewsTaskOnly, Request::Task(TaskRequest::Renew { id, .. })) => after(request, tx, |tx| {
            let others = before.locks.into_iter().filter(|(name, _)| *name != id.lock());
            tx.tables.coordination.locks.extend(others);
            tx.tables.coordination.semaphores = before.semaphores;
        }),
        (Mutation::SectionOpen, Request::Task(TaskRequest::Take { .. })) => {
            let sections = tx.tables.backlog.sections.clone();
            tx.tables.backlog.sections.values_mut().for_each(|section| section.exclusive = false);
            after(request, tx, |tx| tx.tables.backlog.sections = sections)
        }
        (Mutation::AdoptionNeedsLock, Request::Run(RunRequest::Adopt { what, .. })) => {
            let section = what.task.spec.section.as_ref().map(|section| section.lock());
            let lock = section.and_then(|name| before.locks.get(&name));
            let is_held = lock.is_some_and(|lock| lock.state != lock::State::Free);
            if is_held { Reply::Run(RunOutcome::OwnerLives) } else { request.decide(tx) }
        }
        (Mutation::OvertakeOff, request) => {
            let own = match request {
                Request::Task(TaskRequest::Take { taking, .. }) => taking.ticket,
                Request::Coordinate { .. } | Request::Run(RunRequest::Claim { .. }) => None,
                _ => return request.decide(tx),
            };
            let is_hidden = |ticket: &Ticket, claim: &mut WorkClaim| claim.waits().is_some() && Some(*ticket) != own;
            let waiting: BTreeMap<Ticket, WorkClaim> = tx.tables.coordination.claims.extract_if(.., is_hidden).collect();
            after(request, tx, |tx| tx.tables.coordination.claims.extend(waiting))
        }
        (Mutation::NextNotKept, Request::Task(TaskRequest::Take { .. })) => after(request, tx, |tx| {
            let claims = &mut tx.tables.coordination.claims;
            let waited = |ticket: &Ticket| before.claims.get(ticket).is_some_and(|claim| claim.waits().is_some());
            if claims.iter().any(|(ticket, claim)| claim.waits().is_none() && waited(ticket)) {
                for claim in claims.values_mut() {
                    if let State::Waiting(terms) = &mut claim.state {
                        terms.overtake = None;
                    }
                }
            }
        }),
        (Mutation::StoppedKept, request) => after(request, tx, |tx| {
            for claim in tx.tables.coordination.claims.values_mut() {
                if let State::Waiting(terms) = &mut claim.state {
                    (terms.turn, terms.has_yielded) = (None, false);
                }
            }
        }),
        (Mutation::DeadlockUnseen, Request::Task(TaskRequest::Take { .. }))
        | (Mutation::DeadlockUnseen, Request::Coordinate { command: Command::Lock(_, lock::Input::Acquire(_)), .. }) => {
            let single = |holder: &HolderId| holder.as_str().starts_with('q');
            rename(&mut tx.tables.coordination, |holder| single(holder).then(|| format!("hidden-{holder}")));
            after(request, tx, |tx| {
                rename(&mut tx.tables.coordination, |holder| holder.as_str().strip_prefix("hidden-").map(str::to_owned))
            })
        }
        (Mutation::CircleInvented, Request::Task(TaskRequest::Take { .. })) => match request.decide(tx) {
            Reply::Task(TaskOutcome::Waiting(claim)) if claim.waiting.place > 1 => {
                tx.tables.coordination.claims.remove(&claim.waiting.ticket);
                Reply::Task(TaskOutcome::Deadlock(Vec::new()))
            }
            reply => reply,
        },
        (Mutation::WaitStays, Request::Task(TaskRequest::Leave { ticket, .. })) => after(request, tx, |tx| {
            tx.tables.coordination.claims.extend(before.claims.get(ticket).map(|claim| (*ticket, claim.clone())))
        }),
        (_, Request::Coordinate { .. }) => locks::decide(mutation, request, tx),
        (_, Request::Queue(_)) => queues::decide(mutation, request, tx),
        _ => tasks::decide(mutation, request, tx),
    }
}

/// Renames the holders of locks.
fn rename(coordination: &mut Coordination, name: impl Fn(&HolderId) -> Option<String>) {
    for lock in coordination.locks.values_mut() {
        if let lock::State::Held(grant) = &mut lock.state
            && let Some(name) = name(&grant.claim.holder)
        {
            grant.claim.holder = HolderId::new(&name).expect("a plain word");
        }
    }
}
