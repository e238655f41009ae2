//! The one row of a project: its counters, limits and identity; and the boots of the hosts that have used it.

use banksman_core::{Lease, Limits, Pause, Seq, Wall};

use crate::call::Tx;
use crate::columns::{Codec, Int, Json};
use crate::error::StoreError;
use crate::machine::{Machine, Reading};
use crate::schema::VERSION;
use crate::table::statements;
use crate::tables::Tables;
use crate::tables::project_counts::ProjectCounts;
use crate::value::{Query, Row, Rows, Value};

statements! {
    One => "SELECT p.seq, p.ticket, p.lease, p.lease_base, p.boot, s.version, /* clock */ NULL, p.moved_to, p.max_runs, p.max_roots, p.parks, p.pause, \
            p.live_runs, p.run_slots, p.task_counts \
            FROM projects p, store s WHERE p.project = $1".to_owned(),
    Insert => "INSERT INTO projects (project, id, seq, ticket, lease, lease_base, boot) VALUES ($1, $2, 0, 0, $3, 0, $4)".to_owned(),
    Update => "UPDATE projects SET seq = $2, ticket = $3, lease = $4, lease_base = $5, boot = $6, live_runs = $7, run_slots = $8, \
               task_counts = $9 WHERE project = $1".to_owned(),
    SetParks => "UPDATE projects SET parks = 1 WHERE project = $1".to_owned(),
    SetPause => "UPDATE projects SET pause = $2 WHERE project = $1".to_owned(),
    SetLimits => "UPDATE projects SET max_runs = $2, max_roots = $3 WHERE project = $1".to_owned(),
    Identity => "SELECT store_id, moved_to FROM projects WHERE project = $1".to_owned(),
    /// An id is set once and never changed.
    SetStoreId => "UPDATE projects SET store_id = $2 WHERE project = $1 AND store_id IS NULL".to_owned(),
    SetMovedTo => "UPDATE projects SET moved_to = $2 WHERE project = $1".to_owned(),
    Compacted => "SELECT compacted, compacted_wall FROM projects WHERE project = $1".to_owned(),
    SetCompacted => "UPDATE projects SET compacted = $2, compacted_wall = $3 WHERE project = $1".to_owned(),
    Boots => "SELECT boot, seq FROM boots WHERE project = $1 AND host = $2 ORDER BY boot".to_owned(),
    InsertBoot => "INSERT INTO boots (project, host, boot, seq) VALUES ($1, $2, $3, $4)".to_owned(),
    Notify => "SELECT pg_notify($1, $2)".to_owned(),
    /// Whether there is a follower of the event log: followers share a lock that this transaction then cannot get. A
    /// follower that comes while the transaction holds the lock waits for its end, and reads what it wrote.
    Followed => "SELECT CAST(CASE WHEN pg_try_advisory_xact_lock($1) THEN 0 ELSE 1 END AS BIGINT)".to_owned(),
}

/// The counters of the project at the start of a transaction.
pub(crate) struct Counters {
    pub(crate) seq: i64,
    pub(crate) ticket: i64,
    lease: i64,
    lease_base: i64,
    boot: String,
    /// The clock of the database server, if there is one.
    server_ms: Option<i64>,
    pub(crate) limits: Option<Limits>,
    /// Whether tasks may be parked.
    pub(crate) parks: bool,
    pub(crate) pause: Option<Pause>,
    pub(crate) counts: ProjectCounts,
}

impl Counters {
    /// Reads the row of the project. Checks that this program knows the schema and that the store is in use.
    pub(crate) fn read(rows: Rows) -> Result<Counters, StoreError> {
        match Counters::of_retired(rows)? {
            (counters, None) => Ok(counters),
            (_, Some(to)) => Err(StoreError::Moved { to }),
        }
    }

