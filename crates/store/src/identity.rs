//! The identity of a store: its random id, and where its project went.

use std::fmt;

use crate::error::StoreError;
use crate::reader::View;
use crate::store::Store;
use crate::tables::projects::Statement;
use crate::value::{Query, Rows};

/// The random id of a store. The client that made the store, or whose user has accepted the id, trusts the content of
/// the store with this id; so the id is shown only to clients that can read the store.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreId(Box<str>);

impl StoreId {
    /// Wraps an id that was generated or read.
    pub fn new(text: impl Into<Box<str>>) -> StoreId {
        StoreId(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first letters: enough to tell stores apart, not enough to forge one.
    pub fn short(&self) -> &str {
        self.0.get(..8).unwrap_or(&self.0)
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreId({}…)", self.short())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `None` if an earlier version made the store and no user has trusted it since.
    pub store: Option<StoreId>,
    /// The URL that the project was copied to; `None` while this store is in use.
    pub moved_to: Option<String>,
}

impl View<'_> {
    /// Reads the store's id, and where its project went.
    pub fn identity(&mut self) -> Result<Identity, StoreError> {
        Identity::read(self.rows(Query::new(Statement::Identity, [self.project.into()]))?)
    }
}

impl Store {
    /// Gives a store without an id this one, and returns the id that the store has afterwards: if several processes do
    /// so at once, one wins.
    pub fn identify(&mut self, new: &StoreId) -> Result<StoreId, StoreError> {
        let ask = [Query::new(Statement::Identity, [self.project.into()])];
        let answers = self.backend.begin(&ask)?;
        let known = Identity::read(answers.into_iter().next().unwrap_or_default());
        match known {
            Ok(Identity { store: None, .. }) => {
                self.backend.commit(&[Query::new(Statement::SetStoreId, [self.project.into(), new.as_str().into()])])?;
                Ok(new.clone())
            }
            Ok(Identity { store: Some(id), .. }) => {
                self.backend.roll_back();
                Ok(id)
            }
            Err(error) => {
                self.backend.roll_back();
                Err(error)
            }
        }
    }
}

impl Identity {
    fn read(mut rows: Rows) -> Result<Identity, StoreError> {
        let mut row = rows.pop().ok_or_else(|| StoreError::corrupt("the project has no row"))?;
        Ok(Identity { store: row.maybe_text()?.map(StoreId::new), moved_to: row.maybe_text()? })
    }
}
