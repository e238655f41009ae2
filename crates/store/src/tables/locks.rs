//! Locks with their holders. A row outlives its grants, because the fence must never be forgotten.

use banksman_core::Name;
use banksman_core::resource::grant::Grant;
use banksman_core::resource::lock::{Config, Lock, State};

use crate::columns::{Codec, Columns, Int, OfGrant, Text, Type, columns};
use crate::error::StoreError;
use crate::table::{self, table};
use crate::value::{Query, Row, Value};

columns! {
    /// The defaults of later grants.
    OfConfig of Config {
        ttl("default_ttl"): Int,
        max_hold("default_max_hold"): Int,
    }
}

/// The holder: the columns of a grant, all NULL if the lock is free.
pub(crate) struct OfState;

impl Columns for OfState {
    fn list(field: &str, out: &mut Vec<(String, Type)>) {
        OfGrant::list(field, out);
    }
}

impl Codec<State> for OfState {
    fn bind<'a>(value: &'a State, params: &mut Vec<Value<'a>>) {
        const COLUMNS: usize = 15;
        match value {
            State::Free => params.extend(std::iter::repeat_n(Value::Null, COLUMNS)),
            State::Held(grant) => <OfGrant as Codec<Grant>>::bind(grant, params),
        }
    }

    fn read(row: &mut Row) -> Result<State, StoreError> {
        Ok(if row.is_null() { State::Free } else { State::Held(Box::new(OfGrant::read(row)?)) })
    }
}

table! {
    Locks "locks" of &'a Name => Lock, |_name, lock|
    by ["name"] = [Text &lock.name]; saves
    fixed { name: Text }
    changing { config: OfConfig, fence: Int, state: OfState }
    read Lock = Lock { config, fence, state, ..Lock::new(name) };
    statements {
        /// One lock. On PostgreSQL one statement reads all locks of a batch.
        ByName => "SELECT {locks} FROM locks WHERE project = $1 AND name = $2",
        All => "SELECT {locks} FROM locks WHERE project = $1 ORDER BY name",
        /// For lists: without the free locks of tasks.
        Listed => "SELECT {locks} FROM locks WHERE project = $1 \
            AND (holder IS NOT NULL OR NOT (name >= 'task:' AND name < 'task;')) ORDER BY name",
        Waited => "SELECT {locks} FROM locks WHERE project = $1 AND name IN ({waited lock}) ORDER BY name",
        /// The holders who work manually on the task or its descendants, and the locks that they may hold.
        Manual => "{family} SELECT {locks l} FROM family f CROSS JOIN locks l WHERE l.project = $1 AND l.name = 'task:' || f.id \
            UNION ALL SELECT {locks l} FROM family f CROSS JOIN tasks t CROSS JOIN locks l WHERE t.project = $1 AND t.id = f.id \
            AND l.project = $1 AND l.name = 'section:' || t.section \
            UNION ALL SELECT {locks l} FROM claims c CROSS JOIN locks l WHERE {claimed lock} AND l.project = $1 AND l.name = c.resource",
        /// The first $3 locks whose grants may have expired by $2.
        Expired => "SELECT {locks} FROM locks WHERE project = $1 AND holder IS NOT NULL AND {timed} ORDER BY name LIMIT $3",
        /// The locks of the claims of the holder $2, or of claims that include $3.
        Claimed => "SELECT {locks l} FROM claims c CROSS JOIN locks l WHERE {claims_of} AND c.kind = 'lock' \
            AND l.project = $1 AND l.name = c.resource",
        OfPipeline => "SELECT {locks h} FROM {pipeline_holders} CROSS JOIN locks h WHERE h.project = $1 AND {of_pipeline h}",
        OfFamilyPipelines => "{family} SELECT {locks} FROM locks WHERE project = $1 AND {of_family_pipelines locks}",
        /// The first locks that pipelines wait for.
        Awaited => "{awaited lock} SELECT {locks} FROM locks WHERE project = $1 AND name IN (SELECT name FROM awaited) ORDER BY name",
    }
}

/// The statement that writes a lock, if its row has changed: its waiters and reservation are not part of it.
pub(crate) fn change<'a>(project: i64, was: Option<&Lock>, lock: &'a Lock) -> Option<Query<'a>> {
    let is_same = was.is_some_and(|was| (was.config, was.fence, &was.state) == (lock.config, lock.fence, &lock.state));
    // A lock that was only queried leaves no row behind.
    let is_blank = || was.is_none() && *lock == Lock::new(lock.name.clone());
    let write = if was.is_some() { table::update::<Locks> } else { table::insert::<Locks> };
    (!is_same && !is_blank()).then(|| write(project, &lock.name, lock))
}

pub(crate) fn delete(project: i64, lock: &Lock) -> Query<'_> {
    table::delete::<Locks>(project, &lock.name, lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_lock_fills_the_columns_of_a_grant() {
        let (mut params, mut columns) = (Vec::new(), Vec::new());
        OfState::bind(&State::Free, &mut params);
        OfState::list("state", &mut columns);
        assert_eq!(params.len(), columns.len());
    }
}
