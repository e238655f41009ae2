//! Faults of locks and semaphores.

use std::sync::atomic::{AtomicI64, Ordering};

use banksman_core::event::Resource;
use banksman_core::resource::coordination::{Command, Coordination, Outcome};
use banksman_core::resource::lock;
use banksman_core::resource::lock::{Lock, State};
use banksman_core::resource::semaphore;
use banksman_core::{Epoch, Liveness, Name, Span, Ticket};
use banksman_engine::{Reply, Request, Seen};
use banksman_store::{Call as _, Tables, Tx};

use super::Mutation;

static OUTSIDE: AtomicI64 = AtomicI64::new(0);

impl Mutation {
    /// Changes the request and the rows before the decision. Returns the rows that the decision must not see.
    fn prepare(self, command: &mut Command, seen: &mut Seen, tx: &mut Tx) -> Coordination {
        let coordination = &mut tx.tables.coordination;
        match self {
            Mutation::LockFencingOff => forge(command, coordination),
            Mutation::CapacityOff => {
                if let Command::Semaphore(name, semaphore::Input::Acquire(ask)) = command
                    && let Some(semaphore) = coordination.semaphores.get_mut(name)
                    && ask.claim.weight <= semaphore.config.capacity
                {
                    semaphore.config.capacity += 1;
                }
            }
            Mutation::DeadlockOff => {
                let (locks, semaphores) = match command {
                    Command::Lock(name, lock::Input::Acquire(_)) => (Some(name), None),
                    Command::Semaphore(name, semaphore::Input::Acquire(_)) => (None, Some(name)),
                    _ => return Coordination::default(),
                };
                return Coordination {
                    locks: coordination.locks.extract_if(.., |name, _| Some(name) != locks.as_deref()).collect(),
                    semaphores: coordination.semaphores.extract_if(.., |name, _| Some(name) != semaphores.as_deref()).collect(),
                    claims: Default::default(),
                };
            }
            Mutation::StealLease => age(command, coordination),
            Mutation::PresumeDead => {
                if let Command::Lock(name, lock::Input::Acquire(_) | lock::Input::Poll { .. }) = command
                    && let Some(Lock { state: State::Held(grant), .. }) = coordination.locks.get(name)
                {
                    seen.probes.extend(grant.claim.processes.iter().map(|process| (process.clone(), Liveness::Dead)));
                }
            }
            Mutation::OutsideCounter => tx.wall.0 += OUTSIDE.fetch_add(1, Ordering::Relaxed),
            _ => {}
        }
        Coordination::default()
    }

    /// Changes the rows and the reply after the decision.
    fn spoil(
        self,
        command: &Command,
        resource: &Resource,
        before: &Coordination,
        ticket: Ticket,
        tables: &mut Tables,
        reply: &mut Reply,
    ) {
        let coordination = &mut tables.coordination;
        let name = &resource.name;
        match (self, command) {
            (Mutation::CapacityOff, Command::Semaphore(_, semaphore::Input::Acquire(_))) => {
                if let (Some(was), Some(semaphore)) = (before.semaphores.get(name), coordination.semaphores.get_mut(name)) {
                    semaphore.config = was.config;
                }
            }
            (Mutation::NewcomerFirst, Command::Lock(_, lock::Input::Acquire(_))) => {
                push_in(coordination.locks.get_mut(name), ticket, reply)
            }
            (Mutation::EpochReuse, Command::Lock(_, lock::Input::Acquire(_))) => {
                let old = before.locks.get(name).map_or(Epoch(0), |lock| lock.fence);
                reuse(coordination.locks.get_mut(name), old, reply);
            }
            (Mutation::FenceFalls, Command::Lock(..)) => {
                if let Some(lock) = coordination.locks.get_mut(name).filter(|lock| lock.state == State::Free) {
                    lock.fence = Epoch(0);
                }
            }
            (Mutation::ForgetWaiter, _) => forget(coordination, name),
            (Mutation::SilentLock, Command::Lock(_, lock::Input::Release { .. })) => {
                if let Some(lock) = coordination.locks.get_mut(name) {
                    lock.config.ttl = Some(Span::from_secs(99));
                }
            }
            (
                Mutation::LostHeartbeat,
                Command::Lock(_, lock::Input::Heartbeat { .. }) | Command::Semaphore(_, semaphore::Input::Heartbeat { .. }),
            ) => *coordination = before.clone(),
            _ => {}
        }
    }
}

