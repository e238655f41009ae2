//! A connection that writes: batches of calls, each batch one transaction.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use banksman_core::event::Actor;
use banksman_core::resource::grant::Address;
use banksman_core::{Lease, Limits, Seq, Ticket, Wall};

use crate::backend::Backend;
use crate::call::{Call, Tx};
use crate::changes;
use crate::error::StoreError;
use crate::machine::{Machine, Reading};
use crate::queues;
use crate::schema::VERSION;
use crate::sql::Statement;
use crate::tables::{self, Tables};
use crate::value::{Query, Row, Rows, Value};

/// How often a batch is tried again when the connection is lost before its commit.
const RECONNECTS: usize = 5;

/// A store that this process may change.
pub struct Store {
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) project: i64,
    pub(crate) machine: Box<dyn Machine>,
    /// Whose commands this store carries out, as JSON; none for a runner.
    actor: Option<String>,
    depth: u32,
    /// Boots of this host before the current one, once this process has made its own boot known.
    earlier_boots: Option<BTreeSet<Box<str>>>,
}

/// A batch that is decided but not committed yet. Dropping it undoes it.
pub struct Open<'s, R> {
    store: &'s mut Store,
    decided: Decided<R>,
}

/// A transaction that has begun. Unless the store is taken out, it is rolled back, also when a decision panics.
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
            // The row that makes this boot known may be undone with it.
            store.earlier_boots = None;
        }
    }
}

/// A batch as it was decided.
struct Decided<R> {
    replies: Vec<R>,
    tx: Tx,
    before: Tables,
    after: Tables,
    counters: Counters,
    /// The row that makes this boot known, if it is new.
    new_boot: Option<Query<'static>>,
}

/// What a committed batch leaves to do.
#[derive(Debug)]
pub struct Committed<R> {
    /// The answers, in the order of the calls.
    pub replies: Vec<R>,
    /// Whom to wake, unless the database does that itself.
    pub wakes: Vec<Address>,
    /// The number of the last event.
    pub seq: Seq,
    /// How many events were written.
    pub events: usize,
}

/// The counters of the project, as a transaction finds them.
pub(crate) struct Counters {
    pub(crate) seq: i64,
    ticket: i64,
    lease: i64,
    lease_base: i64,
    boot: String,
    /// The database server's own clock, if it has one.
    server_ms: Option<i64>,
    pub(crate) limits: Option<Limits>,
}

impl Store {
    pub(crate) fn new(backend: Box<dyn Backend>, project: i64, machine: Box<dyn Machine>) -> Store {
        Store { backend, project, machine, actor: None, depth: 0, earlier_boots: None }
    }

    /// Notes with every event from now on that it was caused by a command of this person or run.
    pub fn act_for(&mut self, actor: &Actor) {
        self.actor = Some(actor.to_json());
        self.depth = actor.depth;
    }

    /// Waits until it is this process's turn to write, however long that takes. The turn lasts for any number of
    /// batches, until it is given back. A batch without the writer lock takes one for itself.
    pub fn lock_writer(&mut self) -> Result<(), StoreError> {
        self.backend.lock_writer()
    }

    /// Takes the writer lock if nobody has it, and says whether it did. Where the lock is part of transactions, the next batches
    /// wait only briefly for them, and then fail with `Stalled`.
    pub fn try_lock_writer(&mut self) -> Result<bool, StoreError> {
        self.backend.try_lock_writer()
    }

    /// Lets others write.
    pub fn unlock_writer(&mut self) {
        self.backend.unlock_writer();
    }

    /// Decides and commits a batch. If it fails before the commit, the calls are tried one by one, so that one
    /// bad call does not spoil the others.
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

    /// Decides and commits, again if the connection was lost before the commit: then nothing has happened.
    fn attempt<C: Call>(&mut self, calls: &[C]) -> Result<Committed<C::Reply>, StoreError> {
        for _ in 1..RECONNECTS {
            match self.attempt_once(calls) {
                Err(StoreError::Disconnected { .. }) => {}
                other => return other,
            }
        }
        self.attempt_once(calls)
    }

