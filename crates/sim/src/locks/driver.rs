//! The simulator's driver of a wait: the same steps as the real driver, in virtual time.

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::grant::Waiting;
use banksman_core::{Epoch, Liveness, ProcessId, Span};
use banksman_engine::{Reply, Request, WaitAction};

use super::client::{Doing, Hold, Purpose, Waiter};
use super::ledger::Stall;
use crate::clock::Ms;
use crate::commit::{Heard, InFlight, Sender};
use crate::format::{Answer, Asked, answer, asked};
use crate::report::Checker;
use crate::world::World;

/// A timer that fires later than this was not just scheduled late, as in the real driver.
const STALL: Ms = 1_000;

impl World<'_> {
    pub(crate) fn send_of_client(&mut self, slot: usize, purpose: Purpose, request: Request) {
        self.locks.clients[slot].doing = Doing::Calling(purpose);
        self.calls.push(InFlight { from: Sender::Client(slot), requests: vec![request] });
    }

    /// Carries out the actions of a wait until it has to wait for something.
    pub(crate) fn follow_action_of_client(&mut self, slot: usize, mut waiter: Box<Waiter>, mut action: WaitAction) {
        loop {
            action = match action {
                WaitAction::Ask => {
                    let request = waiter.wait.request();
                    return self.send_of_client(slot, Purpose::Wait(waiter), request);
                }
                WaitAction::Probe(processes) => {
                    let found: Vec<_> = processes.into_iter().map(|process| (self.probe(slot, &process), process)).collect();
                    waiter.wait.probed(found.into_iter().map(|(liveness, process)| (process, liveness)))
                }
                WaitAction::Done(reply) => return self.end_wait(slot, &waiter, &reply),
                WaitAction::Sleep { watch, at_most, waiting } => {
                    let now = self.clock.now();
                    self.check_sleep(slot, &waiter, &waiting, &watch, at_most);
                    if waiter.limit.is_some_and(|limit| limit <= now) {
                        return self.leave_waiters(slot, &waiter);
                    }
                    // Rounded up, so that a deadline has passed when the sleeper checks it.
                    let due = now + at_most.as_ms() + 1;
                    let until = waiter.limit.map_or(due, |limit| limit.min(due));
                    self.locks.clients[slot].doing = Doing::Sleeping { waiter, watch, until, due, place: waiting.place };
                    return;
                }
            };
        }
    }

    /// The first waiter must notice what can end its wait: the death of a holder that it can see, and the end of a
    /// lease. After a stall it may take longer.
    fn check_sleep(&mut self, slot: usize, waiter: &Waiter, waiting: &Waiting, watch: &[ProcessId], at_most: Span) {
        let (resource, lease) = (&waiter.resource, waiter.answered);
        let account = self.locks.ledger.account(resource);
        if waiting.place != 1 || account.place(waiting.ticket).is_none() {
            return;
        }
        // Others may have acted since the reply was given; the next poll shows that.
        let reported = waiting.blocked.holders.iter().map(|grant| (grant.epoch, grant.heartbeat.lease, grant.offer.is_some()));
        let fresh = reported.eq(account.holders.values().map(|holding| (holding.epoch, holding.heard, holding.offer.is_some())));
        let bound =
            account.holders.values().filter(|holding| holding.offer.is_none()).flat_map(|holding| &holding.claim.processes);
        let unwatched: Vec<ProcessId> = bound.filter(|process| !watch.contains(process)).cloned().collect();
        let deadline = account.holders.values().filter_map(|holding| holding.deadline()).min();
        let unwatched = unwatched.iter().find(|process| self.probe(slot, process) == Liveness::Alive);
        self.verdict.expect(Checker::Waiters, unwatched.is_none() || !fresh, || {
            format!("the first in line for {resource} does not watch {unwatched:?}")
        });
        let late = deadline.is_some_and(|deadline| lease + at_most > deadline.max(lease)) && !waiter.stalled;
        self.verdict.expect(Checker::Waiters, !late || !fresh, || {
            format!("the first in line for {resource} sleeps for {} ms from {lease:?} on, past {deadline:?}", at_most.as_ms())
        });
    }

    /// What a process sees when it probes another one.
    pub(crate) fn probe(&self, slot: usize, process: &ProcessId) -> Liveness {
        self.machine.probe_from(&self.locks.clients[slot].id, process)
    }

    /// Whether a sleeping process has a reason to wake.
    pub(crate) fn client_is_due(&self, slot: usize) -> bool {
        let process = &self.locks.clients[slot];
        match &process.doing {
            Doing::Backoff { until } => *until <= self.clock.now(),
            Doing::Sleeping { watch, until, .. } => {
                process.mailbox || *until <= self.clock.now() || watch.iter().any(|other| !self.machine.lives(other))
            }
            Doing::Calling(_) | Doing::Finished => false,
        }
    }

    /// Wakes a sleeping process: the same order of reasons as in the real driver.
    pub(crate) fn wake_client(&mut self, slot: usize) {
        let now = self.clock.now();
        let Doing::Sleeping { mut waiter, watch, until, due, place } = self.take_doing(slot) else {
            unreachable!("only a sleeping process wakes")
        };
        let action = if std::mem::take(&mut self.locks.clients[slot].mailbox) {
            WaitAction::Ask
        } else if let Some(dead) = watch.into_iter().find(|other| !self.machine.lives(other)) {
            waiter.wait.probed([(dead, Liveness::Dead)])
        } else if now - until > STALL {
            waiter.wait.stalled(Span::from_ms(now - until));
            waiter.stalled = true;
            self.tally.count("stalls noticed");
            if place == 1 && waiter.resource.kind == Kind::Lock {
                let stall = Stall { resource: waiter.resource.clone(), asleep: waiter.answered, late: now - until };
                self.locks.ledger.stalls.insert(self.locks.clients[slot].id.clone(), stall);
            }
            WaitAction::Ask
        } else if now < due {
            waiter.wait.probed([])
        } else {
            WaitAction::Ask
        };
        self.follow_action_of_client(slot, waiter, action);
    }

    pub(crate) fn leave_waiters(&mut self, slot: usize, waiter: &Waiter) {
        match waiter.wait.leave() {
            Some(request) => self.send_of_client(slot, Purpose::Leave, request),
            None => self.rest_client(slot),
        }
    }

    fn take_doing(&mut self, slot: usize) -> Doing {
        std::mem::replace(&mut self.locks.clients[slot].doing, Doing::Finished)
    }

    /// A process receives the reply to its call.
    pub(crate) fn on_client_reply(&mut self, slot: usize, call: &InFlight, heard: Heard) {
        let request = &call.requests[0];
        if let (Sender::Heart(_), Request::Coordinate { command, .. }) = (call.from, request) {
            let Asked::Heartbeat(_, Some(epoch)) = asked(command) else { return };
            return self.on_heartbeat_reply(slot, &command.resource(), epoch, heard);
        }
        match self.take_doing(slot) {
            Doing::Calling(purpose) => self.on_main_reply(slot, purpose, request, heard),
            other => self.locks.clients[slot].doing = other,
        }
    }

    fn on_heartbeat_reply(&mut self, slot: usize, resource: &Resource, epoch: Epoch, heard: Heard) {
        let now = self.clock.now();
        let extended = match heard {
            Heard::Unknown => None,
            Heard::Replies(replies) => match replies.first() {
                Some(Reply::Coordinate { outcome, .. }) => Some(matches!(answer(outcome), Answer::Extended(_))),
                _ => Some(false),
            },
        };
        let process = &mut self.locks.clients[slot];
        match extended {
            Some(false) => process.forget(resource, epoch),
            Some(true) => {
                if let Some(hold) = process.hold(resource, epoch) {
                    hold.beat_at = Some(now + hold.beat_every);
                }
            }
            None => {
                if let Some(hold) = process.hold(resource, epoch) {
                    hold.beat_at = Some(now);
                }
            }
        }
    }

    fn on_main_reply(&mut self, slot: usize, purpose: Purpose, request: &Request, heard: Heard) {
        let reply = match heard {
            Heard::Replies(replies) => replies.into_iter().next().expect("one request has one reply"),
            Heard::Unknown => {
                if matches!(&purpose, Purpose::Wait(waiter) if !waiter.repeatable) {
                    // Asking again could wait behind itself. A process without a request id can only exit.
                    self.note_client(slot, format_args!("gives up, not knowing what it holds"));
                    self.tally.count("gave up unknowing");
                    return self.end_client(slot);
                }
                return self.send_of_client(slot, purpose, request.clone());
            }
        };
        match purpose {
            Purpose::Wait(mut waiter) => {
                if let Reply::Coordinate { at, .. } = &reply {
                    waiter.answered = at.lease;
                }
                let action = waiter.wait.answer(reply);
                self.follow_action_of_client(slot, waiter, action);
            }
            Purpose::Release { resource, epoch } => {
                self.locks.clients[slot].forget(&resource, epoch);
                self.rest_client(slot);
            }
            Purpose::Leave | Purpose::OddJob => self.rest_client(slot),
        }
    }

    /// Ends an acquisition.
    fn end_wait(&mut self, slot: usize, waiter: &Waiter, reply: &Reply) {
        let now = self.clock.now();
        self.rest_client(slot);
        let Reply::Coordinate { outcome, .. } = reply else { return };
        match answer(outcome) {
            Answer::Acquired(grant) | Answer::Extended(grant) => {
                let (until, careful) = (now + self.random.between(100, 12_000), self.random.in_thousand(750));
                let beat_every = grant.claim.ttl.map_or(Ms::MAX, |ttl| ttl.as_ms() / 3);
                let process = &mut self.locks.clients[slot];
                if let Some(hold) = process.hold(&waiter.resource, grant.epoch) {
                    (hold.weight, hold.until) = (grant.claim.weight, until);
                    return;
                }
                process.holds.push(Hold {
                    resource: waiter.resource.clone(),
                    holder: grant.claim.holder.clone(),
                    epoch: grant.epoch,
                    weight: grant.claim.weight,
                    until,
                    beat_at: (careful && grant.claim.ttl.is_some()).then(|| now + beat_every),
                    beat_every,
                });
            }
            Answer::Deadlock(_) => {
                // The way out of a deadlock is to release what one holds.
                self.locks.clients[slot].holds.iter_mut().for_each(|hold| hold.until = now);
            }
            Answer::Fenced(_) | Answer::NotOwner | Answer::AlreadyFree | Answer::Lost => {
                if let Some(epoch) = waiter.extends {
                    self.locks.clients[slot].forget(&waiter.resource, epoch);
                }
            }
            Answer::Waiting(_) | Answer::Gone | Answer::Left | Answer::Released | Answer::Other(_) => {}
        }
    }
}
