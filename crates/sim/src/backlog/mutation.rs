//! Engines, drivers and keepers that are broken on purpose, one fault each.
//!
//! As with the stores of the other world, production code stays as it is: a fault sits around the decision of a
//! request, in what a runner reads, or in the simulated driver and keeper.

use std::collections::BTreeSet;

use banksman_core::event::{DecisionFact, Event};
use banksman_core::task::State;
use banksman_core::task::retry::Policy;
use banksman_core::{Decision, DecisionId, Effect, Name, Task, decision};
use banksman_engine::{PipelineRequest, Reply, Request, RunRequest, TaskRequest};
use banksman_store::{Call as _, Key, Snapshot, Store, StoreError, Tx};

use super::{lapses, slips};
use crate::report::Checker;
use crate::tried::Tamper;

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
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
    /// A run counts as ended as soon as somebody wishes it.
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
    /// Claims go by the limit that was there before somebody changed it.
    LimitKept,
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
    FencingOff,
    /// Circles of dependencies are let in.
    CirclesOff,
    /// The outbox commands of a run outlive it.
    ErrandsStay,
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
    TwoLookers,
    /// Whoever died while it looked at guards keeps others from them.
    LookerStays,
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
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 58] = [
        Mutation::RecordShared,
        Mutation::Respawn,
        Mutation::NoSweep,
        Mutation::UnseenIsDead,
        Mutation::Unasked,
        Mutation::Stragglers,
        Mutation::EndAtWish,
        Mutation::AcknowledgeFirst,
        Mutation::ShortageCounts,
        Mutation::DependenciesOff,
        Mutation::SectionsOff,
        Mutation::SlotsOff,
        Mutation::LimitKept,
        Mutation::RoomOff,
        Mutation::StalledIsDead,
        Mutation::PidOnly,
        Mutation::Deaf,
        Mutation::LateEnd,
        Mutation::FencingOff,
        Mutation::CirclesOff,
        Mutation::ErrandsStay,
        Mutation::SilentTask,
        Mutation::IdleEarly,
        Mutation::DoneUnseen,
        Mutation::RootsOff,
        Mutation::QueueJumped,
        Mutation::CountersReset,
        Mutation::RestartsOff,
        Mutation::RestOff,
        Mutation::RestForgotten,
        Mutation::NudgeFree,
        Mutation::AskedTwice,
        Mutation::AnsweredTwice,
        Mutation::QuestionStays,
        Mutation::ChildrenOff,
        Mutation::EndForgotten,
        Mutation::PhaseSkipped,
        Mutation::SecondTask,
        Mutation::HostForgotten,
        Mutation::RetriedForGood,
        Mutation::GoesOnCancelled,
        Mutation::GuardsOff,
        Mutation::OldAnswer,
        Mutation::TwoLookers,
        Mutation::LookerStays,
        Mutation::AnswerLost,
        Mutation::GuardsOffAtClaim,
        Mutation::NeverOverdue,
        Mutation::SilentPipeline,
        Mutation::KeptStays,
        Mutation::ItemForgotten,
        Mutation::TakenTwice,
        Mutation::ItemNotKept,
        Mutation::PauseOff,
        Mutation::JobForgotten,
        Mutation::SleepsOn,
        Mutation::RoutedTwice,
        Mutation::RoutePassed,
    ];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mutation::RecordShared => "record-shared",
            Mutation::Respawn => "respawn",
            Mutation::NoSweep => "no-sweep",
            Mutation::UnseenIsDead => "unseen-is-dead",
            Mutation::Unasked => "unasked",
            Mutation::Stragglers => "stragglers",
            Mutation::EndAtWish => "end-at-wish",
            Mutation::AcknowledgeFirst => "acknowledge-first",
            Mutation::ShortageCounts => "shortage-counts",
            Mutation::DependenciesOff => "dependencies-off",
            Mutation::SectionsOff => "sections-off",
            Mutation::SlotsOff => "slots-off",
            Mutation::LimitKept => "limit-kept",
            Mutation::RoomOff => "room-off",
            Mutation::StalledIsDead => "stalled-is-dead",
            Mutation::PidOnly => "pid-only",
            Mutation::Deaf => "deaf",
            Mutation::LateEnd => "late-end",
            Mutation::FencingOff => "old-epoch",
            Mutation::CirclesOff => "circles-off",
            Mutation::ErrandsStay => "errands-stay",
            Mutation::SilentTask => "silent-task",
            Mutation::IdleEarly => "idle-early",
            Mutation::DoneUnseen => "done-unseen",
            Mutation::RootsOff => "roots-off",
            Mutation::QueueJumped => "queue-jumped",
            Mutation::CountersReset => "counters-reset",
            Mutation::RestartsOff => "restarts-off",
            Mutation::RestOff => "rest-off",
            Mutation::RestForgotten => "rest-forgotten",
            Mutation::NudgeFree => "nudge-free",
            Mutation::AskedTwice => "asked-twice",
            Mutation::AnsweredTwice => "answered-twice",
            Mutation::QuestionStays => "question-stays",
            Mutation::ChildrenOff => "children-off",
            Mutation::EndForgotten => "end-forgotten",
            Mutation::PhaseSkipped => "phase-skipped",
            Mutation::SecondTask => "second-task",
            Mutation::HostForgotten => "host-forgotten",
            Mutation::RetriedForGood => "retried-for-good",
            Mutation::GoesOnCancelled => "goes-on-cancelled",
            Mutation::GuardsOff => "guards-off",
            Mutation::OldAnswer => "old-answer",
            Mutation::TwoLookers => "two-lookers",
            Mutation::LookerStays => "looker-stays",
            Mutation::AnswerLost => "answer-lost",
            Mutation::GuardsOffAtClaim => "guards-off-at-claim",
            Mutation::NeverOverdue => "never-overdue",
            Mutation::SilentPipeline => "silent-pipeline",
            Mutation::KeptStays => "kept-stays",
            Mutation::ItemForgotten => "item-forgotten",
            Mutation::TakenTwice => "taken-twice",
            Mutation::ItemNotKept => "item-not-kept",
            Mutation::PauseOff => "pause-off",
            Mutation::JobForgotten => "job-forgotten",
            Mutation::SleepsOn => "sleeps-on",
            Mutation::RoutedTwice => "routed-twice",
            Mutation::RoutePassed => "route-passed",
        }
    }

    /// The checker that must catch it, alone.
    pub fn checker(self) -> Checker {
        match self {
            Mutation::RecordShared | Mutation::Respawn => Checker::Twice,
            Mutation::NoSweep
            | Mutation::UnseenIsDead
            | Mutation::Stragglers
            | Mutation::EndAtWish
            | Mutation::SlotsOff
            | Mutation::RoomOff => Checker::Slots,
            Mutation::LimitKept => Checker::Limits,
            Mutation::AcknowledgeFirst | Mutation::ShortageCounts | Mutation::LateEnd | Mutation::ChildrenOff => Checker::Ends,
            Mutation::DependenciesOff | Mutation::CirclesOff => Checker::Early,
            Mutation::SectionsOff => Checker::Sections,
            Mutation::StalledIsDead => Checker::Living,
            Mutation::PidOnly | Mutation::Deaf | Mutation::IdleEarly | Mutation::RestForgotten | Mutation::Unasked => {
                Checker::Idle
            }
            Mutation::FencingOff => Checker::Fencing,
            Mutation::ErrandsStay => Checker::Left,
            Mutation::SilentTask => Checker::Model,
            Mutation::DoneUnseen | Mutation::RestartsOff | Mutation::RestOff => Checker::Loops,
            Mutation::RootsOff | Mutation::QueueJumped => Checker::Roots,
            Mutation::CountersReset | Mutation::NudgeFree => Checker::Ladder,
            Mutation::AskedTwice | Mutation::AnsweredTwice | Mutation::QuestionStays => Checker::Decisions,
            Mutation::EndForgotten
            | Mutation::PhaseSkipped
            | Mutation::SecondTask
            | Mutation::HostForgotten
            | Mutation::RetriedForGood
            | Mutation::KeptStays
            | Mutation::GoesOnCancelled => Checker::Phases,
            Mutation::GuardsOff | Mutation::OldAnswer | Mutation::TwoLookers | Mutation::GuardsOffAtClaim => Checker::Guards,
            Mutation::LookerStays | Mutation::AnswerLost | Mutation::NeverOverdue => Checker::Idle,
            Mutation::SilentPipeline => Checker::Fold,
            Mutation::ItemForgotten | Mutation::TakenTwice | Mutation::ItemNotKept | Mutation::PauseOff => Checker::Items,
            Mutation::JobForgotten | Mutation::SleepsOn => Checker::Idle,
            Mutation::RoutedTwice | Mutation::RoutePassed => Checker::Routes,
        }
    }

    /// Spoils what a runner reads.
    pub(crate) fn misread(self, snapshot: &mut Snapshot, keys: &BTreeSet<Key>, store: &mut Store) -> Result<(), StoreError> {
        match self {
            Mutation::DependenciesOff if keys.iter().any(|key| matches!(key, Key::Ready { .. })) => {
                let all = store.view().everything()?.backlog;
                let pending = all.tasks.into_iter().filter(|(_, task)| task.state == State::Pending);
                snapshot.backlog.tasks.extend(pending);
            }
            Mutation::SectionsOff => snapshot.backlog.sections.values_mut().for_each(|section| section.exclusive = false),
            Mutation::SlotsOff => {
                let slots = snapshot.coordination.semaphores.get_mut(&Name::runs());
                slots.into_iter().for_each(|slots| slots.config.capacity += 1);
            }
            Mutation::RootsOff => snapshot.backlog.limits.iter_mut().for_each(|limits| limits.roots = 0),
            Mutation::QueueJumped if keys.iter().any(|key| matches!(key, Key::Queue { .. })) => {
                let roots =
                    snapshot.backlog.tasks.values().filter(|task| task.state == State::Pending && task.spec.parent.is_none());
                if let Some(first) = roots.min_by_key(|task| task.position).map(|task| task.id.clone()) {
                    snapshot.backlog.tasks.remove(&first);
                }
            }
            Mutation::RestOff => snapshot.backlog.tasks.values_mut().for_each(wake),
            Mutation::RestForgotten => {
                snapshot.backlog.tasks.retain(|_, task| !matches!(task.state, State::Backoff { .. }));
            }
            Mutation::TwoLookers => snapshot.backlog.pipelines.values_mut().for_each(|pipeline| pipeline.looker = None),
            Mutation::IdleEarly => {
                snapshot.backlog.tasks.retain(|_, task| task.state != State::Pending || task.spec.needs.is_empty());
            }
            _ => lapses::misread(self, &mut snapshot.crew),
        }
        Ok(())
    }
}

