//! The explanation of the state of a task, as data.

use banksman_core::agent::limit::AccountLimit;
use banksman_core::backlog::{Run, Session, Shortage};
use banksman_core::decision::Question;
use banksman_core::guard::GuardResult;
use banksman_core::landing::{Entry, Pause};
use banksman_core::pipeline::Pipeline;
use banksman_core::resource::grant;
use banksman_core::task::admission::{Holding, Reason};
use banksman_core::task::{After, RetryReason, Stuck, TaskEnd};
use banksman_core::{DecisionId, HolderId, Lease, MessageId, Name, RunId, RunnerId, Stamp, Status, Task, TaskId, Title};

/// The answer about one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    pub task: Task,
    /// The displayed status, which depends on dependencies, too.
    pub status: Status,
    /// The time of the snapshot.
    pub at: Stamp,
    pub answer: Answer,
    /// The future of its item, if the task is an attempt at one.
    pub item_future: Option<ItemFuture>,
    /// Whether a runner that takes tasks is alive.
    pub has_runner: bool,
    /// The number of dependencies that block it.
    pub unmet: usize,
    /// The processes that wait to work on the task and were woken in their turn, but do not answer.
    pub unanswered: Vec<Unanswered>,
}

/// A process that waits to work on a task, was woken and has not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unanswered {
    pub holder: HolderId,
    pub pid: i32,
    /// When it was woken.
    pub since: Lease,
}

/// The future of an item, from the view of one of its attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemFuture {
    /// The end of this attempt decides.
    Open,
    /// The item waits for the next attempt.
    Waits,
    /// Another attempt is in progress.
    Again {
        holder: HolderId,
        /// The task of that attempt, if the same worker makes it.
        task: Option<TaskId>,
    },
    Dead {
        /// The queue of the item: its own, or the dead-letter queue.
        queue: Name,
        reason: Box<str>,
    },
    /// The item is completed, or was removed.
    Gone,
}

/// The reason for the state of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Waits(Vec<Cause>),
    /// Nothing blocks the task, and this runner has room for it.
    Starting(RunnerId),
    Running {
        run: Attended,
        /// Since when the run is stuck, and why.
        stuck: Option<(Stamp, Stuck)>,
    },
    Stopping {
        run: Attended,
        since: Stamp,
        then: After,
    },
    /// The task itself is done, and waits for its children.
    Awaiting {
        /// The children that have not ended.
        children: Vec<Link>,
        /// The time until which they may run; `None` if they are being ended.
        until: Option<Lease>,
    },
    /// The task needs the decision of a person.
    AwaitingDecision {
        decision: DecisionId,
        question: Option<Question>,
    },
    /// A person works on the task.
    Manual {
        holder: HolderId,
        /// When the claim expires.
        until: Option<Lease>,
    },
    /// The task is in the phases of its pipeline.
    InPhases(Box<Phases>),
    /// Its work is in the merge queue.
    Landing(Box<LandingPlace>),
    /// A person reviews the task. If its work was returned from a merge queue, this entry has the reason.
    Review(Option<Box<Entry>>),
    Over {
        done: TaskEnd,
        /// Its last run, if it had one and the run was read.
        last: Option<Box<Run>>,
        /// Its pipeline, if it has one.
        pipeline: Option<Box<Pipeline>>,
    },
}

/// The progress of the work of a task in a merge queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LandingPlace {
    pub entry: Option<Entry>,
    /// The pause of the target, if nothing lands on it.
    pub paused: Option<Pause>,
    /// How many entries come before it.
    pub ahead: usize,
    /// The task whose author resolves a conflict in the same files first.
    pub author_before: Option<TaskId>,
    /// Why its commit cannot be checked here, if so.
    pub uncheckable: Option<Box<str>>,
    /// Whether a runner is alive that can continue the entry.
    pub has_runner: bool,
}

/// The state of a task that is in phases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phases {
    pub pipeline: Pipeline,
    /// The task of the current phase, and the reason for its state.
    pub phase: Option<(TaskId, Answer)>,
    /// The current result of the blocking guard, if the store alone can give it.
    pub guard: Option<GuardResult>,
    /// Whether a runner is alive that can continue the pipeline.
    pub has_runner: bool,
}

/// A condition that must change before the task can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The task has no work for a runner: it is manual.
    Manual,
    /// A person has paused the project or the task.
    Paused {
        pause: banksman_core::Pause,
        /// Whether the pause is for this task alone.
        is_task: bool,
    },
    /// The task is in backoff between two attempts.
    Backoff {
        until: Lease,
        /// Why its last session could not begin, if that caused the backoff.
        not_begun: Option<Box<str>>,
        /// The agent, the reason and the message, if a failure of its agent caused the backoff.
        agent: Option<(Name, RetryReason, Box<str>)>,
    },
    /// As many roots as allowed are under way, or will be before this one: earlier roots that only wait for room.
    Roots {
        limit: u32,
        /// The roots under way, with the time of their last change.
        roots: Vec<(TaskId, Title, Stamp)>,
        /// How many ready tasks come before this one.
        ahead: u64,
    },
    /// A dependency is not completed.
    Dependency(Chain),
    /// A dependency has just ended, and it has very many dependents: they are notified a page at a time.
    PassedOn { task: TaskId },
    /// A lock or slots are taken: `Section`, `TaskLock`, `Lock`, `Slots`, `Undefined` or `NoSlot` of admission.
    Taken {
        reason: Reason,
        holders: Vec<Holder>,
        /// The waiters, then the claims for which the resource is reserved when it is free.
        line: Vec<(HolderId, Stamp)>,
        /// How many ready tasks come before this one, if a run slot is missing.
        ahead: u64,
    },
    /// The account of its agent is limited, or not logged in, or the budget of the day is spent.
    AccountLimit { agent: Name, limit: Box<AccountLimit> },
    /// A run of another runner, or of none, is still live in its exclusive section.
    SectionBusy { name: Title, run: Attended, task: TaskId },
    NoRunner {
        /// How many ready tasks come before this one.
        ahead: u64,
    },
    /// Runners are alive, but none of them can take the task.
    NoRunnerFree {
        /// The runners, each with its obstacles.
        runners: Vec<(RunnerId, Vec<Obstacle>)>,
        /// How many ready tasks come before this one.
        ahead: u64,
    },
}

