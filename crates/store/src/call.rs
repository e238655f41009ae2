//! The one way to change something: a call that names its rows and decides over them.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::event::Resource;
use banksman_core::resource::grant::Address;
use banksman_core::{Effect, Event, Lease, Now, OutboxCommand, ProcessId, RunnerId, Seq, Span, TaskId, Ticket, Wall};

use crate::key::Key;
use crate::tables::Tables;

/// Something that is asked of the store.
pub trait Call {
    /// The answer.
    type Reply;

    /// The rows it needs. They follow from its arguments alone.
    fn keys(&self) -> Vec<Key>;

    /// The rows that it needs beside those that were loaded, as what these refer to. They are loaded in the same transaction.
    fn follow(&self, _loaded: &Tables) -> Vec<Key> {
        Vec::new()
    }

    /// Decides. It may run more than once and must not do anything but read and change `tx`.
    fn decide(&self, tx: &mut Tx) -> Self::Reply;

    /// Decides what follows from the batch as a whole, after all its calls.
    fn settle(_tx: &mut Tx) {}
}

impl<C: Call> Call for &C {
    type Reply = C::Reply;

    fn keys(&self) -> Vec<Key> {
        (**self).keys()
    }

    fn follow(&self, loaded: &Tables) -> Vec<Key> {
        (**self).follow(loaded)
    }

    fn decide(&self, tx: &mut Tx) -> C::Reply {
        (**self).decide(tx)
    }

    fn settle(tx: &mut Tx) {
        C::settle(tx);
    }
}

/// One transaction as its decisions see it: the rows, the time, the numbers, and what must be done.
#[derive(Debug, Clone)]
pub struct Tx {
    /// The rows that were loaded, as they are to be written.
    pub tables: Tables,
    /// The number of the next event.
    pub seq: Seq,
    /// The next ticket.
    pub ticket: Ticket,
    /// The lease clock.
    pub lease: Lease,
    /// The wall clock.
    pub wall: Wall,
    /// How many routes led to what is decided now, one after the other: every event has it beside it.
    pub depth: u32,
    /// What the calls have brought about, for whoever waits.
    pub changed: Changed,
    /// What the rows were loaded by.
    pub loaded: BTreeSet<Key>,
    /// Boots of this host that the store saw before the current one: their processes are dead.
    pub(crate) earlier_boots: BTreeSet<Box<str>>,
    /// Whether all processes that share the store run on one kernel.
    pub(crate) one_kernel: bool,
    pub(crate) events: Vec<(Seq, Event, u32)>,
    pub(crate) wakes: Vec<Address>,
}

/// What a batch has brought about that somebody may wait for. Who is woken for it is decided when all calls are.
#[derive(Debug, Clone, Default)]
pub struct Changed {
    /// What was freed, at least for a moment.
    pub freed: BTreeSet<Resource>,
    /// Tasks that may have become ready.
    pub ready: BTreeSet<TaskId>,
    /// Those among them that a claim of the same batch may take, if all that they need was loaded.
    pub takeable: BTreeSet<TaskId>,
    /// Tasks may have become ready, of whatever section: so many runners are woken at most.
    pub ready_anywhere: usize,
    /// A task that was over is not any more. Who depends on it was not loaded.
    pub reopens: bool,
    /// Tasks that were not loaded may have become ready.
    pub frees_dependents: bool,
    /// Runners that have the exclusive section of a task that another runner may not take for that reason alone.
    pub section_owners: BTreeSet<RunnerId>,
    /// More may be under way than before.
    pub limits: bool,
    /// Only so many roots may be under way from now on. Which of them are was not loaded.
    pub limits_roots: bool,
    /// Something happened that a runner must see to, though it is no task to take.
    pub duty: bool,
    /// A run has ended.
    pub has_ended_run: bool,
    /// The runner that has claimed: it knows of all that this batch has done.
    pub claimant: Option<RunnerId>,
    /// An ended task: the next page of those that wait for it learn of that.
    pub fan_out: Option<TaskId>,
    /// Tasks that wait for a resource from now on, or not any more.
    pub parked: BTreeMap<TaskId, Option<Resource>>,
}

impl Tx {
    /// The moment of a decision, with what its caller has found out.
    pub fn now(&self, dead: Vec<ProcessId>, patience: Span) -> Now {
        Now { seq: self.seq, ticket: self.ticket, lease: self.lease, wall: self.wall, dead, patience }
    }

    /// Whether a boot other than the current one is over, so that its processes are dead. Where one kernel has the store for
    /// itself every one is: it came before, or the store was moved here from another machine.
    pub fn is_over(&self, other_boot: &str) -> bool {
        self.one_kernel || self.earlier_boots.contains(other_boot)
    }

    /// Takes over the effects of a step. Every step is given a ticket; whether it used it does not matter, as
    /// tickets only have to rise. Returns the commands for the outbox, each under the number of the event before it.
    pub fn carry_out(&mut self, effects: Vec<Effect>, took_ticket: bool) -> Vec<(Seq, OutboxCommand)> {
        let mut commands = Vec::new();
        for effect in effects {
            match effect {
                Effect::Emit(event) => {
                    self.events.push((self.seq, event, self.depth));
                    self.seq.0 += 1;
                }
                Effect::Wake(address) => self.wakes.push(address),
                Effect::Send(command) => commands.push((Seq(self.seq.0 - 1), command)),
            }
        }
        if took_ticket {
            self.ticket.0 += 1;
        }
        commands
    }
}
