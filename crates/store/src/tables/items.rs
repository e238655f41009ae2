//! Items of queues. A completed item has no row, only events: the table holds only what is left to do.
//!
//! `rank` is the order of takes; it never changes. Every item is in one of three indexes: `ready` is 1 if the item can
//! be taken at once, else NULL; `due` is the time when its state changes by itself; the rest is dead.

use std::collections::BTreeMap;

use banksman_core::ids::ItemId;
use banksman_core::queue::{Item, Queues, State, Taken};
use banksman_core::{Epoch, Lease, Name, Stamp, Wall};

use crate::columns::{Codec, Columns, Int, Json, Moment, NeededJson, Text, Type};
use crate::error::StoreError;
use crate::reader::View;
use crate::table::table;
use crate::value::{Query, Row, Value};

/// The state of an item. The epoch of a take is the fence of its item.
pub(crate) struct OfState;

impl Columns for OfState {
    fn list(_: &str, out: &mut Vec<(String, Type)>) {
        let columns = [("state", Type::Text), ("due", Type::Int), ("holder", Type::Text), ("taken_lease", Type::Int)];
        let more = [("taken_wall", Type::Int), ("reason", Type::Text), ("died_wall", Type::Int)];
        out.extend(columns.into_iter().chain(more).map(|(name, of)| (name.to_owned(), of)));
    }
}

impl Codec<State> for OfState {
    fn bind<'a>(state: &'a State, params: &mut Vec<Value<'a>>) {
        params.push(state.word().into());
        params.push(state.due().map(|due| due.0).into());
        match state {
            State::Processing(taken) => {
                params.extend([taken.holder.as_str().into(), taken.since.lease.0.into(), taken.since.wall.0.into()]);
                params.extend([Value::Null, Value::Null]);
            }
            State::Dead { reason, at } => {
                params.extend([Value::Null, Value::Null, Value::Null, (&**reason).into(), at.0.into()]);
            }
            State::Pending { .. } | State::Failed { .. } | State::Completed => params.extend([const { Value::Null }; 5]),
        }
    }

    fn read(row: &mut Row) -> Result<State, StoreError> {
        let missing = |what: &'static str| move || StoreError::corrupt(format_args!("an item without {what}"));
        let (word, due): (_, Option<Lease>) = (row.text()?, Int::read(row)?);
        let (holder, lease, wall) = (Text::read(row)?, Int::read(row)?, Int::read(row)?);
        let (reason, died): (Option<Box<str>>, Option<Wall>) = (Text::read(row)?, Int::read(row)?);
        Ok(match word.as_str() {
            "pending" => State::Pending { not_before: due },
            "failed" => State::Failed { due: due.ok_or_else(missing("the time of its next attempt"))? },
            "processing" => State::Processing(Taken {
                holder: Option::ok_or_else(holder, missing("a holder"))?,
                since: Option::zip(lease, wall).map(|(lease, wall)| Stamp { lease, wall }).ok_or_else(missing("the time of its take"))?,
                epoch: Epoch(0),
                until: due.ok_or_else(missing("the end of its time"))?,
            }),
            "dead" => State::Dead { reason: reason.unwrap_or_default(), at: died.unwrap_or_default() },
            other => return Err(StoreError::corrupt(format_args!("an item is {other:?}"))),
        })
    }
}

/// A number of routes; NULL is zero.
pub(crate) struct Depth;

impl Columns for Depth {
    fn list(field: &str, out: &mut Vec<(String, Type)>) {
        Int::list(field, out);
    }
}

impl Codec<u32> for Depth {
    fn bind<'a>(depth: &'a u32, params: &mut Vec<Value<'a>>) {
        params.push((*depth > 0).then_some(i64::from(*depth)).into());
    }

    fn read(row: &mut Row) -> Result<u32, StoreError> {
        Ok(<Int as Codec<Option<u32>>>::read(row)?.unwrap_or_default())
    }
}

