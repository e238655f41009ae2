//! What a runner is told, what it advises its driver to do, and what it tells people.

use std::collections::BTreeSet;

use banksman_core::backlog::Ended;
use banksman_core::task::{self, Watch};
use banksman_core::{ItemId, Limits, Name, Notice, Pipeline, ProcessId, RunId, SectionId, Seq, Span, Task, TaskId};
use banksman_store::Key;

use crate::runs::Work;

/// What a runner was told to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many runs it has at a time, at most.
    pub max_runs: Option<u32>,
    /// The limits of a project that has none yet.
    pub limits: Limits,
    /// The sections it works in; all if empty.
    pub sections: Vec<SectionId>,
    /// Whether to end when there is nothing left to do.
    pub until_idle: bool,
    /// How its runs are watched.
    pub watch: Watch,
    /// How long a run may take.
    pub max_duration: Option<Span>,
    /// How often a run that is at work is recorded.
    pub checkpoint_interval: Option<Span>,
    /// How long the end of a session may take after it was asked for.
    pub kill_patience: Span,
    /// How long to sleep at most: covers wake-ups that were lost.
    pub poll: Span,
    /// After which silence others may take its runs for lost, where they cannot see whether it lives: it renews three times
    /// as often. `None` where all runners are on one machine. The [terms](banksman_core::backlog::Runner::terms) of its row say the same.
    pub lease: Option<Span>,
}

/// What the driver does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advice {
    /// Read these rows.
    Load(BTreeSet<Key>),
    /// Look at these processes.
    Probe(Vec<ProcessId>),
    /// Look for the file DONE of these tasks.
    Check(Vec<TaskId>),
    /// Send as many requests as [`requests`](super::Dispatcher::requests) holds, as one batch.
    Call,
    /// Start the session of a run.
    Spawn(Box<Work>),
    /// Find out what became of the session of a run, and go on from there.
    Recover(Box<Work>),
    /// Find out since when nothing was seen of a run, and tell by [`pulse`](super::Dispatcher::pulse).
    Pulse(RunId, Span),
    /// End the session of a run.
    Kill(RunId),
    /// Wake the session of a run up, once for this number.
    Nudge(RunId, Seq),
    /// Tell people, and tell by [`did`](super::Dispatcher::did) what came of it.
    Notify(Seq, Box<Notice>),
    /// Find out what the guards of a pipeline ask about, and tell by [`gathered`](super::Dispatcher::gathered).
    Gather(Box<Pipeline>),
    /// Nobody wants to know any more what the guards of a pipeline ask about: find out soon, if only that it is not known.
    StopLooking(TaskId),
    /// Tell the keeper of a run that its end is durable.
    Acknowledge(RunId),
    /// Let go of the session of a run: another runner looks after it.
    Forget(RunId),
    /// Sleep.
    Sleep {
        /// Wake up when one of these dies.
        watch: Vec<ProcessId>,
        /// How long at most.
        at_most: Span,
    },
    /// There is nothing left to do.
    Done,
}

/// What has happened, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerEvent {
    /// A run begins.
    Started(Box<Work>),
    /// A run of a runner that is gone is looked after.
    Adopted(Box<Work>),
    /// The machine has not enough of this to start more runs. They stay pending, and are tried later.
    Short(Box<str>),
    /// It has enough again.
    Enough,
    /// Nothing was seen of a run for too long.
    Stuck(Box<Work>),
    /// It does something again.
    Recovered(Box<Work>),
    /// It is being stopped: it took too long, or nothing else helps.
    Stopping(Box<Work>),
    /// A run has ended, and this is what its task makes of it.
    Ended(Box<Work>, Ended, task::Outcome),
    /// A task went on without a run: it was found to be done, or its children have ended.
    Settled(Box<Task>, task::Outcome),
    /// A pipeline begins.
    Begins(Box<Pipeline>),
    /// A guard holds a pipeline up, or it has failed, or is done.
    Stands(Box<Pipeline>),
    /// A worker can make nothing of an item.
    Unfit {
        /// Which worker.
        worker: Name,
        /// The queue of the item.
        queue: Name,
        /// Which item.
        item: ItemId,
        /// Why.
        error: Box<str>,
    },
    /// So many more ready tasks wait for nothing but a run slot, or fewer. Counted are those that a look sees: the
    /// first few of each kind.
    Queued(i64),
}
