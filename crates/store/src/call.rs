//! The only way to change the store: a call that names its rows and decides over them.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::event::Resource;
use banksman_core::resource::grant::Address;
use banksman_core::{Effect, Event, Lease, Now, OutboxCommand, ProcessId, RunnerId, Seq, Span, TaskId, Ticket, Wall};

use crate::key::Key;
use crate::tables::Tables;

/// One operation on the store.
pub trait Call {
    type Reply;

    /// The rows that the call needs. They follow from its arguments alone.
    fn keys(&self) -> Vec<Key>;

    /// More rows that the loaded ones refer to. They are loaded in the same transaction.
    fn follow(&self, _loaded: &Tables) -> Vec<Key> {
        Vec::new()
    }

    /// Decides. May run more than once, so it must do nothing but read and change `tx`.
    fn decide(&self, tx: &mut Tx) -> Self::Reply;

    /// Decides what follows from the whole batch, after all its calls.
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

/// One transaction as its decisions see it: rows, clocks, counters and effects.
#[derive(Debug, Clone)]
pub struct Tx {
    /// The loaded rows, as they will be written.
    pub tables: Tables,
    /// The number of the next event.
    pub seq: Seq,
    /// The next ticket.
    pub ticket: Ticket,
    /// The lease clock.
    pub lease: Lease,
    /// The wall clock.
    pub wall: Wall,
    /// The number of routes that led to the current decision, one after the other. Every event is stored with it.
    pub depth: u32,
    /// Changes that runners may wait for.
    pub changed: Changed,
    /// The keys by which the rows were loaded.
    pub loaded: BTreeSet<Key>,
    /// Boots of this host that the store saw before the current one. Their processes are dead.
    pub(crate) earlier_boots: BTreeSet<Box<str>>,
    /// Whether all processes that share the store run on one kernel.
    pub(crate) one_kernel: bool,
    pub(crate) events: Vec<(Seq, Event, u32)>,
    pub(crate) wakes: Vec<Address>,
}

/// Changes of a batch that runners may wait for. Which runners to wake is decided after all calls.
#[derive(Debug, Clone, Default)]
pub struct Changed {
    /// Resources that were freed, at least for a moment.
    pub freed: BTreeSet<Resource>,
    /// Tasks that may have become ready.
    pub ready: BTreeSet<TaskId>,
    /// The tasks of `ready` that a claim of the same batch may take, if everything that they need was loaded.
    pub takeable: BTreeSet<TaskId>,
    /// Tasks of unknown sections may have become ready: the number of runners to wake at most.
    pub ready_anywhere: usize,
    /// An ended task is open again. Its dependents were not loaded.
    pub reopens: bool,
    /// Tasks that were not loaded may have become ready.
    pub frees_dependents: bool,
    /// Runners that own the exclusive section of a task, when that section alone keeps other runners from taking the
    /// task.
    pub section_owners: BTreeSet<RunnerId>,
    /// More runs or roots may be under way than before.
    pub limits: bool,
    /// Roots are limited from now on, and were not before. The roots that are under way were not loaded.
    pub limits_roots: bool,
    /// A runner must act, though there is no task to take.
    pub duty: bool,
    pub has_ended_run: bool,
    /// The runner that claimed in this batch. It knows of everything that the batch did.
    pub claimant: Option<RunnerId>,
    /// An ended task whose next page of dependents is to be updated.
    pub fan_out: Option<TaskId>,
    /// Tasks that wait for a resource from now on (`Some`), or no longer wait for one (`None`).
    pub parked: BTreeMap<TaskId, Option<Resource>>,
}

impl Tx {
    /// The moment of a decision, with the facts that its caller has gathered.
    pub fn now(&self, dead: Vec<ProcessId>, patience: Span) -> Now {
        Now { seq: self.seq, ticket: self.ticket, lease: self.lease, wall: self.wall, dead, patience }
    }

    /// Whether a boot other than the current one has ended, so that its processes are dead. If all users of the store
    /// share one kernel, every other boot has: it came before, or the store was moved here from another machine.
    pub fn is_over(&self, other_boot: &str) -> bool {
        self.one_kernel || self.earlier_boots.contains(other_boot)
    }

    /// Applies the effects of a step. Every step is given a ticket; whether it used it does not matter, as tickets only
    /// have to rise. Returns the commands for the outbox, each under the number of the event before it.
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
