//! What goes into a step and what comes out of it.

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::event::Event;
use crate::ids::{Epoch, MessageId, RunId, Seq, Ticket};
use crate::process::ProcessId;
use crate::resource::grant::Address;
use crate::time::{Lease, Span, Stamp, Wall};

/// What the world looks like at the moment of a decision.
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
    /// How long the caller was stalled: everybody else may have been too, so nothing is taken over by time
    /// before this much more has passed.
    pub patience: Span,
}

impl Now {
    /// The moment on both clocks.
    pub fn stamp(&self) -> Stamp {
        Stamp { lease: self.lease, wall: self.wall }
    }

    /// Whether `deadline` has passed for one who waits, who must make allowance for a stall.
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
    /// What must now be done, in this order.
    pub effects: Vec<Effect>,
}

/// Something that must be done because of a step. The enum grows with its producers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Write this event to the log, in the same transaction.
    Emit(Event),
    /// Tell a waiter, after the commit, that its row has changed. A hint: the row is the truth.
    Wake(Address),
    /// Put this in the outbox: it is done outside, after the commit, and its result comes back as a new call.
    Send(OutboxCommand),
}

/// Something to be done in the world outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OutboxCommand {
    /// Start the session of a run. If it is not known whether that was done, the run's record tells: it is never done again.
    Spawn {
        run: RunId,
    },
    /// End the session of a run. Twice is as good as once.
    Kill {
        run: RunId,
        /// Without the time that it has to end by itself.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        now: bool,
    },
    /// Wake a run up that shows no activity. Its keeper knows the outbox command by its number, and does it once.
    Nudge {
        run: RunId,
    },
    /// Send a message into the session of a run, as its next turn. What is not known to have arrived is not sent again.
    Deliver {
        run: RunId,
        message: MessageId,
    },
    Notify(Box<Notice>),
}

/// Something that people want to be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    pub kind: NoticeKind,
    /// In a few words.
    pub subject: Box<str>,
    /// In a sentence or two.
    pub text: Box<str>,
}

/// The sorts of things that people want to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// A task cannot go on by itself.
    Escalate,
    /// There is a question.
    Decision,
    TaskFailed,
    /// There is nothing left that a runner could do.
    BacklogFinished,
    /// A runbook says that people are to be told of an event.
    Route,
    /// Somebody tries whether notices arrive. No machine says so.
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

    /// One word for it, as settings and receivers know it.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The kind with this name.
    pub fn find(name: &str) -> Option<NoticeKind> {
        NoticeKind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl OutboxCommand {
    /// The run that it is about: outbox commands of one run are done one after the other.
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
