//! Locks and semaphores: processes that acquire, hold, extend, release and wait, like the real driver of a wait. The
//! checkers are a model of their own (`ledger`, `checks`) and the pure core (`model`).

pub(crate) mod checks;
pub(crate) mod client;
mod driver;
pub(crate) mod ledger;
pub(crate) mod model;
mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use banksman_core::event::{Event, Fact, Kind, Resource};
use banksman_core::resource::coordination::Coordination;
use banksman_core::resource::grant::Address;
use banksman_core::resource::lock::State;
use banksman_core::{Epoch, Liveness, Name, ProcessId, Span};
use banksman_engine::{Reply, Seen};

use self::client::{Client, Doing, Purpose};
use self::ledger::Ledger;
use self::model::Model;
use self::script::{TOP_CAPACITY, reap, resources};
use crate::clock::{HOST, Ms};
use crate::commit::{CommitOutcome, CommittedCall, Sender};
use crate::format::{Answer, answer};
use crate::report::Checker;
use crate::world::World;

/// Longer than any lease or offer.
const ALL_LEASES: Ms = 60_000;

/// The clients of a history, and the model of their locks.
pub(crate) struct Locks {
    pub(crate) resources: Vec<Resource>,
    pub(crate) clients: Vec<Client>,
    /// The resource of every acquisition so far, and those for which its request id was reused. Their number identifies
    /// the next one.
    pub(crate) asked_for: Vec<Vec<Resource>>,
    pub(crate) ledger: Ledger,
    model: Model,
    fences: BTreeMap<Name, Epoch>,
}

impl Locks {
    pub(crate) fn new(clients: usize) -> Locks {
        let never = ProcessId { host: HOST.into(), boot: "".into(), pid_ns: 1, pid: 0, start: 0 };
        Locks {
            resources: resources(),
            clients: (0..clients).map(|slot| Client::new(slot, never.clone())).collect(),
            asked_for: Vec::new(),
            ledger: Ledger::default(),
            model: Model::default(),
            fences: BTreeMap::new(),
        }
    }
}

