//! Runners: processes that claim tasks.

use banksman_core::backlog::Runner;
use banksman_core::ids::RunnerId;

use crate::columns::{Int, Json, Moment, NeededJson, Text};
use crate::table::table;

table! {
    /// The runners.
    Runners "runners" of &'a RunnerId => Runner, |_id, runner|
    by ["id"] = [Text &runner.id]; upserts
    fixed { id: Text, process: NeededJson, address: Text, sections: Json, max_runs: Int, started: Moment }
    changing { watching: Json, seen("seen_lease"): Int, terms: Json, shortage: Json }
    read Runner = Runner { id, process, address, sections, max_runs, watching, started, seen, terms, shortage };
    statements {
        All => "SELECT {runners} FROM runners WHERE project = $1 ORDER BY id",
        /// Where to wake the runners, once for each worker of a queue.
        OfQueue => "{woken} AND w.queue = $2",
        OfQueueAndDeadLetter => "{woken} AND w.queue IN {and_dead_letter}",
        OfQueues => "{woken}",
    }
}
