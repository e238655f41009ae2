//! Manual holds of people: they take locks and slots, wait for them, and release them, or die with them.

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::{Command, Outcome};
use banksman_core::resource::grant::{Ask, GrantRequest, WaitingProcess};
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::{Epoch, HolderId, Span, Ticket};
use banksman_engine::{Reply, Request};

use super::users::{Purpose, resources};
use crate::clock::Ms;
use crate::commit::Heard;
use crate::world::World;

/// A resource that a person holds.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) until: Ms,
    resource: Resource,
    holder: HolderId,
    epoch: Epoch,
}

/// A position among the waiters of a resource.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) resource: Resource,
    pub(crate) poll_at: Ms,
    holder: HolderId,
    ticket: Ticket,
    give_up_at: Ms,
}

enum Taken {
    Held(Epoch),
    InLine(Ticket),
    Nothing,
}

impl World<'_> {
    /// Takes a lock or slots manually: for as long as the shell is alive, or for a time.
    pub(crate) fn take(&mut self, index: usize) {
        let all = resources();
        let resource = self.random.pick(&all[..4]).clone();
        let user = &mut self.users[index];
        user.names += 1;
        let holder = HolderId::new(&format!("u{}.{}", user.process.start, user.names)).expect("a good name");
        let process = user.process.clone();
        let bound = self.random.in_thousand(600);
        let waits = self.users[index].place.is_none() && self.random.in_thousand(400);
        let claim = GrantRequest {
            weight: if resource.kind == Kind::Lock { 1 } else { 1 + u32::from(self.random.in_thousand(400)) },
            ttl: (!bound).then(|| Span::from_ms(self.random.between(1_000, 15_000))),
            processes: if bound { vec![process.clone()] } else { Vec::new() },
            ..GrantRequest::new(holder.clone())
        };
        let wait = waits.then_some(WaitingProcess { process, address: None, lease: None });
        let ask = Box::new(Ask { wait, ..Ask::new(claim) });
        let command = match resource.kind {
            Kind::Lock => Command::Lock(resource.name.clone(), lock::Input::Acquire(ask)),
            Kind::Semaphore => Command::Semaphore(resource.name.clone(), semaphore::Input::Acquire(ask)),
        };
        self.ask_for(index, Purpose::Hold(resource, holder), Request::plain(command));
    }

    /// A waiting person polls, or gives up.
    pub(crate) fn poll_or_leave(&mut self, index: usize, place: Place) {
        let (name, ticket) = (place.resource.name.clone(), place.ticket);
        let leaves = self.clock.now() >= place.give_up_at;
        let command = match (place.resource.kind, leaves) {
            (Kind::Lock, false) => Command::Lock(name, lock::Input::Poll { ticket }),
            (Kind::Lock, true) => Command::Lock(name, lock::Input::Leave { ticket }),
            (Kind::Semaphore, false) => Command::Semaphore(name, semaphore::Input::Poll { ticket }),
            (Kind::Semaphore, true) => Command::Semaphore(name, semaphore::Input::Leave { ticket }),
        };
        let purpose = if leaves { Purpose::Leave(place) } else { Purpose::Poll(place) };
        self.ask_for(index, purpose, Request::plain(command));
    }

    pub(crate) fn give_back(&mut self, index: usize, hold: &Hold) {
        let (name, holder, epoch) = (hold.resource.name.clone(), hold.holder.clone(), hold.epoch);
        let command = match hold.resource.kind {
            Kind::Lock => Command::Lock(name, lock::Input::Release { holder, epoch }),
            Kind::Semaphore => Command::Semaphore(name, semaphore::Input::Release { holder, epoch: Some(epoch) }),
        };
        self.ask_for(index, Purpose::Other, Request::plain(command));
    }

    /// A person receives the reply.
    pub(crate) fn on_user_reply(&mut self, index: usize, heard: &Heard) {
        let Some(purpose) = self.users[index].calling.take() else { return };
        let now = self.clock.now();
        match (purpose, heard) {
            (Purpose::Hold(resource, holder), Heard::Replies(replies)) => {
                let give_up_at = now + self.random.between(1_000, 20_000);
                self.take_or_wait(
                    index,
                    &taken(replies),
                    Place { resource, holder, ticket: Ticket(0), poll_at: now, give_up_at },
                );
            }
            (Purpose::Poll(place), Heard::Replies(replies)) => self.take_or_wait(index, &taken(replies), place),
            // The person asks again.
            (Purpose::Poll(place) | Purpose::Leave(place), Heard::Unknown) => self.users[index].place = Some(place),
            (Purpose::Hold(..), Heard::Unknown) | (Purpose::Leave(_) | Purpose::Other, _) => {}
        }
    }

    fn take_or_wait(&mut self, index: usize, taken: &Taken, place: Place) {
        let now = self.clock.now();
        match taken {
            Taken::Held(epoch) => {
                self.tally.count("held by hand");
                let until = now + self.random.between(50, 12_000);
                let Place { resource, holder, .. } = place;
                self.users[index].holds.push(Hold { resource, holder, epoch: *epoch, until });
            }
            Taken::InLine(ticket) => {
                self.tally.count("looks from a line");
                let poll_at = now + self.random.between(100, 3_000);
                self.users[index].place = Some(Place { ticket: *ticket, poll_at, ..place });
            }
            Taken::Nothing => {}
        }
    }

    /// Whether a living person waits for it.
    pub(crate) fn is_waited_for(&self, resource: &Resource) -> bool {
        self.users.iter().any(|user| {
            let calling = match &user.calling {
                Some(Purpose::Poll(place) | Purpose::Leave(place)) => Some(&place.resource),
                Some(Purpose::Hold(resource, _)) => Some(resource),
                Some(Purpose::Other) | None => None,
            };
            calling.or(user.place.as_ref().map(|place| &place.resource)) == Some(resource)
        })
    }
}

fn taken(replies: &[Reply]) -> Taken {
    let Some(Reply::Coordinate { outcome, .. }) = replies.first() else { return Taken::Nothing };
    match outcome {
        Outcome::Lock(lock::Outcome::Acquired(grant) | lock::Outcome::Reclaimed { grant, .. })
        | Outcome::Semaphore(semaphore::Outcome::Acquired(grant)) => Taken::Held(grant.epoch),
        Outcome::Lock(lock::Outcome::Waiting(waiting)) | Outcome::Semaphore(semaphore::Outcome::Waiting(waiting)) => {
            Taken::InLine(waiting.ticket)
        }
        _ => Taken::Nothing,
    }
}
