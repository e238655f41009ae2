//! How queues, items and takers stand in columns, which of them a key names, and what a batch has changed of them.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::ids::{DedupeKey, HolderId, ItemId};
use banksman_core::queue::{Config, DUE_PER_TAKE, Data, Item, Part, Queue, Queues, State, Taken, Taker};
use banksman_core::{Epoch, Lease, Name, Seq, Span, Ticket, Wall};

use crate::error::StoreError;
use crate::key::Key;
use crate::reader::View;
use crate::rows::{json, list, parsed, push_stamp};
use crate::sql::Statement;
use crate::value::{Query, Row, Value};

/// How many items of a queue stand how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueCounts {
    /// Those that can be taken at once.
    pub ready: u64,
    /// Those that wait for a time.
    pub resting: u64,
    /// Those that are worked on.
    pub processing: u64,
    /// Those that are dead.
    pub dead: u64,
}

/// The items that workers are there for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkItems {
    /// How many wait to be taken, now or at a time.
    pub waiting: u64,
    /// How many are worked on.
    pub processing: u64,
    /// Those that are dead, by the queue in which they are: that of the worker, or its dead letters.
    pub dead: BTreeMap<Name, DeadItems>,
}

/// The dead items of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadItems {
    /// How many there are.
    pub count: u64,
    /// The first of them.
    pub first: ItemId,
}

