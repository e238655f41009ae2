//! Failures of the store itself. A refused request is not an error.

use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

type Source = Arc<dyn std::error::Error + Send + Sync>;

/// Why the store failed. Unless the variant says otherwise, nothing was changed.
#[derive(Debug, Clone, Error)]
pub enum StoreError {
    #[error("there is no store at {place}")]
    Missing { place: String },
    #[error("there is a store at {place} already")]
    Exists { place: String },
    /// The file is not a store.
    #[error("{} is not a banksman store: {what}", path.display())]
    Foreign { path: PathBuf, what: String },
    /// A newer version has changed the tables.
    #[error("the store was made by a newer version of banksman (schema {found}, this one knows {known})")]
    Newer { found: i64, known: i64 },
    /// The project was copied to another store, and this one is retired.
    #[error("this store is retired: its project was moved to {to}")]
    Moved { to: String },
    /// Sessions are running. Their keepers depend on the current place of the store.
    #[error("{runs} sessions of the project are running")]
    InUse { runs: usize },
    /// Imports are not finished: they are in progress, or their process was killed.
    #[error("{imports} imports into the project are not finished")]
    Importing { imports: usize },
    /// The rows contradict each other.
    #[error("the store is damaged: {what}")]
    Corrupt { what: String },
    /// File locks cannot be trusted on this file system.
    #[error("{} is on a file system that other machines may share ({kind}), where file locks cannot be trusted", path.display())]
    NetworkFileSystem { path: PathBuf, kind: &'static str },
    /// SQLite cannot open a file with so long a path.
    #[error("the path of the store has {bytes} bytes, and SQLite opens none with more than 512")]
    PathTooLong { bytes: usize },
    /// Events that were committed are not in the store any more.
    #[error("the store has lost events: event {recorded} was committed, and the last one in it is event {found}")]
    WentBack {
        /// The last event known to be committed.
        recorded: i64,
        /// The last event in the store.
        found: i64,
    },
    /// The store is not writable.
    #[error("the store cannot be written: {source}")]
    ReadOnly { source: Source },
    /// A file of the project must not be used as it is.
    #[error("{} is not safe to use: {what}", path.display())]
    Unsafe { path: PathBuf, what: String },
    /// No space is left.
    #[error("no space is left on the disk of the store")]
    Full { source: Source },
    /// The commit failed, and it is not known whether the change was saved.
    #[error("it is not known whether the change was saved: {source}")]
    Unknown { source: Source },
    /// The database server is not reachable, or refuses the connection.
    #[error("the database cannot be reached: {source}")]
    Unreachable { source: Source },
    /// The connection was lost before the commit: nothing was changed.
    #[error("the connection to the database was lost: {source}")]
    Disconnected { source: Source },
    /// The role lacks a privilege.
    #[error("the database does not permit it: {source}")]
    Forbidden { source: Source },
    /// The server is too old.
    #[error("the database server is too old: {found}, and banksman needs PostgreSQL 13 or later")]
    TooOld { found: String },
    /// A decision has panicked, which is a bug of Banksman.
    #[error("banksman has made a mistake, and nothing was changed: {what}")]
    Bug {
        /// The message of the panic.
        what: String,
    },
    /// Another process held the writer lock for too long.
    #[error("the store was busy for too long")]
    Stalled,
    /// Any other error of the database or the system.
    #[error("the store failed: {source}")]
    Failed { source: Source },
}

impl StoreError {
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

    /// The rows contradict each other or cannot be decoded.
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
