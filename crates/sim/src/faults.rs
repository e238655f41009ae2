//! Faults: kill -9 of any process, in any combination; stalls, reboots, clocks that are set.

use banksman_core::event::{CustomKind, Event, Source};
use banksman_engine::Request;

use crate::clock::Ms;
use crate::commit::{CommitOutcome, InFlight, Sender};
use crate::machine::Record;
use crate::world::World;

const DAY: Ms = 86_400_000;

impl World<'_> {
    /// Injects one fault.
    pub(crate) fn fault(&mut self) {
        if !self.queues.takers.is_empty() {
            let slot = self.random.below(self.queues.takers.len());
            return self.kill_taker(slot);
        }
        if !self.locks.clients.is_empty() {
            let slot = self.random.below(self.locks.clients.len());
            return match self.random.below(100) {
                0..38 => self.crash_client(slot),
                38..85 => self.pause_client(slot),
                85..95 => self.set_wall_clock(),
                _ => self.reboot(),
            };
        }
        if self.has_people() && self.random.in_thousand(600) {
            let index = self.random.below(self.people.persons.len());
            return self.kill_person(index);
        }
        let slot = self.random.below(self.runners.len());
        if self.has_people() {
            return self.kill_runner(slot);
        }
        let numbers: Vec<u32> = self.keepers.keys().copied().collect();
        let number = (!numbers.is_empty()).then(|| *self.random.pick(&numbers));
        match (self.random.below(108), number) {
            (0..22, _) => self.kill_runner(slot),
            (22..40, Some(number)) => self.kill_keeper(number),
            (40..50, Some(number)) => {
                self.tally.count("fault: program killed");
                self.kill_child(number);
            }
            // In any combination: the runner with its keepers, the keeper with its program.
            (50..58, Some(number)) => {
                self.kill_runner(slot);
                self.kill_keeper(number);
            }
            (58..62, Some(number)) => {
                self.kill_child(number);
                self.kill_keeper(number);
            }
            (62..66, _) => {
                (0..self.runners.len()).for_each(|slot| self.kill_runner(slot));
                for number in numbers {
                    if self.random.in_thousand(500) {
                        self.kill_keeper(number);
                    }
                }
            }
            (66..86, _) => self.stall(slot),
            (86..90, _) => {
                self.tally.count("fault: runner told to end");
                self.note(slot, format_args!("is told to end"));
                self.runners[slot].cancelled = true;
            }
            (90..94, _) => {
                let index = self.random.below(self.users.len());
                self.kill_user(index);
            }
            (94..97, _) => self.set_wall_clock(),
            (97..100, _) => self.reboot(),
            (100.., Some(number)) => self.hold_up(number),
            _ => {}
        }
    }

    fn set_wall_clock(&mut self) {
        let by = if self.random.in_thousand(500) { DAY } else { -DAY };
        self.clock.set_wall(by);
        self.tally.count("fault: wall clock set");
        self.say(format_args!("the wall clock is set by {by} ms"));
    }

    /// A runner is killed. The calls that it had sent may still be committed, but their wake-ups never leave.
    fn kill_runner(&mut self, slot: usize) {
        if !self.runners[slot].alive {
            return;
        }
        self.commit_last_words(|from| from == Sender::Runner(slot) || from == Sender::Thread(slot), CommitOutcome::Crash);
        self.tally.count("fault: runner killed");
        self.note(slot, format_args!("is killed"));
        self.end_runner(slot);
    }

    /// A keeper is killed: its program dies with it, but detached descendants do not.
    fn kill_keeper(&mut self, number: u32) {
        if !self.keepers.get(&number).is_some_and(|keeper| keeper.alive) {
            return;
        }
        self.commit_last_words(|from| from == Sender::Program(number), CommitOutcome::Crash);
        let Some(mut keeper) = self.keepers.remove(&number) else { return };
        self.tally.count("fault: keeper killed");
        self.say(format_args!("keeper {number} of {} is killed", keeper.run));
        if let Some(child) = keeper.child.take() {
            self.machine.exit(&child.process);
            self.drop_calls_of_program(number);
        }
        self.leave_session(&mut keeper);
        self.keepers.insert(number, keeper);
    }

    /// A runner is stopped for a while. It is alive, so no other may take over.
    fn stall(&mut self, slot: usize) {
        if !self.runners[slot].is_awake() {
            return;
        }
        let length =
            if self.random.in_thousand(500) { self.random.between(100, 4_000) } else { self.random.between(4_000, 90_000) };
        self.tally.count("fault: runner stalled");
        self.note(slot, format_args!("is stopped for {length} ms"));
        self.runners[slot].paused_until = Some(self.clock.now() + length);
        self.commit_last_words(|from| from == Sender::Runner(slot), CommitOutcome::Heard);
    }

    /// A keeper is stopped for a while, often for longer than any wait for it. Its session continues.
    fn hold_up(&mut self, number: u32) {
        let length =
            if self.random.in_thousand(400) { self.random.between(500, 10_000) } else { self.random.between(10_000, 200_000) };
        let now = self.clock.now();
        if let Some(keeper) = self.keepers.get_mut(&number).filter(|keeper| keeper.alive) {
            keeper.not_before = now + length;
            self.tally.count("fault: keeper stopped");
            self.say(format_args!("keeper {number} is stopped for {length} ms"));
        }
    }

    /// Whether a keeper is stopped.
    pub(crate) fn is_held_up(&self, number: u32) -> bool {
        self.keepers.get(&number).is_some_and(|keeper| keeper.not_before > self.clock.now())
    }

    /// The calls that a process had sent in its last moment are committed, or not.
    pub(crate) fn commit_last_words(&mut self, of: impl Fn(Sender) -> bool, outcome: CommitOutcome) {
        if self.calls.iter().any(|call| of(call.from)) && self.random.in_thousand(500) {
            let own: Vec<InFlight> = self.calls.extract_if(.., |call| of(call.from)).collect();
            self.decide_batch(own, outcome);
        }
    }

    /// The machine reboots with new clocks. Data that was not flushed may be lost.
    fn reboot(&mut self) {
        self.tally.count("fault: reboot");
        // In the middle of a transaction.
        let event = Event::Custom {
            kind: CustomKind::new("sim:cut").expect("a good kind"),
            source: Source { component: "sim".into(), id: None },
            data: serde_json::Value::Null,
        };
        self.roll_back(&[InFlight { from: Sender::Nobody, requests: vec![Request::Emit(event)] }]);
        self.reboot_clients();
        for slot in 0..self.runners.len() {
            if self.runners[slot].alive {
                self.end_runner(slot);
            }
        }
        self.keepers.clear();
        self.calls.clear();
        self.delayed.clear();
        let random = &mut self.random;
        let records = std::mem::take(&mut self.machine.records).into_iter();
        let kept = records.filter_map(|(run, record)| match record {
            Record::Kept { flushed: true, .. } => Some((run, record)),
            _ if random.in_thousand(300) => None,
            _ if random.in_thousand(300) => Some((run, Record::Empty)),
            _ => Some((run, record)),
        });
        self.machine.records = kept.collect();
        for (run, facts) in &mut self.run_facts {
            facts.rebooted |= self.model.is_live(run);
            facts.forgotten |= !matches!(self.machine.records.get(run), Some(Record::Kept { .. }));
        }
        let live: Vec<_> = self.model.live_runs().cloned().collect();
        live.iter().for_each(|run| self.facts(run).rebooted = true);
        self.store.start_over();
        self.clock.reboot();
        self.machine.reboot(banksman_store::Machine::boot(&self.clock));
        for index in 0..self.users.len() {
            self.restart_user(index);
        }
        self.say(format_args!("the machine reboots: boot {}", self.clock.boot_number()));
    }
}
