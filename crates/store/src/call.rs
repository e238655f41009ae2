//! The one way to change something: a call that names its rows and decides over them.

use std::collections::BTreeSet;

use banksman_core::resource::grant::Address;
use banksman_core::{Effect, Event, Lease, Now, OutboxCommand, ProcessId, Seq, Span, Ticket, Wall};

use crate::key::Key;
use crate::tables::Tables;

/// Something that is asked of the store.
pub trait Call {
    /// The answer.
    type Reply;

    /// The rows it needs. They follow from its arguments alone.
    fn keys(&self) -> Vec<Key>;

    /// Decides. It may run more than once and must not do anything but read and change `tx`.
    fn decide(&self, tx: &mut Tx) -> Self::Reply;
}

impl<C: Call> Call for &C {
    type Reply = C::Reply;

    fn keys(&self) -> Vec<Key> {
        (**self).keys()
    }

    fn decide(&self, tx: &mut Tx) -> C::Reply {
        (**self).decide(tx)
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
    /// Boots of this host that the store saw before the current one: their processes are dead.
    pub(crate) earlier_boots: BTreeSet<Box<str>>,
    /// Whether all processes that share the store run on one kernel.
    pub(crate) one_kernel: bool,
    pub(crate) events: Vec<(Seq, Event, u32)>,
    pub(crate) wakes: Vec<Address>,
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
