//! Engines that are broken on purpose, one fault each.

use std::collections::BTreeMap;

use banksman_core::resource::coordination::{Command, Coordination};
use banksman_core::resource::lock;
use banksman_core::resource::work_claim::WorkClaim;
use banksman_core::{HolderId, Ticket};
use banksman_engine::{Reply, Request, RunOutcome, RunRequest, TaskRequest};
use banksman_store::{Call as _, Key, Tx};

use crate::report::Checker;
use crate::tried::Tamper;

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimMutation {
    /// The end of a run does not free the lock of its section.
    SectionStays,
    /// A task is taken, and its claim is not written.
    ClaimForgotten,
    /// A heartbeat renews the lock of the task and nothing else of its claim.
    RenewsTaskOnly,
    /// A person who takes a task does not ask for its exclusive section.
    SectionOpen,
    /// A run in an exclusive section is not adopted while the lock of the section is held.
    AdoptionNeedsLock,
    /// Nothing is reserved for claims that wait.
    OvertakeOff,
    /// The search for deadlocks does not see who holds a single lock.
    DeadlockUnseen,
    /// A claim that gives up stays.
    WaitStays,
    /// `why` does not read the claims that wait.
    WhyIgnoresClaims,
}

impl ClaimMutation {
    /// All of them.
    pub const ALL: [ClaimMutation; 9] = [
        ClaimMutation::SectionStays,
        ClaimMutation::ClaimForgotten,
        ClaimMutation::RenewsTaskOnly,
        ClaimMutation::SectionOpen,
        ClaimMutation::AdoptionNeedsLock,
        ClaimMutation::OvertakeOff,
        ClaimMutation::DeadlockUnseen,
        ClaimMutation::WaitStays,
        ClaimMutation::WhyIgnoresClaims,
    ];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ClaimMutation::SectionStays => "section-stays",
            ClaimMutation::ClaimForgotten => "claim-forgotten",
            ClaimMutation::RenewsTaskOnly => "renews-task-only",
            ClaimMutation::SectionOpen => "section-open",
            ClaimMutation::AdoptionNeedsLock => "adoption-needs-lock",
            ClaimMutation::OvertakeOff => "overtake-off",
            ClaimMutation::DeadlockUnseen => "deadlock-unseen",
            ClaimMutation::WaitStays => "wait-stays",
            ClaimMutation::WhyIgnoresClaims => "why-ignores-claims",
        }
    }

    /// The checker that must find it without the help of the others.
    pub fn checker(self) -> Checker {
        match self {
            ClaimMutation::SectionStays => Checker::Owners,
            ClaimMutation::ClaimForgotten | ClaimMutation::RenewsTaskOnly => Checker::Claims,
            ClaimMutation::SectionOpen => Checker::Sections,
            ClaimMutation::AdoptionNeedsLock => Checker::Adoption,
            ClaimMutation::OvertakeOff => Checker::Overtaken,
            ClaimMutation::DeadlockUnseen => Checker::Waiters,
            ClaimMutation::WaitStays => Checker::Left,
            ClaimMutation::WhyIgnoresClaims => Checker::Why,
        }
    }
}

impl Tamper for ClaimMutation {
    fn keys(self, request: &Request) -> Vec<Key> {
        match (self, request) {
            (ClaimMutation::AdoptionNeedsLock, Request::Run(RunRequest::Adopt { what, .. })) => {
                what.task.spec.section.iter().map(|section| Key::Lock(section.lock())).collect()
            }
            _ => Vec::new(),
        }
    }

    fn decide(self, request: &Request, tx: &mut Tx) -> Reply {
        let before = tx.tables.coordination.clone();
        match (self, request) {
            (ClaimMutation::SectionStays, Request::Run(RunRequest::Finish { what, .. })) => {
                let reply = request.decide(tx);
                let section = what.task.spec.section.as_ref().map(|section| section.lock());
                let lock = section.and_then(|name| before.locks.get(&name).cloned());
                tx.tables.coordination.locks.extend(lock.map(|lock| (lock.name.clone(), lock)));
                reply
            }
            (ClaimMutation::ClaimForgotten, Request::Task(TaskRequest::Take { .. })) => {
                let reply = request.decide(tx);
                let is_new = |ticket: &Ticket, claim: &WorkClaim| {
                    claim.waits().is_none() && before.claims.get(ticket).is_none_or(|before| before.waits().is_some())
                };
                tx.tables.coordination.claims.retain(|ticket, claim| !is_new(ticket, claim));
                reply
            }
            (ClaimMutation::RenewsTaskOnly, Request::Task(TaskRequest::Renew { id, .. })) => {
                let reply = request.decide(tx);
                let others = before.locks.into_iter().filter(|(name, _)| *name != id.lock());
                tx.tables.coordination.locks.extend(others);
                tx.tables.coordination.semaphores = before.semaphores;
                reply
            }
            (ClaimMutation::SectionOpen, Request::Task(TaskRequest::Take { .. })) => {
                let sections = tx.tables.backlog.sections.clone();
                tx.tables.backlog.sections.values_mut().for_each(|section| section.exclusive = false);
                let reply = request.decide(tx);
                tx.tables.backlog.sections = sections;
                reply
            }
            (ClaimMutation::AdoptionNeedsLock, Request::Run(RunRequest::Adopt { what, .. })) => {
                let section = what.task.spec.section.as_ref().map(|section| section.lock());
                let lock = section.and_then(|name| before.locks.get(&name));
                let is_held = lock.is_some_and(|lock| lock.state != lock::State::Free);
                if is_held { Reply::Run(RunOutcome::OwnerLives) } else { request.decide(tx) }
            }
            (ClaimMutation::OvertakeOff, request) => {
                let own = match request {
                    Request::Task(TaskRequest::Take { taking, .. }) => taking.ticket,
                    Request::Coordinate { .. } | Request::Run(RunRequest::Claim { .. }) => None,
                    _ => return request.decide(tx),
                };
                let is_hidden = |ticket: &Ticket, claim: &mut WorkClaim| claim.waits().is_some() && Some(*ticket) != own;
                let waiting: BTreeMap<Ticket, WorkClaim> = tx.tables.coordination.claims.extract_if(.., is_hidden).collect();
                let reply = request.decide(tx);
                tx.tables.coordination.claims.extend(waiting);
                reply
            }
            (ClaimMutation::DeadlockUnseen, Request::Task(TaskRequest::Take { .. }))
            | (ClaimMutation::DeadlockUnseen, Request::Coordinate { command: Command::Lock(_, lock::Input::Acquire(_)), .. }) => {
                let single = |holder: &HolderId| holder.as_str().starts_with('q');
                rename(&mut tx.tables.coordination, |holder| single(holder).then(|| format!("hidden-{holder}")));
                let reply = request.decide(tx);
                rename(&mut tx.tables.coordination, |holder| holder.as_str().strip_prefix("hidden-").map(str::to_owned));
                reply
            }
            (ClaimMutation::WaitStays, Request::Task(TaskRequest::Leave { ticket, .. })) => {
                let reply = request.decide(tx);
                tx.tables.coordination.claims.extend(before.claims.get(ticket).map(|claim| (*ticket, claim.clone())));
                reply
            }
            _ => request.decide(tx),
        }
    }
}

/// Gives the holders of locks other names.
fn rename(coordination: &mut Coordination, name: impl Fn(&HolderId) -> Option<String>) {
    for lock in coordination.locks.values_mut() {
        if let lock::State::Held(grant) = &mut lock.state
            && let Some(name) = name(&grant.claim.holder)
        {
            grant.claim.holder = HolderId::new(&name).expect("a plain word");
        }
    }
}
