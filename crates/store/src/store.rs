//! A connection that writes: batches of calls, each batch one transaction.

mod commit;
mod follow;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use banksman_core::event::Actor;
use banksman_core::{Seq, Ticket};

use crate::backend::Backend;
use crate::call::{Call, Changed, Tx};
use crate::error::StoreError;
use crate::key::Key;
use crate::load;
use crate::loaded::Loaded;
use crate::machine::Machine;
use crate::postgres::FOLLOWER_SPACE;
use crate::tables::Tables;
use crate::tables::projects::{Counters, Statement};
use crate::tally::{Counted, Tally};
use crate::value::{Query, Rows, Value};

use commit::Decided;
pub use commit::{Committed, Open};

/// How often a batch is retried when the connection is lost before its commit.
const RECONNECTS: usize = 5;

/// A store that this process may change.
pub struct Store {
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) project: i64,
    pub(crate) machine: Box<dyn Machine>,
    /// The person or run whose commands this store carries out, as JSON; `None` for a runner.
    actor: Option<String>,
    depth: u32,
    /// Suffix of the addresses that this process wakes itself, where the database wakes the others.
    here: Option<String>,
    /// Boots of this host before the current one; `None` until this process has recorded its own boot.
    earlier_boots: Option<BTreeSet<Box<str>>>,
}

/// A transaction that has begun. Unless `keep` is called, it is rolled back, even when a decision panics.
struct Begun<'s> {
    store: Option<&'s mut Store>,
}

impl<'s> Begun<'s> {
    fn store(&mut self) -> &mut Store {
        self.store.as_mut().expect("it is there until it is taken out")
    }

    fn keep(mut self) -> &'s mut Store {
        self.store.take().expect("it is taken out once")
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let Some(store) = &mut self.store {
            store.backend.roll_back();
            // The row that records this boot may be rolled back too.
            store.earlier_boots = None;
        }
    }
}

impl Store {
    pub(crate) fn new(backend: Box<dyn Backend>, project: i64, machine: Box<dyn Machine>) -> Store {
        Store { backend, project, machine, actor: None, depth: 0, here: None, earlier_boots: None }
    }

    /// Counts the requests of this connection to its database from now on.
    pub fn counted(self, tally: &Arc<Tally>) -> Store {
        let Store { backend, .. } = self;
        Store { backend: Box::new(Counted { inner: backend, tally: Arc::clone(tally) }), ..self }
    }

    /// Stores every later event as caused by a command of this person or run.
    pub fn act_for(&mut self, actor: &Actor) {
        self.actor = Some(actor.to_json());
        self.depth = actor.depth;
    }

    /// Leaves it to the caller to wake addresses with this suffix.
    pub fn wakes_here(&mut self, end: &str) {
        self.here = Some(end.to_owned());
    }

    /// Waits for the writer lock. Returns whether another process held it. The lock lasts for at least one batch, and
    /// at most until [`Store::unlock_writer`]: where it is part of the transaction, the next batch is that transaction.
    /// A batch without the writer lock takes the lock itself.
    pub fn lock_writer(&mut self) -> Result<bool, StoreError> {
        self.backend.lock_writer()
    }

    /// Takes the writer lock if it is free. Returns whether it took it. Where the lock is part of the transaction,
    /// later batches wait only briefly for it, and then fail with `Stalled`.
    pub fn try_lock_writer(&mut self) -> Result<bool, StoreError> {
        self.backend.try_lock_writer()
    }

    pub fn unlock_writer(&mut self) {
        self.backend.unlock_writer();
    }

    /// Whether the writer lock lasts from one batch to the next. If not, each batch takes it again.
    pub fn keeps_writer_lock(&self) -> bool {
        self.backend.keeps_writer_lock()
    }

    /// Whether the last batch waited for another writer, for databases where [`Store::try_lock_writer`] cannot tell.
    pub fn has_waited(&self) -> bool {
        self.backend.has_waited()
    }

    /// Decides and commits a batch. If it fails before the commit, each call is retried by itself, so that one bad call
    /// does not fail the others.
    pub fn batch<C: Call>(&mut self, calls: &[C]) -> Vec<Result<Committed<C::Reply>, StoreError>> {
        match self.attempt(calls) {
            Ok(committed) => vec![Ok(committed)],
            Err(error @ (StoreError::Unknown { .. } | StoreError::Stalled | StoreError::Disconnected { .. })) => {
                calls.iter().map(|_| Err(error.clone())).collect()
            }
            Err(error) if calls.len() == 1 => vec![Err(error)],
            Err(_) => calls.iter().map(|call| self.attempt(std::slice::from_ref(call))).collect(),
        }
    }

