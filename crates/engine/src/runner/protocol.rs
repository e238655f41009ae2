//! The interface of a runner: options, inputs, actions, and events for people.

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

#[derive(Debug, Clone)]
pub struct Options {
    /// The most runs at a time.
    pub max_runs: Option<u32>,
    /// The limits for a project that has none yet.
    pub limits: Limits,
    /// The sections that the runner serves; all if empty.
    pub sections: Vec<SectionId>,
    /// Whether to end when there is nothing left to do.
    pub until_idle: bool,
    /// The silence timeout of runs, and the limits for their recoveries.
    pub watch: Watch,
    /// The longest time that a run may take.
    pub max_duration: Option<Span>,
    /// How often the activity of a live run is recorded.
    pub checkpoint_interval: Option<Span>,
    /// How long a session may take to end after the request.
    pub kill_patience: Span,
    /// The longest sleep: covers lost wake-ups.
    pub poll: Span,
    /// The silence after which other machines may treat its runs as lost, because they cannot observe the process: the runner renews three
    /// times as often. `None` where all runners are on one machine. Equal to the [terms](banksman_core::backlog::Runner::terms) of its row.
    pub lease: Option<Span>,
}

impl Options {
    /// The options of a runner that takes any task, without limits, until it is stopped.
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

/// An input from the driver.
#[derive(Debug)]
pub enum Input {
    /// The rows of [`Action::Load`].
    Rows(Box<Snapshot>),
    /// The results for the processes of [`Action::Probe`].
    Probed(Vec<(ProcessId, Liveness)>),
    /// The state of the files DONE of [`Action::Check`].
    Checked(Vec<(TaskId, Marker)>),
    /// The replies to the requests of [`Action::Call`], in their order.
    Replies(Vec<Reply>),
    /// The store did not reply: the requests may have been carried out, or not.
    NoReply,
    /// The rows may have changed.
    Woken,
    /// There are new events in the log.
    NewEvents,
    /// A watched process has died.
    Died(ProcessId),
    /// This process was stalled for this long, perhaps with all the others.
    Stalled(Span),
    /// Start nothing more, leave the sessions to their keepers, and end.
    Leave,
    /// The session of a run has begun.
    Started(RunId, Session),
    /// The model of the agent of a run has answered for the first time.
    Answered(RunId),
    /// The process tree of a run was seen dead.
    Ended(RunId, RunEndRecord),
    /// The session of a run could not begin, because the machine lacks a resource.
    Shortage(RunId, RunEndRecord),
    /// The keeper of a run is dead and has left no record of the end.
    KeeperGone(RunId),
    /// The state of the session of a run could not be determined. It is tried again in a moment.
    Unclear(RunId),
    /// The keeper of a run is dead, but its processes cannot be proven dead. A person is asked, once; the session is checked again from
    /// time to time.
    Unproven(RunId, Box<str>),
    /// The answer to [`Action::Pulse`]; `None` if the keeper did not reply.
    Pulse(RunId, Option<Vitals>),
    /// An outbox command was carried out, or failed.
    CommandDone(Seq, Result<(), Box<str>>),
    /// An outbox command failed for good.
    CommandFailed(Seq, Box<str>),
    /// The progress of an entry by the job of [`Action::Land`].
    LandingStands(Box<Entry>),
    /// The job of [`Action::Land`] has ended: nothing is left to do for now, or it has failed.
    Landed(Name, Result<(), Box<str>>),
    /// The inputs for the guards of a pipeline, as far as [`Action::CheckGuards`] could gather them.
    GuardsChecked(Box<Pipeline>, Box<GuardInputs>),
}

/// The next action of the driver.
#[derive(Debug, Clone)]
pub enum Action {
    /// Read these rows.
    Load(BTreeSet<Key>),
    /// Probe these processes.
    Probe(Vec<ProcessId>),
    /// Check the file DONE of these tasks.
    Check(Vec<TaskId>),
    /// Send these requests to the store as one batch.
    Call(Vec<Request>),
    /// Start the session of a run.
    Spawn(Box<Work>),
    /// Determine the state of the session of a run, and take it over.
    Recover(Box<Work>),
    /// Determine the last activity of a run.
    Pulse(RunId, Span),
    /// End the session of a run; if `true`, without a grace period.
    Kill(RunId, bool),
    /// Nudge the session of a run, once for this number.
    Nudge(RunId, Seq),
    /// Send a waiting message of a task into its live session, and report the result under this number.
    Deliver(TaskId, MessageId, Seq),
    /// Notify people.
    Notify(Seq, Box<Notice>),
    /// Gather the inputs of the guards of a pipeline.
    CheckGuards(Box<Pipeline>),
    /// The pipeline no longer waits for this check: end it soon, if only with an unknown result.
    StopGuards(TaskId),
    /// Work for the merge queue of this branch until nothing is left to do.
    Land(Name),
    /// Notify the keeper of a run that its end is durable.
    Acknowledge(RunId),
    /// Disconnect from the session of a run: another runner owns it.
    Forget(RunId),
    Sleep {
        /// Wake up when one of these processes dies.
        watch: Vec<ProcessId>,
        at_most: Span,
    },
    /// There is nothing left to do.
    Done,
}

/// The pending actions and events of the parts of a runner.
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

/// An event for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerEvent {
    Started(Box<Work>),
    /// A run of a runner that is gone has a new owner.
    Adopted(Box<Work>),
    /// The machine lacks a resource to start more runs, with the error. Their tasks stay pending, and are tried later.
    Short(Box<str>),
    /// The shortage is over.
    Enough,
    /// The project was paused: no task is started.
    Paused(Box<Pause>),
    /// The project was resumed.
    Resumed,
    /// A run has shown no activity for too long.
    Stuck(Box<Work>),
    Recovered(Box<Work>),
    /// A run is being stopped: it took too long, or no recovery has helped.
    Stopping(Box<Work>),
    /// A run has ended, with the outcome of its task.
    Ended(Box<Work>, RunEndRecord, task::Outcome),
    /// A task has continued without a run: its file DONE was found, or its children have ended.
    Settled(Box<Task>, task::Outcome),
    Begins(Box<Pipeline>),
    /// A pipeline is blocked by a guard, has failed, or is done.
    Stands(Box<Pipeline>),
    /// A worker cannot make a task of an item.
    Unfit {
        worker: Name,
        /// The queue of the item.
        queue: Name,
        item: ItemId,
        error: Box<str>,
    },
    /// The progress of an entry of a merge queue.
    Landing(Box<Entry>),
    /// The job for the merge queue of this branch has failed, with the error.
    LandingTrouble(Name, Box<str>),
    /// The change of the number of ready tasks that only wait for a run slot. Only tasks that a claim has read are counted: the first few
    /// of each lane.
    Queued(i64),
}