    /// The same for a store that may be retired, with the new place of its project.
    pub(crate) fn of_retired(mut rows: Rows) -> Result<(Counters, Option<String>), StoreError> {
        let mut row: Row = rows.pop().ok_or_else(|| StoreError::corrupt("the project has no row"))?;
        let (seq, ticket, lease, lease_base) = (row.int()?, row.int()?, row.int()?, row.int()?);
        let (boot, found, server_ms, moved_to) = (row.text()?, row.int()?, row.maybe_int()?, row.maybe_text()?);
        if found != VERSION {
            return Err(StoreError::Newer { found, known: VERSION });
        }
        let (runs, roots): (Option<u32>, Option<u32>) = (Int::read(&mut row)?, Int::read(&mut row)?);
        let limits = runs.zip(roots).map(|(runs, roots)| Limits { runs, roots });
        let (parks, pause, counts) = (Int::read(&mut row)?, Json::read(&mut row)?, ProjectCounts::read(&mut row)?);
        Ok((Counters { seq, ticket, lease, lease_base, boot, server_ms, limits, parks, pause, counts }, moved_to))
    }

    /// Both clocks, now. Lease time never goes back. A server's clock is used if there is one; otherwise lease time
    /// continues from its value at shutdown, so that the remaining time of every lease is kept.
    pub(crate) fn clocks(&self, machine: &dyn Machine) -> (Lease, Wall) {
        let reading = machine.read();
        let (lease, wall) = match self.server_ms.filter(|_| !machine.is_simulated()) {
            Some(server) => (server, server),
            None => (reading.monotonic_ms + self.base(&machine.boot(), self.lease, reading), reading.wall_ms),
        };
        (Lease(lease.max(self.lease)), Wall(wall))
    }

    /// The offset from the monotonic clock to lease time, which must be at least `lease`. It stays the same within one
    /// boot. A clock of the same boot that is behind the stored time was read under another offset, by a version that
    /// did not know of time namespaces: without a new base, lease time would stand still until the clock has caught up.
    fn base(&self, boot: &str, lease: i64, reading: Reading) -> i64 {
        let is_valid = self.boot == boot && reading.monotonic_ms + self.lease_base >= self.lease;
        if is_valid { self.lease_base } else { lease - reading.monotonic_ms }
    }

    /// The row after a transaction.
    pub(crate) fn update(&self, project: i64, tx: &Tx, before: &Tables, machine: &dyn Machine) -> Query<'static> {
        self.row(project, Seq(tx.seq.0 - 1), tx.ticket.0 - 1, tx.lease, self.counts.after(before, &tx.tables), machine)
    }

    /// The row of an empty project that receives these rows, and the events that led to them, from another store.
    pub(crate) fn moved(&self, project: i64, seq: Seq, lease: Lease, rows: &Tables, machine: &dyn Machine) -> Query<'static> {
        self.row(project, seq, self.ticket, lease, self.counts.after(&Tables::default(), rows), machine)
    }

    fn row(&self, project: i64, seq: Seq, ticket: i64, lease: Lease, counts: ProjectCounts, machine: &dyn Machine) -> Query<'static> {
        let boot = machine.boot();
        let base = self.base(&boot, lease.0, machine.read());
        let mut params: Vec<Value<'static>> =
            vec![project.into(), seq.0.into(), ticket.into(), lease.0.into(), base.into(), boot.into()];
        params.extend(counts.params());
        Query::new(Statement::Update, params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::ManualMachine;

    fn counters(boot: &str, lease: i64, lease_base: i64) -> Counters {
        Counters { seq: 0, ticket: 0, lease, lease_base, boot: boot.into(), server_ms: None, limits: None, parks: false, pause: None, counts: ProjectCounts::default() }
    }

    #[test]
    fn lease_time_continues_across_boots() {
        assert_eq!(counters("boot", 1_000, 500).clocks(&ManualMachine::at(600)).0, Lease(1_100));
        assert_eq!(counters("before", 1_000, 500).clocks(&ManualMachine::at(7)).0, Lease(1_000), "it stood still while the machine was off");
        assert_eq!(counters("before", 1_000, 500).base("boot", 1_000, ManualMachine::at(7).read()), 993);
    }

    #[test]
    fn lease_time_advances_after_a_write_with_a_clock_that_is_ahead() {
        let ahead = counters("boot", 864_000_000, 0);
        assert_eq!(ahead.clocks(&ManualMachine::at(5_000)).0, Lease(864_000_000), "it never goes back");
        let base = ahead.base("boot", 864_000_000, ManualMachine::at(5_000).read());
        let next = counters("boot", 864_000_000, base);
        assert_eq!(next.clocks(&ManualMachine::at(5_300)).0, Lease(864_000_300), "nor does it stand still");
    }
}
