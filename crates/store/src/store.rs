//! A connection that writes: batches of calls, each batch one transaction.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use banksman_core::event::{Actor, Kind, Resource};
use banksman_core::resource::coordination::Coordination;
use banksman_core::resource::grant::Address;
use banksman_core::task::State;
use banksman_core::{Name, Seq, TaskId, Ticket};

use crate::backend::Backend;
use crate::call::{Call, Changed, Tx};
use crate::changes;
use crate::error::StoreError;
use crate::key::Key;
use crate::load;
use crate::loaded::Loaded;
use crate::machine::Machine;
use crate::postgres::FOLLOWER_SPACE;
use crate::tables::projects::{Counters, Statement};
use crate::tables::{Tables, events, fan_outs, tasks};
use crate::tally::{Counted, Tally};
use crate::value::{Query, Rows, Value};

/// How often a batch is tried again when the connection is lost before its commit.
const RECONNECTS: usize = 5;

/// How often rows lead to others that a decision needs.
const FOLLOWS: usize = 4;

/// A store that this process may change.
pub struct Store {
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) project: i64,
    pub(crate) machine: Box<dyn Machine>,
    /// Whose commands this store carries out, as JSON; none for a runner.
    actor: Option<String>,
    depth: u32,
    /// How the addresses end whose owners this process wakes itself, where the database wakes the others.
    here: Option<String>,
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
    counters: Counters,
    /// The row that makes this boot known, if it is new.
    new_boot: Option<Query<'static>>,
    is_followed: bool,
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
    /// How many events and messages were written.
    pub events: usize,
    /// Whether somebody may follow the event log.
    pub is_followed: bool,
    /// Whether anything was written: a heartbeat changes rows without an event, and who only looked changes nothing.
    pub has_written: bool,
}

impl Store {
    pub(crate) fn new(backend: Box<dyn Backend>, project: i64, machine: Box<dyn Machine>) -> Store {
        Store { backend, project, machine, actor: None, depth: 0, here: None, earlier_boots: None }
    }

    /// Counts from now on what this connection asks of its database.
    pub fn counted(self, tally: &Arc<Tally>) -> Store {
        let Store { backend, .. } = self;
        Store { backend: Box::new(Counted { inner: backend, tally: Arc::clone(tally) }), ..self }
    }

    /// Notes with every event from now on that it was caused by a command of this person or run.
    pub fn act_for(&mut self, actor: &Actor) {
        self.actor = Some(actor.to_json());
        self.depth = actor.depth;
    }

    /// Leaves it to the caller to wake those whose addresses end so.
    pub fn wakes_here(&mut self, end: &str) {
        self.here = Some(end.to_owned());
    }

