//! Sections: add, change, delete.

use banksman_core::backlog::{Backlog, Section};
use banksman_core::event::{Event, Kind, Resource, SectionFact};
use banksman_core::resource::coordination::{Command, Coordination};
use banksman_core::resource::lock::{self, Lock};
use banksman_core::task::Need;
use banksman_core::{HolderId, RunId, SectionId, Title};
use banksman_store::{Key, Tx};

use crate::calls::steps::{Draft, emit, take, wake_for, wake_runners};

/// The most sections of a project.
pub(crate) const SECTION_LIMIT: usize = 1_000;

#[derive(Debug, Clone)]
pub enum SectionRequest {
    Add {
        id: SectionId,
        name: Title,
        /// Whether one runner at a time works in it.
        exclusive: bool,
    },
    Update {
        id: SectionId,
        name: Option<Title>,
        /// Whether one runner at a time works in it.
        exclusive: Option<bool>,
    },
    /// Delete an empty section.
    Delete {
        id: SectionId,
        /// Delete it even if its lock is held.
        force: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SectionOutcome {
    Kept(Section),
    Deleted,
    Unknown,
    /// Another section has this name.
    NameTaken(SectionId),
    TooMany,
    NotEmpty(usize),
    Locked(HolderId),
}

impl SectionRequest {
    pub(crate) fn keys(&self) -> Vec<Key> {
        let mut keys = vec![Key::Sections, Key::Runners];
        if let SectionRequest::Delete { id, .. } = self {
            keys.extend([Key::InSection(id.clone()), Key::Lock(id.lock())]);
        }
        keys
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> SectionOutcome {
        let taken = |name: &Title, but: &SectionId| {
            let mut sections = tx.tables.backlog.sections.values();
            sections.find(|other| other.name == *name && other.id != *but).map(|other| other.id.clone())
        };
        match self {
            SectionRequest::Add { id, name, exclusive } => {
                if let Some(other) = taken(name, id) {
                    return SectionOutcome::NameTaken(other);
                }
                if tx.tables.backlog.sections.len() >= SECTION_LIMIT {
                    return SectionOutcome::TooMany;
                }
                let section = Section { id: id.clone(), name: name.clone(), exclusive: *exclusive, position: tx.seq };
                emit(
                    tx,
                    Event::Section { id: id.clone(), fact: SectionFact::Added { name: name.clone(), exclusive: *exclusive } },
                );
                tx.tables.backlog.sections.insert(id.clone(), section.clone());
                SectionOutcome::Kept(section)
            }
            SectionRequest::Update { id, name, exclusive } => {
                if let Some(other) = name.as_ref().and_then(|name| taken(name, id)) {
                    return SectionOutcome::NameTaken(other);
                }
                let Some(section) = tx.tables.backlog.sections.get_mut(id) else { return SectionOutcome::Unknown };
                section.name = name.clone().unwrap_or(section.name.clone());
                section.exclusive = exclusive.unwrap_or(section.exclusive);
                let section = section.clone();
                let fact = SectionFact::Updated { name: section.name.clone(), exclusive: section.exclusive };
                emit(tx, Event::Section { id: id.clone(), fact });
                wake_runners(tx);
                SectionOutcome::Kept(section)
            }
            SectionRequest::Delete { id, force } => {
                if !tx.tables.backlog.sections.contains_key(id) {
                    return SectionOutcome::Unknown;
                }
                let tasks = tx.tables.backlog.tasks.values().filter(|task| task.spec.section.as_ref() == Some(id)).count();
                if tasks > 0 {
                    return SectionOutcome::NotEmpty(tasks);
                }
                let lock = tx.tables.coordination.locks.get(&id.lock());
                if let Some(lock::State::Held(grant)) = lock.map(|lock| &lock.state)
                    && !force
                {
                    return SectionOutcome::Locked(grant.claim.holder.clone());
                }
                tx.tables.backlog.sections.remove(id);
                emit(tx, Event::Section { id: id.clone(), fact: SectionFact::Deleted {} });
                SectionOutcome::Deleted
            }
        }
    }
}

/// The lock of an exclusive section, unless it is held for live runs of the section or for a run that the same draft starts.
pub(crate) fn manual_lock<'a>(section: &SectionId, coordination: &'a Coordination, backlog: &Backlog) -> Option<&'a Lock> {
    let lock = coordination.locks.get(&section.lock())?;
    let lock::State::Held(grant) = &lock.state else { return Some(lock) };
    let holder = &grant.claim.holder;
    let is_in_section = backlog.live_in(section).any(|run| run.id.holder() == *holder);
    let is_known = backlog.runs.values().any(|run| run.is_live() && run.id.holder() == *holder);
    let is_new = holder.is_run() && !is_known;
    (!is_in_section && !is_new).then_some(lock)
}

/// Passes the lock of a section from a run that has ended to another live run of the section, or frees it. [`Key::LiveExclusive`] and
/// the lock must be loaded.
pub(crate) fn leave(section: &SectionId, run: &RunId, tx: &mut Tx) {
    let name = section.lock();
    let is_exclusive = tx.tables.backlog.sections.get(section).is_some_and(|section| section.exclusive);
    let is_held = tx.tables.coordination.locks.get(&name).is_some_and(|lock| matches!(lock.state, lock::State::Held(_)));
    // A section that is no longer exclusive may still be locked; otherwise no process waits for it.
    if !is_exclusive && !is_held {
        return;
    }
    let heir = tx.tables.backlog.live_in(section).find(|other| other.id != *run).map(|other| other.id.clone());
    if let Some(lock::State::Held(grant)) = tx.tables.coordination.locks.get(&name).map(|lock| &lock.state) {
        let holder = grant.claim.holder.clone();
        // An earlier version gave the lock to the runner.
        let is_left = holder == run.holder() || (heir.is_none() && holder.as_str().starts_with("runner:"));
        if is_left {
            let command = Command::release(Need::Lock(name.clone()).resource(), holder, grant.epoch);
            // A lock that passes from one run to the next is never free in between, so that it is not reserved for a waiter.
            let claims = heir.as_ref().map(|_| std::mem::take(&mut tx.tables.coordination.claims));
            let mut draft = Draft::new(&tx.tables.coordination, tx.now(Vec::new(), Default::default()));
            draft.handle(command);
            heir.iter().for_each(|heir| drop(draft.handle(take(&Need::Lock(name.clone()), heir.holder(), Vec::new()))));
            draft.keep(tx);
            claims.into_iter().for_each(|claims| tx.tables.coordination.claims = claims);
        }
    }
    if heir.is_none() {
        wake_for(&[Resource { kind: Kind::Lock, name }], tx);
    }
}
