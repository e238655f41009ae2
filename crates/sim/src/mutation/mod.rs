//! Deliberately broken variants: engines, stores, drivers and keepers with one fault each. Every checker must detect
//! the faults that are meant for it.
//!
//! A checker that never fails proves nothing. Production code is unchanged: a fault wraps [`Request::decide`] and
//! changes the rows, the request or the reply; or it changes what a runner reads; or it is in the simulated driver and
//! keeper. The faults of the main simulation are in [`Mutation`], those of the small ones in `small_worlds`.

mod claims;
mod locks;
mod pipelines;
mod queues;
mod runners;
mod small_worlds;
mod tasks;
mod workers;

use banksman_engine::{Reply, Request, RunRequest};
use banksman_store::{Call as _, Key, Tx};
use clap::ValueEnum;

use crate::report::Checker;

pub use small_worlds::{LandingMutation, MailMutation, QuotaMutation};
pub(crate) use tasks::misread;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mutation {
    // Locks and semaphores.
    /// A stale epoch passes for the current one.
    LockFencingOff,
    /// A newcomer goes to the front of the line.
    NewcomerFirst,
    /// One slot more is given out than there is.
    CapacityOff,
    /// A new grant carries an old number.
    EpochReuse,
    /// A free lock forgets its fence.
    FenceFalls,
    /// A waiter is forgotten.
    ForgetWaiter,
    /// Everybody may wait, also for ever.
    DeadlockOff,
    /// A lease is over before its time.
    StealLease,
    /// Every process that is in the way counts as dead.
    PresumeDead,
    /// A row changes and the log does not tell.
    SilentLock,
    /// A heartbeat is acknowledged and not written.
    LostHeartbeat,
    /// Something from outside of the seed has an influence.
    OutsideCounter,
    // Queues.
    /// A stale epoch passes for the current one.
    QueueFencingOff,
    /// The visibility timeout of a taken item is over at once.
    QueueNoTime,
    /// A push wakes nobody.
    QueueSilent,
    /// An item that was acknowledged is not written.
    QueueLostItem,
    /// A take carries an old number.
    QueueOldEpoch,
    /// A row changes and the log does not tell.
    QueueSilentRow,
    // Claims of people.
    /// The end of a run does not free the lock of its section.
    SectionStays,
    /// A task is taken, and its claim is not written.
    ClaimForgotten,
    /// A heartbeat renews the lock of the task and nothing else of its claim.
    RenewsTaskOnly,
    /// A person who takes a task does not ask for its exclusive section.
    SectionOpen,
    /// A run in an exclusive section is not adopted while the lock of the section is held.
    AdoptionNeedsLock,
    /// Nothing is reserved for claims that wait.
    OvertakeOff,
    /// Once a claim is taken, nothing is kept for the others until they try again.
    NextNotKept,
    /// What is reserved for a claim stays so though its process is stopped.
    StoppedKept,
    /// The search for deadlocks does not see who holds a single lock.
    DeadlockUnseen,
    /// Who would wait behind another one is refused as if that were a circle.
    CircleInvented,
    /// A claim that gives up stays.
    WaitStays,
    /// `why` does not read the claims that wait.
    WhyIgnoresClaims,
    // Tasks, runs, pipelines, workers and routes.
    /// A keeper starts its program even if there is a record already.
    RecordShared,
    /// A run whose keeper was killed is started again instead of being given up.
    Respawn,
    /// A run whose keeper was killed counts as lost before its tree was swept.
    NoSweep,
    /// A run in a container that cannot be seen counts as lost when its keeper is dead.
    UnseenIsDead,
    /// Nobody is asked about such a run.
    Unasked,
    /// A session counts as ended when its first process is.
    Stragglers,
    /// A run counts as ended as soon as its end is requested.
    EndAtWish,
    /// A keeper is told to forget an end that is not stored yet.
    AcknowledgeFirst,
    /// A run that could not begin because of a shortage counts as failed.
    ShortageCounts,
    /// A claim does not look at dependencies.
    DependenciesOff,
    /// A claim does not look at exclusive sections.
    SectionsOff,
    /// One run more is started than there are slots.
    SlotsOff,
    /// Claims use the limit from before its last change.
    LimitKept,
    /// A claim does not know that the project is paused.
    PauseUnseen,
    /// A task that a person has stopped stays among those that may be started.
    StopUnseen,
    /// A run that a person stops counts like one that looked stuck.
    StopCounts,
    /// A runner starts more than it was told.
    RoomOff,
    /// A runner that does not move counts as dead.
    StalledIsDead,
    /// A process is known by its number alone.
    PidOnly,
    /// A runner hears no wake-up and hardly ever looks by itself.
    Deaf,
    /// The end of an earlier run is taken for that of the one that is at the task.
    LateEnd,
    /// An old epoch passes for the current one.
    OldEpoch,
    /// Circles of dependencies are let in.
    CirclesOff,
    /// The outbox commands of a run outlive it.
    CommandsStay,
    /// A task changes and the log does not tell.
    SilentTask,
    /// A runner that shall end when it is idle does not see what waits for a lock.
    IdleEarly,
    /// A runner says that there is no file DONE without having looked.
    DoneUnseen,
    /// Neither a runner nor a claim knows how many roots may be under way.
    RootsOff,
    /// The first root in line is not seen.
    QueueJumped,
    /// Who adopts a run counts anew.
    CountersReset,
    /// One attempt more is made than allowed.
    RestartsOff,
    /// An attempt begins before the rest is over.
    RestOff,
    /// A runner does not see what rests.
    RestForgotten,
    /// A nudge costs nothing.
    NudgeFree,
    /// A question is raised twice.
    AskedTwice,
    /// An answer to a question that was answered before is carried out again.
    AnsweredTwice,
    /// A question stays when its task goes on without an answer.
    QuestionStays,
    /// A loop that is done does not wait for its children.
    ChildrenOff,
    /// The end of a phase is not told to its pipeline.
    EndForgotten,
    /// A pipeline goes on with the phase after the next one.
    PhaseSkipped,
    /// A phase has two tasks.
    SecondTask,
    /// The task of a pipeline does not hear that the pipeline is over.
    HostForgotten,
    /// What has failed for good is tried again.
    RetriedForGood,
    /// A pipeline that was cancelled goes on with its next phase.
    GoesOnCancelled,
    /// Guards let everything pass.
    GuardsOff,
    /// What was found out for other guards counts for those that are looked at now.
    OldAnswer,
    /// A runner looks at guards that another one looks at.
    TwoCheckers,
    /// A runner that died while it checked guards keeps others from checking them.
    CheckerStays,
    /// A runner looks at guards and tells nobody.
    AnswerLost,
    /// A claim does not look at the guards of a phase.
    GuardsOffAtClaim,
    /// No guard is ever overdue.
    NeverOverdue,
    /// A pipeline changes and the log does not tell.
    SilentPipeline,
    /// A pipeline that is over keeps its locks.
    KeptStays,
    /// The task of an item is over, and the item does not hear of it.
    ItemForgotten,
    /// One item becomes two tasks.
    TakenTwice,
    /// An item is taken again when its time is over, though its task lives.
    ItemNotKept,
    /// A worker takes items though it is paused.
    PauseOff,
    /// Nobody sees that the task of a job is over.
    JobForgotten,
    /// A worker is not woken by events.
    SleepsOn,
    /// What another runner has routed is routed again.
    RoutedTwice,
    /// Events are passed over, and nothing follows from them.
    RoutePassed,
    // Many runners.
    /// Some wake-ups are not sent.
    WakeLost,
    /// Whenever a runner is woken, all are.
    WakesAll,
    /// Nobody is woken in the place of a runner that died when it was woken.
    WakesTheDead,
    /// The runner that came last is woken first.
    NewestFirst,
    /// A runner that ends when nothing is left is woken before all others.
    EndersFirst,
    /// A task stays parked when what it waits for is free.
    StaysParked,
}

