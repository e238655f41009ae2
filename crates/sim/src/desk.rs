//! Where calls meet the store: batches, their fates, and the look that every checker takes at what was committed.

use std::cell::RefCell;

use banksman_core::event::Event;
use banksman_core::resource::grant::Address;
use banksman_engine::Reply;
use banksman_store::{EventFilter, Machine as _, StoreError};

use crate::clock::Ms;
use crate::examine::Deed;
use crate::ledger::Logged;
use crate::process::{Heard, InFlight, lives};
use crate::report::{Checker, Tally};
use crate::tried::{Note, Tried};
use crate::words::Told;
use crate::world::World;

/// What becomes of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is committed and everybody hears the answer.
    Told,
    /// It is committed, and some answers are lost.
    Muffled,
    /// It is committed, and nobody hears of it: neither the callers nor those who should be woken.
    Silent,
    /// The commit fails; the callers do not know whether it happened. It did.
    UnknownDone,
    /// Likewise, but it did not.
    UnknownUndone,
}

impl Fate {
    /// Counts it, if it is a fault.
    pub(crate) fn count(self, tally: &mut Tally) {
        match self {
            Fate::Told => {}
            Fate::Muffled => tally.count("fault: replies lost"),
            Fate::Silent => tally.count("fault: crash after commit"),
            Fate::UnknownDone => tally.count("fault: commit unknown, done"),
            Fate::UnknownUndone => tally.count("fault: commit unknown, undone"),
        }
    }
}

