//! The interface that every database implements.

use crate::compact::Size;
use crate::error::StoreError;
use crate::reader::ServerUsage;
use crate::value::{Query, Rows};

/// One connection to one database. Writers of a project are served one after the other.
pub(crate) trait Backend: Send {
    /// Waits for the writer lock. Returns whether another process held it. The lock lasts for at least one transaction, and at
    /// most until [`Backend::unlock_writer`].
    fn lock_writer(&mut self) -> Result<bool, StoreError>;

    /// Takes the writer lock if it is free. Returns whether it took it. Where the lock is part of the transaction,
    /// later transactions wait only briefly, and then fail with `Stalled`.
    fn try_lock_writer(&mut self) -> Result<bool, StoreError>;

    fn unlock_writer(&mut self);

    /// Whether the writer lock lasts from one transaction to the next.
    fn keeps_writer_lock(&self) -> bool;

    /// Whether the last transaction waited for another writer, for databases where [`Backend::try_lock_writer`] cannot
    /// tell.
    fn has_waited(&self) -> bool;

    /// Starts a write transaction and runs the queries in it. Waits for the writer lock if this connection does not
    /// hold it yet.
    fn begin(&mut self, queries: &[Query<'_>]) -> Result<Vec<Rows>, StoreError>;

    /// Runs more queries in the open transaction.
    fn query(&mut self, queries: &[Query<'_>]) -> Result<Vec<Rows>, StoreError>;

    /// Lets the open transaction stay idle for any length of time.
    fn stay(&mut self) -> Result<(), StoreError>;

    /// Runs statements of the open transaction, for a transaction that is too large to keep in memory.
    fn write(&mut self, writes: &[Query<'_>]) -> Result<(), StoreError>;

    /// Runs the statements in the open transaction and commits it. Unless the error is `Unknown`, a failure means that
    /// nothing was changed.
    fn commit(&mut self, writes: &[Query<'_>]) -> Result<(), StoreError>;

    /// Rolls back the open transaction, if there is one.
    fn roll_back(&mut self);

    /// Runs queries in one snapshot, without waiting for writers.
    fn read(&mut self, queries: &[Query<'_>]) -> Result<Vec<Rows>, StoreError>;

    /// Whether each [`Backend::query`] costs a round trip, so that one statement that reads more pays off.
    fn is_remote(&self) -> bool;

    /// Whether the commit itself wakes the waiters that were granted something.
    fn notifies(&self) -> bool;

    /// Notifies the followers of the event log.
    fn ring(&mut self, project: i64) -> Result<(), StoreError>;

    /// Does maintenance. `quiet` says that no caller waits, so that more of it is worth its price.
    fn tidy(&mut self, quiet: bool) -> Result<(), StoreError>;

    /// Updates the statistics of the task tables for better plans, if the database does not do so by itself.
    fn analyze(&mut self) -> Result<(), StoreError>;

    /// Asks the database to check its own structure. Returns the problems that it reports.
    fn check_integrity(&mut self) -> Result<Vec<String>, StoreError>;

    /// Usage of the resources that all clients of the server share. `None` if there is no server.
    fn server_usage(&mut self) -> Result<Option<ServerUsage>, StoreError>;

    /// Removes all rows of the project and resets its counters.
    fn clear(&mut self, project: i64, lease: i64, boot: &str) -> Result<(), StoreError>;

    /// The size of the store. Cheap.
    fn size(&mut self) -> Result<Size, StoreError>;
}
