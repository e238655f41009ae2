//! Grants and waiters as text.

use banksman_adapters::host::Host;
use banksman_core::resource::grant::{Grant, Reason, Waiters};
use banksman_core::{Liveness, Now, Stamp};

use crate::format;
use crate::table;

/// The current state of a grant, with its processes probed.
pub(crate) fn holder_state(grant: &Grant, at: Stamp, host: &Host) -> &'static str {
    let dead = grant.watch().into_iter().filter(|process| host.probe(process) == Liveness::Dead).collect();
    let now = Now { lease: at.lease, wall: at.wall, dead, ..Now::default() };
    match grant.over(&now) {
        Some(Reason::Dead) => "dead",
        Some(Reason::Expired | Reason::MaxHold) => "expired",
        Some(Reason::Lapsed) => "lapsed",
        None if grant.offer.is_some() => "offered",
        None => "held",
    }
}

/// Whether a grant in this state is over, although its row still exists.
pub(crate) fn is_over(state: &str) -> bool {
    matches!(state, "dead" | "expired" | "lapsed")
}

/// The waiters as a table; empty if there are none.
pub(crate) fn waiter_rows(waiters: &Waiters, at: Stamp, weights: bool) -> String {
    if waiters.is_empty() {
        return String::new();
    }
    let rows = waiters.iter().enumerate().map(|(index, waiter)| {
        let mut row = vec![format::ordinal(index + 1), waiter.claim.holder.to_string()];
        if weights {
            row.push(waiter.claim.weight.to_string());
        }
        row.extend([format::span(at.lease - waiter.since.lease), waiter.standing.process.pid.to_string()]);
        row
    });
    let columns: &[&str] = if weights {
        &["POSITION", "HOLDER~", "WEIGHT>", "WAITS FOR>", "PID>?"]
    } else {
        &["POSITION", "HOLDER~", "WAITS FOR>", "PID>?"]
    };
    format!("\n\n{}", table::render(columns, rows.collect()))
}
