//! The common base of the small simulations: one store with its clock. Steps with faults come first, then steps without.

use banksman_core::ProcessId;
use banksman_engine::{Reply, Request};
use banksman_store::{Key, Machine, Snapshot, Store};

use crate::clock::{Clock, HOST};
use crate::random::Random;
use crate::store;

pub(crate) struct Ground {
    pub(crate) random: Random,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    /// Whether there are no more faults.
    pub(crate) is_quiescing: bool,
    /// How many processes there have been.
    born: i32,
}

/// Runs the history of one seed. Returns the violation of a rule, if there is one.
pub(crate) fn history<T>(seed: u64, salt: u64, play: impl FnOnce(&mut Ground) -> Result<T, String>) -> Result<T, String> {
    let clock = Clock::new();
    let store = store::empty(&clock).map_err(|error| error.to_string())?;
    let mut ground = Ground { random: Random::new(seed ^ salt), store, clock, is_quiescing: false, born: 0 };
    let result = play(&mut ground);
    store::give_back(ground.store);
    result.map_err(|what| format!("seed {seed}: {what}"))
}

impl Ground {
    /// A new process.
    pub(crate) fn newborn(&mut self) -> ProcessId {
        self.born += 1;
        ProcessId { host: HOST.into(), boot: self.clock.boot().into(), pid_ns: 1, pid: self.born, start: 1 }
    }

    pub(crate) fn call(&mut self, request: impl Into<Request>) -> Result<Reply, String> {
        let committed = self.store.batch(&[request.into()]).pop().expect("one request, one batch");
        committed.map_err(|error| error.to_string())?.replies.into_iter().next().ok_or_else(|| "no reply".into())
    }

    pub(crate) fn load(&mut self, keys: impl IntoIterator<Item = Key>) -> Result<Snapshot, String> {
        self.store.view().load(&keys.into_iter().collect()).map_err(|error| error.to_string())
    }

    pub(crate) fn everything(&mut self) -> Result<Snapshot, String> {
        self.store.view().everything().map_err(|error| error.to_string())
    }

    /// The event log must agree with the tables.
    pub(crate) fn compare_with_log(&mut self) -> Result<(), String> {
        let differing = self.store.view().compare_with_log().map_err(|error| error.to_string())?;
        if differing.is_empty() { Ok(()) } else { Err(format!("the log and the tables differ: {differing:?}")) }
    }
}
