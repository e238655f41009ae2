//! Commits batches of calls to the store, injects their faults, and shows the checkers what was committed.

use std::cell::RefCell;

use banksman_core::event::Event;
use banksman_core::resource::grant::Address;
use banksman_core::{ProcessId, RunId, Seq, Wall};
use banksman_engine::{Reply, Request, RunRequest};
use banksman_store::{Committed, EventFilter, StoreError};

use crate::clock::Ms;
use crate::mutation::Mutation;
use crate::report::{Checker, Tally};
use crate::traced::{Note, TracedCall};
use crate::world::World;

/// The sender of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    Runner(usize),
    /// A thread of a runner, without a receiver for the reply.
    Thread(usize),
    Program(u32),
    User(usize),
    Client(usize),
    /// The thread of a client that sends heartbeats.
    Heart(usize),
    Taker(usize),
    Person(usize),
    /// A sender without a receiver for the reply.
    Nobody,
}

/// Requests that were sent together and not yet decided.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    pub(crate) from: Sender,
    pub(crate) requests: Vec<Request>,
}

/// The result of all the requests of one call.
#[derive(Debug)]
pub(crate) enum Heard {
    Replies(Vec<Reply>),
    /// The reply was lost, or the commit failed: the call may have taken effect or not.
    Unknown,
}

/// An event in the log.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) seq: Seq,
    pub(crate) wall: Wall,
    pub(crate) event: Event,
}

/// One committed call, with the events that it wrote.
pub(crate) struct CommittedCall<'a> {
    pub(crate) from: Sender,
    /// The calling process, unless the caller is outside of the simulation.
    pub(crate) caller: Option<ProcessId>,
    pub(crate) request: &'a Request,
    pub(crate) reply: &'a Reply,
    pub(crate) note: Note,
    pub(crate) events: &'a [Logged],
}

/// The outcome of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitOutcome {
    /// It is committed, and every caller receives its reply.
    Heard,
    /// It is committed, and some replies are lost.
    SomeRepliesLost,
    /// It is committed, and then the process crashes: neither the callers nor the waiters hear of it.
    Crash,
    /// The commit reports a failure, and the callers do not know whether it took effect. It did.
    UnknownCommitted,
    /// The same, but it did not.
    UnknownRolledBack,
}

impl CommitOutcome {
    /// Counts the outcome, if it is a fault.
    fn count(self, tally: &mut Tally) {
        match self {
            CommitOutcome::Heard => {}
            CommitOutcome::SomeRepliesLost => tally.count("fault: replies lost"),
            CommitOutcome::Crash => tally.count("fault: crash after commit"),
            CommitOutcome::UnknownCommitted => tally.count("fault: commit unknown, done"),
            CommitOutcome::UnknownRolledBack => tally.count("fault: commit unknown, undone"),
        }
    }
}

/// The lease clock at the last commit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LeaseSeen {
    pub(crate) boot: i64,
    pub(crate) monotonic: Ms,
    pub(crate) lease: Ms,
    /// The lease time of the last commit that must have written to the store.
    pub(crate) written: Ms,
}

