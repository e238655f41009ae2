//! Why a project cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use banksman_store::StoreError;
use thiserror::Error;

use crate::config::ConfigError;

/// Why a project cannot be used.
#[derive(Debug, Error)]
pub enum ProjectError {
    /// There is no project here or above.
    #[error("there is no banksman project in {} or above it", from.display())]
    NotFound { from: PathBuf },
    /// There is a project already.
    #[error("{} is a banksman project already", root.display())]
    Exists { root: PathBuf },
    /// The config names a project, but there is no store.
    #[error("the store of project {id} is missing: there is no file {}", store.display())]
    NoStore {
        /// The file that is missing.
        store: PathBuf,
        /// The project's id.
        id: String,
    },
    /// The config says that the project is kept in a database, and no setting names it.
    #[error("this project ({id}) is kept in a store elsewhere: {} says shared = true", config.display())]
    Elsewhere {
        /// The file that says so.
        config: PathBuf,
        /// The project's id.
        id: String,
    },
    /// A database server has its own backup program.
    #[error("the project is kept in PostgreSQL, which is backed up with pg_dump")]
    NoBackup {
        /// The database, without a password.
        url: String,
    },
    /// The store was not copied to the other one.
    #[error("the project in {from} was not copied to {to}")]
    NotCopied {
        /// The store that should be retired.
        from: String,
        /// The store that it should name.
        to: String,
    },
    /// The copy can no longer be undone.
    #[error("the project has changed since it was copied to {to}")]
    ChangedSince {
        /// The store with the project.
        to: String,
    },
    /// The user's settings name a database, and the project has a store of its own.
    #[error("this project has two stores: {}, and {other} by the setting `store` of the user", local.display())]
    TwoStores {
        /// The file in the project.
        local: PathBuf,
        /// The database, without a password.
        other: String,
    },
    /// The settings are invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The URL of the store is invalid.
    #[error("{url:?} is not the place of a store: {what}")]
    Url { url: String, what: String },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no place for the list of what the user trusts.
    #[error("trust has no place: HOME is not set")]
    Homeless,
    /// The system call failed.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

pub(crate) fn io_at(path: &Path) -> impl FnOnce(io::Error) -> ProjectError {
    move |source| ProjectError::Io { path: path.into(), source }
}
