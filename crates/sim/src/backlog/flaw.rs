//! Engines, drivers and keepers that are broken on purpose, one fault each.
//!
//! As with the stores of the other world, production code stays as it is: a fault sits around the decision of a
//! request, in what a runner reads, or in the simulated driver and keeper.

use std::collections::BTreeSet;

use banksman_core::Name;
use banksman_core::task::State;
use banksman_engine::{Reply, Request, RunRequest, TaskRequest};
use banksman_store::{Call as _, Key, Snapshot, Store, StoreError, Tables, Turn};

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
    /// A session counts as ended when its first process is.
    Stragglers,
    /// A run counts as ended as soon as somebody wishes it.
    EndAtWish,
    /// A keeper is told to forget an end that is not stored yet.
    AcknowledgeFirst,
    /// A claim does not look at dependencies.
    DependenciesOff,
    /// A claim does not look at exclusive sections.
    SectionsOff,
    /// One run more is started than there are slots.
    SlotsOff,
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
    /// The errands of a run outlive it.
    ErrandsStay,
    /// A task changes and the log does not tell.
    SilentTask,
    /// A runner that shall end when it is idle does not see what waits for a lock.
    IdleEarly,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Flaw; 19] = [
        Flaw::RecordShared,
        Flaw::Respawn,
        Flaw::NoSweep,
        Flaw::Stragglers,
        Flaw::EndAtWish,
        Flaw::AcknowledgeFirst,
        Flaw::DependenciesOff,
        Flaw::SectionsOff,
        Flaw::SlotsOff,
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
    ];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Flaw::RecordShared => "record-shared",
            Flaw::Respawn => "respawn",
            Flaw::NoSweep => "no-sweep",
            Flaw::Stragglers => "stragglers",
            Flaw::EndAtWish => "end-at-wish",
            Flaw::AcknowledgeFirst => "acknowledge-first",
            Flaw::DependenciesOff => "dependencies-off",
            Flaw::SectionsOff => "sections-off",
            Flaw::SlotsOff => "slots-off",
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
        }
    }

    /// The checker that must catch it, alone.
    pub fn checker(self) -> Checker {
        match self {
            Flaw::RecordShared | Flaw::Respawn => Checker::Twice,
            Flaw::NoSweep | Flaw::Stragglers | Flaw::EndAtWish | Flaw::SlotsOff | Flaw::RoomOff => Checker::Slots,
            Flaw::AcknowledgeFirst | Flaw::LateEnd => Checker::Ends,
            Flaw::DependenciesOff | Flaw::CirclesOff => Checker::Early,
            Flaw::SectionsOff => Checker::Sections,
            Flaw::StalledIsDead => Checker::Living,
            Flaw::PidOnly | Flaw::Deaf | Flaw::IdleEarly => Checker::Idle,
            Flaw::FencingOff => Checker::Fencing,
            Flaw::ErrandsStay => Checker::Left,
            Flaw::SilentTask => Checker::Model,
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
            Flaw::IdleEarly => {
                snapshot.backlog.tasks.retain(|_, task| task.state != State::Pending || task.spec.needs.is_empty());
            }
            _ => {}
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

    fn decide(self, request: &Request, tables: &mut Tables, turn: &mut Turn) -> Reply {
        match (self, request) {
            (Flaw::DependenciesOff, Request::Run(RunRequest::Claim { .. }))
            | (Flaw::CirclesOff, Request::Task(TaskRequest::Update { .. })) => without_edges(request, tables, turn),
            (Flaw::SectionsOff, Request::Run(RunRequest::Claim { .. } | RunRequest::Adopt { .. })) => {
                let sections = tables.backlog.sections.clone();
                tables.backlog.sections.values_mut().for_each(|section| section.exclusive = false);
                let reply = request.decide(tables, turn);
                tables.backlog.sections = sections;
                reply
            }
            (Flaw::SlotsOff, Request::Run(RunRequest::Claim { .. })) => {
                let slots = tables.coordination.semaphores.get_mut(&Name::runs());
                slots.into_iter().for_each(|slots| slots.config.capacity += 1);
                let reply = request.decide(tables, turn);
                let slots = tables.coordination.semaphores.get_mut(&Name::runs());
                slots.into_iter().for_each(|slots| slots.config.capacity -= 1);
                reply
            }
            (Flaw::LateEnd, Request::Run(RunRequest::Finish { runner, what, ending, max_recoveries })) => {
                let mut what = what.clone();
                let is_live = |run: &&banksman_core::backlog::Run| run.is_live() && run.task == what.task.id;
                let (mut owner, current) = (runner.clone(), tables.backlog.runs.values().find(is_live).cloned());
                if let Some(current) = current {
                    (owner, what.run) = (current.owner.clone(), current);
                }
                let finish = RunRequest::Finish { runner: owner, what, ending: ending.clone(), max_recoveries: *max_recoveries };
                Request::Run(finish).decide(tables, turn)
            }
            (Flaw::FencingOff, Request::Task(TaskRequest::Conclude { id, epoch: Some(_), verdict })) => {
                let epoch = tables.backlog.tasks.get(id).and_then(|task| task.live()).map(|live| live.epoch);
                Request::Task(TaskRequest::Conclude { id: id.clone(), epoch, verdict: verdict.clone() }).decide(tables, turn)
            }
            (Flaw::ErrandsStay, Request::Run(RunRequest::Finish { .. })) => {
                let outbox = tables.backlog.outbox.clone();
                let reply = request.decide(tables, turn);
                tables.backlog.outbox = outbox;
                reply
            }
            (Flaw::SilentTask, Request::Task(TaskRequest::Retry { id })) => {
                let reply = request.decide(tables, turn);
                tables.backlog.tasks.get_mut(id).into_iter().for_each(|task| task.attempts += 1);
                reply
            }
            _ => request.decide(tables, turn),
        }
    }
}

fn without_edges(request: &Request, tables: &mut Tables, turn: &mut Turn) -> Reply {
    let edges = std::mem::take(&mut tables.backlog.edges);
    let reply = request.decide(tables, turn);
    for (task, edges) in edges {
        tables.backlog.edges.entry(task).or_insert(edges);
    }
    reply
}