impl World<'_> {
    pub(crate) fn can_be_served(&self, call: &InFlight) -> bool {
        match call.from {
            Sender::Runner(slot) | Sender::Thread(slot) => self.runners[slot].is_awake(),
            Sender::Client(slot) | Sender::Heart(slot) => self.locks.clients[slot].is_awake(),
            Sender::Program(_) | Sender::User(_) | Sender::Taker(_) | Sender::Person(_) | Sender::Nobody => true,
        }
    }

    /// Chooses calls that arrive together, and the outcome of their batch.
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
        batch.iter_mut().for_each(|call| self.amend(call));
        self.random.shuffle(&mut batch);
        let odds = if self.is_quiescing { 0 } else { self.harsh };
        let outcome = match self.random.below(1_000) {
            n if n < odds => CommitOutcome::SomeRepliesLost,
            n if n < odds * 3 / 2 => CommitOutcome::UnknownCommitted,
            n if n < odds * 2 => CommitOutcome::UnknownRolledBack,
            _ => CommitOutcome::Heard,
        };
        self.decide_batch(batch, outcome);
        let takes = if self.random.in_thousand(30) { self.random.between(4, 400) } else { self.random.between(0, 4) };
        self.clock.advance(takes);
    }

    /// A runner listens to its sessions while other processes write, and adds the ends of runs to its call.
    fn amend(&mut self, call: &mut InFlight) {
        let Sender::Runner(slot) = call.from else { return };
        if !self.runners[slot].dispatcher.may_amend() || !self.random.in_thousand(500) {
            return;
        }
        let runs: Vec<RunId> = self.runners[slot].sessions.keys().cloned().collect();
        runs.iter().for_each(|run| self.listen(slot, run));
        // A notice may also arrive too late for that.
        if self.random.in_thousand(800) {
            let count = call.requests.len();
            self.runners[slot].dispatcher.amend(&mut call.requests);
            if call.requests.len() > count {
                self.tally.count("calls amended");
            }
        }
    }

    /// Executes one transaction, and delivers the replies to the callers.
    pub(crate) fn decide_batch(&mut self, batch: Vec<InFlight>, outcome: CommitOutcome) {
        outcome.count(&mut self.tally);
        if outcome == CommitOutcome::UnknownRolledBack {
            self.roll_back(&batch);
            return batch.iter().for_each(|call| self.deliver(call, Heard::Unknown));
        }
        let Some((replies, wakes)) = self.commit(&batch) else { return };
        if outcome == CommitOutcome::Crash {
            return;
        }
        wakes.iter().for_each(|address| self.wake(address));
        let mut replies = replies.into_iter();
        for call in &batch {
            let own: Vec<Reply> = replies.by_ref().take(call.requests.len()).collect();
            let lost = outcome == CommitOutcome::UnknownCommitted
                || (outcome == CommitOutcome::SomeRepliesLost && self.random.in_thousand(600));
            if lost {
                self.say(format_args!("{:?} does not hear that", call.from));
            }
            if lost || (!self.is_quiescing && self.random.in_thousand(self.harsh)) {
                self.repeat_finishes(call);
            }
            self.deliver(call, if lost { Heard::Unknown } else { Heard::Replies(own) });
        }
    }

    /// The report of an end arrives again, much later: a repeated packet, often of a caller that missed the reply.
    fn repeat_finishes(&mut self, call: &InFlight) {
        let finishes = call.requests.iter().filter(|request| matches!(request, Request::Run(RunRequest::Finish { .. })));
        let repeated: Vec<Request> = finishes.cloned().collect();
        if !repeated.is_empty() && self.random.in_thousand(700) {
            self.tally.count("fault: end reported again");
            let at = self.clock.now() + self.random.between(1, 10_000);
            self.late.push((at, InFlight { from: Sender::Nobody, requests: repeated }));
        }
    }

    /// Decides a batch and rolls it back.
    pub(crate) fn roll_back(&mut self, batch: &[InFlight]) {
        let notes = RefCell::new(Vec::new());
        let calls = traced(batch, self, &notes);
        let begun = self.store.begin(&calls).map(drop);
        self.say(format_args!("a batch of {} is undone", batch.len()));
        if let Err(error) = begun {
            self.store_failed(&error);
        }
    }

    pub(crate) fn commit(&mut self, batch: &[InFlight]) -> Option<(Vec<Reply>, Vec<Address>)> {
        // A claim reads what was there before the batch.
        for slot in batch.iter().filter_map(|call| if let Sender::Runner(slot) = call.from { Some(slot) } else { None }) {
            self.runners[slot].roots = self.roots_for(&self.runners[slot].options);
        }
        let notes = RefCell::new(Vec::new());
        let calls = traced(batch, self, &notes);
        let mut committed = match self.store.begin(&calls).and_then(banksman_store::Open::commit) {
            Ok(committed) => committed,
            Err(error) => {
                self.store_failed(&error);
                return None;
            }
        };
        self.tally.count("batches");
        self.wake_too_many(&mut committed.wakes);
        let events = if committed.events > 0 { self.new_events()? } else { Vec::new() };
        self.observe_commit(batch, &committed, &notes.into_inner(), &events);
        if !events.is_empty() {
            self.notify_listeners();
        }
        Some((committed.replies, committed.wakes))
    }

    /// The events of the last commit, as logged.
    fn new_events(&mut self) -> Option<Vec<Logged>> {
        let page = self.store.view().events(self.model.last, &EventFilter::default());
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

    /// Feeds a committed batch to every checker.
    fn observe_commit(&mut self, batch: &[InFlight], committed: &Committed<Reply>, notes: &[Note], events: &[Logged]) {
        let Committed { replies, wakes, .. } = committed;
        self.check_clock(notes, events);
        let requests = batch.iter().flat_map(|call| call.requests.iter().map(move |request| (call.from, request)));
        let calls = requests.zip(replies).zip(notes).map(|(((from, request), reply), note)| {
            let start = events.partition_point(|logged| logged.seq < note.seq);
            let end = start + events[start..].iter().take_while(|logged| logged.seq < note.next).count();
            CommittedCall { from, caller: self.process_of(from), request, reply, note: *note, events: &events[start..end] }
        });
        let calls: Vec<CommittedCall<'_>> = calls.collect();
        for call in &calls {
            self.tally.count("calls");
            let who = self.name_of(call.from);
            self.say(format_args!("{who} {call}"));
            self.observe_locks(call);
            self.observe_queues(call);
            self.observe_backlog(call);
        }
        self.follow_with_locks(&calls, wakes);
        let count = calls.len();
        self.check_backlog();
        self.check_people(&calls, committed.has_written);
        let last = events.last().map_or(self.model.last, |logged| logged.seq);
        let expected = Seq(self.model.last.0 + i64::try_from(events.len()).expect("few"));
        self.verdict.expect(Checker::Order, last == expected, || format!("the log goes from {:?} to {last:?}", self.model.last));
        self.model.last = last;
        self.check_fleet(count, wakes);
    }

    /// Lease time runs with the monotonic clock, and continues after a reboot where it stopped.
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
        self.lease_seen = LeaseSeen { boot, monotonic, lease, written };
    }

    fn process_of(&self, from: Sender) -> Option<ProcessId> {
        match from {
            Sender::Client(slot) | Sender::Heart(slot) => Some(self.locks.clients[slot].id.clone()),
            _ => None,
        }
    }

    fn name_of(&self, from: Sender) -> String {
        match from {
            Sender::Runner(slot) | Sender::Thread(slot) => self.runners[slot].id.to_string(),
            Sender::Program(number) => format!("session {number}"),
            Sender::User(index) => format!("user {index}"),
            Sender::Client(slot) | Sender::Heart(slot) => self.locks.clients[slot].name().to_owned(),
            Sender::Taker(slot) => format!("taker {slot}"),
            Sender::Person(index) => format!("person {index}"),
            Sender::Nobody => "an operator".to_owned(),
        }
    }

    fn deliver(&mut self, call: &InFlight, heard: Heard) {
        match call.from {
            Sender::Runner(slot) if !self.runners[slot].alive => {}
            Sender::Runner(slot) if self.runners[slot].paused_until.is_some() => self.runners[slot].unread = Some(heard),
            Sender::Runner(slot) => self.on_runner_reply(slot, heard),
            Sender::Program(number) => self.on_program_reply(number, &heard),
            Sender::User(index) => self.on_user_reply(index, &heard),
            Sender::Client(slot) | Sender::Heart(slot) if !self.locks.clients[slot].alive => {}
            Sender::Client(slot) | Sender::Heart(slot) if self.locks.clients[slot].paused_until.is_some() => {
                self.locks.clients[slot].unread.push((call.clone(), heard));
            }
            Sender::Client(slot) | Sender::Heart(slot) => self.on_client_reply(slot, call, heard),
            Sender::Taker(slot) => self.on_taker_reply(slot, heard),
            Sender::Person(index) => self.on_person_reply(index, heard),
            Sender::Thread(_) | Sender::Nobody => {}
        }
    }

    /// A wake-up is a hint: it may come late or never.
    fn wake(&mut self, address: &Address) {
        let odds = if self.is_quiescing { 0 } else { self.harsh };
        match self.random.below(1_000) {
            n if n < odds * 2 => {
                let at = self.clock.now() + self.random.between(1, 20_000);
                self.tally.count("fault: wake-up late");
                self.delayed.push((at, address.clone()));
            }
            n if n < odds * 4 => self.tally.count("fault: wake-up lost"),
            _ => self.wake_now(address),
        }
    }

    /// Notifies the listeners of new events, or fails to.
    fn notify_listeners(&mut self) {
        let odds = if self.is_quiescing { 0 } else { self.harsh };
        for slot in 0..self.runners.len() {
            if self.random.below(1_000) < odds {
                self.tally.count("fault: change not noticed");
            } else {
                self.runners[slot].change_notifier = true;
            }
        }
    }

    pub(crate) fn wake_now(&mut self, address: &Address) {
        if self.dies_when_woken(address) {
            return;
        }
        if self.mutation() == Some(Mutation::WakeLost) && !self.is_quiescing && self.is_runner(address) {
            return;
        }
        if let Some(runner) = self.runners.iter_mut().find(|runner| runner.alive && runner.address() == *address) {
            runner.mailbox = true;
        }
        if let Some(client) = self.locks.clients.iter_mut().find(|client| client.alive && client.address() == *address) {
            client.mailbox = true;
        }
        self.wake_takers(address);
        self.wake_person(address);
    }

    pub(crate) fn store_failed(&mut self, error: &StoreError) {
        self.verdict.report(Checker::Store, || format!("{error}: {error:?}"));
    }
}

fn traced<'a>(batch: &'a [InFlight], world: &World<'_>, notes: &'a RefCell<Vec<Note>>) -> Vec<TracedCall<'a>> {
    let requests = batch.iter().flat_map(|call| &call.requests);
    requests.map(|request| TracedCall { request, mutation: world.options.mutation, notes }).collect()
}
