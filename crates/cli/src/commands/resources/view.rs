//! Grants and lines as people and programs see them.

use banksman_adapters::host::Host;
use banksman_core::resource::grant::{Grant, Reason, Waiter, Waiters};
use banksman_core::{Liveness, Now, Stamp};
use serde_json::{Value, json};

use crate::table;
use crate::words;

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

pub(crate) fn grant_json(grant: &Grant, state: &str) -> Value {
    json!({
        "holder": grant.claim.holder,
        "state": state,
        "epoch": grant.epoch,
        "weight": grant.claim.weight,
        "ancestors": grant.claim.ancestors,
        "acquiredAt": words::rfc3339(grant.acquired.wall),
        "heartbeatAt": words::rfc3339(grant.heartbeat.wall),
        "expiresAt": grant.expires().map(words::rfc3339),
        "ttl": grant.claim.ttl.map(|span| span.to_string()),
        "maxHold": grant.claim.max_hold.map(|span| span.to_string()),
        "pids": grant.claim.processes.iter().map(|process| process.pid).collect::<Vec<_>>(),
        "metadata": grant.claim.metadata,
    })
}

pub(crate) fn waiter_json(place: usize, waiter: &Waiter) -> Value {
    json!({
        "place": place,
        "holder": waiter.claim.holder,
        "weight": waiter.claim.weight,
        "since": words::rfc3339(waiter.since.wall),
        "pid": waiter.standing.process.pid,
    })
}

/// The line as a table, or nothing if nobody waits.
pub(crate) fn line_rows(line: &Waiters, at: Stamp, weights: bool) -> String {
    if line.is_empty() {
        return String::new();
    }
    let rows = line.iter().enumerate().map(|(index, waiter)| {
        let mut row = vec![words::ordinal(index + 1), waiter.claim.holder.to_string()];
        if weights {
            row.push(waiter.claim.weight.to_string());
        }
        row.extend([words::span(at.lease - waiter.since.lease), waiter.standing.process.pid.to_string()]);
        row
    });
    let columns: &[&str] =
        if weights { &["LINE", "HOLDER", "WEIGHT>", "WAITS FOR>", "PID>"] } else { &["LINE", "HOLDER", "WAITS FOR>", "PID>"] };
    format!("\n\n{}", table::render(columns, rows.collect()))
}
