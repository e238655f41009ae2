//! How a decision names the rows that it needs.

use banksman_core::event::{Kind, Resource};
use banksman_core::queue::Part;
use banksman_core::{
    DecisionId, DedupeKey, HolderId, ImportId, ItemId, LandingId, Lease, MessageId, Name, RequestId, RunId, RunnerId, SectionId,
    Seq, TaskId,
};

/// Names rows to load.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// One lock with its line.
    Lock(Name),
    /// One semaphore with its holders and its line.
    Semaphore(Name),
    /// The run slots: how many are taken, without the holders whose grants neither time nor a death ends.
    RunSlots,
    /// The run slot of one run, if it has one. Needs the run slots.
    RunSlot(RunId),
    /// Everything that anybody waits for.
    Waits,
    /// What a request was granted before, as long as that event is in the log.
    Request(RequestId),
    Sections,
    Task(TaskId),
    /// A task and all its descendants, with their pipelines and what these hold.
    Family(TaskId),
    /// What a task depends on: the edges, and the tasks that they lead to.
    Dependencies(TaskId),
    /// Who waits for a task: the edges alone.
    Dependents(TaskId),
    /// The same for a task and all its descendants.
    FamilyDependents(TaskId),
    /// The edges of everything that a task depends on, directly or not.
    Upstream(TaskId),
    /// A task and, if it is pending, all that holds it back, directly or not: the nearest [`CHAIN_LIMIT`](crate::CHAIN_LIMIT) tasks, with those
    /// edges of theirs that are not met.
    Chain(TaskId),
    /// The tasks of a section.
    InSection(SectionId),
    /// The first few ready tasks of every lane.
    Ready {
        of_each: u32,
        /// Of which sections; of all, if there is none.
        sections: Vec<SectionId>,
    },
    /// The first few ready roots of every lane in the order of their arrival, if the project limits its roots, else nothing.
    ReadyRoots {
        of_each: u32,
        /// Of which sections, likewise.
        sections: Vec<SectionId>,
    },
    /// The first tasks that wait for a lock or a semaphore.
    ParkedOn(Resource),
    /// The first task of each of the first few locks and semaphores that tasks wait for.
    Parked {
        /// Of those that come after this one, by kind and name.
        after: Option<Resource>,
        limit: u32,
    },
    /// How many tasks wait for a task: none, some, or so many that they learn of its end a page at a time.
    DependentCount(TaskId),
    /// The first ended task whose dependents have not all learned of it.
    FanOut,
    /// The tasks that time alone may change, the most urgent first, up to a thousand.
    Due,
    /// The roots among them, all of them, and those that go through phases.
    DueRoots,
    /// The same if the project limits its roots, else nothing.
    LimitedRoots,
    /// The first locks and semaphores with a grant that time has ended by now.
    Expired {
        now: Lease,
        limit: u32,
    },
    /// Loops that wait for their next attempt.
    Loops {
        /// From which position on.
        after: Seq,
        /// How many at most.
        limit: u32,
    },
    /// Whether something was done since people were told that there is nothing left to do.
    FinishedMark,
    /// How many tasks stand how, and how many items of workers are dead.
    Counts,
    /// The decisions that wait for an answer.
    OpenDecisions,
    Decision(DecisionId),
    /// What people who work on a task or its descendants may hold: their locks, those of their sections, and the other tasks
    /// in these sections that are worked on by hand.
    Manual(TaskId),
    /// The tasks that a holder has claimed, and everything that these claims hold. Nothing is read while there are no claims.
    ClaimsBy(HolderId),
    /// The same for the claims that a lock or a semaphore is part of.
    ClaimsOn(Name),
    /// All live runs, and their tasks.
    Live,
    /// Those in exclusive sections. [`Key::Sections`] must be loaded with them: nothing is read while no section is exclusive.
    LiveExclusive,
    /// Those of one runner.
    LiveOf(RunnerId),
    Run(RunId),
    /// All runs of a task.
    RunsOf(TaskId),
    Runners,
    Runner(RunnerId),
    /// The runner that has duty, and the first of those that wait for tasks. Loaded with every lock and semaphore.
    Idle,
    /// All that is to be done outside.
    Outbox,
    /// What one runner is to do outside, or whoever comes first.
    OutboxOf(RunnerId),
    /// What is to be done outside for a run.
    OutboxOfRun(RunId),
    /// One entry of a merge queue.
    Landing(LandingId),
    /// The merge queue of a branch: its target and its open entries.
    LandingQueue(Name),
    /// All merge queues: their targets and open entries.
    OpenLandings,
    /// The last entry of a task in a merge queue.
    LandingOf(TaskId),
    /// The last entry of each whose descendant a task is: one may wait for it.
    LandingsAbove(TaskId),
    /// The limits of accounts that were reached.
    AccountLimits,
    /// What agents have used and cost, by day and agent.
    Spend {
        /// From this day on, counted from 1970.
        since: i64,
    },
    /// All imports that are not finished.
    Imports,
    /// The first [`IMPORTED`](crate::IMPORTED) tasks of an import that is not finished.
    Imported(ImportId),
    /// The pipeline of a task, or that whose phase it is, with its task and the locks that it holds.
    Pipeline(TaskId),
    /// All pipelines that have begun and are not over.
    BegunPipelines,
    /// The first few pipelines that are to be looked at by now, when the next one is, and since when others listen.
    DuePipelines {
        now: Lease,
        limit: u32,
    },
    /// The first few pipelines that listen to what has happened in a part of the log.
    HeardPipelines {
        /// After this event.
        after: Seq,
        /// Up to this one.
        through: Seq,
        limit: u32,
    },
    /// The first few locks, and semaphores, that pipelines wait for.
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
    /// The item of a queue that keeps others with this key out.
    Dedupe(Name, DedupeKey),
    /// The items that the next takes of a queue look at. Within a batch they add up.
    Head {
        queue: Name,
        /// How many takes there are.
        takes: u32,
        /// How many items that can be taken may be gone by something else in the same batch.
        removed: u32,
        /// How many items that wait for a time may be gone so.
        ended: u32,
    },
    /// The first items of one kind in a queue.
    Part {
        queue: Name,
        /// Of which kind.
        part: Part,
        limit: u32,
    },
    /// The first who waits for an item of a queue.
    FirstTaker(Name),
    /// All who wait for an item of a queue, or of its dead-letter queue.
    Takers(Name),
    /// All who wait for an item.
    AllTakers,
    /// All workers, their jobs, all routes, and how far events were routed: one statement.
    Automation,
    /// One worker with its jobs.
    Worker(Name),
    /// One route, by its id.
    Route(Box<str>),
    /// How far events were routed.
    Router,
    /// Where to wake the runners, if a queue has a worker.
    WorkerRunners(Name),
    /// The same for a queue and its dead-letter queue.
    WorkerRunnersBeyond(Name),
    /// The same for all queues.
    AllWorkerRunners,
    /// The message with this id, if there is one.
    Message(MessageId),
    /// The delivery of the message with this id, if it is one to a task.
    Delivery(MessageId),
    /// The open deliveries to a task.
    Mailbox(TaskId),
    /// The first deliveries that a dispatch holds a lock for, and the first targets that are over or gone and have messages left.
    UnsettledDeliveries {
        limit: u32,
    },
    /// Events.
    Log {
        after: Seq,
        /// How many at most.
        limit: u32,
    },
}

impl Key {
    /// A lock or a semaphore.
    pub fn resource(resource: &Resource) -> Key {
        match resource.kind {
            Kind::Lock => Key::Lock(resource.name.clone()),
            Kind::Semaphore => Key::Semaphore(resource.name.clone()),
        }
    }
}
