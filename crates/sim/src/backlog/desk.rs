//! Where calls meet the store: batches, their fates, and the look that every checker takes at what was committed.

use std::cell::RefCell;

use banksman_core::Seq;
use banksman_core::event::Event;
use banksman_core::resource::grant::Address;
use banksman_engine::{Reply, Request, RunRequest};
use banksman_store::{EventFilter, StoreError};

use super::loops::Said;
use super::runner::HeardAll;
use super::words::Deed;
use super::world::World;
use crate::desk::Fate;
use crate::ledger::Logged;
use crate::report::Checker;
use crate::tried::{Note, Tried};

/// Who has sent a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    Runner(usize),
    /// A thread of a runner, which nobody waits for.
    Thread(usize),
    Program(u32),
    User(usize),
    /// Nobody who would hear an answer.
    Nobody,
}

/// Requests that were sent together and not yet decided.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    pub(crate) from: Sender,
    pub(crate) requests: Vec<Request>,
}

impl World<'_> {
    pub(crate) fn can_be_served(&self, call: &InFlight) -> bool {
        match call.from {
            Sender::Runner(slot) | Sender::Thread(slot) => self.runners[slot].is_awake(),
            Sender::Program(_) | Sender::User(_) | Sender::Nobody => true,
        }
    }

    /// Chooses calls that arrive together, and what becomes of them.
    pub(crate) fn serve(&mut self) {
        let calls = std::mem::take(&mut self.calls);
        let ready: Vec<bool> = calls.iter().map(|call| self.can_be_served(call)).collect();
        let chosen = self.random.below(ready.iter().filter(|ready| **ready).count());
        let (mut batch, mut rest, mut index) = (Vec::new(), Vec::new(), 0);
        for (call, ready) in calls.into_iter().zip(ready) {
            let taken = ready && (index == chosen || self.random.in_thousand(400));
            index += usize::from(ready);
            if taken { batch.push(call) } else { rest.push(call) }
        }
        self.calls = rest;
        self.random.shuffle(&mut batch);
        let odds = if self.calm { 0 } else { self.harsh };
        let fate = match self.random.below(1_000) {
            n if n < odds => Fate::Muffled,
            n if n < odds * 3 / 2 => Fate::UnknownDone,
            n if n < odds * 2 => Fate::UnknownUndone,
            _ => Fate::Told,
        };
        self.turn(batch, fate);
        let takes = if self.random.in_thousand(30) { self.random.between(4, 400) } else { self.random.between(0, 4) };
        self.clock.advance(takes);
    }

    /// One transaction, and what the callers hear of it.
    pub(crate) fn turn(&mut self, batch: Vec<InFlight>, fate: Fate) {
        fate.count(&mut self.tally);
        if fate == Fate::UnknownUndone {
            self.undo(&batch);
            return batch.iter().for_each(|call| self.deliver(call.from, HeardAll::Unknown));
        }
        let Some((replies, wakes)) = self.commit(&batch) else { return };
        if fate == Fate::Silent {
            return;
        }
        wakes.iter().for_each(|address| self.wake(address));
        let mut replies = replies.into_iter();
        for call in &batch {
            let own: Vec<Reply> = replies.by_ref().take(call.requests.len()).collect();
            let lost = fate == Fate::UnknownDone || (fate == Fate::Muffled && self.random.in_thousand(600));
            if lost {
                self.say(format_args!("{:?} does not hear that", call.from));
            }
            if lost || (!self.calm && self.random.in_thousand(self.harsh)) {
                self.repeat_finishes(call);
            }
            self.deliver(call.from, if lost { HeardAll::Unknown } else { HeardAll::Replies(own) });
        }
    }

    /// The report of an end comes once more, much later: a repeated packet, often of somebody who has not heard the answer.
    fn repeat_finishes(&mut self, call: &InFlight) {
        let finishes = call.requests.iter().filter(|request| matches!(request, Request::Run(RunRequest::Finish { .. })));
        let repeated: Vec<Request> = finishes.cloned().collect();
        if !repeated.is_empty() && self.random.in_thousand(700) {
            self.tally.count("fault: end reported again");
            let at = self.clock.now() + self.random.between(1, 10_000);
            self.late.push((at, InFlight { from: Sender::Nobody, requests: repeated }));
        }
    }

    /// Decides a batch and lets it not have happened.
    pub(crate) fn undo(&mut self, batch: &[InFlight]) {
        let notes = RefCell::new(Vec::new());
        let tried = tried(batch, self, &notes);
        let begun = self.store.begin(&tried).map(drop);
        self.say(format_args!("a batch of {} is undone", batch.len()));
        if let Err(error) = begun {
            self.store_failed(&error);
        }
    }

    pub(crate) fn commit(&mut self, batch: &[InFlight]) -> Option<(Vec<Reply>, Vec<Address>)> {
        let notes = RefCell::new(Vec::new());
        let tried = tried(batch, self, &notes);
        let committed = match self.store.begin(&tried).and_then(banksman_store::Open::commit) {
            Ok(committed) => committed,
            Err(error) => {
                self.store_failed(&error);
                return None;
            }
        };
        self.tally.count("batches");
        let events = if committed.events > 0 { self.new_events()? } else { Vec::new() };
        self.witness(batch, &committed.replies, &notes.into_inner(), &events);
        if !events.is_empty() {
            self.ring_bell();
        }
        Some((committed.replies, committed.wakes))
    }

    /// The events of the last commit, as they stand in the log.
    fn new_events(&mut self) -> Option<Vec<Logged>> {
        let page = self.store.view().events(self.book.last, &EventFilter::default());
        let page = page.map_err(|error| self.store_failed(&error)).ok()?;
        let mut events = Vec::with_capacity(page.events.len());
        for row in page.events {
            let data = row.data.to_string();
            match Event::parse(&row.kind, &row.source.component, row.source.id.as_deref(), &data) {
                Ok(event) => events.push(Logged { seq: row.id, wall: row.wall, event }),
                Err(error) => self.verdict.report(Checker::Store, || error.to_string()),
            }
        }
        Some(events)
    }

    /// Shows a committed batch to every checker.
    fn witness(&mut self, batch: &[InFlight], replies: &[Reply], notes: &[Note], events: &[Logged]) {
        let requests = batch.iter().flat_map(|call| call.requests.iter().map(move |request| (call.from, request)));
        for (((from, request), reply), note) in requests.zip(replies).zip(notes) {
            self.tally.count("calls");
            let start = events.partition_point(|logged| logged.seq < note.seq);
            let end = start + events[start..].iter().take_while(|logged| logged.seq < note.next).count();
            let deed = Deed { request, reply };
            let who = self.name_of(from);
            self.say(format_args!("{who} {deed}"));
            let by = match from {
                Sender::Runner(slot) | Sender::Thread(slot) => Some(self.runners[slot].id.clone()),
                Sender::Program(_) | Sender::User(_) | Sender::Nobody => None,
            };
            self.said = Said { lease: note.lease, by, ..Said::of(request) };
            self.before(&deed);
            for logged in &events[start..end] {
                self.say(format_args!("    {}", super::words::Line(logged)));
                self.take_in(logged, note.lease);
            }
            self.after(&deed);
            self.check_answer(&deed, &events[start..end]);
        }
        self.check_questions();
        self.check_ways();
        self.check_items();
        self.check_passed_over();
        let last = events.last().map_or(self.book.last, |logged| logged.seq);
        let expected = Seq(self.book.last.0 + i64::try_from(events.len()).expect("few"));
        self.verdict.expect(Checker::Order, last == expected, || format!("the log goes from {:?} to {last:?}", self.book.last));
        self.book.last = last;
    }

    fn name_of(&self, from: Sender) -> String {
        match from {
            Sender::Runner(slot) | Sender::Thread(slot) => self.runners[slot].id.to_string(),
            Sender::Program(number) => format!("session {number}"),
            Sender::User(index) => format!("user {index}"),
            Sender::Nobody => "an echo".to_owned(),
        }
    }

    fn deliver(&mut self, from: Sender, heard: HeardAll) {
        match from {
            Sender::Runner(slot) if !self.runners[slot].alive => {}
            Sender::Runner(slot) if self.runners[slot].paused_until.is_some() => self.runners[slot].unread = Some(heard),
            Sender::Runner(slot) => self.runner_hears(slot, heard),
            Sender::Program(number) => self.program_hears(number, &heard),
            Sender::User(index) => self.user_hears(index, &heard),
            Sender::Thread(_) | Sender::Nobody => {}
        }
    }

    /// A wake-up is a hint: it may come late or never.
    fn wake(&mut self, address: &Address) {
        let odds = if self.calm { 0 } else { self.harsh };
        match self.random.below(1_000) {
            n if n < odds * 2 => {
                let at = self.clock.now() + self.random.between(1, 20_000);
                self.tally.count("fault: wake-up late");
                self.delayed.push((at, address.clone()));
            }
            n if n < odds * 4 => self.tally.count("fault: wake-up lost"),
            _ => self.ring(address),
        }
    }

    /// Whoever listens hears that there are events; or not.
    fn ring_bell(&mut self) {
        let odds = if self.calm { 0 } else { self.harsh };
        for slot in 0..self.runners.len() {
            if self.random.below(1_000) < odds {
                self.tally.count("fault: bell not heard");
            } else {
                self.runners[slot].change_notifier = true;
            }
        }
    }

    pub(crate) fn ring(&mut self, address: &Address) {
        if let Some(runner) = self.runners.iter_mut().find(|runner| runner.alive && runner.address() == *address) {
            runner.mailbox = true;
        }
    }

    pub(crate) fn store_failed(&mut self, error: &StoreError) {
        self.verdict.report(Checker::Store, || format!("{error}: {error:?}"));
    }
}

fn tried<'a>(batch: &'a [InFlight], world: &World<'_>, notes: &'a RefCell<Vec<Note>>) -> Vec<Tried<'a, super::Mutation>> {
    let requests = batch.iter().flat_map(|call| &call.requests);
    requests.map(|request| Tried { request, broken: world.options.broken, notes }).collect()
}
