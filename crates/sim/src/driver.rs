//! The simulator's driver of a wait: the same steps as the real one takes, in virtual time.

use banksman_core::event::Resource;
use banksman_core::{Epoch, Liveness, ProcessId, Span};
use banksman_engine::{Advice, Reply, Request};

use crate::clock::Ms;
use crate::process::{Doing, Errand, Heard, Hold, InFlight, Part, Waiter, lives};
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
                Advice::Sleep { watch, at_most, .. } => {
                    let now = self.clock.now();
                    if waiter.limit.is_some_and(|limit| limit <= now) {
                        return self.leave(slot, &waiter);
                    }
                    // Rounded up, so that what is due has come when the sleeper looks.
                    let due = now + at_most.as_ms() + 1;
                    let until = waiter.limit.map_or(due, |limit| limit.min(due));
                    self.processes[slot].doing = Doing::Sleeping { waiter, watch, until, due };
                    return;
                }
            };
        }
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
            Doing::Resting { until } => *until <= self.clock.now(),
            Doing::Sleeping { watch, until, .. } => {
                process.mailbox || *until <= self.clock.now() || watch.iter().any(|other| !lives(&self.processes, other))
            }
            Doing::Calling(_) | Doing::Finished => false,
        }
    }

    /// A sleeper gets up: the same order of reasons as in the real driver.
    pub(crate) fn get_up(&mut self, slot: usize) {
        let now = self.clock.now();
        let Doing::Sleeping { mut waiter, watch, until, due } = self.take_doing(slot) else {
            unreachable!("only a sleeper gets up")
        };
        let advice = if std::mem::take(&mut self.processes[slot].mailbox) {
            Advice::Ask
        } else if let Some(dead) = watch.into_iter().find(|other| !lives(&self.processes, other)) {
            waiter.wait.probed([(dead, Liveness::Dead)])
        } else if now - until > STALL {
            waiter.wait.stalled(Span::from_ms(now - until));
            self.tally.count("stalls noticed");
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