impl Mutation {
    /// The value on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().expect("no variant is skipped").get_name().to_owned()
    }

    /// The checker that must detect it, alone.
    pub fn checker(self) -> Checker {
        use Mutation::*;
        match self {
            AdoptionNeedsLock => Checker::Adoption,
            CapacityOff => Checker::Capacity,
            ClaimForgotten | RenewsTaskOnly => Checker::Claims,
            AskedTwice | AnsweredTwice | QuestionStays => Checker::Decisions,
            DependenciesOff | CirclesOff => Checker::Early,
            AcknowledgeFirst | ShortageCounts | LateEnd | ChildrenOff | StopCounts => Checker::Ends,
            EpochReuse | QueueOldEpoch => Checker::Epochs,
            CountersReset | NudgeFree => Checker::Escalation,
            LockFencingOff | QueueFencingOff | OldEpoch => Checker::Fencing,
            CircleInvented => Checker::Circles,
            StoppedKept => Checker::HeldUp,
            NewcomerFirst => Checker::Fifo,
            GuardsOff | OldAnswer | TwoCheckers | GuardsOffAtClaim => Checker::Guards,
            PidOnly | Deaf | IdleEarly | RestForgotten | Unasked | CheckerStays | AnswerLost | NeverOverdue | JobForgotten
            | SleepsOn => Checker::Idle,
            ItemForgotten | TakenTwice | ItemNotKept | PauseOff => Checker::Items,
            QueueLostItem | WaitStays | CommandsStay => Checker::Left,
            LimitKept => Checker::Limits,
            PauseUnseen | StopUnseen => Checker::Paused,
            StealLease | PresumeDead | QueueNoTime | StalledIsDead => Checker::Living,
            DoneUnseen | RestartsOff | RestOff => Checker::Loops,
            LostHeartbeat | SilentTask => Checker::Model,
            FenceFalls => Checker::Order,
            OvertakeOff | NextNotKept => Checker::Overtaken,
            SectionStays => Checker::Owners,
            EndForgotten | PhaseSkipped | SecondTask | HostForgotten | RetriedForGood | KeptStays | GoesOnCancelled => {
                Checker::Phases
            }
            SilentLock | QueueSilentRow | SilentPipeline => Checker::Replay,
            RootsOff | QueueJumped => Checker::Roots,
            RoutedTwice | RoutePassed => Checker::Routes,
            SectionOpen | SectionsOff => Checker::Sections,
            NoSweep | UnseenIsDead | Stragglers | EndAtWish | SlotsOff | RoomOff => Checker::Slots,
            OutsideCounter => Checker::Trace,
            RecordShared | Respawn => Checker::Twice,
            ForgetWaiter | DeadlockOff | QueueSilent | DeadlockUnseen => Checker::Waiters,
            WhyIgnoresClaims => Checker::Why,
            WakeLost => Checker::Idle,
            WakesAll | WakesTheDead => Checker::Wakeups,
            NewestFirst | EndersFirst => Checker::Turns,
            StaysParked => Checker::Parked,
        }
    }

    /// Decides like the real request, except for the fault.
    pub(crate) fn decide(self, request: &Request, tx: &mut Tx) -> Reply {
        runners::decide(self, request, tx).unwrap_or_else(|| claims::decide(self, request, tx))
    }

    /// Rows that the fault needs besides those of the request.
    pub(crate) fn keys(self, request: &Request) -> Vec<Key> {
        match (self, request) {
            (Mutation::LateEnd, Request::Run(RunRequest::Finish { .. })) => vec![Key::Live],
            (Mutation::AdoptionNeedsLock, Request::Run(RunRequest::Adopt { what, .. })) => {
                what.task.spec.section.iter().map(|section| Key::Lock(section.lock())).collect()
            }
            (Mutation::RestOff, Request::Run(RunRequest::Claim(_))) => vec![Key::Due],
            _ => Vec::new(),
        }
    }
}

/// Decides like the real request, and then changes the rows.
fn after(request: &Request, tx: &mut Tx, tamper: impl FnOnce(&mut Tx)) -> Reply {
    let reply = request.decide(tx);
    tamper(tx);
    reply
}
