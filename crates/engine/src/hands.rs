//! Work by hand: somebody takes a task with its lock, and in an exclusive section with that of the section too. Whatever
//! ends the work gives both back in the same transaction; and whoever has lost the lock has lost the task.

use banksman_core::claim::{Ask, Claim, Grant};
use banksman_core::coordination::{Command, Outcome as Held};
use banksman_core::task::{self, Need, State};
use banksman_core::{Epoch, HolderId, Name, SectionId, Span, Task, TaskId, Wall, lock};
use banksman_store::{Key, Tables, Turn};

use crate::ledger::{Draft, give_back, step_task, wake_runners};
use crate::request::Seen;
use crate::tasks::TaskOutcome;

/// Who takes a task, and for how long.
#[derive(Debug, Clone)]
pub struct Taking {
    /// Who.
    pub holder: HolderId,
    /// Its section, as it was read: the rows to load follow from it.
    pub section: Option<SectionId>,
    /// How long the lock of the task lives without a heartbeat.
    pub ttl: Span,
    /// The same for the lock of the section.
    pub section_ttl: Span,
    /// The grant of the task's lock, if it was waited for.
    pub epoch: Option<Epoch>,
    /// What was seen of those in the way.
    pub seen: Seen,
}

/// What stands in the way of somebody who wants to work on a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lockout {
    /// The lock: of the task, or of its section.
    pub lock: Name,
    /// Who has it.
    pub holder: HolderId,
    /// When that ends by itself.
    pub until: Option<Wall>,
}

pub(crate) fn keys(id: &TaskId, taking: &Taking) -> Vec<Key> {
    let section = taking.section.as_ref().map(|section| Key::Lock(section.lock()));
    [Key::Lock(id.lock()), Key::Sections, Key::Live, Key::OpenDecisions].into_iter().chain(section).collect()
}

pub(crate) fn take(id: &TaskId, taking: &Taking, tables: &mut Tables, turn: &mut Turn) -> TaskOutcome {
    let Some(task) = tables.backlog.tasks.get(id) else { return TaskOutcome::Unknown };
    if task.spec.section != taking.section {
        return TaskOutcome::Changed;
    }
    if let Some(live) = task.live() {
        return TaskOutcome::Locked(Lockout { lock: id.lock(), holder: live.run.holder(), until: None });
    }
    let refusal = match &task.state {
        _ if task.has_phases() => Some(task::Outcome::HasPhases),
        State::Done(done) => Some(task::Outcome::Over(done.status())),
        State::Awaiting { .. } => Some(task::Outcome::NotPending(task.status())),
        _ => None,
    };
    if let Some(refusal) = refusal {
        return TaskOutcome::Stepped(refusal, Box::new(task.clone()));
    }
    let mut draft = Draft::new(&tables.coordination, taking.seen.now(turn));
    let epoch = match &task.state {
        State::ByHand { holder, epoch, .. } if *holder == taking.holder => Some(*epoch),
        _ => taking.epoch,
    };
    let grant = match acquire(&mut draft, id.lock(), &taking.holder, taking.ttl, epoch, turn) {
        Ok(grant) => grant,
        Err(lockout) => return TaskOutcome::Locked(lockout),
    };
    let exclusive = taking.section.as_ref().and_then(|id| tables.backlog.sections.get(id)).filter(|section| section.exclusive);
    if let Some(section) = exclusive {
        let name = section.id.lock();
        if let Some(run) = tables.backlog.live_in(&section.id).next() {
            return TaskOutcome::Locked(Lockout { lock: name, holder: run.owner.holder(), until: None });
        }
        // Who works in it already may work on another task of it.
        let epoch = match tables.coordination.locks.get(&name).map(|lock| &lock.state) {
            Some(lock::State::Held(grant)) if grant.claim.holder == taking.holder => Some(grant.epoch),
            Some(lock::State::Held(_) | lock::State::Free) | None => None,
        };
        if let Err(lockout) = acquire(&mut draft, name, &taking.holder, taking.section_ttl, epoch, turn) {
            return TaskOutcome::Locked(lockout);
        }
    }
    draft.keep(tables, turn);
    let (holder, epoch, until) = (taking.holder.clone(), grant.epoch, grant.deadline());
    let outcome = step_task(tables, turn, id, task::Input::Take { holder, epoch, until }, None).expect("it was just there");
    wake_runners(tables, turn, None);
    TaskOutcome::Stepped(outcome, Box::new(tables.backlog.tasks[id].clone()))
}

