//! The waiters of locks and semaphores, by ticket.

use banksman_core::Name;
use banksman_core::resource::grant::{Waiters, Waiter};
use banksman_core::event::{Kind, Resource};

use crate::columns::{Int, Moment, NeededJson, OfGrantRequest, Text, columns};
use crate::table::{self, table};
use crate::value::Query;

columns! {
    OfWaiter of Waiter {
        ticket: Int,
        claim: OfGrantRequest,
        standing: NeededJson,
        since: Moment,
        seen("seen_lease"): Int,
    }
}

table! {
    WaiterRows "waiters" of (&'a Kind, &'a Name) => Waiter, |of, waiter|
    by ["ticket"] = [Int &waiter.ticket]; upserts
    fixed { kind: Text = of.0, resource: Text = of.1 }
    changing { waiter: OfWaiter = waiter }
    read (Resource, Waiter) = (Resource { kind, name: resource }, waiter);
    statements {
        /// Includes everything else that a decision about a lock needs: claims; and the holders of resources that a
        /// waiting claim wants, as they pass its reservations. Each kind of row has columns of its own. These tables
        /// are nearly always empty, and are read with every lock and semaphore: one statement then takes SQLite 5 µs,
        /// four of them 9 µs.
        All => "SELECT 'waiter', {waiters}, {no claims}, CAST(NULL AS BIGINT), CAST(NULL AS TEXT) \
            FROM waiters WHERE project = $1 \
            UNION ALL SELECT 'claim', {no waiters}, {claims}, NULL, NULL FROM claims WHERE project = $1 \
            UNION ALL SELECT 'holder', {no waiters}, {no claims}, c.ticket, l.holder \
            FROM claims c CROSS JOIN locks l WHERE c.project = $1 AND c.terms IS NOT NULL AND c.kind = 'lock' \
            AND l.project = $1 AND l.name = c.resource AND l.holder IS NOT NULL \
            UNION ALL SELECT 'holder', {no waiters}, {no claims}, c.ticket, s.holder \
            FROM claims c CROSS JOIN /* sqlite */ slots s WHERE s.project = $1 AND s.semaphore = c.resource AND \
            /* postgres */ LATERAL (SELECT * FROM slots o WHERE o.project = $1 AND o.semaphore = c.resource OFFSET 0) s WHERE /* end */ \
            c.project = $1 AND c.terms IS NOT NULL AND c.kind = 'semaphore'",
    }
}

/// The statements that change the waiters of one resource.
pub(crate) fn changes<'a>(project: i64, of: (&'a Kind, &'a Name), was: Option<&'a Waiters>, is: &'a Waiters, queries: &mut Vec<Query<'a>>) {
    if was == Some(is) {
        return;
    }
    for waiter in was.into_iter().flat_map(Waiters::iter).filter(|waiter| is.position(waiter.ticket).is_none()) {
        queries.push(table::delete::<WaiterRows>(project, of, waiter));
    }
    for waiter in is.iter() {
        let before = was.and_then(|was| was.get(was.position(waiter.ticket)?));
        queries.extend(table::change::<WaiterRows>(project, of, before, waiter));
    }
}
