//! The inputs and results of a step.

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::event::Event;
use crate::ids::{Epoch, MessageId, RunId, Seq, Ticket};
use crate::process::ProcessId;
use crate::resource::grant::Address;
use crate::time::{Lease, Span, Stamp, Wall};

/// The time and the facts at the moment of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Now {
    /// The number that the first event of this step will get; the next ones follow without a gap.
    pub seq: Seq,
    /// The ticket that the next waiter will get.
    pub ticket: Ticket,
    /// The lease clock.
    pub lease: Lease,
    /// The wall clock.
    pub wall: Wall,
    /// Processes that the caller has proven dead.
    pub dead: Vec<ProcessId>,
    /// How long the caller was stalled: all other processes may have been stalled, too, so nothing is taken over by
    /// time before this much more has passed.
    pub patience: Span,
}

impl Now {
    /// The moment on both clocks.
    pub fn stamp(&self) -> Stamp {
        Stamp { lease: self.lease, wall: self.wall }
    }

    /// Whether `deadline` has passed for a waiter, which must make allowance for a stall.
    pub fn is_past(&self, deadline: Lease) -> bool {
        self.lease >= deadline + self.patience
    }

    /// Whether there are processes here and all of them are proven dead.
    pub fn all_dead(&self, processes: &[ProcessId]) -> bool {
        !processes.is_empty() && processes.iter().all(|process| self.dead.contains(process))
    }
}

/// The result of one step: the state that replaces the old one, the answer, and what must now be done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the step holds the new state"]
pub struct Step<S, O> {
    pub state: S,
    /// The answer to the caller.
    pub outcome: O,
    /// The effects to carry out, in this order.
    pub effects: Vec<Effect>,
}

/// An effect of a step, which the caller carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Write this event to the log, in the same transaction.
    Emit(Event),
    /// Wake a waiter, after the commit, because its row has changed. A hint: the row is the truth.
    Wake(Address),
    /// Put this into the outbox: it is executed outside, after the commit, and its result comes back as a new call.
    Send(OutboxCommand),
}

/// A command to the world outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OutboxCommand {
    /// Start the session of a run. If it is unknown whether that happened, the run's record decides: it never happens
    /// twice.
    Spawn {
        run: RunId,
    },
    /// End the session of a run. It is idempotent.
    Kill {
        run: RunId,
        /// Without the time to end by itself.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        now: bool,
    },
    /// Nudge a run that shows no activity. Its keeper knows the command by its number, and executes it once.
    Nudge {
        run: RunId,
    },
    /// Send a message into the session of a run, as its next turn. A message that may have arrived is not sent again.
    Deliver {
        run: RunId,
        message: MessageId,
    },
    Notify(Box<Notice>),
}

/// A notification to people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    pub kind: NoticeKind,
    /// In a few words.
    pub subject: Box<str>,
    /// In a sentence or two.
    pub text: Box<str>,
}

/// The kinds of notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// A task cannot go on by itself.
    Escalate,
    /// A question waits for an answer.
    Decision,
    TaskFailed,
    /// Nothing is left that a runner could do.
    BacklogFinished,
    /// A runbook has a notification for an event.
    Route,
    /// A person tests the delivery of notifications. No machine sends it.
    Test,
}

impl NoticeKind {
    pub const ALL: [NoticeKind; 6] = [
        NoticeKind::Escalate,
        NoticeKind::Decision,
        NoticeKind::TaskFailed,
        NoticeKind::BacklogFinished,
        NoticeKind::Route,
        NoticeKind::Test,
    ];

    /// The word in settings and for receivers.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The kind with this name.
    pub fn find(name: &str) -> Option<NoticeKind> {
        NoticeKind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl OutboxCommand {
    /// The run that it is about: commands of one run are executed one after the other.
    pub fn run(&self) -> Option<&RunId> {
        match self {
            OutboxCommand::Spawn { run }
            | OutboxCommand::Kill { run, .. }
            | OutboxCommand::Nudge { run }
            | OutboxCommand::Deliver { run, .. } => Some(run),
            OutboxCommand::Notify(_) => None,
        }
    }
}

/// Collects the effects of one step and numbers its events.
pub(crate) struct EffectBuffer {
    next: Seq,
    pub(crate) effects: Vec<Effect>,
}

impl EffectBuffer {
    pub(crate) fn new(now: &Now) -> EffectBuffer {
        EffectBuffer { next: now.seq, effects: Vec::new() }
    }

    /// Records an event and returns its number, which is the epoch if the event is a grant.
    pub(crate) fn emit(&mut self, event: Event) -> Epoch {
        let epoch = Epoch::from(self.next);
        self.next = Seq(self.next.0 + 1);
        self.effects.push(Effect::Emit(event));
        epoch
    }

    /// The number of the next event.
    pub(crate) fn next(&self) -> Seq {
        self.next
    }

    pub(crate) fn send(&mut self, command: OutboxCommand) {
        self.effects.push(Effect::Send(command));
    }

    pub(crate) fn wake(&mut self, address: Option<&Address>) {
        if let Some(address) = address {
            self.effects.push(Effect::Wake(address.clone()));
        }
    }
}
