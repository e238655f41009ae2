//! What can go wrong between a caller and the store.

use std::io;

use banksman_adapters::reentry::NotEntered;
use banksman_store::StoreError;
use thiserror::Error;

/// Why a call could not be carried out. A refusal is not an error.
#[derive(Debug, Error)]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// This program must not be started again, and no other was named.
    #[error(transparent)]
    NotEntered(#[from] NotEntered),
    /// The system failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::System { what, source }
    }
}