impl World<'_> {
    pub(crate) fn set_up_locks(&mut self) {
        for resource in self.locks.resources.clone() {
            if self.random.in_thousand(850) {
                let request = self.define_lock(&resource, 3);
                self.operate(request);
            }
        }
    }

    /// Restarts and resumes clients, and ends the commands that have outlived them.
    pub(crate) fn catch_up_with_clients(&mut self) {
        let now = self.clock.now();
        for slot in 0..self.locks.clients.len() {
            let client = &mut self.locks.clients[slot];
            if client.child_alive && !client.alive && client.orphan_until <= now {
                client.child_alive = false;
                self.machine.exit(&client.child);
            }
            if !client.alive && !self.is_quiescing && client.back_at <= now {
                self.start_client(slot);
            } else if client.paused_until.is_some_and(|until| until <= now) {
                client.paused_until = None;
                let unread = std::mem::take(&mut client.unread);
                self.note_client(slot, format_args!("goes on"));
                unread.into_iter().for_each(|(call, heard)| self.on_client_reply(slot, &call, heard));
            }
        }
    }

    fn start_client(&mut self, slot: usize) {
        // Some are in a container, where pids mean nothing to the others.
        let pid_ns = if self.random.in_thousand(850) { 1 } else { 2 };
        let nests = self.random.in_thousand(400);
        let child = self.locks.clients[slot].child.clone();
        self.machine.exit(&child);
        let id = ProcessId { pid_ns, ..self.machine.fork() };
        let child = ProcessId { pid_ns, ..self.machine.fork() };
        self.locks.clients[slot].start(id, child, nests, self.clock.now());
        self.note_client(slot, format_args!("starts"));
    }

    pub(crate) fn client_is_ready(&self, slot: usize) -> bool {
        self.locks.clients[slot].is_awake() && (self.client_is_due(slot) || self.has_heartbeats(slot))
    }

    fn has_heartbeats(&self, slot: usize) -> bool {
        let now = self.clock.now();
        self.locks.clients[slot].holds.iter().any(|hold| hold.beat_at.is_some_and(|at| at <= now))
    }

    pub(crate) fn advance_client(&mut self, slot: usize) {
        if self.has_heartbeats(slot) {
            return self.send_heartbeats(slot);
        }
        match &self.locks.clients[slot].doing {
            Doing::Backoff { .. } => self.act_client(slot),
            Doing::Sleeping { .. } => self.wake_client(slot),
            Doing::Calling(_) | Doing::Finished => {}
        }
    }

    /// The times at which something is due.
    pub(crate) fn times_of_clients(&self) -> Vec<Ms> {
        let mut times = Vec::new();
        for client in &self.locks.clients {
            if let Some(until) = client.paused_until {
                times.push(until);
            } else if client.alive {
                times.extend(client.holds.iter().filter_map(|hold| hold.beat_at));
                if let Doing::Backoff { until } | Doing::Sleeping { until, .. } = &client.doing {
                    times.push(*until);
                }
            } else {
                times.extend(client.child_alive.then_some(client.orphan_until));
                times.extend((!self.is_quiescing).then_some(client.back_at));
            }
        }
        times
    }

    /// A client is killed. The calls that it had sent may still be committed, but their wake-ups never leave.
    pub(crate) fn crash_client(&mut self, slot: usize) {
        if !self.locks.clients[slot].alive {
            return;
        }
        self.commit_last_words(|from| from == Sender::Client(slot) || from == Sender::Heart(slot), CommitOutcome::Crash);
        self.tally.count("fault: crash");
        self.note_client(slot, format_args!("is killed"));
        self.end_client(slot);
    }

    /// Ends a process; its successor starts later.
    pub(crate) fn end_client(&mut self, slot: usize) {
        let now = self.clock.now();
        let orphan_for = if self.random.in_thousand(600) { 0 } else { self.random.between(1, 4_000) };
        let back_at = now + orphan_for + self.random.between(50, 8_000);
        self.calls.retain(|call| call.from != Sender::Client(slot) && call.from != Sender::Heart(slot));
        let client = &mut self.locks.clients[slot];
        self.machine.exit(&client.id);
        client.die(now + orphan_for, back_at);
    }

    /// A client is stopped for a while, often for longer than its leases last. A reply may be on its way.
    pub(crate) fn pause_client(&mut self, slot: usize) {
        if !self.locks.clients[slot].is_awake() {
            return;
        }
        let length =
            if self.random.in_thousand(500) { self.random.between(100, 4_000) } else { self.random.between(4_000, 60_000) };
        self.tally.count("fault: pause");
        self.note_client(slot, format_args!("is stopped for {length} ms"));
        self.locks.clients[slot].paused_until = Some(self.clock.now() + length);
        self.commit_last_words(|from| from == Sender::Client(slot) || from == Sender::Heart(slot), CommitOutcome::Heard);
    }

    /// A reboot ends all clients.
    pub(crate) fn reboot_clients(&mut self) {
        for slot in 0..self.locks.clients.len() {
            if self.locks.clients[slot].alive {
                self.end_client(slot);
            }
            self.locks.clients[slot].child_alive = false;
        }
    }

    /// The faults stop: from now on a wait has no timeout, and no capacity is lowered again.
    pub(crate) fn quiesce_clients(&mut self) {
        let now = self.clock.now();
        for slot in 0..self.locks.clients.len() {
            let client = &mut self.locks.clients[slot];
            // An orphan ends now: the operator reaps only once, and some of the other processes could not see it die.
            if client.child_alive && !client.alive {
                client.child_alive = false;
                self.machine.exit(&client.child);
            }
            match &mut client.doing {
                // A timeout is no result.
                Doing::Sleeping { waiter, .. } | Doing::Calling(Purpose::Wait(waiter)) => waiter.limit = None,
                Doing::Calling(Purpose::OddJob) => {
                    client.doing = Doing::Backoff { until: now };
                    self.calls.retain(|call| call.from != Sender::Client(slot));
                }
                Doing::Calling(_) | Doing::Backoff { .. } | Doing::Finished => {}
            }
        }
        // A lower capacity can turn waits that were fine when they began into a deadlock. No new wait closes its cycle,
        // so it is not reported.
        for resource in self.locks.resources.clone() {
            if resource.kind == Kind::Semaphore {
                let request = self.define_lock(&resource, TOP_CAPACITY);
                self.operate(request);
            }
        }
        self.reap_dead_processes();
    }

    /// Reclaims the grants of dead processes. The others cannot see those in a container, and a grant without a lease
    /// waits for a process that can.
    fn reap_dead_processes(&mut self) {
        for resource in self.locks.resources.clone() {
            let account = self.locks.ledger.account(&resource);
            let bound = account.holders.values().flat_map(|holding| &holding.claim.processes);
            let all: BTreeSet<ProcessId> = bound.chain(account.waiters.iter().map(|place| &place.process)).cloned().collect();
            let dead = all.into_iter().filter(|process| !self.machine.lives(process));
            let probes = dead.map(|process| (process, Liveness::Dead)).collect();
            self.operate(reap(&resource, Seen { probes, patience: Span::ZERO }));
        }
    }

    pub(crate) fn clients_have_finished(&self) -> bool {
        self.locks.clients.iter().all(|client| !client.alive || matches!(client.doing, Doing::Finished))
    }

    /// The clients that still wait for a lock or slots.
    pub(crate) fn stuck_clients(&self) -> Vec<String> {
        let waits = |client: &Client| match &client.doing {
            Doing::Sleeping { waiter, .. } | Doing::Calling(Purpose::Wait(waiter)) if client.alive => {
                Some(format!("{} for {}", client.name(), waiter.resource))
            }
            _ => None,
        };
        self.locks.clients.iter().filter_map(waits).collect()
    }

    /// All clients are gone: once the leases are over, nothing is held and no process waits.
    pub(crate) fn close_clients(&mut self) {
        self.reboot_clients();
        self.clock.advance(ALL_LEASES);
        self.reap_dead_processes();
        self.compare_rows();
        let snapshot = match self.store.view().snapshot() {
            Ok(snapshot) => snapshot.tables.coordination,
            Err(error) => return self.store_failed(&error),
        };
        let locks = snapshot.locks.values().filter(|lock| lock.state != State::Free || !lock.waiters.is_empty());
        let semaphores = snapshot.semaphores.values().filter(|some| !some.holders.is_empty() || !some.waiters.is_empty());
        let left: Vec<String> = locks.map(|lock| format!("{lock:?}")).chain(semaphores.map(|some| format!("{some:?}"))).collect();
        self.verdict.expect(Checker::Waiters, left.is_empty(), || format!("left behind: {}", left.join("; ")));
        let idle = snapshot.next_deadline().is_none();
        self.verdict.expect(Checker::Living, idle, || "a deadline is left where nothing is held".to_owned());
    }

    /// Feeds a committed call to the ledger.
    pub(crate) fn observe_locks(&mut self, call: &CommittedCall<'_>) {
        self.tally_locks(call);
        if !self.locks.clients.is_empty() {
            let machine = &self.machine;
            let dead = |id: &ProcessId| !machine.lives(id);
            self.locks.ledger.check(call, &dead, &mut self.verdict);
        }
    }

    /// Feeds a committed batch to the pure core.
    pub(crate) fn follow_with_locks(&mut self, calls: &[CommittedCall<'_>], wakes: &[Address]) {
        if !self.locks.clients.is_empty() {
            let boot = banksman_store::Machine::boot(&self.clock);
            self.locks.model.follow(calls, wakes, &boot, &mut self.verdict);
        }
    }

    /// Compares all rows with the model; fences only rise.
    pub(crate) fn compare_locks(&mut self, coordination: &Coordination) {
        if self.locks.clients.is_empty() {
            return;
        }
        for (name, lock) in &coordination.locks {
            let before = self.locks.fences.insert(name.clone(), lock.fence).unwrap_or_default();
            self.verdict.expect(Checker::Order, lock.fence >= before, || {
                format!("the fence of {name} fell from {before} to {}", lock.fence)
            });
        }
        self.locks.model.compare(coordination.clone(), &mut self.verdict);
    }

    fn tally_locks(&mut self, call: &CommittedCall<'_>) {
        if let Reply::Coordinate { outcome, .. } = call.reply {
            match answer(outcome) {
                Answer::Waiting(_) => self.tally.count("told to wait"),
                Answer::Deadlock(_) => self.tally.count("deadlocks refused"),
                Answer::Fenced(_) => self.tally.count("fenced"),
                Answer::Gone => self.tally.count("gone"),
                Answer::Lost => self.tally.count("lost"),
                Answer::Other(word @ ("spent" | "too heavy")) => self.tally.count(word),
                _ => {}
            }
        }
        for logged in call.events {
            if let Event::Resource { fact, .. } = &logged.event {
                self.tally.count(match fact {
                    Fact::Defined(_) => "defined",
                    Fact::Acquired(_) => "grants",
                    Fact::Increased(_) => "increases",
                    Fact::Reclaimed(_) => "reclaims",
                    Fact::Released(_) => "releases",
                    Fact::OfferLapsed(_) => "offers lapsed",
                });
            }
        }
    }

    /// A line of the trace about one client.
    pub(crate) fn note_client(&mut self, slot: usize, text: fmt::Arguments<'_>) {
        let name = self.locks.clients[slot].name().to_owned();
        self.say(format_args!("{name} {text}"));
    }
}