/// Decides like the real request, except for the fault.
pub(super) fn decide(mutation: Mutation, request: &Request, tx: &mut Tx) -> Reply {
    let Request::Coordinate { command, seen } = request else { return request.decide(tx) };
    let (mut command, mut seen) = (command.clone(), seen.clone());
    let resource = command.resource();
    let before = tx.tables.coordination.clone();
    let ticket = tx.ticket;
    let hidden = mutation.prepare(&mut command, &mut seen, tx);
    let mut reply = Request::Coordinate { command: command.clone(), seen }.decide(tx);
    tx.tables.coordination.locks.extend(hidden.locks);
    tx.tables.coordination.semaphores.extend(hidden.semaphores);
    mutation.spoil(&command, &resource, &before, ticket, &mut tx.tables, &mut reply);
    reply
}

/// Turns the caller into the present holder.
fn forge(command: &mut Command, coordination: &Coordination) {
    match command {
        Command::Lock(name, lock::Input::Heartbeat { holder, epoch } | lock::Input::Release { holder, epoch }) => {
            if let Some(Lock { state: State::Held(grant), .. }) = coordination.locks.get(name) {
                (*holder, *epoch) = (grant.claim.holder.clone(), grant.epoch);
            }
        }
        Command::Semaphore(_, semaphore::Input::Heartbeat { epoch, .. } | semaphore::Input::Release { epoch, .. }) => {
            *epoch = None
        }
        Command::Lock(..) | Command::Semaphore(..) => {}
    }
}

/// Makes every lease of the resource look as if its last heartbeat was long ago.
fn age(command: &Command, coordination: &mut Coordination) {
    let grants: Vec<_> = match command {
        Command::Lock(name, lock::Input::Acquire(_)) => match coordination.locks.get_mut(name) {
            Some(Lock { state: State::Held(grant), .. }) => vec![&mut **grant],
            _ => return,
        },
        Command::Semaphore(name, semaphore::Input::Acquire(_)) => {
            coordination.semaphores.get_mut(name).into_iter().flat_map(|semaphore| semaphore.holders.values_mut()).collect()
        }
        Command::Lock(..) | Command::Semaphore(..) => return,
    };
    for grant in grants {
        grant.heartbeat.lease.0 -= grant.claim.ttl.map_or(0, Span::as_ms);
    }
}

fn push_in(lock: Option<&mut Lock>, ticket: Ticket, reply: &mut Reply) {
    if let (Some(lock), Reply::Coordinate { outcome: Outcome::Lock(lock::Outcome::Waiting(waiting)), .. }) = (lock, reply)
        && waiting.ticket == ticket
        && let Some(mut waiter) = lock.waiters.remove(ticket)
    {
        waiter.ticket = Ticket(-ticket.0);
        (waiting.ticket, waiting.place) = (waiter.ticket, 1);
        lock.waiters.push(waiter);
    }
}

fn reuse(lock: Option<&mut Lock>, old: Epoch, reply: &mut Reply) {
    let Reply::Coordinate { outcome: Outcome::Lock(outcome), .. } = reply else { return };
    let (lock::Outcome::Acquired(told) | lock::Outcome::Reclaimed { grant: told, .. }) = outcome else { return };
    if let Some(Lock { state: State::Held(grant), fence, .. }) = lock
        && old != Epoch(0)
    {
        (grant.epoch, told.epoch, *fence) = (old, old, old);
    }
}

/// Drops the second waiter. The first one stays: without it, the next waiter might rightly be served.
fn forget(coordination: &mut Coordination, name: &Name) {
    let lists = coordination.locks.get_mut(name).map(|lock| &mut lock.waiters);
    let lists = lists.into_iter().chain(coordination.semaphores.get_mut(name).map(|semaphore| &mut semaphore.waiters));
    for waiters in lists {
        if let Some(ticket) = waiters.get(1).map(|waiter| waiter.ticket) {
            waiters.remove(ticket);
        }
    }
}
