//! People: they hand over tasks, change their minds, and hold locks and slots by hand.

use banksman_core::claim::{Ask, Claim};
use banksman_core::coordination::{Command, Outcome};
use banksman_core::event::{Kind, Resource};
use banksman_core::{Epoch, HolderId, Name, ProcessId, Span, lock, semaphore};
use banksman_engine::{Reply, Request};

use super::desk::{InFlight, Sender};
use super::runner::HeardAll;
use super::world::World;
use crate::clock::Ms;

/// The most slots of a semaphore, and the most that one task needs.
pub(crate) const TOP_CAPACITY: u32 = 3;

/// A person at a shell.
pub(crate) struct User {
    process: ProcessId,
    next_at: Ms,
    calling: Option<Wish>,
    holds: Vec<Hold>,
    names: u32,
}

#[derive(Debug, Clone)]
struct Hold {
    resource: Resource,
    holder: HolderId,
    epoch: Epoch,
    until: Ms,
}

/// What a call is for, if the answer matters.
#[derive(Debug, Clone)]
enum Wish {
    Hold(Resource, HolderId),
    Other,
}

impl User {
    pub(crate) fn is_due(&self, now: Ms) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    pub(crate) fn due(&self) -> Option<Ms> {
        let next = self.holds.iter().map(|hold| hold.until).chain([self.next_at]).min();
        next.filter(|_| self.calling.is_none())
    }
}

/// What is to be had by hand, and needed by tasks.
pub(crate) fn resources() -> Vec<Resource> {
    let named = |kind, name| Resource { kind, name: Name::new(name).expect("a good name") };
    vec![
        named(Kind::Lock, "la"),
        named(Kind::Lock, "lb"),
        named(Kind::Semaphore, "sa"),
        named(Kind::Semaphore, "sb"),
        // Nobody ever defines this one.
        named(Kind::Semaphore, "nowhere"),
    ]
}

pub(crate) fn define(resource: &Resource, capacity: u32) -> Request {
    let config = semaphore::Config { capacity, ttl: None };
    Request::plain(Command::Semaphore(resource.name.clone(), semaphore::Input::Define(config)))
}

impl World<'_> {
    /// People, sections, semaphores, the first tasks, and the first runners.
    pub(crate) fn set_up(&mut self) {
        for _ in 0..1 + self.random.below(2) {
            let process = self.machine.fork();
            self.users.push(User { process, next_at: 0, calling: None, holds: Vec::new(), names: 0 });
        }
        for resource in &resources()[2..4] {
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
        for slot in 0..1 + self.random.below(3) {
            let told = self.orders();
            self.start_runner(slot, told);
        }
    }

    /// Somebody outside of the simulation calls; nothing goes wrong with that.
    pub(crate) fn operate(&mut self, request: Request) {
        if let Some((_, wakes)) = self.commit(&[InFlight { from: Sender::Nobody, requests: vec![request] }]) {
            wakes.iter().for_each(|address| self.ring(address));
        }
    }

    /// A person does something.
    pub(crate) fn act(&mut self, index: usize) {
        let now = self.clock.now();
        let pause = if self.random.in_thousand(300) { self.random.between(0, 20) } else { self.random.between(20, 6_000) };
        if let Some(at) = self.users[index].holds.iter().position(|hold| hold.until <= now) {
            let hold = self.users[index].holds.remove(at);
            return self.ask_for(index, Wish::Other, release(&hold));
        }
        self.users[index].next_at = now + pause;
        if self.random.in_thousand(220) {
            return self.take(index);
        }
        if let Some(request) = self.wish() {
            self.ask_for(index, Wish::Other, request);
        }
    }

    fn ask_for(&mut self, index: usize, wish: Wish, request: Request) {
        self.users[index].calling = Some(wish);
        self.calls.push(InFlight { from: Sender::User(index), requests: vec![request] });
    }

    /// Takes a lock or slots by hand: for as long as the shell lives, or for a time.
    fn take(&mut self, index: usize) {
        let all = resources();
        let resource = self.random.pick(&all[..4]).clone();
        let user = &mut self.users[index];
        user.names += 1;
        let holder = HolderId::new(&format!("u{}.{}", user.process.start, user.names)).expect("a good name");
        let bound = self.random.in_thousand(600);
        let claim = Claim {
            holder: holder.clone(),
            ancestors: Vec::new(),
            weight: if resource.kind == Kind::Lock { 1 } else { 1 + u32::from(self.random.in_thousand(400)) },
            ttl: (!bound).then(|| Span::from_ms(self.random.between(1_000, 15_000))),
            max_hold: None,
            processes: if bound { vec![self.users[index].process.clone()] } else { Vec::new() },
            metadata: None,
            request: None,
        };
        let ask = Box::new(Ask { claim, fallback_ttl: None, epoch: None, granted_before: None, wait: None });
        let command = match resource.kind {
            Kind::Lock => Command::Lock(resource.name.clone(), lock::Input::Acquire(ask)),
            Kind::Semaphore => Command::Semaphore(resource.name.clone(), semaphore::Input::Acquire(ask)),
        };
        self.ask_for(index, Wish::Hold(resource, holder), Request::plain(command));
    }

    /// A person hears what came of it.
    pub(crate) fn user_hears(&mut self, index: usize, heard: &HeardAll) {
        let wish = self.users[index].calling.take();
        let (Some(Wish::Hold(resource, holder)), HeardAll::Replies(replies)) = (wish, heard) else { return };
        let epoch = match replies.first() {
            Some(Reply::Coordinate { outcome: Outcome::Lock(outcome), .. }) => match outcome {
                lock::Outcome::Acquired(grant) | lock::Outcome::Reclaimed { grant, .. } => grant.epoch,
                _ => return,
            },
            Some(Reply::Coordinate { outcome: Outcome::Semaphore(semaphore::Outcome::Acquired(grant)), .. }) => grant.epoch,
            _ => return,
        };
        self.tally.count("held by hand");
        let until = self.clock.now() + self.random.between(50, 12_000);
        self.users[index].holds.push(Hold { resource, holder, epoch, until });
    }

    /// The shell is gone; another one is opened.
    pub(crate) fn restart_user(&mut self, index: usize) {
        let process = self.users[index].process.clone();
        self.machine.exit(&process);
        self.calls.retain(|call| call.from != Sender::User(index));
        let next_at = self.clock.now() + self.random.between(10, 3_000);
        let process = self.machine.fork();
        self.users[index] = User { process, next_at, calling: None, holds: Vec::new(), names: 0 };
    }

    pub(crate) fn kill_user(&mut self, index: usize) {
        self.tally.count("fault: shell killed");
        self.say(format_args!("the shell of user {index} is killed"));
        self.restart_user(index);
    }

    /// Everybody goes home. What is bound to their shells ends with them.
    pub(crate) fn send_users_home(&mut self) {
        for user in std::mem::take(&mut self.users) {
            self.machine.exit(&user.process);
        }
        self.calls.retain(|call| !matches!(call.from, Sender::User(_)));
    }
}

fn release(hold: &Hold) -> Request {
    let (name, holder, epoch) = (hold.resource.name.clone(), hold.holder.clone(), hold.epoch);
    Request::plain(match hold.resource.kind {
        Kind::Lock => Command::Lock(name, lock::Input::Release { holder, epoch }),
        Kind::Semaphore => Command::Semaphore(name, semaphore::Input::Release { holder, epoch: Some(epoch) }),
    })
}