    /// A decision that panics is a mistake of this program, and must not make the store unusable for the rest of it.
    fn attempt_once<C: Call>(&mut self, calls: &[C]) -> Result<Committed<C::Reply>, StoreError> {
        let committing = Cell::new(false);
        let attempt = || {
            let open = self.begin(calls)?;
            committing.set(true);
            open.commit()
        };
        // Everything that was begun is rolled back while it unwinds, so that the store is as it was before.
        catch_unwind(AssertUnwindSafe(attempt)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
            let bug = StoreError::Bug { what: text };
            Err(if committing.get() { StoreError::Unknown { source: Arc::new(bug) } } else { bug })
        })
    }

    /// Loads and decides a batch, and leaves the commit to the caller.
    pub fn begin<C: Call>(&mut self, calls: &[C]) -> Result<Open<'_, C::Reply>, StoreError> {
        let keys = queues::gathered(calls.iter().flat_map(Call::keys));
        let mut queries = vec![Query::new(Statement::Project, [self.project.into()])];
        if self.earlier_boots.is_none() {
            queries.push(Query::new(Statement::Boots, [self.project.into(), self.machine.host().into()]));
        }
        let heads = queries.len();
        queries.extend(tables::plan(self.project, &keys));
        let answers = self.backend.begin(&queries)?;
        let mut begun = Begun { store: Some(self) };
        let decided = begun.store().decide(calls, &queries, heads, answers)?;
        Ok(Open { store: begun.keep(), decided })
    }

    fn decide<C: Call>(
        &mut self,
        calls: &[C],
        queries: &[Query<'_>],
        heads: usize,
        mut answers: Vec<Rows>,
    ) -> Result<Decided<C::Reply>, StoreError> {
        let rows = answers.split_off(heads);
        let mut heads_rows = answers.into_iter();
        let counters = Counters::read(heads_rows.next().unwrap_or_default())?;
        let mut new_boot = None;
        if let Some(rows) = heads_rows.next() {
            let boots = rows.into_iter().map(|mut row| Ok((row.text()?, row.int()?))).collect::<Result<Vec<_>, StoreError>>()?;
            let (earlier, new) = self.earlier(&boots, counters.seq);
            new_boot = new;
            self.earlier_boots = Some(earlier);
        }
        let mut tx = self.tx(&counters);
        let mut before = tables::decode(&queries[heads..], rows)?;
        before.backlog.limits = counters.limits;
        let mut after = before.clone();
        let replies = calls.iter().map(|call| call.decide(&mut after, &mut tx)).collect();
        #[cfg(debug_assertions)]
        after.coordination.check();
        Ok(Decided { replies, tx, before, after, counters, new_boot })
    }

    /// The moment of this transaction.
    fn tx(&self, counters: &Counters) -> Tx {
        let (lease, wall) = counters.clocks(&*self.machine);
        Tx {
            seq: Seq(counters.seq + 1),
            ticket: Ticket(counters.ticket + 1),
            lease,
            wall,
            depth: self.depth,
            earlier_boots: self.earlier_boots.clone().unwrap_or_default(),
            one_kernel: self.machine.has_one_kernel(),
            events: Vec::new(),
            wakes: Vec::new(),
        }
    }

    /// The boots of this host that the store saw before the current one, and the row that makes the current one
    /// known if it is new.
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

    /// From now on it knows as little as one that was just opened. In a simulation one connection in memory stands for
    /// all processes of a machine, and outlives its reboots.
    pub fn start_over(&mut self) {
        self.earlier_boots = None;
    }

    /// Does what can wait until nobody is waiting.
    pub fn tidy(&mut self, quiet: bool) -> Result<(), StoreError> {
        self.backend.tidy(quiet)
    }

    /// Tells followers on other machines that something has happened. On one machine a bell does that.
    pub fn ring(&mut self) -> Result<(), StoreError> {
        self.backend.ring(self.project)
    }
}