/// A reason why one runner cannot take the task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The runner serves these sections only.
    OtherSections(Vec<Title>),
    /// The runner has as many runs as it may.
    Full(u32),
    /// The exclusive section of the task: a `Taken` or a `SectionBusy`.
    Section(Box<Cause>),
    /// The machine of the runner lacks a resource to start more runs.
    Short(Shortage),
}

/// A dependency, followed to the task that causes the wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The dependency, its own dependency, and so on.
    pub links: Vec<Link>,
    /// The state of the last task.
    pub end: ChainEnd,
}

/// A task of a chain of dependencies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub id: TaskId,
    /// The title; `None` if the task is gone.
    pub title: Option<Title>,
    /// The status; `None` if the task is gone.
    pub status: Option<Status>,
    pub since: Option<Stamp>,
}

/// The reason at the end of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainEnd {
    Gone,
    /// The chain continues, but was not followed further.
    More,
    /// The tasks wait for each other. The first one is repeated as the last.
    Cycle(Vec<TaskId>),
    Because(Box<Answer>),
}

/// Whether a runner lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Alive,
    Gone,
    /// The runner cannot be observed from here, and may live.
    Unknown,
}

/// A live run, and its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attended {
    pub id: RunId,
    /// Counted from 0.
    pub attempt: u32,
    pub started: Stamp,
    /// Its processes, once they are known to have been started.
    pub session: Option<Session>,
    pub owner: RunnerId,
    pub life: Life,
    /// The runner that will adopt the run, if its owner is gone.
    pub heir: Option<RunnerId>,
    /// The open question to a person whether the run may be ended: its keeper is dead, but its processes cannot be proven dead; or its
    /// session was not observed for too long.
    pub asked: Option<DecisionId>,
    /// The message in its prompt that holds the dispatch lock of its task until its session is observed.
    pub prompted: Option<MessageId>,
    /// Why its keeper does not answer, if it was asked and does not.
    pub silence: Option<Box<str>>,
    /// How its session has ended, if it has ended without an owner: its end is not recorded yet.
    pub ended: Option<Box<str>>,
}

impl Attended {
    /// Whether its session has ended and no runner will record the end.
    pub fn is_unrecorded(&self) -> bool {
        self.ended.is_some() && self.heir.is_none()
    }
}

/// The holder of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The holder, since when, and until when if the grant expires.
    pub holding: Holding,
    /// Its processes.
    pub pids: Vec<i32>,
    /// Why the grant is over although it still exists.
    pub over: Option<grant::Reason>,
    /// The run, with its task, if the holder is a run.
    pub run: Option<(Attended, TaskId, Title)>,
}

impl Why {
    /// Whether a runner has the task, or will take it at once.
    pub fn is_started(&self) -> bool {
        match &self.answer {
            Answer::Waits(_) => false,
            Answer::Starting(_) => true,
            _ => self.status != Status::Pending,
        }
    }

    /// The position in the queue for a run, if the task is queued.
    pub fn position(&self) -> Option<u64> {
        match &self.answer {
            Answer::Waits(causes) if self.status == Status::Pending => causes.iter().filter_map(Cause::position).max(),
            _ => None,
        }
    }
}

impl Cause {
    /// The position in the queue, if tasks queue for this cause.
    pub fn position(&self) -> Option<u64> {
        match self {
            Cause::Taken { reason: Reason::NoSlot { .. }, ahead, .. } => Some(ahead + 1),
            Cause::NoRunnerFree { runners, ahead } => is_queue(runners).then_some(ahead + 1),
            Cause::Roots { ahead, .. } | Cause::NoRunner { ahead } => Some(ahead + 1),
            Cause::Taken { .. }
            | Cause::PassedOn { .. }
            | Cause::Manual
            | Cause::Paused { .. }
            | Cause::Backoff { .. }
            | Cause::Dependency(_)
            | Cause::AccountLimit { .. }
            | Cause::SectionBusy { .. } => None,
        }
    }
}

/// Whether one of these runners takes the task as soon as one of its runs ends.
pub(super) fn is_queue(runners: &[(RunnerId, Vec<Obstacle>)]) -> bool {
    runners.iter().any(|(_, obstacles)| obstacles.iter().all(Obstacle::is_full))
}

impl Obstacle {
    pub(super) fn is_full(&self) -> bool {
        match self {
            Obstacle::Full(_) => true,
            Obstacle::OtherSections(_) | Obstacle::Section(_) | Obstacle::Short(_) => false,
        }
    }
}
