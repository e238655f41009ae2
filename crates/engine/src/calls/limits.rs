//! The limits of a project: one row, which decides every admission.

use banksman_core::resource::coordination::Command;
use banksman_core::resource::semaphore::{self, Config};
use banksman_core::{Event, Limits, LimitsChange, Name};
use banksman_store::{Key, Tx};

use crate::calls::steps::{Draft, emit, wake_runners};
use crate::facts;

pub(crate) fn keys() -> Vec<Key> {
    vec![Key::Runners, Key::Semaphore(Name::runs())]
}

/// Changes some limits; a project without limits begins with `seed`.
pub(crate) fn change(change: LimitsChange, seed: Limits, tx: &mut Tx) -> Limits {
    let limits = tx.tables.backlog.limits.unwrap_or(seed).changed(change);
    set(limits, tx);
    limits
}

/// Sets the limits and the capacity of the run slots. More tasks than before may be able to start, so the runners are woken.
fn set(limits: Limits, tx: &mut Tx) {
    tx.changed.limits_roots |= limits.roots > 0 && facts::root_limit(&tx.tables.backlog) == 0;
    if tx.tables.backlog.limits.replace(limits) != Some(limits) {
        emit(tx, Event::Limits(limits));
        wake_runners(tx);
    }
    let capacity = limits.capacity();
    let slots = tx.tables.coordination.semaphores.get(&Name::runs());
    if slots.is_none_or(|slots| slots.config.capacity != capacity) {
        let mut draft = Draft::new(&tx.tables.coordination, tx.now(Vec::new(), Default::default()));
        draft.handle(Command::Semaphore(Name::runs(), semaphore::Input::Define(Config { capacity, ttl: None })));
        draft.keep(tx);
    }
}