impl World<'_> {
    /// Chooses calls that arrive together, and what becomes of them.
    pub(crate) fn serve(&mut self) {
        let mut batch = Vec::new();
        let mut rest = Vec::new();
        let calls = std::mem::take(&mut self.calls);
        let ready: Vec<bool> = calls.iter().map(|call| self.processes[call.slot].is_awake()).collect();
        let count = ready.iter().filter(|ready| **ready).count();
        let chosen = self.random.below(count);
        let mut index = 0;
        for (call, ready) in calls.into_iter().zip(ready) {
            let taken = ready && (index == chosen || self.random.in_thousand(500));
            index += usize::from(ready);
            if taken { batch.push(call) } else { rest.push(call) }
        }
        self.calls = rest;
        self.random.shuffle(&mut batch);
        let fate = match self.random.below(100) {
            _ if self.calm => Fate::Told,
            0..88 => Fate::Told,
            88..94 => Fate::Muffled,
            94..97 => Fate::UnknownDone,
            _ => Fate::UnknownUndone,
        };
        self.turn(batch, fate);
        let takes = self.random.between(0, 4);
        self.clock.advance(takes);
    }

    /// One transaction, and what the callers hear of it.
    pub(crate) fn turn(&mut self, batch: Vec<InFlight>, fate: Fate) {
        fate.count(&mut self.tally);
        if fate == Fate::UnknownUndone {
            self.undo(&batch);
            return batch.iter().for_each(|call| self.deliver(call, Heard::Unknown));
        }
        let Some((replies, wakes)) = self.commit(&batch) else { return };
        if fate == Fate::Silent {
            return;
        }
        wakes.iter().for_each(|address| self.wake(address));
        for (call, reply) in batch.iter().zip(replies) {
            let lost = fate == Fate::UnknownDone || (fate == Fate::Muffled && self.random.in_thousand(600));
            if lost {
                self.note(call.slot, format_args!("does not hear that"));
            }
            self.deliver(call, if lost { Heard::Unknown } else { Heard::Reply(reply) });
        }
    }

    /// Decides a batch and lets it not have happened.
    pub(crate) fn undo(&mut self, batch: &[InFlight]) {
        let notes = RefCell::new(Vec::new());
        let tried = tried(batch, self.options.broken, &notes);
        let begun = self.store.begin(&tried).map(drop);
        self.say(format_args!("a batch of {} is undone", batch.len()));
        if let Err(error) = begun {
            self.store_failed(&error);
        }
    }

    /// One transaction of somebody who has no part in the faults.
    pub(crate) fn turn_of_operator(&mut self, call: InFlight) {
        if let Some((_, wakes)) = self.commit(&[call]) {
            wakes.iter().for_each(|address| self.ring(address));
        }
    }

    fn commit(&mut self, batch: &[InFlight]) -> Option<(Vec<Reply>, Vec<Address>)> {
        let notes = RefCell::new(Vec::new());
        let tried = tried(batch, self.options.broken, &notes);
        let committed = match self.store.begin(&tried).and_then(banksman_store::Open::commit) {
            Ok(committed) => committed,
            Err(error) => {
                self.store_failed(&error);
                return None;
            }
        };
        self.tally.count("batches");
        self.tally.count_many("calls", batch.len() as u64);
        let events = if committed.events > 0 { self.new_events()? } else { Vec::new() };
        self.witness(batch, &committed.replies, &notes.into_inner(), &events, &committed.wakes);
        Some((committed.replies, committed.wakes))
    }

    /// The events of the last commit, as they stand in the log.
    fn new_events(&mut self) -> Option<Vec<Logged>> {
        let page = self.store.view().events(self.ledger.last, &EventFilter::default());
        let page = page.map_err(|error| self.store_failed(&error)).ok()?;
        let mut events = Vec::with_capacity(page.events.len());
        for row in page.events {
            let data = row.data.to_string();
            self.say(format_args!(
                "    event {}: {} {} {data} at {}",
                row.id,
                row.kind,
                row.source.id.as_deref().unwrap_or("-"),
                row.wall.0
            ));
            match Event::parse(&row.kind, &row.source.component, row.source.id.as_deref(), &data) {
                Ok(event) => events.push(Logged { seq: row.id, wall: row.wall, event }),
                Err(error) => self.verdict.report(Checker::Store, || error.to_string()),
            }
        }
        Some(events)
    }

    /// Shows a committed batch to every checker.
    fn witness(&mut self, batch: &[InFlight], replies: &[Reply], notes: &[Note], events: &[Logged], wakes: &[Address]) {
        let mut slices = Vec::with_capacity(batch.len());
        for ((call, reply), note) in batch.iter().zip(replies).zip(notes) {
            let own = |seq| seq >= note.seq && seq < note.next;
            let from = events.partition_point(|logged| logged.seq < note.seq);
            let to = from + events[from..].iter().take_while(|logged| own(logged.seq)).count();
            slices.push(from..to);
            self.note(call.slot, format_args!("{}", Told(&call.request, reply)));
            self.tally_outcome(reply, &events[from..to]);
        }
        self.check_clock(notes, events);
        let processes = &self.processes;
        let calls = batch.iter().zip(replies).zip(notes).zip(slices);
        let deeds: Vec<Deed<'_>> = calls
            .map(|(((call, reply), note), slice)| Deed {
                caller: processes.get(call.slot).map(|process| &process.id),
                request: &call.request,
                reply,
                note: *note,
                events: &events[slice],
            })
            .collect();
        let dead = |id: &banksman_core::ProcessId| !lives(processes, id);
        for deed in &deeds {
            self.ledger.examine(deed, &dead, &mut self.verdict);
        }
        self.model.follow(&deeds, wakes, &self.clock.boot(), &mut self.verdict);
    }

    /// Lease time runs as the monotonic clock does, and goes on after a reboot where it stood.
    fn check_clock(&mut self, notes: &[Note], events: &[Logged]) {
        let Some(note) = notes.first() else { return };
        let (boot, monotonic) = (self.clock.boot_number(), self.clock.monotonic());
        let lease: Ms = note.lease.0;
        let last = self.lease_seen;
        let right = if last.boot == boot { lease - last.lease == monotonic - last.monotonic } else { lease >= last.written };
        self.verdict.expect(Checker::Order, right, || format!("the lease clock shows {lease} after {last:?} at {monotonic}"));
        let walls = events.iter().all(|logged| logged.wall == note.wall);
        self.verdict.expect(Checker::Order, walls, || "the events of one batch have one wall time".to_owned());
        let written = if events.is_empty() { last.written } else { lease };
        self.lease_seen = crate::world::LeaseSeen { boot, monotonic, lease, written };
    }

    fn deliver(&mut self, call: &InFlight, heard: Heard) {
        let process = &mut self.processes[call.slot];
        if !process.alive {
            return;
        }
        if process.paused_until.is_some() {
            process.unread.push((call.clone(), heard));
        } else {
            self.hear(call.slot, call, heard);
        }
    }

    /// A wake-up is a hint: it may come late or never.
    fn wake(&mut self, address: &Address) {
        match self.random.below(100) {
            _ if self.calm => self.ring(address),
            0..80 => self.ring(address),
            80..90 => {
                let at = self.clock.now() + self.random.between(1, 9_000);
                self.tally.count("fault: wake-up late");
                self.delayed.push((at, address.clone()));
            }
            _ => self.tally.count("fault: wake-up lost"),
        }
    }

    pub(crate) fn ring(&mut self, address: &Address) {
        if let Some(process) = self.processes.iter_mut().find(|process| process.alive && process.address() == *address) {
            process.mailbox = true;
        }
    }

    pub(crate) fn store_failed(&mut self, error: &StoreError) {
        self.verdict.report(Checker::Store, || format!("{error}: {error:?}"));
    }
}

fn tried<'a>(
    batch: &'a [InFlight],
    broken: Option<crate::broken::Broken>,
    notes: &'a RefCell<Vec<Note>>,
) -> Vec<Tried<'a, crate::broken::Broken>> {
    batch.iter().map(|call| Tried { request: &call.request, broken, notes }).collect()
}
