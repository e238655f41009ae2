//! Gathers the facts of an admission from rows.

use std::collections::BTreeMap;

use banksman_core::backlog::Backlog;
use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::Coordination;
use banksman_core::resource::lock;
use banksman_core::resource::work_claim::Reservation;
use banksman_core::task::Need;
use banksman_core::task::admission::{self, Admission, Dependency, Exclusive, Facts, Needed};
use banksman_core::task::roots::Roots;
use banksman_core::{Grant, Name, Now, ProcessId, RunnerId, SectionId, Task};
use banksman_store::Key;

use crate::calls::{manual, sections};

/// The rows that the admission of a task needs.
pub(crate) fn keys(task: &banksman_core::TaskId, section: Option<&SectionId>, needs: &[Need]) -> Vec<Key> {
    let mut keys = vec![Key::Task(task.clone()), Key::Dependencies(task.clone()), Key::Lock(task.lock())];
    keys.extend(common_keys());
    keys.extend(resource_keys(section, needs));
    keys
}

/// The rows that every admission needs.
pub(crate) fn common_keys() -> [Key; 6] {
    [Key::AccountLimits, Key::Sections, Key::Live, Key::Runners, Key::Semaphore(Name::runs()), Key::LimitedRoots]
}

/// The locks and semaphores that tasks with these needs depend on.
pub(crate) fn resource_keys(section: Option<&SectionId>, needs: &[Need]) -> Vec<Key> {
    let section = section.map(|section| Key::Lock(section.lock()));
    section.into_iter().chain(needs.iter().map(need_key)).collect()
}

pub(crate) fn need_key(need: &Need) -> Key {
    match need.resource() {
        Resource { kind: Kind::Lock, name } => Key::Lock(name),
        Resource { kind: Kind::Semaphore, name } => Key::Semaphore(name),
    }
}

/// The processes whose death would free a resource: the processes of holders and of waiters.
pub(crate) fn processes(coordination: &Coordination) -> impl Iterator<Item = &ProcessId> {
    let locks = coordination.locks.values().flat_map(|lock| {
        let grant = match &lock.state {
            lock::State::Held(grant) => Some(&**grant),
            lock::State::Free => None,
        };
        grant.into_iter().flat_map(bound_to).chain(lock.waiters.iter().map(|waiter| &waiter.standing.process))
    });
    let semaphores = coordination.semaphores.values().flat_map(|semaphore| {
        let waiters = semaphore.waiters.iter().map(|waiter| &waiter.standing.process);
        semaphore.holders.values().flat_map(bound_to).chain(waiters)
    });
    let claims = coordination.claims.values().filter_map(|claim| claim.waits()).map(|terms| &terms.standing.process);
    locks.chain(semaphores).chain(claims)
}

fn bound_to(grant: &Grant) -> impl Iterator<Item = &ProcessId> {
    grant.claim.processes.iter().chain(grant.offer.as_ref().map(|offer| &offer.process))
}

/// Whether the given runner, or any runner, may start the task now. All rows of [`keys`] must be loaded.
pub(crate) fn admit(
    task: &Task,
    runner: Option<&RunnerId>,
    coordination: &Coordination,
    backlog: &Backlog,
    now: &Now,
) -> Admission {
    let section = task.spec.section.as_ref().and_then(|id| backlog.sections.get(id)).filter(|section| section.exclusive);
    let root_limit = root_limit(backlog);
    let facts = Facts {
        runner,
        pause: backlog.pause.as_ref(),
        dependencies: dependencies(task, backlog),
        section: section.map(|section| Exclusive {
            section,
            lock: sections::manual_lock(&section.id, coordination, backlog),
            foreign: backlog
                .live_in(&section.id)
                .find(|run| Some(&run.owner) != runner)
                .map(|run| (&run.id, &run.owner, run.started)),
        }),
        lock: coordination.locks.get(&task.id.lock()),
        needs: needs(task.spec.needs_to_begin(root_limit > 0), coordination),
        slots: coordination.semaphores.get(&Name::runs()),
        account_limits: backlog.account_limits.values().collect(),
        roots: Roots::of(root_limit, backlog.tasks.values()),
        reserved: reserved(task, coordination, now),
    };
    admission::admit(task, &facts, now)
}

/// The resources of a task that are reserved for waiting claims.
fn reserved(task: &Task, coordination: &Coordination, now: &Now) -> BTreeMap<Resource, Reservation> {
    if coordination.claims.is_empty() {
        return BTreeMap::new();
    }
    let section = task.spec.section.as_ref().map(|section| Need::Lock(section.lock()));
    let needs = [Need::Lock(task.id.lock())].into_iter().chain(section).chain(task.spec.needs_to_begin(true).iter().cloned());
    let resources = needs.map(|need| manual::part(&need).resource);
    resources.filter_map(|resource| coordination.reservation(&resource, now).map(|kept| (resource, kept))).collect()
}

/// The most roots that may be under way; 0 for no limit.
pub(crate) fn root_limit(backlog: &Backlog) -> u32 {
    backlog.limits.map_or(0, |limits| limits.roots)
}

fn dependencies<'a>(task: &Task, backlog: &'a Backlog) -> Vec<Dependency<'a>> {
    let edges = backlog.edges.get(&task.id).map_or(&[][..], Vec::as_slice);
    let dependency = |edge: &'a banksman_core::backlog::Edge| {
        let on = backlog.tasks.get(&edge.on);
        Dependency {
            task: &edge.on,
            title: on.map(|task| &task.spec.title),
            status: on.map(Task::status),
            since: on.map(|task| task.changed),
            allow_failed: edge.allow_failed,
        }
    };
    edges.iter().map(dependency).collect()
}

fn needs<'a>(needs: &[Need], coordination: &'a Coordination) -> Vec<Needed<'a>> {
    let needed = |need: &Need| match need.resource().kind {
        Kind::Lock => Needed::Lock(coordination.locks.get(need.name())),
        Kind::Semaphore => Needed::Slots(coordination.semaphores.get(need.name())),
    };
    needs.iter().map(needed).collect()
}
