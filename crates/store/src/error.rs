//! What can go wrong with a store itself. A refusal of what was asked is not an error.

use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

type Source = Arc<dyn std::error::Error + Send + Sync>;

/// Why a store could not do its work. Unless it says otherwise, nothing was changed.
#[derive(Debug, Clone, Error)]
pub enum StoreError {
    /// There is no store at this place.
    #[error("there is no store at {place}")]
    Missing { place: String },
    /// There is a store already.
    #[error("there is a store at {place} already")]
    Exists { place: String },
    /// The file is something else.
    #[error("{} is not a banksman store: {what}", path.display())]
    Foreign {
        path: PathBuf,
        /// What it seems to be.
        what: String,
    },
    /// A newer version has changed the tables.
    #[error("the store was made by a newer version of banksman (schema {found}, this one knows {known})")]
    Newer {
        /// The schema number in the store.
        found: i64,
        /// The schema number of this program.
        known: i64,
    },
    /// The project was copied to another store, and this one is retired.
    #[error("this store is retired: its project was moved to {to}")]
    Moved {
        /// The other store.
        to: String,
    },
    /// Sessions are running, whose keepers belong to the place where the store is now.
    #[error("{runs} sessions of the project are running")]
    InUse { runs: usize },
    /// Tasks are being imported, or were until the importer was killed.
    #[error("{imports} imports into the project are not finished")]
    Importing { imports: usize },
    /// The content contradicts itself.
    #[error("the store is damaged: {what}")]
    Corrupt {
        /// What was found.
        what: String,
    },
    /// The file system has no file locks that can be trusted.
    #[error("{} is on a file system that other machines may share ({kind}), where file locks cannot be trusted", path.display())]
    NetworkFileSystem {
        path: PathBuf,
        /// The kind of file system.
        kind: &'static str,
    },
    /// SQLite cannot open a file with such a path.
    #[error("the path of the store has {bytes} bytes, and SQLite opens none with more than 512")]
    PathTooLong {
        /// How long it is.
        bytes: usize,
    },
    /// Events that were committed are not in the store any more.
    #[error("the store has lost events: event {recorded} was committed, and the last one in it is event {found}")]
    WentBack {
        /// The last event that was committed.
        recorded: i64,
        /// The last event that is there.
        found: i64,
    },
    /// Nothing may be written there.
    #[error("the store cannot be written: {source}")]
    ReadOnly {
        /// What the system said.
        source: Source,
    },
    /// A file of the project must not be used as it is.
    #[error("{} is not safe to use: {what}", path.display())]
    Unsafe { path: PathBuf, what: String },
    /// No space is left.
    #[error("no space is left on the disk of the store")]
    Full {
        /// What the system said.
        source: Source,
    },
    /// The commit failed in a way that leaves open whether it happened.
    #[error("it is not known whether the change was saved: {source}")]
    Unknown {
        /// What the system said.
        source: Source,
    },
    /// The database server cannot be reached, or refuses.
    #[error("the database cannot be reached: {source}")]
    Unreachable {
        /// What was tried and what came back.
        source: Source,
    },
    /// The connection was lost before the commit: nothing has happened.
    #[error("the connection to the database was lost: {source}")]
    Disconnected { source: Source },
    /// The role lacks a right that it needs.
    #[error("the database does not permit it: {source}")]
    Forbidden {
        /// What the server said.
        source: Source,
    },
    /// The server is too old.
    #[error("the database server is too old: {found}, and banksman needs PostgreSQL 13 or later")]
    TooOld {
        /// Its version.
        found: String,
    },
    /// A decision has panicked: this program is wrong.
    #[error("banksman has made a mistake, and nothing was changed: {what}")]
    Bug {
        /// What the panic said.
        what: String,
    },
    /// Another process held the store for too long.
    #[error("the store was busy for too long")]
    Stalled,
    /// Anything else that the database or the system reports.
    #[error("the store failed: {source}")]
    Failed {
        /// What was reported.
        source: Source,
    },
}

impl StoreError {
    /// Wraps an error of the system.
    pub(crate) fn io(source: std::io::Error) -> StoreError {
        use std::io::ErrorKind;
        let kind = source.kind();
        let source: Source = Arc::new(source);
        match kind {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly { source },
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::Full { source },
            _ => StoreError::Failed { source },
        }
    }

    /// The rows do not say what they should.
    pub(crate) fn corrupt(what: impl std::fmt::Display) -> StoreError {
        StoreError::Corrupt { what: what.to_string() }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        use rusqlite::ErrorCode;
        let code = error.sqlite_error_code();
        let what = error.to_string();
        let source: Source = Arc::new(error);
        match code {
            Some(ErrorCode::DiskFull) => StoreError::Full { source },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StoreError::ReadOnly { source },
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt { what },
            _ => StoreError::Failed { source },
        }
    }
}
