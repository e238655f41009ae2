//! What can be said of where a task is, as data.

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
    /// The word for how it stands, with what dependencies tell.
    pub status: Status,
    /// The moment of which all this is true.
    pub at: Stamp,
    pub answer: Answer,
    /// What becomes of the item that it is an attempt at, if it is one.
    pub item_future: Option<ItemFuture>,
    /// Whether a runner that takes tasks is alive.
    pub has_runner: bool,
    /// How many of its dependencies hold it back.
    pub unmet: usize,
    /// Those who wait to work on it, and were woken because it is their turn, but do not answer.
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

/// What becomes of an item, as one of the attempts at it sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemFuture {
    /// The end of this attempt decides.
    Open,
    /// It waits for the next attempt.
    Waits,
    /// Another attempt is made at it.
    Again {
        holder: HolderId,
        /// The task of it, if the same worker makes it.
        task: Option<TaskId>,
    },
    Dead {
        /// The queue in which it is: its own, or the one for its dead letters.
        queue: Name,
        reason: Box<str>,
    },
    /// It is done, or was removed.
    Gone,
}

/// Why a task is where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Waits(Vec<Cause>),
    /// Nothing stands in the way, and this runner has room for it.
    Starting(RunnerId),
    /// A run works on it.
    Running {
        run: Attended,
        /// Since when it looks stuck, and why.
        stuck: Option<(Stamp, Stuck)>,
    },
    Stopping {
        run: Attended,
        since: Stamp,
        then: After,
    },
    /// It is done, as far as it depends on itself, and waits for its children.
    Awaiting {
        /// Those that have not ended.
        children: Vec<Link>,
        /// Until when they have time; without it they are being ended.
        until: Option<Lease>,
    },
    /// It cannot go on by itself: a person decides.
    AwaitingDecision {
        decision: DecisionId,
        question: Option<Question>,
    },
    /// A person works on it.
    Manual {
        holder: HolderId,
        /// Until when, if time alone ends it.
        until: Option<Lease>,
    },
    /// It goes through the phases of its pipeline.
    InPhases(Box<Phases>),
    /// Its work is in the merge queue.
    Landing(Box<LandingPlace>),
    /// A person looks at it. If its work came out of a merge queue, this entry says why.
    Review(Option<Box<Entry>>),
    Over {
        done: TaskEnd,
        /// Its last run, if it had one and it was looked up.
        last: Option<Box<Run>>,
        /// Its pipeline, if it has one.
        pipeline: Option<Box<Pipeline>>,
    },
}

/// How far the work of a task has come in a merge queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LandingPlace {
    pub entry: Option<Entry>,
    /// Why nothing lands on the target, if so.
    pub paused: Option<Pause>,
    /// How many entries come before it.
    pub ahead: usize,
    /// The task whose author resolves a conflict in the same files first.
    pub author_before: Option<TaskId>,
    /// Why its commit cannot be checked here, if so.
    pub uncheckable: Option<Box<str>>,
    /// Whether a runner is alive that can go on with it.
    pub has_runner: bool,
}

/// Where a task is that goes through phases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phases {
    /// Its pipeline, which says how it stands.
    pub pipeline: Pipeline,
    /// The task of its phase, and why that is where it is.
    pub phase: Option<(TaskId, Answer)>,
    /// What the guard that holds it up says now, if that can be told from the store alone.
    pub guard: Option<GuardResult>,
    /// Whether a runner is alive that can go on with it.
    pub has_runner: bool,
}

