//! Compaction: removing the oldest events from the log and keeping their effect.
//!
//! The log begins with a *baseline*: the state after all removed events, one row for each lock, semaphore, section,
//! task and decision. A step takes a few of the oldest events, replays them over the rows that they are about, and in
//! one transaction writes these rows, deletes the events and advances the mark. Every step is complete by itself: an
//! interrupted compaction leaves a consistent store, and the next one continues from there.
//!
//! Reading and replaying need no writer lock, because events never change and the baseline changes only together with
//! the mark; the transaction checks that the mark has not moved. So a step blocks other writers only while it writes.

use std::collections::BTreeSet;

use banksman_core::bus::derived::DerivedMessages;
use banksman_core::event::Event;
use banksman_core::replay::Replay;
use banksman_core::replay::stored::Entity;
use banksman_core::route::{Subscription, route};
use banksman_core::{Seq, Span, Wall};

use crate::error::StoreError;
use crate::key::Key;
use crate::reader::{EventFilter, EventRow, View};
use crate::store::Store;
use crate::tables::projects::Counters;
use crate::tables::{baseline, events, listeners, projects};
use crate::value::{Query, Rows, Value};

/// Bytes of event data that one step removes at most; it always removes at least one event. The number of events is
/// limited by a page.
const STEP_BYTES: usize = 1_024 * 1_024;

/// Page size for reading events that routes have yet to handle.
const HEARD_PAGE: u32 = 500;

/// Which events stay in the log. The newest event always stays, and so do those that workers, routes or blocked
/// pipelines have yet to handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The events of this last span.
    For(Span),
    /// This many of the last events.
    Last(i64),
}

/// How far the log is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// The last event that was removed; 0 if there is none.
    pub through: Seq,
    /// When it happened.
    pub wall: Wall,
}

/// The result of a compaction, or its progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compacted {
    /// The number of removed events.
    pub events: u64,
    pub mark: Mark,
    /// The event that a worker, a route or a blocked pipeline has yet to handle, if it alone keeps more events from
    /// being removed.
    pub unheard: Option<Seq>,
}

/// The size of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub bytes: u64,
    /// The part of it that is free for new rows, where that is known.
    pub free: Option<u64>,
}

/// The state that the log begins with.
pub(crate) struct Baseline {
    pub(crate) mark: Mark,
    pub(crate) rows: Vec<(Entity, String)>,
}

/// Where a compaction ends.
struct Limit {
    through: Seq,
    before: Wall,
    unheard: Option<Seq>,
}

/// The events of one step.
struct Part {
    from: Mark,
    to: Mark,
    events: Vec<(Seq, Wall, Event)>,
}

impl Store {
    /// Removes events from the log, and reports its progress after every step. It may be interrupted at any moment.
    pub fn compact(&mut self, keep: Keep, mut report: impl FnMut(&Compacted)) -> Result<Compacted, StoreError> {
        let limit = self.view().limit(keep)?;
        let mut done = Compacted { events: 0, mark: self.view().mark()?, unheard: limit.unheard };
        while let Some(part) = self.view().part(done.mark, &limit)? {
            let rows = self.view().rows_after(&part)?;
            if self.replace(&part, &rows)? {
                done = Compacted { events: done.events + part.events.len() as u64, mark: part.to, ..done };
                report(&done);
                self.backend.tidy(true)?;
            } else {
                // Another process compacts as well and was faster.
                done.mark = self.view().mark()?;
            }
        }
        Ok(done)
    }

    /// Replaces the events by their rows in one transaction. Returns `false`, and changes nothing, if the mark has
    /// moved.
    fn replace(&mut self, part: &Part, rows: &[(Entity, Option<String>)]) -> Result<bool, StoreError> {
        let project: Value<'_> = self.project.into();
        let mut writes: Vec<Query<'_>> =
            rows.iter().map(|(entity, data)| baseline::keep(self.project, entity, data.as_deref())).collect();
        writes.push(Query::new(events::Statement::DeleteThrough, [project.clone(), part.to.through.0.into()]));
        writes.push(part.to.query(self.project));
        self.backend.lock_writer()?;
        let done = self.replace_locked(part.from, &writes);
        self.backend.unlock_writer();
        done
    }

