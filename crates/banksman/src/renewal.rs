//! Renewal of the grants of a client with a time to live, on one thread that the first such grant starts.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use banksman_adapters::host;
use banksman_core::Epoch;

use crate::client::{Client, WeakClient};
use crate::error::{Error, OrPublic, Result};
use crate::guard::Grip;

/// The pause before a retry when the store did not answer.
const RETRY: Duration = Duration::from_secs(1);

/// The grants to renew.
#[derive(Default)]
pub(crate) struct Renewals {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<Epoch, Entry>,
    /// The end of the thread's sleep. A new grant wakes the thread only if it is due earlier, so that short holds cost
    /// no context switch.
    sleeps_until: Option<Instant>,
    is_running: bool,
    is_closed: bool,
}

struct Entry {
    grip: Arc<Grip>,
    /// A third of the time to live: two renewals may fail.
    every: Duration,
    due: Instant,
}

impl Renewals {
    /// Starts to renew a grant.
    pub(crate) fn add(self: &Arc<Renewals>, client: &Client, grip: &Arc<Grip>, ttl: Duration) -> Result<()> {
        let (every, due) = (ttl / 3, host::deadline(ttl / 3));
        let mut state = self.state();
        if !state.is_running {
            let (renewals, client) = (Arc::clone(self), client.downgrade());
            let renew = move || renewals.work(&client);
            std::thread::Builder::new().name("banksman-renewal".into()).spawn(renew).or_public()?;
            state.is_running = true;
        }
        state.entries.insert(grip.epoch(), Entry { grip: Arc::clone(grip), every, due });
        if state.sleeps_until.is_none_or(|until| due < until) {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Stops renewing a grant.
    pub(crate) fn remove(&self, epoch: Epoch) {
        self.state().entries.remove(&epoch);
    }

    /// Stops the thread.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_one();
    }

    fn work(&self, client: &WeakClient) {
        while let Some((grip, every)) = self.next() {
            // Without a client there are no guards.
            let Some(client) = client.upgrade() else { return };
            let again = match grip.renew(&client) {
                Ok(()) => Some(every),
                Err(Error::Lost { .. }) => None,
                // An expired grant is revived as long as no other holder has taken the resource, so there is no reason
                // to give up.
                Err(_) => Some(every.min(RETRY)),
            };
            let mut state = self.state();
            match (state.entries.get_mut(&grip.epoch()), again) {
                (Some(entry), Some(again)) => entry.due = host::deadline(again),
                (Some(_), None) => drop(state.entries.remove(&grip.epoch())),
                (None, _) => {}
            }
        }
    }

    /// Sleeps until a renewal is due; `None` after the client is gone.
    fn next(&self) -> Option<(Arc<Grip>, Duration)> {
        let mut state = self.state();
        while !state.is_closed {
            let first = state.entries.values().min_by_key(|entry| entry.due);
            let left = first.map_or(Duration::MAX, |entry| entry.due.saturating_duration_since(Instant::now()));
            if let Some(entry) = first.filter(|_| left.is_zero()) {
                return Some((Arc::clone(&entry.grip), entry.every));
            }
            state.sleeps_until = first.map(|entry| entry.due);
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
