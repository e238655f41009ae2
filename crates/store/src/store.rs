//! A connection that writes: batches of calls, each batch one transaction.

use std::collections::BTreeSet;

use banksman_core::claim::Address;
use banksman_core::{Lease, Seq, Ticket, Wall};

use crate::call::{Call, Turn};
use crate::changes;
use crate::error::StoreError;
use crate::machine::Machine;
use crate::schema::VERSION;
use crate::sql::Statement;
use crate::sqlite::Sqlite;
use crate::tables::{self, Key};
use crate::value::{Query, Rows, Value};

/// A store that this process may change.
pub struct Store {
    pub(crate) backend: Sqlite,
    pub(crate) project: i64,
    pub(crate) machine: Box<dyn Machine>,
    /// Boots of this host before the current one, once this process has made its own boot known.
    earlier_boots: Option<BTreeSet<Box<str>>>,
}

/// A batch that is decided and written but not committed yet. Dropping it undoes it.
pub struct Open<'s, R> {
    store: &'s mut Store,
    replies: Vec<R>,
    turn: Turn,
    wrote: bool,
}

/// What a committed batch leaves to do.
#[derive(Debug)]
pub struct Committed<R> {
    /// The answers, in the order of the calls.
    pub replies: Vec<R>,
    /// Whom to wake.
    pub wakes: Vec<Address>,
    /// The number of the last event.
    pub seq: Seq,
    /// How many events were written.
    pub events: usize,
}

/// The counters of the project.
struct Counters {
    seq: i64,
    ticket: i64,
    lease: i64,
    lease_base: i64,
    boot: String,
}

impl Store {
    pub(crate) fn new(backend: Sqlite, project: i64, machine: Box<dyn Machine>) -> Store {
        Store { backend, project, machine, earlier_boots: None }
    }

    /// Waits until it is this process's turn to write, however long that takes. The next batch ends the turn;
    /// a caller that finds it has nothing to do gives it back.
    pub fn take_turn(&mut self) -> Result<(), StoreError> {
        self.backend.take_turn()
    }

    /// Lets others write, without having written.
    pub fn give_turn_back(&mut self) {
        self.backend.roll_back();
    }

    /// Decides and commits a batch. If it fails before the commit, the calls are tried one by one, so that one
    /// bad call does not spoil the others.
    pub fn batch<C: Call>(&mut self, calls: &[C]) -> Vec<Result<Committed<C::Reply>, StoreError>> {
        match self.begin(calls).and_then(Open::commit) {
            Ok(committed) => vec![Ok(committed)],
            Err(error @ StoreError::Unknown { .. }) => calls.iter().map(|_| Err(error.clone())).collect(),
            Err(error) if calls.len() == 1 => vec![Err(error)],
            Err(_) => calls.iter().map(|call| self.begin(std::slice::from_ref(call)).and_then(Open::commit)).collect(),
        }
    }

