//! The processes that wait for an item of a queue, by ticket.

use banksman_core::Ticket;
use banksman_core::queue::Taker;

use crate::columns::{Int, Moment, NeededJson, Text};
use crate::table::table;

table! {
    Takers "takers" of &'a Ticket => Taker, |_ticket, taker|
    by ["queue", "ticket"] = [Text &taker.queue, Int &taker.ticket]; upserts
    fixed { ticket: Int, queue: Text, holder: Text, standing: NeededJson, since: Moment }
    changing { seen("seen_lease"): Int }
    read Taker = Taker { ticket, queue, holder, standing, since, seen };
    statements {
        First => "SELECT {takers} FROM takers WHERE project = $1 AND queue = $2 ORDER BY ticket LIMIT 1",
        /// The takers of a queue and of its dead-letter queue.
        OfQueue => "SELECT {takers} FROM takers WHERE project = $1 AND queue = $2 \
            UNION ALL SELECT {takers d} FROM {dead_letter takers} AND d.queue = q.dead_letter",
        All => "SELECT {takers} FROM takers WHERE project = $1 ORDER BY ticket",
    }
}
