//! No wait is held up for long by stopped processes.
//!
//! A living waiter with only stopped processes before it gets what it wants after two offers, if none of that, nor what
//! those processes want, is held: the first of them gets an offer, and then all others together. The same is true of a
//! task that a runner could start. This is computed from rows and processes alone, and checked at every step, also if
//! nothing is written.

use std::collections::BTreeMap;

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::Coordination;
use banksman_core::resource::grant::{OFFER, Waiter};
use banksman_core::task::{Need, Spec};
use banksman_core::{ProcessId, TaskId, Ticket};

use super::checks::grants;
use crate::clock::Ms;
use crate::report::Checker;
use crate::world::World;

/// Two offers, and the limit for work that is left undone.
const LIMIT: Ms = 2 * OFFER.as_ms() + 6_000;

/// A wait and what it is for.
struct Wish<'a> {
    ticket: Ticket,
    process: &'a ProcessId,
    /// The resources, each with its weight.
    wants: Vec<(Resource, u32)>,
    is_claim: bool,
}

impl Wish<'_> {
    fn shares(&self, wants: &[(Resource, u32)]) -> bool {
        self.wants.iter().any(|(resource, _)| wants.iter().any(|(other, _)| other == resource))
    }

    /// Whether it may get a resource before this other wait: free resources are kept for claims before other waiters,
    /// whatever their tickets.
    fn is_before(&self, other: &Wish<'_>) -> bool {
        self.shares(&other.wants) && (self.ticket < other.ticket || (self.is_claim && !other.is_claim))
    }
}

/// All waits.
fn wishes(rows: &Coordination) -> Vec<Wish<'_>> {
    let claims = rows.claims.values().filter(|claim| claim.task.is_some()).filter_map(|claim| {
        let wants = claim.parts.iter().map(|part| (part.resource.clone(), part.weight)).collect();
        Some(Wish { ticket: claim.ticket, process: &claim.waits()?.standing.process, wants, is_claim: true })
    });
    let locks = rows.locks.values().map(|lock| (Kind::Lock, &lock.name, &lock.waiters));
    let slots = rows.semaphores.values().map(|one| (Kind::Semaphore, &one.name, &one.waiters));
    let waiters = locks.chain(slots).flat_map(|(kind, name, waiters)| {
        let wish = move |one: &'_ Waiter| vec![(Resource { kind, name: name.clone() }, one.claim.weight)];
        waiters.iter().map(move |one| Wish {
            ticket: one.ticket,
            process: &one.standing.process,
            wants: wish(one),
            is_claim: false,
        })
    });
    claims.chain(waiters).collect()
}

/// Whether everything that is wanted is free.
fn are_free(wants: &[(Resource, u32)], rows: &Coordination) -> bool {
    wants.iter().all(|(resource, weight)| {
        let used: u32 = grants(rows, resource).into_iter().map(|grant| grant.claim.weight).sum();
        let capacity = match resource.kind {
            Kind::Lock => 1,
            Kind::Semaphore => rows.semaphores.get(&resource.name).map_or(0, |one| one.config.capacity),
        };
        used + weight <= capacity
    })
}

/// Whether a waiter that has had an offer, or will soon have one, is stopped. A waiter behind another whose resources
/// are not all free gets none. A claim and an older waiter can each be before the other, so `behind` has the waiters that
/// were followed here.
fn yields(wish: &Wish<'_>, wishes: &[Wish<'_>], behind: &[&Wish<'_>], stopped: &[&ProcessId], rows: &Coordination) -> bool {
    let behind = [behind, &[wish]].concat();
    let is_new = |other: &&Wish<'_>| !behind.iter().any(|seen| std::ptr::eq(*seen, *other));
    let mut before = wishes.iter().filter(|other| other.is_before(wish)).filter(is_new);
    let is_stopped = stopped.contains(&wish.process) && are_free(&wish.wants, rows);
    is_stopped && before.all(|other| yields(other, wishes, &behind, stopped, rows))
}

/// The resources of a run of a task. All sections are exclusive here.
fn wants(id: &TaskId, spec: &Spec) -> Vec<(Resource, u32)> {
    let section = spec.section.as_ref().map(|section| Need::Lock(section.lock()));
    let needs = [Need::Lock(id.lock())].into_iter().chain(section).chain(spec.needs.iter().cloned());
    needs.map(|need| (need.resource(), need.weight())).collect()
}

impl World<'_> {
    /// Notes for how long waits are held up by stopped processes alone.
    pub(crate) fn watch_stopped(&mut self) {
        let now = self.clock.now();
        if self.people.persons.iter().all(|person| !person.is_stopped(now)) {
            return self.people.held_up.clear();
        }
        let Some(rows) = self.claim_rows() else { return };
        let rows = &rows.coordination;
        let stopped: Vec<&ProcessId> =
            self.people.persons.iter().filter(|person| person.is_stopped(now)).map(|person| &person.process).collect();
        let wishes = wishes(rows);
        let yields = |wish: &Wish<'_>| yields(wish, &wishes, &[], &stopped, rows);
        let is_held_up = |before: &[&Wish<'_>]| !before.is_empty() && before.iter().all(|wish| yields(wish));
        let lives = |wish: &&Wish<'_>| self.machine.lives(wish.process) && !stopped.contains(&wish.process);
        let waiting = wishes.iter().filter(lives).filter(|wish| {
            let before: Vec<&Wish<'_>> = wishes.iter().filter(|other| other.is_before(wish)).collect();
            are_free(&wish.wants, rows) && is_held_up(&before)
        });
        let tasks = self.model.jobs.iter().filter(|(id, job)| {
            let wants = wants(id, &job.spec);
            let before: Vec<&Wish<'_>> = wishes.iter().filter(|other| other.shares(&wants)).collect();
            is_held_up(&before) && are_free(&wants, rows) && self.could_start(id, job)
        });
        let waiting = waiting.map(|wish| format!("the wait with ticket {}", wish.ticket));
        let held_up: Vec<String> = waiting.chain(tasks.map(|(id, _)| id.to_string())).collect();
        self.tally.count_many("held up by stopped processes", held_up.len() as u64);
        let before = std::mem::take(&mut self.people.held_up);
        let since = |what: &String| before.get(what).copied().unwrap_or(now);
        self.people.held_up = held_up.into_iter().map(|what| (what.clone(), since(&what))).collect::<BTreeMap<_, _>>();
        let is_reliable = self.reliable_from.is_some_and(|from| from <= now);
        let long = self.people.held_up.iter().find(|(_, since)| is_reliable && now - **since > LIMIT);
        if let Some((what, since)) = long {
            let what = format!("{what} is held up by stopped processes alone, for {} ms", now - since);
            self.verdict.report(Checker::HeldUp, || what);
        }
    }

    /// At the end some waiting processes are stopped for longer than any wait may be held up.
    pub(crate) fn stop_people_at_the_end(&mut self) {
        for index in 0..self.people.persons.len() {
            let until = self.clock.now() + self.random.between(90_000, 240_000);
            if self.random.in_thousand(300) && self.people.persons[index].stop(until) {
                self.tally.count("waiting processes stopped");
            }
        }
    }
}
