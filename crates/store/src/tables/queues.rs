//! Queues. `length` is the number of items, dead ones included; it follows from them.

use banksman_core::Name;
use banksman_core::queue::{Config, Queue};

use crate::columns::{Int, Text, columns};
use crate::table::table;

columns! {
    /// The terms of a queue.
    OfConfig of Config {
        visibility_timeout("visibility"): Int,
        max_attempts: Int,
        dead_letter: Text,
        max_length: Int,
    }
}

table! {
    Queues "queues" of &'a Name => Queue, |_name, queue|
    by ["name"] = [Text &queue.name]; saves
    fixed { name: Text }
    changing { config: OfConfig, paused: Int, length: Int }
    read Queue = Queue { name, config, paused, length };
    statements {
        All => "SELECT {queues} FROM queues WHERE project = $1 ORDER BY name",
        /// A queue and its dead-letter queue.
        ByName => "SELECT {queues} FROM queues WHERE project = $1 AND name = $2 \
            UNION ALL SELECT {queues d} FROM {dead_letter queues} AND d.name = q.dead_letter",
    }
}