impl<R> Open<'_, R> {
    /// Writes it and makes it last.
    pub fn commit(mut self) -> Result<Committed<R>, StoreError> {
        let notifies = self.store.backend.notifies();
        let writes = self.decided.writes(self.store.project, &*self.store.machine, self.store.actor.as_deref(), notifies);
        if !writes.is_empty() {
            // If it fails, dropping `self` forgets what is undone with it.
            self.store.backend.commit(&writes)?;
        }
        drop(writes);
        let Decided { replies, tx, new_boot, .. } = &mut self.decided;
        *new_boot = None;
        let wakes = if notifies { Vec::new() } else { std::mem::take(&mut tx.wakes) };
        Ok(Committed { replies: std::mem::take(replies), wakes, seq: Seq(tx.seq.0 - 1), events: tx.events.len() })
    }
}

impl<R> Decided<R> {
    /// The statements of the batch; none if nothing has changed.
    fn writes<'a>(&'a self, project: i64, machine: &dyn Machine, actor: Option<&'a str>, notifies: bool) -> Vec<Query<'a>> {
        let tx = &self.tx;
        let mut writes = changes::between(project, &self.before, &self.after);
        writes.extend(self.new_boot.clone());
        for (seq, event, depth) in &tx.events {
            let (component, id) = event.source();
            let params: [Value<'_>; 10] = [
                project.into(),
                seq.0.into(),
                tx.wall.0.into(),
                event.kind().into(),
                component.into(),
                id.into(),
                event.request().into(),
                event.data().into(),
                actor.into(),
                (*depth > 0).then_some(i64::from(*depth)).into(),
            ];
            writes.push(Query::new(Statement::InsertEvent, params));
        }
        if notifies {
            writes.extend(tx.wakes.iter().map(notify));
        }
        // A ticket that was given out is never given out again, also if its waiter has left within the same batch.
        if !writes.is_empty() || tx.ticket.0 - 1 != self.counters.ticket {
            writes.push(self.counters.update(project, tx, machine));
        }
        writes
    }
}

/// `CHANNEL/KEY` wakes whoever listens to the channel and knows the key.
fn notify(address: &Address) -> Query<'_> {
    let (channel, key) = address.0.split_once('/').unwrap_or((&address.0, ""));
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

impl Counters {
    /// Reads the row of the project, and makes sure that this program understands the tables and that the store is in use.
    pub(crate) fn read(rows: Rows) -> Result<Counters, StoreError> {
        match Counters::of_retired(rows)? {
            (counters, None) => Ok(counters),
            (_, Some(to)) => Err(StoreError::Moved { to }),
        }
    }

    /// The same, also of a store that is retired: with the place where its project went.
    pub(crate) fn of_retired(mut rows: Rows) -> Result<(Counters, Option<String>), StoreError> {
        let mut row: Row = rows.pop().ok_or_else(|| StoreError::corrupt("the project has no row"))?;
        let (seq, ticket, lease, lease_base) = (row.int()?, row.int()?, row.int()?, row.int()?);
        let (boot, found, server_ms, moved_to) = (row.text()?, row.int()?, row.maybe_int()?, row.maybe_text()?);
        if found != VERSION {
            return Err(StoreError::Newer { found, known: VERSION });
        }
        let mut limit = || row.maybe_int()?.map(|limit| limit.try_into().map_err(StoreError::corrupt)).transpose();
        let limits = limit()?.zip(limit()?).map(|(runs, roots)| Limits { runs, roots });
        Ok((Counters { seq, ticket, lease, lease_base, boot, server_ms, limits }, moved_to))
    }

    /// Both clocks, now. Lease time never goes back. A server's clock counts where there is one; else lease time goes
    /// on where it stood when the machine went down, so that what was left of every lease is still left.
    pub(crate) fn clocks(&self, machine: &dyn Machine) -> (Lease, Wall) {
        let reading = machine.read();
        let (lease, wall) = match self.server_ms {
            Some(server) => (server, server),
            None => (reading.monotonic_ms + self.base(&machine.boot(), self.lease, reading), reading.wall_ms),
        };
        (Lease(lease.max(self.lease)), Wall(wall))
    }

    /// What leads from the monotonic clock to lease time, so that this is at least `lease`. It is what it was as long as the boot is
    /// the same. A clock of the same boot that is behind what was written was read under another offset, by a version that did
    /// not know of time namespaces: without a new base lease time would stand still until the clock has caught up.
    fn base(&self, boot: &str, lease: i64, reading: Reading) -> i64 {
        let is_valid = self.boot == boot && reading.monotonic_ms + self.lease_base >= self.lease;
        if is_valid { self.lease_base } else { lease - reading.monotonic_ms }
    }

