//! Plain SQLite, minimal but correct: one row per lock, one UPDATE per commit, two commits per pair.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

use crate::bench::Result;

/// SQLite's busy timeout.
const BUSY: Duration = Duration::from_secs(20);

/// A connection to a table of locks.
pub(crate) struct Plain {
    connection: Connection,
    holder: String,
}

impl Plain {
    /// Creates a database with this many free locks. Returns its path.
    pub(crate) fn create(dir: &Path, locks: usize) -> Result<PathBuf> {
        let path = dir.join("plain.db");
        let connection = Connection::open(&path)?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
        connection.execute_batch("CREATE TABLE locks (id INTEGER PRIMARY KEY, holder TEXT, epoch INTEGER NOT NULL)")?;
        for id in 0..locks {
            connection.execute("INSERT INTO locks (id, epoch) VALUES (?1, 0)", [i64::try_from(id)?])?;
        }
        Ok(path)
    }

    /// Opens the database with the same durability as ours.
    pub(crate) fn open(path: &Path) -> Result<Plain> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        Ok(Plain { connection, holder: format!("process-{}", std::process::id()) })
    }

    /// Acquires a lock that is free.
    pub(crate) fn acquire(&mut self, id: i64) -> Result<()> {
        self.commit("UPDATE locks SET holder = ?2, epoch = epoch + 1 WHERE id = ?1 AND holder IS NULL", id)
    }

    pub(crate) fn release(&mut self, id: i64) -> Result<()> {
        self.commit("UPDATE locks SET holder = NULL WHERE id = ?1 AND holder = ?2", id)
    }

    fn commit(&mut self, sql: &str, id: i64) -> Result<()> {
        // With several processes a deferred transaction would fail when it starts to write; BEGIN IMMEDIATE waits.
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let changed = transaction.prepare_cached(sql)?.execute((id, &self.holder))?;
        transaction.commit()?;
        if changed == 1 { Ok(()) } else { Err("a lock of plain SQLite was not in the expected state".into()) }
    }
}