table! {
    Items "items" of &'a ItemId => Item, |_id, item|
    by ["id"] = [Int &item.id]; inserts
    fixed { id: Int, data: NeededJson, priority: Int, created: Moment, depth: Depth } + { "rank": Int = item.rank() }
    changing { queue: Text, dedupe: Text, attempts: Int, fence: Int, state: OfState, history: Json, origin: Json }
        + { "ready": Int = item.is_ready().then_some(1) }
    read Item = fenced(Item { id, queue, data, priority, created, dedupe, attempts, fence, state, history, origin, depth });
    statements {
        ById => "SELECT {items} FROM items WHERE project = $1 AND id = $2",
        All => "SELECT {items} FROM items WHERE project = $1 ORDER BY id",
        /// A dead item keeps its key, but does not block other items with it.
        ByKey => "SELECT {items} FROM items WHERE project = $1 AND queue = $2 AND dedupe = $3 AND dedupe IS NOT NULL \
            AND state <> 'dead' AND origin IS NULL ORDER BY id",
        Ready => "SELECT {items} FROM items WHERE project = $1 AND queue = $2 AND ready = 1 ORDER BY rank, id LIMIT $3",
        Due => "SELECT {items} FROM items WHERE project = $1 AND queue = $2 AND due IS NOT NULL ORDER BY due, id LIMIT $3",
        Backoff => "SELECT {items} FROM items WHERE project = $1 AND queue = $2 AND due IS NOT NULL \
            AND state IN ('pending', 'failed') ORDER BY due, id LIMIT $3",
        Processing => "SELECT {items} FROM items WHERE project = $1 AND queue = $2 AND due IS NOT NULL \
            AND state = 'processing' ORDER BY due, id LIMIT $3",
        Dead => "SELECT {items} FROM items WHERE project = $1 AND queue = $2 AND state = 'dead' ORDER BY id LIMIT $3",
        Moved => "SELECT {items} FROM items WHERE project = $1 AND queue = $2 AND ready = 1 AND origin IS NOT NULL \
            ORDER BY rank, id LIMIT $3",
        /// Each part is counted in its own index. Items whose time has passed by $2 are counted in their next state.
        Counts => "SELECT queue, 'ready', count(*) FROM items WHERE project = $1 AND ready = 1 GROUP BY queue \
            UNION ALL SELECT place, word, count(*) FROM (SELECT \
            CASE WHEN {dies} AND i.origin IS NULL THEN coalesce(q.dead_letter, i.queue) ELSE i.queue END AS place, \
            CASE WHEN i.due > $2 THEN i.state \
            WHEN {dies} AND (i.origin IS NOT NULL OR q.dead_letter IS NULL) THEN 'dead' ELSE 'ready' END AS word \
            FROM items i JOIN queues q ON q.project = i.project AND q.name = i.queue WHERE i.project = $1 AND i.due IS NOT NULL) AS timed \
            GROUP BY place, word \
            UNION ALL SELECT queue, 'dead', count(*) FROM items WHERE project = $1 AND state = 'dead' GROUP BY queue",
        /// The waiting, processing and dead items of workers by queue, with the first of each.
        OfWorkers => "SELECT i.queue, 'ready', count(*), min(i.id) FROM items i \
            WHERE i.project = $1 AND i.ready = 1 AND i.queue IN {worked} GROUP BY i.queue \
            UNION ALL SELECT i.queue, i.state, count(*), min(i.id) FROM items i \
            WHERE i.project = $1 AND i.due IS NOT NULL AND i.queue IN {worked} GROUP BY i.queue, i.state \
            UNION ALL SELECT i.queue, 'dead', count(*), min(i.id) FROM items i \
            WHERE i.project = $1 AND i.state = 'dead' AND i.queue IN {worked} GROUP BY i.queue \
            UNION ALL SELECT i.queue, 'dead', count(*), min(i.id) FROM items i \
            WHERE i.project = $1 AND i.state = 'dead' AND i.queue IN {graves} GROUP BY i.queue \
            UNION ALL SELECT i.queue, 'dead', count(*), min(i.id) FROM items i \
            WHERE i.project = $1 AND i.ready = 1 AND i.origin IS NOT NULL AND i.queue IN {graves} GROUP BY i.queue",
    }
}

fn fenced(mut item: Item) -> Item {
    if let State::Processing(taken) = &mut item.state {
        taken.epoch = item.fence;
    }
    item
}

/// The number of items of a queue by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct QueueCounts {
    /// Items that can be taken at once.
    pub ready: u64,
    /// Items that wait for a time.
    pub resting: u64,
    pub processing: u64,
    pub dead: u64,
}

/// The items of the queues that workers serve.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkItems {
    /// Items that can be taken, now or later.
    pub waiting: u64,
    pub processing: u64,
    /// Dead items by queue: the queue of the worker, or its dead-letter queue.
    pub dead: BTreeMap<Name, DeadItems>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct DeadItems {
    pub count: u64,
    pub first: ItemId,
}

impl WorkItems {
    pub fn is_empty(&self) -> bool {
        *self == WorkItems::default()
    }

    pub fn deaths(&self) -> u64 {
        self.dead.values().map(|dead| dead.count).sum()
    }

    pub(crate) fn put(&mut self, row: &mut Row) -> Result<(), StoreError> {
        let (queue, word) = (Text::read(row)?, row.text()?);
        let (number, first): (u64, ItemId) = (Int::read(row)?, Int::read(row)?);
        match word.as_str() {
            "dead" => {
                let dead = self.dead.entry(queue).or_insert(DeadItems { count: 0, first });
                *dead = DeadItems { count: dead.count + number, first: dead.first.min(first) };
            }
            "processing" => self.processing += number,
            _ => self.waiting += number,
        }
        Ok(())
    }
}

/// The same items on another lease clock. Takers are not copied: their processes wait at the old store.
pub(crate) fn moved(queues: Queues, by: i64) -> Queues {
    let mut queues = Queues { takers: BTreeMap::new(), ..queues };
    for item in queues.items.values_mut() {
        item.created.lease.0 += by;
        match &mut item.state {
            State::Pending { not_before: Some(due) } | State::Failed { due } => due.0 += by,
            State::Processing(taken) => {
                taken.since.lease.0 += by;
                taken.until.0 += by;
            }
            State::Pending { not_before: None } | State::Dead { .. } | State::Completed => {}
        }
    }
    queues
}

impl View<'_> {
    /// The number of items of each queue by state at this moment: items whose time has passed by then are counted in
    /// their next state.
    pub fn queue_counts(&mut self, at: Lease) -> Result<BTreeMap<Name, QueueCounts>, StoreError> {
        let mut counts: BTreeMap<Name, QueueCounts> = BTreeMap::new();
        for mut row in self.rows(Query::new(Statement::Counts, [self.project.into(), at.0.into()]))? {
            let (name, word) = (Text::read(&mut row)?, row.text()?);
            let number: u64 = Int::read(&mut row)?;
            let counts = counts.entry(name).or_default();
            let count = match word.as_str() {
                "ready" => &mut counts.ready,
                "processing" => &mut counts.processing,
                "dead" => &mut counts.dead,
                _ => &mut counts.resting,
            };
            *count += number;
        }
        Ok(counts)
    }
}
