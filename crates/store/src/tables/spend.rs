//! Usage and cost of agents, by day and agent.

use banksman_core::agent::Usage;
use banksman_core::agent::spend::DaySpend;
use banksman_core::ids::Name;

use crate::columns::{Int, Text};
use crate::table::table;

table! {
    Spend "spend" of &'a (i64, Name) => DaySpend, |_key, spend|
    by ["day", "agent"] = [Int &spend.day, Text &spend.agent]; saves
    fixed { day: Int, agent: Text }
    changing { runs: Int, input: Int = &spend.usage.input, output: Int = &spend.usage.output, cache_read: Int = &spend.usage.cache_read,
        cache_write: Int = &spend.usage.cache_write, cost_micros: Int, paid_micros: Int }
    read DaySpend = DaySpend { day, agent, runs, usage: Usage { input, output, cache_read, cache_write }, cost_micros, paid_micros };
    statements {
        All => "SELECT {spend} FROM spend WHERE project = $1 ORDER BY day, agent",
        Since => "SELECT {spend} FROM spend WHERE project = $1 AND day >= $2 ORDER BY day, agent",
    }
}
