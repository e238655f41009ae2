//! The store of a history: the real one, in memory or on a PostgreSQL server. Each thread reuses its own in the next
//! history and clears it, because opening a store and preparing its statements takes longer than most histories.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use banksman_store::{Store, StoreError, StoreId, postgres, sqlite};

use crate::clock::Clock;

static SERVER: OnceLock<postgres::Server> = OnceLock::new();
static PROJECTS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SPARE: RefCell<Option<Store>> = const { RefCell::new(None) };
}

/// Runs all histories of this process on a PostgreSQL server instead of in memory. Returns what is wrong with the address.
pub fn use_postgres(url: &str) -> Result<(), String> {
    let server = postgres::Server::parse(url, |name| std::env::var(name).ok(), "banksman-sim")?;
    SERVER.set(server).map_err(|_| "a server was chosen before".to_owned())
}

/// An empty store on this machine.
pub(crate) fn empty(clock: &Clock) -> Result<Store, StoreError> {
    match SPARE.take() {
        Some(mut store) => store.clear(Box::new(clock.clone())).map(|()| store),
        None => new(clock),
    }
}

/// Keeps a store for the next history.
pub(crate) fn give_back(store: Store) {
    SPARE.set(Some(store));
}

fn new(clock: &Clock) -> Result<Store, StoreError> {
    let Some(server) = SERVER.get() else { return sqlite::memory(Box::new(clock.clone())) };
    let number = PROJECTS.fetch_add(1, Ordering::Relaxed);
    let id = format!("sim-{}-{number}", std::process::id());
    postgres::create(server, &id, &StoreId::new(id.clone()))?;
    let mut store = postgres::open(server, &id, Box::new(clock.clone()))?;
    // Its row has the time of the server's clock.
    store.clear(Box::new(clock.clone()))?;
    Ok(store)
}
