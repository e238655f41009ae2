//! SQLite: one file, many processes, one writer at a time.

mod backup;
mod open;
#[cfg(test)]
mod tests;
mod writer_lock;

use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, Statement, ToSql};

pub use backup::{Backup, backup};
pub use open::{create, memory, moved_to, open, open_reader, open_retired, remove};
pub use writer_lock::{Occupant, occupant, writer_lock_path};

use crate::backend::Backend;
use crate::compact::Size;
use crate::dialect;
use crate::error::StoreError;
use crate::reader::ServerUsage;
use crate::tables;
use crate::value::{Query, Row, Rows, Value};
use writer_lock::{Stay, WriterLock};

/// Pages of the write-ahead log after which a checkpoint pays off while no caller waits.
const CHECKPOINT_WHEN_QUIET: i32 = 1_000;

/// Pages of the write-ahead log after which a checkpoint runs even if callers wait.
const CHECKPOINT_ANYWAY: i32 = 8_000;

/// Size of the write-ahead log in bytes from which on the last process checkpoints it on close: every process that
/// opens the store alone first reads all of it.
const CHECKPOINT_WHEN_LEAVING: u64 = 256 * 1_024;

/// Minimum time between two recordings of the last event: a restored store has lost more than a moment.
const RECORD_EVERY: Duration = Duration::from_millis(10);

/// Prepared statements besides those of `Statement`: the begins and ends of transactions.
const TRANSACTION_STATEMENTS: usize = 8;

/// A connection to a SQLite file.
pub(crate) struct Sqlite {
    connection: Connection,
    writer_lock: Option<WriterLock>,
    log_pages: Arc<AtomicI32>,
    /// `None` for an in-memory database.
    path: Option<PathBuf>,
    /// The id of the store, if it has one.
    store_id: Option<String>,
    /// Whether a commit has failed: the state of this connection may be wrong, so it is opened again before the next
    /// use.
    doubtful: bool,
    /// The time of the last recording by this connection.
    recorded: Option<Instant>,
    /// The last event if it is not recorded yet.
    unrecorded: Option<i64>,
}

impl Sqlite {
    fn new(mut connection: Connection, writer_lock: Option<WriterLock>, path: Option<PathBuf>) -> Result<Sqlite, StoreError> {
        let log_pages = Arc::new(AtomicI32::new(0));
        let seen = Arc::clone(&log_pages);
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            seen.store(pages, Ordering::Relaxed);
            Ok(())
        }))?;
        // Without this promise, clearing the parameters of a cached SELECT makes SQLite parse and plan it again at
        // every use.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.set_prepared_statement_cache_capacity(tables::Statement::COUNT + TRANSACTION_STATEMENTS);
        let (store_id, doubtful, recorded, unrecorded) = (None, false, None, None);
        Ok(Sqlite { connection, writer_lock, log_pages, path, store_id, doubtful, recorded, unrecorded })
    }

    fn answer(&self, queries: &[Query<'_>]) -> Result<Vec<Rows>, StoreError> {
        let mut answers = Vec::with_capacity(queries.len());
        for run in queries.chunk_by(|a, b| a.statement == b.statement) {
            let mut statement = self.connection.prepare_cached(text(run[0].statement))?;
            for query in run {
                bind(&mut statement, query)?;
                answers.push(rows(&mut statement)?);
            }
        }
        Ok(answers)
    }

    fn run(&self, sql: &str) -> Result<(), rusqlite::Error> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.raw_query();
        while rows.next()?.is_some() {}
        Ok(())
    }

    /// Records the last event while this process still holds the writer lock. Skips most of many events in quick
    /// succession.
    fn record(&mut self, writes: &[Query<'_>]) {
        let row = writes.iter().rev().find(|query| query.statement == tables::projects::Statement::Update.erased());
        self.unrecorded = row.and_then(|row| row.params.get(1)?.as_int()).or(self.unrecorded);
        if self.recorded.is_none_or(|recorded| recorded.elapsed() >= RECORD_EVERY) {
            self.record_now();
        }
    }

    fn record_now(&mut self) {
        if let (Some(writer_lock), Some(store), Some(event)) = (&self.writer_lock, &self.store_id, self.unrecorded.take()) {
            writer_lock.record(store, event);
            self.recorded = Some(Instant::now());
        }
    }

    /// Records the last event before this connection closes. If another process is writing, that process records a
    /// later one.
    fn record_on_close(&mut self) {
        let (Some(event), Some(store)) = (self.unrecorded, &self.store_id) else { return };
        let Some(lock) = self.writer_lock.as_mut().filter(|lock| lock.recorded(store) < Some(event)) else { return };
        if lock.try_enter().unwrap_or(false) {
            self.record_now();
            self.unlock_writer();
        }
    }

    fn explain(&self, error: StoreError) -> StoreError {
        self.path.as_ref().map_or_else(|| error.clone(), |path| open::explain(path, error.clone()))
    }

    fn enter(&mut self) -> Result<(), StoreError> {
        self.writer_lock.as_mut().map_or(Ok(()), |writer_lock| writer_lock.enter(Stay::OneTransaction).map(drop))
    }

    fn end_transaction(&mut self) {
        self.writer_lock.iter_mut().for_each(WriterLock::end_transaction);
    }

    fn reopen_if_doubtful(&mut self) -> Result<(), StoreError> {
        if let (true, Some(path)) = (self.doubtful, self.path.clone()) {
            let connection = open::connect(&path)?;
            let mut fresh = Sqlite::new(connection, self.writer_lock.take(), Some(path))?;
            fresh.store_id = self.store_id.take();
            *self = fresh;
        }
        Ok(())
    }
}

