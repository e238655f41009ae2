//! Why a project cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use banksman_store::StoreError;
use thiserror::Error;

use crate::config::ConfigError;

/// Why a project cannot be used.
#[derive(Debug, Error)]
pub enum ProjectError {
    /// There is none here or above.
    #[error("there is no banksman project in {} or above it", from.display())]
    NotFound {
        /// Where the search began.
        from: PathBuf,
    },
    /// There is one already.
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
    /// The config says that the project is kept in a database, and nobody says in which.
    #[error("this project ({id}) is kept in a store elsewhere: {} says shared = true", config.display())]
    Elsewhere {
        /// The file that says so.
        config: PathBuf,
        /// The project's id.
        id: String,
    },
    /// The database server has a program of its own for that.
    #[error("the project is kept in PostgreSQL, which is backed up with pg_dump")]
    NoBackup {
        /// The database, without a password.
        url: String,
    },
    /// The one store was not copied to the other.
    #[error("the project in {from} was not copied to {to}")]
    NotCopied {
        /// The store that should be retired.
        from: String,
        /// The store that it should name.
        to: String,
    },
    /// A copy cannot be undone any more.
    #[error("the project has changed since it was copied to {to}")]
    ChangedSince {
        /// Where the project is.
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
    /// Its settings cannot be understood.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The place of the store is not written in a way that is understood.
    #[error("{url:?} is not the place of a store: {what}")]
    Url { url: String, what: String },
    /// The store cannot be made.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no place for what the user trusts.
    #[error("trust has no place: HOME is not set")]
    Homeless,
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

pub(crate) fn io_at(path: &Path) -> impl FnOnce(io::Error) -> ProjectError {
    move |source| ProjectError::Io { path: path.into(), source }
}
