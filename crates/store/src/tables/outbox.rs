//! Commands to carry out after a commit. Commands of one subject are carried out in the order of their numbers.

use banksman_core::Seq;
use banksman_core::backlog::OutboxEntry;
use banksman_core::ids::RunId;

use crate::columns::{Int, NeededJson, OrEmpty, Text};
use crate::table::table;

table! {
    Outbox "outbox" of &'a Seq => OutboxEntry, |_seq, entry|
    by ["seq"] = [Int &entry.seq]; inserts
    fixed { seq: Int, command("errand"): NeededJson } + { "subject": Text = entry.command.run().map_or("", RunId::as_str) }
    changing { executor: OrEmpty, attempts: Int, due: Int }
    read OutboxEntry = OutboxEntry { seq, executor, command, attempts, due };
    statements {
        /// The entries of a runner, and those without an executor.
        OfRunner => "SELECT {outbox} FROM outbox WHERE project = $1 AND executor IN ($2, '') ORDER BY seq",
        /// Entries of a run come after its claim. Without this bound PostgreSQL would also scan deleted entries that a
        /// backup still sees.
        OfRun => "SELECT {outbox} FROM outbox WHERE project = $1 AND subject = $2 \
            AND seq >= coalesce((SELECT r.epoch FROM runs r WHERE r.project = $1 AND r.id = $2), 0) ORDER BY seq",
        All => "SELECT {outbox} FROM outbox WHERE project = $1 ORDER BY seq",
    }
}