    fn replace_locked(&mut self, from: Mark, writes: &[Query<'_>]) -> Result<bool, StoreError> {
        let queries = [projects::Statement::One, projects::Statement::Compacted]
            .map(|statement| Query::new(statement, [self.project.into()]));
        let mut answers = self.backend.begin(&queries)?.into_iter();
        let counters = Counters::read(answers.next().unwrap_or_default());
        match counters.and_then(|_| Mark::read(answers.next().unwrap_or_default())) {
            Ok(mark) if mark == from => self.backend.commit(writes).map(|()| true),
            other => {
                self.backend.roll_back();
                other.map(|_| false)
            }
        }
    }
}

impl View<'_> {
    /// How far the log is compacted.
    pub fn mark(&mut self) -> Result<Mark, StoreError> {
        Mark::read(self.rows(Query::new(projects::Statement::Compacted, [self.project.into()]))?)
    }

    /// The number of events that a compaction would remove, and its mark then.
    pub fn compactable(&mut self, keep: Keep) -> Result<Compacted, StoreError> {
        let limit = self.limit(keep)?;
        let mut found = Compacted { events: 0, mark: self.mark()?, unheard: limit.unheard };
        while let Some(part) = self.part(found.mark, &limit)? {
            found = Compacted { events: found.events + part.events.len() as u64, mark: part.to, ..found };
        }
        Ok(found)
    }

    /// The number of events after this one.
    pub fn count_events(&mut self, after: Seq) -> Result<i64, StoreError> {
        let query = Query::new(events::Statement::CountAfter, [self.project.into(), after.0.into()]);
        self.rows(query)?.pop().map_or(Ok(0), |mut row| row.int())
    }

    /// The size of the store.
    pub fn size(&mut self) -> Result<Size, StoreError> {
        self.backend.size()
    }

    /// The baseline, read in one snapshot.
    pub(crate) fn baseline(&mut self) -> Result<Baseline, StoreError> {
        let queries = [projects::Statement::Compacted.erased(), baseline::Statement::All.erased()]
            .map(|statement| Query::new(statement, [self.project.into()]));
        let mut answers = self.backend.read(&queries)?.into_iter();
        let mark = Mark::read(answers.next().unwrap_or_default())?;
        let rows = answers.next().unwrap_or_default().into_iter().map(baseline::read).collect::<Result<_, _>>()?;
        Ok(Baseline { mark, rows })
    }

    /// The state at the beginning of the log from which messages are derived.
    pub fn baseline_messages(&mut self) -> Result<DerivedMessages, StoreError> {
        let replay = self.baseline()?.replay()?;
        Ok(DerivedMessages::new(replay.known_tasks(), replay.open_questions()))
    }

    fn limit(&mut self, keep: Keep) -> Result<Limit, StoreError> {
        let (last, now) = self.newest()?;
        let (through, before) = match keep {
            Keep::For(span) => (last.0 - 1, now.0.saturating_sub(span.as_ms())),
            Keep::Last(count) => {
                let query = Query::new(events::Statement::BeforeLast, [self.project.into(), count.max(1).into()]);
                (self.rows(query)?.pop().map_or(Ok(0), |mut row| row.int())?, i64::MAX)
            }
        };
        let unheard = self.unheard(Seq(through), Wall(before))?;
        let through = unheard.map_or(Seq(through), |unheard| Seq(unheard.0 - 1));
        Ok(Limit { through, before: Wall(before), unheard })
    }

    /// The first of these events that still has an unhandled consequence: a route, or a check of the guard that blocks
    /// a pipeline. A later subscription does not cover these events, so the answer stays true while they are removed.
    fn unheard(&mut self, through: Seq, before: Wall) -> Result<Option<Seq>, StoreError> {
        let query = Query::new(listeners::Statement::Unheard, [self.project.into(), through.0.into(), before.0.into()]);
        let listened = self.rows(query)?.pop().map_or(Ok(None), |mut row| row.maybe_int())?.map(Seq);
        let routed = self.unrouted(through, before)?;
        Ok(listened.into_iter().chain(routed).min())
    }