    /// Loads, decides and writes a batch, and leaves the commit to the caller.
    pub fn begin<C: Call>(&mut self, calls: &[C]) -> Result<Open<'_, C::Reply>, StoreError> {
        let keys: BTreeSet<Key> = calls.iter().flat_map(Call::keys).collect();
        let mut queries = vec![Query::new(Statement::Project, [self.project.into()])];
        let boots = self.earlier_boots.is_none();
        if boots {
            queries.push(Query::new(Statement::Boots, [self.project.into(), self.machine.host().into()]));
        }
        let first = queries.len();
        queries.extend(tables::plan(self.project, &keys));
        let mut answers = self.backend.begin(&queries)?;
        let rest = answers.split_off(first);
        let decided = self.decide(calls, answers, &queries[first..], rest);
        match decided {
            Ok((replies, turn, wrote)) => Ok(Open { store: self, replies, turn, wrote }),
            Err(error) => {
                self.backend.roll_back();
                Err(error)
            }
        }
    }

    fn decide<C: Call>(
        &mut self,
        calls: &[C],
        mut heads: Vec<Rows>,
        queries: &[Query<'_>],
        answers: Vec<Rows>,
    ) -> Result<(Vec<C::Reply>, Turn, bool), StoreError> {
        let known_boots = if heads.len() > 1 { heads.pop() } else { None };
        let counters = counters(heads.pop().unwrap_or_default())?;
        let mut writes = Vec::new();
        if let Some(rows) = known_boots {
            let mut boots = Vec::new();
            for mut row in rows {
                boots.push((row.text()?, row.int()?));
            }
            let (earlier, new) = self.earlier(boots, counters.seq);
            writes.extend(new);
            self.earlier_boots = Some(earlier);
        }
        let mut turn = self.turn(&counters);
        let before = tables::decode(queries, answers)?;
        let mut after = before.clone();
        let replies = calls.iter().map(|call| call.decide(&mut after, &mut turn)).collect();
        #[cfg(debug_assertions)]
        after.coordination.check();
        writes.extend(changes::between(self.project, &before, &after));
        for (seq, event) in &turn.events {
            let (component, id) = event.source();
            let params: [Value<'_>; 8] = [
                self.project.into(),
                seq.0.into(),
                turn.wall.0.into(),
                event.kind().into(),
                component.into(),
                id.into(),
                event.request().into(),
                event.data().into(),
            ];
            writes.push(Query::new(Statement::InsertEvent, params));
        }
        let wrote = !writes.is_empty();
        if wrote {
            let base = if counters.boot == self.machine.boot() {
                counters.lease_base
            } else {
                turn.lease.0 - self.machine.read().monotonic_ms
            };
            let params: [Value<'_>; 6] = [
                self.project.into(),
                (turn.seq.0 - 1).into(),
                (turn.ticket.0 - 1).into(),
                turn.lease.0.into(),
                base.into(),
                self.machine.boot().into(),
            ];
            writes.push(Query::new(Statement::UpdateProject, params));
            self.backend.write(&writes)?;
        }
        drop(writes);
        Ok((replies, turn, wrote))
    }

    /// The moment of this transaction. Lease time goes on where it stood when the machine went down, so that
    /// what was left of every lease is still left.
    fn turn(&self, counters: &Counters) -> Turn {
        let reading = self.machine.read();
        let lease =
            if counters.boot == self.machine.boot() { reading.monotonic_ms + counters.lease_base } else { counters.lease };
        Turn {
            seq: Seq(counters.seq + 1),
            ticket: Ticket(counters.ticket + 1),
            lease: Lease(lease.max(counters.lease)),
            wall: Wall(reading.wall_ms),
            earlier_boots: self.earlier_boots.clone().unwrap_or_default(),
            events: Vec::new(),
            wakes: Vec::new(),
        }
    }

    /// The boots of this host that the store saw before the current one, and the row that makes the current one
    /// known if it is new.
    fn earlier(&self, boots: Vec<(String, i64)>, seq: i64) -> (BTreeSet<Box<str>>, Option<Query<'static>>) {
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

    /// Moves what is in the write-ahead log into the database file, if there is much of it.
    pub fn tidy(&mut self, quiet: bool) -> Result<(), StoreError> {
        self.backend.tidy(quiet)
    }
}

impl<R> Open<'_, R> {
    /// Makes it last.
    pub fn commit(mut self) -> Result<Committed<R>, StoreError> {
        let replies = std::mem::take(&mut self.replies);
        if self.wrote {
            self.wrote = false;
            let committed = self.store.backend.commit();
            if committed.is_err() {
                self.store.earlier_boots = None;
            }
            committed?;
        }
        let seq = Seq(self.turn.seq.0 - 1);
        let (wakes, events) = (std::mem::take(&mut self.turn.wakes), self.turn.events.len());
        Ok(Committed { replies, wakes, seq, events })
    }
}

impl<R> Drop for Open<'_, R> {
    fn drop(&mut self) {
        if self.store.backend.roll_back() && self.wrote {
            // The row that makes this boot known is undone too.
            self.store.earlier_boots = None;
        }
    }
}

fn counters(mut rows: Rows) -> Result<Counters, StoreError> {
    let mut row = rows.pop().ok_or_else(|| StoreError::corrupt("the project has no row"))?;
    let (seq, ticket, lease, lease_base) = (row.int()?, row.int()?, row.int()?, row.int()?);
    let (boot, found) = (row.text()?, row.int()?);
    if found != VERSION {
        return Err(StoreError::Newer { found, known: VERSION });
    }
    Ok(Counters { seq, ticket, lease, lease_base, boot })
}