    /// Waits until it is this process's turn to write, and says whether others had it before. The turn lasts for one batch at least, and at most until it is given back: where the
    /// writer lock is a part of transactions, the next batch is that transaction. A batch without the writer lock takes one for itself.
    pub fn lock_writer(&mut self) -> Result<bool, StoreError> {
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

    /// Whether the writer lock lasts from one batch to the next. Elsewhere each batch takes it anew.
    pub fn keeps_writer_lock(&self) -> bool {
        self.backend.keeps_writer_lock()
    }

    /// Whether the last batch has waited for others, where [`Store::try_lock_writer`] cannot tell.
    pub fn has_waited(&self) -> bool {
        self.backend.has_waited()
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
        let keys = load::gathered(calls.iter().flat_map(Call::keys));
        let mut queries = vec![Query::new(Statement::One, [self.project.into()])];
        if self.earlier_boots.is_none() {
            queries.push(Query::new(Statement::Boots, [self.project.into(), self.machine.host().into()]));
        }
        if self.backend.is_remote() {
            queries.push(Query::new(Statement::Followed, [(FOLLOWER_SPACE | self.project).into()]));
        }
        let heads = queries.len();
        let (rare, keys): (BTreeSet<Key>, BTreeSet<Key>) = keys.into_iter().partition(load::is_rare);
        queries.extend(load::plan(self.project, &keys, self.backend.is_remote()));
        // They are planned later, when the others tell whether there are any; what all of them need is read now.
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

    /// Loads what the loaded rows refer to. Returns what was asked for in all.
    fn follow<C: Call>(
        &mut self,
        calls: &[C],
        mut known: BTreeSet<Key>,
        mut rare: BTreeSet<Key>,
        counters: &Counters,
        loaded: &mut Loaded,
    ) -> Result<BTreeSet<Key>, StoreError> {
        // Who waits, and whom to wake, was read for the rare ones too.
        let mut planned: BTreeSet<Key> = known.union(&rare).cloned().collect();
        // A server has read the locks of the first tasks of each lane together with them.
        let has_own_locks = self.backend.is_remote() && counters.limits.is_none_or(|limits| limits.roots == 0);
        for _ in 0..FOLLOWS {
            let rows = loaded.so_far();
            let mut more: BTreeSet<Key> = calls.iter().flat_map(|call| call.follow(rows)).collect();
            let own_locks = rows.ready.iter().map(|id| Key::Lock(id.lock()));
            if has_own_locks {
                known.extend(own_locks);
            } else {
                more.extend(own_locks);
            }
            if counters.parks {
                // Also of what is only about to be there.
                let asked = known.iter().chain(&more).filter_map(resource);
                let limits = rows.backlog.account_limits.keys().map(|name| Resource { kind: Kind::Lock, name: name.clone() });
                let all = resources(&rows.coordination).chain(asked).filter(|resource| parks_tasks(resource, rows));
                let all: Vec<Resource> = all.collect();
                more.extend(all.into_iter().chain(limits).map(Key::ParkedOn));
                if !more.is_empty() && !load::loads_idle(&planned) {
                    more.insert(Key::Idle);
                }
            }
            more.append(&mut rare);
            let (wanted, absent): (BTreeSet<Key>, BTreeSet<Key>) =
                more.into_iter().filter(|key| !known.contains(key)).partition(|key| load::may_have_rows(key, rows, counters));
            known.extend(absent);
            let more = wanted;
            if more.is_empty() {
                break;
            }
            let queries = load::plan_more(self.project, &planned, &more, true);
            let answers = self.backend.query(&queries)?;
            loaded.extend(&queries, answers)?;
            drop(queries);
            planned.extend(more.iter().cloned());
            known.extend(more);
        }
        Ok(known)
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
        // Followers on one machine are told without the database.
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

    /// The moment of this transaction.
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

    /// Empties the project, as if it had just been made on this machine. A simulation runs one history after the other on one
    /// connection, whose statements stay prepared.
    pub fn clear(&mut self, machine: Box<dyn Machine>) -> Result<(), StoreError> {
        let lease = machine.read().monotonic_ms;
        self.backend.clear(self.project, lease, &machine.boot())?;
        (self.machine, self.actor, self.depth, self.earlier_boots) = (machine, None, 0, None);
        Ok(())
    }

    /// Does what can wait until nobody is waiting.
    pub fn tidy(&mut self, quiet: bool) -> Result<(), StoreError> {
        self.backend.tidy(quiet)
    }

    /// To be called when much has been added at once.
    pub fn analyze(&mut self) -> Result<(), StoreError> {
        self.backend.analyze()
    }

    /// Tells followers on other machines that something has happened. On one machine a change notifier does that.
    pub fn ring(&mut self) -> Result<(), StoreError> {
        self.backend.ring(self.project)
    }
}

impl<R> Open<'_, R> {
    /// Writes it and makes it last.
    pub fn commit(mut self) -> Result<Committed<R>, StoreError> {
        let here = self.store.here.as_deref();
        let is_notified = |address: &Address| !here.is_some_and(|here| address.0.ends_with(here));
        let wakes = std::mem::take(&mut self.decided.tx.wakes);
        let notifies = self.store.backend.notifies() && !self.store.machine.is_simulated();
        let (notified, wakes) = if notifies { wakes.into_iter().partition(is_notified) } else { (Vec::new(), wakes) };
        let writes = self.decided.writes(self.store.project, &*self.store.machine, self.store.actor.as_deref(), &notified);
        let has_written = !writes.is_empty();
        if has_written {
            // If it fails, dropping `self` forgets what is undone with it.
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
    /// The statements of the batch; none if nothing has changed.
    fn writes<'a>(
        &'a self,
        project: i64,
        machine: &dyn Machine,
        actor: Option<&'a str>,
        notified: &'a [Address],
    ) -> Vec<Query<'a>> {
        let tx = &self.tx;
        let mut writes = changes::between(project, &self.before, &self.tx.tables);
        // One that has begun meanwhile, or is over, was taken out by the statement that says so.
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
        // A ticket that was given out is never given out again, also if its waiter has left within the same batch.
        if !writes.is_empty() || tx.ticket.0 - 1 != self.counters.ticket {
            writes.push(self.counters.update(project, tx, &self.before, machine));
        }
        writes
    }
}

/// The lock or semaphore that a key names.
fn resource(key: &Key) -> Option<Resource> {
    match key {
        Key::Lock(name) => Some(Resource { kind: Kind::Lock, name: name.clone() }),
        Key::Semaphore(name) => Some(Resource { kind: Kind::Semaphore, name: name.clone() }),
        _ => None,
    }
}

/// Whether tasks may be parked on it. Those that wait for a run slot or an exclusive section stay in their lanes, and for the lock of a
/// task only that task waits: not if it is in its lane, or waits for something else.
fn parks_tasks(resource: &Resource, rows: &Tables) -> bool {
    let is_elsewhere = |task: &TaskId| rows.ready.contains(task) || rows.parked_on.values().any(|tasks| tasks.contains(task));
    let waits =
        |task: &TaskId| rows.backlog.tasks.get(task).is_none_or(|task| task.state == State::Pending) && !is_elsewhere(task);
    !resource.name.is_section() && resource.name != Name::runs() && resource.name.task().is_none_or(|task| waits(&task))
}

/// All locks and semaphores.
fn resources(coordination: &Coordination) -> impl Iterator<Item = Resource> {
    let locks = coordination.locks.keys().map(|name| Resource { kind: Kind::Lock, name: name.clone() });
    locks.chain(coordination.semaphores.keys().map(|name| Resource { kind: Kind::Semaphore, name: name.clone() }))
}

/// `CHANNEL/KEY@FOLDER` wakes whoever listens to the channel and knows the key.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::ManualMachine;

    /// Sets a name aside as an event, or panics.
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
    fn a_decision_that_panics_is_undone_and_leaves_the_others_alone() {
        let mut store = crate::sqlite::memory(Box::new(ManualMachine::at(1))).unwrap();
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
}
