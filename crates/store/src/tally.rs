//! Counters of a connection's requests to its database, for tests and statistics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::Backend;
use crate::compact::Size;
use crate::error::StoreError;
use crate::reader::ServerUsage;
use crate::value::{Query, Rows};

/// The requests of connections so far.
#[derive(Debug, Default)]
pub struct Tally {
    begun: AtomicU64,
    committed: AtomicU64,
    reads: AtomicU64,
    round_trips: AtomicU64,
    rows: AtomicU64,
    statements: AtomicU64,
}

/// A [`Tally`] at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tallied {
    /// Transactions with the writer lock.
    pub writes: u64,
    /// Write transactions that changed nothing.
    pub empty: u64,
    /// Transactions that only read.
    pub reads: u64,
    /// Requests whose answers were awaited.
    pub round_trips: u64,
    /// Rows read.
    pub rows: u64,
    /// Write statements.
    pub statements: u64,
}

impl Tally {
    pub fn read(&self) -> Tallied {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (begun, committed) = (of(&self.begun), of(&self.committed));
        Tallied {
            writes: begun,
            empty: begun.saturating_sub(committed),
            reads: of(&self.reads),
            round_trips: of(&self.round_trips),
            rows: of(&self.rows),
            statements: of(&self.statements),
        }
    }

    fn add(count: &AtomicU64, number: usize) {
        count.fetch_add(number as u64, Ordering::Relaxed);
    }
}

/// A backend that counts the requests to another one.
pub(crate) struct Counted {
    pub(crate) inner: Box<dyn Backend>,
    pub(crate) tally: Arc<Tally>,
}

impl Counted {
    fn count(&self, rows: &[Rows]) {
        Tally::add(&self.tally.round_trips, 1);
        Tally::add(&self.tally.rows, rows.iter().map(Vec::len).sum());
    }
}

impl Backend for Counted {
    fn lock_writer(&mut self) -> Result<bool, StoreError> {
        self.inner.lock_writer()
    }

    fn try_lock_writer(&mut self) -> Result<bool, StoreError> {
        self.inner.try_lock_writer()
    }

    fn unlock_writer(&mut self) {
        self.inner.unlock_writer();
    }

    fn keeps_writer_lock(&self) -> bool {
        self.inner.keeps_writer_lock()
    }

    fn has_waited(&self) -> bool {
        self.inner.has_waited()
    }

    fn begin(&mut self, queries: &[Query<'_>]) -> Result<Vec<Rows>, StoreError> {
        let rows = self.inner.begin(queries)?;
        Tally::add(&self.tally.begun, 1);
        self.count(&rows);
        Ok(rows)
    }

    fn query(&mut self, queries: &[Query<'_>]) -> Result<Vec<Rows>, StoreError> {
        let rows = self.inner.query(queries)?;
        self.count(&rows);
        Ok(rows)
    }

    fn stay(&mut self) -> Result<(), StoreError> {
        self.inner.stay()
    }

    fn write(&mut self, writes: &[Query<'_>]) -> Result<(), StoreError> {
        Tally::add(&self.tally.statements, writes.len());
        self.inner.write(writes)
    }

    fn commit(&mut self, writes: &[Query<'_>]) -> Result<(), StoreError> {
        Tally::add(&self.tally.committed, 1);
        Tally::add(&self.tally.statements, writes.len());
        Tally::add(&self.tally.round_trips, 1);
        self.inner.commit(writes)
    }

    fn roll_back(&mut self) {
        self.inner.roll_back();
    }

    fn read(&mut self, queries: &[Query<'_>]) -> Result<Vec<Rows>, StoreError> {
        let rows = self.inner.read(queries)?;
        Tally::add(&self.tally.reads, 1);
        self.count(&rows);
        Ok(rows)
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn notifies(&self) -> bool {
        self.inner.notifies()
    }

    fn ring(&mut self, project: i64) -> Result<(), StoreError> {
        self.inner.ring(project)
    }

    fn tidy(&mut self, quiet: bool) -> Result<(), StoreError> {
        self.inner.tidy(quiet)
    }

    fn analyze(&mut self) -> Result<(), StoreError> {
        self.inner.analyze()
    }

    fn check_integrity(&mut self) -> Result<Vec<String>, StoreError> {
        self.inner.check_integrity()
    }

    fn server_usage(&mut self) -> Result<Option<ServerUsage>, StoreError> {
        self.inner.server_usage()
    }

    fn clear(&mut self, project: i64, lease: i64, boot: &str) -> Result<(), StoreError> {
        self.inner.clear(project, lease, boot)
    }

    fn size(&mut self) -> Result<Size, StoreError> {
        self.inner.size()
    }
}
