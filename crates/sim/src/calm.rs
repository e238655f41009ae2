//! The end of a history: the faults stop, everybody finishes, and nobody may be left waiting.

use std::collections::BTreeSet;

use banksman_core::event::Kind;
use banksman_core::resource::lock::State;
use banksman_core::{Liveness, ProcessId, Span};
use banksman_engine::{Request, Seen};

use crate::clock::Ms;
use crate::process::{Doing, Errand, InFlight, Part, lives};
use crate::report::Checker;
use crate::script::{TOP_CAPACITY, reap};
use crate::world::{OPERATOR, World};

/// Every wait ends within this time. It covers all leases and holds one after the other, and the patience of
/// processes that were stopped for long.
const PATIENCE: Ms = 3_600_000;

/// Covers a history that goes in circles without time passing.
const STEPS: usize = 100_000;

/// Longer than any lease or offer.
const ALL_LEASES: Ms = 60_000;

impl World<'_> {
    /// Lets everybody finish and clears up behind them.
    pub(crate) fn calm_down(&mut self) {
        self.calm = true;
        self.say(format_args!("the faults stop"));
        for process in &mut self.processes {
            // Who dies dies now: the operator looks once, and some of the others could not see it.
            process.child_alive &= process.alive;
            if let Doing::Sleeping { waiter, .. } | Doing::Calling(Errand::Wait(waiter)) = &mut process.doing {
                // To give up is no answer: whoever waits now waits to the end.
                waiter.limit = None;
            }
        }
        self.drop_odd_jobs();
        self.open_up();
        self.clear_the_dead();
        let (end, mut steps) = (self.clock.now() + PATIENCE, 0);
        while !self.verdict.is_guilty() && self.processes.iter().any(|process| process.alive && !is_finished(&process.doing)) {
            if self.clock.now() > end || steps > STEPS {
                return self.never_answered();
            }
            self.step();
            steps += 1;
        }
        if !self.verdict.is_guilty() {
            self.look_closely();
            self.close();
        }
    }

    /// Somebody outside of the simulation calls; nothing goes wrong with that.
    pub(crate) fn operate(&mut self, request: Request) {
        let call = InFlight { slot: OPERATOR, part: Part::Main, request };
        self.turn_of_operator(call);
    }

    /// Takes back the odd jobs that are still on their way: they could make a capacity smaller again.
    fn drop_odd_jobs(&mut self) {
        let now = self.clock.now();
        for process in &mut self.processes {
            if let Doing::Calling(Errand::OddJob) = process.doing {
                process.doing = Doing::Backoff { until: now };
                self.calls.retain(|call| call.slot != process.slot || call.part != Part::Main);
            }
        }
    }

    /// Gives every semaphore its full capacity. A smaller one can turn waits that were fine when they began into a
    /// deadlock, which nobody joins and which therefore nobody is told of.
    fn open_up(&mut self) {
        for resource in self.resources.clone() {
            if resource.kind == Kind::Semaphore {
                let request = self.define(&resource, TOP_CAPACITY);
                self.operate(request);
            }
        }
    }

    /// Reclaims what the dead hold. Those in a container cannot be seen by the others, and a grant without a lease
    /// waits for somebody who can see its process.
    fn clear_the_dead(&mut self) {
        for resource in self.resources.clone() {
            let account = self.ledger.account(&resource);
            let bound = account.holders.values().flat_map(|holding| &holding.claim.processes);
            let all: BTreeSet<ProcessId> = bound.chain(account.line.iter().map(|place| &place.process)).cloned().collect();
            let dead = all.into_iter().filter(|process| !lives(&self.processes, process));
            let probes = dead.map(|process| (process, Liveness::Dead)).collect();
            self.operate(reap(&resource, Seen { probes, patience: Span::ZERO }));
        }
    }

    fn never_answered(&mut self) {
        let stuck: Vec<String> = self
            .processes
            .iter()
            .filter_map(|process| match &process.doing {
                Doing::Sleeping { waiter, .. } | Doing::Calling(Errand::Wait(waiter)) if process.alive => {
                    Some(format!("{} for {}", process.name(), waiter.resource))
                }
                _ => None,
            })
            .collect();
        self.verdict.report(Checker::Waiters, || format!("these wait for ever: {}", stuck.join(", ")));
    }

    /// Everybody has gone: once the leases are over, nothing is held and nobody waits.
    fn close(&mut self) {
        for slot in 0..self.processes.len() {
            self.die(slot);
            self.processes[slot].child_alive = false;
        }
        self.clock.advance(ALL_LEASES);
        self.clear_the_dead();
        self.look_closely();
        let snapshot = match self.store.view().snapshot() {
            Ok(snapshot) => snapshot.coordination,
            Err(error) => return self.store_failed(&error),
        };
        let locks = snapshot.locks.values().filter(|lock| lock.state != State::Free || !lock.waiters.is_empty());
        let semaphores = snapshot.semaphores.values().filter(|some| !some.holders.is_empty() || !some.waiters.is_empty());
        let left: Vec<String> = locks.map(|lock| format!("{lock:?}")).chain(semaphores.map(|some| format!("{some:?}"))).collect();
        self.verdict.expect(Checker::Waiters, left.is_empty(), || format!("left behind: {}", left.join("; ")));
        let idle = snapshot.next_deadline().is_none();
        self.verdict.expect(Checker::Living, idle, || "a deadline is left where nothing is held".to_owned());
    }
}

fn is_finished(doing: &Doing) -> bool {
    matches!(doing, Doing::Finished)
}