    /// Decides and commits, and retries if the connection was lost before the commit: then nothing was changed.
    fn attempt<C: Call>(&mut self, calls: &[C]) -> Result<Committed<C::Reply>, StoreError> {
        for _ in 1..RECONNECTS {
            match self.attempt_once(calls) {
                Err(StoreError::Disconnected { .. }) => {}
                other => return other,
            }
        }
        self.attempt_once(calls)
    }

    /// Catches a panic in a decision: it is a bug, and must not make the store unusable for the rest of the process.
    fn attempt_once<C: Call>(&mut self, calls: &[C]) -> Result<Committed<C::Reply>, StoreError> {
        let committing = Cell::new(false);
        let attempt = || {
            let open = self.begin(calls)?;
            committing.set(true);
            open.commit()
        };
        // Unwinding rolls back the transaction, so that the store is as before.
        catch_unwind(AssertUnwindSafe(attempt)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
            let bug = StoreError::Bug { what: text };
            Err(if committing.get() { StoreError::Unknown { source: Arc::new(bug) } } else { bug })
        })
    }

    /// Loads and decides a batch, and leaves the commit to the caller.
    pub fn begin<C: Call>(&mut self, calls: &[C]) -> Result<Open<'_, C::Reply>, StoreError> {
        let keys = load::merge_keys(calls.iter().flat_map(Call::keys));
        let mut queries = vec![Query::new(Statement::One, [self.project.into()])];
        if self.earlier_boots.is_none() {
            queries.push(Query::new(Statement::Boots, [self.project.into(), self.machine.host().into()]));
        }
        if self.backend.is_remote() {
            queries.push(Query::new(Statement::Followed, [(FOLLOWER_SPACE | self.project).into()]));
        }
        let heads = queries.len();
        let (rare, keys): (BTreeSet<Key>, BTreeSet<Key>) = keys.into_iter().partition(load::is_rare);
        queries.extend(load::plan(self.project, &keys));
        // Rare keys are planned later, when the other rows show whether they have any rows; their shared needs are read
        // now.
        queries.extend(load::plan_needed(self.project, &keys, &rare));
        let mut answers = self.backend.begin(&queries)?;
        let mut begun = Begun { store: Some(self) };
        let mut loaded = Loaded::default();
        let rows = answers.split_off(heads);
        loaded.extend(&queries[heads..], rows)?;
        drop(queries);
        let decided = begun.store().decide(calls, keys, rare, answers, loaded)?;
        Ok(Open { store: begun.keep(), decided })
    }

    fn decide<C: Call>(
        &mut self,
        calls: &[C],
        keys: BTreeSet<Key>,
        rare: BTreeSet<Key>,
        heads: Vec<Rows>,
        mut rows: Loaded,
    ) -> Result<Decided<C::Reply>, StoreError> {
        let mut heads_rows = heads.into_iter();
        let counters = Counters::read(heads_rows.next().unwrap_or_default())?;
        let mut new_boot = None;
        if self.earlier_boots.is_none()
            && let Some(rows) = heads_rows.next()
        {
            let boots = rows.into_iter().map(|mut row| Ok((row.text()?, row.int()?))).collect::<Result<Vec<_>, StoreError>>()?;
            let (earlier, new) = self.earlier(&boots, counters.seq);
            new_boot = new;
            self.earlier_boots = Some(earlier);
        }
        // Followers on one machine are notified without the database.
        let is_followed = heads_rows.next().is_none_or(|rows| rows.into_iter().any(|mut row| matches!(row.int(), Ok(1))));
        let loaded = self.follow(calls, keys, rare, &counters, &mut rows)?;
        let mut before = rows.finish(&counters.counts)?;
        before.backlog.limits = counters.limits;
        before.backlog.pause = counters.pause.clone();
        let mut tx = self.tx(&counters, before.clone(), loaded);
        let replies = calls.iter().map(|call| call.decide(&mut tx)).collect();
        C::settle(&mut tx);
        #[cfg(debug_assertions)]
        tx.tables.coordination.check();
        Ok(Decided { replies, tx, before, counters, new_boot, is_followed })
    }

    fn tx(&self, counters: &Counters, tables: Tables, loaded: BTreeSet<Key>) -> Tx {
        let (lease, wall) = counters.clocks(&*self.machine);
        Tx {
            tables,
            seq: Seq(counters.seq + 1),
            ticket: Ticket(counters.ticket + 1),
            lease,
            wall,
            depth: self.depth,
            changed: Changed::default(),
            loaded,
            earlier_boots: self.earlier_boots.clone().unwrap_or_default(),
            one_kernel: self.machine.has_one_kernel(),
            events: Vec::new(),
            wakes: Vec::new(),
        }
    }

    /// The boots of this host that the store saw before the current one, and the row that records the current one if it
    /// is new.
    fn earlier(&self, boots: &[(String, i64)], seq: i64) -> (BTreeSet<Box<str>>, Option<Query<'static>>) {
        let own = self.machine.boot();
        let seen = boots.iter().find(|(boot, _)| *boot == own).map(|(_, seq)| *seq);
        let since = seen.unwrap_or(i64::MAX);
        let earlier = boots.iter().filter(|(boot, seq)| *boot != own && *seq <= since);
        let earlier = earlier.map(|(boot, _)| boot.as_str().into()).collect();
        let insert = seen.is_none().then(|| {
            let params: [Value<'static>; 4] = [self.project.into(), self.machine.host().into(), own.into(), seq.into()];
            Query::new(Statement::InsertBoot, params)
        });
        (earlier, insert)
    }

    /// Forgets everything that this connection has learned since it was opened. In a simulation one connection in
    /// memory serves all processes of a machine, and outlives its reboots.
    pub fn start_over(&mut self) {
        self.earlier_boots = None;
    }

    /// Empties the project, as if it had just been created on this machine. A simulation runs many histories on one
    /// connection, whose statements stay prepared.
    pub fn clear(&mut self, machine: Box<dyn Machine>) -> Result<(), StoreError> {
        let lease = machine.read().monotonic_ms;
        self.backend.clear(self.project, lease, &machine.boot())?;
        (self.machine, self.actor, self.depth, self.earlier_boots) = (machine, None, 0, None);
        Ok(())
    }

    /// Does maintenance. `quiet` says that no caller waits, so that more of it is worth its price.
    pub fn tidy(&mut self, quiet: bool) -> Result<(), StoreError> {
        self.backend.tidy(quiet)
    }

    /// Updates statistics. Call this after many rows were added at once.
    pub fn analyze(&mut self) -> Result<(), StoreError> {
        self.backend.analyze()
    }

    /// Notifies followers on other machines of new events. On one machine a change notifier does that.
    pub fn ring(&mut self) -> Result<(), StoreError> {
        self.backend.ring(self.project)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::ManualMachine;

    /// Writes an event with this name, or panics.
    struct Note(&'static str);

    impl Call for Note {
        type Reply = &'static str;

        fn keys(&self) -> Vec<crate::key::Key> {
            Vec::new()
        }

        fn decide(&self, tx: &mut Tx) -> &'static str {
            assert_ne!(self.0, "bad", "a decision is wrong");
            let event = banksman_core::Event::parse("note:made", self.0, None, "null").unwrap();
            tx.carry_out(vec![banksman_core::Effect::Emit(event)], false);
            self.0
        }
    }

    #[test]
    fn a_panicking_decision_is_rolled_back_without_failing_the_others() {
        let mut store = crate::sqlite::memory(Box::new(ManualMachine::at(1))).unwrap();
        let answers = store.batch(&[Note("one"), Note("bad"), Note("two")]);
        let words: Vec<_> = answers.into_iter().map(|answer| answer.map(|committed| committed.replies)).collect();
        assert!(
            matches!(&words[..], [Ok(one), Err(StoreError::Bug { what }), Ok(two)]
            if one[..] == ["one"] && two[..] == ["two"] && what.contains("a decision is wrong")),
            "{words:?}"
        );
        assert!(matches!(store.batch(&[Note("bad")])[..], [Err(StoreError::Bug { .. })]));
        assert_eq!(store.batch(&[Note("three")]).pop().unwrap().unwrap().seq, Seq(3), "the bad calls left no events");
    }
}