    /// The row after a transaction.
    fn update(&self, project: i64, tx: &Tx, machine: &dyn Machine) -> Query<'static> {
        self.row(project, Seq(tx.seq.0 - 1), tx.ticket.0 - 1, tx.lease, machine)
    }

    /// The row of a project whose events were brought from elsewhere.
    pub(crate) fn moved(&self, project: i64, seq: Seq, lease: Lease, machine: &dyn Machine) -> Query<'static> {
        self.row(project, seq, self.ticket, lease, machine)
    }

    fn row(&self, project: i64, seq: Seq, ticket: i64, lease: Lease, machine: &dyn Machine) -> Query<'static> {
        let boot = machine.boot();
        let base = self.base(&boot, lease.0, machine.read());
        let params: [Value<'static>; 6] = [project.into(), seq.0.into(), ticket.into(), lease.0.into(), base.into(), boot.into()];
        Query::new(Statement::UpdateProject, params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct At(i64);

    impl Machine for At {
        fn host(&self) -> String {
            "host".into()
        }

        fn boot(&self) -> String {
            "boot".into()
        }

        fn read(&self) -> Reading {
            Reading { monotonic_ms: self.0, wall_ms: 0 }
        }
    }

    fn counters(boot: &str, lease: i64, lease_base: i64) -> Counters {
        Counters { seq: 0, ticket: 0, lease, lease_base, boot: boot.into(), server_ms: None, limits: None }
    }

    /// Sets a name aside as an event, or panics.
    struct Note(&'static str);

    impl Call for Note {
        type Reply = &'static str;

        fn keys(&self) -> Vec<crate::key::Key> {
            Vec::new()
        }

        fn decide(&self, _: &mut Tables, tx: &mut Tx) -> &'static str {
            assert_ne!(self.0, "bad", "a decision is wrong");
            let event = banksman_core::Event::parse("note:made", self.0, None, "null").unwrap();
            tx.carry_out(vec![banksman_core::Effect::Emit(event)], false);
            self.0
        }
    }

    #[test]
    fn a_decision_that_panics_is_undone_and_leaves_the_others_alone() {
        let mut store = crate::sqlite::memory(Box::new(At(1))).unwrap();
        let answers = store.batch(&[Note("one"), Note("bad"), Note("two")]);
        let words: Vec<_> = answers.into_iter().map(|answer| answer.map(|committed| committed.replies)).collect();
        assert!(
            matches!(&words[..], [Ok(one), Err(StoreError::Bug { what }), Ok(two)]
            if one[..] == ["one"] && two[..] == ["two"] && what.contains("a decision is wrong")),
            "{words:?}"
        );
        assert!(matches!(store.batch(&[Note("bad")])[..], [Err(StoreError::Bug { .. })]));
        assert_eq!(store.batch(&[Note("three")]).pop().unwrap().unwrap().seq, Seq(3), "nothing of the bad ones is left");
    }

    #[test]
    fn lease_time_is_the_monotonic_clock_of_one_boot_and_goes_on_in_the_next() {
        assert_eq!(counters("boot", 1_000, 500).clocks(&At(600)).0, Lease(1_100));
        assert_eq!(counters("before", 1_000, 500).clocks(&At(7)).0, Lease(1_000), "it stood still while the machine was off");
        assert_eq!(counters("before", 1_000, 500).base("boot", 1_000, At(7).read()), 993);
    }

    #[test]
    fn lease_time_goes_on_after_somebody_has_written_with_a_clock_that_is_ahead() {
        let ahead = counters("boot", 864_000_000, 0);
        assert_eq!(ahead.clocks(&At(5_000)).0, Lease(864_000_000), "it never goes back");
        let base = ahead.base("boot", 864_000_000, At(5_000).read());
        let next = counters("boot", 864_000_000, base);
        assert_eq!(next.clocks(&At(5_300)).0, Lease(864_000_300), "nor does it stand still");
    }
}
