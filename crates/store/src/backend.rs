//! What a database must be able to do.

use crate::compact::Size;
use crate::error::StoreError;
use crate::reader::ServerUsage;
use crate::value::{Query, Rows};

/// One connection to one database. Writers of a project are served one after the other.
pub(crate) trait Backend: Send {
    /// Waits for the writer lock, and says whether somebody had it. It lasts for one transaction at least, and at most until it is given back.
    fn lock_writer(&mut self) -> Result<bool, StoreError>;

    /// Takes the writer lock if nobody has it, and says whether it did. Where the lock is part of transactions, the next ones wait
    /// only briefly, and then fail with `Stalled`.
    fn try_lock_writer(&mut self) -> Result<bool, StoreError>;

    /// Lets others write.
    fn unlock_writer(&mut self);

    /// Whether the writer lock lasts from one transaction to the next.
    fn keeps_writer_lock(&self) -> bool;

    /// Whether the last transaction has waited for others, where [`Backend::try_lock_writer`] cannot tell.
    fn has_waited(&self) -> bool;

    /// Starts a write transaction, waiting for the writer lock if it was not taken before, and answers the queries in it.
    fn begin(&mut self, queries: &[Query<'_>]) -> Result<Vec<Rows>, StoreError>;

    /// Answers more queries in the open transaction.
    fn query(&mut self, queries: &[Query<'_>]) -> Result<Vec<Rows>, StoreError>;

    /// Lets the open transaction last for as long as it takes, though nothing is asked of it meanwhile.
    fn stay(&mut self) -> Result<(), StoreError>;

    /// Carries out statements of the open transaction, for one that is too large to be kept in memory.
    fn write(&mut self, writes: &[Query<'_>]) -> Result<(), StoreError>;

    /// Carries out the statements of the open transaction and commits it. Unless the error is
    /// `Unknown`, a failure means that nothing has happened.
    fn commit(&mut self, writes: &[Query<'_>]) -> Result<(), StoreError>;

    /// Ends the transaction, if one is open, as if it had not been.
    fn roll_back(&mut self);

    /// Answers queries from one moment, without waiting for anybody.
    fn read(&mut self, queries: &[Query<'_>]) -> Result<Vec<Rows>, StoreError>;

    /// Whether each call of [`Backend::query`] is a message to a server, so that a statement that reads more at once is worth its price.
    fn is_remote(&self) -> bool;

    /// Whether those who are granted something are woken by the commit itself.
    fn notifies(&self) -> bool;

    /// Tells the followers of the event log.
    fn ring(&mut self, project: i64) -> Result<(), StoreError>;

    /// Does what can wait until nobody is waiting.
    fn tidy(&mut self, quiet: bool) -> Result<(), StoreError>;

    /// Lets the database count what is in its tables of tasks, for better plans, if it needs to be told.
    fn analyze(&mut self) -> Result<(), StoreError>;

    /// Asks the database to check its own structure. Returns what it complains about.
    fn check_integrity(&mut self) -> Result<Vec<String>, StoreError>;

    /// How much of what all its clients share the server has left, if there is a server.
    fn server_usage(&mut self) -> Result<Option<ServerUsage>, StoreError>;

    /// Removes all rows of the project and starts its counters anew.
    fn clear(&mut self, project: i64, lease: i64, boot: &str) -> Result<(), StoreError>;

    /// How large the store is. Cheap to find out.
    fn size(&mut self) -> Result<Size, StoreError>;
}
