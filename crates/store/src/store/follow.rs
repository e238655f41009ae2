//! Loading the rows that the loaded rows refer to, and that a decision needs besides those of its keys.

use std::collections::BTreeSet;

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::Coordination;
use banksman_core::task::State;
use banksman_core::{Name, TaskId};

use super::Store;
use crate::call::Call;
use crate::error::StoreError;
use crate::key::Key;
use crate::load;
use crate::loaded::Loaded;
use crate::tables::Tables;
use crate::tables::projects::Counters;

/// Maximum number of rounds in which rows lead to more rows.
const FOLLOWS: usize = 4;

impl Store {
    /// Loads the rows that the loaded ones refer to. Returns all keys.
    pub(super) fn follow<C: Call>(
        &mut self,
        calls: &[C],
        mut known: BTreeSet<Key>,
        mut rare: BTreeSet<Key>,
        counters: &Counters,
        loaded: &mut Loaded,
    ) -> Result<BTreeSet<Key>, StoreError> {
        // Waiters and idle runners were planned for the rare keys too.
        let mut planned: BTreeSet<Key> = known.union(&rare).cloned().collect();
        for _ in 0..FOLLOWS {
            let rows = loaded.so_far();
            let mut more: BTreeSet<Key> = calls.iter().flat_map(|call| call.follow(rows)).collect();
            // The locks of ready tasks were loaded with them.
            known.extend(rows.ready.iter().map(|id| Key::Lock(id.lock())));
            if counters.parks {
                // Includes resources that this round loads.
                let asked = known.iter().chain(&more).filter_map(resource);
                let limits = rows.backlog.account_limits.keys().map(|name| Resource { kind: Kind::Lock, name: name.clone() });
                let all = resources(&rows.coordination).chain(asked).filter(|resource| parks_tasks(resource, rows));
                let all: Vec<Resource> = all.collect();
                more.extend(all.into_iter().chain(limits).map(Key::ParkedOn));
                if !more.is_empty() && !load::loads_idle(&planned) {
                    more.insert(Key::Idle);
                }
            }
            more.append(&mut rare);
            let (wanted, absent): (BTreeSet<Key>, BTreeSet<Key>) =
                more.into_iter().filter(|key| !known.contains(key)).partition(|key| load::may_have_rows(key, rows, counters));
            known.extend(absent);
            let more = wanted;
            if more.is_empty() {
                break;
            }
            let queries = load::plan_more(self.project, &planned, &more);
            let answers = self.backend.query(&queries)?;
            loaded.extend(&queries, answers)?;
            drop(queries);
            planned.extend(more.iter().cloned());
            known.extend(more);
        }
        Ok(known)
    }
}

/// The lock or semaphore that a key names.
fn resource(key: &Key) -> Option<Resource> {
    match key {
        Key::Lock(name) => Some(Resource { kind: Kind::Lock, name: name.clone() }),
        Key::Semaphore(name) => Some(Resource { kind: Kind::Semaphore, name: name.clone() }),
        _ => None,
    }
}

/// Whether tasks may be parked on the resource. Tasks that wait for a run slot or an exclusive section stay in their
/// lanes. Only the task itself waits for its own lock, unless it is in its lane or waits for something else.
fn parks_tasks(resource: &Resource, rows: &Tables) -> bool {
    let is_elsewhere = |task: &TaskId| rows.ready.contains(task) || rows.parked_on.values().any(|tasks| tasks.contains(task));
    let waits =
        |task: &TaskId| rows.backlog.tasks.get(task).is_none_or(|task| task.state == State::Pending) && !is_elsewhere(task);
    !resource.name.is_section() && resource.name != Name::runs() && resource.name.task().is_none_or(|task| waits(&task))
}

fn resources(coordination: &Coordination) -> impl Iterator<Item = Resource> {
    let locks = coordination.locks.keys().map(|name| Resource { kind: Kind::Lock, name: name.clone() });
    locks.chain(coordination.semaphores.keys().map(|name| Resource { kind: Kind::Semaphore, name: name.clone() }))
}