impl Tamper for Mutation {
    fn keys(self, request: &Request) -> Vec<Key> {
        match (self, request) {
            (Mutation::LateEnd, Request::Run(RunRequest::Finish { .. })) => vec![Key::Live],
            _ => Vec::new(),
        }
    }

    fn decide(self, request: &Request, tx: &mut Tx) -> Reply {
        match (self, request) {
            (Mutation::DependenciesOff, Request::Run(RunRequest::Claim { .. }))
            | (Mutation::CirclesOff, Request::Task(TaskRequest::Update { .. })) => slips::without_edges(request, tx),
            (Mutation::SectionsOff, Request::Run(RunRequest::Claim { .. } | RunRequest::Adopt { .. })) => {
                let sections = tx.tables.backlog.sections.clone();
                tx.tables.backlog.sections.values_mut().for_each(|section| section.exclusive = false);
                let reply = request.decide(tx);
                tx.tables.backlog.sections = sections;
                reply
            }
            (Mutation::SlotsOff, Request::Run(RunRequest::Claim { .. })) => {
                let slots = tx.tables.coordination.semaphores.get_mut(&Name::runs());
                slots.into_iter().for_each(|slots| slots.config.capacity += 1);
                let reply = request.decide(tx);
                let slots = tx.tables.coordination.semaphores.get_mut(&Name::runs());
                slots.into_iter().for_each(|slots| slots.config.capacity -= 1);
                reply
            }
            // The capacity of the slots, which claims go by, does not follow.
            (Mutation::LimitKept, Request::SetLimits { .. }) => {
                let kept = tx.tables.coordination.semaphores.get(&Name::runs()).map(|slots| slots.config.capacity);
                let reply = request.decide(tx);
                if let (Some(kept), Some(slots)) = (kept, tx.tables.coordination.semaphores.get_mut(&Name::runs())) {
                    slots.config.capacity = kept;
                }
                reply
            }
            (Mutation::RootsOff, Request::Run(RunRequest::Claim { .. }) | Request::Pipeline(PipelineRequest::Begin { .. })) => {
                let limits = tx.tables.backlog.limits;
                tx.tables.backlog.limits.iter_mut().for_each(|limits| limits.roots = 0);
                let reply = request.decide(tx);
                tx.tables.backlog.limits = limits;
                reply
            }
            (Mutation::LateEnd, Request::Run(RunRequest::Finish { runner, what, ending, marker, watch })) => {
                let mut what = what.clone();
                let is_live = |run: &&banksman_core::backlog::Run| run.is_live() && run.task == what.task.id;
                let (mut owner, current) = (runner.clone(), tx.tables.backlog.runs.values().find(is_live).cloned());
                if let Some(current) = current {
                    (owner, what.run) = (current.owner.clone(), current);
                }
                let (ending, marker) = (ending.clone(), marker.clone());
                let finish = RunRequest::Finish { runner: owner, what, ending, marker, watch: *watch };
                Request::Run(finish).decide(tx)
            }
            (Mutation::CountersReset, Request::Run(RunRequest::Adopt { what, .. })) => {
                let reply = request.decide(tx);
                let task = tx.tables.backlog.tasks.get_mut(&what.task.id);
                task.into_iter().for_each(|task| (task.failures, task.recoveries) = (0, 0));
                reply
            }
            (Mutation::RestartsOff, Request::Run(RunRequest::Finish { what, .. })) => {
                let policy = tx.tables.backlog.tasks.get(&what.task.id).and_then(|task| task.spec.restart.clone());
                let more = |policy: &Policy| Policy { max_restarts: policy.max_restarts.saturating_add(1), ..policy.clone() };
                let task = tx.tables.backlog.tasks.get_mut(&what.task.id);
                task.into_iter().for_each(|task| task.spec.restart = policy.as_ref().map(more));
                let reply = request.decide(tx);
                let task = tx.tables.backlog.tasks.get_mut(&what.task.id);
                task.into_iter().for_each(|task| task.spec.restart = policy.clone());
                reply
            }
            (Mutation::RestOff, Request::Run(RunRequest::Claim { .. })) => {
                tx.tables.backlog.tasks.values_mut().for_each(wake);
                request.decide(tx)
            }
            (Mutation::NudgeFree, Request::Task(TaskRequest::Heartbeat { id, .. })) => {
                tx.tables.backlog.tasks.get_mut(id).into_iter().for_each(|task| task.recoveries = 0);
                request.decide(tx)
            }
            (Mutation::AskedTwice, Request::Run(RunRequest::Finish { .. })) => {
                let before = tx.tables.backlog.decisions.keys().cloned().collect();
                let reply = request.decide(tx);
                ask_again(&before, tx);
                reply
            }
            (Mutation::AnsweredTwice, Request::Decision(request)) => {
                let asked = tx.tables.backlog.decisions.get_mut(&request.id);
                asked.into_iter().for_each(|asked| asked.state = decision::State::Open);
                Request::Decision(request.clone()).decide(tx)
            }
            (Mutation::QuestionStays, Request::Task(_)) => {
                let decisions = std::mem::take(&mut tx.tables.backlog.decisions);
                let reply = request.decide(tx);
                tx.tables.backlog.decisions.extend(decisions);
                reply
            }
            (Mutation::ChildrenOff, Request::Run(RunRequest::Finish { what, .. })) => {
                let is_child = |task: &Task| task.spec.parent.as_ref() == Some(&what.task.id);
                let children: Vec<Task> =
                    tx.tables.backlog.tasks.extract_if(.., |_, task| is_child(task)).map(|(_, task)| task).collect();
                let reply = request.decide(tx);
                tx.tables.backlog.tasks.extend(children.into_iter().map(|task| (task.id.clone(), task)));
                reply
            }
            (Mutation::FencingOff, Request::Task(TaskRequest::Conclude { id, epoch: Some(_), verdict, .. })) => {
                let epoch = tx.tables.backlog.tasks.get(id).and_then(|task| task.live()).map(|live| live.epoch);
                Request::Task(TaskRequest::Conclude { id: id.clone(), epoch, by: None, verdict: verdict.clone() }).decide(tx)
            }
            (Mutation::ErrandsStay, Request::Run(RunRequest::Finish { .. })) => {
                let outbox = tx.tables.backlog.outbox.clone();
                let reply = request.decide(tx);
                tx.tables.backlog.outbox = outbox;
                reply
            }
            (Mutation::GuardsOffAtClaim, Request::Run(RunRequest::Claim { .. })) => {
                tx.tables.backlog.pipelines.values_mut().for_each(|pipeline| pipeline.recheck = None);
                request.decide(tx)
            }
            (Mutation::NeverOverdue, Request::Pipeline(PipelineRequest::Judge(judgement))) => {
                let reply = request.decide(tx);
                let pipeline = tx.tables.backlog.pipelines.get_mut(&judgement.id);
                pipeline.into_iter().for_each(|pipeline| pipeline.overdue = None);
                reply
            }
            (Mutation::SilentTask, Request::Task(TaskRequest::Retry { id })) => {
                let reply = request.decide(tx);
                tx.tables.backlog.tasks.get_mut(id).into_iter().for_each(|task| task.attempts += 1);
                reply
            }
            _ => slips::decide(self, request, tx),
        }
    }
}

/// Lets a task rest no longer.
fn wake(task: &mut Task) {
    if let State::Backoff { .. } = task.state {
        task.state = State::Pending;
    }
}

/// Raises every question that was just raised once more.
fn ask_again(before: &BTreeSet<DecisionId>, tx: &mut Tx) {
    let new: Vec<Decision> = tx.tables.backlog.decisions.values().filter(|asked| !before.contains(&asked.id)).cloned().collect();
    for asked in new {
        let id = DecisionId::from(tx.seq);
        let fact = DecisionFact::Raised(Box::new(asked.question.clone()));
        tx.carry_out(vec![Effect::Emit(Event::Decision { id: id.clone(), fact })], false);
        tx.tables.backlog.decisions.insert(id.clone(), Decision { id, ..asked });
    }
}