    fn unrouted(&mut self, through: Seq, before: Wall) -> Result<Option<Seq>, StoreError> {
        let automation = self.load(&BTreeSet::from([Key::Automation]))?.tables.automation;
        let subscriptions: Vec<Subscription> = automation.subscriptions().collect();
        let Some(first) = subscriptions.iter().map(|one| one.since).min() else { return Ok(None) };
        let mut after = automation.cursor.max(first);
        loop {
            let page = self.load(&BTreeSet::from([Key::Log { after, limit: HEARD_PAGE }]))?.tables.automation.heard;
            let old = page.iter().take_while(|heard| heard.seq <= through && heard.wall < before);
            if let Some(found) = old.clone().find(|heard| !route(heard, &subscriptions).is_empty()) {
                return Ok(Some(found.seq));
            }
            match page.last() {
                Some(last) if old.count() == page.len() => after = last.seq,
                _ => return Ok(None),
            }
        }
    }

    /// The next events to remove; `None` if the rest stays.
    fn part(&mut self, from: Mark, limit: &Limit) -> Result<Option<Part>, StoreError> {
        let page = self.events(from.through, &EventFilter::default())?;
        let mut part = Part { from, to: from, events: Vec::new() };
        let mut bytes = 0;
        for row in page.events.into_iter().take_while(|row| row.id <= limit.through && row.wall < limit.before) {
            let data = row.data.to_string();
            bytes += data.len();
            if bytes > STEP_BYTES && !part.events.is_empty() {
                break;
            }
            part.to = Mark { through: row.id, wall: row.wall };
            part.events.push((row.id, row.wall, parse(&row, &data)?));
        }
        Ok((!part.events.is_empty()).then_some(part))
    }

    /// The rows of all entities that the events are about, after these events. `None` for an entity that is gone.
    fn rows_after(&mut self, part: &Part) -> Result<Vec<(Entity, Option<String>)>, StoreError> {
        let entities: BTreeSet<Entity> = part.events.iter().filter_map(|(_, _, event)| Entity::of(event)).collect();
        let project: Value<'_> = self.project.into();
        let query = |entity: &Entity| [project.clone(), entity.component.to_string().into(), entity.id.to_string().into()];
        let queries: Vec<Query<'_>> = entities.iter().map(|entity| Query::new(baseline::Statement::One, query(entity))).collect();
        let mut replay = Replay::default();
        for row in self.backend.read(&queries)?.into_iter().flatten() {
            let (entity, data) = baseline::read(row)?;
            replay.restore(&entity, &data).map_err(StoreError::corrupt)?;
        }
        part.events.iter().for_each(|(seq, wall, event)| replay.apply(*seq, *wall, event.clone()));
        let after = |entity: Entity| replay.stored(&entity).map(|data| (entity, data)).map_err(StoreError::corrupt);
        entities.into_iter().map(after).collect()
    }
}

impl Baseline {
    /// The state after all events of the baseline.
    pub(crate) fn replay(&self) -> Result<Replay, StoreError> {
        let mut replay = Replay::default();
        self.rows.iter().try_for_each(|(entity, data)| replay.restore(entity, data).map_err(StoreError::corrupt))?;
        Ok(replay)
    }

    /// The statements that write this baseline into a project that has none.
    pub(crate) fn writes(&self, project: i64) -> Vec<Query<'_>> {
        let rows = self.rows.iter().map(|(entity, data)| baseline::keep(project, entity, Some(data)));
        rows.chain([self.mark.query(project)]).collect()
    }
}

impl Mark {
    pub(crate) fn read(mut rows: Rows) -> Result<Mark, StoreError> {
        let mut row = rows.pop().ok_or_else(|| StoreError::corrupt("the project has no row"))?;
        Ok(Mark { through: Seq(row.int()?), wall: Wall(row.int()?) })
    }

    fn query(self, project: i64) -> Query<'static> {
        Query::new(projects::Statement::SetCompacted, [project.into(), self.through.0.into(), self.wall.0.into()])
    }
}

/// The event of a row with this data.
pub(crate) fn parse(row: &EventRow, data: &str) -> Result<Event, StoreError> {
    Event::parse(&row.kind, &row.source.component, row.source.id.as_deref(), data).map_err(StoreError::corrupt)
}

#[cfg(test)]
mod tests;