/// Something that must change before the task can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// It has nothing for a runner to do: it is for people.
    Manual,
    /// A person wants that it is not started.
    Paused {
        pause: banksman_core::Pause,
        /// Whether that is for this task alone.
        is_task: bool,
    },
    /// It rests between two attempts.
    Backoff {
        until: Lease,
        /// Why its last session could not begin, if it rests for that.
        not_begun: Option<Box<str>>,
        /// What kept its agent from working, if it rests for that: the agent, the reason, and its words.
        agent: Option<(Name, RetryReason, Box<str>)>,
    },
    /// As many roots as allowed are under way, or will be before this one: those that came earlier and wait for nothing but room.
    Roots {
        limit: u32,
        /// Which ones, and since when they stand as they do.
        roots: Vec<(TaskId, Title, Stamp)>,
        /// How many ready tasks come before this one.
        ahead: u64,
    },
    /// A task that must come first is not completed.
    Dependency(Chain),
    /// A task that must come first has just ended, and very many wait for it: they learn of it a page at a time.
    PassedOn { task: TaskId },
    /// A lock or slots are taken: `Section`, `TaskLock`, `Lock`, `Slots`, `Undefined` or `NoSlot` of admission.
    Taken {
        reason: Reason,
        holders: Vec<Holder>,
        /// Who waits for it, then the claims that it is kept for when it is free.
        line: Vec<(HolderId, Stamp)>,
        /// How many ready tasks come before this one, if a run slot is what is missing.
        ahead: u64,
    },
    /// The account of its agent is limited, or not logged in, or the budget of the day is spent.
    AccountLimit { agent: Name, limit: Box<AccountLimit> },
    /// A run that others look after, or nobody, still lives in its exclusive section.
    SectionBusy { name: Title, run: Attended, task: TaskId },
    NoRunner {
        /// How many ready tasks come before this one.
        ahead: u64,
    },
    /// Runners are alive, and none of them can take it.
    NoRunnerFree {
        /// Each of them, with what keeps it from it.
        runners: Vec<(RunnerId, Vec<Obstacle>)>,
        /// How many ready tasks come before this one.
        ahead: u64,
    },
}

/// What keeps one runner from taking the task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// It works in these sections only.
    OtherSections(Vec<Title>),
    /// It has as many runs as it may.
    Full(u32),
    /// The exclusive section of the task: a `Taken` or a `SectionBusy`.
    Section(Box<Cause>),
    /// Its machine has not enough of something to start more runs.
    Short(Shortage),
}

/// A dependency, followed to where the waiting begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The dependency, what it waits for, and so on.
    pub links: Vec<Link>,
    /// What is the matter with the last of them.
    pub end: ChainEnd,
}

/// A task that is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub id: TaskId,
    /// What people call it; unknown if it is gone.
    pub title: Option<Title>,
    /// How it stands; `None` if it is gone.
    pub status: Option<Status>,
    pub since: Option<Stamp>,
}

/// What is the matter with the last task of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainEnd {
    Gone,
    /// The chain goes on; it was not followed further.
    More,
    /// The tasks wait for each other. The first is named again as the last.
    Cycle(Vec<TaskId>),
    Because(Box<Answer>),
}

/// Whether a runner lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Alive,
    Gone,
    /// It cannot be seen from here. It may.
    Unknown,
}

/// A live run, and who looks after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attended {
    pub id: RunId,
    /// Counted from 0.
    pub attempt: u32,
    pub started: Stamp,
    /// Its processes, once it is known that they were started.
    pub session: Option<Session>,
    /// Who looks after it.
    pub owner: RunnerId,
    pub life: Life,
    /// Who will look after it, if its owner is gone.
    pub heir: Option<RunnerId>,
    /// The open question to a person whether it may be ended: its keeper is dead, and its processes cannot be proven to be; or its session was
    /// not seen for long.
    pub asked: Option<DecisionId>,
    /// The message in its prompt that holds the dispatch lock of its task until its session is seen.
    pub prompted: Option<MessageId>,
    /// Why its keeper does not answer, if it was asked and does not.
    pub silence: Option<Box<str>>,
    /// How its session has ended, if it has while nobody looked after it: that is not recorded yet.
    pub ended: Option<Box<str>>,
}

impl Attended {
    /// Whether its session has ended and no runner will record that.
    pub fn is_unrecorded(&self) -> bool {
        self.ended.is_some() && self.heir.is_none()
    }
}

/// Who holds something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Who, since when, and until when if time alone ends it.
    pub holding: Holding,
    /// Its processes.
    pub pids: Vec<i32>,
    /// Why the grant is over though it is still there.
    pub over: Option<grant::Reason>,
    /// The run, with its task, if it is one.
    pub run: Option<(Attended, TaskId, Title)>,
}

impl Why {
    /// Whether a runner has it, or will take it at once.
    pub fn is_started(&self) -> bool {
        match &self.answer {
            Answer::Waits(_) => false,
            Answer::Starting(_) => true,
            _ => self.status != Status::Pending,
        }
    }

    /// Its place in the queue for a run, if it waits in one.
    pub fn position(&self) -> Option<u64> {
        match &self.answer {
            Answer::Waits(causes) if self.status == Status::Pending => causes.iter().filter_map(Cause::position).max(),
            _ => None,
        }
    }
}

impl Cause {
    /// The place in the queue, if this is something that tasks queue for.
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
