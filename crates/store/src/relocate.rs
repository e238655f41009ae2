//! Moving a project to another store. At every moment at most one of the two is in use.
//!
//! ```text
//!   old store               new store
//!   in use, locked          filled; the same commit says: moved to the old store
//!   moved to the new store  the same                                              <- the move
//!   moved to the new store  in use
//! ```
//!
//! Writers of the old store wait from before the first row is read until the store is retired, and are then refused. A
//! process that is killed in between leaves stores of which at most one is in use; the next attempt continues from
//! there.

use crate::Reader;
use crate::copy::{Copied, copy};
use crate::error::StoreError;
use crate::store::Store;
use crate::tables::projects::{Counters, Statement};
use crate::value::Query;

/// The names of the two stores, without passwords, as each refers to the other.
#[derive(Debug, Clone, Copy)]
pub struct Route<'a> {
    pub from: &'a str,
    pub to: &'a str,
}

/// Why a project was not moved.
#[derive(Debug)]
pub enum RelocateError {
    /// The old store is still in use, so the new one is useless.
    NotMoved(StoreError),
    /// The old store is retired, or may be: the new one must not be removed.
    Unfinished(StoreError),
}

/// Copies the project of `source`, which `from` reads, to the new, empty project of `to`, and retires `source`.
pub fn relocate(source: &mut Store, from: &mut Reader, to: &mut Store, route: Route<'_>) -> Result<Copied, RelocateError> {
    source.backend.lock_writer().map_err(RelocateError::NotMoved)?;
    let copied = copy_and_retire(source, from, to, route);
    source.backend.unlock_writer();
    let copied = copied?;
    to.set_moved_to(None).map_err(RelocateError::Unfinished)?;
    Ok(copied)
}

fn copy_and_retire(source: &mut Store, from: &mut Reader, to: &mut Store, route: Route<'_>) -> Result<Copied, RelocateError> {
    let copied = lock(source).and_then(|()| copy(from, to, Some(route.from)));
    let copied = copied.map_err(|error| {
        source.backend.roll_back();
        RelocateError::NotMoved(error)
    })?;
    source.backend.commit(&[moved_to(source.project, Some(route.to))]).map_err(|error| match error {
        error @ StoreError::Unknown { .. } => RelocateError::Unfinished(error),
        error => RelocateError::NotMoved(error),
    })?;
    Ok(copied)
}

/// Blocks all other writers until the transaction ends.
fn lock(source: &mut Store) -> Result<(), StoreError> {
    let project = Query::new(Statement::One, [source.project.into()]);
    let answers = source.backend.begin(&[project])?;
    // Another process may have moved the project while this one waited for the writer lock.
    Counters::read(answers.into_iter().next().unwrap_or_default())?;
    source.backend.stay()
}

pub(crate) fn moved_to(project: i64, to: Option<&str>) -> Query<'_> {
    Query::new(Statement::SetMovedTo, [project.into(), to.into()])
}

impl Store {
    /// Retires the store in favour of another one, or puts it back into use.
    pub fn set_moved_to(&mut self, to: Option<&str>) -> Result<(), StoreError> {
        self.backend.begin(&[])?;
        self.backend.commit(&[moved_to(self.project, to)])
    }

    /// Retires the store in favour of another one if this event is still the last one. Returns whether it did.
    pub fn retire_after(&mut self, event: i64, to: &str) -> Result<bool, StoreError> {
        let answers = self.backend.begin(&[Query::new(Statement::One, [self.project.into()])])?;
        match Counters::of_retired(answers.into_iter().next().unwrap_or_default()) {
            Ok((counters, _)) if counters.seq == event => {
                self.backend.commit(&[moved_to(self.project, Some(to))])?;
                Ok(true)
            }
            other => {
                self.backend.roll_back();
                other.map(|_| false)
            }
        }
    }

    /// The new place of the project, if the store is retired.
    pub fn moved_to(&mut self) -> Result<Option<String>, StoreError> {
        let answers = self.backend.read(&[Query::new(Statement::One, [self.project.into()])])?;
        Ok(Counters::of_retired(answers.into_iter().next().unwrap_or_default())?.1)
    }

    /// The number of the last event. Works on a retired store too.
    pub fn last_event(&mut self) -> Result<i64, StoreError> {
        let answers = self.backend.read(&[Query::new(Statement::One, [self.project.into()])])?;
        Ok(Counters::of_retired(answers.into_iter().next().unwrap_or_default())?.0.seq)
    }
}
