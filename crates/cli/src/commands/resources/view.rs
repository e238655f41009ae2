//! Grants and lines as people and programs see them.

use banksman_adapters::host::Host;
use banksman_core::resource::grant::{Grant, Reason, Waiters};
use banksman_core::{Liveness, Now, Stamp};

use crate::format;
use crate::table;

/// How a grant stands right now: a look at its processes included.
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

/// Whether a grant in this state is over, though its row is still there.
pub(crate) fn is_over(state: &str) -> bool {
    matches!(state, "dead" | "expired" | "lapsed")
}

/// The line as a table, or nothing if nobody waits.
pub(crate) fn line_rows(line: &Waiters, at: Stamp, weights: bool) -> String {
    if line.is_empty() {
        return String::new();
    }
    let rows = line.iter().enumerate().map(|(index, waiter)| {
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
