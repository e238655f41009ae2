//! The end of a batch: its writes, and the wakeups after the commit.

use banksman_core::event::Kind;
use banksman_core::resource::grant::Address;
use banksman_core::task::State;
use banksman_core::{Seq, TaskId};

use super::Store;
use crate::call::Tx;
use crate::changes;
use crate::error::StoreError;
use crate::machine::Machine;
use crate::tables::projects::{Counters, Statement};
use crate::tables::{Tables, events, fan_outs, tasks};
use crate::value::Query;

/// A decided batch that is not committed yet. Dropping it rolls it back.
pub struct Open<'s, R> {
    pub(super) store: &'s mut Store,
    pub(super) decided: Decided<R>,
}

/// The result of the decisions of a batch.
pub(super) struct Decided<R> {
    pub(super) replies: Vec<R>,
    pub(super) tx: Tx,
    pub(super) before: Tables,
    pub(super) counters: Counters,
    /// The row that records this boot, if it is new.
    pub(super) new_boot: Option<Query<'static>>,
    pub(super) is_followed: bool,
}

/// The result of a committed batch.
#[derive(Debug)]
pub struct Committed<R> {
    /// The answers, in the order of the calls.
    pub replies: Vec<R>,
    /// The addresses to wake, except those that the database notifies itself.
    pub wakes: Vec<Address>,
    /// The number of the last event.
    pub seq: Seq,
    /// The number of events and messages written.
    pub events: usize,
    /// Whether there may be a follower of the event log.
    pub is_followed: bool,
    /// Whether anything was written: a heartbeat changes rows without an event, and a mere read changes nothing.
    pub has_written: bool,
}

impl<R> Open<'_, R> {
    /// Writes and commits the batch.
    pub fn commit(mut self) -> Result<Committed<R>, StoreError> {
        let here = self.store.here.as_deref();
        let is_notified = |address: &Address| !here.is_some_and(|here| address.0.ends_with(here));
        let wakes = std::mem::take(&mut self.decided.tx.wakes);
        let notifies = self.store.backend.notifies() && !self.store.machine.is_simulated();
        let (notified, wakes) = if notifies { wakes.into_iter().partition(is_notified) } else { (Vec::new(), wakes) };
        let writes = self.decided.writes(self.store.project, &*self.store.machine, self.store.actor.as_deref(), &notified);
        let has_written = !writes.is_empty();
        if has_written {
            // On failure, dropping `self` forgets everything that is rolled back.
            self.store.backend.commit(&writes)?;
        }
        drop(writes);
        let Decided { replies, tx, new_boot, before, is_followed, .. } = &mut self.decided;
        *new_boot = None;
        let events = tx.events.len() + tx.tables.messages.len() - before.messages.len();
        Ok(Committed {
            replies: std::mem::take(replies),
            wakes,
            seq: Seq(tx.seq.0 - 1),
            events,
            is_followed: *is_followed,
            has_written,
        })
    }
}

impl<R> Decided<R> {
    /// The statements of the batch; none if nothing changed.
    fn writes<'a>(
        &'a self,
        project: i64,
        machine: &dyn Machine,
        actor: Option<&'a str>,
        notified: &'a [Address],
    ) -> Vec<Query<'a>> {
        let tx = &self.tx;
        let mut writes = changes::between(project, &self.before, &self.tx.tables);
        // A task that has since begun, or has ended, was unparked by the statement that writes its state.
        let is_pending = |task: &TaskId| tx.tables.backlog.tasks.get(task).is_some_and(|task| task.state == State::Pending);
        for (task, on) in tx.changed.parked.iter().filter(|(task, _)| is_pending(task)) {
            let task = &tx.tables.backlog.tasks[task];
            let weight = on.as_ref().filter(|on| on.kind == Kind::Semaphore).map(|on| i64::from(task.spec.weight_of(on)));
            let params = [project.into(), task.id.as_str().into(), on.as_ref().map(tasks::parked_on).into(), weight.into()];
            writes.push(Query::new(tasks::Statement::SetParked, params));
        }
        if !self.counters.parks && tx.changed.parked.values().any(Option::is_some) {
            writes.push(Query::new(Statement::SetParks, [project.into()]));
        }
        writes.extend(tx.changed.fan_out.iter().flat_map(|task| fan_outs::advance(project, task)));
        writes.extend(self.new_boot.clone());
        for (seq, event, depth) in &tx.events {
            writes.push(events::insert(project, *seq, tx.wall, event, actor.into(), *depth));
        }
        writes.extend(notified.iter().map(notify));
        // A ticket is never issued twice, even if its waiter leaves within the same batch.
        if !writes.is_empty() || tx.ticket.0 - 1 != self.counters.ticket {
            writes.push(self.counters.update(project, tx, &self.before, machine));
        }
        writes
    }
}

/// `CHANNEL/KEY@FOLDER` notifies the listeners of the channel that know the key.
fn notify(address: &Address) -> Query<'_> {
    let (channel, key) = address.0.split_once('/').unwrap_or((&address.0, ""));
    let key = key.split_once('@').map_or(key, |(key, _)| key);
    Query::new(Statement::Notify, [channel.into(), key.into()])
}

impl<R> Drop for Open<'_, R> {
    fn drop(&mut self) {
        self.store.backend.roll_back();
        if self.decided.new_boot.is_some() {
            self.store.earlier_boots = None;
        }
    }
}