impl WorkItems {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == WorkItems::default()
    }

    /// How many are dead.
    pub fn deaths(&self) -> u64 {
        self.dead.values().map(|dead| dead.count).sum()
    }

    pub(crate) fn put(&mut self, mut row: Row) -> Result<(), StoreError> {
        let (queue, word) = (row.name()?, row.text()?);
        let (number, first) = (u64::try_from(row.int()?).map_err(StoreError::corrupt)?, ItemId(Seq(row.int()?)));
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

impl Row {
    pub(crate) fn queue(&mut self) -> Result<Queue, StoreError> {
        let count = |number: i64| u32::try_from(number).map_err(StoreError::corrupt);
        Ok(Queue {
            name: self.name()?,
            config: Config {
                visibility_timeout: Span::from_ms(self.int()?),
                max_attempts: count(self.int()?)?,
                dead_letter: self.maybe_text()?.map(|name| parsed(&name, Name::new)).transpose()?,
                max_length: count(self.int()?)?,
            },
            paused: self.int()? != 0,
            length: count(self.int()?)?,
        })
    }

    pub(crate) fn item(&mut self) -> Result<Item, StoreError> {
        let missing = |what: &'static str| move || StoreError::corrupt(format_args!("an item without {what}"));
        let (id, queue) = (ItemId(Seq(self.int()?)), self.name()?);
        let data: Data = self.json()?.ok_or_else(missing("content"))?;
        let priority = self.int()?.try_into().map_err(StoreError::corrupt)?;
        let created = self.stamp()?;
        let dedupe = self.maybe_text()?.map(|key| parsed(&key, DedupeKey::new)).transpose()?;
        let attempts = self.int()?.try_into().map_err(StoreError::corrupt)?;
        let fence = Epoch(self.int()?);
        let (word, due) = (self.text()?, self.maybe_int()?.map(Lease));
        let holder = self.maybe_text()?.map(|holder| parsed(&holder, HolderId::new)).transpose()?;
        let since = (self.maybe_int()?, self.maybe_int()?);
        let (reason, died) = (self.maybe_text()?, self.maybe_int()?);
        let state = match word.as_str() {
            "pending" => State::Pending { not_before: due },
            "failed" => State::Failed { due: due.ok_or_else(missing("the time of its next attempt"))? },
            "processing" => {
                let (lease, wall) = since;
                let since = lease.zip(wall).map(|(lease, wall)| banksman_core::Stamp { lease: Lease(lease), wall: Wall(wall) });
                State::Processing(Taken {
                    holder: holder.ok_or_else(missing("a holder"))?,
                    since: since.ok_or_else(missing("the time of its take"))?,
                    epoch: fence,
                    until: due.ok_or_else(missing("the end of its time"))?,
                })
            }
            "dead" => State::Dead { reason: reason.unwrap_or_default().into(), at: Wall(died.unwrap_or_default()) },
            other => return Err(StoreError::corrupt(format_args!("item {id} is {other:?}"))),
        };
        let (history, origin) = (self.json()?.unwrap_or_default(), self.json()?);
        let depth = self.maybe_int()?.unwrap_or_default().try_into().map_err(StoreError::corrupt)?;
        Ok(Item { id, queue, data, priority, created, dedupe, attempts, fence, state, history, origin, depth })
    }

    pub(crate) fn taker(&mut self) -> Result<Taker, StoreError> {
        Ok(Taker {
            ticket: Ticket(self.int()?),
            queue: self.name()?,
            holder: parsed(&self.text()?, HolderId::new)?,
            standing: self.json()?.ok_or_else(|| StoreError::corrupt("a taker without a process"))?,
            since: self.stamp()?,
            seen: Lease(self.int()?),
        })
    }
}

/// The keys of a batch. Takes of one queue share one look at its head: each may take an item, so that as many must be there.
pub(crate) fn gathered(all: impl Iterator<Item = Key>) -> BTreeSet<Key> {
    let mut heads: BTreeMap<Name, [u32; 3]> = BTreeMap::new();
    let mut keys: BTreeSet<Key> = all
        .filter_map(|key| match key {
            Key::Head { queue, takes, removed, ended } => {
                let head = heads.entry(queue).or_default();
                head.iter_mut().zip([takes, removed, ended]).for_each(|(sum, more)| *sum = sum.saturating_add(more));
                None
            }
            key => Some(key),
        })
        .collect();
    // Only a take reads the head; what others do to it matters only then.
    let read = heads.into_iter().filter(|(_, [takes, ..])| *takes > 0);
    keys.extend(read.map(|(queue, [takes, removed, ended])| Key::Head { queue, takes, removed, ended }));
    keys
}

/// The queries that load the keys of queues.
pub(crate) fn plan<'a>(project: i64, key: &'a Key, queries: &mut Vec<Query<'a>>) {
    let mut add = |statement, params: Vec<Value<'a>>| {
        queries.push(Query::new(statement, [vec![project.into()], params].concat()));
    };
    match key {
        Key::Queues => add(Statement::AllQueues, vec![]),
        Key::NamedQueue(name) => add(Statement::QueueRow, vec![name.as_str().into()]),
        Key::Item(id) => add(Statement::Item, vec![id.0.0.into()]),
        Key::Dedupe(queue, key) => add(Statement::ItemByKey, vec![queue.as_str().into(), key.as_str().into()]),
        Key::Head { queue, takes, removed, ended } => {
            // One more tells whether there is something left for the next in line.
            let [takes, removed, ended] = [takes, removed, ended].map(|number| i64::from(*number));
            add(Statement::ReadyItems, vec![queue.as_str().into(), (takes + removed + 1).into()]);
            add(Statement::DueItems, vec![queue.as_str().into(), (takes * DUE_PER_TAKE as i64 + ended + 1).into()]);
        }
        Key::Part { queue, part, limit } => add(of_part(*part), vec![queue.as_str().into(), i64::from(*limit).into()]),
        Key::FirstTaker(queue) => add(Statement::FirstTaker, vec![queue.as_str().into()]),
        Key::Takers(queue) => add(Statement::Takers, vec![queue.as_str().into()]),
        Key::AllTakers => add(Statement::AllTakers, vec![]),
        _ => {}
    }
}

fn of_part(part: Part) -> Statement {
    match part {
        Part::Ready => Statement::ReadyItems,
        Part::Resting => Statement::RestingItems,
        Part::Processing => Statement::ProcessingItems,
        Part::Dead => Statement::DeadItems,
        Part::Moved => Statement::MovedItems,
    }
}