impl Drop for Sqlite {
    /// SQLite itself detects whether this is the last connection, and only then checkpoints and removes the log.
    fn drop(&mut self) {
        self.record_on_close();
        let Some(path) = self.path.as_ref().filter(|_| !self.doubtful) else { return };
        let mut log = path.clone().into_os_string();
        log.push("-wal");
        if std::fs::metadata(log).is_ok_and(|log| log.len() > CHECKPOINT_WHEN_LEAVING) {
            // On failure the log keeps its length, which only makes the next start slower.
            self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).ok();
        }
    }
}

impl Backend for Sqlite {
    fn lock_writer(&mut self) -> Result<bool, StoreError> {
        self.writer_lock.as_mut().map_or(Ok(false), |writer_lock| writer_lock.enter(Stay::UntilGivenBack))
    }

    fn try_lock_writer(&mut self) -> Result<bool, StoreError> {
        self.writer_lock.as_mut().map_or(Ok(true), WriterLock::try_enter)
    }

    fn unlock_writer(&mut self) {
        self.writer_lock.iter_mut().for_each(WriterLock::leave);
    }

    fn keeps_writer_lock(&self) -> bool {
        true
    }

    fn has_waited(&self) -> bool {
        false
    }

    fn begin(&mut self, queries: &[Query<'_>]) -> Result<Vec<Rows>, StoreError> {
        self.enter()?;
        let answers = self.reopen_if_doubtful().and_then(|()| {
            self.run("BEGIN IMMEDIATE")?;
            self.answer(queries)
        });
        answers.map_err(|error| {
            self.roll_back();
            self.explain(error)
        })
    }

    fn query(&mut self, queries: &[Query<'_>]) -> Result<Vec<Rows>, StoreError> {
        self.answer(queries)
    }

    fn stay(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn write(&mut self, queries: &[Query<'_>]) -> Result<(), StoreError> {
        for run in queries.chunk_by(|a, b| a.statement == b.statement) {
            let mut statement = self.connection.prepare_cached(text(run[0].statement))?;
            for query in run {
                bind(&mut statement, query)?;
                statement.raw_execute()?;
            }
        }
        Ok(())
    }

    /// Nearly every failure of COMMIT leaves it open whether the change was saved.
    fn commit(&mut self, writes: &[Query<'_>]) -> Result<(), StoreError> {
        let result = self.write(writes).and_then(|()| {
            self.run("COMMIT").map_err(|error| {
                self.doubtful = true;
                match error.sqlite_error_code() {
                    // The last frame of a transaction makes it valid, and the disk had no room for it.
                    Some(ErrorCode::DiskFull) => StoreError::from(error),
                    _ => StoreError::Unknown { source: Arc::new(error) },
                }
            })
        });
        if result.is_ok() {
            self.record(writes);
        }
        self.roll_back();
        result
    }

    fn roll_back(&mut self) {
        if !self.connection.is_autocommit() && self.run("ROLLBACK").is_err() {
            self.doubtful = true;
        }
        self.end_transaction();
    }

    fn read(&mut self, queries: &[Query<'_>]) -> Result<Vec<Rows>, StoreError> {
        let answers = self.run("BEGIN").map_err(StoreError::from).and_then(|()| self.answer(queries));
        let ended = if self.connection.is_autocommit() { Ok(()) } else { self.run("COMMIT") };
        answers.and_then(|answers| Ok(ended.map(|()| answers)?)).map_err(|error| self.explain(error))
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn notifies(&self) -> bool {
        false
    }

    fn ring(&mut self, _project: i64) -> Result<(), StoreError> {
        Ok(())
    }

    /// Checkpoints the write-ahead log when that pays off. Takes the writer lock, so that no writer keeps the log from
    /// starting over.
    fn tidy(&mut self, quiet: bool) -> Result<(), StoreError> {
        let limit = if quiet { CHECKPOINT_WHEN_QUIET } else { CHECKPOINT_ANYWAY };
        if self.log_pages.load(Ordering::Relaxed) < limit {
            return Ok(());
        }
        self.enter()?;
        let result = self.run("PRAGMA wal_checkpoint(PASSIVE)");
        self.log_pages.store(0, Ordering::Relaxed);
        self.end_transaction();
        Ok(result?)
    }

    /// The statements are written for the plans that SQLite makes without statistics.
    fn analyze(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn check_integrity(&mut self) -> Result<Vec<String>, StoreError> {
        let mut statement = self.connection.prepare("PRAGMA integrity_check")?;
        let lines = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
        Ok(lines.into_iter().filter(|line| line != "ok").collect())
    }

    fn server_usage(&mut self) -> Result<Option<ServerUsage>, StoreError> {
        Ok(None)
    }

    fn clear(&mut self, project: i64, lease: i64, boot: &str) -> Result<(), StoreError> {
        open::clear(&mut self.connection, project, lease, boot)
    }

    fn size(&mut self) -> Result<Size, StoreError> {
        let number = |pragma| self.connection.pragma_query_value(None, pragma, |row| row.get::<_, u32>(0)).map(u64::from);
        let page = number("page_size")?;
        Ok(Size { bytes: number("page_count")? * page, free: Some(number("freelist_count")? * page) })
    }
}

fn text(statement: tables::Statement) -> &'static str {
    static TEXTS: [OnceLock<String>; tables::Statement::COUNT] = [const { OnceLock::new() }; tables::Statement::COUNT];
    TEXTS[statement.index()].get_or_init(|| dialect::sqlite(statement.text()))
}

fn bind(statement: &mut Statement<'_>, query: &Query<'_>) -> Result<(), StoreError> {
    for (index, param) in query.params.iter().enumerate() {
        statement.raw_bind_parameter(index + 1, param)?;
    }
    Ok(())
}

fn rows(statement: &mut Statement<'_>) -> Result<Rows, StoreError> {
    let columns = statement.column_count();
    let mut cursor = statement.raw_query();
    let mut rows = Vec::new();
    while let Some(row) = cursor.next()? {
        let values = (0..columns).map(|index| value(row.get_ref(index)?)).collect::<Result<Vec<_>, StoreError>>()?;
        rows.push(Row::new(values));
    }
    Ok(rows)
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Int(number) => ValueRef::Integer(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

fn value(value: ValueRef<'_>) -> Result<Value<'static>, StoreError> {
    match value {
        ValueRef::Null => Ok(Value::Null),
        ValueRef::Integer(number) => Ok(Value::Int(number)),
        ValueRef::Text(bytes) => Ok(String::from_utf8(bytes.to_vec()).map_err(StoreError::corrupt)?.into()),
        ValueRef::Real(_) | ValueRef::Blob(_) => Err(StoreError::corrupt("a column holds neither a number nor a text")),
    }
}
