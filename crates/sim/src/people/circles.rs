//! No wait is refused as a deadlock unless there is a cycle.
//!
//! Names are the nodes. A name waits for another that holds what it wants, that wanted it before or may overtake it, or
//! for whose claim it is reserved, unless that claim cannot be granted without this wait; slots count as those of the
//! person who has them. A wait for what the own name holds or wants is no cycle, because another program of that name
//! has it; except for a name on whose behalf the wait is, and for slots. These are more edges than the engine uses,
//! computed from rows alone: every cycle that the engine finds must be here.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::{Command, Coordination, Outcome as Coordinated};
use banksman_core::resource::grant::Waiter;
use banksman_core::resource::lock;
use banksman_core::task::Need;
use banksman_core::{HolderId, Lease, Ticket, WorkClaim};
use banksman_engine::{Reply, Request, TaskOutcome, TaskRequest};
use banksman_store::Snapshot;

use super::checks::grants;
use super::overtaking::{is_due, needed};
use crate::commit::CommittedCall;
use crate::report::Checker;
use crate::world::World;

/// A wait and what it is for.
struct Wish {
    /// The latest wait has the highest.
    ticket: Ticket,
    holder: String,
    /// The holder and its ancestors.
    family: Vec<String>,
    wants: Vec<Resource>,
    /// The waiting claim, if this is one: what it wants may be reserved for it.
    claim: Option<WorkClaim>,
    /// Whether it waits for one resource.
    is_in_line: bool,
}

impl Wish {
    /// Whether it may get a resource before this other wait.
    fn is_before(&self, other: &Wish, resource: &Resource, rows: &Coordination, at: Lease) -> bool {
        let reserves = |claim: &&WorkClaim| is_due(claim, resource, at);
        let passes = |claim: &WorkClaim| needed(claim, rows, at).iter().any(|holder| other.family.contains(&party(holder)));
        let is_reserved = other.is_in_line && self.claim.as_ref().filter(reserves).is_some_and(|claim| !passes(claim));
        // Any newcomer may overtake a claim that is not due.
        let overtakes = self.ticket != other.ticket && !other.is_in_line && other.claim.as_ref().filter(reserves).is_none();
        self.wants.contains(resource) && (self.ticket < other.ticket || is_reserved || overtakes)
    }
}

/// The person or run of a holder name: slots are held in the name of a person and a task.
fn party(holder: &HolderId) -> String {
    let name = holder.as_str();
    name.split_once('/').map_or(name, |(person, _)| person).to_owned()
}

fn wish(ticket: Ticket, holder: &HolderId, ancestors: &[HolderId], wants: Vec<Resource>) -> Wish {
    let family = [holder].into_iter().chain(ancestors).map(party).collect();
    Wish { ticket, holder: party(holder), family, wants, claim: None, is_in_line: false }
}

/// All waits in these rows.
fn wishes(rows: &Snapshot) -> Vec<Wish> {
    let mut wishes = Vec::new();
    for claim in rows.coordination.claims.values() {
        if let Some(terms) = claim.waits() {
            let wants = claim.parts.iter().map(|part| part.resource.clone()).collect();
            let wish = wish(claim.ticket, &claim.holder, &terms.ancestors, wants);
            wishes.push(Wish { claim: Some(claim.clone()), ..wish });
        }
    }
    let locks = rows.coordination.locks.values().map(|lock| (Kind::Lock, &lock.name, &lock.waiters));
    let slots = rows.coordination.semaphores.values().map(|one| (Kind::Semaphore, &one.name, &one.waiters));
    for (kind, name, waiters) in locks.chain(slots) {
        let in_line = |one: &Waiter| {
            let wants = vec![Resource { kind, name: name.clone() }];
            Wish { is_in_line: true, ..wish(one.ticket, &one.claim.holder, &one.claim.ancestors, wants) }
        };
        wishes.extend(waiters.iter().map(in_line));
    }
    wishes
}

/// Whether a cycle can be reached from this wait.
fn has_circle(refused: Wish, rows: &Snapshot, at: Lease) -> bool {
    let mut wishes = wishes(rows);
    // It may have waited for a while.
    wishes.retain(|wish| wish.ticket != refused.ticket);
    let start = refused.family.clone();
    wishes.push(refused);
    let mut edges: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for wish in &wishes {
        for resource in &wish.wants {
            let holders = grants(&rows.coordination, resource).into_iter().map(|grant| party(&grant.claim.holder));
            let before = wishes.iter().filter(|other| other.is_before(wish, resource, &rows.coordination, at));
            let before = before.flat_map(|other| other.family.clone());
            let is_slot = resource.kind == Kind::Semaphore;
            let others: BTreeSet<String> = holders
                .filter(|holder| is_slot || *holder != wish.holder)
                .chain(before.filter(|name| *name != wish.holder))
                .collect();
            for party in &wish.family {
                edges.entry(party).or_default().extend(others.iter().cloned());
            }
        }
    }
    let reach = |from: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(next) = open.pop() {
            for to in edges.get(next.as_str()).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    open.push(to.clone());
                }
            }
        }
        seen
    };
    let nodes: BTreeSet<String> = start.iter().flat_map(|name| reach(name)).chain(start.iter().cloned()).collect();
    nodes.iter().any(|node| reach(node).contains(node))
}

impl World<'_> {
    /// Checks a refusal against the rows on which it was decided.
    pub(super) fn check_refusals(&mut self, before: &Snapshot, calls: &[CommittedCall<'_>]) {
        let [call] = calls else { return };
        let last = Ticket(i64::MAX);
        let refused = match (call.request, call.reply) {
            (Request::Task(TaskRequest::Take { id, taking }), Reply::Task(TaskOutcome::Deadlock(_))) => {
                let section = taking.section.iter().map(|section| Need::Lock(section.lock()));
                let needs = [Need::Lock(id.lock())].into_iter().chain(section).chain(taking.needs.iter().cloned());
                let wants = needs.map(|need| need.resource()).collect();
                let wish = wish(taking.ticket.unwrap_or(last), &taking.holder, &taking.ancestors, wants);
                // A claim that waits already may have a reservation.
                let claim = taking.ticket.and_then(|ticket| before.coordination.claims.get(&ticket));
                Wish { claim: claim.cloned(), ..wish }
            }
            (Request::Coordinate { command, .. }, Reply::Coordinate { outcome: Coordinated::Deadlock(_), .. }) => {
                let Command::Lock(_, lock::Input::Acquire(ask)) = command else { return };
                let wish = wish(last, &ask.claim.holder, &ask.claim.ancestors, vec![command.resource()]);
                Wish { is_in_line: true, ..wish }
            }
            _ => return,
        };
        self.tally.count("refusals compared");
        let (holder, wants) = (refused.holder.clone(), refused.wants.clone());
        self.verdict.expect(Checker::Circles, has_circle(refused, before, call.note.lease), || {
            format!("{holder} is refused to wait for {wants:?}, and there is no circle")
        });
    }
}