/// The statements that turn the queues of `before` into those of `after`.
pub(crate) fn between<'a>(project: i64, before: &'a Queues, after: &'a Queues, queries: &mut Vec<Query<'a>>) {
    for (name, queue) in &after.queues {
        match before.queues.get(name) {
            Some(was) if was == queue => {}
            // Nearly always it is only longer or shorter than it was.
            Some(was) if (&was.config, was.paused) == (&queue.config, queue.paused) => {
                let params: [Value<'a>; 3] = [project.into(), name.as_str().into(), i64::from(queue.length).into()];
                queries.push(Query::new(Statement::UpdateLength, params));
            }
            _ => queries.push(upsert_queue(project, queue)),
        }
    }
    for id in before.items.keys().filter(|id| !after.items.contains_key(id)) {
        queries.push(Query::new(Statement::DeleteItem, [project.into(), id.0.0.into()]));
    }
    for (id, item) in &after.items {
        match before.items.get(id) {
            Some(was) if was == item => {}
            Some(_) => queries.push(update_item(project, item)),
            None => queries.push(insert_item(project, item)),
        }
    }
    for taker in before.takers.values().filter(|taker| !after.takers.contains_key(&taker.ticket)) {
        let params: [Value<'a>; 3] = [project.into(), taker.queue.as_str().into(), taker.ticket.0.into()];
        queries.push(Query::new(Statement::DeleteTaker, params));
    }
    for (ticket, taker) in &after.takers {
        if before.takers.get(ticket) != Some(taker) {
            queries.push(upsert_taker(project, taker));
        }
    }
}

fn upsert_queue(project: i64, queue: &Queue) -> Query<'_> {
    let Config { visibility_timeout, max_attempts, dead_letter, max_length } = &queue.config;
    let params: [Value<'_>; 8] = [
        project.into(),
        queue.name.as_str().into(),
        visibility_timeout.as_ms().into(),
        i64::from(*max_attempts).into(),
        dead_letter.as_ref().map(Name::as_str).into(),
        i64::from(*max_length).into(),
        i64::from(queue.paused).into(),
        i64::from(queue.length).into(),
    ];
    Query::new(Statement::UpsertQueue, params)
}

/// What changes in the life of an item.
fn push_state<'a>(item: &'a Item, params: &mut Vec<Value<'a>>) {
    params.push(item.dedupe.as_ref().map(DedupeKey::as_str).into());
    params.push(i64::from(item.attempts).into());
    params.push(item.fence.0.into());
    params.push(item.status().into());
    params.push(item.is_ready().then_some(1).into());
    params.push(item.due().map(|due| due.0).into());
    let taken = match &item.state {
        State::Processing(taken) => Some(taken),
        State::Pending { .. } | State::Failed { .. } | State::Dead { .. } | State::Completed => None,
    };
    params.push(taken.map(|taken| taken.holder.as_str()).into());
    params.push(taken.map(|taken| taken.since.lease.0).into());
    params.push(taken.map(|taken| taken.since.wall.0).into());
    match &item.state {
        State::Dead { reason, at } => params.extend([(&**reason).into(), at.0.into()]),
        State::Pending { .. } | State::Failed { .. } | State::Processing(_) | State::Completed => {
            params.extend([Value::Null, Value::Null]);
        }
    }
    params.push(list(&item.history));
    params.push(item.origin.as_ref().map_or(Value::Null, json));
}

fn insert_item(project: i64, item: &Item) -> Query<'_> {
    let mut params = Vec::with_capacity(22);
    params.push(project.into());
    params.push(item.id.0.0.into());
    params.push(item.queue.as_str().into());
    params.push(item.data.value().to_string().into());
    params.push(i64::from(item.priority).into());
    params.push(item.rank().into());
    push_stamp(item.created, &mut params);
    push_state(item, &mut params);
    params.push((item.depth > 0).then_some(i64::from(item.depth)).into());
    Query::new(Statement::InsertItem, params)
}

fn update_item(project: i64, item: &Item) -> Query<'_> {
    let mut params = Vec::with_capacity(16);
    params.push(project.into());
    params.push(item.id.0.0.into());
    params.push(item.queue.as_str().into());
    push_state(item, &mut params);
    Query::new(Statement::UpdateItem, params)
}

fn upsert_taker(project: i64, taker: &Taker) -> Query<'_> {
    let mut params = Vec::with_capacity(8);
    params.push(project.into());
    params.push(taker.ticket.0.into());
    params.push(taker.queue.as_str().into());
    params.push(taker.holder.as_str().into());
    params.push(json(&taker.standing));
    push_stamp(taker.since, &mut params);
    params.push(taker.seen.0.into());
    Query::new(Statement::UpsertTaker, params)
}

/// The same items on another lease clock. Those who wait do so at the old store.
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
    /// How many items of each queue stand how at a moment: what time has done by then counts as done.
    pub fn queue_counts(&mut self, at: Lease) -> Result<BTreeMap<Name, QueueCounts>, StoreError> {
        let mut counts: BTreeMap<Name, QueueCounts> = BTreeMap::new();
        for mut row in self.rows(Query::new(Statement::QueueCounts, [self.project.into(), at.0.into()]))? {
            let (name, word) = (row.name()?, row.text()?);
            let number = u64::try_from(row.int()?).map_err(StoreError::corrupt)?;
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