/// Gets a lock for somebody, also if it is theirs already.
fn acquire(
    draft: &mut Draft,
    name: Name,
    holder: &HolderId,
    ttl: Span,
    epoch: Option<Epoch>,
    turn: &Turn,
) -> Result<Grant, Lockout> {
    let claim = Claim { ttl: Some(ttl), ..Claim::new(holder.clone()) };
    let ask = Box::new(Ask { epoch, ..Ask::new(claim) });
    match draft.handle(Command::Lock(name.clone(), lock::Input::Acquire(ask))) {
        Held::Lock(lock::Outcome::Acquired(grant) | lock::Outcome::Extended(grant) | lock::Outcome::Reclaimed { grant, .. }) => {
            Ok(grant)
        }
        Held::Lock(lock::Outcome::Busy(blocked)) => {
            let until = blocked.deadline.map(|deadline| Wall(turn.wall.0 + (deadline - turn.lease).as_ms()));
            let holder = blocked.holders.first().map_or_else(|| holder.clone(), |grant| grant.claim.holder.clone());
            Err(Lockout { lock: name, holder, until })
        }
        // The grant that was waited for is over, or was given back elsewhere in its name: it is waited for again.
        Held::Lock(
            lock::Outcome::Fenced { .. } | lock::Outcome::NotOwner { .. } | lock::Outcome::Lost | lock::Outcome::AlreadyFree,
        ) => Err(Lockout { lock: name, holder: holder.clone(), until: None }),
        other => unreachable!("who does not wait gets a lock or hears who has it: {other:?}"),
    }
}

/// Who works on a task by hand, if that is somebody else.
pub(crate) fn lockout(task: &Task, by: Option<&HolderId>, turn: &Turn) -> Option<Lockout> {
    match &task.state {
        State::ByHand { holder, until, .. } if by != Some(holder) => {
            let until = until.map(|until| Wall(turn.wall.0 + (until - turn.lease).as_ms()));
            Some(Lockout { lock: task.id.lock(), holder: holder.clone(), until })
        }
        _ => None,
    }
}

/// Gives back what somebody held who does not work on the task any more. [`Key::ByHand`] must be loaded.
pub(crate) fn let_go(id: &TaskId, holder: &HolderId, epoch: Epoch, tables: &mut Tables, turn: &mut Turn) {
    let mut draft = Draft::new(&tables.coordination, turn.now(Vec::new(), Span::ZERO));
    // What was lost or taken away is refused, and that is as good.
    draft.handle(give_back(&Need::Lock(id.lock()), holder.clone(), epoch));
    let section = tables.backlog.tasks.get(id).and_then(|task| task.spec.section.clone());
    let works_there = |section: &SectionId| {
        let is_theirs = |task: &Task| matches!(&task.state, State::ByHand { holder: other, .. } if other == holder);
        tables.backlog.tasks.values().any(|task| task.spec.section.as_ref() == Some(section) && is_theirs(task))
    };
    if let Some(section) = section.filter(|section| !works_there(section))
        && let Some(lock::State::Held(grant)) = tables.coordination.locks.get(&section.lock()).map(|lock| &lock.state)
    {
        draft.handle(give_back(&Need::Lock(section.lock()), holder.clone(), grant.epoch));
    }
    draft.keep(tables, turn);
}

/// Whoever has lost the lock of a task does not work on it any more.
pub(crate) fn follow_lock(name: &Name, tables: &mut Tables, turn: &mut Turn) {
    let Some(id) = name.task() else { return };
    let Some(State::ByHand { epoch, .. }) = tables.backlog.tasks.get(&id).map(|task| &task.state) else { return };
    let is_held = match tables.coordination.locks.get(name).map(|lock| &lock.state) {
        Some(lock::State::Held(grant)) => grant.epoch == *epoch,
        Some(lock::State::Free) | None => false,
    };
    if !is_held {
        step_task(tables, turn, &id, task::Input::Return, None);
        wake_runners(tables, turn, None);
    }
}
