//! The names of the rows that a decision needs.

use banksman_core::event::{Kind, Resource};
use banksman_core::queue::Part;
use banksman_core::{
    DecisionId, DedupeKey, HolderId, ImportId, ItemId, LandingId, Lease, MessageId, Name, RequestId, RunId, RunnerId, SectionId,
    Seq, TaskId,
};

/// A set of rows to load.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// One lock with its waiters.
    Lock(Name),
    /// One semaphore with its holders and waiters.
    Semaphore(Name),
    /// The semaphore of the run slots: the holders whose grants time or a death may end, and the number of slots that
    /// the others take.
    RunSlots,
    /// The run slot of one run, if it has one. Needs the run slots.
    RunSlot(RunId),
    /// All waiters, and the locks and semaphores that they wait for.
    Waits,
    /// The earlier grant of a request, as long as its event is in the log.
    Request(RequestId),
    Sections,
    Task(TaskId),
    /// A task and all its descendants, with their pipelines and what these hold.
    Family(TaskId),
    /// The dependencies of a task, and the tasks that they lead to.
    Dependencies(TaskId),
    /// The edges of the tasks that depend on a task.
    Dependents(TaskId),
    /// The same edges for a task and all its descendants.
    FamilyDependents(TaskId),
    /// All edges on the way upstream of a task: of its dependencies, of their dependencies, and so on.
    Upstream(TaskId),
    /// A task and, if it is pending, everything that holds it back, directly or not: the nearest
    /// [`CHAIN_LIMIT`](crate::CHAIN_LIMIT) tasks, with their unmet edges.
    Chain(TaskId),
    /// The tasks of a section.
    InSection(SectionId),
    /// The first few ready tasks of every lane.
    Ready {
        of_each: u32,
        /// Only tasks of these sections; of all sections if empty.
        sections: Vec<SectionId>,
    },
    /// The first few ready roots of every lane by arrival, if the project limits its roots; otherwise nothing.
    ReadyRoots {
        of_each: u32,
        /// Only roots of these sections; of all sections if empty.
        sections: Vec<SectionId>,
    },
    /// The first tasks that are parked on a lock or a semaphore.
    ParkedOn(Resource),
    /// The first task of each of the first few locks and semaphores that tasks are parked on.
    Parked {
        /// Only locks and semaphores after this one, by kind and name.
        after: Option<Resource>,
        limit: u32,
    },
    /// The number of dependents of a task, counted up to one more than [`FAN_OUT`](crate::FAN_OUT).
    DependentCount(TaskId),
    /// The first ended task whose fan-out to its dependents is not finished.
    FanOut,
    /// The tasks that time alone may change, most urgent first, up to a thousand.
    Due,
    /// All roots that time alone may change, and all roots in their phases.
    DueRoots,
    /// The roots of [`Key::DueRoots`] and those with a live run, if the project limits its roots; otherwise nothing.
    LimitedRoots,
    /// The first locks and semaphores with a grant that has expired by now.
    Expired {
        now: Lease,
        limit: u32,
    },
    /// Loops that wait for their next attempt.
    Loops {
        /// Only loops after this position.
        after: Seq,
        limit: u32,
    },
    /// The last report that the backlog is finished, and the last run: whether there is something new to report.
    FinishedMark,
    /// The number of tasks by status, and of dead items of workers.
    Counts,
    /// The open decisions.
    OpenDecisions,
    Decision(DecisionId),
    /// Everything that manual work on a task or its descendants may hold: locks, the locks of sections, and the other
    /// tasks in these sections that are worked on manually.
    Manual(TaskId),
    /// The tasks that a holder has claimed, and everything that these claims hold. Nothing is read while there are no
    /// claims.
    ClaimsBy(HolderId),
    /// The same for all claims that include a lock or a semaphore of this name.
    ClaimsOn(Name),
    /// All live runs, and their tasks.
    Live,
    /// The live runs in exclusive sections, and their tasks. Needs [`Key::Sections`]: nothing is read while no section
    /// is exclusive.
    LiveExclusive,
    /// The live runs of one runner, and their tasks.
    LiveOf(RunnerId),
    Run(RunId),
    RunsOf(TaskId),
    Runners,
    Runner(RunnerId),
    /// The runner with duty, and the first idle runners. Loaded with every lock and semaphore.
    Idle,
    /// All outbox entries.
    Outbox,
    /// The outbox entries of one runner, and those without an executor: any runner may carry them out.
    OutboxOf(RunnerId),
    /// The outbox entries of a run.
    OutboxOfRun(RunId),
    /// One entry of a merge queue.
    Landing(LandingId),
    /// The merge queue of a branch: its target and its open entries.
    LandingQueue(Name),
    /// All merge queues: their targets and open entries.
    OpenLandings,
    /// The last entry of a task in a merge queue, and its target.
    LandingOf(TaskId),
    /// The last entry of each ancestor of a task: one of them may wait for the task.
    LandingsAbove(TaskId),
    /// The account limits that were reached.
    AccountLimits,
    /// Usage and cost of agents, by day and agent.
    Spend {
        /// The first day, counted from 1970.
        since: i64,
    },
    /// All unfinished imports.
    Imports,
    /// The first [`IMPORTED`](crate::IMPORTED) tasks of an unfinished import.
    Imported(ImportId),
    /// The pipeline of a task, or the pipeline whose phase the task is, with its task and the locks that it holds.
    Pipeline(TaskId),
    /// All pipelines that have begun and have not ended.
    BegunPipelines,
    /// The first few pipelines that are due by now, the time when the next one is due, and the event since which others
    /// listen.
    DuePipelines {
        now: Lease,
        limit: u32,
    },
    /// The first few pipelines that listen to a source with events in this part of the log.
    HeardPipelines {
        /// After this event.
        after: Seq,
        /// Up to this one.
        through: Seq,
        limit: u32,
    },
    /// The first few locks and semaphores that pipelines wait for.
    Awaited {
        limit: u32,
    },
    /// The workspace of a task or a pipeline.
    Workspace(TaskId),
    Workspaces,
    /// All queues, without their items.
    Queues,
    /// One queue and its dead-letter queue, without their items.
    NamedQueue(Name),
    /// One item, wherever it is.
    Item(ItemId),
    /// The item of a queue that blocks other items with this deduplication key.
    Dedupe(Name, DedupeKey),
    /// The items that the next takes of a queue may need. The keys of a batch are added up.
    Head {
        queue: Name,
        /// The number of takes.
        takes: u32,
        /// The number of ready items that other calls of the batch may remove.
        removed: u32,
        /// The number of timed items that other calls of the batch may remove.
        ended: u32,
    },
    /// The first items of one kind in a queue.
    Part {
        queue: Name,
        part: Part,
        limit: u32,
    },
    /// The first process that waits for an item of a queue.
    FirstTaker(Name),
    /// All processes that wait for an item of a queue or of its dead-letter queue.
    Takers(Name),
    /// All processes that wait for an item.
    AllTakers,
    /// All workers with their jobs, all routes, and the router's cursor, in one statement.
    Automation,
    /// One worker with its jobs.
    Worker(Name),
    Route(Box<str>),
    /// The router's cursor: the last event that was routed.
    Router,
    /// The addresses of the runners to wake, if a queue has a worker.
    WorkerRunners(Name),
    /// The same for a queue and its dead-letter queue.
    WorkerRunnersBeyond(Name),
    /// The same for all queues.
    AllWorkerRunners,
    Message(MessageId),
    /// The delivery of this message, if it is addressed to a task.
    Delivery(MessageId),
    /// The open deliveries to a task.
    Mailbox(TaskId),
    /// The first deliveries that a dispatch holds a lock for, and the first targets that have ended or are gone and
    /// still have messages.
    UnsettledDeliveries {
        limit: u32,
    },
    /// Events of the log.
    Log {
        after: Seq,
        limit: u32,
    },
}

impl Key {
    /// The key of a lock or a semaphore.
    pub fn resource(resource: &Resource) -> Key {
        match resource.kind {
            Kind::Lock => Key::Lock(resource.name.clone()),
            Kind::Semaphore => Key::Semaphore(resource.name.clone()),
        }
    }
}
