//! A connection that only reads. A read collects all rows, ends its transaction, and then returns.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};

use banksman_core::event::{Actor, Source};
use banksman_core::replay::Replay;
use banksman_core::{Lease, Seq, Stamp, Wall};
use serde_json::Value as Json;

use crate::backend::Backend;
use crate::compact::{self, Mark};
use crate::error::StoreError;
use crate::key::Key;
use crate::load;
use crate::loaded;
use crate::machine::Machine;
use crate::store::Store;
use crate::table::Table;
use crate::tables::projects::Counters;
use crate::tables::{Tables, events, projects};
use crate::value::{Query, Rows};

/// Maximum number of events of one read.
const PAGE: i64 = 1_000;

/// A store that this process only reads.
pub struct Reader {
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) project: i64,
    pub(crate) machine: Box<dyn Machine>,
}

/// Resources that all clients of a database server share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerUsage {
    /// The number of connected clients.
    pub connections: u32,
    /// Its maximum.
    pub max_connections: u32,
    /// Fill level of the notification queue, in percent. When it is full, no transaction that notifies can commit.
    pub notification_queue: u32,
}

impl Reader {
    /// The number of the project in its database.
    pub fn project(&self) -> i64 {
        self.project
    }

    /// The read operations of the store.
    pub fn view(&mut self) -> View<'_> {
        View { backend: &mut *self.backend, project: self.project, machine: &*self.machine }
    }
}

impl Store {
    /// The read operations, over the connection that writes.
    pub fn view(&mut self) -> View<'_> {
        View { backend: &mut *self.backend, project: self.project, machine: &*self.machine }
    }
}

/// Operations that change nothing.
pub struct View<'a> {
    pub(crate) backend: &'a mut dyn Backend,
    pub(crate) project: i64,
    machine: &'a dyn Machine,
}

/// Loaded rows as of one moment.
#[derive(Debug)]
pub struct Snapshot {
    pub tables: Tables,
    /// The moment, on the lease clock.
    pub lease: Lease,
    /// The moment, on the wall clock.
    pub wall: Wall,
    /// The last event that the snapshot includes.
    pub seq: Seq,
}

impl Deref for Snapshot {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        &self.tables
    }
}

impl DerefMut for Snapshot {
    fn deref_mut(&mut self) -> &mut Tables {
        &mut self.tables
    }
}

impl Snapshot {
    /// The moment of the snapshot.
    pub fn at(&self) -> Stamp {
        Stamp { lease: self.lease, wall: self.wall }
    }
}

/// A stored event.
#[derive(Debug, Clone)]
pub struct EventRow {
    pub id: Seq,
    pub kind: String,
    pub wall: Wall,
    pub source: Source,
    pub data: Json,
    /// The person or run whose command caused the event; `None` if a runner acted by itself.
    pub by: Option<Actor>,
    /// The number of routes that led to the event.
    pub depth: u32,
}

/// One page of the event log.
#[derive(Debug)]
pub struct Page {
    pub events: Vec<EventRow>,
    /// The end of the page: every event up to this one was read.
    pub last: Seq,
    /// Whether there may be another page.
    pub more: bool,
    /// The compaction mark: earlier events are not in the log.
    pub compacted: Mark,
}

#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    /// Only this kind, or this category if it ends with a colon.
    pub kind: Option<String>,
    /// Only this component, or this `component:id`.
    pub source: Option<String>,
    /// Only from this moment on.
    pub since: Option<Wall>,
}

