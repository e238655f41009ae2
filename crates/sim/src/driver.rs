//! The simulator's driver of a wait: the same steps as the real one takes, in virtual time.

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::grant::Waiting;
use banksman_core::{Epoch, Liveness, ProcessId, Span};
use banksman_engine::{Advice, Reply, Request};

use crate::clock::Ms;
use crate::ledger::Stall;
use crate::process::{Doing, Errand, Heard, Hold, InFlight, Part, Waiter, lives};
use crate::report::Checker;
use crate::words::{Answer, answer};
use crate::world::World;

/// A timer that fires later than this was not just scheduled late, as in the real driver.
const STALL: Ms = 1_000;

impl World<'_> {
    /// Sends a call.
    pub(crate) fn send(&mut self, slot: usize, part: Part, request: Request) {
        self.calls.push(InFlight { slot, part, request });
    }

    pub(crate) fn call(&mut self, slot: usize, errand: Errand, request: Request) {
        self.processes[slot].doing = Doing::Calling(errand);
        self.send(slot, Part::Main, request);
    }

    /// Does what a wait advises, until it must be waited for something.
    pub(crate) fn follow(&mut self, slot: usize, mut waiter: Box<Waiter>, mut advice: Advice) {
        loop {
            advice = match advice {
                Advice::Ask => {
                    let request = waiter.wait.request();
                    return self.call(slot, Errand::Wait(waiter), request);
                }
                Advice::Probe(processes) => {
                    let found: Vec<_> = processes.into_iter().map(|process| (self.probe(slot, &process), process)).collect();
                    waiter.wait.probed(found.into_iter().map(|(liveness, process)| (process, liveness)))
                }
                Advice::Done(reply) => return self.finish(slot, &waiter, &reply),
                Advice::Sleep { watch, at_most, waiting } => {
                    let now = self.clock.now();
                    self.check_sleep(slot, &waiter, &waiting, &watch, at_most);
                    if waiter.limit.is_some_and(|limit| limit <= now) {
                        return self.leave(slot, &waiter);
                    }
                    // Rounded up, so that what is due has come when the sleeper looks.
                    let due = now + at_most.as_ms() + 1;
                    let until = waiter.limit.map_or(due, |limit| limit.min(due));
                    self.processes[slot].doing = Doing::Sleeping { waiter, watch, until, due, place: waiting.place };
                    return;
                }
            };
        }
    }

    /// The first in line must notice what can end its wait: the death of a holder that it can see, and the end of a
    /// lease. One that was stalled may take longer.
    fn check_sleep(&mut self, slot: usize, waiter: &Waiter, waiting: &Waiting, watch: &[ProcessId], at_most: Span) {
        let (resource, lease) = (&waiter.resource, waiter.answered);
        let account = self.ledger.account(resource);
        if waiting.place != 1 || account.place(waiting.ticket).is_none() {
            return;
        }
        // Others may have acted since the answer was given; then the next look tells.
        let told = waiting.blocked.holders.iter().map(|grant| (grant.epoch, grant.heartbeat.lease, grant.offer.is_some()));
        let fresh = told.eq(account.holders.values().map(|holding| (holding.epoch, holding.heard, holding.offer.is_some())));
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

    /// What a process finds when it looks at another one.
    pub(crate) fn probe(&self, slot: usize, process: &ProcessId) -> Liveness {
        let own = &self.processes[slot].id;
        if process.boot != own.boot {
            Liveness::OtherBoot
        } else if process.pid_ns != own.pid_ns {
            Liveness::Unknown
        } else if lives(&self.processes, process) {
            Liveness::Alive
        } else {
            Liveness::Dead
        }
    }

    /// Whether a sleeper has a reason to get up.
    pub(crate) fn is_due(&self, slot: usize) -> bool {
        let process = &self.processes[slot];
        match &process.doing {
            Doing::Backoff { until } => *until <= self.clock.now(),
            Doing::Sleeping { watch, until, .. } => {
                process.mailbox || *until <= self.clock.now() || watch.iter().any(|other| !lives(&self.processes, other))
            }
            Doing::Calling(_) | Doing::Finished => false,
        }
    }

    /// A sleeper gets up: the same order of reasons as in the real driver.
    pub(crate) fn get_up(&mut self, slot: usize) {
        let now = self.clock.now();
        let Doing::Sleeping { mut waiter, watch, until, due, place } = self.take_doing(slot) else {
            unreachable!("only a sleeper gets up")
        };
        let advice = if std::mem::take(&mut self.processes[slot].mailbox) {
            Advice::Ask
        } else if let Some(dead) = watch.into_iter().find(|other| !lives(&self.processes, other)) {
            waiter.wait.probed([(dead, Liveness::Dead)])
        } else if now - until > STALL {
            waiter.wait.stalled(Span::from_ms(now - until));
            waiter.stalled = true;
            self.tally.count("stalls noticed");
            if place == 1 && waiter.resource.kind == Kind::Lock {
                let stall = Stall { resource: waiter.resource.clone(), asleep: waiter.answered, late: now - until };
                self.ledger.stalls.insert(self.processes[slot].id.clone(), stall);
            }
            Advice::Ask
        } else if now < due {
            waiter.wait.probed([])
        } else {
            Advice::Ask
        };
        self.follow(slot, waiter, advice);
    }

    pub(crate) fn leave(&mut self, slot: usize, waiter: &Waiter) {
        match waiter.wait.leave() {
            Some(request) => self.call(slot, Errand::Leave, request),
            None => self.rest(slot),
        }
    }

    fn take_doing(&mut self, slot: usize) -> Doing {
        std::mem::replace(&mut self.processes[slot].doing, Doing::Finished)
    }

    /// A process hears what came of its call.
    pub(crate) fn hear(&mut self, slot: usize, call: &InFlight, heard: Heard) {
        match &call.part {
            Part::Heart(resource, epoch) => self.hear_heart(slot, resource, *epoch, heard),
            Part::Main => match self.take_doing(slot) {
                Doing::Calling(errand) => self.hear_main(slot, errand, &call.request, heard),
                other => self.processes[slot].doing = other,
            },
        }
    }

    fn hear_heart(&mut self, slot: usize, resource: &Resource, epoch: Epoch, heard: Heard) {
        let now = self.clock.now();
        let extended = match heard {
            Heard::Unknown => None,
            Heard::Reply(Reply::Coordinate { outcome, .. }) => Some(matches!(answer(&outcome), Answer::Extended(_))),
            Heard::Reply(_) => Some(false),
        };
        let process = &mut self.processes[slot];
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

    fn hear_main(&mut self, slot: usize, errand: Errand, request: &Request, heard: Heard) {
        let reply = match heard {
            Heard::Reply(reply) => reply,
            Heard::Unknown => {
                if matches!(&errand, Errand::Wait(waiter) if !waiter.repeatable) {
                    // Asking again could stand in line behind itself. Who has no request id can only end.
                    self.note(slot, format_args!("gives up, not knowing what it holds"));
                    self.tally.count("gave up unknowing");
                    return self.die(slot);
                }
                return self.call(slot, errand, request.clone());
            }
        };
        match errand {
            Errand::Wait(mut waiter) => {
                if let Reply::Coordinate { at, .. } = &reply {
                    waiter.answered = at.lease;
                }
                let advice = waiter.wait.answer(reply);
                self.follow(slot, waiter, advice);
            }
            Errand::Release { resource, epoch } => {
                self.processes[slot].forget(&resource, epoch);
                self.rest(slot);
            }
            Errand::Leave | Errand::OddJob => self.rest(slot),
        }
    }

    /// An acquisition has come to its end.
    fn finish(&mut self, slot: usize, waiter: &Waiter, reply: &Reply) {
        let now = self.clock.now();
        self.rest(slot);
        let Reply::Coordinate { outcome, .. } = reply else { return };
        match answer(outcome) {
            Answer::Acquired(grant) | Answer::Extended(grant) => {
                let (until, careful) = (now + self.random.between(100, 12_000), self.random.in_thousand(750));
                let beat_every = grant.claim.ttl.map_or(Ms::MAX, |ttl| ttl.as_ms() / 3);
                let process = &mut self.processes[slot];
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
                // The way out of a deadlock is to give back what one has.
                self.processes[slot].holds.iter_mut().for_each(|hold| hold.until = now);
            }
            Answer::Fenced(_) | Answer::NotOwner | Answer::AlreadyFree | Answer::Lost => {
                if let Some(epoch) = waiter.extends {
                    self.processes[slot].forget(&waiter.resource, epoch);
                }
            }
            Answer::Waiting(_) | Answer::Gone | Answer::Left | Answer::Released | Answer::Other(_) => {}
        }
    }
}
