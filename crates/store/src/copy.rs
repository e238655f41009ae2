//! Copying a project, with its state and its log, from one store to another.

use banksman_core::backlog::Backlog;
use banksman_core::event::Actor;
use banksman_core::replay::Replay;
use banksman_core::resource::coordination::Coordination;
use banksman_core::resource::grant::{Grant, Waiters};
use banksman_core::resource::lock;
use banksman_core::task::State;
use banksman_core::{Lease, Seq};

use crate::changes;
use crate::compact::parse;
use crate::error::StoreError;
use crate::reader::{EventFilter, EventRow, Reader};
use crate::relocate::moved_to;
use crate::store::Store;
use crate::table;
use crate::tables::deliveries::Deliveries;
use crate::tables::messages::{MESSAGES_PAGE, MessageFilter, Messages};
use crate::tables::projects::Counters;
use crate::tables::{Tables, events, items, pipelines, projects};
use crate::value::Query;

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Copied {
    /// Locks, held or free.
    pub locks: usize,
    pub semaphores: usize,
    /// Holders of locks and slots.
    pub holders: usize,
    /// Tasks, with their sections, dependencies and runs.
    pub tasks: usize,
    /// Items of queues.
    pub items: usize,
    pub events: usize,
    pub messages: usize,
}

/// Copies the project of `from` into the new, empty project of `to`, in one transaction. Waiters are not copied: their
/// processes wait at the old store. Nothing is written if the old store contradicts itself. With `still_at`, the new
/// store is marked as retired: the project is still at that place.
pub(crate) fn copy(from: &mut Reader, to: &mut Store, still_at: Option<&str>) -> Result<Copied, StoreError> {
    let counters = vec![Query::new(projects::Statement::One, [to.project.into()])];
    loop {
        let answers = to.backend.begin(&counters)?;
        let copied = fill(from, to, answers, still_at);
        to.backend.roll_back();
        if let Some(copied) = copied? {
            return Ok(copied);
        }
    }
}

/// Returns `None` if events were compacted before they could be copied.
fn fill(
    from: &mut Reader,
    to: &mut Store,
    answers: Vec<crate::value::Rows>,
    still_at: Option<&str>,
) -> Result<Option<Copied>, StoreError> {
    let counters = Counters::read(answers.into_iter().next().unwrap_or_default())?;
    if counters.seq != 0 {
        return Err(StoreError::Exists { place: "the place to copy to".into() });
    }
    let baseline = from.view().baseline()?;
    let snapshot = from.view().everything()?;
    let (lease, _) = counters.clocks(&*to.machine);
    let before = Tables::default();
    let live = snapshot.backlog.runs.values().filter(|run| run.is_live()).count();
    if live > 0 {
        return Err(StoreError::InUse { runs: live });
    }
    if !snapshot.backlog.imports.is_empty() {
        return Err(StoreError::Importing { imports: snapshot.backlog.imports.len() });
    }
    let by = lease.0 - snapshot.lease.0;
    let (coordination, backlog) = (moved(snapshot.tables.coordination, by), moved_backlog(snapshot.tables.backlog, by));
    let queues = items::moved(snapshot.tables.queues, by);
    let automation = snapshot.tables.automation.kept();
    let after = Tables { coordination, backlog, queues, automation, ..Tables::default() };
    to.backend.write(&changes::between(to.project, &before, &after))?;

    to.backend.write(&baseline.writes(to.project))?;

    let (mut replay, mut at) = (baseline.replay()?, baseline.mark.through);
    let mut copied = 0;
    while at < snapshot.seq {
        let page = from.view().events(at, &EventFilter::default())?;
        if page.compacted.through > at {
            return Ok(None);
        }
        let rows = page.events.into_iter().take_while(|row| row.id <= snapshot.seq);
        let rows = rows.map(|row| Ok((parse(&row, &row.data.to_string())?, row))).collect::<Result<Vec<_>, StoreError>>()?;
        let project = to.project;
        let by = |row: &EventRow| row.by.as_ref().map(Actor::to_json).into();
        let writes = rows.iter().map(|(event, row)| events::insert(project, row.id, row.wall, event, by(row), row.depth));
        to.backend.write(&writes.collect::<Vec<_>>())?;
        copied += rows.len();
        rows.into_iter().for_each(|(event, row)| replay.apply(row.id, row.wall, event));
        if page.last == at {
            return Err(StoreError::corrupt(format_args!("the log ends at event {at}, but event {} has happened", snapshot.seq)));
        }
        at = page.last;
    }
    let messages = copy_messages(from, to, snapshot.seq)?;
    copy_deliveries(from, to, snapshot.seq)?;
    let tables = Replay::of(&after.coordination).with_backlog(&after.backlog).with_queues(&after.queues);
    let differences = replay.differences(&tables.with_workers(&after.automation.workers, &after.automation.routes));
    if let Some(first) = differences.first() {
        return Err(StoreError::corrupt(first));
    }
    let row = counters.moved(to.project, snapshot.seq, lease, &after, &*to.machine);
    to.backend.commit(&[row, moved_to(to.project, still_at)])?;
    let Coordination { locks, semaphores, .. } = &after.coordination;
    let held = locks.values().filter(|lock| matches!(lock.state, lock::State::Held(_))).count();
    let holders = held + semaphores.values().map(|semaphore| semaphore.holders.len()).sum::<usize>();
    let (tasks, items) = (after.backlog.tasks.len(), after.queues.items.len());
    Ok(Some(Copied { locks: locks.len(), semaphores: semaphores.len(), holders, tasks, items, events: copied, messages }))
}