impl View<'_> {
    /// All grants and waiters, without the backlog.
    pub fn snapshot(&mut self) -> Result<Snapshot, StoreError> {
        self.at_once(load::plan_held(self.project))
    }

    pub fn everything(&mut self) -> Result<Snapshot, StoreError> {
        self.at_once(load::plan_all(self.project))
    }

    /// The rows that these keys name.
    pub fn load(&mut self, keys: &BTreeSet<Key>) -> Result<Snapshot, StoreError> {
        self.at_once(load::plan(self.project, keys))
    }

    fn at_once(&mut self, rows: Vec<Query<'_>>) -> Result<Snapshot, StoreError> {
        let mut queries = vec![Query::new(projects::Statement::One, [self.project.into()])];
        queries.extend(rows);
        let mut answers = self.backend.read(&queries)?;
        let rest = answers.split_off(1);
        let counters = Counters::read(answers.pop().unwrap_or_default())?;
        let (lease, wall) = counters.clocks(self.machine);
        let mut tables = loaded::decode(&queries[1..], rest, &counters.counts)?;
        tables.backlog.limits = counters.limits;
        tables.backlog.pause = counters.pause;
        Ok(Snapshot { tables, lease, wall, seq: Seq(counters.seq) })
    }

    /// The events of the page after `after` that pass the filter.
    pub fn events(&mut self, after: Seq, filter: &EventFilter) -> Result<Page, StoreError> {
        let since = filter.since.map_or(i64::MIN, |wall| wall.0);
        let events = Query::new(events::Statement::After, [self.project.into(), after.0.into(), PAGE.into(), since.into()]);
        let [compacted, counters] = [projects::Statement::Compacted, projects::Statement::One]
            .map(|statement| Query::new(statement, [self.project.into()]));
        let mut answers = self.backend.read(&[events, compacted, counters])?.into_iter();
        let rows = answers.next().unwrap_or_default().into_iter().map(events::read).collect::<Result<Vec<_>, _>>()?;
        let compacted = Mark::read(answers.next().unwrap_or_default())?;
        // After the last event of the last page there can only be messages.
        let newest = Seq(Counters::read(answers.next().unwrap_or_default())?.seq).max(after);
        let more = rows.len() as i64 == PAGE;
        let last = rows.last().filter(|_| more).map_or(newest, |row| row.id);
        Ok(Page { events: rows.into_iter().filter(|row| filter.passes(row)).collect(), last, more, compacted })
    }

    /// The number of the last event.
    pub fn last_event(&mut self) -> Result<Seq, StoreError> {
        Ok(self.newest()?.0)
    }

    /// The number of the last event, and the current time by the wall clock.
    pub(crate) fn newest(&mut self) -> Result<(Seq, Wall), StoreError> {
        let counters = Counters::read(self.rows(Query::new(projects::Statement::One, [self.project.into()]))?)?;
        Ok((Seq(counters.seq), counters.clocks(self.machine).1))
    }

    /// The last few events of one source among the last ten thousand events, newest first.
    pub fn recent(&mut self, component: &str, id: &str, limit: i64) -> Result<Vec<EventRow>, StoreError> {
        const LOOK_BACK: i64 = 10_000;
        let after = self.last_event()?.0 - LOOK_BACK;
        self.one(Query::new(
            events::Statement::Last,
            [self.project.into(), after.into(), component.into(), id.into(), limit.into()],
        ))
    }

    /// Replays the whole log and compares the result with the tables. Returns a description of each difference.
    pub fn compare_with_log(&mut self) -> Result<Vec<String>, StoreError> {
        loop {
            if let Some(differences) = self.compare_unless_compacted()? {
                return Ok(differences);
            }
        }
    }

    /// The differences; `None` if events were compacted before they could be read.
    fn compare_unless_compacted(&mut self) -> Result<Option<Vec<String>>, StoreError> {
        let baseline = self.baseline()?;
        let (mut replay, mut after) = (baseline.replay()?, baseline.mark.through);
        // The log grows meanwhile: read it first, then the tables, and then the log up to that moment.
        loop {
            let page = self.events(after, &EventFilter::default())?;
            if page.compacted.through > after {
                return Ok(None);
            }
            after = page.last;
            for row in page.events {
                replay.apply(row.id, row.wall, compact::parse(&row, &row.data.to_string())?);
            }
            if page.more {
                continue;
            }
            let snapshot = self.everything()?;
            if snapshot.seq == after {
                let tables = Replay::of(&snapshot.coordination).with_backlog(&snapshot.backlog).with_queues(&snapshot.queues);
                let tables = tables.with_workers(&snapshot.automation.workers, &snapshot.automation.routes);
                return Ok(Some(replay.differences(&tables)));
            }
        }
    }

    /// Usage of the resources that all clients of the database server share. `None` if there is no server.
    pub fn server_usage(&mut self) -> Result<Option<ServerUsage>, StoreError> {
        self.backend.server_usage()
    }

    /// Asks the database to check its own structure. Returns the problems that it reports.
    pub fn check_integrity(&mut self) -> Result<Vec<String>, StoreError> {
        self.backend.check_integrity()
    }

    fn one(&mut self, query: Query<'_>) -> Result<Vec<EventRow>, StoreError> {
        self.rows(query)?.into_iter().map(events::read).collect()
    }

    /// The rows of a table.
    pub(crate) fn read<T: Table>(&mut self, query: Query<'_>) -> Result<Vec<T::Row>, StoreError> {
        self.rows(query)?.iter_mut().map(T::read).collect()
    }

    pub(crate) fn rows(&mut self, query: Query<'_>) -> Result<Rows, StoreError> {
        Ok(self.backend.read(&[query])?.pop().unwrap_or_default())
    }
}

impl EventFilter {
    fn passes(&self, row: &EventRow) -> bool {
        let kind =
            self.kind.as_deref().is_none_or(|kind| row.kind == kind || (kind.ends_with(':') && row.kind.starts_with(kind)));
        let source = self.source.as_deref().is_none_or(|source| {
            let (component, id) = (&*row.source.component, row.source.id.as_deref());
            source == component || id.is_some_and(|id| source.split_once(':') == Some((component, id)))
        });
        kind && source
    }
}
