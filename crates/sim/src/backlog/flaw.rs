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
use banksman_store::{Call as _, Key, Snapshot, Store, StoreError, Tables, Tx};

use super::{lapses, slips};
use crate::report::Checker;
use crate::tried::Tamper;

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
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

impl Flaw {
    /// All of them.
    pub const ALL: [Flaw; 57] = [
        Flaw::RecordShared,
        Flaw::Respawn,
        Flaw::NoSweep,
        Flaw::UnseenIsDead,
        Flaw::Unasked,
        Flaw::Stragglers,
        Flaw::EndAtWish,
        Flaw::AcknowledgeFirst,
        Flaw::ShortageCounts,
        Flaw::DependenciesOff,
        Flaw::SectionsOff,
        Flaw::SlotsOff,
        Flaw::LimitKept,
        Flaw::RoomOff,
        Flaw::StalledIsDead,
        Flaw::PidOnly,
        Flaw::Deaf,
        Flaw::LateEnd,
        Flaw::FencingOff,
        Flaw::CirclesOff,
        Flaw::ErrandsStay,
        Flaw::SilentTask,
        Flaw::IdleEarly,
        Flaw::DoneUnseen,
        Flaw::RootsOff,
        Flaw::QueueJumped,
        Flaw::CountersReset,
        Flaw::RestartsOff,
        Flaw::RestOff,
        Flaw::RestForgotten,
        Flaw::NudgeFree,
        Flaw::AskedTwice,
        Flaw::AnsweredTwice,
        Flaw::QuestionStays,
        Flaw::ChildrenOff,
        Flaw::EndForgotten,
        Flaw::PhaseSkipped,
        Flaw::SecondTask,
        Flaw::HostForgotten,
        Flaw::RetriedForGood,
        Flaw::GoesOnCancelled,
        Flaw::GuardsOff,
        Flaw::OldAnswer,
        Flaw::TwoLookers,
        Flaw::LookerStays,
        Flaw::AnswerLost,
        Flaw::GuardsOffAtClaim,
        Flaw::NeverOverdue,
        Flaw::SilentPipeline,
        Flaw::ItemForgotten,
        Flaw::TakenTwice,
        Flaw::ItemNotKept,
        Flaw::PauseOff,
        Flaw::JobForgotten,
        Flaw::SleepsOn,
        Flaw::RoutedTwice,
        Flaw::RoutePassed,
    ];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Flaw::RecordShared => "record-shared",
            Flaw::Respawn => "respawn",
            Flaw::NoSweep => "no-sweep",
            Flaw::UnseenIsDead => "unseen-is-dead",
            Flaw::Unasked => "unasked",
            Flaw::Stragglers => "stragglers",
            Flaw::EndAtWish => "end-at-wish",
            Flaw::AcknowledgeFirst => "acknowledge-first",
            Flaw::ShortageCounts => "shortage-counts",
            Flaw::DependenciesOff => "dependencies-off",
            Flaw::SectionsOff => "sections-off",
            Flaw::SlotsOff => "slots-off",
            Flaw::LimitKept => "limit-kept",
            Flaw::RoomOff => "room-off",
            Flaw::StalledIsDead => "stalled-is-dead",
            Flaw::PidOnly => "pid-only",
            Flaw::Deaf => "deaf",
            Flaw::LateEnd => "late-end",
            Flaw::FencingOff => "old-epoch",
            Flaw::CirclesOff => "circles-off",
            Flaw::ErrandsStay => "errands-stay",
            Flaw::SilentTask => "silent-task",
            Flaw::IdleEarly => "idle-early",
            Flaw::DoneUnseen => "done-unseen",
            Flaw::RootsOff => "roots-off",
            Flaw::QueueJumped => "queue-jumped",
            Flaw::CountersReset => "counters-reset",
            Flaw::RestartsOff => "restarts-off",
            Flaw::RestOff => "rest-off",
            Flaw::RestForgotten => "rest-forgotten",
            Flaw::NudgeFree => "nudge-free",
            Flaw::AskedTwice => "asked-twice",
            Flaw::AnsweredTwice => "answered-twice",
            Flaw::QuestionStays => "question-stays",
            Flaw::ChildrenOff => "children-off",
            Flaw::EndForgotten => "end-forgotten",
            Flaw::PhaseSkipped => "phase-skipped",
            Flaw::SecondTask => "second-task",
            Flaw::HostForgotten => "host-forgotten",
            Flaw::RetriedForGood => "retried-for-good",
            Flaw::GoesOnCancelled => "goes-on-cancelled",
            Flaw::GuardsOff => "guards-off",
            Flaw::OldAnswer => "old-answer",
            Flaw::TwoLookers => "two-lookers",
            Flaw::LookerStays => "looker-stays",
            Flaw::AnswerLost => "answer-lost",
            Flaw::GuardsOffAtClaim => "guards-off-at-claim",
            Flaw::NeverOverdue => "never-overdue",
            Flaw::SilentPipeline => "silent-pipeline",
            Flaw::ItemForgotten => "item-forgotten",
            Flaw::TakenTwice => "taken-twice",
            Flaw::ItemNotKept => "item-not-kept",
            Flaw::PauseOff => "pause-off",
            Flaw::JobForgotten => "job-forgotten",
            Flaw::SleepsOn => "sleeps-on",
            Flaw::RoutedTwice => "routed-twice",
            Flaw::RoutePassed => "route-passed",
        }
    }

    /// The checker that must catch it, alone.
    pub fn checker(self) -> Checker {
        match self {
            Flaw::RecordShared | Flaw::Respawn => Checker::Twice,
            Flaw::NoSweep | Flaw::UnseenIsDead | Flaw::Stragglers | Flaw::EndAtWish | Flaw::SlotsOff | Flaw::RoomOff => {
                Checker::Slots
            }
            Flaw::LimitKept => Checker::Limits,
            Flaw::AcknowledgeFirst | Flaw::ShortageCounts | Flaw::LateEnd | Flaw::ChildrenOff => Checker::Ends,
            Flaw::DependenciesOff | Flaw::CirclesOff => Checker::Early,
            Flaw::SectionsOff => Checker::Sections,
            Flaw::StalledIsDead => Checker::Living,
            Flaw::PidOnly | Flaw::Deaf | Flaw::IdleEarly | Flaw::RestForgotten | Flaw::Unasked => Checker::Idle,
            Flaw::FencingOff => Checker::Fencing,
            Flaw::ErrandsStay => Checker::Left,
            Flaw::SilentTask => Checker::Model,
            Flaw::DoneUnseen | Flaw::RestartsOff | Flaw::RestOff => Checker::Loops,
            Flaw::RootsOff | Flaw::QueueJumped => Checker::Roots,
            Flaw::CountersReset | Flaw::NudgeFree => Checker::Ladder,
            Flaw::AskedTwice | Flaw::AnsweredTwice | Flaw::QuestionStays => Checker::Decisions,
            Flaw::EndForgotten
            | Flaw::PhaseSkipped
            | Flaw::SecondTask
            | Flaw::HostForgotten
            | Flaw::RetriedForGood
            | Flaw::GoesOnCancelled => Checker::Phases,
            Flaw::GuardsOff | Flaw::OldAnswer | Flaw::TwoLookers | Flaw::GuardsOffAtClaim => Checker::Guards,
            Flaw::LookerStays | Flaw::AnswerLost | Flaw::NeverOverdue => Checker::Idle,
            Flaw::SilentPipeline => Checker::Fold,
            Flaw::ItemForgotten | Flaw::TakenTwice | Flaw::ItemNotKept | Flaw::PauseOff => Checker::Items,
            Flaw::JobForgotten | Flaw::SleepsOn => Checker::Idle,
            Flaw::RoutedTwice | Flaw::RoutePassed => Checker::Routes,
        }
    }

    /// Spoils what a runner reads.
    pub(crate) fn misread(self, snapshot: &mut Snapshot, keys: &BTreeSet<Key>, store: &mut Store) -> Result<(), StoreError> {
        match self {
            Flaw::DependenciesOff if keys.iter().any(|key| matches!(key, Key::Ready { .. })) => {
                let all = store.view().everything()?.backlog;
                let pending = all.tasks.into_iter().filter(|(_, task)| task.state == State::Pending);
                snapshot.backlog.tasks.extend(pending);
            }
            Flaw::SectionsOff => snapshot.backlog.sections.values_mut().for_each(|section| section.exclusive = false),
            Flaw::SlotsOff => {
                let slots = snapshot.coordination.semaphores.get_mut(&Name::runs());
                slots.into_iter().for_each(|slots| slots.config.capacity += 1);
            }
            Flaw::RootsOff => snapshot.backlog.limits.iter_mut().for_each(|limits| limits.roots = 0),
            Flaw::QueueJumped if keys.iter().any(|key| matches!(key, Key::Queue { .. })) => {
                let roots =
                    snapshot.backlog.tasks.values().filter(|task| task.state == State::Pending && task.spec.parent.is_none());
                if let Some(first) = roots.min_by_key(|task| task.position).map(|task| task.id.clone()) {
                    snapshot.backlog.tasks.remove(&first);
                }
            }
            Flaw::RestOff => snapshot.backlog.tasks.values_mut().for_each(wake),
            Flaw::RestForgotten => {
                snapshot.backlog.tasks.retain(|_, task| !matches!(task.state, State::Resting { .. }));
            }
            Flaw::TwoLookers => snapshot.backlog.pipelines.values_mut().for_each(|pipeline| pipeline.looker = None),
            Flaw::IdleEarly => {
                snapshot.backlog.tasks.retain(|_, task| task.state != State::Pending || task.spec.needs.is_empty());
            }
            _ => lapses::misread(self, &mut snapshot.crew),
        }
        Ok(())
    }
}

