//! People: they add and change tasks, and use locks and slots of their own.

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::Command;
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::{HolderId, Name, ProcessId, Span};
use banksman_engine::Request;

use super::holds::{Hold, Place};
use super::outside::{COMMANDS, FILES};
use super::plans::define_queue;
use crate::clock::Ms;
use crate::commit::{InFlight, Sender};
use crate::world::World;

/// The most slots of a semaphore, and the most that one task needs.
pub(crate) const TOP_CAPACITY: u32 = 3;

/// A person at a shell.
pub(crate) struct User {
    pub(crate) process: ProcessId,
    next_at: Ms,
    pub(crate) calling: Option<Purpose>,
    pub(crate) holds: Vec<Hold>,
    pub(crate) place: Option<Place>,
    pub(crate) names: u32,
}

/// The purpose of a call, if the reply matters.
#[derive(Debug, Clone)]
pub(crate) enum Purpose {
    Hold(Resource, HolderId),
    Poll(Place),
    Leave(Place),
    Other,
}

impl User {
    pub(crate) fn is_due(&self, now: Ms) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    pub(crate) fn due(&self) -> Option<Ms> {
        let plans = self.holds.iter().map(|hold| hold.until).chain(self.place.as_ref().map(|place| place.poll_at));
        let next = plans.chain([self.next_at]).min();
        next.filter(|_| self.calling.is_none())
    }
}

/// The resources that people hold and tasks need.
pub(crate) fn resources() -> Vec<Resource> {
    let named = |kind, name| Resource { kind, name: Name::new(name).expect("a good name") };
    vec![
        named(Kind::Lock, "la"),
        named(Kind::Lock, "lb"),
        named(Kind::Semaphore, "sa"),
        named(Kind::Semaphore, "sb"),
        // Never defined.
        named(Kind::Semaphore, "nowhere"),
    ]
}

/// Defines a resource with its capacity, and the lease of a manual holder without a heartbeat. Grants of runs have no
/// lease.
pub(crate) fn define(resource: &Resource, capacity: u32) -> Request {
    let (name, ttl) = (resource.name.clone(), Some(Span::from_secs(5)));
    Request::plain(match resource.kind {
        Kind::Lock => Command::Lock(name, lock::Input::Define(lock::Config { ttl, max_hold: Some(Span::from_secs(20)) })),
        Kind::Semaphore => Command::Semaphore(name, semaphore::Input::Define(semaphore::Config { capacity, ttl })),
    })
}

impl World<'_> {
    /// People, sections, semaphores, the first tasks, and the first runners.
    pub(crate) fn set_up(&mut self) {
        for _ in 0..1 + self.random.below(2) {
            let process = self.machine.fork();
            self.users.push(User { process, next_at: 0, calling: None, holds: Vec::new(), place: None, names: 0 });
        }
        for resource in &resources()[..4] {
            if self.random.in_thousand(800) {
                self.operate(define(resource, TOP_CAPACITY));
            }
        }
        for _ in 0..self.random.below(4) {
            let request = self.add_section();
            self.operate(request);
        }
        for _ in 0..2 + self.random.below(12) {
            let request = self.add_task();
            self.operate(request);
        }
        for file in FILES {
            let is_there = self.random.in_thousand(600);
            self.outside.files.insert(file.into(), is_there);
        }
        for command in COMMANDS {
            let works = self.random.in_thousand(600);
            self.outside.commands.insert(command.into(), Some(works));
        }
        self.operate(define_queue());
        for _ in 0..self.random.below(4) {
            let request = self.start_pipeline(None);
            self.operate(request);
        }
        if self.has_workers {
            self.set_up_workers();
        }
        for slot in 0..1 + self.random.below(3) {
            let options = self.runner_options();
            self.start_runner(slot, options);
        }
    }

    /// A caller outside of the simulation, without faults.
    pub(crate) fn operate(&mut self, request: Request) {
        if let Some((_, wakes)) = self.commit(&[InFlight { from: Sender::Nobody, requests: vec![request] }]) {
            wakes.iter().for_each(|address| self.wake_now(address));
        }
    }

    /// A person acts.
    pub(crate) fn act(&mut self, index: usize) {
        let now = self.clock.now();
        let pause = if self.random.in_thousand(300) { self.random.between(0, 20) } else { self.random.between(20, 6_000) };
        if let Some(at) = self.users[index].holds.iter().position(|hold| hold.until <= now) {
            let hold = self.users[index].holds.remove(at);
            return self.give_back(index, &hold);
        }
        if let Some(place) = self.users[index].place.take_if(|place| place.poll_at <= now) {
            return self.poll_or_leave(index, place);
        }
        self.users[index].next_at = now + pause;
        if self.random.in_thousand(220) {
            return self.take(index);
        }
        if self.random.in_thousand(120) && self.answer(index) {
            return;
        }
        if let Some(request) = self.set_limits() {
            return self.ask_for(index, Purpose::Other, request);
        }
        if let Some(request) = self.some_pause() {
            return self.ask_for(index, Purpose::Other, request);
        }
        if let Some(request) = self.some_request() {
            self.ask_for(index, Purpose::Other, request);
        }
    }

    pub(crate) fn ask_for(&mut self, index: usize, purpose: Purpose, request: Request) {
        self.users[index].calling = Some(purpose);
        self.calls.push(InFlight { from: Sender::User(index), requests: vec![request] });
    }

    /// The shell exits; another one is opened.
    pub(crate) fn restart_user(&mut self, index: usize) {
        let process = self.users[index].process.clone();
        self.machine.exit(&process);
        self.calls.retain(|call| call.from != Sender::User(index));
        let next_at = self.clock.now() + self.random.between(10, 3_000);
        let process = self.machine.fork();
        self.users[index] = User { process, next_at, calling: None, holds: Vec::new(), place: None, names: 0 };
    }

    pub(crate) fn kill_user(&mut self, index: usize) {
        self.tally.count("fault: shell killed");
        self.say(format_args!("the shell of user {index} is killed"));
        self.restart_user(index);
    }

    /// All people leave. Everything bound to their shells ends with them.
    pub(crate) fn send_users_home(&mut self) {
        for user in std::mem::take(&mut self.users) {
            self.machine.exit(&user.process);
        }
        self.calls.retain(|call| !matches!(call.from, Sender::User(_)));
    }
}
