//! The actions of a process: it acquires, holds, extends and releases, and does odd jobs.

use banksman_core::event::{CustomKind, Event, Forced, Kind, Resource, Source};
use banksman_core::resource::coordination::Command;
use banksman_core::resource::grant::{Ask, GrantRequest, Term, WaitingProcess};
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::{Epoch, HolderId, Lease, Name, ProcessId, RequestId, Span};
use banksman_engine::{Request, Seen, Wait};
use serde_json::Value;

use super::client::{Doing, Hold, Purpose, Waiter};
use crate::clock::Ms;
use crate::commit::{InFlight, Sender};

use crate::world::World;

/// The longest sleep.
const POLL: Span = Span::from_secs(5);

/// The grid of the moments at which idle processes act.
const GRID: Ms = 500;

/// The highest capacity of a semaphore.
pub(crate) const TOP_CAPACITY: u32 = 5;

/// All locks and semaphores.
pub(crate) fn resources() -> Vec<Resource> {
    let named = |kind, names: &[&str]| -> Vec<Resource> {
        names.iter().map(|name| Resource { kind, name: Name::new(name).expect("a good name") }).collect()
    };
    [named(Kind::Lock, &["a", "b", "c"]), named(Kind::Semaphore, &["s", "t"])].concat()
}

impl World<'_> {
    /// Chooses the next action of a process's main thread.
    pub(crate) fn act_client(&mut self, slot: usize) {
        let now = self.clock.now();
        // The innermost grant is released first: the outer ones are its ancestors.
        if let Some(hold) = self.locks.clients[slot].holds.last().filter(|hold| hold.until <= now || self.is_quiescing).cloned() {
            return self.release_hold(slot, &hold);
        }
        if self.is_quiescing {
            self.locks.clients[slot].doing = Doing::Finished;
            return;
        }
        if let Some((resource, mut ask)) = self.locks.clients[slot].legacy.take() {
            self.tally.count("asked again by a successor");
            if !ask.claim.processes.is_empty() {
                ask.claim.processes = self.bound_to(slot);
            }
            let waits = ask.wait.is_some();
            return self.begin_wait(slot, resource, ask, waits);
        }
        let depth = self.locks.clients[slot].holds.len();
        match self.random.below(100) {
            0..55 if depth < 3 => self.acquire_some(slot),
            0..55 => self.rest_client(slot),
            55..65 if depth > 0 => self.extend_hold(slot),
            65..80 => self.odd_job(slot),
            _ => self.rest_client(slot),
        }
    }

    /// Does nothing for a while, or until a grant is to be released.
    pub(crate) fn rest_client(&mut self, slot: usize) {
        let now = self.clock.now();
        // A coarse grid makes several processes due at once, so that their calls meet in one batch.
        let until = if self.is_quiescing { now } else { (now / GRID + self.random.between(1, 3)) * GRID };
        let process = &mut self.locks.clients[slot];
        let due = process.holds.last().map_or(until, |hold| hold.until.min(until));
        process.doing = Doing::Backoff { until: due };
    }

    fn release_hold(&mut self, slot: usize, hold: &Hold) {
        let (holder, epoch) = (hold.holder.clone(), hold.epoch);
        let command = match hold.resource.kind {
            Kind::Lock => Command::Lock(hold.resource.name.clone(), lock::Input::Release { holder, epoch }),
            Kind::Semaphore => {
                let epoch = self.random.in_thousand(900).then_some(epoch);
                Command::Semaphore(hold.resource.name.clone(), semaphore::Input::Release { holder, epoch })
            }
        };
        let purpose = Purpose::Release { resource: hold.resource.clone(), epoch };
        self.send_of_client(slot, purpose, Request::plain(command));
    }

    /// Sends the heartbeats that are due.
    pub(crate) fn send_heartbeats(&mut self, slot: usize) {
        let now = self.clock.now();
        let mut due = Vec::new();
        for hold in &mut self.locks.clients[slot].holds {
            if hold.beat_at.is_some_and(|at| at <= now) {
                hold.beat_at = None;
                due.push(hold.clone());
            }
        }
        for Hold { resource, holder, epoch, .. } in due {
            let name = resource.name.clone();
            let command = match resource.kind {
                Kind::Lock => Command::Lock(name, lock::Input::Heartbeat { holder, epoch }),
                Kind::Semaphore => Command::Semaphore(name, semaphore::Input::Heartbeat { holder, epoch: Some(epoch) }),
            };
            self.calls.push(InFlight { from: Sender::Heart(slot), requests: vec![Request::plain(command)] });
        }
    }

    fn acquire_some(&mut self, slot: usize) {
        let resource = self.random.pick(&self.locks.resources).clone();
        let process = &self.locks.clients[slot];
        let own: HolderId = HolderId::new(process.name()).expect("a good name");
        let (mut holder, mut ancestors) = (own, Vec::new());
        if process.nests && !process.holds.is_empty() {
            holder = HolderId::new(&format!("{}/{}", process.name(), self.locks.asked_for.len())).expect("a good name");
            ancestors = process.holds.iter().rev().map(|hold| hold.holder.clone()).collect();
        }
        // Under one name, a second wait for the same lock would be for itself, and nothing could end it.
        let again = process.holds.iter().any(|hold| hold.resource == resource && hold.holder == holder);
        let waits = self.random.in_thousand(780) && !(again && resource.kind == Kind::Lock);
        let weight = self.some_weight(resource.kind);
        let claim = self.grant_request(slot, &resource, holder, ancestors, weight);
        self.begin_wait(slot, resource, asking(claim, None), waits);
    }

    /// Renews a grant, or asks for more of it.
    fn extend_hold(&mut self, slot: usize) {
        let process = &self.locks.clients[slot];
        // A nested holder waits on behalf of its ancestors, so only the innermost may ask for more.
        let index = if process.nests { process.holds.len() - 1 } else { self.random.below(process.holds.len()) };
        let hold = self.locks.clients[slot].holds[index].clone();
        let more = hold.resource.kind == Kind::Semaphore && self.random.in_thousand(700);
        let weight = hold.weight + u32::from(more);
        let nests = self.locks.clients[slot].nests;
        let outer = self.locks.clients[slot].holds[..index].iter().rev().filter(|_| nests);
        let ancestors = outer.map(|outer| outer.holder.clone()).collect();
        let claim = self.grant_request(slot, &hold.resource, hold.holder, ancestors, weight);
        let epoch =
            self.random.in_thousand(900).then_some(hold.epoch).or((hold.resource.kind == Kind::Lock).then_some(hold.epoch));
        let waits = self.random.in_thousand(600);
        self.begin_wait(slot, hold.resource, asking(claim, epoch), waits);
    }

    fn begin_wait(&mut self, slot: usize, resource: Resource, mut ask: Ask, waits: bool) {
        let process = &mut self.locks.clients[slot];
        process.mailbox = false;
        self.locks.ledger.stalls.remove(&process.id);
        if waits {
            // Some wait as if from another machine, where no process could see them die. They have request ids, or the
            // ledger could not distinguish a dropped place from a second one of the same holder.
            let remote = ask.claim.request.is_some() && self.random.in_thousand(350);
            let lease = remote.then_some(POLL + POLL + POLL);
            ask.wait = Some(WaitingProcess { process: process.id.clone(), address: Some(process.address()), lease });
        }
        // Slots are identified by their holder, so asking again is safe even without a request id.
        let repeatable = ask.claim.request.is_some() || ask.epoch.is_some() || resource.kind == Kind::Semaphore;
        let limit = self.random.in_thousand(450).then(|| self.clock.now() + self.random.between(500, 60_000));
        let extends = ask.epoch;
        let takes_over = ask.claim.request.is_some() && extends.is_none() && self.random.in_thousand(500);
        let again = takes_over.then(|| (resource.clone(), ask.clone()));
        let wait = Wait::new(resource.clone(), ask, POLL);
        let request = wait.request();
        let waiter = Waiter { wait, resource, limit, repeatable, extends, stalled: false, answered: Lease(0), again };
        self.send_of_client(slot, Purpose::Wait(Box::new(waiter)), request);
    }

    fn some_weight(&mut self, kind: Kind) -> u32 {
        match (kind, self.random.below(100)) {
            (Kind::Lock, _) | (Kind::Semaphore, 0..60) => 1,
            (Kind::Semaphore, 60..85) => 2,
            (Kind::Semaphore, 85..97) => 3,
            (Kind::Semaphore, 97..99) => 9,
            (Kind::Semaphore, _) => 0,
        }
    }

    fn grant_request(
        &mut self,
        slot: usize,
        resource: &Resource,
        holder: HolderId,
        ancestors: Vec<HolderId>,
        weight: u32,
    ) -> GrantRequest {
        self.locks.asked_for.push(vec![resource.clone()]);
        let number = self.locks.asked_for.len();
        let (bound, leased) = match self.random.below(100) {
            0..40 => (true, false),
            40..70 => (true, true),
            _ => (false, self.random.in_thousand(700)),
        };
        let request = match self.random.below(100) {
            // Now and then a request uses an id that another one has used before.
            0..3 => {
                let other = self.random.below(number) + 1;
                let uses = &mut self.locks.asked_for[other - 1];
                (!uses.contains(resource)).then(|| {
                    uses.push(resource.clone());
                    other
                })
            }
            3..70 => Some(number),
            _ => None,
        };
        GrantRequest {
            holder,
            ancestors,
            weight,
            ttl: leased.then(|| Span::from_ms(self.random.between(2_000, 20_000))),
            max_hold: self.random.in_thousand(150).then(|| Span::from_ms(self.random.between(3_000, 20_000))),
            processes: if bound { self.bound_to(slot) } else { Vec::new() },
            metadata: Some(Value::from(number)),
            request: request.map(|number| RequestId::new(&format!("r{number}")).expect("a good name")),
        }
    }

    /// The process itself, and sometimes the command that it runs.
    fn bound_to(&mut self, slot: usize) -> Vec<ProcessId> {
        let with_child = self.random.in_thousand(250);
        let process = &self.locks.clients[slot];
        std::iter::once(&process.id).chain(with_child.then_some(&process.child)).cloned().collect()
    }

    fn odd_job(&mut self, slot: usize) {
        let resource = self.random.pick(&self.locks.resources).clone();
        let request = match self.random.below(10) {
            0..2 => self.force_lock(slot, &resource),
            2..6 => {
                let capacity = u32::try_from(self.random.between(1, i64::from(TOP_CAPACITY))).expect("small");
                Some(self.define_lock(&resource, capacity))
            }
            6..9 => Some(self.reap_seen(slot, &resource)),
            _ => {
                let kind = CustomKind::new("sim:note").expect("a good kind");
                let source = Source { component: "sim".into(), id: None };
                Some(Request::Emit(Event::Custom { kind, source, data: Value::from(self.locks.asked_for.len()) }))
            }
        };
        match request {
            Some(request) => self.send_of_client(slot, Purpose::OddJob, request),
            None => self.rest_client(slot),
        }
    }

    fn force_lock(&mut self, slot: usize, resource: &Resource) -> Option<Request> {
        let by = Forced { user: "root".into(), host: "host".into(), pid: self.locks.clients[slot].id.pid };
        let name = resource.name.clone();
        match resource.kind {
            Kind::Lock => Some(Request::plain(Command::Lock(name, lock::Input::Force { by }))),
            Kind::Semaphore => {
                let holders: Vec<HolderId> = self.locks.ledger.account(resource).holders.keys().cloned().collect();
                let holder = (!holders.is_empty()).then(|| self.random.pick(&holders).clone())?;
                Some(Request::plain(Command::Semaphore(name, semaphore::Input::Force { holder, by })))
            }
        }
    }

    pub(crate) fn define_lock(&mut self, resource: &Resource, capacity: u32) -> Request {
        let ttl = self.random.in_thousand(300).then(|| Span::from_ms(self.random.between(3_000, 20_000)));
        let name = resource.name.clone();
        Request::plain(match resource.kind {
            Kind::Lock => {
                let max_hold = self.random.in_thousand(200).then(|| Span::from_ms(self.random.between(5_000, 20_000)));
                Command::Lock(name, lock::Input::Define(lock::Config { ttl, max_hold }))
            }
            Kind::Semaphore => Command::Semaphore(name, semaphore::Input::Define(semaphore::Config { capacity, ttl })),
        })
    }

    /// Reaps a resource, with probes of all its holders and waiters.
    pub(crate) fn reap_seen(&mut self, slot: usize, resource: &Resource) -> Request {
        let account = self.locks.ledger.account(resource);
        let bound = account.holders.values().flat_map(|holding| &holding.claim.processes);
        let mut processes: Vec<_> = bound.chain(account.waiters.iter().map(|place| &place.process)).cloned().collect();
        processes.sort();
        processes.dedup();
        let probes = processes.into_iter().map(|process| (process.clone(), self.probe(slot, &process))).collect();
        reap(resource, Seen { probes, patience: Span::ZERO })
    }
}

/// A request that ends by itself: without a process it has a lease.
fn asking(claim: GrantRequest, epoch: Option<Epoch>) -> Ask {
    let term = Term::Usual((claim.processes.is_empty() && claim.ttl.is_none()).then_some(Span::from_secs(10)));
    Ask { term, epoch, ..Ask::new(claim) }
}

pub(crate) fn reap(resource: &Resource, seen: Seen) -> Request {
    let name = resource.name.clone();
    let command = match resource.kind {
        Kind::Lock => Command::Lock(name, lock::Input::Reap),
        Kind::Semaphore => Command::Semaphore(name, semaphore::Input::Reap),
    };
    Request::Coordinate { command, seen }
}
