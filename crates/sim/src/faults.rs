//! Everything that goes wrong: crashes, pauses, reboots, clocks that are set, answers that are lost.

use banksman_core::event::{CustomKind, Event, Source};
use banksman_engine::Request;

use crate::clock::Ms;
use crate::desk::Fate;
use crate::process::{InFlight, Part};
use crate::world::World;

const DAY: Ms = 86_400_000;

impl World<'_> {
    /// Lets one fault happen.
    pub(crate) fn fault(&mut self) {
        let slot = self.random.below(self.processes.len());
        match self.random.below(100) {
            0..38 => self.crash(slot),
            38..85 => self.pause(slot),
            85..95 => {
                let by = if self.random.in_thousand(500) { DAY } else { -DAY };
                self.clock.set_wall(by);
                self.tally.count("fault: wall clock set");
                self.say(format_args!("the wall clock is set by {by} ms"));
            }
            _ => self.reboot(),
        }
    }

    /// A process is killed. What it had sent may still have been committed, but its wake-ups never leave.
    fn crash(&mut self, slot: usize) {
        if !self.processes[slot].alive {
            return;
        }
        self.commit_last_words(slot, Fate::Silent);
        self.tally.count("fault: crash");
        self.note(slot, format_args!("is killed"));
        self.die(slot);
    }

    /// Ends a process; its successor comes later.
    pub(crate) fn die(&mut self, slot: usize) {
        let now = self.clock.now();
        let orphan_for = if self.random.in_thousand(600) { 0 } else { self.random.between(1, 4_000) };
        let back_at = now + orphan_for + self.random.between(50, 8_000);
        self.calls.retain(|call| call.slot != slot);
        self.processes[slot].die(now + orphan_for, back_at);
    }

    /// A process is stopped for a while, often for longer than its leases live. An answer may be on its way.
    fn pause(&mut self, slot: usize) {
        if !self.processes[slot].is_awake() {
            return;
        }
        let length =
            if self.random.in_thousand(500) { self.random.between(100, 4_000) } else { self.random.between(4_000, 60_000) };
        self.tally.count("fault: pause");
        self.note(slot, format_args!("is stopped for {length} ms"));
        self.processes[slot].paused_until = Some(self.clock.now() + length);
        self.commit_last_words(slot, Fate::Told);
    }

    /// What a process had sent in its last moment is committed, or not.
    fn commit_last_words(&mut self, slot: usize, fate: Fate) {
        if self.calls.iter().any(|call| call.slot == slot) && self.random.in_thousand(500) {
            let (own, rest) = std::mem::take(&mut self.calls).into_iter().partition(|call| call.slot == slot);
            self.calls = rest;
            self.turn(own, fate);
        }
    }

    /// The machine goes down, in the middle of a transaction, and comes up again with new clocks.
    fn reboot(&mut self) {
        self.tally.count("fault: reboot");
        let event = Event::Custom {
            kind: CustomKind::new("sim:cut").expect("a good kind"),
            source: Source { component: "sim".into(), id: None },
            data: serde_json::Value::Null,
        };
        let cut = InFlight { slot: 0, part: Part::Main, request: Request::Emit(event) };
        self.undo(&[cut]);
        self.store.start_over();
        for slot in 0..self.processes.len() {
            if self.processes[slot].alive {
                self.die(slot);
            }
            self.processes[slot].child_alive = false;
        }
        self.calls.clear();
        self.delayed.clear();
        self.clock.reboot();
        self.say(format_args!("the machine reboots: boot {}", self.clock.boot_number()));
    }
}