impl Tamper for Flaw {
    fn keys(self, request: &Request) -> Vec<Key> {
        match (self, request) {
            (Flaw::LateEnd, Request::Run(RunRequest::Finish { .. })) => vec![Key::Live],
            _ => Vec::new(),
        }
    }

    fn decide(self, request: &Request, tables: &mut Tables, tx: &mut Tx) -> Reply {
        match (self, request) {
            (Flaw::DependenciesOff, Request::Run(RunRequest::Claim { .. }))
            | (Flaw::CirclesOff, Request::Task(TaskRequest::Update { .. })) => without_edges(request, tables, tx),
            (Flaw::SectionsOff, Request::Run(RunRequest::Claim { .. } | RunRequest::Adopt { .. })) => {
                let sections = tables.backlog.sections.clone();
                tables.backlog.sections.values_mut().for_each(|section| section.exclusive = false);
                let reply = request.decide(tables, tx);
                tables.backlog.sections = sections;
                reply
            }
            (Flaw::SlotsOff, Request::Run(RunRequest::Claim { .. })) => {
                let slots = tables.coordination.semaphores.get_mut(&Name::runs());
                slots.into_iter().for_each(|slots| slots.config.capacity += 1);
                let reply = request.decide(tables, tx);
                let slots = tables.coordination.semaphores.get_mut(&Name::runs());
                slots.into_iter().for_each(|slots| slots.config.capacity -= 1);
                reply
            }
            // The capacity of the slots, which claims go by, does not follow.
            (Flaw::LimitKept, Request::SetLimits { .. }) => {
                let kept = tables.coordination.semaphores.get(&Name::runs()).map(|slots| slots.config.capacity);
                let reply = request.decide(tables, tx);
                if let (Some(kept), Some(slots)) = (kept, tables.coordination.semaphores.get_mut(&Name::runs())) {
                    slots.config.capacity = kept;
                }
                reply
            }
            (Flaw::RootsOff, Request::Run(RunRequest::Claim { .. }) | Request::Pipeline(PipelineRequest::Begin { .. })) => {
                let limits = tables.backlog.limits;
                tables.backlog.limits.iter_mut().for_each(|limits| limits.roots = 0);
                let reply = request.decide(tables, tx);
                tables.backlog.limits = limits;
                reply
            }
            (Flaw::LateEnd, Request::Run(RunRequest::Finish { runner, what, ending, marker, watch })) => {
                let mut what = what.clone();
                let is_live = |run: &&banksman_core::backlog::Run| run.is_live() && run.task == what.task.id;
                let (mut owner, current) = (runner.clone(), tables.backlog.runs.values().find(is_live).cloned());
                if let Some(current) = current {
                    (owner, what.run) = (current.owner.clone(), current);
                }
                let (ending, marker) = (ending.clone(), marker.clone());
                let finish = RunRequest::Finish { runner: owner, what, ending, marker, watch: *watch };
                Request::Run(finish).decide(tables, tx)
            }
            (Flaw::CountersReset, Request::Run(RunRequest::Adopt { what, .. })) => {
                let reply = request.decide(tables, tx);
                let task = tables.backlog.tasks.get_mut(&what.task.id);
                task.into_iter().for_each(|task| (task.failures, task.recoveries) = (0, 0));
                reply
            }
            (Flaw::RestartsOff, Request::Run(RunRequest::Finish { what, .. })) => {
                let policy = tables.backlog.tasks.get(&what.task.id).and_then(|task| task.spec.restart.clone());
                let more = |policy: &Policy| Policy { max_restarts: policy.max_restarts.saturating_add(1), ..policy.clone() };
                let task = tables.backlog.tasks.get_mut(&what.task.id);
                task.into_iter().for_each(|task| task.spec.restart = policy.as_ref().map(more));
                let reply = request.decide(tables, tx);
                let task = tables.backlog.tasks.get_mut(&what.task.id);
                task.into_iter().for_each(|task| task.spec.restart = policy.clone());
                reply
            }
            (Flaw::RestOff, Request::Run(RunRequest::Claim { .. })) => {
                tables.backlog.tasks.values_mut().for_each(wake);
                request.decide(tables, tx)
            }
            (Flaw::NudgeFree, Request::Task(TaskRequest::Heartbeat { id, .. })) => {
                tables.backlog.tasks.get_mut(id).into_iter().for_each(|task| task.recoveries = 0);
                request.decide(tables, tx)
            }
            (Flaw::AskedTwice, Request::Run(RunRequest::Finish { .. })) => {
                let before = tables.backlog.decisions.keys().cloned().collect();
                let reply = request.decide(tables, tx);
                ask_again(&before, tables, tx);
                reply
            }
            (Flaw::AnsweredTwice, Request::Decision(request)) => {
                let asked = tables.backlog.decisions.get_mut(&request.id);
                asked.into_iter().for_each(|asked| asked.state = decision::State::Open);
                Request::Decision(request.clone()).decide(tables, tx)
            }
            (Flaw::QuestionStays, Request::Task(_)) => {
                let decisions = std::mem::take(&mut tables.backlog.decisions);
                let reply = request.decide(tables, tx);
                tables.backlog.decisions.extend(decisions);
                reply
            }
            (Flaw::ChildrenOff, Request::Run(RunRequest::Finish { what, .. })) => {
                let is_child = |task: &Task| task.spec.parent.as_ref() == Some(&what.task.id);
                let children: Vec<Task> =
                    tables.backlog.tasks.extract_if(.., |_, task| is_child(task)).map(|(_, task)| task).collect();
                let reply = request.decide(tables, tx);
                tables.backlog.tasks.extend(children.into_iter().map(|task| (task.id.clone(), task)));
                reply
            }
            (Flaw::FencingOff, Request::Task(TaskRequest::Conclude { id, epoch: Some(_), verdict, .. })) => {
                let epoch = tables.backlog.tasks.get(id).and_then(|task| task.live()).map(|live| live.epoch);
                Request::Task(TaskRequest::Conclude { id: id.clone(), epoch, by: None, verdict: verdict.clone() })
                    .decide(tables, tx)
            }
            (Flaw::ErrandsStay, Request::Run(RunRequest::Finish { .. })) => {
                let outbox = tables.backlog.outbox.clone();
                let reply = request.decide(tables, tx);
                tables.backlog.outbox = outbox;
                reply
            }
            (Flaw::GuardsOffAtClaim, Request::Run(RunRequest::Claim { .. })) => {
                tables.backlog.pipelines.values_mut().for_each(|pipeline| pipeline.recheck = None);
                request.decide(tables, tx)
            }
            (Flaw::NeverOverdue, Request::Pipeline(PipelineRequest::Judge(judgement))) => {
                let reply = request.decide(tables, tx);
                let pipeline = tables.backlog.pipelines.get_mut(&judgement.id);
                pipeline.into_iter().for_each(|pipeline| pipeline.overdue = None);
                reply
            }
            (Flaw::SilentTask, Request::Task(TaskRequest::Retry { id })) => {
                let reply = request.decide(tables, tx);
                tables.backlog.tasks.get_mut(id).into_iter().for_each(|task| task.attempts += 1);
                reply
            }
            _ => slips::decide(self, request, tables, tx),
        }
    }
}

/// Lets a task rest no longer.
fn wake(task: &mut Task) {
    if let State::Resting { .. } = task.state {
        task.state = State::Pending;
    }
}

/// Raises every question that was just raised once more.
fn ask_again(before: &BTreeSet<DecisionId>, tables: &mut Tables, tx: &mut Tx) {
    let new: Vec<Decision> = tables.backlog.decisions.values().filter(|asked| !before.contains(&asked.id)).cloned().collect();
    for asked in new {
        let id = DecisionId::from(tx.seq);
        let fact = DecisionFact::Raised(Box::new(asked.question.clone()));
        tx.carry_out(vec![Effect::Emit(Event::Decision { id: id.clone(), fact })], false);
        tables.backlog.decisions.insert(id.clone(), Decision { id, ..asked });
    }
}

fn without_edges(request: &Request, tables: &mut Tables, tx: &mut Tx) -> Reply {
    let edges = std::mem::take(&mut tables.backlog.edges);
    let reply = request.decide(tables, tx);
    for (task, edges) in edges {
        tables.backlog.edges.entry(task).or_insert(edges);
    }
    reply
}
