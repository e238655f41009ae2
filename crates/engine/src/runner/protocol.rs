//! What goes in and out of a runner: options, inputs, actions, and what it reports to people.

use std::collections::{BTreeSet, VecDeque};

use banksman_core::backlog::{RunEndRecord, Session};
use banksman_core::guard::GuardInputs;
use banksman_core::landing::Entry;
use banksman_core::task::retry::Marker;
use banksman_core::task::{self, Watch};
use banksman_core::{
    ItemId, Limits, Liveness, MessageId, Name, Notice, Pause, Pipeline, ProcessId, RunId, SectionId, Seq, Span, Task, TaskId,
};
use banksman_store::{Key, Snapshot};

use super::sessions::Vitals;
use crate::calls::runs::Work;
use crate::request::{Reply, Request};

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

impl Options {
    /// Takes any task, without limits, until it is stopped.
    pub fn new(watch: Watch) -> Options {
        Options {
            max_runs: None,
            limits: Limits::NONE,
            sections: Vec::new(),
            until_idle: false,
            watch,
            max_duration: None,
            checkpoint_interval: None,
            kill_patience: Span::from_secs(60),
            poll: Span::from_secs(60),
            lease: None,
        }
    }
}

/// What the driver tells the runner.
#[derive(Debug)]
pub enum Input {
    /// The rows of [`Action::Load`].
    Rows(Box<Snapshot>),
    /// The processes of [`Action::Probe`] were looked at.
    Probed(Vec<(ProcessId, Liveness)>),
    /// What is in the place of the files DONE of [`Action::Check`].
    Checked(Vec<(TaskId, Marker)>),
    /// The replies to the requests of [`Action::Call`], in their order.
    Replies(Vec<Reply>),
    /// The store did not reply: what was requested may have happened, or not.
    NoReply,
    /// Something may have changed.
    Woken,
    /// There are new events in the log.
    NewEvents,
    /// A process that was watched has died.
    Died(ProcessId),
    /// This process was stalled for so long, perhaps with all the others.
    Stalled(Span),
    /// Start nothing more, leave the sessions to their keepers, and end.
    Leave,
    /// The session of a run has begun.
    Started(RunId, Session),
    /// The model of the agent of a run has answered for the first time.
    Answered(RunId),
    /// The process tree of a run was seen dead.
    Ended(RunId, RunEndRecord),
    /// The session of a run could not begin, because the machine has not enough of something.
    Shortage(RunId, RunEndRecord),
    /// The keeper of a run is dead and has left no record of the end.
    KeeperGone(RunId),
    /// What became of the session of a run could not be found out. It is tried again in a moment.
    Unclear(RunId),
    /// The keeper of a run is dead, and it cannot be proven that its processes are. A person is asked, once; the session is
    /// looked at again from time to time.
    Unproven(RunId, Box<str>),
    /// The answer to [`Action::Pulse`]; `None` if the keeper did not reply.
    Pulse(RunId, Option<Vitals>),
    /// An outbox command was carried out, or failed.
    CommandDone(Seq, Result<(), Box<str>>),
    /// An outbox command failed for good.
    CommandFailed(Seq, Box<str>),
    /// The job of [`Action::Land`] has brought an entry so far.
    LandingStands(Box<Entry>),
    /// The job of [`Action::Land`] has ended: nothing is left to do for now, or it could not be done.
    Landed(Name, Result<(), Box<str>>),
    /// What the guards of a pipeline ask about, as far as [`Action::CheckGuards`] found out.
    GuardsChecked(Box<Pipeline>, Box<GuardInputs>),
}

/// What the driver does next.
#[derive(Debug, Clone)]
pub enum Action {
    /// Read these rows.
    Load(BTreeSet<Key>),
    /// Look at these processes.
    Probe(Vec<ProcessId>),
    /// Look for the file DONE of these tasks.
    Check(Vec<TaskId>),
    /// Send these requests to the store as one batch.
    Call(Vec<Request>),
    /// Start the session of a run.
    Spawn(Box<Work>),
    /// Find out what became of the session of a run, and go on from there.
    Recover(Box<Work>),
    /// Find out since when nothing was seen of a run.
    Pulse(RunId, Span),
    /// End the session of a run; without the time that it has to end by itself, if so.
    Kill(RunId, bool),
    /// Wake the session of a run up, once for this number.
    Nudge(RunId, Seq),
    /// Send a message that waits for a task into its live session, and tell under this number whether that was done.
    Deliver(TaskId, MessageId, Seq),
    /// Notify people.
    Notify(Seq, Box<Notice>),
    /// Find out what the guards of a pipeline ask about.
    CheckGuards(Box<Pipeline>),
    /// Nobody needs the guards of this pipeline any more: end the check soon, if only with an unknown result.
    StopGuards(TaskId),
    /// Work for the merge queue of this branch until nothing is left to do.
    Land(Name),
    /// Tell the keeper of a run that its end is durable.
    Acknowledge(RunId),
    /// Let go of the session of a run: another runner looks after it.
    Forget(RunId),
    Sleep {
        /// Wake up when one of these dies.
        watch: Vec<ProcessId>,
        at_most: Span,
    },
    /// There is nothing left to do.
    Done,
}

/// What the parts of a runner want done and reported.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) actions: VecDeque<Action>,
    pub(super) events: Vec<RunnerEvent>,
}

impl Output {
    pub(super) fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(super) fn report(&mut self, event: RunnerEvent) {
        self.events.push(event);
    }
}

/// What has happened, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerEvent {
    Started(Box<Work>),
    /// A run of a runner that is gone is looked after.
    Adopted(Box<Work>),
    /// The machine has not enough of this to start more runs. They stay pending, and are tried later.
    Short(Box<str>),
    /// It has enough again.
    Enough,
    /// Nothing is started from now on.
    Paused(Box<Pause>),
    /// Tasks are started again.
    Resumed,
    /// Nothing was seen of a run for too long.
    Stuck(Box<Work>),
    Recovered(Box<Work>),
    /// It is being stopped: it took too long, or nothing else helps.
    Stopping(Box<Work>),
    /// A run has ended, and this is what its task makes of it.
    Ended(Box<Work>, RunEndRecord, task::Outcome),
    /// A task went on without a run: it was found to be done, or its children have ended.
    Settled(Box<Task>, task::Outcome),
    Begins(Box<Pipeline>),
    /// A guard holds a pipeline up, or it has failed, or is done.
    Stands(Box<Pipeline>),
    /// A worker can make nothing of an item.
    Unfit {
        worker: Name,
        /// The queue of the item.
        queue: Name,
        item: ItemId,
        error: Box<str>,
    },
    /// An entry of a merge queue stands so.
    Landing(Box<Entry>),
    /// Nothing can be done for the merge queue of this branch, for this reason.
    LandingTrouble(Name, Box<str>),
    /// So many more ready tasks wait for nothing but a run slot, or fewer. Counted are those that a look sees: the
    /// first few of each kind.
    Queued(i64),
}