/// Copies the messages up to this number.
fn copy_messages(from: &mut Reader, to: &mut Store, through: Seq) -> Result<usize, StoreError> {
    let (mut at, mut copied) = (Seq(0), 0);
    loop {
        let page = from.view().messages(at, &MessageFilter::default())?;
        let messages: Vec<_> = page.messages.iter().filter(|message| message.seq <= through).collect();
        let writes = messages.iter().map(|message| table::insert::<Messages>(to.project, &message.draft.id, message));
        to.backend.write(&writes.collect::<Vec<_>>())?;
        copied += messages.len();
        at = page.through;
        if !page.more || at >= through {
            return Ok(copied);
        }
    }
}

/// Copies the deliveries up to this number.
fn copy_deliveries(from: &mut Reader, to: &mut Store, through: Seq) -> Result<(), StoreError> {
    let mut at = Seq(0);
    loop {
        let page = from.view().deliveries(at, MESSAGES_PAGE as i64)?;
        let deliveries = page.iter().filter(|delivery| delivery.seq <= through);
        let writes = deliveries.map(|delivery| table::insert::<Deliveries>(to.project, &delivery.id, delivery));
        to.backend.write(&writes.collect::<Vec<_>>())?;
        match page.last() {
            Some(last) if last.seq < through => at = last.seq,
            _ => return Ok(()),
        }
    }
}

/// The same tasks on another lease clock. Runners are not copied, so the next runner takes over their outbox entries:
/// without live runs these are notifications to people.
fn moved_backlog(backlog: Backlog, by: i64) -> Backlog {
    let mut backlog = Backlog { runners: Default::default(), ..backlog };
    for entry in backlog.outbox.values_mut() {
        entry.executor = None;
        entry.due = Lease(entry.due.0 + by);
    }
    for task in backlog.tasks.values_mut() {
        task.changed.lease = Lease(task.changed.lease.0 + by);
        if let State::Backoff { until } | State::Awaiting { until: Some(until), .. } | State::Manual { until: Some(until), .. } =
            &mut task.state
        {
            until.0 += by;
        }
    }
    for run in backlog.runs.values_mut() {
        run.started.lease = Lease(run.started.lease.0 + by);
    }
    for entry in backlog.landings.values_mut() {
        entry.again = entry.again.map(|again| Lease(again.0 + by));
    }
    backlog.pipelines = pipelines::moved(backlog.pipelines, by);
    backlog
}

/// The same grants on another lease clock: their remaining time stays the same.
fn moved(mut coordination: Coordination, by: i64) -> Coordination {
    let shift = |grant: &mut Grant| {
        for stamp in [&mut grant.acquired, &mut grant.heartbeat] {
            stamp.lease = Lease(stamp.lease.0 + by);
        }
        if let Some(offer) = &mut grant.offer {
            offer.until = Lease(offer.until.0 + by);
        }
    };
    for lock in coordination.locks.values_mut() {
        lock.waiters = Waiters::default();
        if let lock::State::Held(grant) = &mut lock.state {
            shift(grant);
        }
    }
    for semaphore in coordination.semaphores.values_mut() {
        semaphore.waiters = Waiters::default();
        semaphore.holders.values_mut().for_each(shift);
    }
    coordination.claims.retain(|_, claim| claim.waits().is_none());
    coordination
}
